// gathered_rows: a table_sum for any network.
//
// Rows and their indices are exchanged by all_gather, and each rank adds up the rows of all ranks.
// The cost is the bytes of all ranks' rows, so it pays while they are fewer than the table's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/ddp/table_sum.hpp>
#include <parx/reduction/rows/row_blocks.hpp>

namespace parx::inline PARX_ABI::detail {

class gathered_rows final : public table_sum {
 public:
  gathered_rows(std::unique_ptr<bucket_sum> whole, const gradient_bucket& bucket,
                process_group& group, step_headers& headers, reduction_order order, call_site site)
      : table_sum(std::move(whole), bucket, group, headers, order, site),
        block_bytes_(counts_.size()),
        adder_(table_.rows(), table_.count() / table_.rows(), table_.type()) {}
  ~gathered_rows() override { drop(); }  // the exchange uses memory that is destroyed first

 private:
  /// Sends the rows, if any rank has some.
  void exchange(double factor) override {
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
      const auto* const from = static_cast<const std::byte*>(gradient_.add_rows({}));
      pack_rows(own.data(), from, *gradient_.touched_rows(), row_bytes_);
    }
    sum_ = async_all_gather_v(group_, own, std::span(received_.data(), total), block_bytes_,
                              {}, site_);
  }
  void complete() override {
    sum_.wait();
    const auto checked = [&](std::size_t rank, std::uint32_t row) -> std::size_t {
      if (row < table_.rows()) return row;
      throw_error(errc::bad_data, "rank {} sent row {} of \"{}\", which has {} rows", rank, row,
                  table_.name(), table_.rows());
    };
    adder_.add_up(received_.data(), counts_, block_bytes_, factor_, checked,
                  [&](std::span<const std::size_t> rows) {
                    return static_cast<std::byte*>(gradient_.add_rows(rows));
                  });
  }

  /// Of a rank's block, padded to a multiple of 8.
  [[nodiscard]] std::size_t bytes_of(std::uint64_t rows) const noexcept {
    return (rows * (row_bytes_ + sizeof(std::uint32_t)) + 7) / 8 * 8;
  }

  double factor_ = 1;
  std::vector<std::size_t> block_bytes_;
  std::vector<std::byte> received_;
  row_adder adder_;
};

}  // namespace parx::detail
