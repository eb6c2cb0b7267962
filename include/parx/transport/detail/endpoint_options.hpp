// endpoint_options: what a rank's process is told about its job, and what of its record follows.
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/stream_options.hpp>
#include <parx/store/store.hpp>
#include <parx/transport/detail/interfaces.hpp>
#include <parx/transport/detail/network.hpp>
#include <parx/transport/detail/peer_record.hpp>
#include <parx/transport/detail/shared_memory.hpp>

namespace parx::inline PARX_ABI::detail {

struct endpoint_options {
  std::shared_ptr<parx::store> job_store;  ///< prefixed: holds the keys of this job only
  std::string store_host;                  ///< this rank publishes its address on the route to it
  int rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  bool may_spin = false;
  environment env;
  std::optional<job_key> key = std::nullopt;  ///< where the job has a secret
  /// After which a host is taken for lost of which there is no connection that the kernel watches.
  std::chrono::milliseconds longest_silence = detail::longest_silence;
};

/// A value of PARX_TRANSPORT.
struct transport_kind {
  std::string_view name;
  std::string_view carries;
  bool shares_memory;       ///< inside a host
  bool encrypts;            ///< where the job's key says so
  std::string_view header;  ///< of its network, which the program must include; empty: none
  std::string_view needs;   ///< to compile that header
};

/// The networks of parx. A new one is a folder beside this one and a line here.
inline constexpr std::array transport_kinds{
    transport_kind{"auto", "shared memory inside a host, TCP across", true, true, "", ""},
    transport_kind{"tcp", "TCP", false, true, "", ""},
    transport_kind{"ucx", "shared memory inside a host, UCX across", true, false,
                   "parx/transport/ucx.hpp", "UCX's headers: libucx-dev"}};

/// The one that PARX_TRANSPORT names. Throws usage_error where there is none.
[[nodiscard, gnu::cold]] inline const transport_kind& wanted_transport(const environment& env) {
  const std::string wanted = env_string(env, "PARX_TRANSPORT").value_or("auto");
  std::string known;
  for (const transport_kind& each : transport_kinds) {
    if (each.name == wanted) return each;
    known += formatted("{}{} ({})", known.empty() ? "" : ", ", each.name, each.carries);
  }
  throw_usage("PARX_TRANSPORT=\"{}\" is none of {}", printable(wanted), known);
}

/// The fields that are known before listening. Throws usage_error for a wrong PARX_TRANSPORT or
/// PARX_STREAMS.
[[nodiscard, gnu::cold]] inline peer_record describe_self(const endpoint_options& options) {
  const transport_kind& wanted = wanted_transport(options.env);
  if (!wanted.header.empty() &&
      network_makers::instance().find(std::string(wanted.name)) == nullptr) {
    throw_usage(
        "PARX_TRANSPORT={}: this program was compiled without it; include <{}> in one of its "
        "files (needs {})",
        wanted.name, wanted.header, wanted.needs);
  }
  if (!wanted.encrypts && options.key && options.key->encrypts()) {
    throw_usage("PARX_TRANSPORT={} with PARX_TLS=1: it does not encrypt; give up one of the two",
                wanted.name);
  }
  peer_record self;
  self.host = host_name();
  self.boot_id = read_line("/proc/sys/kernel/random/boot_id");
  self.address = choose_address(options.env, options.store_host,
                                options.local_world_size < options.world_size);
  self.network =
      read_link("/proc/self/ns/net") + env_string(options.env, "PARX_HOST_ID").value_or("");
  if (wanted.shares_memory && shared_memory::can_be_had()) self.memory = "parx-" + random_hex();
  self.pid = ::getpid();
  static constexpr int most_streams = 64;
  self.streams = env_number<int>(options.env, "PARX_STREAMS").value_or(1);
  if (self.streams < 1 || self.streams > most_streams) {
    throw_usage("PARX_STREAMS=\"{}\" is not a number of connections to a peer from 1 to {}",
                self.streams, most_streams);
  }
  return self;
}

}  // namespace parx::detail
