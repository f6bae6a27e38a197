// Formats built by hand and matrices of random codes: the tests of packing and of the oracle depend
// on no parser and no encoder.
#pragma once

#include "dsl/Division.h"
#include "dsl/Quantize.h"

#include <cmath>
#include <memory>
#include <random>

namespace rho::test {

using namespace rho::dsl;

inline ExprPtr componentExpr(int index) {
  Expr expr{};
  expr.kind = Expr::Kind::Component;
  expr.component = index;
  return std::make_shared<const Expr>(expr);
}

inline ExprPtr binary(Expr::Op op, ExprPtr a, ExprPtr b) {
  Expr expr{};
  expr.kind = Expr::Kind::Binary;
  expr.op = op;
  expr.operands = {std::move(a), std::move(b)};
  return std::make_shared<const Expr>(expr);
}

inline Component component(std::string name, std::string_view type, Extent extent,
                           int64_t group = 0) {
  Component result{
      .name = std::move(name), .type = ElementType::get(type), .encode = nullptr, .span = {}};
  result.extent = extent;
  result.group = group;
  return result;
}

// value = element * (all other components).
inline std::shared_ptr<Format> productFormat(std::string name, std::vector<Component> components) {
  auto format = std::make_shared<Format>();
  format->name = std::move(name);
  format->components = std::move(components);
  format->value = componentExpr(0);
  for (int c = 1; c < static_cast<int>(format->components.size()); ++c)
    format->value = binary(Expr::Op::Mul, format->value, componentExpr(c));
  return format;
}

inline int64_t codeCount(const Component &component, int64_t rows, int64_t k) {
  switch (component.extent) {
  case Extent::Element:
    return rows * k;
  case Extent::Group:
    return rows * divideUp(k, component.group);
  case Extent::Row:
    return rows;
  case Extent::Tensor:
    return 1;
  }
  return 0;
}

// Random codes; float components keep to small positive finite numbers.
inline QuantizedMatrix randomMatrix(std::shared_ptr<const Format> format, int64_t rows, int64_t k,
                                    uint32_t seed) {
  std::mt19937 random(seed);
  QuantizedMatrix matrix;
  matrix.rows = rows;
  matrix.k = k;
  for (const Component &component : format->components) {
    CodeArray codes(component.type.bits(), codeCount(component, rows, k));
    for (int64_t i = 0; i < codes.size(); ++i) {
      uint32_t code = random();
      if (component.type.bits() < 32)
        code &= (1U << component.type.bits()) - 1;
      if (component.type.bits() > 8)
        code = component.type.encode(0.25 + (random() % 1024) / 512.0);
      else if (std::isnan(component.type.decode(code)))
        code = 0; // no weight has it
      codes.set(i, code);
    }
    matrix.components.push_back(std::move(codes));
  }
  matrix.format = std::move(format);
  return matrix;
}

} // namespace rho::test
