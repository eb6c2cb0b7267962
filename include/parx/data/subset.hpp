// subset: some samples of a data set. random_split: a data set cut at random, as PyTorch's.
//
//   const auto all = read_table("houses.csv", {.label = "price"});
//   const auto parts = random_split(all, {0.9, 0.1});
//   const loader train{parts[0], {...}}, held_out{parts[1], {...}};
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/data/dataset.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI::data {

/// The samples of `source` with these numbers, in this order. Refers to `source`, which must
/// outlive it. Throws usage_error for a number that `source` does not have. Threads: as `source`.
template <dataset D>
class subset {
 public:
  subset(const D& source, std::vector<std::size_t> rows)
      : source_(&source), rows_(std::move(rows)) {
    for (const std::size_t row : rows_) {
      require(row < source.size(), "subset: sample {} of a data set of {} does not exist", row,
              static_cast<std::size_t>(source.size()));
    }
  }
  subset(const D&& source, std::vector<std::size_t> rows) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
  [[nodiscard]] batch_of<D> fetch(std::span<const std::size_t> indices) const {
    std::vector<std::size_t> taken;
    taken.reserve(indices.size());
    for (const std::size_t index : indices) taken.push_back(rows_.at(index));
    return source_->fetch(taken);
  }

  /// The numbers of its samples in `source`.
  [[nodiscard]] const std::vector<std::size_t>& rows() const noexcept { return rows_; }

 private:
  const D* source_;
  std::vector<std::size_t> rows_;
};

namespace detail {

/// How many of `size` samples each part gets: its fraction rounded down; the samples left over go
/// to the parts one by one from the first on (torch.utils.data.random_split). Throws usage_error.
[[nodiscard]] inline std::vector<std::size_t> part_sizes(std::size_t size,
                                                         const std::vector<double>& fractions) {
  double sum = 0;
  bool all_positive = true;
  for (const double each : fractions) {
    sum += each;
    all_positive &= each > 0;
  }
  require(all_positive && std::abs(sum - 1) < 1e-6,
          "random_split: the parts are fractions above 0 that add up to 1, such as {{0.9, 0.1}}; "
          "these add up to {}",
          sum);
  std::vector<std::size_t> sizes;
  std::size_t dealt = 0;
  for (const double each : fractions) {
    sizes.push_back(static_cast<std::size_t>(std::floor(static_cast<double>(size) * each)));
    dealt += sizes.back();
  }
  for (std::size_t i = 0; dealt < size; ++i, ++dealt) ++sizes[i % sizes.size()];
  return sizes;
}

}  // namespace detail

/// Distributes the samples of `source` at random over parts. A function of `seed`: the same on all
/// ranks. Refers to `source`, which must outlive the parts. Throws usage_error unless the fractions
/// add up to 1, and where a part has no sample.
template <dataset D>
[[nodiscard]] std::vector<subset<D>> random_split(const D& source,
                                                  const std::vector<double>& fractions,
                                                  std::uint64_t seed = 42) {
  const auto order = random_stream(seed, "random_split").permutation(source.size());
  const auto sizes = detail::part_sizes(order.size(), fractions);
  std::vector<subset<D>> parts;
  auto from = order.begin();
  for (const std::size_t size : sizes) {
    require(size > 0, "random_split: of {} samples the parts get {}: one would be empty",
            order.size(), joined_text(sizes));
    const auto to = from + static_cast<std::ptrdiff_t>(size);
    parts.emplace_back(source, std::vector<std::size_t>(from, to));
    from = to;
  }
  return parts;
}
template <dataset D>
std::vector<subset<D>> random_split(const D&& source, const std::vector<double>& fractions,
                                    std::uint64_t seed = 42) = delete;

}  // namespace parx::data
