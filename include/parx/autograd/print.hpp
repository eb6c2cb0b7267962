// fmt for variables and parameters: their values, as tensors are printed.
#pragma once

#include <fmt/core.h>

#include <parx/autograd/variable.hpp>
#include <parx/tensor/print.hpp>

template <typename T>
struct fmt::formatter<parx::variable<T>> : fmt::formatter<parx::tensor<T>> {
  fmt::appender format(const parx::variable<T>& v, fmt::format_context& to) const {
    return fmt::formatter<parx::tensor<T>>::format(v.value(), to);
  }
};
