// generation_node: the agent's half of the protocol of generation.hpp: what a node does when the
// coordinator speaks, is silent, or the node's own ranks end. Pure.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tools/parxrun/nodes/generation.hpp"
#include <parx/core/abi.hpp>
#include <parx/core/stopped.hpp>

namespace parx::inline PARX_ABI::detail {

enum class node_phase {
  apart,    ///< has no coordinator
  waiting,  ///< is admitted
  running,  ///< has ranks
  ending,   ///< its ranks are being ended
  ended,    ///< they have ended; the coordinator has not asked for that yet
  over,
};

struct node_state {
  node_phase phase = node_phase::apart;
  int generation = 0;  ///< of its ranks
  bool was_admitted = false;
  bool stop_asked = false;  ///< by the coordinator
  bool alone = false;       ///< the coordinator was lost meanwhile
  std::optional<int> code;  ///< the job's, as soon as the node knows it
  /// With which it was told to end the job. The coordinator may not have heard of it: a connection
  /// that is cut takes along what was sent.
  std::optional<int> told;
};

struct node_event {
  enum class kind {
    admitted,  ///< the coordinator has this node's hello
    form,      ///< the coordinator: start the ranks of `generation`
    stop,      ///< the coordinator: end them, as `how` says
    end,       ///< the coordinator: the job is over, with `code`
    silent,    ///< the connection is closed, or nothing has come for too long
    gave_up,   ///< the coordinator cannot be reached any more
    started,   ///< the ranks run
    failed,    ///< one of them failed, with `code`
    gone,      ///< all of them have ended
    told,      ///< somebody has told this process to end, with `code`
  };

  kind what = kind::silent;
  int generation = 0;
  int code = 0;  ///< of gone: 0 or 75 where all ranks returned that, else any other
  stop_how how = stop_how::terminate;
};

struct node_action {
  enum class kind {
    start,    ///< the ranks of `generation`
    stop,     ///< end them as `how` says, and kill them after the time that the user allows
    abandon,  ///< end them before the coordinator's lease of this node is over
    send,     ///< `message` to the coordinator
    connect,  ///< to the coordinator anew
    exit,     ///< with `code`
  };

  kind what = kind::send;
  coordinator_event::kind message = coordinator_event::kind::started;
  int generation = 0;
  int code = 0;
  stop_how how = stop_how::terminate;
};

struct node_step {
  node_state state;
  std::vector<node_action> actions;
};

/// The time without a word of the coordinator after which a node ends its ranks: shorter than the
/// lease, so that they have ended when the coordinator forms the next generation.
inline constexpr std::chrono::milliseconds node_patience{2'500};
/// The time that its ranks then have at least to save and end; node_patience and this are less than
/// the lease with its margin.
inline constexpr std::chrono::milliseconds abandon_grace{700};

class node_machine {
 public:
  explicit node_machine(node_state state) : step_{state, {}} {}

  [[nodiscard]] node_step after(const node_event& event) && {
    using kind = node_event::kind;
    switch (event.what) {
      case kind::admitted:
        state().phase = node_phase::waiting;
        state().was_admitted = true;
        if (state().told) send(coordinator_event::kind::leave, *state().told);
        break;
      case kind::form:
        if (state().phase == node_phase::waiting) form(event.generation);
        break;
      case kind::stop:
        stop(event.how);
        break;
      case kind::end:
        state().code = event.code;
        if (has_ranks()) {
          end_ranks(stop_how::terminate);
        } else {
          exit();
        }
        break;
      case kind::silent:
        silent();
        break;
      case kind::gave_up:
        if (state().phase != node_phase::apart) break;
        if (!state().code) state().code = state().was_admitted ? stopped_exit_code : 1;
        exit();
        break;
      case kind::started:
        if (state().phase == node_phase::running) send(coordinator_event::kind::started);
        break;
      case kind::failed:
        if (state().phase != node_phase::running) break;
        end_ranks(stop_how::terminate);
        send(coordinator_event::kind::failed, event.code);
        break;
      case kind::gone:
        gone(event.code);
        break;
      case kind::told:
        if (state().phase == node_phase::apart) {
          state().code = event.code;
          exit();
        } else if (state().phase != node_phase::over) {
          state().told = event.code;
          send(coordinator_event::kind::leave, event.code);
        }
        break;
    }
    return std::move(step_);
  }

 private:
  [[nodiscard]] node_state& state() noexcept { return step_.state; }
  [[nodiscard]] bool has_ranks() const noexcept {
    return step_.state.phase == node_phase::running || step_.state.phase == node_phase::ending;
  }

  void form(int generation) {
    state().phase = node_phase::running;
    state().generation = generation;
    state().stop_asked = false;
    state().alone = false;
    act({.what = node_action::kind::start, .generation = generation});
  }

  /// `code` is that of the ranks, once they have ended.
  void stop(stop_how how, int code = 0) {
    if (state().phase == node_phase::ended) {
      state().phase = node_phase::waiting;
      send(coordinator_event::kind::stopped, code);
    } else if (has_ranks()) {
      state().stop_asked = true;
      end_ranks(how);
    }
  }

  void end_ranks(stop_how how) {
    state().phase = node_phase::ending;
    act({.what = node_action::kind::stop, .generation = state().generation, .how = how});
  }

  void silent() {
    if (state().phase == node_phase::over || state().phase == node_phase::apart) return;
    if (has_ranks()) {
      state().alone = true;
      state().phase = node_phase::ending;
      act({.what = node_action::kind::abandon, .generation = state().generation});
    } else {
      part();
    }
  }

  void part() {
    state().phase = node_phase::apart;
    state().alone = false;
    act({.what = node_action::kind::connect});
  }

  void gone(int code) {
    if (state().phase == node_phase::running) {
      // Before the coordinator knows why: it asks for the others of this generation.
      state().phase = node_phase::ended;
      send(code == 0                   ? coordinator_event::kind::done
           : code == stopped_exit_code ? coordinator_event::kind::saved
                                       : coordinator_event::kind::failed,
           code);
    } else if (state().phase == node_phase::ending) {
      if (state().code) return exit();
      if (state().alone) return part();
      state().phase = node_phase::ended;
      if (state().stop_asked) stop(stop_how::wait, code);
    }
  }

  void exit() {
    state().phase = node_phase::over;
    act({.what = node_action::kind::exit, .code = *state().code});
  }

  void send(coordinator_event::kind message, int code = 0) {
    act({.what = node_action::kind::send,
         .message = message,
         .generation = state().generation,
         .code = code});
  }
  void act(const node_action& action) { step_.actions.push_back(action); }

  node_step step_;
};

[[nodiscard]] inline node_step advance(const node_state& state, const node_event& event) {
  return node_machine(state).after(event);
}

}  // namespace parx::detail
