// replica_bucket: a bucket_sum over virtual replicas, along the tree of replica_tree.hpp. Each rank
// adds up a block of the bucket, and all gather the blocks. Of an embedding, which has a bucket
// of its own, blocks are rows, and only touched ones are sent: the rows of each sum of a rank
// once, and its rows of the result to the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/ddp/bucket_sum.hpp>
#include <parx/reduction/replica_sum.hpp>
#include <parx/reduction/rows/replica_rows.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI::detail {

class replica_bucket : public bucket_sum {
 public:
  using bucket_sum::bucket_sum;
  /// Local: the gradients are those of a replica of this rank, but not of its last.
  virtual void add() = 0;
};

class replica_whole_sum final : public replica_bucket {
 public:
  /// The plan is borrowed.
  replica_whole_sum(const replica_plan& plan, const gradient_bucket& bucket, process_group& group,
                    step_headers& headers, reduction_order order, call_site site)
      : replica_bucket(bucket, group, headers, order, site),
        blocks_(blocks_of(bucket.view().count, static_cast<std::size_t>(group.size()))),
        tree_(plan, group, bucket.plan.type, blocks_, site) {}

  void add() override {
    bucket_.clear_absent();
    tree_.add(bucket_.memory);
  }
  void start() override {
    bucket_.clear_absent();
    tree_.start(bucket_.memory);
  }
  void proceed(int /*round*/) override {
    const auto own = blocks_.begin() + group_.rank();
    const std::size_t begin = std::accumulate(blocks_.begin(), own, std::size_t{0});
    const dtype type = bucket_.plan.type;
    std::byte* const block = bucket_.memory + begin * size_of(type);
    tree_.finish(block, headers_.own().factor());
    sum_ = async_all_gather_v(group_, const_buffer_view{block, *own, type}, bucket_.view(), blocks_,
                              {}, site_);
  }
  void drop() noexcept override {
    bucket_sum::drop();
    tree_.drop();
  }

 private:
  /// The elements of each rank's block.
  [[nodiscard]] static std::vector<std::size_t> blocks_of(std::size_t count, std::size_t ranks) {
    std::vector<std::size_t> blocks(ranks);
    for (std::size_t i = 0; i < ranks; ++i) {
      blocks[i] = count * (i + 1) / ranks - count * i / ranks;
    }
    return blocks;
  }

  const std::vector<std::size_t> blocks_;
  replica_sum tree_;
};

class replica_row_sum final : public replica_bucket {
 public:
  /// The plan is borrowed.
  replica_row_sum(const replica_plan& plan, const gradient_bucket& bucket, process_group& group,
                  step_headers& headers, reduction_order order, call_site site)
      : replica_bucket(bucket, group, headers, order, site), table_(*bucket.parameters.front()),
        gradient_(*table_.row_gradient()), row_bytes_(table_.bytes() / table_.rows()),
        tree_(plan, group, table_.name(), table_.count() / table_.rows(), table_.type(),
              bounds(group.size(), table_.rows()), site) {}

  void add() override {
    if (!table_.has_grad()) return tree_.add(nullptr, {});
    const auto touched = gradient_.touched_rows();
    std::vector<std::size_t> all;
    if (!touched) {
      all.resize(table_.rows());
      std::iota(all.begin(), all.end(), std::size_t{0});
    }
    tree_.add(static_cast<const std::byte*>(gradient_.add_rows({})), touched.value_or(all));
  }
  void start() override {
    add();
    tree_.announce();
  }
  void pass_on() override { is_used() ? tree_.start() : tree_.drop(); }
  void finish() override {
    if (!is_used()) return;
    const row_values& own = tree_.finish(headers_.own().factor());
    const std::uint64_t mine = own.numbers.size();
    std::vector<std::uint64_t> counts(static_cast<std::size_t>(group_.size()));
    all_gather(group_, std::span(&mine, 1), counts, {}, site_);
    const std::vector<std::size_t> rows(counts.begin(), counts.end());
    std::vector<std::size_t> bytes;
    for (const std::size_t each : rows) bytes.push_back(each * row_bytes_);
    const std::size_t total = std::accumulate(rows.begin(), rows.end(), std::size_t{0});
    std::vector<std::uint32_t> numbers(total);
    std::vector<std::byte> values(total * row_bytes_);
    work sending = async_all_gather_v(group_, own.numbers, numbers, rows, {}, site_);
    all_gather_v(group_, own.values, values, bytes, {}, site_);
    sending.wait();
    table_.zero_grad();
    const std::vector<std::size_t> touched(numbers.begin(), numbers.end());
    auto* const memory = static_cast<std::byte*>(gradient_.add_rows(touched));
    for (std::size_t i = 0; i < total; ++i) {
      std::memcpy(memory + touched[i] * row_bytes_, values.data() + i * row_bytes_, row_bytes_);
    }
  }
  [[nodiscard]] bool is_by_rows() const noexcept override { return true; }
  void drop() noexcept override { tree_.drop(); }

 private:
  [[nodiscard]] static std::vector<std::size_t> bounds(int ranks, std::size_t rows) {
    std::vector<std::size_t> made;
    for (int rank = 0; rank <= ranks; ++rank) made.push_back(chunk_begin(rows, ranks, rank));
    return made;
  }

  const parameter_handle& table_;
  const row_gradient_part& gradient_;
  const std::size_t row_bytes_;
  replica_rows tree_;
};

}  // namespace parx::detail
