// node_drain: the end of a generation on its node. Its ranks have ended; nothing that they have
// started is left, and all that they wrote is passed on, before anybody hears of it. One thread,
// that of its io_context.
#pragma once

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "tools/parxrun/ranks/after.hpp"
#include "tools/parxrun/ranks/node_ranks.hpp"
#include "tools/parxrun/ranks/orphans.hpp"
#include <parx/core/deadline.hpp>

namespace parx::inline PARX_ABI::detail {

/// What is said of processes that the ranks have left behind.
enum class leftovers { told, untold };

class node_drain {
 public:
  explicit node_drain(rank_surroundings& around) : around_(around), timer_(around.io) {}

  /// Calls `done` once `ranks`, which have ended and outlive this, are drained.
  void start(node_ranks& ranks, leftovers words, std::function<void()> done) {
    ranks_ = &ranks;
    done_ = std::move(done);
    limit_ = deadline::after(words == leftovers::told ? patience : patience.zero());
    await_orphans(words);
  }
  /// The reader of the output is not waited for any more.
  void give_up_on_output() noexcept { gave_up_ = true; }

 private:
  static constexpr std::chrono::milliseconds patience{1'000};
  static constexpr std::chrono::milliseconds pause{2};

  /// A script that starts its program in the background and does not wait for it ends the job by
  /// that. What ends by itself within a moment (a `tee` of the rank's output) is no matter.
  void await_orphans(leftovers words) {
    const std::vector<pid_t> left = around_.left_behind.left();
    if (!left.empty() && !limit_.passed()) {
      return after(pause, timer_, [this, words] { await_orphans(words); });
    }
    if (!left.empty() && words == leftovers::told) {
      around_.output.queue(stream::err).add(orphans_text(left));
    }
    ranks_->kill_and_reap();
    around_.left_behind.kill();
    // A process of another user, which cannot be killed, may keep a pipe open forever.
    limit_ = deadline::after(patience);
    await_output();
  }
  void await_output() {
    // Output that waits for a slow reader is never dropped.
    const bool is_over = limit_.passed() && around_.output.empty();
    if (!ranks_->output_closed() && !is_over && !gave_up_) {
      return after(pause, timer_, [this] { await_output(); });
    }
    ranks_->close_output();
    ranks_->flush();
    done_();
  }

  rank_surroundings& around_;
  boost::asio::steady_timer timer_;
  node_ranks* ranks_ = nullptr;
  std::function<void()> done_;
  deadline limit_ = deadline::unset();
  bool gave_up_ = false;
};

}  // namespace parx::detail
