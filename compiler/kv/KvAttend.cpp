// Attention of one query token of each sequence over its cache. Codes are operand A of matrix
// instructions, a set of query heads that share a head of the cache are the columns of operand B:
//
//   scores [token][head] = keys [token][channel] * queries,  output [channel][head] = values *
//   weights
//
// Slopes and offsets are constant along the tokens of a step. Those of keys go into the queries,
// slope * query, and offset * query is what the sums of scores begin with; those of values scale
// the sums of a step. The softmax is online (Milakov and Gimelshein 2018), each warp has steps of
// its own, and parts of a sequence are independent until the end, as in flash-decoding (Dao et al.
// 2023).
#include "compiler/kv/KvKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

namespace rho::compiler {

namespace LLVM = mlir::LLVM;
namespace NVVM = mlir::NVVM;
namespace arith = mlir::arith;

namespace {

constexpr int64_t warps = KvLayout::warps, threads = 32 * warps, setHeads = KvShape::setHeads;
constexpr float infinityF32 = std::numeric_limits<float>::infinity();
constexpr int64_t tailStep = 16;    // tokens
constexpr int64_t partsAtATime = 8; // that are added
constexpr int64_t stages = 2;       // of a warp: the step that it computes with, and the next

class AttendKernel final : public KvKernel {
public:
  AttendKernel(mlir::MLIRContext &context, const KvLaunch &launch, const KvLayout &layout)
      : KvKernel(context, launch), layout(layout), shape(layout.shape),
        bf16(shape.type.name() == "bf16") {}

  // Sums of a head [headDim], padded so that the lanes of a warp write to banks of their own; then
  // maxima and sums of weights; then how many parts have come.
  static int64_t headStride(const KvShape &shape) { return (shape.headDim + 4) * 4; }
  static int64_t sumsBytes(const KvShape &shape) { return setHeads * (headStride(shape) + 8); }
  // A warp's steps on their way, and when all are done its sums.
  static int64_t warpBytes(const KvLayout &layout) {
    return std::max(stages * stageBytes(layout), sumsBytes(layout.shape));
  }
  static int64_t stageBytes(const KvLayout &layout) {
    return stagedBytes(layout.keys) + stagedBytes(layout.values);
  }
  static int64_t sharedBytes(const KvLayout &layout) { return warps * warpBytes(layout) + 16; }

private:
  const KvLayout &layout;
  const KvShape &shape;
  const bool bf16;

  // Parameters.
  Value keyCache, valueCache, table, queries, tailKeys, tailValues, output, workspace;
  Value columns, partsMost, scale;
  // Of this CTA.
  Value part, kvHead, set, sequence, heads; // heads of the set
  Value parts;                              // of the sequence
  std::vector<Value> query;                 // scaled, of lane / 4, in the order of channelPlace

  // Of two heads, columns 2 (lane % 4) and the next: the largest score in units of log2, and the
  // sum of weights; then accumulators of the output, four to 16 channels.
  using State = llvm::SmallVector<Value>;
  int64_t tiles() const { return shape.headDim / 16; }
  State emptyState() {
    State state{constantF32(-infinityF32), constantF32(-infinityF32), constantF32(0),
                constantF32(0)};
    state.append(static_cast<size_t>(4 * tiles()), constantF32(0));
    return state;
  }

  std::vector<mlir::Type> parameterTypes() override {
    std::vector<mlir::Type> types(9, pointer());
    types.insert(types.end(), 3, builder.getI32Type());
    types.push_back(f32());
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
    Value partPages = p[10];
    partsMost = p[11];
    scale = p[12];
    part = blockX();
    kvHead = divide(blockY(), shape.headSets());
    set = remainder(blockY(), shape.headSets());
    sequence = blockZ();
    Value setBegin = mul(set, setHeads);
    heads = arith::MinUIOp::create(builder, loc, scalars.sub(i32(shape.sharing()), setBegin),
                                   i32(setHeads));
    Value length = load(builder.getI32Type(), globalAt(p[3], widen(mul(sequence, 4))), 4);
    Value pages = divide(length, shape.pageTokens), tail = remainder(length, shape.pageTokens);
    Value cached = arith::CeilDivUIOp::create(builder, loc, pages, partPages);
    Value hasTail = less(i32(0), tail);
    // A tail is a part, or of the only part: its sums then meet no others.
    Value alone = scalars.compare(arith::CmpIPredicate::eq, cached, i32(1));
    parts = select(alone, i32(1), add(cached, select(hasTail, i32(1), i32(0))));
    scalars.when(less(part, parts), [&] {
      loadQueries();
      State empty = emptyState();
      State state = either(
          less(part, cached), mlir::ValueRange(empty).getTypes(),
          [&] {
            Value first = mul(part, partPages);
            Value last = arith::MinUIOp::create(builder, loc, pages, add(first, partPages));
            return attendPages(first, last, empty);
          },
          [&] { return empty; });
      Value isLast = scalars.compare(arith::CmpIPredicate::eq, part, add(parts, -1));
      leaveWarp(attendTail(select(isLast, tail, i32(0)), state));
      barrier();
      combineWarps();
    });
  }

  // --- queries

  // Of head lane / 4 of the set; those past it are 0.
  void loadQueries() {
    Value head = div(lane, 4), exists = less(head, heads);
    head = select(exists, head, i32(0));
    Value row = add(add(mul(sequence, shape.queryHeads), mul(kvHead, shape.sharing())),
                    add(mul(set, setHeads), head));
    Value at = add(mul(widen(row), shape.headDim * 2), widen(mul(mod(lane, 4), 4)));
    Value factor = select(exists, scale, constantF32(0));
    for (int64_t piece = 0; piece < shape.headDim / 8; ++piece) { // pairs of channels, 8 apart
      Value word = load(builder.getI32Type(), globalAt(queries, add(at, piece * 16)), 4);
      for (Value number : widenPair(word, bf16))
        query.push_back(mulF(number, factor));
    }
  }

  // Operand B of scores: two registers for 16 channels.
  std::vector<Value> queryRegisters(const std::vector<Value> &slopes) {
    std::vector<Value> scaled;
    for (size_t i = 0; i < query.size(); ++i)
      scaled.push_back(slopes.empty() ? query[i] : mulF(query[i], slopes[i]));
    std::vector<Value> registers;
    for (size_t i = 0; i < scaled.size(); i += 2)
      registers.push_back(pair(scaled[i], scaled[i + 1], shape.type));
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
    std::function<Values()> values;           // asked for when the weights are known
    std::function<Value(int64_t row)> exists; // whether token lane / 4 + row does; null: all do
  };

  Value multiply(const Value *a, Value b0, Value b1, Value c) {
    std::vector<Value> operands{a[0], a[1], a[2], a[3], b0, b1};
    if (!bf16)
      for (Value &operand : operands)
        operand = LLVM::BitcastOp::create(
            builder, loc, mlir::VectorType::get({2}, builder.getF16Type()), operand);
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
  Value larger(Value a, Value b) { return arith::MaxNumFOp::create(builder, loc, a, b); }
  Value exp2(Value x) {
    auto call = LLVM::InlineAsmOp::create(
        builder, loc, mlir::TypeRange{f32()}, mlir::ValueRange{x}, "ex2.approx.ftz.f32 $0, $1;",
        "=f,f", /*has_side_effects=*/false, /*is_align_stack=*/false,
        LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), mlir::ArrayAttr());
    return call.getResult(0);
  }

  State attendStep(const Step &step, mlir::ValueRange before) {
    std::vector<std::array<Value, 4>> scores = scoresOf(step);
    std::array<Value, 2> most, fade, sums;
    for (size_t c = 0; c < 2; ++c) {
      Value own = scores[0][c];
      for (size_t t = 0; t < scores.size(); ++t)
        for (size_t r = t == 0 ? 1 : 0; r < 2; ++r)
          own = larger(own, scores[t][2 * r + c]);
      most[c] = larger(before[static_cast<unsigned>(c)],
                       overRows(own, [&](Value a, Value b) { return larger(a, b); }));
      fade[c] =
          exp2(arith::SubFOp::create(builder, loc, before[static_cast<unsigned>(c)], most[c]));
    }
    // Weights as operand B: what a warp has by rows of tokens becomes columns. Sums are of what is
    // multiplied, so that roundings of weights cancel.
    std::vector<Value> weights;
    for (const std::array<Value, 4> &own : scores)
      for (size_t r = 0; r < 2; ++r) {
        std::array<Value, 2> exact;
        for (size_t c = 0; c < 2; ++c)
          exact[c] = exp2(arith::SubFOp::create(builder, loc, own[2 * r + c], most[c]));
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
      Value entry = add(mul(sequence, columns), divide(within, perPage));
      return load(builder.getI32Type(), globalAt(table, mul(widen(entry), 4)), 4);
    };
    Value ring = mul(warp, warpBytes(layout));
    auto copy = [&](Value step, Value page, Value stage) {
      scalars.when(less(step, last), [&] {
        Value inPage = remainder(step, perPage);
        copyStep(layout.keys, headAt(keyCache, layout.keys, page, kvHead), inPage, stage);
        copyStep(layout.values, headAt(valueCache, layout.values, page, kvHead), inPage,
                 add(stage, stagedBytes(layout.keys)));
      });
      NVVM::CpAsyncCommitGroupOp::create(builder, loc);
    };
    Value second = add(first, warps);
    Value page = pageOf(first), nextPage = pageOf(second);
    Value pageAfter = pageOf(add(second, warps));
    copy(first, page, ring);
    copy(second, nextPage, add(ring, stageBytes(layout)));
    llvm::SmallVector<Value> carried(empty);
    carried.append({pageAfter, ring});
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
          Value other = scalars.sub(add(mul(ring, 2), stageBytes(layout)), stage);
          after.append({pageAfter, other});
          return after;
        });
    NVVM::CpAsyncWaitGroupOp::create(builder, loc, 0);
    return State(result.take_front(stateSize));
  }

  Step stepOf(Value stage) {
    auto same = [](const KvTensor &tensor) {
      return tensor.offset.terms.empty() && tensor.slope.isConstant() &&
             tensor.slope.constant() == 1;
    };
    StepWords keys = stagedStep(layout.keys, stage);
    Step step{};
    step.tokens = layout.step();
    Numbers keyNumbers = numbersOf(layout.keys, keys.components);
    step.queries = queryRegisters(same(layout.keys) ? std::vector<Value>() : keyNumbers.slopes);
    step.offsets = scoreOffsets(keyNumbers.offsets);
    step.keys = registersOf(layout.keys, keys.codes);
    step.values = [=, this] {
      StepWords values = stagedStep(layout.values, add(stage, stagedBytes(layout.keys)));
      return Values{registersOf(layout.values, values.codes),
                    same(layout.values) ? Numbers{} : numbersOf(layout.values, values.components)};
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
          step.queries = queryRegisters({});
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
            for (int64_t i = 0; i < 2; ++i)
              pair[static_cast<size_t>(i)] = arith::ExtUIOp::create(
                  builder, loc, builder.getI32Type(),
                  load(builder.getI16Type(), tailAt(tailValues, add(token, i), tokens, channel),
                       2));
            values.registers.push_back(
                arith::OrIOp::create(builder, loc, pair[0], mul(pair[1], 1 << 16)));
          }
          step.values = [&] { return values; };
          return attendStep(step, before);
        });
    return State(result);
  }

  // The last token in place of one that does not exist, whose weight is 0.
  Value tailAt(Value tail, Value token, Value tokens, Value channel) {
    token = arith::MinUIOp::create(builder, loc, token, add(tokens, -1));
    Value row = add(mul(sequence, shape.pageTokens), token);
    row = add(mul(widen(row), shape.kvHeads), widen(kvHead));
    return globalAt(tail, mul(add(mul(row, shape.headDim), widen(channel)), 2));
  }

  // --- from warps to the CTA, from parts to the sequence

  Value warpHead(Value of, Value head) {
    return add(mul(of, warpBytes(layout)), mul(head, headStride(shape)));
  }
  // Where the maximum of a head lies, and behind it the sum.
  Value warpFacts(Value of, Value head) {
    return add(add(mul(of, warpBytes(layout)), mul(head, 8)), setHeads * headStride(shape));
  }

  void leaveWarp(const State &state) {
    Value column = mul(mod(lane, 4), 2);
    for (int64_t c = 0; c < 2; ++c) {
      Value head = add(column, c);
      for (int64_t i = 0; i < 2 * tiles(); ++i) { // 8 channels
        Value channel = add(div(lane, 4), i * 8);
        store(state[static_cast<size_t>(4 + 2 * i + c)],
              sharedAt(add(warpHead(warp, head), mul(channel, 4))), 4);
      }
      scalars.when(less(lane, i32(4)), [&] {
        Value facts = warpFacts(warp, head);
        store(state[static_cast<size_t>(c)], sharedAt(facts), 4);
        store(state[static_cast<size_t>(2 + c)], sharedAt(add(facts, 4)), 4);
      });
    }
  }

  // A maximum, the sum of weights below it, and the sums of a thread's channels.
  static constexpr int64_t itemChannels = 4;
  struct Sums {
    Value most, weights;
    std::array<Value, itemChannels> values;
  };
  static llvm::SmallVector<Value> flat(const Sums &sums) {
    llvm::SmallVector<Value> all{sums.most, sums.weights};
    llvm::append_range(all, sums.values);
    return all;
  }
  static Sums sumsIn(mlir::ValueRange all) {
    Sums sums{all[0], all[1], {}};
    llvm::copy(all.drop_front(2), sums.values.begin());
    return sums;
  }
  Sums sumsFrom(Value facts, Value values) {
    auto vectorAt = [&](Value at, int64_t count) {
      return load(mlir::VectorType::get({count}, f32()), at, 4 * count);
    };
    Value both = vectorAt(facts, 2), all = vectorAt(values, itemChannels);
    Sums sums{element(both, 0), element(both, 1), {}};
    for (int64_t i = 0; i < itemChannels; ++i)
      sums.values[static_cast<size_t>(i)] = element(all, i);
    return sums;
  }
  Sums merged(const Sums &a, const Sums &b) {
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

  // Each thread takes some channels of one of the set's heads, from `channel` on.
  void forEachItem(const std::function<void(Value head, Value channel)> &item) {
    int64_t most8 = std::min(shape.sharing(), setHeads), ofHead = shape.headDim / itemChannels;
    for (int64_t first = 0; first < most8 * ofHead; first += threads) {
      Value index = add(thread, first), head = div(index, ofHead);
      scalars.when(less(head, heads), [&] { item(head, mul(mod(index, ofHead), itemChannels)); });
    }
  }

  void combineWarps() {
    Value alone = scalars.compare(arith::CmpIPredicate::eq, parts, i32(1));
    Value several = less(i32(1), parts);
    forEachItem([&](Value head, Value channel) {
      Sums sums{};
      for (int64_t w = 0; w < warps; ++w) {
        Sums own = sumsFrom(sharedAt(warpFacts(i32(w), head)),
                            sharedAt(add(warpHead(i32(w), head), mul(channel, 4))));
        sums = w == 0 ? own : merged(sums, own);
      }
      scalars.when(alone, [&] { storeOutput(head, channel, sums); });
      scalars.when(several, [&] {
        Value at = partAt(part, head);
        store(vectorOf(sums.values), globalAt(at, widen(mul(channel, 4))), 4 * itemChannels);
        scalars.when(scalars.compare(arith::CmpIPredicate::eq, channel, i32(0)), [&] {
          store(vectorOf({sums.most, sums.weights}), globalAt(at, i64(shape.headDim * 4)), 8);
        });
      });
    });
    scalars.when(several, [&] { combineParts(); });
  }

  void storeOutput(Value head, Value channel, const Sums &sums) {
    Value row = add(add(mul(sequence, shape.queryHeads), mul(kvHead, shape.sharing())),
                    add(mul(set, setHeads), head));
    Value at = add(mul(widen(row), shape.headDim * 2), widen(mul(channel, 2)));
    llvm::SmallVector<Value> words;
    for (size_t i = 0; i < sums.values.size(); i += 2) {
      auto value = [&](size_t of) {
        return arith::DivFOp::create(builder, loc, sums.values[of], sums.weights).getResult();
      };
      words.push_back(pair(value(i), value(i + 1), shape.type));
    }
    store(vectorOf(words), globalAt(output, at), 2 * itemChannels);
  }

  Value headSet() { // of the launch
    return add(mul(sequence, shape.kvHeads * shape.headSets()), blockY());
  }
  Value partAt(Value of, Value head) {
    int64_t most8 = std::min(shape.sharing(), setHeads), bytes = kvSumsBytes(shape);
    Value index = add(mul(widen(headSet()), widen(partsMost)), widen(of));
    Value sequences = NVVM::GridDimZOp::create(builder, loc, builder.getI32Type());
    Value counters = mul(sequences, shape.kvHeads * shape.headSets() * 4);
    counters = mul(div(add(counters, 255), 256), 256); // kvCounterBytes
    return globalAt(workspace,
                    add(add(mul(index, most8 * bytes), widen(mul(head, bytes))), widen(counters)));
  }

  // The last part to come adds all of them, in their order, and leaves the counter at 0. Loads of
  // several are on their way at a time: one after the other each would wait for L2.
  void combineParts() {
    Value isFirst = scalars.compare(arith::CmpIPredicate::eq, thread, i32(0));
    Value counter = globalAt(workspace, widen(mul(headSet(), 4)));
    Value place = sharedAt(i32(warps * warpBytes(layout)));
    NVVM::MembarOp::create(builder, loc, NVVM::MemScopeKind::GPU);
    barrier();
    scalars.when(isFirst, [&] {
      Value before = LLVM::AtomicRMWOp::create(builder, loc, LLVM::AtomicBinOp::add, counter,
                                               i32(1), LLVM::AtomicOrdering::monotonic);
      store(before, place, 4);
    });
    barrier();
    Value arrived = add(load(builder.getI32Type(), place, 4), 1);
    scalars.when(scalars.compare(arith::CmpIPredicate::eq, arrived, parts), [&] {
      NVVM::MembarOp::create(builder, loc, NVVM::MemScopeKind::GPU);
      forEachItem([&](Value head, Value channel) {
        auto sumsOf = [&](Value of) -> Sums { // of one that does not exist nothing
          Value exists = less(of, parts);
          Value at = partAt(select(exists, of, i32(0)), head);
          Sums sums =
              sumsFrom(globalAt(at, i64(shape.headDim * 4)), globalAt(at, widen(mul(channel, 4))));
          sums.most = select(exists, sums.most, constantF32(-infinityF32));
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
      scalars.when(isFirst, [&] { store(i32(0), counter, 4); });
    });
  }
};

} // namespace

Result<KernelImage> compileKvAttend(const KvLayout &layout, const std::string &target) {
  Result<DeviceModel> device = modelOfTarget(target);
  if (!device)
    return device.error();
  int64_t sharedBytes = AttendKernel::sharedBytes(layout);
  return compileKvKernel<AttendKernel>({"kv_attend", target, static_cast<int>(threads), sharedBytes,
                                        kvCtasPerSm(sharedBytes, *device)},
                                       layout);
}

} // namespace rho::compiler
