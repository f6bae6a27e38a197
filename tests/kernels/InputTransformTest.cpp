// Transforms of inputs on a device against those of the host: executed on the emulator, and on a
// GPU where there is one.
#include "kernels/quantize/InputSteps.h"
#include "runtime/InputTransformImpl.h"
#include "tests/kernels/Layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

namespace rho {
namespace {

using kernels::LayerTransform;
using kernels::Matrix;
using kernels::Rotation;
using test::must;

std::string error(const auto &result) { return result.ok() ? "" : result.error().str(); }
dsl::ElementType elementOf(ScalarType type) {
  return dsl::ElementType::get(type == ScalarType::F16    ? "f16"
                               : type == ScalarType::BF16 ? "bf16"
                                                          : "f32");
}

Engine engineOn(const Device &device) {
  EngineOptions options;
  options.diskCache = false;
  return must(Engine::create(device, options));
}

// Heavy tails, and what roundings and signs may go wrong with.
Matrix inputs(int64_t m, int64_t k) {
  Matrix x{m, k, kernels::syntheticActivation(m, k, 3)};
  const float difficult[] = {0.0F, -0.0F, 1e-41F, -65504.0F, 3e-6F};
  for (size_t i = 0; i < x.values.size(); i += 7)
    x.values[i] = difficult[i / 7 % std::size(difficult)];
  return x;
}

struct Case {
  int64_t k, size; // 0: no rotation
  bool divides, permutes;
};

LayerTransform transformOf(const Case &test) {
  std::mt19937_64 random(test.k);
  LayerTransform transform;
  if (test.divides) {
    transform.smoothing = kernels::SmoothingScales{};
    for (int64_t i = 0; i < test.k; ++i)
      transform.smoothing->factors.push_back(
          std::ldexp(1 + random() % 1000 / 1000.0F, static_cast<int>(random() % 9) - 4));
  }
  if (test.permutes) {
    transform.order = kernels::ChannelOrder::identity(test.k);
    std::shuffle(transform.order->channels.begin(), transform.order->channels.end(), random);
  }
  if (test.size > 0)
    transform.rotation = must(Rotation::ofSize(test.size, 7));
  return transform;
}

// Of x in that type, rows with numbers between them that are nobody's.
std::vector<float> run(const Engine &engine, const InputTransform &transform, const Matrix &x,
                       ScalarType type) {
  const dsl::ElementType element = elementOf(type);
  const int64_t bytes = element.bits() / 8, stride = x.k + 3;
  std::vector<uint8_t> rows(static_cast<size_t>(x.rows * stride * bytes), 0x7f);
  for (int64_t row = 0; row < x.rows; ++row)
    for (int64_t i = 0; i < x.k; ++i) {
      const uint32_t code = element.encode(x.row(row)[i]);
      std::memcpy(rows.data() + (row * stride + i) * bytes, &code, static_cast<size_t>(bytes));
    }
  Buffer input = must(engine.device().allocate(std::ssize(rows)));
  Buffer output = must(engine.device().allocate(x.rows * x.k * 4));
  EXPECT_EQ(error(input.write(rows.data(), input.bytes())), "");
  EXPECT_EQ(
      error(transform.impl().run(input.address(), type, stride, x.rows, output.address(), nullptr)),
      "");
  std::vector<float> values(x.values.size());
  EXPECT_EQ(error(output.read(values.data(), output.bytes())), "");
  return values;
}

// For one type of inputs after the other.
void expectThoseOfTheHost(const Device &device, const Case &test, std::vector<int64_t> rows) {
  const LayerTransform transform = transformOf(test);
  Engine engine = engineOn(device);
  InputTransform onDevice = must(InputTransform::create(engine, test.k, inputSteps(transform)));
  EXPECT_EQ(onDevice.k(), test.k);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto type = static_cast<ScalarType>(i % 3);
    Matrix x = inputs(rows[i], test.k);
    const dsl::ElementType element = elementOf(type);
    for (float &number : x.values)
      number = static_cast<float>(element.decode(element.encode(number)));
    const std::vector<float> made = run(engine, onDevice, x, type);
    const Matrix host = must(kernels::transformActivation(x, transform));
    for (size_t at = 0; at < made.size(); ++at)
      ASSERT_EQ(std::bit_cast<uint32_t>(made[at]), std::bit_cast<uint32_t>(host.values[at]))
          << "k=" << test.k << " m=" << rows[i] << " at " << at << ": " << made[at] << ", host "
          << host.values[at];
  }
}

const Case cases[] = {
    {96, 0, true, true},        // no rotation
    {7, 1, true, false},        // of single numbers
    {64, 64, false, false},     // one round
    {1000, 8, true, true},      // of many, the last CTA has fewer
    {2048, 128, false, true},   // of heads
    {1536, 1536, true, true},   // a core of 12
    {360, 36, false, false},    // of 36, whose columns are in two words
    {1376, 688, false, false},  // of 344
    {4096, 4096, true, true},   // numbers of four CTAs meet
    {3584, 3584, false, false}, // likewise, a core of 28
};

class InputTransforms : public testing::TestWithParam<Case> {};

TEST_P(InputTransforms, AreThoseOfTheHost) {
  for (const char *target : {"sm_80", "sm_90a"})
    expectThoseOfTheHost(must(Device::emulated(target)), GetParam(), {1, 3, 65});
}

INSTANTIATE_TEST_SUITE_P(All, InputTransforms, testing::ValuesIn(cases));

TEST(InputTransformsOnAGpu, AreThoseOfTheHost) {
  Result<Device> device = Device::cuda(0);
  if (!device)
    GTEST_SKIP() << device.error().str();
  for (const Case &test : cases)
    expectThoseOfTheHost(*device, test, {1, 3, 65});
  // Of models, and one whose far numbers meet in two passes.
  for (int64_t k : {4096, 8192, 11008, 14336, 18944, 28672, 1 << 18})
    expectThoseOfTheHost(*device, {k, k, true, true}, {1, 300});
}

// Any matrix of signs may be a core, of an order that words and vectors do not divide, say.
TEST(InputTransformCores, MayBeOnesOwn) {
  constexpr int64_t order = 33, size = 4 * order, m = 2;
  Engine engine = engineOn(must(Device::emulated("sm_80")));
  std::mt19937 random(1);
  InputSteps::Rotation own{std::vector<float>(size), std::vector<int8_t>(order * order)};
  for (float &factor : own.factors)
    factor = static_cast<float>(random() % 7) - 3;
  for (int8_t &entry : own.core)
    entry = random() % 2 == 0 ? 1 : -1;
  InputSteps steps;
  steps.rotation = own;
  InputTransform transform = must(InputTransform::create(engine, size, steps));
  EXPECT_GT(transform.reports().at(0).totalMilliseconds, 0);
  Matrix x{m, size, {}};
  for (int64_t i = 0; i < m * size; ++i)
    x.values.push_back(static_cast<float>(random() % 9) - 4); // sums are exact
  const std::vector<float> made = run(engine, transform, x, ScalarType::F32);
  for (int64_t row = 0; row < m; ++row)
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < size; ++j) {
        const int doubled = std::popcount(static_cast<uint64_t>(i / order & j / order)) % 2;
        const auto at = static_cast<size_t>(i % order * order + j % order);
        sum +=
            (doubled ? -1 : 1) * own.core[at] * own.factors[static_cast<size_t>(j)] * x.row(row)[j];
      }
      ASSERT_EQ(made[static_cast<size_t>(row * size + i)], sum) << i;
    }
}

// What a CTA meets in shared memory is a matter of speed: far numbers meet in memory, in passes of
// at most 16.
TEST(InputPasses, MeetEachNumberOnce) {
  for (int64_t core : {1, 12, 28, 344})
    for (int64_t size = core; size <= int64_t{1} << 24; size *= 2)
      for (int64_t most : {compiler::fewSharedInputs, compiler::mostSharedInputs}) {
        const auto passes = compiler::inputPasses({size, false, false, size, core}, most);
        EXPECT_TRUE(passes.front().isFirst);
        EXPECT_EQ(passes.front().begin, core);
        EXPECT_LE(passes.front().end, most);
        EXPECT_EQ(passes.back().end, size);
        for (size_t i = 1; i < passes.size(); ++i) {
          EXPECT_FALSE(passes[i].isFirst);
          EXPECT_EQ(passes[i].begin, passes[i - 1].end);
          EXPECT_LE(passes[i].end / passes[i].begin, 16);
        }
      }
}

TEST(InputTransformErrors, SayWhatIsWrong) {
  Engine engine = engineOn(must(Device::emulated("sm_80")));
  auto refusal = [&](int64_t k, const InputSteps &steps) {
    const std::string text = error(InputTransform::create(engine, k, steps));
    const std::string begin = "error: steps of an input transform: ", end = " [bad_input_steps]\n";
    EXPECT_TRUE(text.starts_with(begin) && text.ends_with(end)) << text;
    return text.size() < begin.size() + end.size()
               ? text
               : text.substr(begin.size(), text.size() - begin.size() - end.size());
  };
  auto rotation = [](size_t size, std::vector<int8_t> core, float factor = 1) {
    InputSteps steps;
    steps.rotation = {std::vector<float>(size, factor), std::move(core)};
    return steps;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(refusal(0, {}), "k is 0, it is between 1 and 16777216");
  EXPECT_EQ(refusal(int64_t{1} << 62, {}),
            "k is 4611686018427387904, it is between 1 and 16777216");
  EXPECT_EQ(refusal(3, {.divisors = {1, 2}}), "2 divisors for 3 channels");
  EXPECT_EQ(refusal(2, {.divisors = {1, 0}}), "a divisor is 0");
  EXPECT_EQ(refusal(2, {.divisors = {1, infinity}}), "a divisor is inf");
  EXPECT_EQ(refusal(3, {.channels = {0, 1}}), "2 places for 3 channels");
  EXPECT_EQ(refusal(2, {.channels = {0, 2}}), "channel 2 at place 1 of 2");
  EXPECT_EQ(refusal(2, {.channels = {-1, 0}}), "channel -1 at place 0 of 2");
  EXPECT_EQ(refusal(2, {.channels = {1, 1}}), "channel 1 has two places");
  EXPECT_EQ(refusal(8, rotation(8, {1, 1})),
            "a core has 2 entries, the square of an order from 1 to 1024");
  EXPECT_EQ(refusal(8, rotation(8, {})),
            "a core has 0 entries, the square of an order from 1 to 1024");
  EXPECT_EQ(refusal(8, rotation(8, {3})), "a core of order 1 has the entry 3, it has 1");
  EXPECT_EQ(refusal(8, rotation(8, {-1})), "a core of order 1 has the entry -1, it has 1");
  EXPECT_EQ(refusal(8, rotation(8, {1, 1, 0, 1})),
            "a core of order 2 has the entry 0, it has 1 and -1");
  EXPECT_EQ(refusal(8, rotation(8, {1}, infinity)), "a rotation has the factor inf");
  for (size_t size : {size_t{0}, size_t{3}, size_t{16}})
    EXPECT_EQ(refusal(12, rotation(size, {1})),
              "a rotation of " + std::to_string(size) +
                  " numbers with a core of 1, they are it times a power of two and divide 12");
}

TEST(InputTransformErrors, ATransformIsOfTheGemmsDeviceAndWidth) {
  Engine engine = engineOn(must(Device::emulated("sm_80")));
  Module module =
      must(Module::parse("format w { element: s4 scale: f16 per channel value = element "
                         "* scale } gemm g { weight: w activation: f16 output: f32 }"));
  Gemm gemm = must(engine.compile(module, "", {1, 64, 64}));
  EXPECT_NE(error(gemm.makeActivations(InputTransform())).find("[empty_handle]"),
            std::string::npos);
  EXPECT_EQ(error(gemm.makeActivations(must(InputTransform::create(engine, 32, {})))),
            "error: input transform of 32 for 64 channels, their number is the same "
            "[transform_width]\n");
  EXPECT_NE(error(gemm.makeActivations(must(
                      InputTransform::create(engineOn(must(Device::emulated("sm_80"))), 64, {}))))
                .find("[wrong_device]"),
            std::string::npos);
}

} // namespace
} // namespace rho
