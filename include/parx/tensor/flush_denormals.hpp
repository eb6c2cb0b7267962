// flush_denormals: a scope in which this thread treats denormal numbers as zero.
//
// Processors compute with denormals (below 1.2e-38 for float) in microcode, a hundred times slower.
// They arise where gradients vanish: a network whose loss had reached zero took 120 ms for a
// backward pass instead of 8. backward() opens such a scope itself. Scopes nest. Does nothing on
// processors other than x86-64 and AArch64. Source: PyTorch's set_flush_denormal.
#pragma once

#include <parx/core/abi.hpp>
#include <parx/core/float_control.hpp>

namespace parx::inline PARX_ABI {

class [[nodiscard]] flush_denormals {
 public:
  flush_denormals() noexcept : before_(control::get()) {
    control::set(before_ | control::flushing);
  }
  flush_denormals(const flush_denormals&) = delete;
  flush_denormals& operator=(const flush_denormals&) = delete;
  ~flush_denormals() { control::set(before_); }

 private:
  using control = detail::float_control;
  control::word before_;
};

}  // namespace parx
