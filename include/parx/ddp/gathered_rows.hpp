// gathered_rows: a row_exchange for any network.
//
// Rows and their indices are exchanged by all_gather, and each rank adds up the rows of all ranks.
// The cost is the bytes of all ranks' rows, so it pays while they are fewer than the table's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/ddp/row_exchange.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

class gathered_rows final : public row_exchange {
 public:
  gathered_rows(process_group& group, const parameter_handle& parameter, call_site site)
      : row_exchange(group, parameter, site), block_bytes_(counts_.size()),
        seen_(parameter.rows(), 0) {}

  /// Sends the rows, if any rank has some.
  void start(double factor) override {
    factor_ = factor;
    std::size_t begin = 0, total = 0;
    for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
      block_bytes_[rank] = bytes_of(counts_[rank]);
      if (rank < static_cast<std::size_t>(group_.rank())) begin += block_bytes_[rank];
      total += block_bytes_[rank];
    }
    if (total == 0) return;
    if (received_.size() < total) received_.resize(total + total / 2);
    const std::span<std::byte> own(received_.data() + begin, bytes_of(own_count_));
    if (own_count_ != 0) {
      const auto rows = *gradient_.touched_rows();
      const auto* const from = static_cast<const std::byte*>(gradient_.add_rows({}));
      std::byte* to = own.data();
      for (const std::size_t row : rows) {
        std::memcpy(to, from + row * row_bytes_, row_bytes_);
        to += row_bytes_;
      }
      for (const std::size_t row : rows) {
        const auto number = static_cast<std::uint32_t>(row);
        std::memcpy(to, &number, sizeof(number));
        to += sizeof(number);
      }
    }
    exchange_ = async_all_gather_v(group_, own, std::span(received_.data(), total), block_bytes_,
                                   {}, site_);
  }
  void finish() override {
    exchange_.wait();
    union_.clear();
    for_each_row([&](std::size_t row, const std::byte*) {
      if (seen_[row] == 0) union_.push_back(row);
      seen_[row] = listed;
    });
    auto* const memory = static_cast<std::byte*>(gradient_.add_rows(union_));
    const std::size_t width = row_bytes_ / size_of(parameter_.type());
    const reduce_function add = reduce_kernel(parameter_.type(), reduce_op::sum);
    for_each_row([&](std::size_t row, const std::byte* values) {
      std::byte* const sum = memory + row * row_bytes_;
      if (std::exchange(seen_[row], summed) == summed) {
        add(sum, sum, values, width);
      } else {
        std::memcpy(sum, values, row_bytes_);
      }
    });
    const scale_function scale = scale_kernel(parameter_.type());
    for (const std::size_t row : union_) {
      scale(memory + row * row_bytes_, width, factor_);
      seen_[row] = 0;
    }
  }
  void settle() noexcept override {
    row_exchange::settle();
    exchange_ = {};
  }

 private:
  static constexpr unsigned char listed = 1, summed = 2;

  /// A rank's block: the values of its rows, then their indices, padded to a multiple of 8 bytes.
  [[nodiscard]] std::size_t bytes_of(std::uint64_t rows) const noexcept {
    return (rows * (row_bytes_ + sizeof(std::uint32_t)) + 7) / 8 * 8;
  }
  /// f(row, values) for all ranks' rows, in rank order.
  template <typename F>
  void for_each_row(F&& f) const {
    const std::byte* block = received_.data();
    for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
      const std::byte* const numbers = block + counts_[rank] * row_bytes_;
      for (std::size_t i = 0; i < counts_[rank]; ++i) {
        std::uint32_t row = 0;
        std::memcpy(&row, numbers + i * sizeof(row), sizeof(row));
        if (row >= parameter_.rows()) {
          throw_error(errc::bad_data, "rank {} sent row {} of \"{}\", which has {} rows", rank, row,
                      parameter_.name(), parameter_.rows());
        }
        f(row, block + i * row_bytes_);
      }
      block += block_bytes_[rank];
    }
  }

  double factor_ = 1;
  std::vector<std::size_t> block_bytes_;
  std::vector<std::byte> received_;
  std::vector<std::size_t> union_;
  std::vector<unsigned char> seen_;  ///< by row of the table; zero between two exchanges
  work exchange_;                    // destroyed, and so waited for, before the memory it uses
};

}  // namespace parx::detail
