// recent_calls: the fingerprints of a group's last collectives on this rank.
//
// Ranks whose calls differ may never read a header of each other that shows it. Example: two ranks
// each take themselves for the root of a broadcast; both send, return and go on. A stuck rank
// publishes these fingerprints with its notice; the first number for which two ranks have different
// fingerprints is where their calls diverged.
// Threads: belongs to the thread that drives the group's progress.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <parx/comm/detail/progress/call_header.hpp>

namespace parx::inline PARX_ABI::detail {

class recent_calls {
 public:
  static constexpr std::size_t most = 32;

  void remember(const call_header& call) noexcept {
    // Set-up calls (odd sequence numbers) may be missing on some ranks.
    if (call.sequence % 2 == 0) calls_[call.number() % most] = call;
  }

  /// Null if there was no such call, or it is too old.
  [[nodiscard]] const call_header* find(std::uint64_t sequence) const noexcept {
    const call_header& found = calls_[(sequence + 1) / 2 % most];
    return sequence > 0 && found.sequence == sequence ? &found : nullptr;
  }

  /// The oldest first.
  [[nodiscard]] std::vector<call_header> all() const {
    std::vector<call_header> found;
    std::copy_if(calls_.begin(), calls_.end(), std::back_inserter(found),
                 [](const call_header& each) { return each.sequence > 0; });
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    return found;
  }

  /// The first of another rank's calls (oldest first) that differs from this rank's call of the
  /// same number; null if none is known to differ.
  [[nodiscard]] const call_header* first_other(const std::vector<call_header>& theirs) const {
    const auto parted = std::find_if(theirs.begin(), theirs.end(), [this](const auto& each) {
      const call_header* const mine = find(each.sequence);
      return mine != nullptr && !mine->matches(each);
    });
    return parted == theirs.end() ? nullptr : &*parted;
  }

 private:
  std::array<call_header, most> calls_{};
};

}  // namespace parx::detail
