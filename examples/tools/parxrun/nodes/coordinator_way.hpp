// coordinator_way: how an agent reaches its job's coordinator: by calls where that is in this
// process, on the first node or the only one, else over a connection (agent_link.hpp). One thread,
// that of its io_context.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "tools/parxrun/nodes/agent_link.hpp"
#include "tools/parxrun/nodes/coordinator.hpp"
#include "tools/parxrun/nodes/endpoint_listener.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI::detail {

class coordinator_way {
 public:
  struct handlers {
    agent_link::handlers agent;  ///< `hello` without the node's order, and no `vacant`
    std::function<void(const std::string&)> say;
    std::function<void(job_report&)> record;  ///< the coordinator's, where it is in this process
    std::function<void(job_end&)> report;     ///< the same
  };

  /// `nodes`, `command` and `env` outlive this.
  coordinator_way(boost::asio::io_context& io, const job_nodes& nodes,
                  const std::vector<std::string>& command, const environment& env,
                  std::string secret, handlers call)
      : io_(io),
        nodes_(nodes),
        command_(command),
        env_(env),
        secret_(std::move(secret)),
        call_(std::move(call)) {}

  /// Becomes the coordinator, where this is the only node, or the endpoint is its own and nobody
  /// has it; else connects, as agent_link::connect().
  void start(std::chrono::milliseconds limit) {
    listen();
    if (coordinator_) return;
    agent_link::handlers call = call_.agent;
    call.hello = [this] { return hello(); };
    call.vacant = [this] {
      if (may_listen_) listen();
      if (coordinator_) link_->close();
    };
    link_.emplace(io_,
                  agent_link_options{.host = nodes_.host,
                                     .port = nodes_.port,
                                     .id = nodes_.id,
                                     .secret = secret_,
                                     .encrypts = env_flag(env_, "PARX_TLS").value_or(false)},
                  std::move(call));
    link_->connect(limit);
  }

  void tell(const to_coordinator& text) {
    if (coordinator_) coordinator_->hear(text);
    else link_->send(text);
  }
  /// The agent has ended.
  void finish() {
    if (coordinator_) coordinator_->let_go();
    else link_->finish();
  }

  /// The coordinator, where it is in this process; else null.
  [[nodiscard]] const coordinator* own() const noexcept {
    return coordinator_ ? &*coordinator_ : nullptr;
  }
  /// For messages: who listens at the endpoint, where that is this host.
  [[nodiscard]] std::string listener() const { return listener_text(nodes_.host, nodes_.port); }
  /// The connection; only where the coordinator is not in this process.
  [[nodiscard]] agent_link& link() noexcept { return *link_; }

 private:
  /// The node's, with its place in the order of ranks.
  [[nodiscard]] agent_hello hello() const {
    agent_hello text = call_.agent.hello();
    const int by_arrival = coordinator_ ? 0 : std::numeric_limits<int>::max();
    text.order = nodes_.node_rank >= 0 ? nodes_.node_rank : by_arrival;
    return text;
  }

  void listen() {
    descriptor listening = nodes_.is_alone() ? descriptor() : listen_at_endpoint(nodes_, env_);
    may_listen_ = nodes_.role == coordinator_role::by_address && is_own_address(nodes_.host);
    if (!listening.valid() && !nodes_.is_alone()) return;
    coordinator_.emplace(io_, nodes_, command_, secret_, env_, std::move(listening), call_.say,
                         call_.record, call_.report);
    coordinator_->take_in(hello(), [this](const to_agent& text) {
      boost::asio::post(io_, [this, text] { call_.agent.message(text); });
    });
  }

  boost::asio::io_context& io_;
  const job_nodes& nodes_;
  const std::vector<std::string>& command_;
  const environment& env_;
  const std::string secret_;
  handlers call_;
  bool may_listen_ = false;  ///< at the endpoint, where nobody does
  std::optional<coordinator> coordinator_;
  std::optional<agent_link> link_;
};

}  // namespace parx::detail
