// no_grad: while one lives, operations on this thread record nothing for backward.
//
//   { const no_grad guard; auto predictions = model(x); }
#pragma once

#include <utility>

namespace parx {

namespace detail {
inline bool& recording() noexcept {
  thread_local bool on = true;
  return on;
}
}  // namespace detail

/// A scope of this thread. Scopes nest.
class no_grad {
 public:
  no_grad() noexcept : outer_(std::exchange(detail::recording(), false)) {}
  ~no_grad() { detail::recording() = outer_; }
  no_grad(const no_grad&) = delete;
  no_grad& operator=(const no_grad&) = delete;

 private:
  bool outer_;
};

}  // namespace parx
