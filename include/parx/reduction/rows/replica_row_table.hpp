// replica_row_table: a row_table whose gradients are summed over virtual replicas, along the tree
// of replica_tree.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <parx/reduction/rows/replica_rows.hpp>
#include <parx/reduction/rows/row_table.hpp>

namespace parx::inline PARX_ABI::detail {

template <typename T>
class replica_row_table final : public row_table<T> {
 public:
  replica_row_table(const row_groups& groups, parameter<T> whole, parameter<T> part, call_site site)
      : row_table<T>(groups, std::move(whole), std::move(part), site),
        plan_(groups.virtual_replicas, groups.summing.rank(), groups.summing.size()),
        tree_(plan_, groups.summing, this->whole_.name(), this->width(), dtype_of<T>, bounds(),
              site) {}

  void keep(const reduction_pass& pass) override {
    const auto touched = this->touched_rows();
    this->note_written(touched.size());
    if (!pass.is_padding) tree_.add(this->gradient(), touched);
    this->whole_.zero_grad();
  }
  void announce() override {
    keep({});
    tree_.announce();
  }
  void start() override { tree_.start(); }
  void finish(double factor, bool is_used) override {
    const row_values& sum = tree_.finish(factor);
    if (is_used) take(sum);
    this->drop_many_pages();
  }
  void abandon() noexcept override {
    row_table<T>::abandon();
    tree_.drop();
  }

 private:
  [[nodiscard]] std::vector<std::size_t> bounds() const {
    std::vector<std::size_t> bounds;
    const equal_row_blocks& cut = this->traffic_.cut();
    for (std::size_t rank = 0; rank <= cut.ranks; ++rank) bounds.push_back(cut.begin(rank));
    return bounds;
  }
  /// The part gets these rows of the table as its gradient.
  void take(const row_values& sum) {
    std::vector<std::size_t> own;
    for (const std::uint32_t row : sum.numbers) own.push_back(row - this->traffic_.own_begin());
    T* const to = this->part_.add_rows(own).data();
    const std::size_t width = this->width(), bytes = width * sizeof(T);
    for (std::size_t i = 0; i < own.size(); ++i) {
      std::memcpy(to + own[i] * width, sum.values.data() + i * bytes, bytes);
    }
  }

  const replica_plan plan_;
  replica_rows tree_;
};

}  // namespace parx::detail
