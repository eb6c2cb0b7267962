// node_agent: parxrun on one node of a job of several, or of one that is restarted.
//
// It starts and ends the ranks of its node as the keeper says (generation_node.hpp), passes their
// output on and reports how they ended. On the first node it has the keeper itself. One thread, as
// run_ranks() says.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/common/find_program.hpp"
#include "tools/parxrun/agent_options.hpp"
#include "tools/parxrun/agents.hpp"
#include "tools/parxrun/failures/failure_folder.hpp"
#include "tools/parxrun/nodes/agent_link.hpp"
#include "tools/parxrun/nodes/endpoint_listener.hpp"
#include "tools/parxrun/nodes/form_order.hpp"
#include "tools/parxrun/nodes/generation_job.hpp"
#include "tools/parxrun/nodes/generation_node.hpp"
#include "tools/parxrun/nodes/keeper.hpp"
#include "tools/parxrun/nodes/nodes_secret.hpp"
#include "tools/parxrun/nodes/report_file.hpp"
#include "tools/parxrun/nodes/report_of_node.hpp"
#include "tools/parxrun/ranks/after.hpp"
#include "tools/parxrun/ranks/caught_signals.hpp"
#include "tools/parxrun/ranks/node_ranks.hpp"
#include "tools/parxrun/ranks/rank_output.hpp"
#include "tools/parxrun/ranks/rank_variables.hpp"
#include "tools/parxrun/ranks/reserved_port.hpp"
#include "tools/parxrun/ranks/secret_file.hpp"
#include "tools/parxrun/ssh/ssh_start.hpp"
#include "tools/parxrun/ssh/starter_words.hpp"
#include <parx/comm/flight/directory.hpp>
#include <parx/core/check.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/stopped.hpp>

namespace parx::inline PARX_ABI::detail {

class node_agent {
 public:
  explicit node_agent(const agent_options& options)
      : options_(options), nodes_(*options.nodes), env_(process_environment()) {
    for (const auto& [name, value] : options_.variables) env_.insert_or_assign(name, value);
    node_ = own_node_name(env_);
  }
  node_agent(const node_agent&) = delete;
  node_agent& operator=(const node_agent&) = delete;

  [[nodiscard]] int run() {
    try {
      file_ = find_program(options_.command.front(), env_);
    } catch (const program_error& failure) {
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
    listen();
    link_.emplace(io_, link_options(), link_handlers());
    link_->connect(connect_limit());
    try {
      while (!has_finished()) io_.run_one();
    } catch (...) {
      end_leftovers();
      throw;
    }
    console_.queue(stream::err).add(errors_.summary());
    while (!console_.empty() && !gave_up_on_output_) io_.run_one();
    return *exit_code_;
  }

 private:
  using clock = deadline::clock;

  // The start.

  /// Becomes the keeper, where the endpoint is this node's and nobody has it yet.
  void listen() {
    descriptor listening = listen_at_endpoint(nodes_, env_);
    may_listen_ = nodes_.role == keeper_role::by_address && is_own_address(nodes_.host);
    if (!listening.valid()) return;
    port_ = bound_port(listening.get());
    keeper_.emplace(
        io_, keeper_options_of(nodes_, secret_, env_), std::move(listening),
        [this](const std::string& text) { say(text); },
        [this](job_report& report) { write_report(options_, report); },
        [this](const job_end& end) { print_end(console_, end); });
  }

  [[nodiscard]] agent_link_options link_options() const {
    return {.host = nodes_.host,
            .port = port_ == 0 ? nodes_.port : port_,
            .id = nodes_.id,
            .secret = secret_,
            .encrypts = env_flag(env_, "PARX_TLS").value_or(false)};
  }
  /// How long it is worth while to try to reach the keeper. One that was there, and does not answer
  /// for that long, has gone with its host.
  [[nodiscard]] std::chrono::milliseconds connect_limit() const {
    static constexpr std::chrono::milliseconds rejoin_limit{30'000};
    // Without a program it only tells the others.
    if (no_program_) return std::chrono::seconds(5);
    return node_state_.was_admitted ? std::min(nodes_.join_limit, rejoin_limit)
                                    : nodes_.join_limit;
  }
  [[nodiscard]] agent_link::handlers link_handlers() {
    return {.hello =
                [this] {
                  return json::object{{"node", node_},
                                      {"process", process_},
                                      {"nodes", formatted("{}:{}", nodes_.least, nodes_.most)},
                                      {"order", order()},
                                      {"ranks", options_.ranks},
                                      {"port", draw_port()}};
                },
            .admitted =
                [this] {
                  link_->send(json::object{{"command", joined_text(options_.command, " ")}});
                  feed({.what = node_event::kind::admitted});
                  // The others would wait for this node.
                  if (no_program_) {
                    feed({.what = node_event::kind::told, .code = *no_program_}, no_program());
                  }
                },
            .text = [this](const json::value& text) { receive(text); },
            .silent =
                [this] {
                  if (node_state_.phase != node_phase::over) {
                    say(formatted("node {} has lost the job's first parxrun at {}", node_,
                                  link_->place()));
                  }
                  feed({.what = node_event::kind::silent});
                },
            .waits = [this](const std::string& text) { say(text + other_listener()); },
            .gave_up =
                [this](const std::string& why) {
                  say(why + (node_state_.was_admitted ? "" : other_listener()));
                  feed({.what = node_event::kind::gave_up});
                },
            .vacant =
                [this] {
                  if (!keeper_ && may_listen_) listen();
                }};
  }
  [[nodiscard]] std::string other_listener() const {
    return keeper_ ? std::string() : listener_text(nodes_.host, nodes_.port);
  }
  [[nodiscard]] int order() const {
    if (nodes_.node_rank >= 0) return nodes_.node_rank;
    return keeper_ ? 0 : std::numeric_limits<int>::max();
  }
  /// A port for rank 0 of a program that is not of parx, kept until it has ended.
  [[nodiscard]] std::uint16_t draw_port() {
    free_port_.emplace();
    return free_port_->number();
  }

  // The protocol.

  void receive(const json::value& text) {
    if (const json::value* const form = text.find("form")) {
      form_order order = form_from_json(*form, options_.ranks);
      if (node_state_.phase != node_phase::waiting) return;
      form_ = std::move(order);
      feed({.what = node_event::kind::form, .generation = form_.generation});
    } else if (const json::value* const stop = text.find("stop")) {
      const int how = stop->as<int>("how");
      if (how < 0 || how > static_cast<int>(stop_how::wait)) {
        throw channel_error("it is a parxrun of another version");
      }
      feed({.what = node_event::kind::stop, .how = static_cast<stop_how>(how)});
    } else if (text.contains("end_the_rest")) {
      if (ranks_ != nullptr && !draining_) ranks_->end_the_others([this] { notice_ends(); });
    } else if (const json::value* const end = text.find("end")) {
      const int code = end->as<int>("code");
      feed({.what = node_event::kind::end, .code = code});
    } else if (const json::value* const members = text.find("waits")) {
      say(formatted("node {} waits: the job runs on {} nodes without it, and takes it in when one "
                    "is lost or all stop",
                    node_, members->as<int>()));
    } else {
      throw channel_error("it is a parxrun of another version");
    }
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
        ranks_->kill_after(link_->time_left(), [this] { notice_ends(); });
        break;
      case node_action::kind::send:
        send(action, why);
        break;
      case node_action::kind::connect:
        boost::asio::post(io_, [this] {
          if (starter_is_gone_) feed({.what = node_event::kind::gave_up});
          else link_->connect(connect_limit());
        });
        break;
      case node_action::kind::exit:
        exit_code_ = node_state_.was_admitted ? action.code : no_program_.value_or(action.code);
        link_->finish();
        if (node_state_.was_admitted && node_state_.generation == 0 && action.code == 0) {
          say(formatted("node {}: the job has ended, and did without this node", node_));
        }
        if (!keeper_ && action.code != 0 && action.code != stopped_exit_code &&
            node_state_.was_admitted) {
          say(formatted(
              "node {}: the job has ended with code {}; its report is in the output of the "
              "parxrun at {}",
              node_, action.code, link_->place()));
        }
        after(std::chrono::seconds(no_program_ ? 5 : 2), finish_timer_,
              [this] { waited_for_others_ = true; });
        break;
    }
  }

  void send(const node_action& action, const std::string& why) {
    const auto* const told =
        std::find_if(told_events.begin(), told_events.end(),
                     [&](const auto& each) { return each.first == action.message; });
    json::object text{{"event", std::string(told->second)},
                      {"generation", action.generation},
                      {"code", action.code},
                      {"why", why}};
    if (report_ && action.message != keeper_event::kind::started) {
      text["report"] = json::to_json(shortened(*report_));
    }
    if (action.message == keeper_event::kind::stopped) {
      text["port"] = draw_port();
    }
    link_->send(std::move(text));
  }

  [[nodiscard]] std::string no_program() const {
    return formatted("on node {}: program \"{}\" was not found", node_, options_.command.front());
  }

  // The ranks.

  void start_generation() {
    const local_job job =
        job_of_generation(form_, nodes_, options_, secret_file_->path(), secret_);
    report_.reset();
    draining_ = false;
    former_ = std::move(ranks_);
    former_failures_ = std::move(failures_);
    failures_ =
        std::make_unique<failure_folder>(env_, name_of_start(job.run_id, job.host, job.port));
    ranks_ = std::make_unique<node_ranks>(*around_, *failures_,
                                          rank_output::of(options_, job.place, node_));
    if (no_program_) return cannot_start(*no_program_, no_program());
    environment variables = env_;
    variables.insert_or_assign("PARX_AGENT", process_);
    try {
      ranks_->start(file_, options_.command, form_.first_rank, options_.ranks, [&](int rank) {
        return rank_variables(variables, job, rank, failures_->error_file(rank));
      });
    } catch (const program_error& failure) {
      say(failure.what());
      return cannot_start(failure.exit_code(), failure.what());
    } catch (const std::exception& failure) {
      return cannot_start(1, formatted("on node {}: {}", node_, failure.what()));
    }
    ranks_->pass_output_on();
    feed({.what = node_event::kind::started});
    boost::asio::post(io_, [this] { notice_ends(); });  // of ranks that have ended by now
  }
  /// Whether ranks go on when another one is lost.
  [[nodiscard]] bool goes_on() const { return form_.goes_on; }
  void cannot_start(int code, const std::string& why) {
    feed({.what = node_event::kind::failed, .code = code}, why);
    ranks_->signal(SIGKILL);
    boost::asio::post(io_, [this] { notice_ends(); });
  }

  void end_ranks(stop_how how) {
    const auto before = [this] { notice_ends(); };
    switch (how) {
      case stop_how::terminate:
        return ranks_->end_the_others(before);
      case stop_how::save:
        ranks_->signal(SIGUSR1);
        break;
      case stop_how::ask:
        if (!told_) ranks_->signal(SIGTERM);  // else they have the user's signal
        break;
      case stop_how::wait:
        break;
    }
    ranks_->kill_after(options_.grace, before);
  }

  void notice_ends() {
    static_cast<void>(orphans_.left());
    if (ranks_ == nullptr || draining_) return;
    const auto news = ranks_->notice_ends();
    if (goes_on()) {
      for (const auto& each : news.ended) {
        const std::string how = to_string(each.status);
        if (!each.status.success() && !told_ && node_state_.phase == node_phase::running) {
          say(formatted("rank {} on {} was lost ({}); the others go on", each.rank, node_, how));
        }
        link_->send(json::object{
            {"rank_ended", each.rank}, {"how", how}, {"generation", node_state_.generation}});
      }
    } else if (news.failed && node_state_.phase == node_phase::running && !told_) {
      feed({.what = node_event::kind::failed, .code = code_of_failure(*ranks_)},
           formatted("rank {} ended ({}) on {}", news.failed->rank, to_string(news.failed->status),
                     node_));
      ranks_->end_the_others([this] { notice_ends(); });
    }
    if (news.saved && node_state_.phase == node_phase::running) {
      ranks_->kill_after(options_.grace, [this] { notice_ends(); });
    }
    if (ranks_->all_ended()) drain();
  }
  /// The ranks have ended: nothing that they have started is left, and all that they wrote is
  /// passed on, before the keeper hears of it.
  void drain() {
    draining_ = true;
    ranks_->kill_and_reap();
    orphans_.kill();
    drain_until_ = clock::now() + std::chrono::seconds(1);
    drain_more();
  }
  void drain_more() {
    if (!ranks_->output_closed() && clock::now() < drain_until_ && !gave_up_on_output_) {
      return after(std::chrono::milliseconds(2), drain_timer_, [this] { drain_more(); });
    }
    ranks_->close_output();
    ranks_->flush();
    report_ = report_of(*ranks_, *failures_, node_, options_.command, env_);
    const on_loss losses = goes_on() ? on_loss::go_on : on_loss::end;
    feed({.what = node_event::kind::gone, .code = code_of_ranks(*ranks_, losses)});
  }
  void end_leftovers() {
    if (ranks_ != nullptr) ranks_->kill_and_reap();
    orphans_.kill();
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
    gave_up_on_output_ = true;
    link_->close();
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

  /// As agent::stop(): a second request kills the ranks, unless it follows at once.
  void tell(int signal) {
    const bool has_ranks = ranks_ != nullptr && !draining_ && !ranks_->all_ended();
    if (told_) {
      if (signal == SIGPIPE || clock::now() - told_at_ <= same_request_within(signal)) return;
      gave_up_on_output_ = true;
      if (has_ranks) ranks_->signal(SIGKILL);
      if (!has_ranks && !exit_code_) exit_code_ = 128 + signal;
      waited_for_others_ = true;
      return;
    }
    told_ = true;
    told_at_ = clock::now();
    if (has_ranks) {
      notice_ends();
      ranks_->signal(signal == SIGPIPE ? SIGTERM : signal);
      ranks_->kill_after(options_.grace, [this] { notice_ends(); });
    }
    feed({.what = node_event::kind::told, .code = 128 + signal});
    // The keeper ends the job once all ranks have saved their work. One that never does is none.
    after(options_.grace + std::chrono::seconds(15), told_timer_, [this, signal] {
      if (!exit_code_) exit_code_ = 128 + signal;
      waited_for_others_ = true;
    });
  }

  [[nodiscard]] bool has_finished() const {
    if (!exit_code_ || !keeper_ || waited_for_others_) return exit_code_.has_value();
    // Nodes that come late would wait for a keeper that is gone.
    return keeper_->has_ended() && (!no_program_ || keeper_->all_have_come());
  }

  void say(const std::string& text) { console_.queue(stream::err).add("parxrun: " + text + "\n"); }

  const agent_options& options_;
  const job_nodes nodes_;
  environment env_;
  std::string node_;                          ///< its name
  const std::string process_ = random_hex();  ///< this agent's own name
  std::string file_;                          ///< the program
  std::optional<int> no_program_;             ///< the exit code where there is no such program here
  std::string secret_;
  bool may_listen_ = false;  ///< at the endpoint, where nobody does
  std::uint16_t port_ = 0;   ///< at which the keeper in this process listens
  boost::asio::io_context io_{1};
  boost::asio::steady_timer drain_timer_{io_};
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
  std::optional<keeper> keeper_;
  std::optional<agent_link> link_;
  std::optional<reserved_port> free_port_;
  node_state node_state_;
  form_order form_;  ///< of the present generation
  std::unique_ptr<failure_folder> former_failures_;
  std::unique_ptr<failure_folder> failures_;  ///< of the present generation
  std::unique_ptr<node_ranks> ranks_;         ///< of the present generation
  std::unique_ptr<node_ranks> former_;        ///< whose handlers may still be pending
  std::optional<node_report> report_;         ///< of the present generation, once it has ended
  clock::time_point drain_until_{};
  bool draining_ = false;
  bool told_ = false;  ///< to end, by a signal
  clock::time_point told_at_{};
  bool gave_up_on_output_ = false;
  bool waited_for_others_ = false;
  std::optional<int> exit_code_;
};

int run_node_agent(const agent_options& options) { return node_agent(options).run(); }

}  // namespace parx::detail
