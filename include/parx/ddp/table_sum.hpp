// table_sum: the bucket_sum of an embedding. The ranks exchange only the rows that they have
// touched, if that is less than the whole table.
//
// A batch touches a thousand of 30522 rows, and different ranks touch different rows. The ranks
// exchange their numbers of rows; since all know these numbers, all decide alike, after backward.
// Rows are added in rank order, so the result has the same bits on all ranks. gathered_rows and
// shared_rows exchange them.
// Threads: on the thread that runs backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/ddp/bucket_sum.hpp>

namespace parx::inline PARX_ABI::detail {

/// Whether ranks with `counts` rows of `row_bytes` each should exchange these instead of all
/// `bytes` of the table. A count of all_rows means that a rank's gradient is not row-sparse.
inline constexpr std::uint64_t all_rows = std::numeric_limits<std::uint64_t>::max();
[[nodiscard]] inline bool rows_are_cheaper(std::span<const std::uint64_t> counts,
                                           std::size_t row_bytes, std::size_t bytes) {
  // Every rank receives the others' rows once. A dense all_reduce moves the table twice; the factor
  // of two allows for the time to add up the rows.
  std::size_t total = 0;
  for (const std::uint64_t count : counts) {
    if (count == all_rows) return false;
    total += count;
  }
  return total * (row_bytes + sizeof(std::uint32_t)) < bytes;
}

class table_sum : public bucket_sum {
 public:
  void start() override {
    prepare();
    const auto mine = gradient_.touched_rows();
    own_count_ = !table_.has_grad() ? 0 : mine ? mine->size() : all_rows;
    counting_ = async_all_gather(group_, std::span(&own_count_, 1), counts_, {}, site_);
  }
  void pass_on() override {
    counting_.wait();
    by_rows_ = rows_are_cheaper(counts_, row_bytes_, table_.bytes());
    if (!by_rows_) whole_->start();
    else if (is_used()) exchange(headers_.own().factor());
  }
  void proceed(int round) override {
    if (!by_rows_) whole_->proceed(round);
  }
  void finish() override {
    if (!by_rows_) whole_->finish();
    else if (is_used()) complete();
  }
  [[nodiscard]] bool is_by_rows() const noexcept override { return by_rows_; }
  void drop() noexcept override {
    bucket_sum::drop();
    counting_ = {};
    whole_->drop();
  }

 protected:
  /// `whole` sums the whole table.
  table_sum(std::unique_ptr<bucket_sum> whole, const gradient_bucket& bucket, process_group& group,
          step_headers& headers, reduction_order order, call_site site)
      : bucket_sum(bucket, group, headers, order, site), table_(*bucket.parameters.front()),
        gradient_(*table_.row_gradient()), row_bytes_(table_.bytes() / table_.rows()),
        counts_(static_cast<std::size_t>(group.size())), whole_(std::move(whole)) {}

  /// Local: the gradient is final.
  virtual void prepare() {}
  /// Collective: starts to replace the gradient by the sum over all ranks times `factor`.
  virtual void exchange(double factor) = 0;
  /// Collective: blocks until that is done. touched_rows() is then the union over all ranks.
  virtual void complete() = 0;

  const parameter_handle& table_;
  const row_gradient_part& gradient_;
  const std::size_t row_bytes_;
  std::uint64_t own_count_ = 0;
  std::vector<std::uint64_t> counts_;  ///< of rows, by rank

 private:
  const std::unique_ptr<bucket_sum> whole_;
  bool by_rows_ = false;  ///< in this step
  work counting_;         // destroyed, and so waited for, before the memory it uses
};

}  // namespace parx::detail
