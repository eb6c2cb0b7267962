// shared_rows: a table_sum for ranks that share memory.
//
// Beside its gradient each rank has a bit for every row, set if it touched that row. The union of
// all ranks' rows is divided among the ranks. Each rank adds up its part in place and writes the
// result to all ranks' gradients, as all_reduce does with dense gradients: nothing is packed, and
// each row is read once. Bits and rows are final when the counts have been gathered; a barrier at
// the end waits until all parts are written.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <parx/comm/collectives/barrier.hpp>
#include <parx/comm/shared_buffer.hpp>
#include <parx/ddp/bucket.hpp>
#include <parx/ddp/table_sum.hpp>
#include <parx/types/chunk.hpp>
#include <parx/types/prefetch.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

class shared_rows final : public table_sum {
 public:
  /// The size of the bit set of a gradient.
  [[nodiscard]] static std::size_t mark_bytes(const parameter_handle& parameter) noexcept {
    const std::size_t bytes = words_of(parameter) * sizeof(word);
    return (bytes + bucket_alignment - 1) / bucket_alignment * bucket_alignment;
  }

  /// The gradient is at `offset` of each rank's part of `memory`, which must outlive this object;
  /// the bit set follows the bucket.
  shared_rows(const shared_buffer<std::byte>& memory, std::size_t offset,
              std::unique_ptr<bucket_sum> whole, const gradient_bucket& bucket,
              process_group& group, step_headers& headers, reduction_order order, call_site site)
      : table_sum(std::move(whole), bucket, group, headers, order, site), words_(words_of(table_)),
        room_(bucket.plan.bytes), sum_of_row_(row_bytes_) {
    for (int rank = 0; rank < group.size(); ++rank) memory_.push_back(memory.of(rank) + offset);
  }

 private:
  void prepare() override {
    // The other ranks write only the rows of this step: clear those of earlier steps.
    if (!table_.has_grad()) gradient_.clear_rows();
    word* const marks = marks_of(group_.rank());
    std::memset(marks, 0, words_ * sizeof(word));
    if (const auto rows = gradient_.touched_rows()) {
      for (const std::size_t row : *rows) marks[row / word_bits] |= word{1} << (row % word_bits);
    }
  }
  void exchange(double factor) override {
    list_union();
    const std::size_t begin = chunk_begin(union_.size(), group_.size(), group_.rank());
    const std::size_t end = chunk_begin(union_.size(), group_.size(), group_.rank() + 1);
    const std::size_t width = row_bytes_ / size_of(table_.type());
    for (std::size_t i = begin; i < end; ++i) {
      if (i + rows_ahead < end) prefetch(union_[i + rows_ahead]);
      add_up(union_[i], width, factor);
    }
  }
  void complete() override {
    barrier(group_, {}, site_);
    (void)gradient_.add_rows(union_);
  }

  using word = std::uint64_t;
  static constexpr std::size_t word_bits = std::numeric_limits<word>::digits;

  [[nodiscard]] static std::size_t words_of(const parameter_handle& parameter) noexcept {
    return (parameter.rows() + word_bits - 1) / word_bits;
  }
  [[nodiscard]] std::byte* row_of(int rank, std::size_t row) const noexcept {
    return memory_[static_cast<std::size_t>(rank)] + row * row_bytes_;
  }
  [[nodiscard]] word* marks_of(int rank) const noexcept {
    return reinterpret_cast<word*>(memory_[static_cast<std::size_t>(rank)] + room_);
  }

  /// Sets union_ to the rows that any rank touched, ascending.
  void list_union() {
    union_.clear();
    for (std::size_t i = 0; i < words_; ++i) {
      word any = 0;
      for (int rank = 0; rank < group_.size(); ++rank) any |= marks_of(rank)[i];
      for (; any != 0; any &= any - 1) {
        union_.push_back(i * word_bits + static_cast<std::size_t>(std::countr_zero(any)));
      }
    }
  }

  static constexpr std::size_t rows_ahead = 4;
  void prefetch(std::size_t row) const noexcept {
    for (int rank = 0; rank < group_.size(); ++rank) prefetch_row(row_of(rank, row), row_bytes_);
  }
  void add_up(std::size_t row, std::size_t width, double factor) {
    bool is_first = true;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if ((marks_of(rank)[row / word_bits] >> (row % word_bits) & 1) == 0) continue;
      if (is_first) {
        std::memcpy(sum_of_row_.data(), row_of(rank, row), row_bytes_);
      } else {
        add_(sum_of_row_.data(), sum_of_row_.data(), row_of(rank, row), width);
      }
      is_first = false;
    }
    scale_(sum_of_row_.data(), width, factor);
    for (int rank = 0; rank < group_.size(); ++rank) {
      std::memcpy(row_of(rank, row), sum_of_row_.data(), row_bytes_);
    }
  }

  const std::size_t words_;
  const std::size_t room_;
  std::vector<std::byte*> memory_;  ///< by rank
  const reduce_function add_ = reduce_kernel(table_.type(), reduce_op::sum);
  const scale_function scale_ = scale_kernel(table_.type());
  std::vector<std::byte> sum_of_row_;
  std::vector<std::size_t> union_;
};

}  // namespace parx::detail
