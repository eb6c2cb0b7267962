// Collective algorithms as data.
//
// An algorithm is a pure function (rank, world, counts, ...) -> schedule: the list of what one rank
// sends, receives, reduces and copies. One engine runs every schedule; the tests prove them without
// a socket and the simulator prices them.
//
// Order. On each link, sends go out and receives are matched in the order of the list. Otherwise
// only the dependencies count, by the prefix rule: an action may move its element k once every
// dependency of the same length has moved its element k and every dependency of another length is
// complete. The rule is what makes a ring or a chain stream: a segment travels on while the next
// one is arriving. So a dependency of equal length must be about the same elements; put a fence
// between others. A copy runs at once when all it waits for is complete.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <parx/comm/schedule/algorithm.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI {

enum class action_kind : std::uint8_t {
  send,            ///< send `from` to `peer`
  receive,         ///< receive `to` from `peer`
  receive_reduce,  ///< to = from op (what `peer` sends)
  copy,            ///< to = from
  fetch,           ///< to = `from` in the shared buffer of `peer`
  spread,          ///< to = from, in all ranks' shared buffers
  combine,         ///< to = op over `from` in all ranks' shared buffers, in rank order
  combine_for_all, ///< the same, and to = the result in all ranks' shared buffers
  barrier,         ///< ends when all ranks have reached it; all later local actions wait for it
};

enum class place : std::uint8_t { input, output, scratch };

/// `count` elements from element `offset` of a buffer.
struct region {
  place where = place::input;
  std::size_t offset = 0;
  std::size_t count = 0;
};

inline constexpr std::int32_t no_action = -1;

struct action {
  action_kind kind = action_kind::copy;
  int peer = -1;
  region from{};
  region to{};
  /// Indices of earlier actions that must run ahead of this one (see the prefix rule).
  std::array<std::int32_t, 2> after{no_action, no_action};
  /// This is the last contribution to `to`: the engine applies the average's factor here.
  bool completes = false;
  /// receive_reduce forms (what `peer` sends) op from, instead of from op (what `peer` sends): the
  /// received values belong to lower ranks. Only a reduction that does not commute can tell.
  bool received_first = false;
  /// Of a combine, where not empty: this rank's part of the sum. In its shared buffer is none then,
  /// and the result is put there too. Of a receive_reduce, where not empty: this rank's part, which
  /// comes last: to = (from op what `peer` sends) op own.
  region own{};

  /// The number of elements this action moves.
  [[nodiscard]] std::size_t count() const noexcept {
    return kind == action_kind::send ? from.count : to.count;
  }
};

struct schedule {
  algorithm name = algorithm::automatic;
  std::vector<action> actions{};
  std::size_t scratch_count = 0;  ///< elements of place::scratch (staged: in shared memory)
  // Of a staged algorithm: the slices for which it takes the memory's parts in turn, and the
  // elements of the largest.
  int slices = 0;
  std::size_t slice_count = 0;

  std::int32_t add(const action& next) {
    actions.push_back(next);
    return static_cast<std::int32_t>(actions.size()) - 1;
  }
  std::int32_t send(int peer, region from, std::int32_t after = no_action,
                    std::int32_t also = no_action) {
    return add({.kind = action_kind::send, .peer = peer, .from = from, .after = {after, also}});
  }
  std::int32_t receive(int peer, region to, std::int32_t after = no_action,
                       std::int32_t also = no_action) {
    return add({.kind = action_kind::receive, .peer = peer, .to = to, .after = {after, also}});
  }
  std::int32_t copy(region from, region to, std::int32_t after = no_action,
                    std::int32_t also = no_action) {
    return add({.kind = action_kind::copy, .from = from, .to = to, .after = {after, also}});
  }
  /// Moves nothing and is done once both are. Whoever waits for a fence waits for whole actions, so
  /// it takes the place of a third dependency, and of one of equal length over other elements.
  std::int32_t fence(std::int32_t first, std::int32_t second = no_action) {
    return copy({}, {}, first, second);
  }
};

[[nodiscard]] constexpr region chunk(place where, std::size_t count, int chunks,
                                     int index) noexcept {
  const std::size_t begin = chunk_begin(count, chunks, index);
  return {where, begin, chunk_begin(count, chunks, index + 1) - begin};
}

/// a modulo b in [0, b), also for negative a.
[[nodiscard]] constexpr int wrap(int a, int b) noexcept { return ((a % b) + b) % b; }

}  // namespace parx
