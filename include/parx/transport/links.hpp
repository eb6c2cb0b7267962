// links: the interface between a process group and the network that moves its bytes.
//
// A `link` is an ordered, reliable stream of bytes to one peer. A `links` object owns one group's
// links and can sleep until one of them is ready. A new network is a new implementation of these
// two classes. What all networks have in common is the `job` (job.hpp): failures, liveness, names.
// Links are opened on first use: in a ring of 10 000 ranks each rank opens two, not 9 999. Only
// wait() and share() block; link_to() may ask the job's store. Threads: a links object and its
// links belong to one thread at a time; wake() may be called from any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/transport/job.hpp>

namespace parx::inline PARX_ABI {

/// Which traffic of a group a link carries. Collectives and messages have separate links, so that
/// a message without a matching receive never blocks a collective.
enum class channel : std::uint8_t { collective, message };
inline constexpr std::size_t channel_count = 2;

/// Every message on a link begins with a prefix of this many bytes, opaque to the link. As an
/// optimization a link may rely on consecutive messages often having equal prefixes except for the
/// eight bytes at `prefix_number_at`.
inline constexpr std::size_t prefix_bytes = 64;
inline constexpr std::size_t prefix_number_at = 16;

/// How a link to a peer was lost.
enum class link_end {
  broken,  ///< by the network, or by what the peer sent
  closed,  ///< the peer has closed it, or its process has ended
};

/// Thrown by links when a peer is gone. The process group turns it into parx::error;
/// an exception nested in it (std::throw_with_nested) becomes that error's cause.
class link_lost : public std::runtime_error {
 public:
  link_lost(int peer_rank, const std::string& why, link_end by = link_end::broken)
      : std::runtime_error(why), peer(peer_rank), how(by) {}
  int peer;
  link_end how;
};
/// What a link throws whose peer has closed it, and whose last bytes were received.
[[nodiscard]] inline link_lost closed_by(int peer) {
  return {peer, "it closed the connection", link_end::closed};
}

struct const_bytes {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  // Hints for links that can move bytes in more than one way.
  std::size_t to_follow = 0;      ///< bytes of the same message that later calls will send
  bool recently_written = false;  ///< by this core: in its cache, slow to read from another core
  bool send_only = false;  ///< this rank receives nothing meanwhile and has time to help copying
  bool receiver_reduces = false;  ///< the receiver reduces each part as it arrives
  bool more_follows = false;  ///< another message is sent next; a packet may carry both (MSG_MORE)
};
struct mutable_bytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
  /// Where larger than `size`: a link may receive this many bytes at `data`. Until all of them have
  /// arrived or the link is closed, it may write the missing ones at any time.
  std::size_t room = 0;
  bool no_dependents = false;  ///< no later step uses a part of it, so it may come in large pieces
  /// The caller passes this memory again until bytes have arrived here or the link is closed: a
  /// link may write the first ones between two calls.
  bool steady = false;
};

class link {
 public:
  virtual ~link() = default;
  /// Moves as many bytes as fit now, from `first` and then `second`; 0 when none do or the link is
  /// still being opened. `first` is the rest of a message's header, `second` that of its body.
  /// Throws link_lost.
  virtual std::size_t try_send(const const_bytes& first, const const_bytes& second) = 0;
  virtual std::size_t try_receive(const mutable_bytes& first, const mutable_bytes& second) = 0;

  // Called only for peers that share memory.
  /// Ends the peer's wait() for this link, after this rank has written a word that both see
  /// (link_interest::word). Throws link_lost.
  virtual void nudge() {}
  /// Whether bytes have arrived that were not received yet. Throws link_lost as try_receive does.
  [[nodiscard]] virtual bool has_unread() { return false; }
};

/// What wait() waits for on one link. link_to() must have opened the link.
struct link_interest {
  int peer = -1;
  channel traffic = channel::collective;
  bool readable = false;
  bool writable = false;
  /// In shared memory: where this is not null, the wait also ends once `*word` is `awaited`. The
  /// peer writes the word and then calls nudge() on its end of the link.
  const std::atomic<std::uint64_t>* word = nullptr;
  std::uint64_t awaited = 0;
};

[[nodiscard]] inline std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Memory that all ranks of a host share: an equal part for each rank, in rank order, contiguous
/// where `bytes` is a multiple of 4096. Lives until its last owner is destroyed.
struct shared_area {
  std::vector<std::byte*> of_rank;  ///< each rank's part; null for the ranks of other hosts
  std::size_t bytes = 0;            ///< size of each part
  std::uint64_t id = 0;             ///< as given to links::share
  std::shared_ptr<const void> owner;
};

/// One group's links. An implementation also calls job().report_ended() for a peer that it finds to
/// have ended. Its wait() returns when a rank has aborted: where ranks are processes it polls
/// job().abort_descriptor(), and calls job().abort_signalled().
class links {
 public:
  static constexpr std::chrono::seconds longest_patience{30};

  /// The group `id`, in which this rank is `rank`. `members`: each rank's number in the job.
  links(std::shared_ptr<parx::job> of, std::vector<int> members, int rank, std::uint64_t id)
      : job_(std::move(of)), members_(std::move(members)), rank_(rank), group_(id) {}
  virtual ~links() = default;
  links(const links&) = delete;
  links& operator=(const links&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::uint64_t group() const noexcept { return group_; }
  [[nodiscard]] parx::job& job() const noexcept { return *job_; }
  /// Converts a rank of this group to its rank in the job.
  [[nodiscard]] int job_rank(int peer) const noexcept {
    return members_[static_cast<std::size_t>(peer)];
  }
  /// "rank 3 (node2, pid 4711)", or less where less is known. Never throws.
  [[nodiscard]] std::string describe(int peer) const {
    return job_->describe(job_rank(peer), peer);
  }

  /// The link to `peer` (never this rank itself), opened on first use. Opening does not wait for
  /// the peer, but may ask the job's store for its address, for at most `patience`. Throws
  /// link_lost.
  virtual link& link_to(int peer, channel traffic,
                        std::chrono::milliseconds patience = longest_patience) = 0;

  /// Calls visit(peer, link) for each link of this kind that link_to() has opened. For diagnosis
  /// only: an implementation may visit none.
  virtual void for_each_link(channel traffic, const std::function<void(int, link&)>& visit) = 0;

  /// Sleeps until a link of interest may move bytes, wake() was called, a rank aborted, or `limit`
  /// has passed. Spurious returns are allowed.
  virtual void wait(const std::vector<link_interest>& interests,
                    std::chrono::milliseconds limit) = 0;
  /// Makes the current or the next wait() return at once.
  virtual void wake() = 0;
  /// Closes every link: peers see link_lost once they have read what was sent before.
  virtual void close() noexcept = 0;

  /// Whether all ranks of the group can share memory. Equal on all ranks.
  [[nodiscard]] virtual bool shares_memory() = 0;
  /// The host of each rank, numbered from 0 in the order of their first ranks. Equal on all ranks.
  [[nodiscard]] virtual std::vector<int> hosts() = 0;
  /// Collective and blocking: allocates zeroed memory, `bytes` per rank, that the ranks of each
  /// host share. `id` must be equal on all ranks and new in the group. Throws link_lost, and
  /// parx::error where memory cannot be had or `limit` passes.
  [[nodiscard]] virtual shared_area share(std::size_t bytes, std::uint64_t id, deadline limit) = 0;

  /// The links among `members` (ranks of this group, in the order of their new ranks), which
  /// include this rank. Local: opens nothing. `id` must be equal on all members and new in the job.
  [[nodiscard]] std::unique_ptr<links> subgroup(std::span<const int> members, std::uint64_t id) {
    const auto own = std::find(members.begin(), members.end(), rank_) - members.begin();
    std::vector<int> of_job;
    for (const int each : members) of_job.push_back(job_rank(each));
    return make_subgroup(std::move(of_job), static_cast<int>(own), id);
  }

 protected:
  /// As the constructor's arguments, over the same network and job.
  [[nodiscard]] virtual std::unique_ptr<links> make_subgroup(std::vector<int> members, int rank,
                                                             std::uint64_t id) = 0;
  [[nodiscard]] const std::shared_ptr<parx::job>& shared_job() const noexcept { return job_; }

 private:
  std::shared_ptr<parx::job> job_;
  std::vector<int> members_;
  int rank_;
  std::uint64_t group_;
};

}  // namespace parx
