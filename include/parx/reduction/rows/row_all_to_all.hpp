// row_all_to_all: sends rows of a table between the ranks that use them and the ranks that own
// them, by all_to_all_v, independent of the element type.
//
// Values: every rank tells the owners which rows it needs, and the owners answer. Gradients: every
// rank sends its rows to their owners, which add them up in rank order. So only the rows of the
// batch are sent, each with its number. With hybrid sharding a row has an owner in each replica of
// the table, and its gradient goes to all of them, so their sums are equal.
// Threads: the one that runs forward and backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/core/error.hpp>
#include <parx/reduction/rows/row_blocks.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI::detail {

/// A table cut over ranks into consecutive blocks of equally many rows.
struct equal_row_blocks {
  std::size_t rows = 0;
  std::size_t ranks = 1;

  [[nodiscard]] std::size_t begin(std::size_t rank) const noexcept {
    return std::min(rank * ((rows + ranks - 1) / ranks), rows);
  }
  [[nodiscard]] std::size_t count(std::size_t rank) const noexcept {
    return begin(rank + 1) - begin(rank);
  }
  /// How many of `ascending` rows each rank has.
  void count_owned(std::span<const std::size_t> ascending, std::span<std::uint32_t> counts) const {
    auto next = ascending.begin();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto end = std::lower_bound(next, ascending.end(), begin(rank + 1));
      counts[rank] = static_cast<std::uint32_t>(end - next);
      next = end;
    }
  }
};

class row_all_to_all {
 public:
  /// Values go over `fetching`, the ranks over which the table is cut; gradients over `summing`,
  /// whose rank i has part part_of[i]. The groups are borrowed. `name` is the table's, for errors;
  /// `tag` its number among what goes over `fetching`.
  row_all_to_all(process_group& fetching, process_group& summing, std::vector<std::size_t> part_of,
                 std::string name, std::size_t rows, std::size_t width, dtype type, int tag,
                 call_site site);

  [[nodiscard]] const equal_row_blocks& cut() const noexcept { return cut_; }
  /// The rows of this rank.
  [[nodiscard]] std::size_t own_begin() const noexcept { return own_begin_; }
  [[nodiscard]] std::size_t own_end() const noexcept { return own_end_; }

  /// Collective, blocking: copies `rows` of the table, in any order and with repetitions, to their
  /// places in `table`. `own(rows)` brings these rows of this rank's part up to date (counted from
  /// own_begin()) and returns the part. Returns the number of different rows.
  template <typename Own>
  std::size_t fetch(std::byte* table, std::span<const std::size_t> rows, Own&& own) {
    for (const std::size_t row : rows) wanted_.insert(row);
    wanted_.take(rows_);
    outgoing_.resize(cut_.ranks);
    incoming_.resize(cut_.ranks);
    cut_.count_owned(rows_, outgoing_);
    all_to_all(fetching_, outgoing_, incoming_, {.tag = tag_}, site_);
    numbers_.assign(rows_.begin(), rows_.end());
    to_sizes(outgoing_, 1, send_sizes_);
    asked_.resize(to_sizes(incoming_, 1, receive_sizes_));
    all_to_all_v(fetching_, numbers_, send_sizes_, asked_, receive_sizes_, {.tag = tag_}, site_);

    answered_.clear();
    for (const std::uint32_t row : asked_) answered_.push_back(own_index(row));
    const std::byte* const from = own(std::span<const std::size_t>(answered_));
    sent_.resize(to_sizes(incoming_, row_bytes_, send_sizes_));
    received_.resize(to_sizes(outgoing_, row_bytes_, receive_sizes_));
    for (std::size_t i = 0; i < answered_.size(); ++i) {
      std::memcpy(sent_.data() + i * row_bytes_, from + answered_[i] * row_bytes_, row_bytes_);
    }
    all_to_all_v(fetching_, sent_, send_sizes_, received_, receive_sizes_, {.tag = tag_}, site_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      std::memcpy(table + rows_[i] * row_bytes_, received_.data() + i * row_bytes_, row_bytes_);
    }
    return rows_.size();
  }

  /// Collective, asynchronous: tells the owners how many rows of a gradient they will get.
  void announce(std::span<const std::size_t> ascending) {
    rows_.assign(ascending.begin(), ascending.end());
    cut_.count_owned(rows_, of_part_);
    outgoing_.clear();
    for (const std::size_t part : part_of_) outgoing_.push_back(of_part_[part]);
    incoming_.resize(part_of_.size());
    counting_ = async_all_to_all(summing_, outgoing_, incoming_, {}, site_);
  }
  /// Collective: blocks until all ranks have announced, then sends the announced rows of
  /// `gradient`, which is that of the whole table. No fetch may run between announce() and
  /// add_up().
  void start(const std::byte* gradient);
  /// Blocks until the rows have arrived, and writes their sums, times `factor`, to the memory that
  /// place(rows) returns for this rank's part; rows are counted from own_begin().
  template <typename Place>
  void add_up(double factor, Place&& place) {
    exchange_.wait();
    adder_.add_up(received_.data(), incoming_, receive_sizes_, factor,
                  [&](std::size_t /*rank*/, std::uint32_t row) { return own_index(row); },
                  std::forward<Place>(place));
  }

  /// Blocks while operations still use this object's memory.
  void wait() noexcept {
    counting_ = {};
    exchange_ = {};
  }

 private:
  /// sizes[i] = counts[i] * unit; returns their sum.
  static std::size_t to_sizes(std::span<const std::uint32_t> counts, std::size_t unit,
                              std::vector<std::size_t>& sizes) {
    sizes.clear();
    std::size_t sum = 0;
    for (const std::uint32_t count : counts) sum += sizes.emplace_back(count * unit);
    return sum;
  }
  [[nodiscard]] std::size_t own_index(std::uint32_t row) const {
    if (row < own_begin_ || row >= own_end_) {
      throw_error(errc::bad_data, "row {} of table \"{}\" came to rank {}, which has {} to {}", row,
                  name_, fetching_.rank(), own_begin_, own_end_);
    }
    return row - own_begin_;
  }
  process_group& fetching_;
  process_group& summing_;
  const std::vector<std::size_t> part_of_;
  const call_site site_;
  const int tag_;
  const std::string name_;
  const equal_row_blocks cut_;
  const std::size_t own_begin_, own_end_;
  const std::size_t row_bytes_;
  row_set wanted_;
  row_adder adder_;
  std::vector<std::uint32_t> of_part_;  ///< announced rows, by part
  std::vector<std::uint32_t> outgoing_, incoming_;  ///< numbers of rows, by rank
  std::vector<std::size_t> send_sizes_, receive_sizes_;
  std::vector<std::size_t> rows_, answered_;
  std::vector<std::uint32_t> numbers_, asked_;
  std::vector<std::byte> sent_, received_;
  work counting_, exchange_;  // last: their destructors wait, before the buffers above go
};

inline row_all_to_all::row_all_to_all(process_group& fetching, process_group& summing,
                                      std::vector<std::size_t> part_of, std::string name,
                                      std::size_t rows, std::size_t width, dtype type, int tag,
                                      call_site site)
    : fetching_(fetching),
      summing_(summing),
      part_of_(std::move(part_of)),
      site_(site),
      tag_(tag),
      name_(std::move(name)),
      cut_{rows, static_cast<std::size_t>(fetching.size())},
      own_begin_(cut_.begin(static_cast<std::size_t>(fetching.rank()))),
      own_end_(cut_.begin(static_cast<std::size_t>(fetching.rank()) + 1)),
      row_bytes_(width * size_of(type)),
      wanted_(rows),
      adder_(own_end_ - own_begin_, width, type),
      of_part_(cut_.ranks) {}

inline void row_all_to_all::start(const std::byte* gradient) {
  counting_.wait();
  const std::size_t with_number = row_bytes_ + sizeof(std::uint32_t);
  sent_.resize(to_sizes(outgoing_, with_number, send_sizes_));
  received_.resize(to_sizes(incoming_, with_number, receive_sizes_));
  std::byte* to = sent_.data();
  for (const std::size_t part : part_of_) {
    const auto before = std::accumulate(
        of_part_.begin(), of_part_.begin() + static_cast<std::ptrdiff_t>(part), std::size_t{0});
    const auto rows = std::span<const std::size_t>(rows_).subspan(before, of_part_[part]);
    to = pack_rows(to, gradient, rows, row_bytes_);
  }
  exchange_ =
      async_all_to_all_v(summing_, sent_, send_sizes_, received_, receive_sizes_, {}, site_);
}

}  // namespace parx::detail
