// Definitions of step_progress.hpp.
#pragma once

#include <algorithm>
#include <span>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/core/check.hpp>
#include <parx/train/detail/step_progress.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE void require_replaceable(const std::string& reason, bool can_divide,
                                     const option_words& words) {
  require(reason.empty(),
          "trainer: on_loss cannot go on without a rank: {}. Leave it out, and go on from a "
          "checkpoint, by {}",
          reason, words.resume);
  require(can_divide,
          "trainer: on_loss deals the samples out anew, which this loader cannot do: take a "
          "data::loader");
}

PARX_INLINE bool is_rank_loss(const error& failure) noexcept {
  const errc code = failure.code_value();
  return code == errc::peer_lost || code == errc::aborted || code == errc::closed ||
         code == errc::timeout;
}

PARX_INLINE most_advanced_rank find_most_advanced(process_group& group, const step_progress& mine,
                                                  call_site site) {
  std::vector<step_progress> all(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&mine, 1), all, {}, site);
  const auto first = std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.order() < b.order(); });
  if (!first->whole) {
    throw_error(errc::bad_data,
                "the last ranks that had all of step {} were lost while they gave it to the "
                "others: go on from a checkpoint",
                first->step);
  }
  most_advanced_rank found{static_cast<int>(first - all.begin()), *first};
  for (const step_progress& each : all) {
    found.all_equal &= each.order() == first->order();
    found.same_steps &= each.whole && each.step == first->step;
  }
  return found;
}

PARX_INLINE void unfinished_step::begin(const rank_counts& counts, for_each_buffer buffers) {
  counts_ = counts;
  buffers_.clear();
  buffers([this](std::span<std::byte> bytes) {
    buffers_.insert(buffers_.end(), bytes.begin(), bytes.end());
  });
}

PARX_INLINE void unfinished_step::undo(rank_counts& counts, for_each_buffer buffers) {
  if (!counts_) return;
  counts = *counts_;
  const std::byte* from = buffers_.data();
  buffers([&from](std::span<std::byte> bytes) {
    std::copy_n(from, bytes.size(), bytes.begin());
    from += bytes.size();
  });
  end();
}

}  // namespace parx::train::detail
