// Batches and their micro-batches: any aggregate of tensors whose rows (axis 0) are samples, such
// as those of parx::data or {tensor<float> x; tensor<std::int64_t> y;}.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

struct any_batch_member {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor): only named, to count members
};
/// As any_batch_member, for a base class alone: structured bindings do not reach its members.
template <typename Batch>
struct any_batch_base {
  template <typename T>
    requires(std::is_base_of_v<T, Batch> && !std::is_same_v<T, Batch>)
  operator T() const;  // NOLINT(google-explicit-constructor): only named
};
template <typename Batch, std::size_t... I>
consteval bool has_batch_width(std::index_sequence<I...> /*numbers*/) {
  return requires { Batch{((void)I, any_batch_member{})...}; };
}
template <typename Batch, std::size_t Count = 8>
consteval std::size_t batch_width() {
  if constexpr (Count == 0 || has_batch_width<Batch>(std::make_index_sequence<Count>())) {
    return Count;
  } else {
    return batch_width<Batch, Count - 1>();
  }
}

}  // namespace detail

/// Whether `Batch` is an aggregate of one to six members, without a base class.
template <typename Batch>
inline constexpr bool is_batch_of_tensors = [] {
  if constexpr (std::is_aggregate_v<Batch>) {
    constexpr bool has_base = requires { Batch{detail::any_batch_base<Batch>()}; };
    return !has_base && detail::batch_width<Batch>() >= 1 && detail::batch_width<Batch>() <= 6;
  } else {
    return false;
  }
}();

/// visit(members...) with the members of an aggregate.
template <typename Batch, typename Visit>
decltype(auto) with_batch_members(const Batch& of, Visit visit) {
  constexpr std::size_t count = detail::batch_width<Batch>();
  static_assert(is_batch_of_tensors<Batch>,
                "a batch is an aggregate of one to six tensors, whose rows are samples");
  if constexpr (count == 1) {
    const auto& [a] = of;
    return visit(a);
  } else if constexpr (count == 2) {
    const auto& [a, b] = of;
    return visit(a, b);
  } else if constexpr (count == 3) {
    const auto& [a, b, c] = of;
    return visit(a, b, c);
  } else if constexpr (count == 4) {
    const auto& [a, b, c, d] = of;
    return visit(a, b, c, d);
  } else if constexpr (count == 5) {
    const auto& [a, b, c, d, e] = of;
    return visit(a, b, c, d, e);
  } else {
    const auto& [a, b, c, d, e, f] = of;
    return visit(a, b, c, d, e, f);
  }
}

/// Whether any member but `weights` is set: a rank that needs no samples may pass an empty batch.
template <typename Batch>
[[nodiscard]] bool has_samples(const Batch& batch) {
  if constexpr (is_batch_of_tensors<Batch>) {
    const void* weights = nullptr;
    if constexpr (requires { batch.weights; }) weights = &batch.weights;
    return with_batch_members(batch, [&](const auto&... members) {
      return (... || (members.defined() && static_cast<const void*>(&members) != weights));
    });
  } else {
    return true;
  }
}

/// The rows of each tensor that is set and has any, in order.
template <typename Batch>
[[nodiscard]] std::vector<std::size_t> all_rows_of(const Batch& batch) {
  std::vector<std::size_t> rows;
  with_batch_members(batch, [&](const auto&... members) {
    const auto look = [&](const auto& member) {
      if constexpr (requires { member.extent(0); }) {
        if (member.defined() && member.rank() > 0) rows.push_back(member.extent(0));
      }
    };
    (look(members), ...);
  });
  return rows;
}

/// The number of samples: the rows of the first member that is set; nullopt if none is.
template <typename Batch>
[[nodiscard]] std::optional<std::size_t> rows_of(const Batch& batch) {
  const std::vector<std::size_t> rows = all_rows_of(batch);
  return rows.empty() ? std::nullopt : std::optional(rows.front());
}

/// Rows [begin, end) of the batch, which refer to its memory.
template <typename Batch>
[[nodiscard]] Batch rows_between(const Batch& whole, std::size_t begin, std::size_t end) {
  const auto part = [&](const auto& member) {
    // Weights that were never filled stay empty.
    return member.defined() && member.rank() > 0 ? member.slice(0, begin, end) : member;
  };
  return with_batch_members(whole, [&](const auto&... members) { return Batch{part(members)...}; });
}

/// Splits the batch into `count` parts, which refer to its memory and differ by at most one row,
/// the longer ones first: of fewer rows than parts the last have none. The parts of an empty batch
/// are empty. Throws usage_error for tensors of different numbers of rows.
template <typename Batch>
[[nodiscard]] std::vector<Batch> split_rows(const Batch& whole, int count) {
  const std::vector<std::size_t> rows = all_rows_of(whole);
  if (std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) != rows.end()) {
    throw_usage("the tensors of a batch that is split into {} micro-batches have {} rows: each "
                "needs one row for each sample",
                count, joined_text(rows));
  }
  if (rows.empty()) return std::vector<Batch>(static_cast<std::size_t>(count), whole);
  std::vector<Batch> parts;
  for (int i = 0; i < count; ++i) {
    parts.push_back(
        rows_between(whole, chunk_begin(rows[0], count, i), chunk_begin(rows[0], count, i + 1)));
  }
  return parts;
}

}  // namespace parx
