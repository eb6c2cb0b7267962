// fmt for variables and parameters: their values, as tensors are printed.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include <parx/autograd/variable.hpp>
#include <parx/tensor/print.hpp>

template <typename T>
struct fmt::formatter<parx::variable<T>> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const parx::variable<T>& v, Context& context) const {
    return fmt::formatter<std::string_view>::format(parx::to_string(v.value()), context);
  }
};
