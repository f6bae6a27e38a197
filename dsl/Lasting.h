// What is made once in a process.
#pragma once

#include <utility>

namespace rho::dsl {

// An object that is never destroyed, since threads may run on while a process ends: where a
// function keeps what it makes, `static auto &known = lasting(...)`.
template <class T> T &lasting(T made) { return *new T(std::move(made)); }

} // namespace rho::dsl
