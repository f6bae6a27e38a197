// Operations of the tile dialect on blocks of k that share a scale; part of TileDialect.td.
#ifndef TILE_BLOCK_OPS_TD
#define TILE_BLOCK_OPS_TD

def Tile_LoadBlockScalesOp : Tile_Op<"load_block_scales", []> {
  let summary = "one word of block scales, as block_mma takes them";
  let description = [{
    Word `word` of the tile has four blocks of a row. `weight`: the threads of a quad hold those of
    the fragment rows of row tile `tile` and of the next; else those of n8 tiles `tile` to
    `tile` + 3, as far as the warp has them.
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, Count:$word, Count:$tile,
                       UnitAttr:$weight);
  let results = (outs I32:$scales);
  let assemblyFormat = [{
    (`weight` $weight^):(`activation`)? $buffer `[` $slot `]` `word` $word `tile` $tile attr-dict
    `:` type($buffer)
  }];
}

def Tile_LoadBlockCodesOp : Tile_Op<"load_block_codes", []> {
  let summary = "words of codes of four blocks, of the rows that this thread has of an operand";
  let description = [{
    Words as of tile.load_block_scales. `weight`: those of both fragment rows of row tile `tile`; else
    that of its column of n8 tile `tile`.
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, Count:$word, Count:$tile,
                       UnitAttr:$weight);
  let results = (outs I32Vector:$codes);
  let assemblyFormat = [{
    (`weight` $weight^):(`activation`)? $buffer `[` $slot `]` `word` $word `tile` $tile attr-dict
    `:` type($buffer) `->` type($codes)
  }];
}

def Tile_PickBlockOp : Tile_Op<"pick_block", [Pure]> {
  let summary = "the byte of one block of a word, with 0xcc in the bytes above it";
  let description = [{
    The threads of a quad take `spread` consecutive bytes in turn, from `byte` on.
  }];
  let arguments = (ins I32:$codes, Count:$byte, Count:$spread);
  let results = (outs I32:$picked);
  let assemblyFormat = "$codes `[` $byte `]` `spread` $spread attr-dict";
}

def Tile_LoadTensorCodeOp : Tile_Op<"load_tensor_code", []> {
  let summary = "a single code of so many bits from global memory";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, CodeBits:$bits);
  let results = (outs I32:$code);
  let assemblyFormat = "$source `+` $base `bits` $bits attr-dict `:` type($source)";
}

def Tile_JoinOp : Tile_Op<"join", [Pure]> {
  let summary = "words as a vector";
  let arguments = (ins Variadic<I32>:$words);
  let results = (outs I32Vector:$vector);
  let assemblyFormat = "`(` $words `)` attr-dict `->` type($vector)";
}

def Tile_BlockMmaOp : Tile_Op<"block_mma", [Pure]> {
  let summary = "one matrix instruction that scales its operands, with 32 bytes of k per row";
  let description = [{
    As tile.mma, but elements are multiplied by scales of type `scale`, in consecutive bytes of a
    word from `byte` on, each for as much of k as `perStep` of them leave. Those of A are in the
    pair of threads `threadA` of each quad, those of B in thread `threadB`.
  }];
  let arguments = (ins Variadic<I32>:$a, I32Vector:$b, Count:$step, Accumulator:$c, I32:$scaleA,
                       I32:$scaleB, Count:$byte, Count:$threadA, Count:$threadB,
                       Count:$perStep, ElementName:$element, ElementName:$scale);
  let results = (outs Accumulator:$result);
  let assemblyFormat = [{
    $element `(` $a `)` `,` $b `step` $step `,` $c `scales` $scale `x` $perStep `byte` $byte
    $scaleA `of` $threadA `,` $scaleB `of` $threadB attr-dict
    `:` type($b) `,` type($c) `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif // TILE_BLOCK_OPS_TD
