// ring_picture: the ring all-reduce of 4 ranks, step by step, as SVG. What the ranks send is read
// from their lists of actions (schedule/ring.hpp), the same that parx's engine runs; what comes out
// is compared with a real all_reduce.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/schedule/ring.hpp>
#include <parx/comm/threads.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>

namespace examples {

inline constexpr int ring_ranks = 4;

/// By chunk, the ranks whose values are in it: bit r for rank r.
using chunk_contents = std::array<unsigned, ring_ranks>;

struct ring_rank {
  parx::schedule plan{};
  chunk_contents input{}, output{};
  std::size_t received = ring_ranks;  ///< the chunk of the last step; ring_ranks: none

  [[nodiscard]] unsigned at(const parx::region& where) const {
    return (where.where == parx::place::input ? input : output)[where.offset];
  }
  /// A chunk as it lies in the rank's memory: its sum so far, or its own values.
  [[nodiscard]] unsigned held(std::size_t chunk) const {
    return output[chunk] != 0 ? output[chunk] : input[chunk];
  }
};
using ring_state = std::array<ring_rank, ring_ranks>;

/// All ranks' states: at the start, and after each step, in which a rank sends and receives once.
inline std::vector<ring_state> run_ring() {
  ring_state now;
  for (int rank = 0; rank < ring_ranks; ++rank) {
    now[static_cast<std::size_t>(rank)].plan =
        parx::algorithms::ring_all_reduce(rank, ring_ranks, 4);
    now[static_cast<std::size_t>(rank)].input.fill(1U << rank);
  }
  std::vector<ring_state> all{now};
  for (std::size_t at = 0; at < now[0].plan.actions.size(); at += 2) {
    std::array<unsigned, ring_ranks> message{};  // by receiver
    for (const ring_rank& each : now) {
      const parx::action& send = each.plan.actions[at];
      message[static_cast<std::size_t>(send.peer)] = each.at(send.from);
    }
    for (std::size_t rank = 0; rank < now.size(); ++rank) {
      const parx::action& receive = now[rank].plan.actions[at + 1];
      const bool reduces = receive.kind == parx::action_kind::receive_reduce;
      now[rank].received = receive.to.offset;
      now[rank].output[receive.to.offset] =
          message[rank] | (reduces ? now[rank].at(receive.from) : 0U);
    }
    all.push_back(now);
  }
  return all;
}

/// Throws parx::error unless a real all_reduce by the same algorithm ends in the same sums.
inline void check_ring(const ring_state& last) {
  parx::run_threads(ring_ranks, [&](parx::process_group& world) {
    std::vector<std::int64_t> x(ring_ranks, std::int64_t{1} << world.rank());
    parx::all_reduce(world, x, {.op = parx::reduce_op::sum, .use = parx::algorithm::ring});
    for (std::size_t chunk = 0; chunk < x.size(); ++chunk) {
      const auto drawn = last[static_cast<std::size_t>(world.rank())].held(chunk);
      parx::require(x[chunk] == drawn, "all_reduce gave {}, and the picture {}", x[chunk], drawn);
    }
  });
}

inline std::string to_svg(const std::vector<ring_state>& steps) {
  constexpr std::array<std::string_view, ring_ranks> fills{"#4a86c8", "#5aa55a", "#e08a3c",
                                                           "#9a6fc0"};
  constexpr double left = 62, column = 116, box = 24, row = 42, top = 74;
  const double width = left + column * static_cast<double>(steps.size());
  std::string svg = parx::formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"8\" y=\"22\" font-size=\"13\" font-weight=\"bold\">all_reduce over a ring of 4 "
      "ranks: in each step every rank sends one chunk to the next rank</text>\n",
      width, top + row * ring_ranks + 34);
  const auto phase = [&](double first, double columns, std::string_view name) {
    const double x = left + column * first, end = x + column * columns - 20;
    svg += parx::formatted(
        "<line x1=\"{0}\" y1=\"48\" x2=\"{1}\" y2=\"48\" stroke=\"#888888\"/>\n"
        "<text x=\"{2}\" y=\"43\" text-anchor=\"middle\">{3}</text>\n",
        x, end, (x + end) / 2, name);
  };
  phase(1, ring_ranks - 1, "reduce-scatter: what arrives is added to the own values");
  phase(ring_ranks, ring_ranks - 1, "all-gather: the sums go round");
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const double x = left + column * static_cast<double>(step);
    svg += parx::formatted("<text x=\"{}\" y=\"66\" text-anchor=\"middle\">{}</text>\n",
                           x + 2 * box, step == 0 ? "start" : parx::formatted("step {}", step));
    for (std::size_t rank = 0; rank < ring_ranks; ++rank) {
      const double y = top + row * static_cast<double>(rank);
      const ring_rank& here = steps[step][rank];
      if (step == 0)
        svg += parx::formatted("<text x=\"8\" y=\"{}\">rank {}</text>\n", y + 17, rank);
      for (std::size_t chunk = 0; chunk < ring_ranks; ++chunk) {
        const double at = x + box * static_cast<double>(chunk);
        for (std::size_t from = 0; from < ring_ranks; ++from) {
          if ((here.held(chunk) >> from & 1U) == 0) continue;
          svg +=
              parx::formatted("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"6\" fill=\"{}\"/>\n",
                              at, y + 6 * static_cast<double>(from), box, fills[from]);
        }
        svg += parx::formatted(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"24\" fill=\"none\" "
            "stroke=\"#bbbbbb\"/>\n",
            at, y, box);
      }
      if (here.received == ring_ranks) continue;
      svg += parx::formatted(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"24\" fill=\"none\" "
          "stroke=\"#000000\" stroke-width=\"2\"/>\n",
          x + box * static_cast<double>(here.received), y, box);
    }
  }
  double x = left;
  const double y = top + row * ring_ranks + 8;
  for (std::size_t rank = 0; rank < ring_ranks; ++rank, x += 150) {
    svg += parx::formatted(
        "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">values of rank {}</text>\n",
        x, y, fills[rank], x + 17, y + 10, rank);
  }
  return svg + parx::formatted(
                   "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"none\" "
                   "stroke=\"#000000\" stroke-width=\"2\"/>"
                   "<text x=\"{}\" y=\"{}\">arrived in this step</text>\n</svg>\n",
                   x, y, x + 17, y + 10);
}

}  // namespace examples
