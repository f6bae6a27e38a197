// What the forms of cp.async.bulk share. All bytes are copied at once, which the ISA allows; what
// bulk copies wrote counts as unseen until their mbarrier's phase is waited for, and what they read
// as being read until their group is.
#pragma once

#include "runtime/emulator/Decode.h"
#include "runtime/emulator/Machine.h"
#include "runtime/emulator/TensorMap.h"

namespace rho::emulator {

// Inst of all forms: a shared address, imm its offset; b address of the global memory or the tensor
// map, list2 its offset; c mbarrier, aux its offset; d mask of CTAs (0: none).
constexpr uint8_t mbarrierIs32 = 0x40;

uint64_t globalOperand(const Warp &warp, const Inst &inst, int lane);
// Fails the warp: `what` was found, then the rule.
bool refuseBulk(Warp &warp, const Inst &inst, int lane, const std::string &what);
// Delivers the bytes to the shared memory of all CTAs that the operands name and completes the
// transaction on the mbarrier of each. The address must be a multiple of `align`. False: failed.
bool deliver(Warp &warp, const Inst &inst, int lane, std::span<const uint8_t> bytes, uint32_t align,
             Swizzle swizzle);
// Takes the bytes from the executing CTA's shared memory, in the lane's open bulk group.
bool collect(Warp &warp, const Inst &inst, int lane, std::span<uint8_t> bytes, uint32_t align,
             Swizzle swizzle);

// The operands of [destination], [source], ... that the forms share.
void decodeLoadOperands(Decoder &decoder, size_t firstAfterSource, size_t barrierOperand);
void decodeSharedOperand(Decoder &decoder, size_t operand);
void decodeGlobalOperand(Decoder &decoder, size_t operand);

// cp.async.bulk.tensor and cp.async.bulk.prefetch.tensor, behind these words. BulkTensor.cpp
void decodeBulkTensor(Decoder &decoder);
void decodeBulkPrefetchTensor(Decoder &decoder);
// cp.async.bulk and cp.reduce.async.bulk, behind these words.
void decodeBulk(Decoder &decoder);
void decodeBulkReduce(Decoder &decoder);
// wait_group of cp.async and of cp.async.bulk, behind this word.
void decodeWaitGroup(Decoder &decoder, Handler handler);
// st.async, behind these words.
void decodeStoreAsync(Decoder &decoder);

} // namespace rho::emulator
