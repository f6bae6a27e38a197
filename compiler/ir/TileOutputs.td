// The tile dialect: from sums to outputs. Part of TileDialect.td.
def Tile_SplitSumOp : Tile_Op<"split_sum", []> {
  let summary = "sums the accumulators of all CTAs that share an output tile";
  let description = [{
    Of the `shares` of an output tile one CTA adds all in an order that does not depend on when they
    come: with a split of k the last to come, with equal shares (split 0) the one of the last share.
    `last` is true in that CTA, whose results are the sums. The others leave their accumulators in
    the workspace, at place `first` + `share`, and count them in the counter of `tile`.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$workspace, I32:$tile, I32:$shares, I32:$share,
                       I32:$first, Variadic<Accumulator>:$values);
  let results = (outs I1:$last, Variadic<Accumulator>:$sums);
  let assemblyFormat = [{
    $workspace `tile` $tile `share` $share `of` $shares `at` $first
    `(` $values `:` type($values) `)` attr-dict `:` type($workspace) `->` type($sums)
  }];
}

def Tile_LoadRowScalesOp : Tile_Op<"load_row_scales", []> {
  let summary = "per-channel scales of this thread's weight rows, from global memory, as they are packed";
  let description = [{
    Each in a unit of `unit` bits; tile.convert_scales makes them f32. Past the `rows` that there are
    those of the last.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, Count:$rows,
                       I32:$tileN, CodeBits:$unit);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $source `+` $base `rows` $rows `tile` $tileN `in` $unit attr-dict `:` type($source) `->` type($words)
  }];
}

def Tile_LoadTokenScalesOp : Tile_Op<"load_token_scales", []> {
  let summary = "per-token scales of this thread's two batch rows of an n8 tile; past the last row that of row 0";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I32:$rows, I32:$tileM,
                       Count:$batchTile, ElementName:$element);
  let results = (outs F32Vector:$scales);
  let assemblyFormat = [{
    $source `rows` $rows `tile` $tileM `batch_tile` $batchTile `as` $element attr-dict `:` type($source) `->` type($scales)
  }];
}

def Tile_LoadShareOfTokensOp : Tile_Op<"load_share_of_tokens", []> {
  let summary = "per-token scales of this thread's share of a tile: of the batch rows that equal its place in the warpgroup, modulo 128";
  let description = [{Past the last row that of row 0.}];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I32:$rows, I32:$tileM,
                       ElementName:$element);
  let results = (outs F32Vector:$scales);
  let assemblyFormat = [{
    $source `rows` $rows `tile` $tileM `as` $element attr-dict `:` type($source) `->` type($scales)
  }];
}

def Tile_ShareTokensOp : Tile_Op<"share_tokens", []> {
  let summary = "scales of all shares to those of this thread's two batch rows of each n8 tile";
  let description = [{
    Through a part of `buffer` for each warpgroup, whose threads meet here. They must meet again
    before the next.
  }];
  let arguments = (ins F32Vector:$share, Tile_Shared:$buffer);
  let results = (outs Variadic<F32Vector>:$scales);
  let assemblyFormat = [{
    $share `through` $buffer attr-dict `:` type($share) `,` type($buffer) `->` type($scales)
  }];
}

def Tile_LoadTensorScaleOp : Tile_Op<"load_tensor_scale", []> {
  let summary = "a single scale from global memory";
  let description = [{Unit and shift as of tile.convert_scales.}];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, ElementName:$element,
                       CodeBits:$unit, Count:$shift);
  let results = (outs F32:$scale);
  let assemblyFormat = "$source `+` $base `as` $element `in` $unit `at` $shift attr-dict `:` type($source)";
}

def Tile_StoreOutputOp : Tile_Op<"store_output", []> {
  let summary = "rounds and stores the outputs that lie inside the matrix";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$target, I32:$rows, Count:$columns,
                       I32:$tileN, I32:$tileM, ElementName:$element, Variadic<Accumulator>:$values);
  let assemblyFormat = [{
    $target `rows` $rows `columns` $columns `tile` $tileN `,` $tileM `as` $element `(` $values `:` type($values) `)` attr-dict
    `:` type($target)
  }];
}

def Tile_StoreBoxOp : Tile_Op<"store_box", []> {
  let summary = "rounds the outputs and stores them through shared memory and a tensor map";
  let description = [{
    The tile goes in slices of `rows` batch rows. Each warpgroup writes its columns of a slice to
    the next part of `buffer`, as boxes of 128 bytes a row under the 128-byte swizzle, and one of
    its threads starts the copies of these boxes to memory, as one group. A part is written again
    once its copies have read it.
  }];
  let arguments = (ins LLVM_AnyPointer:$map, I32:$tileN, I32:$tileM, Tile_Shared:$buffer,
                       Count:$rows, ElementName:$element, Variadic<Accumulator>:$values);
  let assemblyFormat = [{
    $map `tile` $tileN `,` $tileM `through` $buffer `rows` $rows `as` $element `(` $values `:` type($values) `)` attr-dict
    `:` type($map) `,` type($buffer)
  }];
  let hasVerifier = 1;
}

def Tile_WaitStoresOp : Tile_Op<"wait_stores", []> {
  let summary = "waits until all that tile.store_box started is in memory";
  let assemblyFormat = "attr-dict";
}
