// operation: what can be measured, and how much data that is.
//
// Sizes and factors are nccl-tests' (doc/PERFORMANCE.md): S is the whole vector (all_gather: what
// is received, reduce_scatter: what is put in), algbw = S / t, and busbw = algbw x a factor that
// makes the figure comparable with the speed of a link, whatever the number of ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bench {

enum class operation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  send_recv,  ///< every rank sends to the next and receives from the previous one
  barrier,
};

inline constexpr std::array all_operations{
    operation::all_reduce, operation::all_gather, operation::reduce_scatter, operation::broadcast,
    operation::reduce,     operation::send_recv,  operation::barrier};

[[nodiscard]] constexpr std::string_view name_of(operation op) noexcept {
  switch (op) {
    case operation::all_reduce: return "all_reduce";
    case operation::all_gather: return "all_gather";
    case operation::reduce_scatter: return "reduce_scatter";
    case operation::broadcast: return "broadcast";
    case operation::reduce: return "reduce";
    case operation::send_recv: return "send_recv";
    case operation::barrier: return "barrier";
  }
  return "unknown";
}

[[nodiscard]] constexpr bool reduces(operation op) noexcept {
  return op == operation::all_reduce || op == operation::reduce_scatter || op == operation::reduce;
}
[[nodiscard]] constexpr bool has_root(operation op) noexcept {
  return op == operation::broadcast || op == operation::reduce;
}

[[nodiscard]] constexpr double bus_factor(operation op, int world) noexcept {
  const double n = world;
  switch (op) {
    case operation::all_reduce: return 2 * (n - 1) / n;
    case operation::all_gather:
    case operation::reduce_scatter: return (n - 1) / n;
    case operation::broadcast:
    case operation::reduce:
    case operation::send_recv: return world > 1 ? 1 : 0;
    case operation::barrier: break;
  }
  return 0;
}

/// The elements of one rank's call.
struct shape {
  /// As in nccl-tests' column: of one rank's piece for all_gather and reduce_scatter.
  std::size_t count = 0;
  std::size_t input = 0;
  std::size_t output = 0;

  [[nodiscard]] constexpr std::size_t whole() const noexcept {
    return input > output ? input : output;
  }
};

/// The shape whose whole vector is `elements` long, or shorter where that cannot be cut evenly, but
/// has at least one element a piece.
[[nodiscard]] constexpr shape shape_of(operation op, std::size_t elements, int world) noexcept {
  const auto n = static_cast<std::size_t>(world);
  const std::size_t whole = elements > 0 ? elements : 1;
  const std::size_t piece = whole / n > 0 ? whole / n : 1;
  switch (op) {
    case operation::all_gather: return {piece, piece, piece * n};
    case operation::reduce_scatter: return {piece, piece * n, piece};
    case operation::barrier: return {};
    default: return {whole, whole, whole};
  }
}

}  // namespace bench
