// Operations of the tile dialect on the stored blocks of a residual.
#ifndef TILE_RESIDUAL_TD
#define TILE_RESIDUAL_TD

def Tile_CopyPiecesOp : Tile_Op<"copy_pieces", []> {
  let summary = "asynchronous copy of the stored pieces of one tile of a residual";
  let description = [{
    The words at `source + firsts` say which of the pieces of `pieceBytes` at `source + base` these
    are: any number of them, up to what the buffer holds. Where copies complete on barriers it
    announces their bytes.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I64Attr:$base, I64Attr:$pieceBytes,
                       I64Attr:$firsts, I32:$tile, Tile_Shared:$buffer, I32:$slot);
  let assemblyFormat = [{
    $source `+` $base `pieces` `of` $pieceBytes `firsts` $firsts `tile` $tile `to` $buffer `[` $slot `]`
    attr-dict `:` type($source) `,` type($buffer)
  }];
}

def Tile_PrefetchOp : Tile_Op<"prefetch", []> {
  let summary = "starts to bring bytes that all CTAs will read into L2, once for all of them";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I64Attr:$base, I64Attr:$bytes);
  let assemblyFormat = "$source `+` $base `bytes` $bytes attr-dict `:` type($source)";
}

def Tile_LoadBlockListOp : Tile_Op<"load_block_list", []> {
  let summary = "which pieces of a residual are stored of this warp's rows of a k tile";
  let description = [{
    Of the `perWarp` pieces along k bit i of `stored` says whether piece i is; they lie one after the
    other from piece `first` of the tile's on (ResidualLayout).
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, I64Attr:$perWarp);
  let results = (outs I32:$stored, I32:$first);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `per_warp` $perWarp attr-dict `:` type($buffer)
  }];
}

def Tile_LoadPieceOp : Tile_Op<"load_piece", []> {
  let summary = "what belongs to this thread of one part of a piece of a residual";
  let description = [{
    The part begins `offset` bytes into the piece. It holds the words of one lane after another, or
    with `rowBits` a code of so many bits for each row.
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, I32:$piece, I64Attr:$pieceBytes,
                       I64Attr:$offset, OptionalAttr<I64Attr>:$rowBits);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `piece` $piece `of` $pieceBytes `at` $offset (`rows` `bits` $rowBits^)?
    attr-dict `:` type($buffer) `->` type($words)
  }];
}

#endif // TILE_RESIDUAL_TD
