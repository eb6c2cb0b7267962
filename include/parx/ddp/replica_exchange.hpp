// replica_exchange: a row_exchange over virtual replicas, along their tree. Every rank owns some
// rows of the table: it gets all ranks' sums of these, adds them up and sends the result to all. So
// a rank sends the rows of each of its sums once, and its rows of the result to the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/ddp/row_exchange.hpp>
#include <parx/reduction/replica_rows.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI::detail {

class replica_exchange final : public row_exchange {
 public:
  /// The plan is borrowed.
  replica_exchange(process_group& group, const parameter_handle& parameter,
                   const replica_plan& plan, call_site site)
      : row_exchange(group, parameter, site),
        sum_(plan, group, parameter.name(), parameter.count() / parameter.rows(), parameter.type(),
             bounds(group.size(), parameter.rows()), site) {}

  /// Local: the gradient is that of one replica. All of them are added, the last by announce().
  void add() {
    if (!parameter_.has_grad()) return sum_.add(nullptr, {});
    const auto touched = gradient_.touched_rows();
    std::vector<std::size_t> all;
    if (!touched) {
      all.resize(parameter_.rows());
      std::iota(all.begin(), all.end(), std::size_t{0});
    }
    sum_.add(static_cast<const std::byte*>(gradient_.add_rows({})), touched.value_or(all));
  }
  void announce() override {
    add();
    sum_.announce();
  }
  /// Never more than whole tables would take, but for the numbers.
  [[nodiscard]] bool is_cheaper() override { return true; }
  void start(double factor) override {
    factor_ = factor;
    sum_.start();
  }
  void finish() override {
    const row_values& own = sum_.finish(factor_);
    own_count_ = own.numbers.size();
    all_gather(group_, std::span(&own_count_, 1), counts_, {}, site_);
    const std::vector<std::size_t> rows(counts_.begin(), counts_.end());
    std::vector<std::size_t> bytes;
    for (const std::size_t each : rows) bytes.push_back(each * row_bytes_);
    const std::size_t total = std::accumulate(rows.begin(), rows.end(), std::size_t{0});
    std::vector<std::uint32_t> numbers(total);
    std::vector<std::byte> values(total * row_bytes_);
    work sending = async_all_gather_v(group_, own.numbers, numbers, rows, {}, site_);
    all_gather_v(group_, own.values, values, bytes, {}, site_);
    sending.wait();
    parameter_.zero_grad();
    const std::vector<std::size_t> touched(numbers.begin(), numbers.end());
    auto* const table = static_cast<std::byte*>(gradient_.add_rows(touched));
    for (std::size_t i = 0; i < total; ++i) {
      std::memcpy(table + touched[i] * row_bytes_, values.data() + i * row_bytes_, row_bytes_);
    }
  }
  void settle() noexcept override { sum_.drop(); }

 private:
  [[nodiscard]] static std::vector<std::size_t> bounds(int ranks, std::size_t rows) {
    std::vector<std::size_t> made;
    for (int rank = 0; rank <= ranks; ++rank) made.push_back(chunk_begin(rows, ranks, rank));
    return made;
  }

  replica_rows sum_;
  double factor_ = 1;
};

}  // namespace parx::detail
