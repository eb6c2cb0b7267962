// leaf: the node of a parameter. Its gradient outlives backward, adds up over several of them until
// zero_grad, and may be in memory that something else owns (a DDP bucket).
//
// zero_grad flips a flag: the next contribution overwrites. An embedding contributes to few rows;
// the leaf then keeps track of the rows that are not zero, so that neither zeroing nor the
// optimizer has to touch the others. It stops tracking once something else may have written there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/detail/node.hpp>
#include <parx/autograd/gradient_axis.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI::detail {

template <typename T>
class leaf final : public node<T> {
 public:
  explicit leaf(const parx::shape& s) : node<T>(true, s) {}

  [[nodiscard]] bool has_gradient() const noexcept override { return written_; }
  /// The gradient, for the caller to read or write.
  [[nodiscard]] tensor<T> open_gradient() noexcept {
    if (!written_) return {};
    forget_rows();
    return this->gradient;
  }
  void zero() noexcept {
    clipped_at = {};
    written_ = false;
    only_rows_ = true;
  }
  /// Something other than an operation wrote the gradient memory.
  void assume_written() {
    ensure_memory();
    clipped_at = {};
    written_ = true;
    forget_rows();
  }
  void bind(std::span<T> memory) {
    tensor<T> bound = tensor<T>::wrap(memory, this->shape());
    if (written_) bound.copy_from(this->gradient);
    this->gradient = std::move(bound);
    zero_outside_rows_ = false;
  }
  /// Drops the gradient and keeps the next one in `memory`, which is all zero: rows that get no
  /// contribution are not written.
  void bind_zeroed(std::span<T> memory) {
    this->gradient = tensor<T>::wrap(memory, this->shape());
    zero();
    start_rows();
  }
  /// For destructors: where there is no memory for a copy, the gradient is dropped.
  void unbind() noexcept {
    if (!this->gradient.defined()) return;
    try {
      this->gradient = written_ ? this->gradient.clone() : tensor<T>();
    } catch (const std::bad_alloc&) {
      this->gradient = tensor<T>();
      zero();
    }
    zero_outside_rows_ = false;
  }
  /// The rows with contributions since zero(), ascending; nullopt after a dense contribution.
  [[nodiscard]] std::optional<std::span<const std::size_t>> rows() {
    if (!written_ || !only_rows_) return std::nullopt;
    sort_rows();
    return std::span<const std::size_t>(rows_);
  }

  [[nodiscard]] gradient_memory<T> memory() override {
    ensure_memory();
    clipped_at = {};
    forget_rows();
    return {this->gradient, std::exchange(written_, true)};
  }
  void accept(tensor<T> contribution) override {
    const gradient_memory<T> target = memory();
    if (target.add) {
      node<T>::add_into(target.values, contribution);
    } else {
      target.values.copy_from(contribution);
    }
  }
  [[nodiscard]] tensor<T> row_memory(std::span<const std::size_t> rows) override {
    ensure_memory();
    clipped_at = {};
    if (!written_) {
      clear();
      written_ = true;
      only_rows_ = true;
    }
    // After a dense contribution nothing needs the rows, and clear() must not rely on them.
    if (only_rows_) note(rows);
    return this->gradient;
  }
  /// Makes the memory of an absent gradient zero: see parameter::clear_rows.
  void clear_absent() {
    ensure_memory();
    if (!written_) clear();
  }
  void complete() override {
    if (!written_) (void)row_memory({});
  }
  /// Keeps track of the rows: zero rows stay zero.
  void scale_gradient(double factor) override {
    if (!written_) return;
    T* const values = this->gradient.data();
    for_each_element(this->gradient.size(), [=](std::size_t i) {
      values[i] = static_cast<T>(static_cast<double>(values[i]) * factor);
    });
  }
  void introduce_to(backward_observer& watcher) const override {
    if (!name.empty()) watcher.unobserved(name, {this->shape().begin(), this->shape().end()});
  }
  [[nodiscard]] std::string_view label() const noexcept override { return name; }
  void drop_gradient() noexcept override {}
  [[nodiscard]] bool gradient_is_finite() const override {
    return !written_ || node<T>::gradient_is_finite();
  }

  std::string name;
  shard_spec spec;              // of a parameter: the part of it on this rank
  std::string reduction_group;  // see parameter::reduce_over
  bool expects_rows = false;    // see parameter::expect_row_grad
  bool stays = false;           // see parameter::stay_in
  bool is_without_decay = false;  // see parameter::exempt_from_decay
  bool is_table = false;          // see parameter::mark_table
  gradient_places places;       // see parameter::places
  call_site clipped_at;         // see parameter::note_clipped

 private:
  void ensure_memory() {
    if (!this->gradient.defined()) this->gradient = tensor<T>::empty(this->shape());
  }
  void forget_rows() noexcept {
    only_rows_ = false;
    zero_outside_rows_ = false;
  }
  [[nodiscard]] std::size_t row_size() const noexcept {
    const std::size_t rows = this->shape().rank() == 0 ? 1 : this->shape()[0];
    return rows == 0 ? 0 : this->shape().size() / rows;
  }
  void clear() {
    if (zero_outside_rows_) {
      for (const std::size_t row : rows_) {
        std::fill_n(this->gradient.data() + row * row_size(), row_size(), T(0));
      }
    } else {
      std::fill_n(this->gradient.data(), this->gradient.size(), T(0));
    }
    start_rows();
  }
  /// Starts to keep track of rows, in memory that is all zero.
  void start_rows() noexcept {
    for (const std::size_t row : rows_) noted_[row] = 0;
    rows_.clear();
    are_sorted_ = true;
    zero_outside_rows_ = true;
  }
  void note(std::span<const std::size_t> rows) {
    if (noted_.empty() && !rows.empty()) noted_.resize(this->shape()[0], 0);
    for (const std::size_t row : rows) {
      if (std::exchange(noted_[row], std::uint8_t{1}) != 0) continue;
      are_sorted_ &= rows_.empty() || rows_.back() < row;
      rows_.push_back(row);
    }
  }
  void sort_rows() {
    if (std::exchange(are_sorted_, true)) return;
    // For many rows one pass over noted_, which is in ascending order, is faster than sorting.
    if (rows_.size() < noted_.size() / 64) return std::sort(rows_.begin(), rows_.end());
    rows_.clear();
    for (std::size_t row = 0; row < noted_.size(); ++row) {
      if (noted_[row] != 0) rows_.push_back(row);
    }
  }

  bool written_ = false;            // the memory holds a gradient: contributions add
  bool only_rows_ = true;           // since zero(), only rows_ got contributions
  bool zero_outside_rows_ = false;  // the memory is zero outside rows_
  std::vector<std::size_t> rows_;
  std::vector<std::uint8_t> noted_;  // of each row of the table: whether it is in rows_
  bool are_sorted_ = true;
};

}  // namespace parx::detail
