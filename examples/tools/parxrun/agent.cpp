// agent: parxrun on one node of a job, which may be its only one.
//
// It starts and ends the ranks of its node as the coordinator says (generation_node.hpp), passes
// their output on and reports how they ended. On the first node it has the coordinator itself, and
// tells and hears it by calls: a job of one node has no connection but those of its ranks.
//
// When a rank fails, the others are ended within a second, unless they go on (on_loss). When
// parxrun is told to stop, or a rank returns 75 (stopped_exit_code) because it has saved its work,
// the others have the time `grace` to do the same. No process that a rank has started is left
// behind: this process adopts it (orphans.hpp), and where it is killed its guard ends it
// (job_guard.hpp). One thread, which waits in Boost.Asio. Only parxrun needs Boost; the ranks'
// programs do not.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/common/find_program.hpp"
#include "tools/parxrun/failures/divergence_text.hpp"
#include "tools/parxrun/failures/failure_folder.hpp"
#include "tools/parxrun/failures/job_end.hpp"
#include "tools/parxrun/nodes/coordinator_way.hpp"
#include "tools/parxrun/nodes/generation_node.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include "tools/parxrun/nodes/report_file.hpp"
#include "tools/parxrun/nodes/secret.hpp"
#include "tools/parxrun/ranks/after.hpp"
#include "tools/parxrun/ranks/caught_signals.hpp"
#include "tools/parxrun/ranks/node_ranks.hpp"
#include "tools/parxrun/ranks/orphans.hpp"
#include "tools/parxrun/ranks/rank_output.hpp"
#include "tools/parxrun/ranks/rank_variables.hpp"
#include "tools/parxrun/ranks/reserved_port.hpp"
#include "tools/parxrun/ranks/stop_requests.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include "tools/parxrun/ssh/ssh_start.hpp"
#include "tools/parxrun/ssh/starter_words.hpp"
#include <parx/core/check.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/signal_name.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/stopped.hpp>

namespace parx::inline PARX_ABI::detail {

class agent {
 public:
  explicit agent(const agent_options& options)
      : options_(options), nodes_(options.nodes), env_(process_environment()) {
    for (const auto& [name, value] : options_.variables) env_.insert_or_assign(name, value);
    // Slurm's name for it, where there is one.
    node_ = env_string(env_, "PARX_HOST_ID")
                .value_or(env_string(env_, "SLURMD_NODENAME").value_or(host_name()));
    if (nodes_.is_alone()) nodes_.host = loopback_address();
    if (nodes_.is_alone() && nodes_.id.empty()) nodes_.id = random_hex();
  }
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;

  [[nodiscard]] int run() {
    try {
      file_ = find_program(options_.command.front(), env_);
    } catch (const program_error& failure) {
      if (nodes_.is_alone()) throw;
      say(formatted("node {}: {}", node_, failure.what()));
      no_program_ = failure.exit_code();
    }
    secret_ = secret_of_nodes(nodes_, env_, [this](const std::string& text) { say(text); });
    if (options_.starter) listen_to_starter();
    secret_file_.emplace(secret_);
    guard_.emplace("PARX_AGENT=" + process_);
    orphans_.except(guard_->pid());
    signals_.emplace(io_, [this](int signal) { handle(signal); });
    around_.emplace(
        rank_surroundings{io_, console_, errors_, *guard_, orphans_, signals_->mask_before()});
    try {
      way_.emplace(io_, nodes_, options_.command, env_, secret_, coordinator_handlers());
      way_->start(connect_limit());
      // run_one() always has work: the wait for the next signal.
      while (!has_finished()) io_.run_one();
    } catch (...) {
      end_leftovers();
      throw;
    }
    while (!console_.empty() && !around_->gave_up_on_output) io_.run_one();
    return *exit_code_;
  }

 private:
  // The start.

  /// How long it is worth while to try to reach the coordinator. One that was there, and does not
  /// answer for that long, has gone with its host.
  [[nodiscard]] std::chrono::milliseconds connect_limit() const {
    static constexpr std::chrono::milliseconds rejoin_limit{30'000};
    // Without a program it only tells the others.
    if (no_program_) return std::chrono::seconds(5);
    return node_state_.was_admitted ? std::min(nodes_.join_limit, rejoin_limit) : nodes_.join_limit;
  }
  [[nodiscard]] coordinator_way::handlers coordinator_handlers() {
    return {.agent = {.hello = [this] { return hello(); },
                      .message = [this](const to_agent& text) { receive(text); },
                      .silent = [this] { lose_coordinator(); },
                      .waits = [this](const std::string& text) { say(text + way_->listener()); },
                      .gave_up =
                          [this](const std::string& why) {
                            say(why + (node_state_.was_admitted ? "" : way_->listener()));
                            feed({.what = node_event::kind::gave_up});
                          },
                      .vacant = {}},
            .say = [this](const std::string& text) { say(text); },
            .record = [this](job_report& report) { write_report(options_, report); },
            .report = [this](job_end& end) { report(end); }};
  }
  void lose_coordinator() {
    if (node_state_.phase != node_phase::over) {
      say(formatted("node {} has lost the job's first parxrun at {}", node_, way_->link().place()));
    }
    feed({.what = node_event::kind::silent});
  }
  [[nodiscard]] agent_hello hello() {
    return {.node = node_,
            .process = process_,
            .nodes = formatted("{}:{}", nodes_.least, nodes_.most),
            .ranks = options_.ranks,
            .free_port = draw_port()};
  }
  /// A port for rank 0, where the coordinator has no store or the program is not of parx, kept
  /// until it has ended.
  [[nodiscard]] std::uint16_t draw_port() {
    free_port_.emplace();
    return free_port_->number();
  }

  // The protocol.

  void receive(const to_agent& text) {
    std::visit([this](const auto& each) { obey(each); }, text);
  }
  void obey(const welcome& /*admitted*/) {
    way_->tell(agent_command{joined_text(options_.command, " ")});
    feed({.what = node_event::kind::admitted});
    // The others would wait for this node.
    if (no_program_) feed({.what = node_event::kind::told, .code = *no_program_}, no_program());
  }
  void obey(const form_order& order) {
    order.check(options_.ranks);
    if (node_state_.phase != node_phase::waiting) return;
    form_ = order;
    feed({.what = node_event::kind::form, .generation = order.place.generation});
  }
  void obey(const stop_order& order) { feed({.what = node_event::kind::stop, .how = order.how}); }
  void obey(const end_the_rest& /*now*/) {
    if (ranks_ != nullptr && !draining_) end_ranks(stop_how::terminate);
  }
  void obey(const end_order& order) { feed({.what = node_event::kind::end, .code = order.code}); }
  void obey(const wait_notice& notice) {
    say(
        formatted("node {} waits: the job runs on {} nodes without it, and takes it in when one "
                  "is lost or all stop",
                  node_, notice.members));
  }

  void feed(const node_event& event, const std::string& why = {}) {
    const node_step step = advance(node_state_, event);
    node_state_ = step.state;
    for (const node_action& each : step.actions) act(each, why);
  }

  void act(const node_action& action, const std::string& why) {
    switch (action.what) {
      case node_action::kind::start:
        start_generation();
        break;
      case node_action::kind::stop:
        end_ranks(action.how);
        break;
      case node_action::kind::abandon:
        ranks_->signal(SIGTERM);
        ranks_->kill_after(way_->link().time_left());
        break;
      case node_action::kind::send:
        send(action, why);
        break;
      case node_action::kind::connect:
        boost::asio::post(io_, [this] {
          if (starter_is_gone_) feed({.what = node_event::kind::gave_up});
          else way_->link().connect(connect_limit());
        });
        break;
      case node_action::kind::exit:
        exit_code_ = node_state_.was_admitted ? action.code : no_program_.value_or(action.code);
        way_->finish();
        if (node_state_.was_admitted && node_state_.generation == 0 && action.code == 0) {
          say(formatted("node {}: the job has ended, and did without this node", node_));
        }
        if (way_->own() == nullptr && action.code != 0 && action.code != stopped_exit_code &&
            node_state_.was_admitted) {
          say(formatted(
              "node {}: the job has ended with code {}; its report is in the output of the "
              "parxrun at {}",
              node_, action.code, way_->link().place()));
        }
        after(std::chrono::seconds(no_program_ ? 5 : 2), finish_timer_,
              [this] { waited_for_others_ = true; });
        break;
    }
  }

  void send(const node_action& action, const std::string& why) {
    agent_event event{.what = action.message,
                      .generation = action.generation,
                      .code = action.code,
                      .why = why,
                      .free_port = std::nullopt,
                      .report = std::nullopt};
    if (action.message == coordinator_event::kind::stopped) event.free_port = draw_port();
    if (report_ && action.message != coordinator_event::kind::started) {
      event.report = way_->own() != nullptr ? *report_ : shortened(*report_);
    }
    way_->tell(event);
  }

  [[nodiscard]] std::string no_program() const {
    return formatted("on node {}: program \"{}\" was not found", node_, options_.command.front());
  }

  // The ranks.

  void start_generation() {
    const local_job job = local_job::of(form_, nodes_, options_, secret_file_->path(), secret_);
    report_.reset();
    draining_ = false;
    saved_ = false;
    ends_by_force_ = false;
    stopped_ranks_.clear();
    former_ = std::move(ranks_);
    former_failures_ = std::move(failures_);
    failures_ =
        std::make_unique<failure_folder>(env_, name_of_start(job.run_id, job.host, job.port));
    ranks_ = std::make_unique<node_ranks>(*around_, *failures_,
                                          rank_output::of(options_, job.place, nodes_.id, node_));
    if (no_program_) return cannot_start(*no_program_, no_program());
    environment variables = env_;
    variables.insert_or_assign("PARX_AGENT", process_);
    try {
      ranks_->start(file_, options_.command, form_.place.first_rank, options_.ranks, [&](int rank) {
        return rank_variables(variables, job, rank, failures_->error_file(rank));
      });
    } catch (const program_error& failure) {
      if (nodes_.is_alone()) throw;
      say(failure.what());
      return cannot_start(failure.exit_code(), failure.what());
    } catch (const std::exception& failure) {
      if (nodes_.is_alone()) throw;
      return cannot_start(1, formatted("on node {}: {}", node_, failure.what()));
    }
    ranks_->pass_output_on();
    feed({.what = node_event::kind::started});
    boost::asio::post(io_, [this] { notice_ends(); });  // of ranks that have ended by now
  }
  void cannot_start(int code, const std::string& why) {
    feed({.what = node_event::kind::failed, .code = code}, why);
    ranks_->signal(SIGKILL);
    boost::asio::post(io_, [this] { notice_ends(); });
  }

  void end_ranks(stop_how how) {
    switch (how) {
      case stop_how::terminate:
        ends_by_force_ = true;
        return ranks_->end_the_others();
      case stop_how::save:
        ranks_->signal(SIGUSR1);
        break;
      case stop_how::ask:
        if (!requests_.was_asked()) ranks_->signal(SIGTERM);  // else they have the user's signal
        break;
      case stop_how::wait:
        break;
    }
    ranks_->kill_after(options_.grace);
  }

  void notice_ends() {
    static_cast<void>(orphans_.left());
    if (ranks_ == nullptr || draining_) return;
    const auto news = ranks_->notice_ends();
    if (form_.goes_on) {
      for (const auto& each : news.ended) {
        const std::string how = to_string(each.status);
        if (!nodes_.is_alone() && !each.status.success() && !requests_.was_asked() &&
            node_state_.phase == node_phase::running) {
          say(formatted("rank {} on {} was lost ({}); the others go on", each.rank, node_, how));
        }
        way_->tell(rank_ended{.generation = node_state_.generation, .rank = each.rank, .how = how});
      }
    } else if (news.failed && node_state_.phase == node_phase::running && !requests_.was_asked()) {
      for (const rank_process& each : ranks_->ranks()) {
        if (!each.ended && is_stopped(each.pid)) stopped_ranks_.push_back(each.rank);
      }
      feed({.what = node_event::kind::failed, .code = news.failed->status.shell_code()},
           formatted("rank {} ended ({}){}", news.failed->rank, to_string(news.failed->status),
                     nodes_.is_alone() ? std::string() : " on " + node_));
    }
    if (news.saved && node_state_.phase == node_phase::running && !std::exchange(saved_, true)) {
      ranks_->kill_after(options_.grace);
    }
    if (ranks_->all_ended()) drain();
  }

  void drain() {
    draining_ = true;
    const auto failed = [this](const auto& rank) {
      return ranks_->end_of(rank).failed_by_itself();
    };
    const bool in_order = node_state_.phase == node_phase::running && !requests_.was_asked() &&
                          std::ranges::none_of(ranks_->ranks(), failed);
    ranks_->drain(in_order ? leftovers::told : leftovers::untold, [this] { be_gone(); });
  }
  void be_gone() {
    console_.queue(stream::err).add(std::exchange(errors_, {}).summary());
    report_ = ranks_->report(node_, options_.command, env_);
    const on_loss losses = form_.goes_on ? on_loss::go_on : on_loss::end;
    const bool has_saved = saved_ && node_state_.phase == node_phase::running;
    const int code = has_saved && !any_failed_by_itself(report_->ranks)
                         ? stopped_exit_code  // also where others were too slow
                         : ranks_->code(losses);
    if (nodes_.is_alone() && form_.goes_on && code == 0 && !requests_.was_asked() && !saved_) {
      console_.queue(stream::err).add(losses_text(report_->ranks));
    }
    feed({.what = node_event::kind::gone, .code = code});
  }
  void end_leftovers() {
    if (ranks_ != nullptr) ranks_->kill_and_reap();
    orphans_.kill();
  }

  /// The coordinator is in this process: prints how a generation has ended.
  void report(job_end& end) {
    const judged_end judged(end);
    if (form_.place.nodes == 1 && judged.whose == blame::rank) {
      end.divergence =
          divergence_headline(judged, failures_->recorders().directory, stopped_ranks_);
    }
    end.killed = killed_text(
        judged.ends, requests_.was_asked_twice() ? std::nullopt : std::optional(options_.grace));
    print_end(console_, judged);
  }

  // This process's own signals and end.

  /// The words of the parxrun that has started this one by ssh. Without it nobody sees the ranks.
  void listen_to_starter() {
    starter_.emplace(
        io_, *options_.starter, [this](int signal) { handle(signal); }, [this] { lose_starter(); });
    console_.queue(stream::out).add(std::string(agent_greeting) + "\n");
  }
  void lose_starter() {
    if (node_state_.phase == node_phase::over || std::exchange(starter_is_gone_, true)) return;
    give_up_on_output();
    way_->link().close();
    if (node_state_.phase == node_phase::apart) feed({.what = node_event::kind::gave_up});
    else feed({.what = node_event::kind::silent});
  }

  void handle(int signal) {
    switch (signal) {
      case SIGCHLD:
        return notice_ends();
      case SIGPIPE:
        return starter_ ? lose_starter() : tell(signal);
      case SIGUSR1:
      case SIGUSR2:
        if (ranks_ != nullptr && !draining_) ranks_->signal(signal);
        return;
      case SIGTSTP:
        if (ranks_ != nullptr) ranks_->signal(SIGSTOP);
        ::raise(SIGSTOP);
        if (ranks_ != nullptr) ranks_->signal(SIGCONT);
        return;
      default:
        return tell(signal);
    }
  }

  /// Ends the job. A second request kills the ranks, unless it follows at once, and so does one
  /// after a failure.
  void tell(int signal) {
    const bool has_ranks = ranks_ != nullptr && !draining_ && !ranks_->all_ended();
    if (!nodes_.has_generations() && ranks_ != nullptr && !has_ranks) {
      return give_up_on_output();  // the job has ended but for that
    }
    const stop_request request = requests_.take(signal, deadline::clock::now());
    if (request == stop_request::same) return;
    if (has_ranks) {
      if (request == stop_request::second || ends_by_force_) {
        ranks_->signal(SIGKILL);
      } else {
        ranks_->signal(signal == SIGPIPE ? SIGTERM : signal);
        ranks_->kill_after(options_.grace);
      }
    }
    if (request == stop_request::second) {
      if (!has_ranks) give_up_on_output();
      if (!has_ranks && !exit_code_) exit_code_ = 128 + signal;
      waited_for_others_ = true;
      return;
    }
    feed({.what = node_event::kind::told, .code = 128 + signal},
         formatted("by {}", signal_name(signal)));
    if (nodes_.is_alone()) return;
    // The coordinator ends the job once all ranks have saved their work. One that never does is
    // none.
    after(options_.grace + std::chrono::seconds(15), told_timer_, [this, signal] {
      if (!exit_code_) exit_code_ = 128 + signal;
      waited_for_others_ = true;
    });
  }

  [[nodiscard]] bool has_finished() const {
    const coordinator* const own = way_->own();
    if (!exit_code_ || own == nullptr || waited_for_others_) return exit_code_.has_value();
    // Nodes that come late would wait for a coordinator that is gone.
    return own->has_ended() && (!no_program_ || own->all_have_come());
  }

  void give_up_on_output() { around_->gave_up_on_output = true; }
  void say(const std::string& text) { console_.queue(stream::err).add("parxrun: " + text + "\n"); }

  const agent_options& options_;
  job_nodes nodes_;
  environment env_;
  std::string node_;                          ///< its name
  const std::string process_ = random_hex();  ///< this agent's own name
  std::string file_;                          ///< the program
  std::optional<int> no_program_;             ///< the exit code where there is no such program here
  std::string secret_;
  boost::asio::io_context io_{1};
  boost::asio::steady_timer finish_timer_{io_};
  boost::asio::steady_timer told_timer_{io_};
  orphans orphans_;
  std::optional<secret_file> secret_file_;
  std::optional<job_guard> guard_;
  std::optional<caught_signals> signals_;
  console console_{io_};
  repeated_errors errors_;
  std::optional<rank_surroundings> around_;
  std::optional<starter_words> starter_;
  bool starter_is_gone_ = false;
  std::optional<coordinator_way> way_;
  std::optional<reserved_port> free_port_;
  node_state node_state_;
  form_order form_;  ///< of the present generation
  std::unique_ptr<failure_folder> former_failures_;
  std::unique_ptr<failure_folder> failures_;  ///< of the present generation
  std::unique_ptr<node_ranks> ranks_;         ///< of the present generation
  std::unique_ptr<node_ranks> former_;        ///< whose handlers may still be pending
  std::optional<node_report> report_;         ///< of the present generation, once it has ended
  bool draining_ = false;
  bool saved_ = false;              ///< a rank of the present generation has saved its work
  bool ends_by_force_ = false;      ///< its ranks are ended within a second
  std::vector<int> stopped_ranks_;  ///< whose processes were stopped when one of them failed
  stop_requests requests_;
  bool waited_for_others_ = false;
  std::optional<int> exit_code_;
};

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

int run_ranks(const agent_options& options) {
  require(options.ranks >= 1, "-n {}: a job has at least one rank", options.ranks);
  require(options.ranks <= most_ranks_of_node, "-n {}: more than {} ranks on one host",
          options.ranks, most_ranks_of_node);
  const bool keeps_only = options.nodes.role == coordinator_role::only;
  require(!options.command.empty() || (keeps_only && !options.by_ssh),
          "there is no program to run: parxrun -n 4 ./program");
  require(options.grace.count() >= 0, "--grace: the time cannot be negative");
  fill_standard_descriptors();
  return keeps_only ? detail::run_coordinator_process(options) : detail::agent(options).run();
}

}  // namespace parx
