// virtual_cluster: runs parx's schedules under a virtual clock, for clusters of any size.
//
// Every action is one event with a start and an end. It starts after its dependencies have ended;
// but after a dependency of the same length it starts when that has started (cut-through, by the
// prefix rule), and ends no earlier. A message takes `latency` for its first byte and
// bytes / bandwidth for the rest. A link carries one message at a time, and so does a host's
// network card in each direction, in the order in which the messages start. A rank handles its
// messages one after another, and its reductions and copies one after another, in parallel to the
// network.
//
// The model ignores flow control (a sender never waits for a slow receiver), fair sharing between
// messages in flight (the last one to end is right, the others end too early or too late), the
// switches between hosts, that an action on shared buffers reads those of several ranks (it costs
// as much as a copy), and that the engine sends no bytes for empty messages after a link's first.
//
// If all ranks do the same at the same time, only one is simulated. That is so if all hosts are
// alike, no rank is late, and every rank's schedule is rank 0's with the peers shifted (ring,
// direct) or exchanged (rank xor a constant). This is checked, and the result is exact: 4096 ranks
// in a ring take a few seconds. It needs a count that the ranks divide. Otherwise each action of
// each rank is an event, and there can be at most `most_events`.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include <parx/comm/schedule/catalog.hpp>
#include <parx/core/check.hpp>

namespace bench {

/// A rank that starts late.
struct straggler {
  int rank = 0;
  double delay = 0;  ///< s
};

struct link_model {
  double latency = 15e-6;          ///< s between hosts
  double bandwidth = 2.5e9;        ///< bytes/s of one link between hosts, in each direction
  double host_bandwidth = 2.5e9;   ///< bytes/s each way that a host's links share; 0: no limit
  double local_latency = 2e-6;     ///< s between two ranks of one host
  double local_bandwidth = 6.5e9;  ///< bytes/s between two ranks of one host
  double gamma = 0.15e-9;          ///< s per byte reduced or copied
  double message_cost = 0;         ///< s of processor time to send a message, and to receive one
  std::vector<int> host_of{};      ///< each rank's host, from 0; empty: a host for each rank
  std::vector<straggler> stragglers{};
};

struct simulated {
  double seconds = 0;                ///< until the last rank is done
  std::vector<double> rank_seconds;  ///< until each rank is done
  double bytes = 0;                  ///< on all links
  std::size_t messages = 0;
  std::size_t events = 0;  ///< actions that were simulated
};

namespace detail {

inline constexpr std::size_t most_events = std::size_t{1} << 23;

/// Which messages stay inside a host. The last two are for simulating one rank for all.
enum class peers : std::uint8_t { by_host, all_remote, all_local };

class virtual_clock {
 public:
  virtual_clock(const link_model& model, peers where) : model_(model), where_(where) {}

  /// Adds the actions of `rank`. `key(step)` is the number of the link that an action's message
  /// takes: equal for its send and its receive.
  template <typename Key>
  void add(int rank, const parx::schedule& plan, std::size_t element_bytes, Key key) {
    const auto base = static_cast<std::int32_t>(events_.size());
    parx::require(
        events_.size() + plan.actions.size() <= most_events,
        "simulate: more than {} actions; take fewer ranks, or a count that the ranks divide, "
        "hosts that are alike and no stragglers",
        most_events);
    if (static_cast<std::size_t>(rank) >= ranks_.size()) {
      ranks_.resize(static_cast<std::size_t>(rank) + 1);
    }
    for (const parx::action& step : plan.actions) {
      event next{.kind = step.kind,
                 .rank = rank,
                 .position = static_cast<std::int32_t>(events_.size()) - base,
                 .bytes = static_cast<double>(step.count() * element_bytes)};
      for (std::size_t i = 0; i < 2; ++i) {
        if (step.after[i] == parx::no_action) continue;
        next.after[i] = base + step.after[i];
        ++next.pending;
      }
      const auto index = static_cast<std::int32_t>(events_.size());
      if (step.kind == parx::action_kind::send) {
        sends_.push_back({key(step), index});
      } else if (is_receive(step.kind)) {
        receives_.push_back({key(step), index});
        ++next.pending;
      } else if (step.kind == parx::action_kind::barrier) {
        next.meeting = ranks_[static_cast<std::size_t>(rank)].meetings++;
      }
      events_.push_back(next);
    }
  }

  simulated run() {
    match();
    index_dependents();
    for (const straggler& late : model_.stragglers) {
      if (static_cast<std::size_t>(late.rank) < ranks_.size()) {
        ranks_[static_cast<std::size_t>(late.rank)].begin = late.delay;
      }
    }
    int most = static_cast<int>(ranks_.size()) - 1;
    for (const int each : model_.host_of) most = std::max(most, each);
    hosts_.resize(static_cast<std::size_t>(most) + 1);
    for (std::size_t i = 0; i < events_.size(); ++i) {
      events_[i].start = ranks_[static_cast<std::size_t>(events_[i].rank)].begin;
      if (events_[i].pending == 0) push(events_[i].start, static_cast<std::int32_t>(i));
    }
    simulated result;
    for (const rank_clock& each : ranks_) result.rank_seconds.push_back(each.begin);
    while (!queue_.empty()) {
      const std::int32_t index = queue_.top().index;
      queue_.pop();
      perform(index, result);
    }
    parx::require(result.events == events_.size(),
                  "simulate: the schedules wait for each other for ever ({} of {} actions ended)",
                  result.events, events_.size());
    for (const double each : result.rank_seconds) result.seconds = std::max(result.seconds, each);
    return result;
  }

 private:
  /// A message has three events: its sender handles it, it leaves, and it arrives.
  enum class stage : std::uint8_t { handled, leaving, arriving };
  struct event {
    parx::action_kind kind;
    stage due_for = stage::handled;
    std::int32_t rank;
    std::int32_t position;     ///< in the rank's schedule
    std::int32_t pending = 0;  ///< the number of events that must be performed before
    std::array<std::int32_t, 2> after{parx::no_action, parx::no_action};
    std::int32_t next_on_link = parx::no_action;
    std::int32_t receive = parx::no_action;  ///< of a send: the matching receive
    std::size_t meeting = 0;                 ///< the number of the meeting in its rank's schedule
    double bytes;
    double start = 0;  ///< no earlier than this, until it is performed
    double end = 0;
  };
  struct rank_clock {
    double begin = 0;
    double messages_free = 0;
    double arithmetic_free = 0;
    std::size_t meetings = 0;
  };
  /// The events of the ranks that have arrived, and when the last of them did.
  struct meeting {
    double latest = 0;
    std::vector<std::int32_t> present;
  };
  struct host_clock {
    double out_free = 0;
    double in_free = 0;
  };
  using link_event = std::pair<std::uint64_t, std::int32_t>;

  /// An event that is due. Of events at the same time, the one earlier in its schedule comes first.
  struct due {
    double time;
    std::int32_t position;
    std::int32_t index;
    auto operator<=>(const due&) const = default;
  };

  static bool is_receive(parx::action_kind kind) noexcept {
    return kind == parx::action_kind::receive || kind == parx::action_kind::receive_reduce;
  }
  event& at(std::int32_t index) { return events_[static_cast<std::size_t>(index)]; }

  /// Pairs the messages of each link in their order on it.
  void match() {
    std::sort(sends_.begin(), sends_.end());
    std::sort(receives_.begin(), receives_.end());
    parx::require(sends_.size() == receives_.size(), "simulate: {} messages are sent, {} received",
                  sends_.size(), receives_.size());
    for (std::size_t i = 0; i < sends_.size(); ++i) {
      event& send = at(sends_[i].second);
      event& receive = at(receives_[i].second);
      parx::require(sends_[i].first == receives_[i].first && send.bytes == receive.bytes,
                    "simulate: rank {} sends {} bytes where rank {} receives {}", send.rank,
                    send.bytes, receive.rank, receive.bytes);
      send.receive = receives_[i].second;
    }
    for (auto* list : {&sends_, &receives_}) {
      for (std::size_t i = 1; i < list->size(); ++i) {
        if ((*list)[i].first != (*list)[i - 1].first) continue;
        at((*list)[i - 1].second).next_on_link = (*list)[i].second;
        ++at((*list)[i].second).pending;
      }
    }
  }

  void index_dependents() {
    first_dependent_.assign(events_.size() + 1, 0);
    for (const event& each : events_) {
      for (const auto before : each.after) {
        if (before != parx::no_action) ++first_dependent_[static_cast<std::size_t>(before) + 1];
      }
    }
    for (std::size_t i = 0; i < events_.size(); ++i) first_dependent_[i + 1] += first_dependent_[i];
    dependents_.resize(first_dependent_.back());
    std::vector<std::uint32_t> next(first_dependent_.begin(), first_dependent_.end() - 1);
    for (std::size_t i = 0; i < events_.size(); ++i) {
      for (const auto before : events_[i].after) {
        if (before == parx::no_action) continue;
        dependents_[next[static_cast<std::size_t>(before)]++] = static_cast<std::int32_t>(i);
      }
    }
  }

  [[nodiscard]] int host_of(int rank) const {
    return model_.host_of.empty() ? rank : model_.host_of[static_cast<std::size_t>(rank)];
  }

  /// One dependency is performed: the event starts no earlier than `start` and ends no earlier than
  /// `end`.
  void release(std::int32_t index, double start, double end) {
    event& next = at(index);
    next.start = std::max(next.start, start);
    next.end = std::max(next.end, end);
    if (--next.pending == 0) push(next.start, index);
  }
  void push(double time, std::int32_t index) { queue_.push({time, at(index).position, index}); }

  /// Occupies `free` for `duration` from `start` on; returns when that is over.
  static double occupy(double& free, double start, double duration) {
    free = std::max(free, start) + duration;
    return free;
  }

  void perform(std::int32_t index, simulated& result) {
    event& now = at(index);
    rank_clock& clock = ranks_[static_cast<std::size_t>(now.rank)];
    const bool is_message = now.kind == parx::action_kind::send || is_receive(now.kind);
    if (now.due_for == stage::handled && is_message) {
      now.start = occupy(clock.messages_free, now.start, model_.message_cost);
    }
    if (now.kind == parx::action_kind::send) return move_message(index, result);
    if (now.kind == parx::action_kind::barrier) return meet(index, result);
    now.end = std::max(now.end, now.start);
    if (now.kind != parx::action_kind::receive && now.bytes > 0) {
      now.end =
          std::max(now.end, occupy(clock.arithmetic_free, now.start, now.bytes * model_.gamma));
    }
    finish(index, result);
  }

  /// A meeting ends when the last rank has arrived and the others have seen that.
  void meet(std::int32_t index, simulated& result) {
    const event& now = at(index);
    if (meetings_.size() <= now.meeting) meetings_.resize(now.meeting + 1);
    meeting& here = meetings_[now.meeting];
    here.latest = std::max(here.latest, now.start);
    here.present.push_back(index);
    if (here.present.size() < ranks_.size()) return;
    const double end = here.latest + model_.local_latency;
    for (const std::int32_t each : std::exchange(here.present, {})) {
      at(each).start = at(each).end = end;
      finish(each, result);
    }
  }

  /// Moves a message over its link and both network cards. Leaving and arriving are separate
  /// events, so that messages use each card in the order of time.
  void move_message(std::int32_t index, simulated& result) {
    event& now = at(index);
    const auto from = static_cast<std::size_t>(host_of(now.rank));
    const auto to = static_cast<std::size_t>(host_of(at(now.receive).rank));
    const bool local = where_ == peers::by_host ? from == to : where_ == peers::all_local;
    const double latency = local ? model_.local_latency : model_.latency;
    const double on_link = now.bytes / (local ? model_.local_bandwidth : model_.bandwidth);
    const double on_card =
        local || model_.host_bandwidth <= 0 ? 0 : now.bytes / model_.host_bandwidth;
    switch (now.due_for) {
      case stage::handled:
        now.due_for = stage::leaving;
        push(now.start, index);
        return;
      case stage::leaving:
        if (on_card > 0) now.start = occupy(hosts_[from].out_free, now.start, on_card) - on_card;
        now.end = std::max({now.end, now.start + on_link, now.start + on_card});
        ++result.messages;
        result.bytes += now.bytes;
        now.due_for = stage::arriving;
        push(now.start + latency, index);
        finish(index, result);
        return;
      case stage::arriving:
        break;
    }
    double arrives = now.start + latency;
    if (on_card > 0) arrives = occupy(hosts_[to].in_free, arrives, on_card) - on_card;
    release(now.receive, arrives,
            std::max({arrives + on_link, arrives + on_card, now.end + latency}));
  }

  void finish(std::int32_t index, simulated& result) {
    const event& now = at(index);
    double& rank_end = result.rank_seconds[static_cast<std::size_t>(now.rank)];
    rank_end = std::max(rank_end, now.end);
    ++result.events;
    if (now.next_on_link != parx::no_action) release(now.next_on_link, now.end, now.end);
    for (auto i = first_dependent_[static_cast<std::size_t>(index)];
         i < first_dependent_[static_cast<std::size_t>(index) + 1]; ++i) {
      const event& next = at(dependents_[i]);
      const bool streams = next.bytes == now.bytes &&
                           (next.kind == parx::action_kind::send || is_receive(next.kind));
      release(dependents_[i], streams ? now.start : now.end, now.end);
    }
  }

  const link_model& model_;
  peers where_;
  std::vector<event> events_;
  std::vector<link_event> sends_, receives_;
  std::vector<std::uint32_t> first_dependent_;
  std::vector<std::int32_t> dependents_;
  std::vector<rank_clock> ranks_;
  std::vector<host_clock> hosts_;
  std::vector<meeting> meetings_;
  std::priority_queue<due, std::vector<due>, std::greater<>> queue_;
};

/// How the peers of every rank follow from rank 0's.
enum class symmetry : std::uint8_t { none, shifted, exchanged };

/// Whether every rank's schedule is rank 0's except for its peers.
template <typename Make>
[[nodiscard]] symmetry find_symmetry(int world, Make make) {
  const parx::schedule first = make(0);
  bool shifted = true;
  bool exchanged = true;
  for (int rank = 1; rank < world && (shifted || exchanged); ++rank) {
    const parx::schedule other = make(rank);
    if (other.actions.size() != first.actions.size()) return symmetry::none;
    for (std::size_t i = 0; i < first.actions.size(); ++i) {
      const parx::action& a = first.actions[i];
      const parx::action& b = other.actions[i];
      if (a.kind != b.kind || a.after != b.after || a.count() != b.count()) return symmetry::none;
      if (a.peer < 0 && b.peer < 0) continue;
      shifted &= parx::wrap(b.peer - rank, world) == a.peer;
      exchanged &= (b.peer ^ rank) == a.peer;
    }
  }
  return shifted ? symmetry::shifted : exchanged ? symmetry::exchanged : symmetry::none;
}

/// Whether all messages are remote, or all local; by_host if neither.
[[nodiscard]] inline peers find_peers(const link_model& model) {
  std::vector<int> hosts = model.host_of;
  std::sort(hosts.begin(), hosts.end());
  if (!model.stragglers.empty()) return peers::by_host;
  if (std::adjacent_find(hosts.begin(), hosts.end()) == hosts.end()) return peers::all_remote;
  return hosts.front() == hosts.back() ? peers::all_local : peers::by_host;
}

}  // namespace detail

/// Runs the schedules make(0) to make(world - 1), for elements of `element_bytes`. Throws
/// usage_error if they do not match each other, or are too large to simulate.
template <typename Make>
[[nodiscard]] simulated simulate_schedules(int world, std::size_t element_bytes, Make make,
                                           const link_model& model = {}) {
  const detail::peers where = detail::find_peers(model);
  const detail::symmetry alike =
      where == detail::peers::by_host ? detail::symmetry::none : detail::find_symmetry(world, make);
  const auto ranks = static_cast<std::size_t>(world);
  if (alike != detail::symmetry::none) {
    detail::virtual_clock clock(model, where);
    clock.add(0, make(0), element_bytes, [&](const parx::action& step) {
      const bool mirrored =
          alike == detail::symmetry::shifted && step.kind != parx::action_kind::send;
      return static_cast<std::uint64_t>(mirrored ? parx::wrap(-step.peer, world) : step.peer);
    });
    simulated result = clock.run();
    result.rank_seconds.assign(ranks, result.seconds);
    result.bytes *= world;
    result.messages *= ranks;
    return result;
  }
  detail::virtual_clock clock(model, detail::peers::by_host);
  for (int rank = 0; rank < world; ++rank) {
    clock.add(rank, make(rank), element_bytes, [&](const parx::action& step) {
      const bool sends = step.kind == parx::action_kind::send;
      const auto from = static_cast<std::uint64_t>(sends ? rank : step.peer);
      return from * ranks + static_cast<std::uint64_t>(sends ? step.peer : rank);
    });
  }
  return clock.run();
}

/// Runs `shape` (its rank is ignored) on all its ranks. Throws usage_error if `use` does not
/// support it, or if it is too large to simulate.
[[nodiscard]] inline simulated simulate(parx::call_shape shape, parx::algorithm use,
                                        const link_model& model = {}) {
  return simulate_schedules(
      shape.world, shape.element_bytes,
      [&](int rank) {
        shape.rank = rank;
        return parx::make_schedule(shape, use);
      },
      model);
}

}  // namespace bench
