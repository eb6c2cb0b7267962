// row_ledger: defers the updates of an embedding's rows without a gradient until the rows are read.
// It keeps, for each row, the step up to which it is updated, and the rules of the recent steps.
//
// A row goes through exactly the same steps as without deferral, one after the other: its bits do
// not depend on when it is read. So one rank may save or evaluate in between and stay equal to the
// others, and a resumed run stays equal to an uninterrupted one. The gain is memory traffic: many
// steps of a row cost one pass over it.
// The rules of the last `capacity` steps are kept; every step also updates a few rows in turn, so
// that no row falls further behind.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/optim/detail/lanes.hpp>
#include <parx/types/prefetch.hpp>

namespace parx::inline PARX_ABI::optim::detail {

template <typename T, typename Rule>
class row_ledger final : public deferred_updates<T> {
 public:
  /// `state` are the state tensors of the value; it must outlive the ledger.
  row_ledger(parameter<T> owner, const std::vector<tensor<T>>& state)
      : owner_(std::move(owner)), state_(state), rows_(owner_.shape()[0]),
        width_(rows_ == 0 ? 0 : owner_.size() / rows_), updated_to_(rows_, 0) {}
  ~row_ledger() override { owner_.stop_deferring(this); }
  row_ledger(const row_ledger&) = delete;
  row_ledger& operator=(const row_ledger&) = delete;

  /// One step: rule.update() for the rows of `gradient`, rule.rest(), now or later, for all others.
  void step(const Rule& rule, const row_gradient<T>& gradient) {
    owner_.defer(this);
    const tensor<T>& value = owner_.value_at_rows({});  // the loop settles the rows one by one
    const auto update_rows = [&, this](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        const std::size_t row = gradient.rows[i];
        if (i + rows_ahead < last) {
          prefetch(value.data(), gradient.rows[i + rows_ahead]);
          prefetch(gradient.values.data(), gradient.rows[i + rows_ahead]);
          for (const tensor<T>& each : state_) prefetch(each.data(), gradient.rows[i + rows_ahead]);
        }
        settle_row(value, row);
        if (state_.empty()) {
          update<0>(rule, value, gradient.values, row);
        } else {
          update<Rule::states>(rule, value, gradient.values, row);
        }
        updated_to_[row] = now_ + 1;
      }
    };
    parallel_for(gradient.rows.size(), parx::rows_of_a_block(width_), update_rows);
    rules_[++now_ % capacity] = rule;
    is_settled_ = false;
    if (owner_.may_defer()) {
      for (std::size_t i = 0; i < (rows_ + capacity - 1) / capacity; ++i) {
        next_in_turn_ = next_in_turn_ + 1 < rows_ ? next_in_turn_ + 1 : 0;
        settle_row(value, next_in_turn_);
      }
    } else {
      settle(value);
    }
  }

  void settle(const tensor<T>& value) noexcept override {
    if (is_settled_) return;
    const std::size_t block = parx::rows_of_a_block(width_);
    parallel_for(rows_, block, [&, this](std::size_t row, std::size_t last) {
      for (; row < last; ++row) settle_row(value, row);
    });
    is_settled_ = true;
  }
  void settle(const tensor<T>& value, std::span<const std::size_t> rows) noexcept override {
    if (is_settled_) return;
    for (const std::size_t row : rows) settle_row(value, row);
  }

 private:
  static constexpr std::uint32_t capacity = 256;

  static constexpr std::size_t rows_ahead = 2;
  void prefetch(const T* table, std::size_t row) const noexcept {
    parx::detail::prefetch_row(table + row * width_, width_ * sizeof(T));
  }

  template <std::size_t States>
  void update(const Rule& rule, const tensor<T>& value, const tensor<T>& grad, std::size_t row) {
    update_lanes<States>(rule, value.data(), state_, grad.data(), row * width_, width_);
  }
  void settle_row(const tensor<T>& value, std::size_t row) noexcept {
    if (updated_to_[row] == now_) return;
    if (state_.empty()) {
      rest<0>(value, row);
    } else {
      rest<Rule::states>(value, row);
    }
    updated_to_[row] = now_;
  }
  template <std::size_t States>
  void rest(const tensor<T>& value, std::size_t row) noexcept {
    // The steps may wrap around the end of the ring buffer.
    const std::uint32_t first = updated_to_[row] + 1;
    const std::uint32_t count = now_ - updated_to_[row];
    const std::uint32_t begin = first % capacity;
    const std::uint32_t before_end = std::min(count, capacity - begin);
    const std::span<const Rule> all(rules_);
    for_each_lanes<States>(value.data(), state_, row * width_, width_,
                           [&](lanes<T>& w, state_lanes<T, States>& s, std::size_t) {
                             Rule::rest(w, s, all.subspan(begin, before_end));
                             if (before_end < count) {
                               Rule::rest(w, s, all.first(count - before_end));
                             }
                           });
  }

  parameter<T> owner_;
  const std::vector<tensor<T>>& state_;
  std::size_t rows_;
  std::size_t width_;
  std::array<Rule, capacity> rules_{};     // a ring buffer: step s is at s % capacity
  std::uint32_t now_ = 0;                  // steps so far; wraps around, like updated_to_
  std::vector<std::uint32_t> updated_to_;  // the step up to which each row is updated
  std::size_t next_in_turn_ = 0;
  bool is_settled_ = true;
};

}  // namespace parx::optim::detail
