// Definitions of row_traffic.hpp.
#pragma once

#include <numeric>

#include <parx/fsdp/row_traffic.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE row_traffic::row_traffic(process_group& fetching, process_group& summing,
                                     std::vector<std::size_t> part_of, std::string name,
                                     std::size_t rows, std::size_t width, dtype type,
                                     call_site site)
    : fetching_(fetching),
      summing_(summing),
      part_of_(std::move(part_of)),
      site_(site),
      name_(std::move(name)),
      cut_{rows, static_cast<std::size_t>(fetching.size())},
      own_begin_(cut_.begin(static_cast<std::size_t>(fetching.rank()))),
      own_end_(cut_.begin(static_cast<std::size_t>(fetching.rank()) + 1)),
      width_(width),
      row_bytes_(width * size_of(type)),
      add_(reduce_kernel(type, reduce_op::sum)),
      scale_(scale_kernel(type)),
      wanted_(rows),
      arrived_(own_end_ - own_begin_),
      has_sum_(own_end_ - own_begin_, 0),
      of_part_(cut_.ranks) {}

PARX_INLINE void row_traffic::announce(std::span<const std::size_t> ascending) {
  rows_.assign(ascending.begin(), ascending.end());
  cut_.count_owned(rows_, of_part_);
  outgoing_.clear();
  for (const std::size_t part : part_of_) outgoing_.push_back(of_part_[part]);
  incoming_.resize(part_of_.size());
  counting_ = async_all_to_all(summing_, outgoing_, incoming_, {}, site_);
}

PARX_INLINE void row_traffic::start(const std::byte* gradient) {
  counting_.wait();
  const std::size_t with_number = row_bytes_ + sizeof(std::uint32_t);
  sent_.resize(to_sizes(outgoing_, with_number, send_sizes_));
  received_.resize(to_sizes(incoming_, with_number, receive_sizes_));
  std::byte* to = sent_.data();
  for (const std::size_t part : part_of_) {
    const auto before = std::accumulate(
        of_part_.begin(), of_part_.begin() + static_cast<std::ptrdiff_t>(part), std::size_t{0});
    const auto rows = std::span<const std::size_t>(rows_).subspan(before, of_part_[part]);
    for (const std::size_t row : rows) {
      std::memcpy(to, gradient + row * row_bytes_, row_bytes_);
      to += row_bytes_;
    }
    for (const std::size_t row : rows) {
      const auto number = static_cast<std::uint32_t>(row);
      std::memcpy(to, &number, sizeof number);
      to += sizeof number;
    }
  }
  exchange_ =
      async_all_to_all_v(summing_, sent_, send_sizes_, received_, receive_sizes_, {}, site_);
}

PARX_INLINE std::size_t row_traffic::to_sizes(std::span<const std::uint32_t> counts,
                                              std::size_t unit, std::vector<std::size_t>& sizes) {
  sizes.clear();
  std::size_t sum = 0;
  for (const std::uint32_t count : counts) sum += sizes.emplace_back(count * unit);
  return sum;
}

PARX_INLINE std::size_t row_traffic::own_index(std::uint32_t row) const {
  if (row < own_begin_ || row >= own_end_) {
    throw_error(errc::bad_data, "row {} of table \"{}\" came to rank {}, which has {} to {}", row,
                name_, fetching_.rank(), own_begin_, own_end_);
  }
  return row - own_begin_;
}

}  // namespace parx::detail
