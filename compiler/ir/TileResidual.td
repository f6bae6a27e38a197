// Operations of the tile dialect on the stored blocks of a residual.
#ifndef TILE_RESIDUAL_TD
#define TILE_RESIDUAL_TD

def Tile_FindPiecesOp : Tile_Op<"find_pieces", []> {
  let summary = "which of the stored pieces of a residual those of a tile are: from `first` to `end` (exclusive)";
  let description = "Read from a table of words at `source + firsts` (ResidualLayout).";
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I64Attr:$firsts, I32:$tile);
  let results = (outs I32:$first, I32:$end);
  let assemblyFormat = "$source `+` $firsts `tile` $tile attr-dict `:` type($source)";
}

def Tile_CopyPiecesOp : Tile_Op<"copy_pieces", [AttrSizedOperandSegments]> {
  let summary = "asynchronous copy of stored pieces of a residual, `pieceBytes` each, from `source + base`";
  let description = [{
    To the slot of a buffer that has room for all pieces of a k tile. Or `from` a place of a ring of
    places that all slots share, each of one piece: places are counted on without end and taken
    modulo the ring. These copies complete on the slot's own barrier for pieces, which is told their
    bytes. What warps with roles copy has a place only when they have been specialized.
  }];
  let arguments = (ins LLVM_PointerInAddressSpace<1>:$source, I64Attr:$base, I32:$first, I32:$end,
                       I64Attr:$pieceBytes, Tile_Shared:$buffer, I32:$slot,
                       Optional<Tile_Shared>:$barriers, Optional<I32>:$place);
  let assemblyFormat = [{
    $source `+` $base `pieces` $first `to` $end `of` $pieceBytes `to` $buffer `[` $slot `]`
    (`from` $place^)? (`on` $barriers^ `:` type($barriers))? attr-dict
    `:` type($source) `,` type($buffer)
  }];
}

def Tile_StorePlaceOp : Tile_Op<"store_place", []> {
  let summary = "says beside a slot's barrier for pieces where in their ring its first one is";
  let arguments = (ins I32:$place, Tile_Shared:$barriers, I32:$slot);
  let assemblyFormat = "$place `to` $barriers `[` $slot `]` attr-dict `:` type($barriers)";
}

def Tile_LoadPlaceOp : Tile_Op<"load_place", []> {
  let summary = "what tile.store_place said last; 0 before";
  let arguments = (ins Tile_Shared:$barriers, I32:$slot);
  let results = (outs I32:$place);
  let assemblyFormat = "$barriers `[` $slot `]` attr-dict `:` type($barriers)";
}

def Tile_AddPiecesOp : Tile_Op<"add_pieces", [SingleBlock]> {
  let summary = "in tile.pipeline's consume: products of what is stored of a k tile of a residual, plus sums";
  let description = [{
    `stored` and `first` are what tile.load_block_list says of the tile. The body sees the slot, both
    and the sums. That of warps with roles sees instead of `first` the place in the ring. Registers of
    operand A are carried where the last piece's products may still run at the end.
  }];
  let arguments = (ins I32:$slot, I32:$stored, I32:$first, Variadic<Carried>:$sums);
  let results = (outs Variadic<Carried>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `slot` $slot `stored` $stored `first` $first `plus` $sums `:` type($sums)
    attr-dict-with-keyword $body `->` type($results)
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
