// transport: the interface between a process group and the network that moves its bytes.
//
// A `link` is an ordered, reliable stream of bytes to one peer. A `transport` owns one group's
// links and can sleep until one of them is ready. A process group needs nothing else, so a new
// network is a new implementation of these two classes. Links are opened on first use: in a ring of
// 10 000 ranks each rank opens two, not 9 999. Only wait() and share() block; link_to(),
// has_ended(), describe() and the notices may ask the job's store. Threads: a transport and its
// links belong to one thread at a time; abort() and wake() may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/failure_record.hpp>

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

/// Thrown by links and transports when a peer is gone. The process group turns it into parx::error;
/// an exception nested in it (std::throw_with_nested) becomes that error's cause.
class link_lost : public std::runtime_error {
 public:
  link_lost(int peer_rank, const std::string& why, link_end by = link_end::broken)
      : std::runtime_error(why), peer(peer_rank), how(by) {}
  int peer;
  link_end how;
};

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
  virtual std::size_t try_receive(mutable_bytes first, mutable_bytes second) = 0;

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

/// Memory that all ranks of a host share: an equal part for each rank, in rank order, contiguous
/// where `bytes` is a multiple of 4096. Lives until its last owner is destroyed.
struct shared_area {
  std::vector<std::byte*> of_rank;  ///< each rank's part; null for the ranks of other hosts
  std::size_t bytes = 0;            ///< size of each part
  std::uint64_t id = 0;             ///< as given to transport::share
  std::shared_ptr<const void> owner;
};

class transport {
 public:
  static constexpr std::chrono::seconds longest_patience{30};

  virtual ~transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// The link to `peer` (never this rank itself), opened on first use. Opening does not wait for
  /// the peer, but may ask the job's store for its address, for at most `patience`. Throws
  /// link_lost.
  virtual link& link_to(int peer, channel traffic,
                        std::chrono::milliseconds patience = longest_patience) = 0;

  /// Calls visit(peer, link) for each link of this kind that link_to() has opened. For diagnosis
  /// only: an implementation may visit none.
  virtual void for_each_link(channel /*traffic*/,
                             const std::function<void(int, link&)>& /*visit*/) {}

  /// Sleeps until a link of interest may move bytes, wake() was called, a rank aborted, or `limit`
  /// has passed. Spurious returns are allowed.
  virtual void wait(const std::vector<link_interest>& interests,
                    std::chrono::milliseconds limit) = 0;
  /// Makes the current or the next wait() return at once.
  virtual void wake() = 0;

  /// Whether each rank of this host has a core of its own, so that busy waiting costs no other.
  [[nodiscard]] virtual bool may_spin() const noexcept = 0;

  /// Tells every rank of the job that this one has failed, and why. The first record is kept.
  virtual void abort(const failure_record& reason) noexcept = 0;
  /// Closes every link: peers see link_lost once they have read what was sent before.
  virtual void close() noexcept = 0;
  /// The record of the first rank that aborted; nullopt while none has. Does not block.
  virtual std::optional<failure_record> abort_reason() = 0;

  /// Publishes which call this rank waits in, for all ranks of the job to read. Replaces this
  /// group's previous notice. Only for diagnosis.
  virtual void post_notice(std::string_view text) = 0;
  /// The notices that the groups of a rank have posted. `job_rank` is its number in the job.
  virtual std::vector<std::string> notices_of(int job_rank) = 0;
  /// False while notices cannot be read, because the store does not answer.
  [[nodiscard]] virtual bool has_notices() { return true; }

  /// Whether the peer's process has certainly ended. Also for a peer that has not opened its link
  /// yet, whose loss no link can report. May take some milliseconds.
  [[nodiscard]] virtual bool has_ended(int peer) = 0;
  /// For a peer that has ended or closed its links: false where it was certainly killed, that is,
  /// did not leave the job by itself.
  [[nodiscard]] virtual bool may_have_left(int /*peer*/) { return true; }

  /// "rank 3 (node2, pid 4711)", or less where less is known. Never throws.
  [[nodiscard]] virtual std::string describe(int peer) = 0;
  /// The name of the peer's host; empty where it is not known. Never throws.
  [[nodiscard]] virtual std::string host_of(int peer) = 0;
  /// Converts a rank of this group to its rank in the job.
  [[nodiscard]] virtual int job_rank(int peer) const noexcept = 0;

  /// Whether all ranks of the group can share memory. Equal on all ranks.
  [[nodiscard]] virtual bool shares_memory() = 0;
  /// The host of each rank, numbered from 0 in the order of their first ranks. Equal on all ranks.
  [[nodiscard]] virtual std::vector<int> hosts() = 0;
  /// Collective and blocking: allocates zeroed memory, `bytes` per rank, that the ranks of each
  /// host share. `id` must be equal on all ranks and new in the group. Throws link_lost, and
  /// parx::error where memory cannot be had or `limit` passes.
  [[nodiscard]] virtual shared_area share(std::size_t bytes, std::uint64_t id, deadline limit) = 0;

  /// A transport among `members` (ranks of this transport, in the order of their new ranks), which
  /// include this rank. Local: opens nothing. `id` must be equal on all members and new in the job.
  virtual std::unique_ptr<transport> subgroup(std::span<const int> members, std::uint64_t id) = 0;
};

}  // namespace parx
