// Which gradients are exchanged by rows: those of embedding tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <parx/autograd/parameter_handle.hpp>

namespace parx::inline PARX_ABI {

/// Whether a parameter is an embedding that is large enough for an exchange of its own.
[[nodiscard]] inline bool is_exchanged_by_rows(const parameter_handle& parameter) {
  constexpr std::size_t least_bytes = std::size_t{1} << 18;
  const row_gradient_part* const part = parameter.row_gradient();
  return part != nullptr && part->expects_row_grad() && parameter.bytes() >= least_bytes &&
         parameter.rows() <= std::numeric_limits<std::uint32_t>::max();
}

}  // namespace parx
