// ucx_peer: UCX's endpoint to one process, which all links to that process share.
//
// UCX tells of a killed process within milliseconds, but never of a stopped one or, over TCP, of a
// cut network: its failures are one way to notice a loss among others. Threads: one at a time.
#pragma once

#include <ucp/api/ucp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <parx/transport/ucx/worker.hpp>

namespace parx::inline PARX_ABI::detail {

/// The lanes that UCX has chosen for an endpoint, one a line: "tcp/eth0.0 am am_bw#0 wireup".
[[nodiscard]] inline std::string ucx_lanes(std::string_view printed) {
  std::string lanes;
  for (std::size_t at = 0; (at = printed.find("lane[", at)) != std::string_view::npos;) {
    const auto end = std::min(printed.find('\n', at), printed.size());
    const std::string_view line = printed.substr(at, end - at);
    at = end;
    // lane[0]:  2:tcp/eth0.0 md[2]   -> md[2]/tcp/sysdev[255] am am_bw#0 wireup
    const auto name = line.find(':', line.find(':') + 1);
    const auto there = line.find("-> ");
    if (name == std::string_view::npos || there == std::string_view::npos) continue;
    lanes += line.substr(name + 1, line.find(' ', name) - name - 1);
    const auto uses = line.find(' ', there + 3);
    if (uses != std::string_view::npos) lanes += line.substr(uses);
    lanes += '\n';
  }
  return lanes;
}

class ucx_peer {
 public:
  /// `address` is that of the peer's worker, `challenge` what it has published. Bodies of more
  /// than `rendezvous_from` bytes go by rendezvous; where it is empty, the path decides. Sets
  /// `lost_one` when UCX has lost the peer. Does not wait for the peer. Throws errc::io.
  ucx_peer(const ucx_worker& worker, int rank, const std::string& address, std::string challenge,
           std::optional<std::size_t> rendezvous_from, bool& lost_one)
      : worker_(worker), rank_(rank), challenge_(std::move(challenge)), lost_one_(lost_one) {
    ucp_ep_params_t how{};
    how.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                     UCP_EP_PARAM_FIELD_ERR_HANDLER;
    how.address = reinterpret_cast<const ucp_address_t*>(address.data());
    how.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    how.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t why) {
      auto& peer = *static_cast<ucx_peer*>(self);
      peer.lost_ = why;
      peer.lost_one_ = true;
    };
    how.err_handler.arg = this;
    worker.ucx().require_ok(worker.ucx().ep_create(worker.handle(), &how, &endpoint_),
                            "cannot reach a rank's address");
    lanes_ = ucx_lanes(printed());
    // What fits into one of UCX's segments together with its header and ours.
    most_eager_ = lanes_.starts_with("tcp/") ? std::size_t{60} << 10 : 7936;
    const bool zero_copy = lanes_.find("rma_bw") != std::string::npos;
    if (rendezvous_from) most_eager_ = std::min(most_eager_, *rendezvous_from);
    piece_ = rendezvous_from || zero_copy ? std::size_t{256} << 10 : most_eager_;
  }
  ~ucx_peer() { close(closing::by_force, std::chrono::seconds(1)); }
  ucx_peer(const ucx_peer&) = delete;
  ucx_peer& operator=(const ucx_peer&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] const std::string& challenge() const noexcept { return challenge_; }
  [[nodiscard]] ucp_ep_h endpoint() const noexcept { return endpoint_; }
  /// UCS_OK while the peer can be reached, as far as UCX knows.
  [[nodiscard]] ucs_status_t lost() const noexcept { return lost_; }
  [[nodiscard]] bool usable() const noexcept { return lost_ == UCS_OK && endpoint_ != nullptr; }
  [[nodiscard]] const std::string& lanes() const noexcept { return lanes_; }

  /// Larger bodies go by rendezvous. Without zero copy none is larger: there a rendezvous saves no
  /// copy, and costs a round trip in which both processes must be awake.
  [[nodiscard]] std::size_t most_eager() const noexcept { return most_eager_; }
  /// The largest body of one message.
  [[nodiscard]] std::size_t piece() const noexcept { return piece_; }

  enum class closing {
    in_order,  ///< sends first what was given to UCX
    by_force,  ///< ends all requests at once
  };
  /// Starts to close; null where that is done at once, else a request for ended().
  [[nodiscard]] void* start_close(closing how) noexcept {
    if (endpoint_ == nullptr) return nullptr;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = how == closing::by_force || lost_ != UCS_OK ? UCP_EP_CLOSE_FLAG_FORCE : 0;
    void* const request = worker_.ucx().ep_close_nbx(std::exchange(endpoint_, nullptr), &param);
    if (lost_ == UCS_OK) lost_ = UCS_ERR_CANCELED;
    return UCS_PTR_IS_PTR(request) ? request : nullptr;
  }
  /// Waits for at most `patience`.
  void close(closing how, std::chrono::milliseconds patience) noexcept {
    void* const request = start_close(how);
    if (request == nullptr) return;
    const auto until = std::chrono::steady_clock::now() + patience;
    while (worker_.ucx().request_check_status(request) == UCS_INPROGRESS &&
           std::chrono::steady_clock::now() < until) {
      worker_.progress();
    }
    worker_.ucx().request_free(request);
  }

 private:
  [[nodiscard]] std::string printed() const {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const file = ::open_memstream(&text, &size);
    if (file == nullptr) return {};
    worker_.ucx().ep_print_info(endpoint_, file);
    std::fclose(file);
    std::string all(text, size);
    std::free(text);
    return all;
  }

  const ucx_worker& worker_;
  int rank_;
  std::string challenge_;
  bool& lost_one_;
  ucp_ep_h endpoint_ = nullptr;
  ucs_status_t lost_ = UCS_OK;
  std::string lanes_;
  std::size_t most_eager_ = 0;
  std::size_t piece_ = 0;
};

}  // namespace parx::detail
