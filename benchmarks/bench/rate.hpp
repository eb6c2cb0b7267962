// rate: messages a second between pairs of ranks, as OSU's osu_mbw_mr counts them.
//
// The first half of the ranks sends, rank i to rank i + n/2. A sender sends a window of messages
// and waits for a short answer. If the number of ranks is odd, the last one is idle.
#pragma once

#include <array>
#include <cstddef>

#include <bench/figures.hpp>
#include <bench/measure.hpp>

namespace bench {

inline void run_rate(backend& ranks, const options& given) {
  static constexpr int window = 64;
  static constexpr int most_windows = 20'000;
  parx::require(ranks.size() >= 2, "--mode rate: there is no pair in a world of {}", ranks.size());
  parx::require(given.algorithms == options{}.algorithms,
                "--algo: a message between two ranks has no algorithm");
  const int half = ranks.size() / 2;
  const int rank = ranks.rank();
  const bool sends = rank < half;
  const bool is_idle = rank >= 2 * half;
  const int partner = sends ? rank + half : rank - half;

  const figures table(
      ranks, given, "send and recv", "a window of 64 messages, then an answer; all pairs together",
      {{"bytes", 0}, {"pairs", 0}, {"messages_per_s", 0}, {"GB_per_s", 3}, {"windows", 0}});
  const memory data = ranks.allocate(sizes_of(given).back());
  const memory answer = ranks.allocate(1);
  for (const std::size_t size : sizes_of(given)) {
    const parx::buffer_view message{data.get(), size, parx::dtype::uint8};
    const parx::buffer_view reply{answer.get(), 1, parx::dtype::uint8};
    const auto exchange = [&] {
      if (is_idle) return;
      if (sends) {
        ranks.send_burst({message.data, message.count, message.type}, partner, window);
        ranks.receive_burst(reply, partner, 1);
      } else {
        ranks.receive_burst(message, partner, window);
        ranks.send_burst({reply.data, reply.count, reply.type}, partner, 1);
      }
    };
    const double each = detail::estimate(ranks, given.warmup.value_or(3), exchange);
    const int windows =
        given.iterations.value_or(detail::fitting(given.budget, each, 3, most_windows));
    const double seconds = detail::estimate(ranks, windows, exchange) * windows;
    const double messages = static_cast<double>(half) * windows * window;
    const std::array row{static_cast<double>(size), static_cast<double>(half), messages / seconds,
                         messages * static_cast<double>(size) / seconds * 1e-9,
                         static_cast<double>(windows)};
    table.add(row);
  }
}

}  // namespace bench
