// caught_signals: the signals that parxrun handles itself, one after another, in its io_context.
#pragma once

#include <csignal>
#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class caught_signals {
 public:
  caught_signals(boost::asio::io_context& io, std::function<void(int)> handle)
      : signals_(io), handle_(std::move(handle)) {
    sigset_t caught;
    ::sigemptyset(&caught);
    for (const int signal :
         {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE, SIGTSTP}) {
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      // An ignored signal (SIGHUP under nohup) stays ignored. Not SIGCHLD, which some parents make
      // their children ignore: without it the exit status of a rank would be lost.
      if (action.sa_handler == SIG_IGN && signal != SIGCHLD) continue;
      signals_.add(signal);
      ::sigaddset(&caught, signal);
    }
    ::pthread_sigmask(SIG_UNBLOCK, &caught, &mask_before_);
    handle_next();
  }
  caught_signals(const caught_signals&) = delete;
  caught_signals& operator=(const caught_signals&) = delete;

  /// The signal mask at the start, which the ranks inherit.
  [[nodiscard]] const sigset_t& mask_before() const noexcept { return mask_before_; }

 private:
  void handle_next() {
    signals_.async_wait([this](const boost::system::error_code& cancelled, int signal) {
      if (cancelled) return;
      handle_(signal);
      handle_next();
    });
  }

  boost::asio::signal_set signals_;
  std::function<void(int)> handle_;
  sigset_t mask_before_{};
};

}  // namespace parx::detail
