// differences_of: how the tensors of two files, model folders or checkpoints differ, by name.
//
// Values are compared as doubles, whatever types they have; NaN equals NaN. Takes a few megabytes,
// however large the tensors are. Local, one thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// Of a tensor that both have in one shape.
struct tensor_difference {
  std::string name;
  std::size_t elements = 0;   ///< that differ
  double largest = 0;         ///< of the absolute differences; infinite beside a NaN
  std::size_t where = 0;      ///< the element with the largest
  double first = 0, second = 0;  ///< its values
};

struct difference_report {
  state_report names;  ///< missing from the second, unexpected there, of another shape
  std::vector<tensor_difference> values;
  [[nodiscard]] bool empty() const noexcept { return names.empty() && values.empty(); }
};

/// Throws errc::io, errc::bad_data where one of them cannot be read.
[[nodiscard]] difference_report differences_of(const safetensors_shards& first,
                                               const safetensors_shards& second);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/difference_impl.hpp>
#endif
