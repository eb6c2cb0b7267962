// network: what carries bytes between hosts in place of TCP, where PARX_TRANSPORT names it.
//
// A program adds a network by including its header (transport/ucx.hpp), which registers it; nothing
// of parx includes that header, so a program without it needs neither the library nor its headers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/printable.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/detail/incoming_connections.hpp>
#include <parx/transport/detail/peer_record.hpp>
#include <parx/transport/detail/process_link.hpp>

namespace parx::inline PARX_ABI::detail {

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

/// What a network must know of its process's job.
struct network_identity {
  int rank = -1;              ///< in the job
  std::string challenge;      ///< that this process has published
  std::string own_interface;  ///< that has the address which this process has published
  environment env;
  /// Proves that a message is of this job: 64 bits that only the rank that the hello is from can
  /// compute, for the rank that has published the challenge.
  std::function<std::uint64_t(const link_hello&, std::string_view challenge)> tag;
  std::function<void(std::uint64_t group)> wake;  ///< wakes the group if it sleeps
  std::function<void()> lost;  ///< the connection to a rank, which may have ended
};

/// Threads: safe from any thread.
class network {
 public:
  virtual ~network() = default;
  /// How other processes reach this one: one line without spaces, for peer_record::network_address.
  [[nodiscard]] virtual std::string address() = 0;
  /// The library's version, which peers compare.
  [[nodiscard]] virtual std::string version() = 0;
  /// A link of rank `from` of the group to the peer that is `rank` in the job. Does not wait for
  /// the peer. Throws link_lost.
  [[nodiscard]] virtual std::unique_ptr<process_link> open(const link_key& key, int from, int rank,
                                                           const peer_record& peer) = 0;
  /// A group has closed, and so have its links.
  virtual void forget(std::uint64_t group) = 0;
};

using network_maker = std::unique_ptr<network> (*)(network_identity self);

/// The networks of this program, by name.
class network_makers {
 public:
  [[nodiscard]] static network_makers& instance() {
    static network_makers all;
    return all;
  }
  /// Returns true, to initialise the variable that registers it.
  bool add(const std::string& name, network_maker maker) {
    const std::lock_guard lock(mutex_);
    makers_[name] = maker;
    return true;
  }
  /// Null where the program has none of this name.
  [[nodiscard]] network_maker find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = makers_.find(name);
    return found != makers_.end() ? found->second : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, network_maker> makers_;
};

}  // namespace parx::detail
