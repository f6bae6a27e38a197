#include "dsl/EncodeQuotients.h"
#include "tests/dsl/Files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace rho::dsl {
namespace {

// Every code's value, the middle between neighbours and what lies beside them, far off numbers and
// those that are none: divided by scales of any sign and size, as one number after the other.
TEST(EncodeQuotientsTest, AreThoseOfOneNumberAfterTheOther) {
  std::mt19937_64 random = test::generator(7);
  std::normal_distribution<double> normal;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (std::string_view name : ElementType::everyName()) {
    ElementType type = ElementType::get(name);
    if (type.bits() > 8)
      continue;
    std::vector<double> numbers = {0, -0.0, 5e-324, -5e-324, 1e300, -1e300};
    for (uint32_t code = 0; code < (1U << type.bits()); ++code) {
      double value = type.decode(code), next = type.decode(code + 1);
      if (!std::isfinite(value) || !std::isfinite(next))
        continue;
      for (double exact : {value, (value + next) / 2})
        for (double near :
             {exact, std::nextafter(exact, infinity), std::nextafter(exact, -infinity)})
          numbers.insert(numbers.end(), {near, -near});
    }
    for (int i = 0; i < 100; ++i)
      numbers.push_back(normal(random) * type.maxFinite() / 2);
    QuotientEncoder encoder(type);
    auto check = [&](double scale) {
      std::vector<uint8_t> codes(numbers.size() + 1, 0xee);
      encoder.encode(numbers.data(), static_cast<int64_t>(numbers.size()), scale, codes.data());
      for (size_t i = 0; i < numbers.size(); ++i)
        ASSERT_EQ(codes[i], type.encode(numbers[i] / scale))
            << name << ": " << numbers[i] << " / " << scale;
      ASSERT_EQ(codes.back(), 0xee);
    };
    for (double scale : {1.0, -1.0, 0.37, 1e-5, 3e200, 1e-300, infinity})
      check(scale);
    numbers.insert(numbers.begin() + 9, {std::nan(""), infinity, -infinity});
    check(1.0);
  }
}

} // namespace
} // namespace rho::dsl
