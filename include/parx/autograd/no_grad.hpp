// no_grad: a scope in which operations on this thread record nothing for backward.
//
//   { const no_grad guard; auto predictions = model(x); }
#pragma once

#include <utility>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

namespace detail {
inline bool& recording() noexcept {
  thread_local bool on = true;
  return on;
}

/// Where operations report the variables that they use while nothing is recorded, for recomputation
/// (recompute.hpp); null: nowhere.
struct used_nodes;
inline used_nodes*& uses_reported_to() noexcept {
  thread_local used_nodes* to = nullptr;
  return to;
}

class recording_scope {
 public:
  recording_scope(bool on, used_nodes* report_to) noexcept
      : outer_(std::exchange(recording(), on)),
        outer_report_(std::exchange(uses_reported_to(), report_to)) {}
  ~recording_scope() {
    recording() = outer_;
    uses_reported_to() = outer_report_;
  }
  recording_scope(const recording_scope&) = delete;
  recording_scope& operator=(const recording_scope&) = delete;

 private:
  bool outer_;
  used_nodes* outer_report_;
};
}  // namespace detail

/// Whether operations on this thread record for backward, as torch.is_grad_enabled().
[[nodiscard]] inline bool is_grad_enabled() noexcept { return detail::recording(); }
/// Whether a backward pass can come to the operations that this thread runs now: they are recorded,
/// or will be when they are computed again (recompute.hpp).
[[nodiscard]] inline bool is_followed_by_backward() noexcept {
  return detail::recording() || detail::uses_reported_to() != nullptr;
}

/// A scope of this thread. Scopes nest.
class [[nodiscard]] no_grad : detail::recording_scope {
 public:
  no_grad() noexcept : recording_scope(false, nullptr) {}
};

/// A scope within no_grad in which operations on this thread record again.
class [[nodiscard]] enable_grad : detail::recording_scope {
 public:
  enable_grad() noexcept : recording_scope(true, nullptr) {}
};

}  // namespace parx
