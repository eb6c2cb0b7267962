// Reading ranks, sizes and the store's address from environment variables: the functions that all
// launchers need, and the readers of PARX_* and of torchrun's names.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/check.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/launch_env.hpp>

namespace parx::inline PARX_ABI::detail {

/// The names of one launcher's variables. Empty where it has no such variable.
struct rank_names {
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank = {};
  std::string_view local_world_size = {};
  std::string_view node_rank = {};
};

[[nodiscard]] inline bool any_set(const environment& env,
                                  std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (env_string(env, name)) return true;
  }
  return false;
}

inline void check_rank(std::string_view rank_name, int rank, std::string_view size_name, int size) {
  require(size >= 1, "{}={}: a job has at least one process", size_name, size);
  require(rank >= 0 && rank < size,
          "{}={} contradicts {}={}: ranks run from 0 to {}. Correct one of the two variables",
          rank_name, rank, size_name, size, size - 1);
}

[[nodiscard, gnu::cold]] inline launch_env read_ranks(const environment& env,
                                                      const rank_names& names,
                                                      launcher started_by) {
  const auto world_size =
      env_number<int>(env, names.world_size, "a number of processes, which is 1 or more");
  const auto rank = env_number<int>(
      env, names.rank,
      world_size > 0
          ? formatted("a rank from 0 to {} ({}={})", *world_size - 1, names.world_size, *world_size)
          : "a rank, which is 0 or more");
  require(rank && world_size,
          "{} is set but {} is not: both are needed to say which process of how many this is. "
          "Set {} too, or unset {} to run alone",
          rank ? names.rank : names.world_size, rank ? names.world_size : names.rank,
          rank ? names.world_size : names.rank, rank ? names.rank : names.world_size);
  check_rank(names.rank, *rank, names.world_size, *world_size);

  launch_env job;
  job.started_by = started_by;
  job.rank = *rank;
  job.world_size = *world_size;
  if (!names.local_rank.empty()) {
    job.local_rank = env_number<int>(env, names.local_rank, "a rank on its host, 0 or more");
  }
  if (!names.local_world_size.empty()) {
    job.local_world_size = env_number<int>(env, names.local_world_size);
  }
  if (!names.node_rank.empty()) job.node_rank = env_number<int>(env, names.node_rank);
  require(job.local_rank.value_or(0) >= 0, "{}={}: local ranks count from 0", names.local_rank,
          job.local_rank.value_or(0));
  if (job.local_world_size) {
    check_rank(names.local_rank, job.local_rank.value_or(0), names.local_world_size,
               *job.local_world_size);
    require(*job.local_world_size <= job.world_size,
            "{}={} contradicts {}={}: a host cannot have more processes than the job",
            names.local_world_size, *job.local_world_size, names.world_size, job.world_size);
  }
  if (job.world_size == 1) {
    job.local_rank = 0;
    job.local_world_size = 1;
  }
  return job;
}

/// Throws usage_error for a text that can be no host's name or address: asking a resolver for it
/// again and again, until the deadline, would be in vain.
[[gnu::cold]] inline void require_host(std::string_view variable, std::string_view text,
                                       std::string_view host) {
  const auto is_of_a_host = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || std::isalnum(byte) != 0 ||
           std::string_view(".-_:%").find(c) != std::string_view::npos;
  };
  const auto wrong = std::find_if_not(host.begin(), host.end(), is_of_a_host);
  if (wrong == host.end()) return;
  std::string_view why = "a name has letters, digits, dots and hyphens";
  if (*wrong == '\r') why = "it has a carriage return, as a script with Windows line ends gives it";
  if (*wrong == '$') why = "no shell has put the variable's value there, as within single quotes";
  throw_usage("{}=\"{}\" is no host's name or address: {}", variable, printable(text), why);
}

/// Reads MASTER_ADDR, which may have the port in it, and MASTER_PORT into `job` where they are set.
[[gnu::cold]] inline void read_master(const environment& env, launch_env& job) {
  std::optional<std::uint16_t> port_in_address;
  std::string address_variable;
  for (const std::string_view name : {"MASTER_ADDR", "PARX_MASTER_ADDR"}) {
    const auto text = env_string(env, name);
    if (!text) continue;
    const auto address = split_address(*text);
    require(address.has_value(),
            "{}={}: write a host's name or address, as node1, 10.0.0.7, ::1 or [::1], and the port "
            "in MASTER_PORT",
            name, printable(*text));
    require_host(name, *text, address->host);
    job.master_host = address->host;
    port_in_address = address->port;
    address_variable = name;
  }
  for (const std::string_view name : {"MASTER_PORT", "PARX_MASTER_PORT"}) {
    if (const auto port = env_number<int>(env, name, "a port from 1 to 65535")) {
      require(*port >= 1 && *port <= 65535, "{}={}: a port is a number from 1 to 65535", name,
              *port);
      job.master_port = static_cast<std::uint16_t>(*port);
      job.port_variable = name;
    }
  }
  if (!port_in_address) return;
  require(job.port_variable.empty() || job.master_port == *port_in_address,
          "{}={} contradicts {}={}. Leave the port out of one of them", address_variable,
          with_port(job.master_host, *port_in_address), job.port_variable, job.master_port);
  job.master_port = *port_in_address;
  job.port_variable = address_variable;
}

/// A port from 20000 to 29972: below the ephemeral ports, above most services. 9973 is prime, so
/// that keys that differ by a multiple of a round number still get different ports.
[[nodiscard]] constexpr std::uint16_t port_of_key(std::uint64_t key) noexcept {
  return static_cast<std::uint16_t>(20000 + key % 9973);
}

/// A port from the FNV-1a hash of the job's id.
[[nodiscard]] constexpr std::uint16_t port_of_name(std::string_view name) noexcept {
  return port_of_key(fnv1a(name));
}

/// Reads the address for launchers where it is known only from these variables.
inline void require_master(const environment& env, launch_env& job, const rank_names& names) {
  read_master(env, job);
  if (job.world_size == 1) return;
  require(!job.master_host.empty(),
          "{} and {} are set but MASTER_ADDR is not: the ranks need the host name or address of "
          "rank 0. Set MASTER_ADDR, the same for all ranks ({} when all are on one host)",
          names.rank, names.world_size, loopback_address());
  require(job.master_port != 0,
          "{} and {} are set but MASTER_PORT is not: rank 0 listens there for the others. Set "
          "MASTER_PORT, the same for all ranks, to a free port of {}",
          names.rank, names.world_size, job.master_host);
}

[[nodiscard]] inline launch_env from_parx(const environment& env) {
  constexpr rank_names names{"PARX_RANK", "PARX_WORLD_SIZE", "PARX_LOCAL_RANK",
                             "PARX_LOCAL_WORLD_SIZE", "PARX_NODE_RANK"};
  launch_env job = read_ranks(env, names, launcher::parx);
  if (const auto rank = env_number<int>(env, "RANK")) {
    require(*rank == job.rank,
            "PARX_RANK={} contradicts RANK={}: two launchers are nested. Unset the PARX_ variables "
            "where the inner one starts, or use only one",
            job.rank, *rank);
  }
  require_master(env, job, names);
  return job;
}

[[nodiscard, gnu::cold]] inline launch_env from_torchrun(const environment& env) {
  constexpr rank_names names{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"};
  const auto elastic_id = env_string(env, "TORCHELASTIC_RUN_ID");
  launch_env job = read_ranks(env, names, elastic_id ? launcher::torchrun : launcher::variables);
  job.run_id = elastic_id.value_or("");
  // torchrun writes Python's "True".
  const auto agent = env_string(env, "TORCHELASTIC_USE_AGENT_STORE");
  if (elastic_id && agent && (*agent == "True" || *agent == "true" || *agent == "1")) {
    job.hosted_by = store_host::agent;
  }
  require_master(env, job, names);
  return job;
}

/// Checks WORLD_SIZE, which job scripts set without RANK for programs that get their rank from the
/// launcher.
inline void check_world_size_variable(const environment& env, const launch_env& job) {
  const auto world_size = env_number<int>(env, "WORLD_SIZE");
  if (!world_size || *world_size == job.world_size) return;
  if (job.started_by == launcher::alone) {
    throw_usage(
        "WORLD_SIZE={} is set but RANK is not, and no other launcher's variables are there. Set "
        "RANK too, or unset WORLD_SIZE to run alone",
        *world_size);
  }
  throw_usage(
      "WORLD_SIZE={} contradicts the {} processes that {} started. Unset WORLD_SIZE, or start as "
      "many",
      *world_size, job.world_size, to_string(job.started_by));
}

}  // namespace parx::detail
