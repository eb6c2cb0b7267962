// notice: what a rank that is stuck tells the others, and who in the end keeps everybody waiting.
//
// A notice is the fingerprint of the call that the rank is in and the ranks that this waits for;
// none once the rank has gone on. Pure: where notices are kept is the transport's business.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call_header.hpp>

namespace parx::inline PARX_ABI::detail {

struct notice {
  call_header call{};
  std::vector<int> awaited{};  ///< empty: it has gone on since

  [[nodiscard]] bool waits() const noexcept { return !awaited.empty(); }

  [[nodiscard]] std::string to_text() const {
    std::string text(header_size, '\0');
    std::memcpy(text.data(), &call, header_size);
    for (const int rank : awaited) {
      const auto bytes = std::bit_cast<std::array<char, sizeof rank>>(rank);
      text.append(bytes.data(), bytes.size());
    }
    return text;
  }
  /// Nothing for what to_text() has not written.
  [[nodiscard]] static std::optional<notice> from_text(std::string_view text) {
    if (text.size() < header_size || (text.size() - header_size) % sizeof(int) != 0) return {};
    header_bytes bytes;
    std::memcpy(bytes.data(), text.data(), header_size);
    const auto call = parse_call_header(bytes);
    if (!call) return {};
    notice found{*call, std::vector<int>((text.size() - header_size) / sizeof(int))};
    text.remove_prefix(header_size);
    if (!text.empty()) std::memcpy(found.awaited.data(), text.data(), text.size());
    return found;
  }
};

/// Ranks of which each waits for the next.
struct wait_chain {
  std::vector<int> ranks;
  bool circle = false;  ///< the last one waits for the first
};

/// Why rank `own` waits for `awaited`: the shortest chain from one of these to a rank that waits
/// for nobody. Where there is none, the circle that holds them all up. `awaited_by(rank)` says whom
/// a rank waits for; at most `most_asked` ranks are asked.
template <typename AwaitedBy>
[[nodiscard]] wait_chain find_culprit(int own, const std::vector<int>& awaited,
                                      AwaitedBy awaited_by, std::size_t most_asked = 64) {
  struct step {
    int rank;
    std::size_t before;  // in the list of steps: who waits for it
  };
  static constexpr std::size_t nobody = ~std::size_t{0};
  std::vector<step> steps{{own, nobody}};
  const auto chain_to = [&](std::size_t last) {
    std::vector<int> ranks;
    for (; last != nobody; last = steps[last].before) ranks.push_back(steps[last].rank);
    std::reverse(ranks.begin(), ranks.end());
    return ranks;
  };
  const auto known = [&](int rank) {
    return std::any_of(steps.begin(), steps.end(),
                       [rank](const step& each) { return each.rank == rank; });
  };
  wait_chain circle;
  for (std::size_t i = 0; i < std::min(steps.size(), most_asked); ++i) {
    const std::vector<int> next = i == 0 ? awaited : awaited_by(steps[i].rank);
    if (next.empty()) {
      auto ranks = chain_to(i);
      ranks.erase(ranks.begin());  // itself
      return {std::move(ranks), false};
    }
    for (const int rank : next) {
      const auto before = chain_to(i);
      const auto again = std::find(before.begin(), before.end(), rank);
      if (again != before.end() && circle.ranks.empty()) circle = {{again, before.end()}, true};
      if (!known(rank)) steps.push_back({rank, i});
    }
  }
  return circle;
}

}  // namespace parx::detail
