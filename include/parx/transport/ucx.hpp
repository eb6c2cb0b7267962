// UCX between hosts: a program that includes this can be started with PARX_TRANSPORT=ucx.
//
// UCX drives InfiniBand, RoCE and others (UCX_TLS, UCX_NET_DEVICES). Inside a host parx's own
// shared memory stays. Needs UCX's headers to compile (Debian: libucx-dev) and its libraries to
// run; nothing is linked, and nothing is loaded unless PARX_TRANSPORT=ucx. The job's store stays on
// TCP, and so does what finds a rank that is stopped or cut off, which UCX does not find. UCX does
// not encrypt: with PARX_TLS a job does not start. Nothing else of parx includes this header.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <parx/core/env.hpp>
#include <parx/core/hex.hpp>
#include <parx/transport/detail/network.hpp>
#include <parx/transport/ucx/link.hpp>
#include <parx/transport/ucx/network.hpp>

namespace parx::inline PARX_ABI {

/// For a diagnosis: paths between processes, as UCX names them.
struct ucx_choice {
  std::string version;               ///< of the library: "1.13.1"
  std::map<int, std::string> lanes;  ///< by rank of the job, a line for each lane
};

class ucx_transport final : public detail::network {
 public:
  explicit ucx_transport(detail::network_identity self)
      // Inside a host parx's own memory is faster, so UCX's is only for who names it.
      : inside_host_(env_string(self.env, "UCX_TLS").has_value()), shared_(std::move(self)) {
    newest() = this;
  }
  ~ucx_transport() override {
    ucx_transport* self = this;
    newest().compare_exchange_strong(self, nullptr);
  }

  [[nodiscard]] std::string address() override {
    const std::lock_guard lock(shared_.mutex());
    return detail::to_hex(shared_.address(inside_host_));
  }
  [[nodiscard]] std::string version() override {
    return shared_.worker().ucx().get_version_string();
  }
  [[nodiscard]] std::unique_ptr<detail::process_link> open(
      const detail::link_key& key, int from, int rank, const detail::peer_record& peer) override {
    return std::unique_ptr<detail::process_link>(new ucx_link(
        shared_, key, from, rank, detail::from_hex(peer.network_address), peer.challenge));
  }
  void forget(std::uint64_t group) override {
    const std::lock_guard lock(shared_.mutex());
    shared_.forget(group);
  }

  /// What UCX has chosen for the ranks that this process talks to.
  [[nodiscard]] ucx_choice choice() {
    const std::lock_guard lock(shared_.mutex());
    return {shared_.worker().ucx().get_version_string(), shared_.lanes()};
  }
  /// The one of this process; null where its job does not use UCX. Not while it is made or ends.
  [[nodiscard]] static ucx_transport* current() noexcept { return newest().load(); }

 private:
  [[nodiscard]] static std::atomic<ucx_transport*>& newest() noexcept {
    static std::atomic<ucx_transport*> transport{nullptr};
    return transport;
  }

  bool inside_host_;
  detail::ucx_network shared_;
};

namespace detail {

inline const bool has_ucx =
    network_makers::instance().add("ucx", [](network_identity self) -> std::unique_ptr<network> {
      return std::unique_ptr<network>(new ucx_transport(std::move(self)));
    });

}  // namespace detail

}  // namespace parx
