// row_exchange: sums the gradients of an embedding over the ranks by exchanging only the rows that
// the ranks touched, if that is less than the whole table.
//
// A batch touches a thousand of 30522 rows, and different ranks touch different rows. The ranks
// exchange their numbers of rows; since all know these numbers, all decide alike. Rows are added in
// rank order, so the result has the same bits on all ranks. gathered_rows and shared_rows implement
// it, and for virtual replicas replica_exchange.
// Threads: on the thread that runs backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/comm/collectives/all_gather.hpp>

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

class row_exchange {
 public:
  row_exchange(const row_exchange&) = delete;
  row_exchange& operator=(const row_exchange&) = delete;
  virtual ~row_exchange() = default;

  /// Collective, asynchronous: starts to exchange the numbers of rows. The gradient is final.
  virtual void announce() {
    const auto mine = gradient_.touched_rows();
    own_count_ = !parameter_.has_grad() ? 0 : mine ? mine->size() : all_rows;
    counting_ = async_all_gather(group_, std::span(&own_count_, 1), counts_, {}, site_);
  }
  /// Blocks until the numbers are there; returns the same on all ranks.
  [[nodiscard]] virtual bool is_cheaper() {
    counting_.wait();
    return rows_are_cheaper(counts_, row_bytes_, parameter_.bytes());
  }
  /// Collective: starts to replace the gradient by the sum over all ranks times `factor`.
  virtual void start(double factor) = 0;
  /// Collective: blocks until that is done. touched_rows() is then the union over all ranks.
  virtual void finish() = 0;
  /// Blocks until no operation uses this object's memory.
  virtual void settle() noexcept { counting_ = {}; }

 protected:
  row_exchange(process_group& group, const parameter_handle& parameter, call_site site)
      : group_(group), parameter_(parameter), gradient_(*parameter.row_gradient()), site_(site),
        row_bytes_(parameter.bytes() / parameter.rows()),
        counts_(static_cast<std::size_t>(group.size())) {}

  process_group& group_;
  const parameter_handle& parameter_;
  const row_gradient_part& gradient_;
  const call_site site_;
  const std::size_t row_bytes_;
  std::uint64_t own_count_ = 0;
  std::vector<std::uint64_t> counts_;  ///< of rows, by rank

 private:
  work counting_;  // destroyed, and so waited for, before the memory it uses
};

}  // namespace parx::detail
