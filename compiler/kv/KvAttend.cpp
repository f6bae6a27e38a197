// Attention of one query token of each sequence over its cache. Codes are operand A of matrix
// instructions, a set of query heads that share a head of the cache are the columns of operand B:
//
//   scores [token][head] = keys [token][channel] * queries,  output [channel][head] = values *
//   weights
//
// Slopes and offsets are constant along the tokens of a step. Those of keys go into the queries,
// slope * query, and offset * query is what the sums of scores begin with; where the slope is one
// number the queries stay as they are, and the sums are scaled. Those of values scale the sums of a
// step. The softmax is online (Milakov and Gimelshein 2018), each warp has steps of
// its own, and parts of a sequence are independent until the end, as in flash-decoding (Dao et al.
// 2023).
#include "compiler/kv/KvSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cstddef>

namespace rho::compiler {

namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

namespace {

constexpr int64_t tailStep = 16; // tokens

class AttendKernel final : public KvSums {
public:
  AttendKernel(mlir::MLIRContext &context, const PlainLaunch &launch, const KvLayout &layout,
               int64_t stages)
      : KvSums(context, launch, layout, stages), bf16(shape.type.name() == "bf16") {}

private:
  const bool bf16;

  // Parameters.
  Value keyCache, valueCache, table, queries, tailKeys, tailValues;
  Value columns, scale;
  Value queriesExist, queriesAt;        // of head lane / 4
  std::vector<Value> queryWords, query; // its pairs, and scaled in the order of channelPlace

  State emptyState() {
    State state{constantF32(-infinityF32), constantF32(-infinityF32), constantF32(0),
                constantF32(0)};
    state.append(static_cast<size_t>(4 * tiles()), constantF32(0));
    return state;
  }

  std::vector<mlir::Type> parameterTypes() override {
    std::vector<mlir::Type> types(9, pointer());
    types.insert(types.end(), {builder.getI32Type(), f32()});
    return types;
  }

  void body(mlir::ValueRange p) override {
    keyCache = p[0];
    valueCache = p[1];
    table = p[2];
    queries = p[4];
    tailKeys = p[5];
    tailValues = p[6];
    output = p[7];
    workspace = p[8];
    columns = p[9];
    scale = p[10];
    headSet = mod(blockX(), headSets());
    kvHead = div(headSet, shape.headSets());
    set = mod(headSet, shape.headSets());
    Value setBegin = mul(set, setHeads);
    heads =
        arith::MinUIOp::create(builder, loc, sub(i32(shape.sharing()), setBegin), i32(setHeads));
    const std::array<Value, itemWords> item = loadItem(p[3], div(blockX(), headSets()));
    auto word = [&](size_t at) { return item[at / sizeof(int32_t)]; };
    sequence = word(offsetof(KvItem, sequence));
    part = word(offsetof(KvItem, part));
    parts = word(offsetof(KvItem, parts));
    firstSums = word(offsetof(KvItem, firstSums));
    Value firstPage = word(offsetof(KvItem, firstPage)),
          lastPage = word(offsetof(KvItem, lastPage));
    when(less(i32(0), parts), [&] {
      loadQueries();
      State empty = emptyState();
      State state = either(
          less(firstPage, lastPage), mlir::ValueRange(empty).getTypes(),
          [&] { return attendPages(firstPage, lastPage, empty); }, [&] { return empty; });
      finish(attendTail(word(offsetof(KvItem, tail)), state));
    });
  }

  static constexpr size_t itemWords = sizeof(KvItem) / sizeof(int32_t);
  std::array<Value, itemWords> loadItem(Value items, Value index) {
    Value at = mul(widen(index), sizeof(KvItem));
    std::array<Value, itemWords> item;
    for (size_t i = 0; i < itemWords; i += 4) {
      Value four = load(mlir::VectorType::get({4}, builder.getI32Type()),
                        globalAt(items, add(at, static_cast<int64_t>(4 * i))), 16);
      for (size_t j = 0; j < 4; ++j)
        item[i + j] = element(four, static_cast<int64_t>(j));
    }
    return item;
  }

  // --- queries

  // Of head lane / 4 of the set; those past it are 0.
  void loadQueries() {
    Value head = div(lane, 4);
    queriesExist = less(head, heads);
    head = select(queriesExist, head, i32(0));
    Value row = add(add(mul(sequence, shape.queryHeads), mul(kvHead, shape.sharing())),
                    add(mul(set, setHeads), head));
    queriesAt = add(mul(widen(row), shape.headDim * 2), widen(mul(mod(lane, 4), 4)));
    queryWords = loadedQueries();
    for (Value word : queryWords)
      for (Value number : widenPair(word, bf16))
        query.push_back(mulF(number, scale));
  }

  // In pairs of channels, 8 apart.
  std::vector<Value> loadedQueries() {
    std::vector<Value> words;
    for (int64_t piece = 0; piece < shape.headDim / 8; ++piece) {
      Value word = load(builder.getI32Type(), globalAt(queries, add(queriesAt, piece * 16)), 4);
      words.push_back(select(queriesExist, word, i32(0)));
    }
    return words;
  }

  // Operand B of scores, two registers for 16 channels, of slopes that channels have.
  std::vector<Value> queryRegisters(const std::vector<Value> &slopes) {
    std::vector<Value> registers;
    for (size_t i = 0; i < query.size(); i += 2)
      registers.push_back(
          pair(mulF(query[i], slopes[i]), mulF(query[i + 1], slopes[i + 1]), shape.type));
    return registers;
  }

  // The sum of offset * query over all channels, for the two heads of this lane's columns.
  std::array<Value, 2> scoreOffsets(const std::vector<Value> &offsets) {
    if (offsets.empty())
      return {constantF32(0), constantF32(0)};
    Value sum = mulF(query[0], offsets[0]);
    for (size_t i = 1; i < query.size(); ++i)
      sum = fma(query[i], offsets[i], sum);
    for (int64_t distance : {1, 2})
      sum = addF(sum, shuffle(sum, i32(distance), NVVM::ShflKind::bfly));
    Value from = mul(mod(lane, 4), 8); // the first lane of the head
    return {shuffle(sum, from, NVVM::ShflKind::idx),
            shuffle(sum, add(from, 4), NVVM::ShflKind::idx)};
  }

  // --- one step of a warp

  struct Values {
    std::vector<Value> registers; // of operands
    Numbers scaling;              // empty: 1 and 0
  };
  struct Step {
    int64_t tokens;
    std::vector<Value> keys, queries;         // operand registers
    std::array<Value, 2> offsets;             // that scores begin with
    Value scaling;                            // of scores; null: queries have it
    std::function<Values()> values;           // asked for when the weights are known
    std::function<Value(int64_t row)> exists; // whether token lane / 4 + row does; null: all do
  };

  Value multiply(const Value *a, Value b0, Value b1, Value c) {
    std::vector<Value> operands{a[0], a[1], a[2], a[3], b0, b1};
    if (!bf16)
      for (Value &operand : operands)
        operand = halves(operand, builder.getF16Type());
    for (int64_t i = 0; i < 4; ++i)
      operands.push_back(element(c, i));
    return mmaResult(bf16 ? "llvm.nvvm.mma.m16n8k16.row.col.bf16"
                          : "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
                     c, operands);
  }

  // scores[t][2 r + c]: of token 16 t + lane / 4 + 8 r, column c.
  std::vector<std::array<Value, 4>> scoresOf(const Step &step) {
    std::vector<std::array<Value, 4>> scores;
    for (int64_t t = 0; t < step.tokens / 16; ++t) {
      Value sums = vectorOf({step.offsets[0], step.offsets[1], step.offsets[0], step.offsets[1]});
      for (int64_t k = 0; k < tiles(); ++k) {
        auto b = static_cast<size_t>(2 * k);
        sums = multiply(&step.keys[static_cast<size_t>((t * tiles() + k) * 4)], step.queries[b],
                        step.queries[b + 1], sums);
      }
      std::array<Value, 4> own;
      for (int64_t i = 0; i < 4; ++i) {
        own[static_cast<size_t>(i)] = element(sums, i);
        if (step.scaling)
          own[static_cast<size_t>(i)] = mulF(own[static_cast<size_t>(i)], step.scaling);
        if (step.exists)
          own[static_cast<size_t>(i)] =
              select(step.exists(16 * t + i / 2 * 8), own[static_cast<size_t>(i)],
                     constantF32(-infinityF32));
      }
      scores.push_back(own);
    }
    return scores;
  }

  // Over the lanes that have the same columns.
  template <class Combine> Value overRows(Value value, const Combine &combine) {
    for (int64_t distance : {4, 8, 16})
      value = combine(value, shuffle(value, i32(distance), NVVM::ShflKind::bfly));
    return value;
  }
  State attendStep(const Step &step, mlir::ValueRange before) {
    std::vector<std::array<Value, 4>> scores = scoresOf(step);
    // Weights are 1 at most, of f16 2^14, so that small ones have all digits: it cancels.
    const float mostWeight = bf16 ? 0 : 14;
    std::array<Value, 2> most, unit, fade, sums;
    for (size_t c = 0; c < 2; ++c) {
      Value own = scores[0][c];
      for (size_t t = 0; t < scores.size(); ++t)
        for (size_t r = t == 0 ? 1 : 0; r < 2; ++r)
          own = larger(own, scores[t][2 * r + c]);
      most[c] = larger(before[static_cast<unsigned>(c)],
                       overRows(own, [&](Value a, Value b) { return larger(a, b); }));
      // Where all scores so far are -infinity their weights are 0.
      Value none = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, most[c],
                                         constantF32(-infinityF32));
      Value finite = select(none, constantF32(0), most[c]);
      fade[c] = exp2(arith::SubFOp::create(builder, loc, before[static_cast<unsigned>(c)], finite));
      unit[c] = arith::SubFOp::create(builder, loc, finite, constantF32(mostWeight));
    }
    // Weights as operand B: what a warp has by rows of tokens becomes columns. Sums are of what is
    // multiplied, so that roundings of weights cancel.
    std::vector<Value> weights;
    for (const std::array<Value, 4> &own : scores)
      for (size_t r = 0; r < 2; ++r) {
        std::array<Value, 2> exact;
        for (size_t c = 0; c < 2; ++c)
          exact[c] = exp2(arith::SubFOp::create(builder, loc, own[2 * r + c], unit[c]));
        Value word = pair(exact[0], exact[1], shape.type);
        weights.push_back(ptx("movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r",
                              builder.getI32Type(), word)[0]);
        std::array<Value, 2> used = widenPair(word, bf16);
        for (size_t c = 0; c < 2; ++c)
          sums[c] = sums[c] ? addF(sums[c], used[c]) : used[c];
      }
    State after{most[0], most[1]};
    for (size_t c = 0; c < 2; ++c) {
      sums[c] = overRows(sums[c], [&](Value a, Value b) { return addF(a, b); });
      after.push_back(fma(before[static_cast<unsigned>(2 + c)], fade[c], sums[c]));
    }
    addValues(step, before.drop_front(4), weights, fade, sums, after);
    return after;
  }

  void addValues(const Step &step, mlir::ValueRange before, const std::vector<Value> &weights,
                 const std::array<Value, 2> &fade, const std::array<Value, 2> &sums, State &after) {
    int64_t alongK = step.tokens / 16;
    const Values values = step.values();
    const Numbers &scaling = values.scaling;
    bool plain = scaling.slopes.empty();
    for (int64_t tile = 0; tile < tiles(); ++tile) {
      std::vector<Value> faded;
      for (int64_t i = 0; i < 4; ++i)
        faded.push_back(
            mulF(before[static_cast<unsigned>(4 * tile + i)], fade[static_cast<size_t>(i % 2)]));
      Value sum = plain ? vectorOf(faded) : vectorOf(std::vector<Value>(4, constantF32(0)));
      for (int64_t k = 0; k < alongK; ++k) {
        auto b = static_cast<size_t>(2 * k);
        sum = multiply(&values.registers[static_cast<size_t>((tile * alongK + k) * 4)], weights[b],
                       weights[b + 1], sum);
      }
      for (int64_t i = 0; i < 4; ++i) {
        Value value = element(sum, i);
        auto channel = static_cast<size_t>(2 * tile + i / 2);
        if (!plain)
          value = fma(value, scaling.slopes[channel], faded[static_cast<size_t>(i)]);
        if (!scaling.offsets.empty())
          value = fma(scaling.offsets[channel], sums[static_cast<size_t>(i % 2)], value);
        after.push_back(value);
      }
    }
  }

  // --- pages

  // Pages [first, last) of the sequence. While a warp computes with one step its next one is on its
  // way to shared memory.
  State attendPages(Value firstPage, Value lastPage, const State &empty) {
    int64_t perPage = layout.keys.steps();
    Value first = add(mul(firstPage, perPage), warp), last = mul(lastPage, perPage);
    auto pageOf = [&](Value step) {
      Value within = arith::MinUIOp::create(builder, loc, step, add(last, -1));
      Value entry = add(mul(sequence, columns), div(within, perPage));
      return load(builder.getI32Type(), globalAt(table, mul(widen(entry), 4)), 4);
    };
    Value ring = mul(warp, warpBytes(layout, stages));
    auto copy = [&](Value step, Value page, Value stage) {
      when(less(step, last), [&] {
        Value inPage = mod(step, perPage);
        copyStep(layout.keys, headAt(keyCache, layout.keys, page, kvHead), inPage, stage);
        copyStep(layout.values, headAt(valueCache, layout.values, page, kvHead), inPage,
                 add(stage, stagedBytes(layout.keys)));
      });
      NVVM::CpAsyncCommitGroupOp::create(builder, loc);
    };
    std::vector<Value> pages;
    for (int64_t i = 0; i <= stages; ++i)
      pages.push_back(pageOf(add(first, i * warps)));
    for (int64_t i = 0; i < stages; ++i)
      copy(add(first, i * warps), pages[static_cast<size_t>(i)], add(ring, i * stageBytes(layout)));
    llvm::SmallVector<Value> carried(empty);
    carried.append({pages.back(), ring});
    size_t stateSize = empty.size();
    mlir::ValueRange result =
        scalars.loop(first, last, i32(warps), carried, [&](Value s, mlir::ValueRange now) {
          Value page = now[stateSize], stage = now[stateSize + 1];
          NVVM::CpAsyncWaitGroupOp::create(builder, loc, stages - 1);
          NVVM::SyncWarpOp::create(builder, loc, i32(-1)); // components are copied for all lanes
          Value following = add(s, stages * warps), pageAfter = pageOf(add(following, warps));
          State after = attendStep(stepOf(stage), now.take_front(stateSize));
          NVVM::SyncWarpOp::create(builder, loc, i32(-1));
          copy(following, page, stage);
          Value last = add(ring, (stages - 1) * stageBytes(layout)); // the other of two
          after.append({pageAfter, sub(add(ring, last), stage)});
          return after;
        });
    NVVM::CpAsyncWaitGroupOp::create(builder, loc, 0);
    return State(result.take_front(stateSize));
  }

  Step stepOf(Value stage) {
    // Whether all channels have one slope, and no offset.
    auto hasOneSlope = [](const KvTensor &tensor) {
      return tensor.offset.terms.empty() && tensor.slope.isConstant();
    };
    StepWords keys = stagedStep(layout.keys, stage);
    Step step{};
    step.tokens = layout.step();
    if (hasOneSlope(layout.keys)) {
      step.queries = queryWords;
      step.scaling = mulF(scale, constantF32(static_cast<float>(layout.keys.slope.constant())));
      step.offsets = scoreOffsets({});
    } else {
      Numbers keyNumbers = numbersOf(layout.keys, keys.components);
      step.queries = queryRegisters(keyNumbers.slopes);
      step.offsets = scoreOffsets(keyNumbers.offsets);
    }
    step.keys = registersOf(layout.keys, keys.codes);
    step.values = [=, this] {
      StepWords values = stagedStep(layout.values, add(stage, stagedBytes(layout.keys)));
      return Values{registersOf(layout.values, values.codes),
                    hasOneSlope(layout.values) && layout.values.slope.constant() == 1
                        ? Numbers{}
                        : numbersOf(layout.values, values.components)};
    };
    return step;
  }

  // --- the tail, numbers of 16 bits

  State attendTail(Value tokens, const State &start) {
    Value first = mul(warp, tailStep);
    mlir::ValueRange result = scalars.loop(
        first, tokens, i32(warps * tailStep), start, [&](Value begin, mlir::ValueRange before) {
          Step step{};
          step.tokens = tailStep;
          step.queries = loadedQueries(); // again: they would take registers of all steps of pages
          step.scaling = scale;
          step.offsets = scoreOffsets({});
          step.exists = [&](int64_t row) {
            return less(add(add(begin, div(lane, 4)), row), tokens);
          };
          for (int64_t r = 0; r < 4 * tiles(); ++r) {
            KvTensor::Place key = layout.keys.place(r, 0, 0);
            Value token = add(add(begin, div(lane, 4)), key.token);
            Value channel = add(mul(mod(lane, 4), 2), key.channel);
            step.keys.push_back(
                load(builder.getI32Type(), tailAt(tailKeys, token, tokens, channel), 4));
          }
          Values values;
          for (int64_t r = 0; r < 4 * tiles(); ++r) {
            Value channel = add(div(lane, 4), r / 4 * 16 + r % 2 * 8);
            Value token = add(add(begin, mul(mod(lane, 4), 2)), r / 2 % 2 * 8);
            std::array<Value, 2> pair;
            for (int64_t i = 0; i < 2; ++i) {
              Value own = arith::ExtUIOp::create(
                  builder, loc, builder.getI32Type(),
                  load(builder.getI16Type(), tailAt(tailValues, add(token, i), tokens, channel),
                       2));
              // Its weight is 0, which makes nothing of what is not finite.
              pair[static_cast<size_t>(i)] = select(less(add(token, i), tokens), own, i32(0));
            }
            values.registers.push_back(
                arith::OrIOp::create(builder, loc, pair[0], mul(pair[1], 1 << 16)));
          }
          step.values = [&] { return values; };
          return attendStep(step, before);
        });
    return State(result);
  }

  // Of the last token in place of one that does not exist.
  Value tailAt(Value tail, Value token, Value tokens, Value channel) {
    token = arith::MinUIOp::create(builder, loc, token, add(tokens, -1));
    Value row = add(mul(sequence, shape.pageTokens), token);
    row = add(mul(widen(row), shape.kvHeads), widen(kvHead));
    return globalAt(tail, mul(add(mul(row, shape.headDim), widen(channel)), 2));
  }
};

} // namespace

Result<KernelImage> compileKvAttend(const KvLayout &layout, const std::string &target) {
  Result<DeviceModel> device = modelOfTarget(target);
  if (!device)
    return device.error();
  int64_t stages = 2, sharedBytes = KvSums::sharedBytes(layout, stages);
  if (sharedBytes > device->sharedPerCta) // one has room with any components that a format may have
    sharedBytes = KvSums::sharedBytes(layout, --stages);
  return compilePlainKernel<AttendKernel>({"kv_attend", target, static_cast<int>(KvSums::threads),
                                           sharedBytes, kvCtasPerSm(sharedBytes, *device)},
                                          layout, stages);
}

} // namespace rho::compiler
