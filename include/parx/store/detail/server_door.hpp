// server_door: the connections of a store's server before their first request. Where descriptors
// run out, it accepts none for a moment and gives up those that have stayed silent; the last free
// descriptors are left to the program that the server is a part of.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <exception>
#include <utility>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/log.hpp>
#include <parx/core/newcomers.hpp>
#include <parx/store/detail/listen.hpp>
#include <parx/store/detail/poller.hpp>

namespace parx::inline PARX_ABI::detail {

class server_door {
 public:
  /// The events of the listener come with `id`. Borrows the poller. Throws errc::io.
  server_door(descriptor listener, const poller& events, std::uint64_t id)
      : listener_(std::move(listener)),
        port_(bound_port(listener_.get())),
        poller_(&events),
        id_(id) {
    poller_->watch(EPOLL_CTL_ADD, listener_, EPOLLIN, id_);
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Whether connections wait although the poller does not tell of them.
  [[nodiscard]] bool is_paused() const noexcept { return is_paused_; }
  [[nodiscard]] bool is_pause_over() const noexcept {
    return is_paused_ && clock::now() >= accept_after_;
  }

  /// Calls admit(socket) for each connection that waits, and hang_up(client) for silent ones.
  template <typename Admit, typename HangUp>
  [[gnu::cold]] void accept_some(Admit admit, HangUp hang_up) {
    using state = accepting::state;
    const accepting result = accept_waiting(
        listener_.get(), newcomers_,
        [&](descriptor socket) {
          try {
            admit(std::move(socket));
          } catch (const std::exception& failure) {
            log(log_level::warn, "the store's server on port {} cannot take a client: {}", port_,
                failure.what());
          }
        },
        [&] { return drop_silent(hang_up); });
    if (result.now == state::is_over) {
      log(log_level::error, "the store's server on port {} takes no more clients: {}", port_,
          errno_text(result.reason));
      is_paused_ = false;
      return poller_->watch(EPOLL_CTL_DEL, listener_, 0, id_);
    }
    if (result.now == state::is_short) warn_of_shortage(result.reason);
    pause(result.now == state::is_short);
  }

  /// An admitted client has made no request yet.
  void expect(std::uint64_t client) { newcomers_.add(client, clock::now()); }
  /// It has made one, or it is gone.
  void forget(std::uint64_t client) { newcomers_.remove(client); }

 private:
  using clock = deadline::clock;

  // Closes connections that have made no request within the time that a client needs for one.
  // Returns whether there were any. Where nothing is short they may stay: a client of torch 1.13
  // makes its first request when it has one.
  template <typename HangUp>
  [[gnu::cold]] bool drop_silent(HangUp& hang_up) {
    const auto found = newcomers_.older_than(newcomers::time_when_short, clock::now());
    for (const std::uint64_t client : found) hang_up(client);
    return !found.empty();
  }

  void warn_of_shortage(int reason) {
    if (std::exchange(has_warned_, true)) return;
    log(log_level::warn,
        "the store's server on port {} cannot take a client at the moment: {}; with too many open "
        "files, raise `ulimit -n` on this host",
        port_, errno_text(reason));
  }

  void pause(bool is_short) {
    if (is_short) accept_after_ = clock::now() + newcomers::pause;
    if (std::exchange(is_paused_, is_short) == is_short) return;
    poller_->watch(EPOLL_CTL_MOD, listener_, is_short ? 0U : EPOLLIN, id_);
  }

  descriptor listener_;
  std::uint16_t port_;
  const poller* poller_;
  std::uint64_t id_;
  bool is_paused_ = false;  // for lack of descriptors
  bool has_warned_ = false;
  clock::time_point accept_after_{};  // while it is paused
  newcomers newcomers_;               // those that have made no request
};

}  // namespace parx::detail
