// Operations of the tile dialect on the stored blocks of a residual.
#ifndef TILE_RESIDUAL_TD
#define TILE_RESIDUAL_TD

def Tile_FindPiecesOp : Tile_Op<"find_pieces", []> {
  let summary = "which of the stored pieces of a residual those of a tile are: from `first` to `end` (exclusive)";
  let description = "Read from a table of words at `source + firsts` (ResidualLayout).";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$firsts, I32:$tile);
  let results = (outs I32:$first, I32:$end);
  let assemblyFormat = "$source `+` $firsts `tile` $tile attr-dict `:` type($source)";
}

def Tile_CopyPiecesOp : Tile_Op<"copy_pieces", []> {
  let summary = "asynchronous copy of stored pieces of a residual, `pieceBytes` each, from `source + base`";
  let description = [{
    To the slot of a buffer that has room for all pieces of a k tile. Or `from` a place of a ring of
    places that all slots share, each of one piece: places are counted on without end and taken
    modulo the ring. These copies complete on the slot's barrier, which is told their bytes. What
    warps with roles copy has a place only when they have been specialized.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, I32:$first, I32:$end,
                       Count:$pieceBytes, Tile_Shared:$buffer, I32:$slot, Optional<I32>:$place);
  let assemblyFormat = [{
    $source `+` $base `pieces` $first `to` $end `of` $pieceBytes `to` $buffer `[` $slot `]`
    (`from` $place^)? attr-dict `:` type($source) `,` type($buffer)
  }];
}

def Tile_StorePlaceOp : Tile_Op<"store_place", []> {
  let summary = "notes where in the ring of pieces a slot's first one is";
  let arguments = (ins I32:$place, Tile_Shared:$places, I32:$slot);
  let assemblyFormat = "$place `to` $places `[` $slot `]` attr-dict `:` type($places)";
}

def Tile_LoadPlaceOp : Tile_Op<"load_place", []> {
  let summary = "what tile.store_place said last";
  let arguments = (ins Tile_Shared:$places, I32:$slot);
  let results = (outs I32:$place);
  let assemblyFormat = "$places `[` $slot `]` attr-dict `:` type($places)";
}

def Tile_BandWordOp : Tile_Op<"band_word", [Pure]> {
  let summary = "what is stored of this warp's band of a k tile (BandWord), from a table at `source + words`";
  let description = "Or of the tile `ahead` k tiles later, where there may be none.";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$words, Count:$bands,
                       Count:$tilesK, I32:$tileN, I32:$tileK,
                       DefaultValuedAttr<Count, "0">:$ahead);
  let results = (outs I32:$word);
  let assemblyFormat = [{
    $source `+` $words `tile` $tileN `of` $bands `bands` `,` $tileK (`+` $ahead^)? `of` $tilesK
    attr-dict `:` type($source)
  }];
}

def Tile_PiecePlaceOp : Tile_Op<"piece_place", []> {
  let summary = "in tile.pipeline's consume, of warps with roles: the place in the ring of a piece by its number";
  let arguments = (ins I32:$number);
  let results = (outs I32:$place);
  let assemblyFormat = "$number attr-dict";
}

def Tile_PrefetchOp : Tile_Op<"prefetch", []> {
  let summary = "starts to bring bytes that all CTAs will read into L2, once for all of them";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, Count:$bytes);
  let assemblyFormat = "$source `+` $base `bytes` $bytes attr-dict `:` type($source)";
}

def Tile_LoadPieceOp : Tile_Op<"load_piece", []> {
  let summary = "what belongs to this thread of one part of a piece of a residual";
  let description = [{
    The part begins `offset` bytes into the piece. It holds the words of one lane after another, or
    with `rowBits` a code of so many bits for each row. Zeros where `stored` is given and false.
  }];
  let arguments = (ins Tile_Shared:$buffer, I32:$slot, I32:$piece, Count:$pieceBytes,
                       Count:$offset, OptionalAttr<CodeBits>:$rowBits, Optional<I1>:$stored);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $buffer `[` $slot `]` `piece` $piece `of` $pieceBytes `at` $offset (`rows` `bits` $rowBits^)?
    (`if` $stored^)? attr-dict `:` type($buffer) `->` type($words)
  }];
}

def Tile_StreamPieceOp : Tile_Op<"stream_piece", []> {
  let summary = "the words of this thread of one part of a piece of a residual, straight from global memory";
  let description = [{
    `source + base` is where that part of the first piece is. Zeros where `stored` is false. Not kept
    in L1: nobody else reads them.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, Count:$base, I32:$piece,
                       Count:$pieceBytes, I1:$stored);
  let results = (outs I32Vector:$words);
  let assemblyFormat = [{
    $source `+` $base `piece` $piece `of` $pieceBytes `if` $stored attr-dict
    `:` type($source) `->` type($words)
  }];
}

#endif // TILE_RESIDUAL_TD
