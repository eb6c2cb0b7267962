// action: collective algorithms as data.
//
// An algorithm is a pure function (rank, world, counts, ...) -> schedule: the list of one rank's
// sends, receives, reductions and copies. One engine runs all schedules; the tests prove them
// without a socket, and the simulator prices them.
//
// Order. On each link, sends are sent and receives are matched in the order of the list. Otherwise
// only dependencies count, by the prefix rule: an action may move its element k once every
// dependency of the same length has moved its element k and every dependency of another length is
// complete. This rule makes a ring or a chain stream: a segment is sent on while the next one
// arrives. So a dependency of equal length must be about the same elements; otherwise put a fence
// between the two. A copy runs as a whole once all its dependencies are complete.
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
  /// Dependencies: indices of earlier actions (see the prefix rule).
  std::array<std::int32_t, 2> after{no_action, no_action};
  /// This is the last contribution to `to`: the engine scales the result here (avg, premul_sum).
  bool completes = false;
  /// Of a receive_reduce: to = (what `peer` sends) op from, instead of from op (what `peer` sends),
  /// because the received values are of lower ranks. Matters only if the operation does not
  /// commute.
  bool received_first = false;
  /// Of a combine, if not empty: this rank's contribution, which is then not in its shared buffer;
  /// the result is written there too. Of a receive_reduce, if not empty: this rank's contribution,
  /// which comes last: to = (from op what `peer` sends) op own.
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
  // Of a staged algorithm: the number of slices, which use the memory's parts in turn, and the
  // elements of the largest slice.
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
  /// to = mine op (what `peer` sends); `rest` holds the other fields, such as `after`.
  std::int32_t receive_reduce(int peer, region mine, region to, action rest = {}) {
    rest.kind = action_kind::receive_reduce;
    rest.peer = peer;
    rest.from = mine;
    rest.to = to;
    return add(rest);
  }
  std::int32_t copy(region from, region to, std::int32_t after = no_action,
                    std::int32_t also = no_action) {
    return add({.kind = action_kind::copy, .from = from, .to = to, .after = {after, also}});
  }
  /// Moves nothing and is complete once both actions are. Use it for a third dependency, and for a
  /// dependency of equal length on other elements: a fence waits for whole actions.
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
