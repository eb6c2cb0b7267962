// The seam between a process group and whatever moves its bytes.
//
// A `link` is an ordered, reliable stream of bytes to one peer; a `transport` owns one group's
// links and knows how to sleep until one of them can move. What implements the two carries all that
// a group does; how its links move bytes and what its sleeper waits for are its own business. Links
// are opened when they are first asked for: a ring of 10 000 ranks opens two a rank, not 9 999.
// Nothing here blocks except wait() and share(). Threads: a transport and its links belong to one
// thread at a time; abort() and wake() may come from any thread.
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

namespace parx::inline PARX_ABI {

/// Which traffic of a group a link carries. Collectives and messages have links of their own, so
/// that a message nobody has asked for yet never stands in a collective's way.
enum class channel : std::uint8_t { collective, message };
inline constexpr std::size_t channel_count = 2;

/// What is sent over a link begins with a prefix of this many bytes, which no link need understand.
/// A link may expect, to be faster, that from one message to the next often nothing in it changes
/// but the eight bytes at `prefix_number_at`.
inline constexpr std::size_t prefix_bytes = 64;
inline constexpr std::size_t prefix_number_at = 16;

/// Thrown by links and transports when a peer is gone. The process group turns it into parx::error,
/// with what std::throw_with_nested has kept as its cause.
class link_lost : public std::runtime_error {
 public:
  link_lost(int peer_rank, const std::string& why) : std::runtime_error(why), peer(peer_rank) {}
  int peer;
};

struct const_bytes {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  // Hints for links that can move bytes in more than one way.
  std::size_t to_follow = 0;  ///< bytes of the same message that come later, once they are there
  bool fresh = false;    ///< likely just written: in this core's cache, dear to read from another
  bool at_ease = false;  ///< nothing to receive meanwhile: this rank may as well do copying
  bool reduced = false;  ///< the receiver works on each part of it as it comes
  bool others_wait = false;  ///< after it, and are sent next: it may travel with them
};
struct mutable_bytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
  /// Where larger than `size`: a link may receive this many bytes from `data` on, and until they
  /// are full or it is closed, what is not yet received may be written at any time.
  std::size_t room = 0;
  bool at_ease = false;  ///< nothing goes on from what comes in, so that may come in large pieces
};

class link {
 public:
  virtual ~link() = default;
  /// Moves as many bytes as fit now, from `first` and then `second`; 0 when none do or the link is
  /// still being opened. `first` is what is left of a message's header, `second` of its
  /// body. Throws link_lost.
  virtual std::size_t try_send(const const_bytes& first, const const_bytes& second) = 0;
  virtual std::size_t try_receive(mutable_bytes first, mutable_bytes second) = 0;

  // For peers that share memory; of other links nobody asks this.
  /// Ends the peer's wait() for this link, because of something that this rank has written to
  /// memory which both see (link_interest::word). Throws link_lost.
  virtual void nudge() {}
  /// Whether something has come that was not received yet. Throws link_lost as try_receive does.
  [[nodiscard]] virtual bool has_unread() { return false; }
};

/// What a sleeping thread waits for on one link, which link_to() has opened before.
struct link_interest {
  int peer = -1;
  channel traffic = channel::collective;
  bool readable = false;
  bool writable = false;
  /// In memory that the peer sees too: where this is not null, the wait also ends once `*word` is
  /// `awaited`. The peer writes it and then nudges its end of the link.
  const std::atomic<std::uint64_t>* word = nullptr;
  std::uint64_t awaited = 0;
};

/// Memory that all ranks of a host see: one equal part a rank, in the order of ranks and without a
/// gap where `bytes` is a multiple of 4096. Lives until its last owner goes.
struct shared_area {
  std::vector<std::byte*> of_rank;  ///< each rank's part; null for the ranks of other hosts
  std::size_t bytes = 0;            ///< of each part
  std::uint64_t id = 0;             ///< as given to transport::share
  std::shared_ptr<const void> owner;
};

class transport {
 public:
  static constexpr std::chrono::seconds longest_patience{30};

  virtual ~transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// The link to `peer` (never this rank itself), opened on first use. That does not wait for the
  /// peer, but may ask the job's store where it is, for at most `patience`. Throws link_lost.
  virtual link& link_to(int peer, channel traffic,
                        std::chrono::milliseconds patience = longest_patience) = 0;

  /// Calls visit(peer, link) for each link of this kind that link_to() has opened. A transport that
  /// does not keep them need not.
  virtual void for_each_link(channel /*traffic*/,
                             const std::function<void(int, link&)>& /*visit*/) {}

  /// Sleeps until a link of interest may move, wake() was called, a rank aborted, or `limit`
  /// passed. May return early for no reason.
  virtual void wait(const std::vector<link_interest>& interests,
                    std::chrono::milliseconds limit) = 0;
  /// Makes the current or the next wait() return at once.
  virtual void wake() = 0;

  /// True when a spinning rank has a core of its own on this host.
  [[nodiscard]] virtual bool may_spin() const noexcept = 0;

  /// Tells every rank of the job that this one has failed, and why. Only the first reason is kept.
  virtual void abort(std::string_view reason) noexcept = 0;
  /// Ends every link: peers see link_lost once they have read what was sent before.
  virtual void close() noexcept = 0;
  /// The reason of the first rank that aborted, once one did. Does not block.
  virtual std::optional<std::string> abort_reason() = 0;

  /// A small notice that all ranks of the job can read: what this rank waits in. It replaces the
  /// last one of this group. Only for diagnosis.
  virtual void post_notice(std::string_view text) = 0;
  /// What the groups of a rank have posted. Ranks are numbered as in the job, not as in this group.
  virtual std::vector<std::string> notices_of(int job_rank) = 0;
  /// False while no rank's notice can be read: what they are in is then unknown.
  [[nodiscard]] virtual bool has_notices() { return true; }

  /// Whether the peer has surely ended: a link that it never opened cannot break. For a rank that
  /// has waited for a while; may take some milliseconds.
  [[nodiscard]] virtual bool has_ended(int peer) = 0;
  /// Of a peer that has ended, or closed its links: false where it surely did not leave the job by
  /// itself but was killed.
  [[nodiscard]] virtual bool may_have_left(int /*peer*/) { return true; }

  /// "rank 3 (node2, pid 4711)"; never throws, says less when less is known.
  [[nodiscard]] virtual std::string describe(int peer) = 0;
  /// The name of the peer's host; empty where it is not known. Never throws.
  [[nodiscard]] virtual std::string host_of(int peer) = 0;
  /// The number in the job of a rank of this group.
  [[nodiscard]] virtual int job_rank(int peer) const noexcept = 0;

  /// Whether all ranks see each other's shared areas. Equal on all ranks.
  [[nodiscard]] virtual bool shares_memory() = 0;
  /// The host of each rank, numbered from 0 in the order of their first ranks. Equal on all ranks.
  [[nodiscard]] virtual std::vector<int> hosts() = 0;
  /// Collective and blocking: an area of `bytes` a rank, zeroed. `id` must be equal on all ranks
  /// and new in the group. Throws link_lost, and parx::error where memory cannot be had or `limit`
  /// passes.
  [[nodiscard]] virtual shared_area share(std::size_t bytes, std::uint64_t id, deadline limit) = 0;

  /// A transport among `members` (ranks of this transport, in the order of their new ranks), this
  /// rank included. Local: opens nothing. `id` must be equal on all members and new in the job.
  virtual std::unique_ptr<transport> subgroup(std::span<const int> members, std::uint64_t id) = 0;
};

}  // namespace parx
