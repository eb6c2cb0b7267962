// replica_rows: sums the rows of a table's gradients over virtual replicas, along the tree of
// replica_tree.hpp, in the bits of replica_sum: a row that a replica has not touched is zero.
//
//   add(), for each replica of this rank -> announce() -> start() -> finish()
//
// A rank keeps the touched rows of sums of nodes whose siblings are not complete yet, instead of
// whole tables, and sends those of each of its sums to the rows' owners, with 4 bytes more each.
// Threads: the one that runs backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/work.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/replica_sum.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/types/dtype.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI {

/// Rows of a table, ascending, and their values, one row after the other.
struct row_values {
  std::vector<std::uint32_t> numbers;
  std::vector<std::byte> values;
};

/// The rows of both; those of `left` come first in a sum.
[[nodiscard]] inline row_values sum_of_rows(const row_values& left, const row_values& right,
                                            std::size_t width, dtype type) {
  const std::size_t bytes = width * size_of(type);
  const reduce_function plus = reduce_kernel(type, reduce_op::sum);
  row_values made;
  made.numbers.reserve(left.numbers.size() + right.numbers.size());
  std::set_union(left.numbers.begin(), left.numbers.end(), right.numbers.begin(),
                 right.numbers.end(), std::back_inserter(made.numbers));
  made.values.resize(made.numbers.size() * bytes);
  std::size_t from_left = 0, from_right = 0;
  std::byte* to = made.values.data();
  for (const std::uint32_t row : made.numbers) {
    const bool in_left = from_left < left.numbers.size() && left.numbers[from_left] == row;
    const bool in_right = from_right < right.numbers.size() && right.numbers[from_right] == row;
    const std::byte* const a = left.values.data() + from_left * bytes;
    const std::byte* const b = right.values.data() + from_right * bytes;
    if (in_left && in_right) plus(to, a, b, width);
    else std::memcpy(to, in_left ? a : b, bytes);
    from_left += in_left ? 1 : 0;
    from_right += in_right ? 1 : 0;
    to += bytes;
  }
  return made;
}

class replica_rows {
 public:
  /// Of a table of that name with rows of `width` elements. Rank i of `group` owns rows [bounds[i],
  /// bounds[i + 1]). Plan and group are borrowed.
  replica_rows(const replica_plan& plan, process_group& group, std::string name, std::size_t width,
               dtype type, std::vector<std::size_t> bounds, call_site site)
      : plan_(&plan),
        group_(&group),
        name_(std::move(name)),
        width_(width),
        type_(type),
        bounds_(std::move(bounds)),
        site_(site) {}

  /// Local. Adds a replica's gradient: `rows`, ascending, of the table at `gradient`.
  void add(const std::byte* gradient, std::span<const std::size_t> rows) {
    const std::span<const int> merges = plan_->own_merges();
    require(added_ < merges.size(),
            "table \"{}\": a step has {} replicas, and {} of them are this rank's: a further one "
            "has computed gradients",
            name_, plan_->replicas(), merges.size());
    row_values made;
    made.numbers.assign(rows.begin(), rows.end());
    made.values.resize(rows.size() * row_bytes());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(made.values.data() + i * row_bytes(), gradient + rows[i] * row_bytes(),
                  row_bytes());
    }
    make_zeros_positive(type_, made.values.data(), rows.size() * width_);
    sums_.push_back(std::move(made));
    for (int i = merges[added_++]; i > 0; --i) add_up_last_two(sums_);
  }
  /// Collective, asynchronous, after this rank's last replica: tells the owners how many rows of
  /// each sum they will get.
  void announce() {
    const std::size_t ranks = bounds_.size() - 1, most = plan_->most_sums();
    outgoing_.assign(ranks * most, 0);
    incoming_.resize(ranks * most);
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        outgoing_[rank * most + i] =
            static_cast<std::uint32_t>(begin_of(sums_[i], rank + 1) - begin_of(sums_[i], rank));
      }
    }
    counting_ = async_all_to_all(*group_, outgoing_, incoming_, {}, site_);
  }
  /// Collective: blocks until all ranks have announced, then sends the rows.
  void start() {
    counting_.wait();
    sent_.resize(to_sizes(outgoing_, send_sizes_));
    received_.resize(to_sizes(incoming_, receive_sizes_));
    std::byte* to = sent_.data();
    for (std::size_t rank = 0; rank + 1 < bounds_.size(); ++rank) {
      for (const row_values& each : sums_) {
        const std::size_t begin = begin_of(each, rank), end = begin_of(each, rank + 1);
        to = std::copy(each.values.data() + begin * row_bytes(),
                       each.values.data() + end * row_bytes(), to);
        const auto* const numbers = reinterpret_cast<const std::byte*>(each.numbers.data() + begin);
        to = std::copy(numbers, numbers + (end - begin) * sizeof(std::uint32_t), to);
      }
    }
    exchange_ =
        async_all_to_all_v(*group_, sent_, send_sizes_, received_, receive_sizes_, {}, site_);
  }
  /// Blocks until the rows have arrived. The rows that this rank owns of the sum over all replicas,
  /// times `factor`, with their numbers in the table; valid until the next call.
  [[nodiscard]] const row_values& finish(double factor) {
    exchange_.wait();
    const std::size_t most = plan_->most_sums();
    std::vector<std::vector<row_values>> blocks(bounds_.size() - 1);
    const std::byte* from = received_.data();
    for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
      for (std::size_t i = 0; i < most; ++i) {
        blocks[rank].push_back(read(from, incoming_[rank * most + i], rank));
      }
    }
    drop();
    for (std::size_t i = 0; i < plan_->order().size(); ++i) {
      const auto& each = plan_->order()[i];
      sums_.push_back(std::move(blocks[static_cast<std::size_t>(each.rank)][each.number]));
      for (int merges = plan_->merges()[i]; merges > 0; --merges) add_up_last_two(sums_);
    }
    result_ = std::move(sums_.front());
    sums_.clear();
    scale_kernel(type_)(result_.values.data(), result_.numbers.size() * width_, factor);
    return result_;
  }
  /// Gives up what was added; blocks until no operation uses the memory any more.
  void drop() noexcept {
    counting_ = {};
    exchange_ = {};
    sums_.clear();
    added_ = 0;
  }

 private:
  [[nodiscard]] std::size_t row_bytes() const noexcept { return width_ * size_of(type_); }
  /// Where the rows of rank `rank` begin in a sum.
  [[nodiscard]] std::size_t begin_of(const row_values& of, std::size_t rank) const {
    return static_cast<std::size_t>(
        std::lower_bound(of.numbers.begin(), of.numbers.end(), bounds_[rank]) - of.numbers.begin());
  }
  void add_up_last_two(std::vector<row_values>& of) const {
    const row_values right = std::move(of.back());
    of.pop_back();
    of.back() = sum_of_rows(of.back(), right, width_, type_);
  }
  /// The bytes for each rank, and their sum.
  std::size_t to_sizes(const std::vector<std::uint32_t>& counts,
                       std::vector<std::size_t>& sizes) const {
    const std::size_t most = plan_->most_sums();
    sizes.assign(bounds_.size() - 1, 0);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t bytes = counts[i] * (row_bytes() + sizeof(std::uint32_t));
      sizes[i / most] += bytes;
      sum += bytes;
    }
    return sum;
  }
  /// The next `count` rows, which rank `rank` has sent; moves `from` behind them.
  [[nodiscard]] row_values read(const std::byte*& from, std::size_t count, std::size_t rank) const {
    row_values made{std::vector<std::uint32_t>(count), {from, from + count * row_bytes()}};
    from += count * row_bytes();
    if (count > 0) std::memcpy(made.numbers.data(), from, count * sizeof(std::uint32_t));
    from += count * sizeof(std::uint32_t);
    const auto own = static_cast<std::size_t>(group_->rank());
    for (const std::uint32_t row : made.numbers) {
      if (row >= bounds_[own] && row < bounds_[own + 1]) continue;
      throw_error(errc::bad_data,
                  "rank {} sent row {} of table \"{}\" to rank {}, which has {} to {}", rank, row,
                  name_, own, bounds_[own], bounds_[own + 1]);
    }
    return made;
  }

  const replica_plan* plan_;
  process_group* group_;
  std::string name_;
  std::size_t width_;
  dtype type_;
  std::vector<std::size_t> bounds_;
  call_site site_;
  std::size_t added_ = 0;
  std::vector<row_values> sums_;  ///< of complete nodes whose sibling is not complete
  row_values result_;
  std::vector<std::uint32_t> outgoing_, incoming_;  ///< rows, by rank and sum
  std::vector<std::size_t> send_sizes_, receive_sizes_;
  std::vector<std::byte> sent_, received_;
  work counting_, exchange_;  // destroyed, and so waited for, before the memory they use
};

}  // namespace parx
