// Attention over a paged cache of keys and values in declared formats. Free of MLIR and LLVM.
//
// A page holds `pageTokens` tokens of all heads. The keys, and the values, of one head of a page
// are a matrix of the format whose rows are the channels of the head and whose k are the tokens:
// k[G] is what G tokens of one channel share (COMET, Liu et al. 2025, section 3.2: channel-wise
// groups).
#pragma once

#include "compiler/Devices.h"
#include "compiler/KernelImage.h"
#include "compiler/decode/Sequences.h"
#include "dsl/Division.h"
#include "dsl/Error.h"

#include <algorithm>
#include <span>

namespace rho::compiler {

enum class KvPart : uint8_t { Keys, Values };

struct KvShape {
  int64_t pageTokens = 0;
  int64_t headDim = 0;
  int64_t kvHeads = 0, queryHeads = 0; // queryHeads / kvHeads query heads share a head of the cache
  dsl::ElementType type = dsl::ElementType::get("f16"); // of all numbers outside of the cache; bf16

  int64_t sharing() const { return queryHeads / kvHeads; }
  // Query heads are worked on in sets of at most 8, the columns of a matrix instruction.
  static constexpr int64_t setHeads = 8;
  int64_t headSets() const { return divideUp(sharing(), setHeads); }
  int64_t mostHeads() const { return std::min(sharing(), setHeads); } // of a set
  friend bool operator==(const KvShape &, const KvShape &) = default;
};

// Keys or values of one head of a page, as they lie in memory.
//
// Codes come first, step by step: `step` tokens, whose codes are operand A of matrix instructions
// m16n8k16, rows x k: of keys tokens x channels, of values channels x tokens, row tile by row tile.
// Register R of a lane (4 to an instruction) is register R % registers of the decode's unit R /
// registers; a lane has its units' words one after the other, and word w of lane l is the 4-byte
// word w % 4 of 16-byte piece (w / 4) * 32 + l. Components follow in the order of declaration, a
// code in 1, 2 or 4 bytes: [group][place(channel)].
struct KvTensor {
  KvPart part = KvPart::Keys;
  KvShape shape;
  dsl::Format format;
  DecodeSequence decode; // of the element to `shape.type`
  // A number is slope * element + offset; with `ratio` the offset is slope * ratio.
  RowNumber slope, offset;
  std::optional<RowNumber> ratio;
  int64_t step = 0; // tokens

  int64_t registers() const { return step * shape.headDim / 64; } // of a lane in a step
  int64_t units() const { return registers() / static_cast<int64_t>(decode.registers()); }
  int64_t words() const { return units() * decode.program.words(); }
  int64_t stepBytes() const { return words() * 32 * 4; }
  int64_t steps() const { return shape.pageTokens / step; }
  const dsl::Component &component(int i) const { return format.components[static_cast<size_t>(i)]; }
  int64_t componentBytes(int i) const { return dsl::unitBits(component(i).type) / 8; } // of a code
  int64_t componentOffset(int i) const;
  int64_t headBytes() const; // a multiple of 16
  int64_t pageBytes() const { return headBytes() * shape.kvHeads; }
  double bitsPerNumber() const;

  // The channel and the token of a step of half `half` of register `r` of lane `lane`.
  struct Place {
    int64_t channel, token;
  };
  Place place(int64_t r, int64_t half, int64_t lane) const;
  // Where the codes of a channel lie in a group: those of a lane one after the other.
  int64_t channelPlace(int64_t channel) const;
};

struct KvLayout {
  KvShape shape;
  KvTensor keys, values;
  const KvTensor &of(KvPart part) const { return part == KvPart::Keys ? keys : values; }
  int64_t step() const { return keys.step; }
  // Warps of a CTA of the attention kernel, each with steps of its own.
  static constexpr int64_t warps = 4;
  static constexpr int mostCtasPerSm = 3; // more have too few registers
};

// Errors: kv_shape, kv_format.
Result<KvLayout> kvLayout(const dsl::Format &keys, const dsl::Format &values, const KvShape &shape);

// Kernels: PTX and launch facts. Parameters, all but the last kinds pointers of 8 bytes; a job is
// two i32, the block of pageTokens tokens in `outside` and the page:
//   quantize    cache, outside, jobs, token stride of `outside` in numbers (i64)
//   dequantize  the same; grid (kvHeads, jobs)
//   attend      key cache, value cache, table, items, queries, tail keys, tail values, output,
//               workspace; table columns (i32); softmax scale * log2(e) (f32); grid
//               (items * kvHeads * headSets), all head sets of an item one after the other
// Shapes: outside [block][pageTokens][kvHeads][headDim], table [sequence][columns], queries and
// output [sequence][queryHeads][headDim], tails [sequence][pageTokens][kvHeads][headDim].
//
// attend: a sequence's floor(length / pageTokens) pages lie in the cache, what is left in the tail.
// An item is a part of a sequence: the tokens of some pages, or a tail, or all. Parts write sums to
// the workspace, and the last CTA of a head set adds them in order.
// Errors: bad_ir.
Result<KernelImage> compileKvQuantize(const KvTensor &tensor, const std::string &target);
Result<KernelImage> compileKvDequantize(const KvTensor &tensor, const std::string &target);
Result<KernelImage> compileKvAttend(const KvLayout &layout, const std::string &target);

// CTAs of the attention kernel, with so many bytes of shared memory, that an SM holds.
int kvCtasPerSm(int64_t sharedBytes, const DeviceModel &device);

// What CTAs take, one for each head set, as it lies in memory. Without parts: nothing.
struct KvItem {
  int32_t sequence = 0;
  int32_t firstPage = 0, lastPage = 0; // exclusive
  int32_t tail = 0;                    // tokens
  int32_t part = 0, parts = 0;         // of the sequence
  int32_t firstSums = 0;               // place of its first part's sums in the workspace
  int32_t none = 0;
};

// The pages of a part of sequences with so many whole pages: what is predicted fastest for a kernel
// with so many bytes of shared memory. At least 1. Not so few that there were more than `mostItems`
// items, unless each sequence is one.
int64_t kvPartPages(const KvLayout &layout, std::span<const int64_t> pages, int64_t mostItems,
                    int64_t sharedBytes, const DeviceModel &device);
// Items of sequences with so many whole pages, whatever tails they have: at most.
int64_t kvMostItems(std::span<const int64_t> pages, int64_t partPages);
// Those of sequences of so many tokens, the longest first.
std::vector<KvItem> kvItems(const KvShape &shape, std::span<const int32_t> lengths,
                            int64_t partPages);

// Bytes of attend's workspace: counters, zeroed once and left at zero, then the parts' sums.
int64_t kvWorkspaceBytes(const KvShape &shape, int64_t items);
// Those of the counters, one for each CTA.
inline int64_t kvCounterBytes(int64_t ctas) { return roundUp(ctas * 4, 256); }
// Of one head of a part: [headDim], the head's maximum and sum, and what aligns the next to 16.
inline int64_t kvSumsBytes(const KvShape &shape) { return (shape.headDim + 4) * 4; }

} // namespace rho::compiler
