// bf16_values: where the operand of a product of bfloat16 is.
#pragma once

#include <cstddef>

#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

/// The values of an operand in memory: floats, which the product rounds, or bfloat16.
class bf16_values {
 public:
  bf16_values(const float* values) noexcept : floats_(values) {}
  bf16_values(const bfloat16* values) noexcept : halves_(values) {}

  /// Null where they are bfloat16.
  [[nodiscard]] const float* floats() const noexcept { return floats_; }
  /// Calls f with the pointer.
  template <typename Function>
  decltype(auto) visit(Function&& f) const {
    return halves_ != nullptr ? f(halves_) : f(floats_);
  }
  [[nodiscard]] friend bf16_values operator+(bf16_values values, std::size_t count) noexcept {
    if (values.halves_ != nullptr) return values.halves_ + count;
    return values.floats_ + count;
  }

 private:
  const float* floats_ = nullptr;
  const bfloat16* halves_ = nullptr;
};

}  // namespace parx
