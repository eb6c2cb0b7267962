// job_store: the store of a job, as its ranks ask it: until they leave, and without waiting for one
// that does not answer.
//
// Threads: safe from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI::detail {

class job_store {
 public:
  explicit job_store(std::shared_ptr<store> all) : store_(std::move(all)) {}

  /// Null once the store was released.
  [[nodiscard]] std::shared_ptr<store> get() const {
    const std::lock_guard lock(mutex_);
    return store_;
  }
  /// Throws errc::closed once the store was released.
  [[nodiscard]] std::shared_ptr<store> require() const {
    auto found = get();
    if (found == nullptr) throw_error(errc::closed, "this process has left the job");
    return found;
  }
  /// The store, which may end from now on; null from the second call on.
  [[nodiscard]] std::shared_ptr<store> release() {
    const std::lock_guard lock(mutex_);
    return std::exchange(store_, nullptr);
  }

  /// Calls request(), which asks the store; false where it fails. Notes a store that does not
  /// answer, see is_silent().
  template <typename Request>
  [[gnu::cold]] bool is_answered(Request request) noexcept {
    try {
      request();
      note_answer();
      return true;
    } catch (const error& failure) {
      if (failure.code_value() == errc::timeout) {
        last_unanswered_.store(clock::now().time_since_epoch().count(), std::memory_order_relaxed);
      }
    } catch (const std::exception&) {
    }
    return false;
  }
  /// Calls ask(store, limit) for information that only improves a message; false where it fails. A
  /// store that does not answer (its process may be stopped) is not asked again for a while,
  /// because each question of a message would wait for the whole timeout.
  template <typename Ask>
  bool ask_for_diagnosis(Ask ask) {
    const auto asked = get();
    if (asked == nullptr || is_silent()) return false;
    return is_answered([&] { ask(*asked, deadline::after(std::chrono::milliseconds(800))); });
  }
  /// The store has answered: it is silent no more. For one who asks it past this class and waits
  /// for it longer.
  void note_answer() noexcept { last_unanswered_.store(0, std::memory_order_relaxed); }
  [[nodiscard]] bool is_silent() const noexcept {
    static constexpr std::chrono::seconds respite{10};
    const auto last = last_unanswered_.load(std::memory_order_relaxed);
    return last != 0 && clock::now() < clock::time_point(clock::duration(last)) + respite;
  }
  /// For this rank's last requests to the store, whose process may be stopped.
  [[nodiscard]] deadline parting_deadline() const {
    return deadline::after(std::chrono::milliseconds(is_silent() ? 100 : 700));
  }

 private:
  using clock = std::chrono::steady_clock;

  mutable std::mutex mutex_;
  std::shared_ptr<store> store_;
  std::atomic<clock::rep> last_unanswered_{0};  ///< when the store last did not answer; 0: never
};

}  // namespace parx::detail
