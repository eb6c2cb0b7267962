// differences_of: how the tensors of two files, model folders or checkpoints differ, by name.
//
// Values are compared as doubles, whatever their types; NaN equals NaN. Needs a few megabytes of
// memory, whatever the size of the tensors. Local, one thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>

namespace parx::inline PARX_ABI {

/// For a tensor that has the same shape in both.
struct tensor_difference {
  std::string name;
  std::size_t elements = 0;      ///< number of elements that differ
  double largest = 0;            ///< absolute difference; infinite if one of the values is NaN
  std::size_t where = 0;         ///< index of the element with the largest difference
  double first = 0, second = 0;  ///< its values
};

struct difference_report {
  state_report names;  ///< missing from the second, unexpected there, of another shape
  std::vector<tensor_difference> values;
  [[nodiscard]] bool empty() const noexcept { return names.empty() && values.empty(); }
};

/// Throws errc::io, errc::bad_data if one of them cannot be read.
[[nodiscard]] difference_report differences_of(const safetensors_shards& first,
                                               const safetensors_shards& second);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/difference_impl.hpp>
#endif
