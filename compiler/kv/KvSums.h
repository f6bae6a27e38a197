// The sums of attention: from a warp's registers to the CTA, from parts of a sequence to all of it.
#pragma once

#include "compiler/kv/KvKernel.h"

#include <array>
#include <functional>
#include <limits>

namespace rho::compiler {

class KvSums : public KvKernel {
public:
  static constexpr int64_t warps = KvLayout::warps, threads = 32 * warps,
                           setHeads = KvShape::setHeads;

  // Sums of a head [headDim], padded so that the lanes of a warp write to banks of their own; then
  // maxima and sums of weights; then how many parts have come.
  static int64_t headStride(const KvShape &shape) { return (shape.headDim + 4) * 4; }
  static int64_t sumsBytes(const KvShape &shape) { return setHeads * (headStride(shape) + 8); }
  // `stages` of a warp, the step that it computes with and, if there are two, the next; and when
  // all are done its sums.
  static int64_t warpBytes(const KvLayout &layout, int64_t stages) {
    return std::max(stages * stageBytes(layout), sumsBytes(layout.shape));
  }
  static int64_t stageBytes(const KvLayout &layout) {
    return stagedBytes(layout.keys) + stagedBytes(layout.values);
  }
  static int64_t sharedBytes(const KvLayout &layout, int64_t stages) {
    return warps * warpBytes(layout, stages) + 16;
  }

protected:
  static constexpr float infinityF32 = std::numeric_limits<float>::infinity();

  KvSums(mlir::MLIRContext &context, const PlainLaunch &launch, const KvLayout &layout,
         int64_t stages)
      : KvKernel(context, launch), layout(layout), shape(layout.shape), stages(stages) {}
  ~KvSums() = default;

  const KvLayout &layout;
  const KvShape &shape;
  const int64_t stages;
  // To be set: parameters, and those of this CTA.
  Value output, workspace;
  Value headSet;                          // of the sequence's: a set of a head of the cache
  Value kvHead, set, heads;               // those two, and heads of the set
  Value sequence, part, parts, firstSums; // of the item

  // Of two heads, columns 2 (lane % 4) and the next: the largest score in units of log2, and the
  // sum of weights; then accumulators of the output, four to 16 channels.
  using State = llvm::SmallVector<Value>;
  int64_t tiles() const { return shape.headDim / 16; }
  int64_t headSets() const { return shape.kvHeads * shape.headSets(); } // of a sequence

  Value larger(Value a, Value b);
  Value exp2(Value x);

  // Adds what the warps of this CTA have, and stores the output, or what the last CTA of the head
  // set to come will store.
  void finish(const State &state);

private:
  // A maximum, the sum of weights below it, and the sums of a thread's channels.
  static constexpr int64_t itemChannels = 4;
  struct Sums {
    Value most, weights;
    std::array<Value, itemChannels> values;
  };
  Sums sumsFrom(Value facts, Value values);
  Sums merged(const Sums &a, const Sums &b);
  // Each thread takes some channels of one of the set's heads, from `channel` on.
  void forEachItem(const std::function<void(Value head, Value channel)> &item);

  Value warpHead(Value of, Value head);
  // Where the maximum of a head lies, and behind it the sum.
  Value warpFacts(Value of, Value head);
  void leaveWarp(const State &state);
  void combineWarps();

  Value sumsPlace(Value of); // of the sums of part `of`, in the workspace
  Value partAt(Value of, Value head);
  void combineParts();
  void storeOutput(Value head, Value channel, const Sums &sums);
};

} // namespace rho::compiler
