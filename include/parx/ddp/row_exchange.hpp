// row_exchange: the gradient of an embedding on its way between ranks: the rows that they touched, or
// all of it when that is less.
//
// A batch touches a thousand of 30522 rows, and rows of different ranks differ. The ranks tell each
// other how many they have; from these numbers, which all of them know, follows what all of them do
// next. Rows travel by all_gather and are added up in rank order by everybody: the same bits.
// What this costs is the bytes of all ranks' rows, so it pays while they are less than the table.
// Threads: on the thread that runs backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/core/error.hpp>
#include <parx/ddp/module.hpp>
#include <parx/types/reduce.hpp>

namespace parx::detail {

/// Whether ranks with `counts` rows of `row_bytes` each should exchange these instead of all `bytes`
/// of the table. A count of all_rows stands for a gradient that is not row-sparse.
inline constexpr std::uint64_t all_rows = std::numeric_limits<std::uint64_t>::max();
[[nodiscard]] inline bool rows_are_cheaper(std::span<const std::uint64_t> counts,
                                           std::size_t row_bytes, std::size_t bytes) {
  // Every rank receives all rows of the others once, where a dense sum takes its table twice; the
  // rest pays for adding them up.
  std::size_t total = 0;
  for (const std::uint64_t count : counts) {
    if (count == all_rows) return false;
    total += count;
  }
  return total * (row_bytes + sizeof(std::uint32_t)) < bytes;
}

class row_exchange {
 public:
  /// Whether a gradient is worth an exchange of its own.
  [[nodiscard]] static bool suits(const parameter_slot& parameter) noexcept {
    return parameter.expects_rows && parameter.bytes() >= least_bytes &&
           parameter.rows <= std::numeric_limits<std::uint32_t>::max();
  }

  row_exchange(process_group& group, const parameter_slot& parameter, call_site site)
      : group_(group), parameter_(parameter), site_(site),
        row_bytes_(parameter.bytes() / parameter.rows),
        counts_(static_cast<std::size_t>(group.size())), block_bytes_(counts_.size()),
        seen_(parameter.rows, 0) {}
  row_exchange(const row_exchange&) = delete;
  row_exchange& operator=(const row_exchange&) = delete;

  /// Collective, asynchronous: tells how many rows this rank has; its gradient is final.
  void announce() {
    const auto mine = parameter_.touched_rows();
    own_count_ = !parameter_.has_grad() ? 0 : mine ? mine->size() : all_rows;
    counting_ = async_all_gather(group_, std::span(&own_count_, 1), counts_, {}, site_);
  }
  /// Blocks until all ranks have told; the answer is the same on all.
  [[nodiscard]] bool is_cheaper() {
    counting_.wait();
    return rows_are_cheaper(counts_, row_bytes_, parameter_.bytes());
  }
  /// Collective, asynchronous: sends the rows, if anybody has some.
  void send() {
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
      const auto rows = *parameter_.touched_rows();
      const auto* const from = static_cast<const std::byte*>(parameter_.add_rows({}));
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
  /// Blocks until the rows are here, and makes the gradient their sum times `factor`. All ranks then
  /// have touched the rows of all of them.
  void finish(double factor) {
    exchange_.wait();
    union_.clear();
    for_each_row([&](std::size_t row, const std::byte*) {
      if (seen_[row] == 0) union_.push_back(row);
      seen_[row] = listed;
    });
    auto* const memory = static_cast<std::byte*>(parameter_.add_rows(union_));
    const std::size_t width = row_bytes_ / size_of(parameter_.type);
    const reduce_function add = reduce_kernel(parameter_.type, reduce_op::sum);
    for_each_row([&](std::size_t row, const std::byte* values) {
      std::byte* const sum = memory + row * row_bytes_;
      if (std::exchange(seen_[row], summed) == summed) {
        add(sum, sum, values, width);
      } else {
        std::memcpy(sum, values, row_bytes_);
      }
    });
    const scale_function scale = scale_kernel(parameter_.type);
    for (const std::size_t row : union_) {
      scale(memory + row * row_bytes_, width, factor);
      seen_[row] = 0;
    }
  }
  /// Blocks while operations still use this object's memory.
  void settle() noexcept {
    counting_ = {};
    exchange_ = {};
  }

 private:
  static constexpr std::size_t least_bytes = std::size_t{1} << 18;
  static constexpr unsigned char listed = 1, summed = 2;

  /// A block holds the values of the rows, then their numbers, and ends aligned for what follows.
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
        if (row >= parameter_.rows) {
          throw_error(errc::bad_data, "rank {} sent row {} of \"{}\", which has {} rows", rank, row,
                      parameter_.name, parameter_.rows);
        }
        f(row, block + i * row_bytes_);
      }
      block += block_bytes_[rank];
    }
  }

  process_group& group_;
  const parameter_slot& parameter_;
  const call_site site_;
  const std::size_t row_bytes_;
  std::uint64_t own_count_ = 0;
  std::vector<std::uint64_t> counts_;  ///< of rows, by rank
  std::vector<std::size_t> block_bytes_;
  std::vector<std::byte> received_;
  std::vector<std::size_t> union_;
  std::vector<unsigned char> seen_;  ///< of each row of the table; zero between two calls
  work counting_, exchange_;         // destroyed, and so waited for, before the memory they use
};

}  // namespace parx::detail
