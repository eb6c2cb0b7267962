// dtype_of_torch: parx's name of the type of PyTorch's elements.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// The type of the elements of a tensor of PyTorch; nullopt for one that parx does not have.
[[nodiscard]] inline std::optional<dtype> dtype_of_torch(at::ScalarType type) noexcept {
  switch (type) {
    case at::kFloat:
      return dtype::float32;
    case at::kDouble:
      return dtype::float64;
    case at::kHalf:
      return dtype::float16;
    case at::kBFloat16:
      return dtype::bfloat16;
    case at::kByte:
      return dtype::uint8;
    case at::kChar:
      return dtype::int8;
    case at::kShort:
      return dtype::int16;
    case at::kInt:
      return dtype::int32;
    case at::kLong:
      return dtype::int64;
    default:
      return std::nullopt;
  }
}

}  // namespace parx
