// operation: the operations that can be measured, and their amounts of data.
//
// Sizes and factors are nccl-tests' (doc/PERFORMANCE.md): S is the whole vector (all_gather: the
// output, reduce_scatter: the input), algbw = S / t, and busbw = algbw x a factor that makes the
// figure comparable with the speed of a link, whatever the number of ranks.
//
// Clocks, checks and reports take all they need of an operation from its row in the table below;
// the backends make the library's calls.
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
  gather,
  scatter,
  all_to_all,
  scan,
  exscan,
  send_recv,  ///< every rank sends to the next and receives from the previous one
  barrier,
};

enum class placement : std::uint8_t { out_of_place, in_place };

/// How long a rank's input and output are.
enum class layout : std::uint8_t {
  equal,      ///< both hold the whole vector
  gathered,   ///< the input is one piece of it
  scattered,  ///< the output is one piece of it
  blocks,     ///< both hold one piece for each rank
  nothing,
};

/// What a rank's output must hold afterwards.
enum class outcome : std::uint8_t {
  reduced,          ///< the reduction of all inputs
  reduced_at_root,  ///< the same, on the root alone
  reduced_piece,    ///< the rank's piece of it
  all_inputs,       ///< in rank order
  all_inputs_at_root,
  transposed,     ///< of each rank's input, the piece for this one
  prefix,         ///< the reduction of the inputs of ranks 0 to this one
  prefix_before,  ///< the same without this one's; rank 0's is left alone
  input_of_root,
  piece_of_root,
  input_of_previous,
  nothing,
};

/// Which placements make sense: a broadcast always works in place, a message never.
enum class forms : std::uint8_t { both, out_of_place, in_place };

struct operation_row {
  operation op;
  std::string_view name;
  layout data;
  outcome result;
  forms placements;
  bool reduces;
  bool has_root;
  double (*bus_factor)(double ranks);  ///< for two ranks and more
};

namespace detail {
inline constexpr auto there_and_back = [](double n) { return 2 * (n - 1) / n; };
inline constexpr auto all_but_own = [](double n) { return (n - 1) / n; };
inline constexpr auto once = [](double) { return 1.0; };
inline constexpr auto no_data = [](double) { return 0.0; };
}  // namespace detail

// clang-format off
inline constexpr std::array operation_table{
    operation_row{operation::all_reduce, "all_reduce", layout::equal, outcome::reduced,
                  forms::both, true, false, detail::there_and_back},
    operation_row{operation::all_gather, "all_gather", layout::gathered, outcome::all_inputs,
                  forms::both, false, false, detail::all_but_own},
    operation_row{operation::reduce_scatter, "reduce_scatter", layout::scattered,
                  outcome::reduced_piece, forms::both, true, false, detail::all_but_own},
    operation_row{operation::broadcast, "broadcast", layout::equal, outcome::input_of_root,
                  forms::in_place, false, true, detail::once},
    operation_row{operation::reduce, "reduce", layout::equal, outcome::reduced_at_root,
                  forms::both, true, true, detail::once},
    operation_row{operation::gather, "gather", layout::gathered, outcome::all_inputs_at_root,
                  forms::both, false, true, detail::all_but_own},
    operation_row{operation::scatter, "scatter", layout::scattered, outcome::piece_of_root,
                  forms::both, false, true, detail::all_but_own},
    operation_row{operation::all_to_all, "all_to_all", layout::blocks, outcome::transposed,
                  forms::out_of_place, false, false, detail::all_but_own},
    operation_row{operation::scan, "scan", layout::equal, outcome::prefix,
                  forms::both, true, false, detail::once},
    operation_row{operation::exscan, "exscan", layout::equal, outcome::prefix_before,
                  forms::both, true, false, detail::once},
    operation_row{operation::send_recv, "send_recv", layout::equal, outcome::input_of_previous,
                  forms::out_of_place, false, false, detail::once},
    operation_row{operation::barrier, "barrier", layout::nothing, outcome::nothing,
                  forms::out_of_place, false, false, detail::no_data},
};
// clang-format on

[[nodiscard]] constexpr const operation_row& row_of(operation op) noexcept {
  return operation_table[static_cast<std::size_t>(op)];
}
static_assert([] {
  for (const operation_row& each : operation_table) {
    if (&row_of(each.op) != &each) return false;
  }
  return true;
}());

[[nodiscard]] constexpr std::string_view name_of(operation op) noexcept { return row_of(op).name; }
[[nodiscard]] constexpr bool reduces(operation op) noexcept { return row_of(op).reduces; }
[[nodiscard]] constexpr bool has_root(operation op) noexcept { return row_of(op).has_root; }
[[nodiscard]] constexpr double bus_factor(operation op, int world) noexcept {
  return world > 1 ? row_of(op).bus_factor(world) : 0;
}
[[nodiscard]] constexpr bool is_meaningful(operation op, placement where) noexcept {
  const forms placements = row_of(op).placements;
  return placements == forms::both ||
         (placements == forms::in_place) == (where == placement::in_place);
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

/// The shape whose whole vector has `elements` elements, rounded down so that it can be cut evenly,
/// with at least one element for each piece.
[[nodiscard]] constexpr shape shape_of(operation op, std::size_t elements, int world) noexcept {
  const auto n = static_cast<std::size_t>(world);
  const std::size_t whole = elements > 0 ? elements : 1;
  const std::size_t piece = whole / n > 0 ? whole / n : 1;
  switch (row_of(op).data) {
    case layout::equal: return {whole, whole, whole};
    case layout::gathered: return {piece, piece, piece * n};
    case layout::scattered: return {piece, piece * n, piece};
    case layout::blocks: return {piece, piece * n, piece * n};
    case layout::nothing: break;
  }
  return {};
}

}  // namespace bench
