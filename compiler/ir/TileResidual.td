// Operations of the tile dialect on the stored blocks of a residual.
#ifndef TILE_RESIDUAL_TD
#define TILE_RESIDUAL_TD

def Tile_LoadBlockListOp : Tile_Op<"load_block_list", []> {
  let summary = "which pieces of a residual are stored of this warp's rows of a k tile";
  let description = [{
    Of the `perWarp` pieces along k bit i of `stored` says whether piece i is; they lie one after the
    other from piece `first` of the packed residual on (ResidualLayout).
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, I64Attr:$perWarp);
  let results = (outs I32:$stored, I32:$first);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `per_warp` $perWarp attr-dict `:` type($buffer)
  }];
}

def Tile_PrefetchBlocksOp : Tile_Op<"prefetch_blocks", []> {
  let summary = "starts to bring the stored pieces of a k tile further on into L2";
  let description = [{
    With `between` also those of this k tile and of all up to that one.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I64Attr:$base, Tile_Shared:$buffer,
                       I32:$slot, I64Attr:$pieceBytes, I1:$between);
  let assemblyFormat = [{
    $source `+` $base `pieces` `of` $pieceBytes `by` $buffer `[` $slot `]` `between` $between
    attr-dict `:` type($source) `,` type($buffer)
  }];
}

def Tile_LoadPieceOp : Tile_Op<"load_piece", []> {
  let summary = "what belongs to this thread of one part of a piece of a residual, from global memory";
  let description = [{
    The part begins `offset` bytes into the piece, pieces of `pieceBytes` at `source + base`. It holds
    the words of one lane after another, or with `rowBits` a code of so many bits for each row.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I64Attr:$base, I32:$piece,
                       I64Attr:$pieceBytes, I64Attr:$offset, OptionalAttr<I64Attr>:$rowBits);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $source `+` $base `piece` $piece `of` $pieceBytes `at` $offset (`rows` `bits` $rowBits^)? attr-dict
    `:` type($source) `->` type($words)
  }];
}

#endif // TILE_RESIDUAL_TD
