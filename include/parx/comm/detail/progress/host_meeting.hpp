// host_meeting: this rank's part in the barriers of a running collective (host_barrier.hpp).
//
// Memory wakes nobody and does not tell that a rank has ended; the links to the ranks do.
// Threads: belongs to the thread that drives the group's progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/comm/detail/progress/host_barrier.hpp>
#include <parx/comm/schedule/action.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class host_meeting {
 public:
  /// Before the barriers of the call `header`; `barrier` is open. The first time, opens the links.
  void start(links& network, host_barrier& barrier, const call_header& header,
             std::chrono::milliseconds patience) {
    barrier_ = &barrier;
    header_ = &header;
    if (!others_.empty()) return;
    for (int ahead = 1; ahead < network.size(); ++ahead) {
      const int rank = wrap(network.rank() + ahead, network.size());
      others_.push_back({rank, &network.link_to(rank, channel::collective, patience)});
    }
  }

  /// Arrives at the next barrier; false where this rank has arrived there before.
  bool arrive() {
    if (std::exchange(arrived_, true)) return false;
    barrier_->arrive(*header_);
    missing_.clear();
    for (other& each : others_) {
      reach(each, [](link& stream) { stream.nudge(); });
      missing_.push_back(&each);
    }
    return true;
  }
  /// Whether the barrier is over. Throws header_mismatch, and link_lost where a rank is gone.
  [[nodiscard]] bool all_have_arrived() {
    std::erase_if(missing_, [&](const other* each) {
      if (!barrier_->has_arrived(each->rank)) return false;
      const call_header theirs = barrier_->header_of(each->rank);
      if (!theirs.matches(*header_)) throw header_mismatch{each->rank, *header_, theirs};
      return true;
    });
    if (std::exchange(looks_, false)) {
      for (other* each : missing_) look_at(*each);
    }
    arrived_ = !missing_.empty();
    return missing_.empty();
  }

  /// Appends the events that can end a sleep.
  void interests(std::vector<link_interest>& out) {
    looks_ = true;
    for (const other* each : missing_) {
      out.push_back({each->rank, channel::collective, true, false,
                     &barrier_->first_word(each->rank), barrier_->first_word_of(*header_)});
    }
  }
  /// Appends the ranks that have not arrived.
  void add_missing(std::vector<int>& out) const {
    for (const other* each : missing_) out.push_back(each->rank);
  }

 private:
  struct other {
    int rank;
    link* stream;
    call_header stray_header{};  ///< received over the link before that rank arrived
    std::size_t stray_bytes = 0;
  };

  /// Calls use(link). A lost link is ignored if the rank has arrived before it ended.
  template <typename Use>
  void reach(const other& from, Use use) {
    try {
      use(*from.stream);
    } catch (const link_lost&) {
      if (!barrier_->has_arrived(from.rank)) throw;
    }
  }

  /// Data that a rank sends over its link before it arrives belongs to a different call: data that
  /// it sends after this barrier becomes visible only after its arrival.
  void look_at(other& missing) {
    reach(missing, [&](link& stream) {
      if (!stream.has_unread() || barrier_->has_arrived(missing.rank)) return;
      auto* const header = reinterpret_cast<std::byte*>(&missing.stray_header);
      missing.stray_bytes +=
          stream.try_receive({header + missing.stray_bytes, header_size - missing.stray_bytes}, {});
      if (missing.stray_bytes < header_size) return;
      throw header_mismatch{missing.rank, *header_, missing.stray_header};
    });
  }

  host_barrier* barrier_ = nullptr;
  const call_header* header_ = nullptr;
  std::vector<other> others_;
  std::vector<other*> missing_;  ///< have not arrived at the barrier this rank is at
  bool arrived_ = false;         ///< this rank, at a barrier that is not over
  bool looks_ = false;           ///< at the links: after a sleep, as they take time
};

}  // namespace parx::detail
