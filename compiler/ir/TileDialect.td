// The tile dialect: how one CTA computes its tile. Shared buffers, a pipeline and the roles of warps,
// asynchronous copies, fragments and matrix atoms.
#ifndef TILE_DIALECT_TD
#define TILE_DIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Dialect/LLVMIR/LLVMOpBase.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::rho::tile";
  let summary = "the program of one thread block";
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

// Attributes that the lowering looks up.
def ElementName
    : ConfinedAttr<StrAttr, [AttrConstraint<
          CPred<"::rho::dsl::ElementType::fromName(::llvm::cast<::mlir::StringAttr>($_self).getValue())">,
          "names an element type">]>;

// Printed like I64Attr, and signed in C++ as all extents are.
def Count : TypedSignlessIntegerAttrBase<I64, "int64_t", "64-bit signless integer attribute">;
def CodeBits : ConfinedAttr<Count, [IntMinValue<1>, IntMaxValue<32>]>;

def Tile_Shared : TypeDef<Tile_Dialect, "Shared"> {
  let mnemonic = "shared";
  let summary = "a shared-memory buffer of `stages` equal parts";
  let parameters = (ins "int64_t":$bytes, "int64_t":$stages);
  let assemblyFormat = "`<` $bytes `x` $stages `>`";
  let genVerifyDecl = 1;
}

def Tile_Geometry : AttrDef<Tile_Dialect, "Geometry"> {
  let mnemonic = "geometry";
  let summary = "how a CTA tile is divided among warps and instructions; see plan/Geometry.h";
  let parameters = (ins "int64_t":$tileM, "int64_t":$tileN, "int64_t":$tileK, "int64_t":$warpsM,
                        "int64_t":$warpsN, "int64_t":$warpsK, StringRefParameter<"MMA operand type">:$mma,
                        "int64_t":$codeBits, "int64_t":$splitK, StringRefParameter<"uniform, imfp, excp or gemv">:$roles,
                        "int64_t":$clusterN, "int64_t":$clusterK,
                        "int64_t":$panelWarps);
  let assemblyFormat = [{
    `<` `tile` $tileM `x` $tileN `x` $tileK `warps` $warpsM `x` $warpsN `x` $warpsK `mma` $mma `codes` $codeBits `split` $splitK
    `roles` $roles `cluster` $clusterN `x` $clusterK `panel` $panelWarps `>`
  }];
  let genVerifyDecl = 1;
}

def I32Vector : VectorOfRankAndType<[1], [I32]>;
def F32Vector : VectorOfRankAndType<[1], [F32]>;
def Accumulator : VectorOfLengthAndType<[4], [F32, I32]>;
def Carried : AnyTypeOf<[Accumulator, I32]>; // from k tile to k tile: sums, registers of operand A

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

def Tile_KernelOp : Tile_Op<"kernel", [Symbol, IsolatedFromAbove, SingleBlock, NoTerminator]> {
  let summary = "a kernel; the block's arguments are its parameters";
  let description = [{
    `target` is the architecture. A pointer parameter in the generic address space is a tensor map
    that the launch passes by value. `dependent`: the kernel may start before the one ahead of it in
    the stream has ended.
    `ctasPerSm` CTAs share the registers of an SM. `origins` are dotted paths into the declaration;
    the location of an operation is line i + 1 of file "rho" when it comes from origins[i].
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$target, Tile_Geometry:$geometry,
                       StrArrayAttr:$origins, UnitAttr:$dependent, Count:$ctasPerSm);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
}

def Tile_AllocSharedOp : Tile_Op<"alloc_shared", []> {
  let summary = "a shared buffer, one part per pipeline stage";
  let description = [{
    Passes find some buffers by their labels: `shared_labels` in Dialects.h. Buffers lie one after
    the other, those `over_stages` from the first on: where stages are that are multiplied by then.
  }];
  let arguments = (ins StrAttr:$label, UnitAttr:$over_stages);
  let results = (outs Tile_Shared:$buffer);
  let assemblyFormat = "$label (`over_stages` $over_stages^)? attr-dict `:` type($buffer)";
}

def Tile_FillPairTablesOp : Tile_Op<"fill_pair_tables", []> {
  let summary = "fills tables of pairs of lanes";
  let description = [{
    By the threads of a kernel that multiply or decode, before the first k tile is read. Entry i of
    256 has lane i % 16 below lane i / 16 in each of its words; entries and tables lie as `DecodeProgram::lanes` says. With
    `numbers` there is a table for each of them, whose lane `code` is that number's: f16 or bf16,
    in both halves.
  }];
  let arguments = (ins Tile_Shared:$buffer, Variadic<I32>:$numbers, DenseI32ArrayAttr:$lanes,
                       I32Attr:$code);
  let assemblyFormat = [{
    $buffer $lanes (`but` $numbers^)? `at` $code attr-dict `:` type($buffer)
  }];
  let hasVerifier = 1;
}

def Tile_PairTablesOp : Tile_Op<"pair_tables", [Pure]> {
  let summary = "where in shared memory such tables begin, and this lane of a warp in an entry";
  let arguments = (ins Tile_Shared:$buffer);
  let results = (outs I32:$begin, I32:$lane);
  let assemblyFormat = "$buffer attr-dict `:` type($buffer)";
}

def Tile_ForTilesOp : Tile_Op<"for_tiles", [SingleBlock, NoTerminator]> {
  let summary = "the output tiles of one CTA";
  let description = [{
    The body computes one output tile, or this CTA's share of its k tiles. Its arguments are the
    tile's index along n and along m, the first and the last (exclusive) of `tilesK` k tiles, and
    of the shares of the tile: their number, which one this is, and the place of the first of them
    in the workspace. With `one_each` a CTA has one tile or, where k is split, one share of one.
    Otherwise the grid is persistent: every cluster of CTAs takes each so manieth cluster of tiles,
    in an order in which tiles that run at a time share rows of both operands in L2; with equal
    shares (split 0) the k tiles of all tiles, one tile after the other, are divided among the CTAs.
    Only with `one_each` may buffers lie over stages. Where the k tiles
    of a tile come part by part, so many of each, every one counts as what those of its part cost;
    but a share that is less than the dearest of them is of as many k tiles as any other. The CTAs of
    a cluster along n have neighbouring tiles along n; those past the last tile load that one once
    more and store nothing.
  }];
  let arguments = (ins Count:$tilesN, I32:$tilesM, Count:$tilesK, Variadic<I32>:$ofParts,
                   OptionalAttr<DenseI64ArrayAttr>:$costs, UnitAttr:$one_each);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $tilesN `x` $tilesM `x` $tilesK (`one_each` $one_each^)? (`parts` $ofParts^ `cost` $costs)? attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
}

def Tile_PipelineOp : Tile_Op<"pipeline", []> {
  let summary = "a software pipeline over k tiles";
  let description = [{
    For each k tile from `first` to `last` (exclusive) `produce` starts the copies of the tile into
    slot `tile % depth`, and `consume` uses them, `depth - 1` tiles later. Both bodies see the k
    tile and the slot; `consume` also carries values from tile to tile. With `decode`, which turns a
    slot's codes to operand A in a slot of a second ring, that one and `consume` also see the
    latter, after the former.
  }];
  let arguments = (ins I32:$first, I32:$last, Count:$depth, Variadic<Carried>:$inits);
  let results = (outs Variadic<Carried>:$results);
  let regions = (region SizedRegion<1>:$produce, SizedRegion<1>:$consume, AnyRegion:$decode);
  let assemblyFormat = [{
    $first `to` $last `depth` $depth (`init` `(` $inits^ `:` type($inits) `)`)? attr-dict-with-keyword
    `produce` $produce (`decode` $decode^)? `consume` $consume (`->` type($results)^)?
  }];
  let hasVerifier = 1;
}

def Tile_TotalOp : Tile_Op<"total", []> {
  let summary = "in tile.for_tiles: the sums of all its pipelines; what follows is done once a tile";
  let arguments = (ins Variadic<Accumulator>:$values);
  let results = (outs Variadic<Accumulator>:$sums);
  let assemblyFormat = "$values `:` type($values) attr-dict `->` type($sums)";
}

def Tile_YieldOp : Tile_Op<"yield", [Terminator]> {
  let summary = "ends a pipeline body";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

def Tile_CopyPanelOp : Tile_Op<"copy_panel", []> {
  let summary = "asynchronous copy of the contiguous tiles of one panel of a packed section";
  let description = [{
    Fills the `panel`th of `panels` equal shares of a buffer part from `source + base + tile * size`
    on, where tiles of `size` bytes begin.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, I32:$tile,
                       Count:$size, Tile_Shared:$buffer, I32:$slot, Count:$panel,
                       Count:$panels);
  let assemblyFormat = [{
    $source `+` $base `tile` $tile `of` $size `to` $buffer `[` $slot `]` `panel` $panel `of` $panels attr-dict
    `:` type($source) `,` type($buffer)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t copiedBytes() {
      return getBuffer().getType().getBytes() / getPanels();
    }
  }];
}

def Tile_CopyRowsOp : Tile_Op<"copy_rows", []> {
  let summary = "asynchronous copy of a rectangle, zero outside the matrix";
  let description = [{
    Row i of the part receives `rowBytes` bytes from row `row + i`, byte `column` on, of a matrix
    with rows of `pitch` bytes. Bytes at or beyond `pitch` and rows at or beyond `rowLimit` are
    zero. With `swizzle`, 16-byte pieces are permuted within rows so that ldmatrix has no bank
    conflicts.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I32:$row, I32:$rowLimit, I32:$column,
                       I32:$pitch, Tile_Shared:$buffer, I32:$slot, Count:$rows,
                       Count:$rowBytes, BoolAttr:$swizzle);
  let assemblyFormat = [{
    $source `row` $row `of` $rowLimit `column` $column `of` $pitch `to` $buffer `[` $slot `]`
    `rows` $rows `x` $rowBytes `swizzle` $swizzle attr-dict `:` type($source) `,` type($buffer)
  }];
}

def Tile_CopyBoxOp : Tile_Op<"copy_box", []> {
  let summary = "asynchronous copy of a rectangle by a tensor map, zero outside the matrix";
  let description = [{
    The part receives `rows` rows of `rowBytes` bytes from row `row`, byte `column` on, as boxes of
    `boxBytes` bytes a row, one box after the other along a row. `multicast`: the CTAs of a cluster
    along n have the same rows; each copies an equal share of them to all. `trimmed`: the map's
    boxes have so many rows, and those of the part behind them stay as they are.
  }];
  let arguments = (ins LLVM_AnyPointer:$map, I32:$row, I32:$column, Tile_Shared:$buffer, I32:$slot,
                       Count:$rows, Count:$rowBytes, Count:$boxBytes, UnitAttr:$multicast,
                       Optional<I32>:$trimmed);
  let assemblyFormat = [{
    $map `row` $row `column` $column `to` $buffer `[` $slot `]` `rows` $rows `x` $rowBytes
    `box` $boxBytes (`multicast` $multicast^)? (`trimmed` $trimmed^)? attr-dict
    `:` type($map) `,` type($buffer)
  }];
}

def Tile_LoadCodesOp : Tile_Op<"load_codes", []> {
  let summary = "what belongs to this thread of one chunk of a plane of codes";
  let description = [{
    Row tiles past those of the warp are those of the warp four further on, and so forth.
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, Count:$chunk, Count:$rowTile);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `chunk` $chunk `row_tile` $rowTile attr-dict `:` type($buffer) `->` type($words)
  }];
}

def Tile_StreamCodesOp : Tile_Op<"stream_codes", []> {
  let summary = "what belongs to this thread of one chunk of a plane of codes, straight from global memory";
  let description = [{
    `tile` counts tiles of a chunk, from the packed section that begins at `source + base` on. Not kept
    in L1: nobody else reads them.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, I32:$tile,
                       Count:$chunk, Count:$rowTile);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $source `+` $base `tile` $tile `chunk` $chunk `row_tile` $rowTile attr-dict
    `:` type($source) `->` type($words)
  }];
}

def Tile_StreamRowCodesOp : Tile_Op<"stream_row_codes", []> {
  let summary = "packed codes of this thread's weight rows for one group, from global memory";
  let description = [{
    `tile` counts tiles of `spread` groups, which the threads of a quad take in turn.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, I32:$tile,
                       Count:$group, Count:$spread, CodeBits:$bits);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $source `+` $base `tile` $tile `group` $group `spread` $spread `bits` $bits attr-dict
    `:` type($source) `->` type($words)
  }];
}

def Tile_LoadActivationOp : Tile_Op<"load_activation", [AttrSizedOperandSegments]> {
  let summary = "operand B registers of a chunk of k and an n8 tile; `further` chunks on";
  let description = [{
    Rows have `rowBytes` bytes; without it those that the geometry says. By ldmatrix, or, with
    `runs`, each thread a run of k. `trimmed`: of so many rows, the last in place of others.
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, Count:$chunk, Count:$batchTile,
                       Optional<I32>:$further, OptionalAttr<Count>:$rowBytes, UnitAttr:$runs,
                       Optional<I32>:$trimmed);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `chunk` $chunk (`+` $further^)? `batch_tile` $batchTile
    (`row_bytes` $rowBytes^)? (`trimmed` $trimmed^)? attr-dict `:` type($buffer) `->` type($words)
  }];
}

def Tile_LoadBatchRowOp : Tile_Op<"load_batch_row", []> {
  let summary = "this thread's run of k of one chunk and batch row: four s8 to a word, or f32";
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, Count:$chunk, Count:$row,
                       ElementName:$element);
  let results = (outs AnyTypeOf<[I32Vector, F32Vector]>:$numbers);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `chunk` $chunk `row` $row `as` $element attr-dict
    `:` type($buffer) `->` type($numbers)
  }];
}

def Tile_LoadRowCodesOp : Tile_Op<"load_row_codes", []> {
  let summary = "packed codes of this thread's weight rows for one group of the tile";
  let description = [{
    `warpgroup` n: of the rows that the thread of the same place n warpgroups further on has. The
    threads of a quad take `spread` consecutive groups in turn, the `group`th so many of `groups`.
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, Count:$group, Count:$groups,
                       CodeBits:$bits,
                       DefaultValuedAttr<Count, "0">:$warpgroup,
                       DefaultValuedAttr<Count, "1">:$spread);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `group` $group `of` $groups `bits` $bits (`warpgroup` $warpgroup^)? attr-dict `:` type($buffer) `->` type($words)
  }];
}

def Tile_LoadColumnScalesOp : Tile_Op<"load_column_scales", []> {
  let summary = "scales of this thread's two batch rows of an n8 tile for one group of the tile";
  let description = [{
    The threads of a quad take `spread` consecutive groups in turn, from `group` + `further` on.
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, Count:$group, Count:$batchTile,
                       ElementName:$element, DefaultValuedAttr<Count, "1">:$spread,
                       Optional<I32>:$further);
  let results = (outs F32Vector:$scales);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `group` $group (`+` $further^)? `batch_tile` $batchTile `as` $element attr-dict
    `:` type($buffer) `->` type($scales)
  }];
}

def Tile_DecodeOp : Tile_Op<"decode", [Pure, AttrSizedOperandSegments]> {
  let summary = "packed words through a straight-line program";
  let arguments = (ins Variadic<I32>:$words, Variadic<I32>:$parameters, StrAttr:$program);
  let results = (outs Variadic<I32>:$registers);
  let assemblyFormat = [{
    $words (`with` $parameters^)? `program` $program attr-dict (`->` type($registers)^)?
  }];
  let hasVerifier = 1;
}

def Tile_ExtractOp : Tile_Op<"extract", [Pure]> {
  let summary = "one word or number of a vector";
  let arguments = (ins AnyTypeOf<[I32Vector, F32Vector]>:$vector, Count:$position);
  let results = (outs AnyTypeOf<[I32, F32]>:$result);
  let assemblyFormat = "$vector `[` $position `]` attr-dict `:` type($vector) `->` type($result)";
}

def Tile_ConvertScalesOp : Tile_Op<"convert_scales", [Pure]> {
  let summary = "packed scales to f32";
  let description = [{
    Each lies in a unit of `unit` bits, from bit `shift` on. `fractions`: instead of an unsigned
    integer u of at most 7 bits, all of which is in one byte, 1 + u / 128. Where bit `sign` of a
    unit is set, the scale is the negative one.
  }];
  let arguments = (ins I32Vector:$words, ElementName:$element, CodeBits:$unit,
                       Count:$shift, OptionalAttr<Count>:$sign, UnitAttr:$fractions);
  let results = (outs F32Vector:$scales);
  let assemblyFormat = [{
    (`fractions` $fractions^)? $words `from` $element `in` $unit `at` $shift (`sign` $sign^)? attr-dict
    `:` type($words) `->` type($scales)
  }];
  let hasVerifier = 1;
}

def Tile_PairOp : Tile_Op<"pair", [Pure]> {
  let summary = "a number rounded to f16 or bf16, in both halves of a register";
  let arguments = (ins F32:$number, ElementName:$element);
  let results = (outs I32:$result);
  let assemblyFormat = "$number `as` $element attr-dict";
}

def Tile_MmaOp : Tile_Op<"mma", [Pure]> {
  let summary = "one matrix instruction: m16n8 with 32 bytes of k per row";
  let description = [{
    Of integers also with 16 bytes, operand A then has two registers, and `step` counts such halves.
  }];
  let arguments = (ins Variadic<I32>:$a, I32Vector:$b, Count:$step, Accumulator:$c,
                       ElementName:$element);
  let results = (outs Accumulator:$result);
  let assemblyFormat = [{
    $element `(` $a `)` `,` $b `step` $step `,` $c attr-dict `:` type($b) `,` type($c) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_StoreOperandOp : Tile_Op<"store_operand", []> {
  let summary = "operand A of one instruction to shared memory, where instructions may read it";
  let description = [{
    `a` are the four registers of the fragment of k step `step`. The part holds 64 rows of a warpgroup
    after another, by `rowTile`, in the order of the fragments; in each of them k lies as in the
    boxes of a tile.copy_box with 128-byte swizzle.
  }];
  let arguments = (ins Variadic<I32>:$a, Tile_Shared:$buffer, I32:$slot, Count:$step,
                       Count:$rowTile);
  let assemblyFormat = [{
    `(` $a `)` `to` $buffer `[` $slot `]` `step` $step `row_tile` $rowTile attr-dict `:` type($buffer)
  }];
  let hasVerifier = 1;
}

def Tile_DotOp : Tile_Op<"dot", [Pure, AttrSizedOperandSegments]> {
  let summary = "products of registers of two weight rows with one or two batch rows, on CUDA cores";
  let description = [{
    Result (r, c) is c (r, c) plus the sum over the k of a register of weight row r times batch row
    c, whose numbers of those k begin at register `position` of its run.
  }];
  let arguments = (ins Variadic<I32>:$a, Variadic<AnyTypeOf<[I32Vector, F32Vector]>>:$b,
                       Count:$position, Accumulator:$c, ElementName:$element);
  let results = (outs Accumulator:$result);
  let assemblyFormat = [{
    $element `(` $a `)` `,` `(` $b `:` type($b) `)` `at` $position `,` $c attr-dict
    `:` type($c) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_WarpgroupMmaOp : Tile_Op<"warpgroup_mma", [AttrSizedOperandSegments]> {
  let summary = "a batch of matrix instructions of a warpgroup, started together";
  let description = [{
    For each step of k and each tile of 64 weight rows one instruction, steps outermost: `a` holds 4
    registers for each of them, or all are read from a part of `operand` (tile.store_operand).
    Operand B is read from a part of `buffer`, `further` k steps on. Both are read from k step
    `first` on.
    `c` are the accumulators, row tile by row tile, n8 tiles innermost; without them the sums start
    at zero. Results may be used by further batches at once, by anything else after
    tile.warpgroup_wait.
  }];
  let arguments = (ins Variadic<I32>:$a, Tile_Shared:$buffer, I32:$slot, Count:$first,
                       Count:$steps, ElementName:$element, Variadic<Accumulator>:$c,
                       Optional<Tile_Shared>:$operand, Optional<I32>:$operandSlot,
                       Optional<I32>:$further);
  let results = (outs Variadic<Accumulator>:$results);
  let assemblyFormat = [{
    $element (`(` $a^ `)`)? (`operand` $operand^ `[` $operandSlot `]` `:` type($operand))? `,`
    $buffer `[` $slot `]` `steps` $steps `from` $first (`+` $further^)?
    (`plus` $c^ `:` type($c))? attr-dict `:` type($buffer) `->` type($results)
  }];
  let hasVerifier = 1;
}

def Tile_WarpgroupWaitOp : Tile_Op<"warpgroup_wait", [AttrSizedOperandSegments]> {
  let summary = "waits until at most `pending` batches are on their way";
  let description = [{
    `values` are sums that may be used once it has ended. `held` are registers of operand A of
    batches that have ended then: until here they must keep their values.
  }];
  let arguments = (ins Count:$pending, Variadic<Accumulator>:$values, Variadic<I32>:$held);
  let results = (outs Variadic<Accumulator>:$results);
  let assemblyFormat = [{
    $pending (`of` $values^ `:` type($values))? (`held` $held^)? attr-dict (`->` type($results)^)?
  }];
}

def Tile_ReleaseOp : Tile_Op<"release", []> {
  let summary = "in a pipeline: all uses of the k tile before this one have ended";
  let assemblyFormat = "attr-dict";
}

def Tile_GroupSumOp : Tile_Op<"group_sum", []> {
  let summary = "sums over the groups of warps along k and the CTAs of the cluster along k";
  let description = [{
    `first` is true in the warps that have them: of the first group, in a cluster warpgroups along n
    by turns in one CTA each. All threads of the cluster but the loaders' come here; the loaders'
    arrive at the cluster's barrier and wait.
  }];
  let arguments = (ins Tile_Shared:$buffer, Variadic<Accumulator>:$values);
  let results = (outs I1:$first, Variadic<Accumulator>:$sums);
  let assemblyFormat = [{
    $buffer `(` $values `:` type($values) `)` attr-dict `:` type($buffer) `->` type($sums)
  }];
}

def Tile_ComputedOp : Tile_Op<"computed", []> {
  let summary = "sums that are computed before all that follows";
  let description = [{
    Loads that follow find the registers of the sums' operands free. Left to itself LLVM moves the
    last products behind those loads, which then need registers of their own and copies that wait.
  }];
  let arguments = (ins Variadic<Accumulator>:$values);
  let results = (outs Variadic<Accumulator>:$sums);
  let assemblyFormat = "$values `:` type($values) attr-dict `->` type($sums)";
}

def Tile_QuadSumOp : Tile_Op<"quad_sum", []> {
  let summary = "sums over the threads of a quad, which have parts of k; `first` is true in one";
  let arguments = (ins Variadic<Accumulator>:$values);
  let results = (outs I1:$first, Variadic<Accumulator>:$sums);
  let assemblyFormat = "$values `:` type($values) attr-dict `->` type($sums)";
}

def Tile_GroupIndexOp : Tile_Op<"group_index", [Pure]> {
  let summary = "which of the groups of warps along k this one is";
  let results = (outs I32:$index);
  let assemblyFormat = "attr-dict";
}

def Tile_InitBarriersOp : Tile_Op<"init_barriers", []> {
  let summary = "a pair of barriers for each stage, made by this thread";
  let description = [{
    Others see them behind tile.barriers_made.
    `full` completes when `producers` threads have arrived and all announced bytes are there, `empty`
    when `consumers` threads have arrived, of all CTAs of the cluster along n.
  }];
  let arguments = (ins Tile_Shared:$barriers, Count:$consumers,
                       DefaultValuedAttr<Count, "1">:$producers);
  let assemblyFormat = [{
    $barriers `consumers` $consumers (`producers` $producers^)? attr-dict `:` type($barriers)
  }];
}

def Tile_BarriersMadeOp : Tile_Op<"barriers_made", []> {
  let summary = "barriers that one thread has made are seen by all that wait here";
  let description = [{
    All threads come here. Without `waits` a thread goes on at once, where no other CTA has barriers
    that it uses.
  }];
  let arguments = (ins UnitAttr:$waits);
  let assemblyFormat = "(`waits` $waits^)? attr-dict";
}

def Tile_PrefetchMapOp : Tile_Op<"prefetch_map", []> {
  let summary = "starts to bring a tensor map near, for the first copy that uses it";
  let arguments = (ins LLVM_AnyPointer:$map);
  let assemblyFormat = "$map attr-dict `:` type($map)";
}

def Tile_BarrierWaitOp : Tile_Op<"barrier_wait", []> {
  let summary = "waits for the phase of the given parity to complete";
  let arguments = (ins Tile_Shared:$barriers, I32:$slot, I32:$parity, UnitAttr:$full);
  let assemblyFormat = [{
    (`full` $full^):(`empty`)? $barriers `[` $slot `]` `parity` $parity attr-dict `:` type($barriers)
  }];
}

def Tile_BarrierExpectOp : Tile_Op<"barrier_expect", []> {
  let summary = "the producer's arrival, announcing the bytes that copies will bring";
  let arguments = (ins Tile_Shared:$barriers, I32:$slot, I32:$bytes);
  let assemblyFormat = "$barriers `[` $slot `]` `bytes` $bytes attr-dict `:` type($barriers)";
}

def Tile_BarrierArriveOp : Tile_Op<"barrier_arrive", []> {
  let summary = "one thread of each warp says that the warp is done with a slot, to all who fill it";
  let description = [{
    `full`: that the warp has written it, for matrix instructions to read.
    `after` are registers that were loaded from the slot and that nothing is sure to have needed
    before: their loads have ended when the warp says so. The order of instructions alone does not see
    to that: loads wait behind what matrix instructions read of shared memory, while this overtakes
    them.
  }];
  let arguments = (ins Tile_Shared:$barriers, I32:$slot, UnitAttr:$full,
                       Variadic<AnyTypeOf<[I32Vector, F32Vector]>>:$after);
  let assemblyFormat = [{
    (`full` $full^):(`empty`)? $barriers `[` $slot `]` (`after` $after^ `:` type($after) `of`)?
    attr-dict `:` type($barriers)
  }];
}

def Tile_RegistersOp : Tile_Op<"registers", []> {
  let summary = "gives registers of this warpgroup back, or takes more";
  let arguments = (ins Count:$count, UnitAttr:$more);
  let assemblyFormat = "$count (`more` $more^)? attr-dict";
}

def Tile_LoadEntryOp : Tile_Op<"load_entry", []> {
  let summary = "one entry of a table of 32-bit integers in global memory";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$table, I32:$index);
  let results = (outs I32:$entry);
  let assemblyFormat = "$table `[` $index `]` attr-dict `:` type($table)";
}

def Tile_LaunchDependentsOp : Tile_Op<"launch_dependents", []> {
  let summary = "lets the next kernel of the stream start";
  let assemblyFormat = "attr-dict";
}

def Tile_WaitDependencyOp : Tile_Op<"wait_dependency", []> {
  let summary = "waits until the kernel ahead in the stream has ended and its writes are seen";
  let assemblyFormat = "attr-dict";
}

def Tile_ZeroOp : Tile_Op<"zero", [Pure]> {
  let summary = "accumulators, or words of codes, of zero";
  let results = (outs VectorOfRankAndType<[1], [F32, I32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Tile_ScaleOp : Tile_Op<"scale", [Pure, AttrSizedOperandSegments]> {
  let summary = "accumulators times row, column and single scales, plus a sum";
  let description = [{
    Result (r, c) is value (r, c) as f32, times row scale r (rows: the two of the thread's fragment
    rows), times column scale c, times `factor`, plus `sum` in one rounding. `biased`: the bits of
    the value are those of 1.5 * 2^23 + value as f32. `rowBias` r is row scale r times
    -1.5 * 2^23, exact; value times row scale is then rounded by itself.
  }];
  let arguments = (ins Accumulator:$value, Variadic<F32>:$rows, Optional<F32Vector>:$columns,
                       Optional<F32>:$factor, Optional<Accumulator>:$sum, UnitAttr:$biased,
                       Variadic<F32>:$rowBias);
  let results = (outs Accumulator:$result);
  let assemblyFormat = [{
    (`biased` $biased^ (`(` $rowBias^ `)`)?)? $value (`rows` `(` $rows^ `)`)? (`columns` $columns^ `:` type($columns))?
    (`factor` $factor^)? (`plus` $sum^ `:` type($sum))? attr-dict `:` type($value) `->` type($result)
  }];
}

include "compiler/ir/TileOutputs.td"
include "compiler/ir/TileBlockOps.td"
include "compiler/ir/TileResidual.td"

#endif // TILE_DIALECT_TD
