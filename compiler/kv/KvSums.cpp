#include "compiler/kv/KvSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

constexpr int64_t partsAtATime = 8; // that are added

void KvSums::finish(const State &state) {
  leaveWarp(state);
  barrier();
  combineWarps();
}

KvSums::Value KvSums::larger(Value a, Value b) {
  return arith::MaxNumFOp::create(builder, loc, a, b);
}
KvSums::Value KvSums::exp2(Value x) {
  return assembly(f32(), x, "ex2.approx.ftz.f32 $0, $1;", "=f,f");
}

KvSums::Value KvSums::warpHead(Value of, Value head) {
  return add(mul(of, warpBytes(layout, stages)), mul(head, headStride(shape)));
}

KvSums::Value KvSums::warpFacts(Value of, Value head) {
  return add(add(mul(of, warpBytes(layout, stages)), mul(head, 8)), setHeads * headStride(shape));
}

void KvSums::leaveWarp(const State &state) {
  Value column = mul(mod(lane, 4), 2);
  for (int64_t c = 0; c < 2; ++c) {
    Value head = add(column, c);
    for (int64_t i = 0; i < 2 * tiles(); ++i) { // 8 channels
      Value channel = add(div(lane, 4), i * 8);
      store(state[static_cast<size_t>(4 + 2 * i + c)],
            sharedAt(add(warpHead(warp, head), mul(channel, 4))), 4);
    }
    when(less(lane, i32(4)), [&] {
      Value facts = warpFacts(warp, head);
      store(state[static_cast<size_t>(c)], sharedAt(facts), 4);
      store(state[static_cast<size_t>(2 + c)], sharedAt(add(facts, 4)), 4);
    });
  }
}

KvSums::Sums KvSums::sumsFrom(Value facts, Value values) {
  auto vectorAt = [&](Value at, int64_t count) {
    return load(mlir::VectorType::get({count}, f32()), at, 4 * count);
  };
  Value both = vectorAt(facts, 2), all = vectorAt(values, itemChannels);
  Sums sums{element(both, 0), element(both, 1), {}};
  for (int64_t i = 0; i < itemChannels; ++i)
    sums.values[static_cast<size_t>(i)] = element(all, i);
  return sums;
}

KvSums::Sums KvSums::merged(const Sums &a, const Sums &b) {
  Value most = larger(a.most, b.most);
  auto fading = [&](Value from) { // nothing: of an empty side, whose maximum is -infinity
    Value empty = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, from,
                                        constantF32(-infinityF32));
    return select(empty, constantF32(0), exp2(arith::SubFOp::create(builder, loc, from, most)));
  };
  Value left = fading(a.most), right = fading(b.most);
  Sums result{most, fma(b.weights, right, mulF(a.weights, left)), {}};
  for (size_t i = 0; i < a.values.size(); ++i)
    result.values[i] = fma(b.values[i], right, mulF(a.values[i], left));
  return result;
}

void KvSums::forEachItem(const std::function<void(Value head, Value channel)> &item) {
  int64_t ofHead = shape.headDim / itemChannels;
  for (int64_t first = 0; first < shape.mostHeads() * ofHead; first += threads) {
    Value index = add(thread, first), head = div(index, ofHead);
    when(less(head, heads), [&] { item(head, mul(mod(index, ofHead), itemChannels)); });
  }
}

void KvSums::combineWarps() {
  Value alone = equal(parts, i32(1));
  Value several = less(i32(1), parts);
  forEachItem([&](Value head, Value channel) {
    Sums sums{};
    for (int64_t w = 0; w < warps; ++w) {
      Sums own = sumsFrom(sharedAt(warpFacts(i32(w), head)),
                          sharedAt(add(warpHead(i32(w), head), mul(channel, 4))));
      sums = w == 0 ? own : merged(sums, own);
    }
    when(alone, [&] { storeOutput(head, channel, sums); });
    when(several, [&] {
      Value at = partAt(part, head);
      store(vectorOf(sums.values), globalAt(at, widen(mul(channel, 4))), 4 * itemChannels);
      when(equal(channel, i32(0)), [&] {
        store(vectorOf({sums.most, sums.weights}), globalAt(at, i64(shape.headDim * 4)), 8);
      });
    });
  });
  when(several, [&] { combineParts(); });
}

void KvSums::storeOutput(Value head, Value channel, const Sums &sums) {
  Value row = add(add(mul(sequence, shape.queryHeads), mul(kvHead, shape.sharing())),
                  add(mul(set, setHeads), head));
  Value at = add(mul(widen(row), shape.headDim * 2), widen(mul(channel, 2)));
  llvm::SmallVector<Value> words;
  // Of no token, and of scores that are -infinity all, zeros.
  Value none =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, sums.weights, constantF32(0));
  Value weights = select(none, constantF32(1), sums.weights);
  for (size_t i = 0; i < sums.values.size(); i += 2) {
    auto value = [&](size_t of) {
      return arith::DivFOp::create(builder, loc, sums.values[of], weights).getResult();
    };
    words.push_back(pair(value(i), value(i + 1), shape.type));
  }
  store(vectorOf(words), globalAt(output, at), 2 * itemChannels);
}

KvSums::Value KvSums::sumsPlace(Value of) {
  return widen(add(mul(add(firstSums, of), headSets()), headSet));
}

KvSums::Value KvSums::partAt(Value of, Value head) {
  int64_t bytes = kvSumsBytes(shape);
  Value ctas = NVVM::GridDimXOp::create(builder, loc, builder.getI32Type());
  Value counters = mul(div(add(mul(ctas, 4), 255), 256), 256); // kvCounterBytes
  return globalAt(workspace,
                  add(add(mul(sumsPlace(of), shape.mostHeads() * bytes), widen(mul(head, bytes))),
                      widen(counters)));
}

// The last part to come adds all of them, in their order, and leaves the counter at 0. Loads of
// several are on their way at a time: one after the other each would wait for L2.
void KvSums::combineParts() {
  Value isFirst = equal(thread, i32(0));
  Value counter = globalAt(workspace, mul(sumsPlace(i32(0)), 4));
  Value place = sharedAt(i32(warps * warpBytes(layout, stages)));
  NVVM::SyncWarpOp::create(builder, loc, i32(-1)); // one lane stores more than the others
  NVVM::MembarOp::create(builder, loc, NVVM::MemScopeKind::GPU);
  barrier();
  when(isFirst, [&] {
    Value before = LLVM::AtomicRMWOp::create(builder, loc, LLVM::AtomicBinOp::add, counter, i32(1),
                                             LLVM::AtomicOrdering::monotonic);
    store(before, place, 4);
  });
  barrier();
  Value arrived = add(load(builder.getI32Type(), place, 4), 1);
  when(equal(arrived, parts), [&] {
    NVVM::MembarOp::create(builder, loc, NVVM::MemScopeKind::GPU);
    auto flat = [](const Sums &sums) {
      llvm::SmallVector<Value> all{sums.most, sums.weights};
      llvm::append_range(all, sums.values);
      return all;
    };
    auto sumsIn = [](mlir::ValueRange all) {
      Sums sums{all[0], all[1], {}};
      llvm::copy(all.drop_front(2), sums.values.begin());
      return sums;
    };
    forEachItem([&](Value head, Value channel) {
      auto sumsOf = [&](Value of) -> Sums { // of one that does not exist nothing
        Value exists = less(of, parts);
        Value at = partAt(select(exists, of, i32(0)), head);
        Sums sums =
            sumsFrom(globalAt(at, i64(shape.headDim * 4)), globalAt(at, widen(mul(channel, 4))));
        sums.most = select(exists, sums.most, constantF32(-infinityF32));
        sums.weights = select(exists, sums.weights, constantF32(0));
        for (Value &value : sums.values)
          value = select(exists, value, constantF32(0));
        return sums;
      };
      mlir::ValueRange all = scalars.loop(i32(1), parts, i32(partsAtATime), flat(sumsOf(i32(0))),
                                          [&](Value begin, mlir::ValueRange now) {
                                            std::vector<Sums> next;
                                            for (int64_t i = 0; i < partsAtATime; ++i)
                                              next.push_back(sumsOf(add(begin, i)));
                                            Sums sums = sumsIn(now);
                                            for (const Sums &one : next)
                                              sums = merged(sums, one);
                                            return flat(sums);
                                          });
      storeOutput(head, channel, sumsIn(all));
    });
    when(isFirst, [&] { store(i32(0), counter, 4); });
  });
}

} // namespace rho::compiler
