// What stands behind the handles of the C API, and how its functions end.
#pragma once

#include "runtime/InputTransform.h"
#include "runtime/RhoC.h"

#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct rho_error {
  rho::Error error;
  std::string text;
};
struct rho_module {
  rho::Module value;
  std::vector<std::string> gemms;
};
struct rho_device {
  rho::Device value;
  std::string name, target;
};
struct rho_buffer {
  rho::Buffer value;
};
struct rho_engine {
  rho::Engine value;
};
struct rho_gemm {
  rho::Gemm value;
  std::string layout;
};
struct rho_activations {
  rho::Activations value;
};
struct rho_input_transform {
  rho::InputTransform value;
};

namespace rho::c {

inline std::string textOf(const char *text) { return text == nullptr ? "" : text; }

// Of names, one that there is, else "".
inline const char *nameAt(const std::vector<std::string> &names, size_t index) {
  return index < names.size() ? names[index].c_str() : "";
}

// What a null handle stands for is an empty one.
template <class Handle> const auto &valueOf(const Handle *handle) {
  static const decltype(Handle::value) empty{};
  return handle == nullptr ? empty : handle->value;
}

// The host has no room for an error of its own: what this points to is no object.
rho_error *noRoom() noexcept;

inline rho_error *failure(Error error) {
  std::string text = error.str();
  return new rho_error{std::move(error), std::move(text)};
}

// Runs `make`, which returns a Status or throws what memory's end throws.
template <class Make> rho_error *ended(const Make &make) {
  try {
    Status status = make();
    return status ? nullptr : failure(std::move(status.error()));
  } catch (const std::bad_alloc &) {
    return noRoom();
  } catch (const std::length_error &) { // more than any memory
    return noRoom();
  }
}

// The same of what returns a Result, whose value `wrap` makes a handle of.
template <class Handle, class Make, class Wrap>
rho_error *given(Handle **out, const Make &make, const Wrap &wrap) {
  if (out != nullptr)
    *out = nullptr;
  return ended([&]() -> Status {
    if (out == nullptr)
      return makeError(DiagId::null_pointer, {"out"});
    auto result = make();
    if (!result)
      return std::move(result.error());
    *out = wrap(std::move(*result));
    return Done{};
  });
}

template <class Handle, class Make> rho_error *given(Handle **out, const Make &make) {
  return given(out, make, [](auto value) { return new Handle{std::move(value)}; });
}

} // namespace rho::c
