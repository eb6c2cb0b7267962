// rank_comparison: whether a text is the same on all ranks of a group and, if not, the lines that
// differ.
//
// The ranks exchange one hash each. The texts themselves are sent only if the hashes differ.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::detail {

/// "- only on rank 0: ..." and "+ only on rank 3: ..." for the first few lines that differ.
[[nodiscard]] inline std::string layout_difference(std::string_view first, std::string_view other,
                                                   int other_rank) {
  static constexpr std::size_t most_lines = 8;
  const auto a = split_at(first, '\n');
  const auto b = split_at(other, '\n');
  std::string text;
  std::size_t shown = 0;
  const auto list = [&](const auto& from, const auto& missing_in, char sign, int rank) {
    for (const auto line : from) {
      if (std::find(missing_in.begin(), missing_in.end(), line) != missing_in.end()) continue;
      if (shown++ < most_lines) text += formatted("\n  {} rank {}: {}", sign, rank, line);
    }
  };
  list(a, b, '-', 0);
  list(b, a, '+', other_rank);
  if (shown == 0) text = "\n  the same parameters, in another order";
  if (shown > most_lines) text += formatted("\n  ... and {} more lines", shown - most_lines);
  return text;
}

struct difference_of_ranks {
  int rank = 0;      ///< the first that is not like rank 0
  std::string text;  ///< the lines that differ
};

/// Compares the text `mine` over the ranks of a group. If it differs, difference() shows the lines
/// that differ between the ranks' `told` texts. All ranks make and use their comparisons in the
/// same order; several may be in flight at once.
class rank_comparison {
 public:
  /// Collective, asynchronous.
  rank_comparison(process_group& group, std::string_view mine, std::string told, call_site site)
      : group_(group), site_(site), told_(std::move(told)),
        digest_{fnv1a(mine), mine.size(), told_.size()},
        digests_(digest_.size() * static_cast<std::size_t>(group.size())),
        exchange_(async_all_gather(group_, std::span(digest_), digests_, {}, site_)) {}
  rank_comparison(const rank_comparison&) = delete;
  rank_comparison& operator=(const rank_comparison&) = delete;

  /// Collective, asynchronous: if texts differ, broadcasts rank 0's and the first different one.
  /// With several comparisons in flight, call this for all of them before difference() of any,
  /// because ranks may list the groups in different orders.
  void exchange_texts() {
    exchange_.wait();
    for (int rank = 1; rank < group_.size() && different_ == 0; ++rank) {
      const auto i = digest_.size() * static_cast<std::size_t>(rank);
      if (digests_[i] != digests_[0] || digests_[i + 1] != digests_[1]) different_ = rank;
    }
    if (different_ == 0) return;
    for (sent_text& each : sent_) {
      const int root = &each == &sent_.front() ? 0 : different_;
      each.text = told_;
      each.text.resize(digests_[digest_.size() * static_cast<std::size_t>(root) + 2]);
      each.broadcast = async_broadcast(group_, each.text, {.root = root}, site_);
    }
  }
  /// Equal on all ranks; nullopt if all have the same text. Waits for exchange_texts().
  [[nodiscard]] std::optional<difference_of_ranks> difference() {
    if (different_ == 0) return std::nullopt;
    for (sent_text& each : sent_) each.broadcast.wait();
    return difference_of_ranks{different_,
                               layout_difference(sent_[0].text, sent_[1].text, different_)};
  }

 private:
  struct sent_text {
    std::string text;
    work broadcast;  // destroyed, and so waited for, before the memory it uses
  };

  process_group& group_;
  const call_site site_;
  const std::string told_;
  const std::array<std::uint64_t, 3> digest_;
  std::vector<std::uint64_t> digests_;
  work exchange_;  // destroyed, and so waited for, before the memory it uses
  int different_ = 0;  ///< the first rank whose text is not rank 0's; 0 for none
  std::array<sent_text, 2> sent_;
};

/// Collective: the lines in which `text` differs between the ranks of a group; nullopt if all have
/// the same. Equal on all ranks.
[[nodiscard]] inline std::optional<difference_of_ranks> compare_over(process_group& group,
                                                                     const std::string& text,
                                                                     call_site site) {
  rank_comparison comparison(group, text, text, site);
  comparison.exchange_texts();
  return comparison.difference();
}

}  // namespace parx::detail
