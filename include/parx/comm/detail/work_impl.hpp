// Definitions of work.hpp.
#pragma once

#include <utility>

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm/work.hpp>
#include <parx/core/stopped.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE work::work() = default;
PARX_INLINE work::work(std::shared_ptr<detail::group_core> group,
                       std::unique_ptr<detail::call> request)
    : group_(std::move(group)), request_(std::move(request)) {}
PARX_INLINE work::work(work&&) noexcept = default;
PARX_INLINE work& work::operator=(work&& other) noexcept {
  if (this != &other) {
    settle();
    group_ = std::move(other.group_);
    source_rank_ = other.source_rank_;
    exceptions_ = other.exceptions_;
    request_ = std::move(other.request_);
  }
  return *this;
}
PARX_INLINE work::~work() { settle(); }

PARX_INLINE void work::wait() {
  if (request_ == nullptr) return;
  group_->require_here();
  wait_for_end();
  const auto finished = std::move(request_);
  source_rank_ = finished->peer;
  finished->rethrow();
}

PARX_INLINE bool work::test() {
  if (request_ == nullptr) return true;
  group_->require_here();
  return group_->progress().test(*request_);
}

PARX_INLINE void work::settle() noexcept {
  // A forked process makes no progress on the call, and nothing writes to its buffer.
  if (request_ != nullptr && group_->is_here()) wait_for_end();
  request_ = nullptr;
}

PARX_INLINE void work::wait_for_end() noexcept {
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  if (unwinding && !stopped_by_signal::is_thrown()) {
    group_->progress().wait_in_unwinding(*request_);
  } else {
    group_->progress().wait(*request_);
  }
}

}  // namespace parx
