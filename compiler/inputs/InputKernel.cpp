// The passes of an input transform. The first has its numbers in shared memory, from where threads
// take some into registers, make sums and differences, and put them back; the last round writes to
// memory. Others are one such round in memory.
#include "compiler/codegen/PlainKernel.h"
#include "compiler/inputs/InputPasses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <bit>

namespace rho::compiler {

namespace arith = mlir::arith;

namespace {

class InputKernel final : public PlainKernel {
public:
  InputKernel(mlir::MLIRContext &context, const PlainLaunch &launch,
              const InputTransform &transform, const InputPass &pass)
      : PlainKernel(context, launch), transform(transform), pass(pass), own(inputsOfCta(pass)) {}

  // Of a first pass: its numbers, and room for the sums that cores make of them.
  static int64_t sharedBytes(const InputTransform &transform, const InputPass &pass) {
    const int64_t bytes = inputsOfCta(pass) * 4;
    return !pass.isFirst || transform.size == 0 ? 0 : transform.core == 1 ? bytes : 2 * bytes;
  }

private:
  const InputTransform &transform;
  const InputPass &pass;
  const int64_t own; // numbers of a CTA
  Value begin, last; // of a first pass: the CTA's first number in the row, and how many there are
  Value results;     // the row's
  struct Inputs {
    Value row, type, divisors, channels, factors, signs;
  } inputs;
  int64_t type = 0; // of the inputs, in the branch that is built

  // One of several numbers: all have the same `first`.
  struct Place {
    Value first;
    int64_t offset = 0;
  };
  using Load = std::function<Value(const Place &)>;
  using Store = std::function<void(const Place &, Value number)>;

  std::vector<mlir::Type> parameterTypes() override {
    if (!pass.isFirst)
      return {pointer()};
    return {pointer(),
            builder.getI64Type(),
            builder.getI32Type(),
            pointer(),
            pointer(),
            pointer(),
            pointer(),
            pointer()};
  }

  void body(mlir::ValueRange parameters) override {
    Value row = blockX();
    results = globalAt(parameters[pass.isFirst ? 3 : 0], mul(widen(row), transform.k * 4));
    if (!pass.isFirst)
      return meetInMemory();
    begin = mul(blockY(), own);
    last = arith::MinUIOp::create(builder, loc, i32(own), sub(i32(transform.k), begin));
    inputs = {globalAt(parameters[0], mul(widen(row), parameters[1])),
              parameters[2],
              parameters[4],
              parameters[5],
              parameters[6],
              parameters[7]};
    if (transform.size == 0)
      return copyInputs(toResult());
    rotate();
  }

  Value at(Value base, const Place &place, int64_t bytes) {
    return globalAt(globalAt(base, mul(widen(place.first), bytes)), i64(place.offset * bytes));
  }
  // Of the CTA's numbers.
  Place inRow(const Place &place) { return {add(begin, place.first), place.offset}; }
  Store toResult() {
    return [this](const Place &place, Value number) {
      store(number, at(results, inRow(place), 4), 4);
    };
  }

  // --- inputs

  void ofEachType(const std::function<void()> &build) {
    for (type = 0; type < 3; ++type)
      when(equal(inputs.type, i32(type)), build);
  }
  void copyInputs(const Store &to) {
    ofEachType([&] {
      scalars.forEach(thread, last, i32(inputThreads), [&](Value i) { to({i}, input({i})); });
    });
  }

  // Divided and in its place, times its factor.
  Value input(const Place &own) {
    const Place place = inRow(own);
    Place channel = place;
    if (transform.permutes)
      channel = {load(builder.getI32Type(), at(inputs.channels, place, 4), 4)};
    Value number = converted(channel);
    if (transform.divides)
      number = arith::DivFOp::create(builder, loc, number,
                                     load(f32(), at(inputs.divisors, channel, 4), 4));
    if (transform.size == 0)
      return number;
    const Place factor = transform.size == transform.k
                             ? place
                             : Place{mod(add(place.first, place.offset), transform.size)};
    return mulF(number, load(f32(), at(inputs.factors, factor, 4), 4));
  }

  Value converted(const Place &channel) {
    if (type == 0)
      return load(f32(), at(inputs.row, channel, 4), 4);
    Value bits = load(builder.getI16Type(), at(inputs.row, channel, 2), 2);
    if (type == 1) {
      Value half = arith::BitcastOp::create(builder, loc, builder.getF16Type(), bits);
      return arith::ExtFOp::create(builder, loc, f32(), half);
    }
    Value word = arith::ExtUIOp::create(builder, loc, builder.getI32Type(), bits);
    return arith::BitcastOp::create(builder, loc, f32(), mul(word, 1 << 16));
  }

  // --- numbers in shared memory, from `byte` on

  // Of a power of two bits of the place are exchanged for others, so that the lanes of a round meet
  // different banks, at whatever distance its numbers lie. Bits of `first` and `offset` are apart.
  static int64_t exchanged(int64_t place) { return place ^ (place >> 5 & 7) ^ (place >> 3 & 24); }
  Value exchanged(Value place) {
    Value low = arith::AndIOp::create(builder, loc, div(place, 32), i32(7));
    Value high = arith::AndIOp::create(builder, loc, div(place, 8), i32(24));
    Value both = arith::XOrIOp::create(builder, loc, low, high);
    return arith::XOrIOp::create(builder, loc, place, both);
  }
  Value sharedPlace(const Place &place, int64_t byte) {
    if (transform.core != 1)
      return sharedAt(add(mul(place.first, 4), place.offset * 4 + byte));
    Value first = mul(exchanged(place.first), 4), offset = i32(exchanged(place.offset) * 4);
    return sharedAt(add(arith::XOrIOp::create(builder, loc, first, offset), byte));
  }
  Load fromShared(int64_t byte) {
    return [this, byte](const Place &place) { return load(f32(), sharedPlace(place, byte), 4); };
  }
  Store toShared(int64_t byte) {
    return [this, byte](const Place &place, Value number) {
      store(number, sharedPlace(place, byte), 4);
    };
  }

  // --- the rotation

  void rotate() {
    const std::vector<int64_t> rounds = inputRounds(pass);
    const bool hasCore = transform.core != 1;
    const int64_t byte = hasCore ? own * 4 : 0; // of the rounds' numbers
    if (hasCore) {
      copyInputs(toShared(0));
      barrier();
      multiplyByCore(rounds.empty() ? toResult() : toShared(byte));
      barrier();
    } else if (rounds.empty()) {
      return copyInputs(toResult());
    }
    int64_t distance = pass.begin;
    for (size_t i = 0; i < rounds.size(); ++i) {
      const bool readsInputs = i == 0 && !hasCore, isLast = i + 1 == rounds.size();
      auto round = [&](const Load &from) {
        scalars.forEach(thread, div(last, rounds[i]), i32(inputThreads), [&](Value group) {
          meet(group, distance, rounds[i], from, isLast ? toResult() : toShared(byte));
        });
      };
      if (readsInputs)
        ofEachType([&] { round([this](const Place &place) { return input(place); }); });
      else
        round(fromShared(byte));
      if (!isLast)
        barrier();
      distance *= rounds[i];
    }
  }

  // Each row of the core times the numbers of several groups. Numbers are added in their order, by
  // fused multiply-adds: products with 1 and -1 are exact.
  void multiplyByCore(const Store &to) {
    constexpr int64_t mostGroups = 8;
    const int64_t core = transform.core, groups = std::min(mostGroups, pass.end / core);
    scalars.forEach(thread, div(last, groups), i32(inputThreads), [&](Value i) {
      Value row = mod(i, core), first = mul(div(i, core), core * groups);
      Sums sums(static_cast<size_t>(groups), constantF32(0));
      if (core >= columnsOfWord)
        sums = Sums(scalars.loop(i32(0), i32(core / columnsOfWord), i32(1), sums,
                                 [&](Value word, mlir::ValueRange carried) {
                                   return added(word, columnsOfWord, row, first, carried);
                                 }));
      if (core % columnsOfWord != 0)
        sums = added(i32(core / columnsOfWord), core % columnsOfWord, row, first, sums);
      for (int64_t group = 0; group < groups; ++group)
        to({add(first, row), group * core}, sums[static_cast<size_t>(group)]);
    });
  }
  using Sums = llvm::SmallVector<Value>; // of each group
  // What `count` columns, the first of which is a word's, give to the sums of a row.
  Sums added(Value word, int64_t count, Value row, Value first, mlir::ValueRange before) {
    const int64_t core = transform.core, together = core % 4 == 0 ? 4 : 1;
    Value signs = load(builder.getI32Type(), at(inputs.signs, {add(mul(word, core), row)}, 4), 4);
    Value column = add(first, mul(word, columnsOfWord));
    Sums sums(before);
    for (int64_t c = 0; c < count; c += together) {
      std::vector<Value> entries;
      for (int64_t j = c; j < c + together; ++j)
        entries.push_back(entry(signs, j));
      for (int64_t group = 0; group < std::ssize(sums); ++group) {
        std::vector<Value> words =
            loadWords(sharedPlace({column, group * core + c}, 0), 4 * together);
        Value &sum = sums[static_cast<size_t>(group)];
        for (auto [entry, bits] : llvm::zip(entries, words)) {
          Value number = arith::BitcastOp::create(builder, loc, f32(), bits);
          sum = mlir::LLVM::FMAOp::create(builder, loc, entry, number, sum);
        }
      }
    }
    return sums;
  }
  // 1 or -1, as that bit says.
  Value entry(Value signs, int64_t bit) {
    Value sign = arith::ShLIOp::create(builder, loc, signs, i32(31 - bit));
    sign = arith::AndIOp::create(builder, loc, sign, i32(INT32_MIN));
    Value one = arith::OrIOp::create(builder, loc, sign, i32(std::bit_cast<int32_t>(1.0F)));
    return arith::BitcastOp::create(builder, loc, f32(), one);
  }

  void meetInMemory() {
    const int64_t count = pass.end / pass.begin;
    Value group = add(mul(blockY(), inputThreads), thread);
    when(less(group, i32(transform.k / count)), [&] {
      meet(
          group, pass.begin, count,
          [&](const Place &place) { return load(f32(), at(results, place, 4), 4); },
          [&](const Place &place, Value number) { store(number, at(results, place, 4), 4); });
    });
  }

  // Sums and differences of `count` numbers `distance` apart, of those at half of their distances
  // first.
  void meet(Value group, int64_t distance, int64_t count, const Load &from, const Store &to) {
    Value first = add(mul(div(group, distance), distance * count), mod(group, distance));
    std::vector<Value> numbers;
    for (int64_t j = 0; j < count; ++j)
      numbers.push_back(from({first, j * distance}));
    for (int64_t half = 1; half < count; half *= 2)
      for (int64_t j = 0; j < count; ++j)
        if ((j & half) == 0)
          sumAndDifference(numbers[static_cast<size_t>(j)], numbers[static_cast<size_t>(j + half)]);
    for (int64_t j = 0; j < count; ++j)
      to({first, j * distance}, numbers[static_cast<size_t>(j)]);
  }
  void sumAndDifference(Value &a, Value &b) {
    Value sum = addF(a, b);
    b = arith::SubFOp::create(builder, loc, a, b);
    a = sum;
  }
};

} // namespace

Result<KernelImage> compileInputPass(const InputTransform &transform, const InputPass &pass,
                                     const std::string &target) {
  return compilePlainKernel<InputKernel>({pass.isFirst ? "transform_inputs" : "rotate_inputs",
                                          target, inputThreads,
                                          InputKernel::sharedBytes(transform, pass)},
                                         transform, pass);
}

} // namespace rho::compiler
