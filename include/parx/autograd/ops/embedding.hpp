// embedding: rows of a table by index, with a row-sparse gradient.
#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// table is (rows, width), the result (indices..., width). Backward touches only the rows that were
/// used: see parameter::touched_rows(). Throws usage_error for an index outside the table.
template <typename T, std::integral Index>
[[nodiscard]] variable<T> embedding(const variable<T>& table, const tensor<Index>& indices,
                                    call_site = call_site::current()) {
  require(table.rank() == 2, "embedding: the table has two axes, not shape {}",
          to_string(table.shape()));
  const tensor<Index> index = indices.contiguous();
  const std::size_t count = table.extent(0), width = table.extent(1);
  std::vector<std::size_t, pool_allocator<std::size_t>> rows(index.size());
  shape s = indices.shape();
  s.push_back(width);
  tensor<T> picked = tensor<T>::empty(s);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::size_t>(index.data()[i]);  // a negative index becomes huge
    require(row < count, "embedding: index {} at position {} is outside a table of {} rows",
            index.data()[i], i, count);
    rows[i] = row;
  }
  // Only these rows are read: postponed updates of others can wait.
  const tensor<T> source = table.value_at_rows(rows).contiguous();
  detail::copy_rows(
      width, rows.size(), [&](std::size_t i) { return source.data() + rows[i] * width; },
      [&](std::size_t i) { return picked.data() + i * width; });
  return differentiable(
      std::move(picked),
      [rows = std::move(rows), width](const tensor<T>& upstream, grad_sink<T> dtable) {
        T* const sum = dtable.rows(rows).data();
        detail::add_rows(
            width, rows.size(), [&](std::size_t i) { return upstream.data() + i * width; },
            [&](std::size_t i) { return sum + rows[i] * width; });
      },
      table);
}

}  // namespace parx
