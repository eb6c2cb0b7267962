// Definitions of init.hpp.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/flight/failure_log.hpp>
#include <parx/comm/flight/recorder.hpp>
#include <parx/comm/measure.hpp>
#include <parx/comm/schedule/rules.hpp>
#include <parx/core/check.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/thread_pool.hpp>
#include <parx/core/tls.hpp>
#include <parx/launch/detail/hydra.hpp>
#include <parx/launch/detail/job_keys.hpp>
#include <parx/launch/detail/job_secret.hpp>
#include <parx/launch/detail/known_variables.hpp>
#include <parx/launch/detail/rank_env.hpp>
#include <parx/launch/detect_launch.hpp>
#include <parx/launch/init.hpp>
#include <parx/launch/rendezvous.hpp>
#include <parx/launch/thread_placement.hpp>
#include <parx/transport/hybrid.hpp>
#include <parx/transport/inproc.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The value of `name`, in seconds. Throws usage_error for a value that is no sensible timeout:
/// NaN, 0, or so large that the clock's arithmetic overflows and every wait would end at once.
[[nodiscard, gnu::cold]] inline std::optional<std::chrono::milliseconds> env_seconds(
    const environment& env, std::string_view name) {
  const auto seconds = env_number<double>(env, name);
  if (!seconds) return std::nullopt;
  require(*seconds >= 1e-3 && *seconds <= 1e9, "{}=\"{}\": give seconds, from 0.001 to 1000000000",
          name, printable(env_string(env, name).value_or("")));
  return std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
}

/// The rules of PARX_ALGO ("all_reduce:ring,broadcast:tree"), then those of the file named by
/// PARX_ALGO_FILE, then the program's. Throws usage_error for an invalid rule, errc::io where the
/// file cannot be read.
[[gnu::cold]] inline void read_algorithm_rules(const environment& env, choice_options& choice) {
  auto rules = parse_algorithm_list(env_string(env, "PARX_ALGO").value_or(""));
  if (const auto path = env_string(env, "PARX_ALGO_FILE")) {
    const auto text = file_text(*path);
    if (!text) {
      const int reason = errno;
      throw_error(errc::io, "PARX_ALGO_FILE=\"{}\": the file cannot be read: {}", printable(*path),
                  errno_text(reason));
    }
    for (auto& each : parse_algorithm_rules(*text, *path)) rules.push_back(std::move(each));
  }
  if (rules.empty()) return;
  if (choice.rules != nullptr) {
    for (algorithm_rule each : *choice.rules) rules.push_back(std::move(each));
  }
  choice.rules.reset(new std::vector<algorithm_rule>(std::move(rules)));
}

/// The environment's settings for groups, which override the program's. Throws usage_error and
/// errc::io as its parts do.
[[gnu::cold]] inline void read_group_settings(const environment& env, group_options& group) {
  if (const auto given = env_seconds(env, "PARX_TIMEOUT")) group.timeout = *given;
  if (const auto given = env_seconds(env, "PARX_WARN_AFTER")) group.warn_after = *given;
  if (const auto given = env_string(env, "PARX_DEADLOCK")) {
    require(*given == "fail" || *given == "warn", "PARX_DEADLOCK=\"{}\" is neither fail nor warn",
            printable(*given));
    if (*given == "warn") group.deadlock_after = group_options::never;
  }
  read_algorithm_rules(env, group.choice);
}

[[nodiscard]] inline flight_place flight_place_of(const launch_env& job, const environment& env) {
  return find_flight_place(env, name_of_start(job.run_id, job.master_host, job.master_port));
}

/// Opens this rank's flight recorder; null where it is switched off or, with a warning, where it
/// cannot be opened.
[[nodiscard, gnu::cold]] inline std::shared_ptr<flight_recorder> open_recorder(
    const launch_env& job, const environment& env, store& job_store) {
  const flight_place place = flight_place_of(job, env);
  if (place.directory.empty()) return nullptr;
  try {
    const auto limit = deadline::after(std::chrono::seconds(10));
    const std::string start = job_store.compare_set(keys::recorder, "", random_hex(), limit);
    return std::shared_ptr<flight_recorder>(new flight_recorder({.directory = place.directory,
                                                                 .rank = job.rank,
                                                                 .world_size = job.world_size,
                                                                 .job = fnv1a(start),
                                                                 .files = place.files}));
  } catch (const error& refused) {
    log(log_level::warn, "this rank's operations are not recorded: {}", refused.what());
    return nullptr;
  }
}

/// Records the exception that is being handled, in a process that could not join its job.
inline void record_refusal(failure_log& failures, int rank) noexcept {
  try {
    failures.write(record_of(std::current_exception(), rank));
  } catch (const std::exception&) {
    // Out of memory: there is no record.
  }
}

/// Advice for a job without a secret. parxrun makes one itself, unless the job has several hosts.
[[nodiscard, gnu::cold]] inline std::string_view way_to_a_secret(const launch_env& job) {
  if (!why_no_hmac().empty()) return why_no_hmac();
  if (job.hosted_by == store_host::parxrun) {
    return "Give all parxrun the same PARX_SECRET, or PARX_SECRET_FILE";
  }
  return "Start it by parxrun, or give all ranks the same PARX_SECRET, or PARX_SECRET_FILE";
}

/// Gives the job a secret if it has none but can have the user's. Warns on rank 0 where the job or
/// its store has none, or a short one.
[[gnu::cold]] inline void provide_secret(launch_env& job, const environment& env) {
  std::string why_not;
  const bool will_have_one = static_cast<bool>(job.share_line);
  if (job.secret.empty()) job.secret = derived_secret(job, env, why_not);
  if (job.secret.empty() && !will_have_one) {
    log0(log_level::warn,
         "this job has no secret{}: whoever reaches {} can join it, read what its ranks tell "
         "each other about themselves, and end it. {}",
         why_not, with_port(job.master_host, job.master_port), way_to_a_secret(job));
  } else if (!job.secret.empty() && job.secret.size() < least_secret) {
    log0(log_level::warn,
         "the job's secret has {} characters: whoever records a connection can try out all that "
         "are so short. Take {} random ones or more: openssl rand -hex 16",
         job.secret.size(), least_secret);
  }
  if (!job.secret.empty() && job.hosted_by == store_host::agent) {
    log0(log_level::warn,
         "PARX_SECRET{} protects the ranks' links, but not the store at {}, which is PyTorch's: "
         "whoever reaches it can end this job",
         job.encrypts ? " with PARX_TLS" : "", with_port(job.master_host, job.master_port));
  }
  if (!job.encrypts) return;
  if (job.secret.empty()) {
    throw_usage("PARX_TLS=1: a job without a secret has no key to encrypt with. {}",
                way_to_a_secret(job));
  }
  require(why_no_tls().empty(), "PARX_TLS=1: this process cannot encrypt: {}", why_no_tls());
}

/// The job that the program has given, with what `env` says of any job. Throws usage_error where
/// its numbers are impossible.
[[nodiscard, gnu::cold]] inline launch_env complete(launch_env job, const environment& env) {
  check_rank("rank", job.rank, "world_size", job.world_size);
  job.started_by = launcher::program;
  job.hosted_by = store_host::rank_zero;
  job.secret = env_string(env, "PARX_SECRET").value_or("");
  job.encrypts = env_flag(env, "PARX_TLS").value_or(false);
  if (job.world_size == 1) return job;
  require(static_cast<bool>(job.share_line),
          "init: the job of {} ranks that the program gives needs a share_line", job.world_size);
  const bool is_local = job.master_host == "localhost" || is_loopback(job.master_host);
  const int here = job.local_world_size.value_or(is_local ? job.world_size : 1);
  if (job.rank == 0) {
    job.master_host = choose_address(env, job.master_host, here < job.world_size);
  }
  return job;
}

/// Chooses this rank's threads and their cores. Throws usage_error for a PARX_THREADS that is no
/// number from 1.
[[gnu::cold]] inline void place_threads(const launch_env& job, const environment& env) {
  const std::vector<int> cores = allowed_cores();
  const thread_choice choice = choose_threads(env, static_cast<int>(cores.size()), own_cpu_quota());
  if (const std::string said = choice.warning(); !said.empty()) log0(log_level::warn, "{}", said);
  const thread_placement layout = lay_out_threads(
      choice,
      {.local_rank = job.local_rank.value_or(job.rank),
       .local_ranks = job.local_world_size.value_or(job.world_size),
       .host_cores = static_cast<int>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L)),
       .cores = cores},
      env_string(env, "OMP_PROC_BIND").value_or(""));
  thread_pool::lay_out(layout.threads, layout.cores, layout.shared);
  const std::string text = to_text(layout, job.world_size);
  if (!text.empty() && job.rank == 0 && logger::instance().shows(log_level::warn)) {
    logger::instance().write(log_level::info, text);
  }
  const std::string hidden = job.started_by == launcher::torchrun ? hidden_by_torchrun(env) : "";
  if (!hidden.empty()) log0(log_level::warn, "{}", hidden);
}

}  // namespace detail

[[gnu::cold]] PARX_INLINE world::world(launch_env job, std::unique_ptr<rendezvous> meeting,
                                       std::unique_ptr<links> network, group_options options)
    : process_group(std::move(network), "world", options),
      job_(std::move(job)),
      meeting_(std::move(meeting)),
      options_(std::move(options)) {
  try {
    ready_choice(*this);
  } catch (...) {
    static_cast<process_group&>(*this) = process_group(alone());
    if (meeting_ != nullptr) meeting_->leave_in_failure();
    throw;
  }
}

[[gnu::cold]] PARX_INLINE world::~world() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  if (unwinding && (!closed() || awaits_reason() || goes_on())) {
    try {
      abort(formatted("rank {} left its program by an exception; see its output", rank()));
    } catch (const std::exception&) {
      abort_for_now("out of memory");
    }
  }
  const bool failed = closed() && !goes_on();
  { const process_group ends_here = std::move(static_cast<process_group&>(*this)); }
  if (!process_.is_this()) {  // a forked child: the store and its server belong to the parent
    detail::keep_for_good(meeting_.release());
  } else if (meeting_ != nullptr) {
    if (options_.recorder != nullptr && !failed) options_.recorder->leave();
    // After a failure a rank that hangs or is stopped may never leave.
    static constexpr std::chrono::milliseconds after_failure{800};
    meeting_->leave(failed ? after_failure : options_.timeout);
  }
}

PARX_INLINE std::shared_ptr<store> world::job_store() const {
  return meeting_ != nullptr ? meeting_->job_store() : nullptr;
}

PARX_INLINE process_group world::shrink(std::chrono::milliseconds patience) {
  require(meeting_ != nullptr, "shrink: a world of one rank has no other to lose");
  const auto before = meeting_->members();
  const auto& members = meeting_->shrink(patience);
  if (options_.failures != nullptr) options_.failures->survived();
  if (job_.rank == members.front()) {
    std::vector<int> lost;
    std::set_difference(before.begin(), before.end(), members.begin(), members.end(),
                        std::back_inserter(lost));
    log(log_level::warn, "rank {} {} lost; the job goes on with {} {} of {}: {}", joined_text(lost),
        lost.size() == 1 ? "is" : "are", members.size(), members.size() == 1 ? "rank" : "ranks",
        before.size(), joined_text(members));
  }
  const process_group everybody(meeting_->connect(), "world", options_);
  return everybody.subgroup(members,
                            {.name = formatted("world, shrunk {}", meeting_->times_shrunk())});
}
PARX_INLINE bool world::goes_on() const { return meeting_ != nullptr && meeting_->goes_on(); }
[[gnu::cold]] PARX_INLINE void world::abort(std::string_view reason) {
  process_group::abort(reason);
  if (!goes_on() || !process_.is_this()) return;
  failure_record record = record_of(std::current_exception(), job_.rank);
  record.text = reason;
  meeting_->abort(record);
}

PARX_INLINE std::unique_ptr<links> world::alone() {
  return std::make_shared<inproc_network>(1)->attach(0);
}

[[gnu::cold]] PARX_INLINE world init(init_options options) {
  fill_standard_descriptors();
  options.env = detail::with_secret(detail::with_hydra_run_id(std::move(options.env)));
  hide_variable("PARX_SECRET");
  launch_env job = options.job != nullptr ? detail::complete(*options.job, options.env)
                                          : detect_launch(options.env);
  logger::instance().set_rank(job.rank, job.world_size);
  if (options.group.failures == nullptr) {
    options.group.failures = std::make_shared<failure_log>(
        job.rank, env_string(options.env, "TORCHELASTIC_ERROR_FILE").value_or(""));
  }
  failure_log& failures = *options.group.failures;
  try {
    if (!job.warning.empty()) log(log_level::warn, "{}", job.warning);
    for (const auto& each : detail::misspelt_variables(options.env))
      log0(log_level::warn, "{}", each);
    if (const auto given = detail::env_seconds(options.env, "PARX_RENDEZVOUS_TIMEOUT")) {
      options.rendezvous_timeout = *given;
    }
    if (job.started_by != launcher::program) detail::place_threads(job, options.env);
    static_cast<void>(checked_options(options.group));
    const auto read_settings = [&] { detail::read_group_settings(options.env, options.group); };
    if (job.world_size > 1) std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (job.world_size > 1) detail::provide_secret(job, options.env);
    if (job.world_size == 1) {
      read_settings();
      return world(std::move(job), nullptr, world::alone(), options.group);
    }
    auto meeting = std::make_unique<rendezvous>(
        job, options.env, deadline::after(options.rendezvous_timeout), read_settings);
    auto network = meeting->connect();
    if (options.group.recorder == nullptr) {
      options.group.recorder =
          detail::open_recorder(meeting->job(), options.env, *meeting->job_store());
    }
    const flight_place place = detail::flight_place_of(meeting->job(), options.env);
    if (!place.directory.empty()) failures.add_directory(place.directory);
    return world(std::move(job), std::move(meeting), std::move(network), options.group);
  } catch (...) {
    detail::record_refusal(failures, job.rank);
    throw;
  }
}

}  // namespace parx
