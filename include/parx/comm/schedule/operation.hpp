// operation: the operations of a group.
//
// The numbers go over the wire in every call's header: append, never reorder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  scan,    ///< rank r gets x0 op ... op xr
  exscan,  ///< rank r gets x0 op ... op x(r-1); rank 0's output is unchanged
  barrier,
  send,
  recv,
};

inline constexpr std::array<std::string_view, 13> operation_names{
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",  "gather", "scatter",
    "all_to_all", "scan",           "exscan",     "barrier",   "send",    "recv"};

[[nodiscard]] constexpr std::string_view name_of(operation what) noexcept {
  const auto i = static_cast<std::size_t>(what);
  return i < operation_names.size() ? operation_names[i] : std::string_view("unknown");
}

/// Whether one rank is special: the source, or the only one that receives the result.
[[nodiscard]] constexpr bool has_root(operation what) noexcept {
  return what == operation::broadcast || what == operation::reduce || what == operation::gather ||
         what == operation::scatter;
}

/// Whether elements are combined, not only moved.
[[nodiscard]] constexpr bool reduces(operation what) noexcept {
  return what == operation::all_reduce || what == operation::reduce_scatter ||
         what == operation::reduce || what == operation::scan || what == operation::exscan;
}

}  // namespace parx
