// coordinator_door: where the agents of a job's nodes come in. It listens at the job's endpoint,
// and hands a connection on to the coordinator once it has proved to be of the job and has said
// hello. All others are limited by the rules of core/newcomers.hpp. One thread, that of its
// io_context.
#pragma once

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/parxrun/nodes/framed_socket.hpp"
#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include "tools/parxrun/ranks/after.hpp"
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/json.hpp>
#include <parx/core/newcomers.hpp>
#include <parx/core/socket_address.hpp>

namespace parx::inline PARX_ABI::detail {

class coordinator_door {
 public:
  using tcp = boost::asio::ip::tcp;

  struct handlers {
    /// The number of the agent that says hello; none where it is refused.
    std::function<std::optional<agent_number>(const std::shared_ptr<framed_socket>&,
                                              const agent_hello&)>
        hello;
    std::function<void(agent_number)> alive;                           ///< an agent has sent a beat
    std::function<void(agent_number, const to_coordinator&)> message;  ///< of an agent
    std::function<void(agent_number, const std::string& why)> gone;    ///< an agent
    std::function<void(const std::string&)> say;                       ///< to the user
  };

  /// `listening` is a socket that listens; `key` may be null, and must outlive this.
  coordinator_door(boost::asio::io_context& io, descriptor listening, std::string id,
                   const job_key* key, handlers call)
      : io_(io),
        id_(std::move(id)),
        key_(key),
        call_(std::move(call)),
        acceptor_(io),
        pause_(io),
        sweep_(io),
        newcomers_(most_newcomers()) {
    const int family = socket_address::of(listening.get()).storage.ss_family;
    protocol_ = family == AF_INET6 ? tcp::v6() : tcp::v4();
    acceptor_.assign(protocol_, listening.release());
    acceptor_.non_blocking(true);
    wait_for_more();
  }
  coordinator_door(const coordinator_door&) = delete;
  coordinator_door& operator=(const coordinator_door&) = delete;
  ~coordinator_door() {
    for (auto& [number, socket] : waiting_) socket->close();
  }

 private:
  using clock = deadline::clock;

  /// The store of the ranks, in this process too, has most of the descriptors.
  [[nodiscard]] static std::size_t most_newcomers() noexcept {
    constexpr rlim_t most = 1024;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
    return static_cast<std::size_t>(std::clamp<rlim_t>(limit.rlim_cur / 4, 1, most));
  }

  void wait_for_more() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const boost::system::error_code& failed) {
      if (!failed) accept();
    });
  }

  void accept() {
    using state = accepting::state;
    const accepting result = accept_waiting(
        acceptor_.native_handle(), newcomers_,
        [this](descriptor socket) { receive(std::move(socket)); },
        [this] { return drop_older_than(newcomers::time_when_short); });
    if (result.now == state::goes_on) return wait_for_more();
    if (!std::exchange(told_of_shortage_, true)) {
      call_.say(formatted("the job's first parxrun takes no further connections{}: {}",
                          result.now == state::is_short ? " at the moment" : "",
                          newcomers_.are_many()
                              ? "too many have not shown that they are of this job"
                              : errno_text(result.reason)));
    }
    if (result.now == state::is_short) after(newcomers::pause, pause_, [this] { accept(); });
  }

  /// A new connection: its proof, then its hello.
  void receive(descriptor accepted) {
    tcp::socket connected(io_);
    boost::system::error_code failed;
    connected.assign(protocol_, accepted.get(), failed);
    if (failed) return;
    static_cast<void>(accepted.release());
    const auto socket =
        std::make_shared<framed_socket>(std::move(connected), channel_side::coordinator, id_, key_);
    const newcomers::id which = ++last_;
    waiting_.emplace(which, socket);
    newcomers_.add(which, clock::now());
    sweep();
    const auto number = std::make_shared<std::optional<agent_number>>();
    socket->start({.open = {},
                   .text =
                       [this, which, number, socket = socket.get()](const json::value& text) {
                         if (*number && text.contains("beat")) {
                           socket->send(text);
                           return call_.alive(**number);
                         }
                         const auto message = message_of<to_coordinator>(text);
                         if (*number) return call_.message(**number, message);
                         const auto* const hello = std::get_if<agent_hello>(&message);
                         if (hello == nullptr) throw_other_version();
                         *number = call_.hello(socket->shared_from_this(), *hello);
                         if (*number) socket->trust();
                         forget(which);
                       },
                   .end =
                       [this, which, number, socket = socket.get()](const channel_end& end) {
                         if (*number) return call_.gone(**number, end.why);
                         if (end.how != channel_end::kind::closed) socket->refuse(end.why);
                         forget(which);
                       }});
  }

  void forget(newcomers::id which) {
    waiting_.erase(which);
    newcomers_.remove(which);
  }

  /// Closes the newcomers whose time is over, when it is.
  void sweep() {
    const auto next = newcomers_.next_end(newcomers::time);
    if (!next) return;
    after(*next - clock::now(), sweep_, [this] {
      drop_older_than(newcomers::time);
      sweep();
    });
  }
  bool drop_older_than(std::chrono::milliseconds limit) {
    const auto found = newcomers_.older_than(limit, clock::now());
    for (const newcomers::id which : found) {
      waiting_.at(which)->close();
      forget(which);
    }
    return !found.empty();
  }

  boost::asio::io_context& io_;
  std::string id_;  ///< of the job
  const job_key* key_;
  handlers call_;
  tcp protocol_ = tcp::v4();
  tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  boost::asio::steady_timer sweep_;
  newcomers newcomers_;
  newcomers::id last_ = 0;
  std::map<newcomers::id, std::shared_ptr<framed_socket>> waiting_;  ///< of the newcomers
  bool told_of_shortage_ = false;
};

}  // namespace parx::detail
