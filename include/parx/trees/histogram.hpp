// histogram: the sums of gradients by column and bin of the rows of some nodes.
//
// The work is bound by memory: it reads a row's codes (32 bytes for 28 columns), its gradients (8)
// and adds a 16-byte cell a column, all in L2. Rows are prefetched, because a node's rows are
// scattered. A rank's threads get equal parts of all rows of all nodes of a call; a part that
// begins inside a node adds up in a histogram of its own, which is added to the node's afterwards.
// Integer sums have the same bits for any cut into parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include <parx/core/parallel_for.hpp>
#include <parx/trees/bins.hpp>
#include <parx/trees/fixed_point.hpp>

namespace parx::inline PARX_ABI::trees {

/// A histogram to be made: the sum over `rows` is added, for column c, to the cells from
/// place[c] on, of which there is one for each code.
struct histogram_task {
  std::span<const std::uint32_t> rows;  ///< of the rank, ascending
  const std::size_t* place;             ///< in the memory that all tasks of a call share
};

namespace detail {

/// Columns whose cells stay in L2 together: 128 of 256 cells take 512 KiB.
inline constexpr std::size_t columns_of_a_pass = 128;

/// Adds both sums of a row to a cell in one 128-bit addition.
using two_sums [[gnu::vector_size(16), gnu::may_alias]] = std::int64_t;

template <typename Code, typename Gradient>
void add_rows(const Code* codes, std::size_t stride, std::size_t columns, const Gradient* gradients,
              std::span<const std::uint32_t> rows, const std::size_t* place, sums* cells) {
  constexpr std::size_t ahead = 16;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + ahead < rows.size()) {
      const std::size_t coming = rows[i + ahead];
      __builtin_prefetch(codes + coming * stride);
      __builtin_prefetch(gradients + coming);
    }
    const std::size_t row = rows[i];
    const two_sums pair{gradients[row].g, gradients[row].h};
    const Code* const code = codes + row * stride;
#pragma GCC unroll 4
    for (std::size_t c = 0; c < columns; ++c) {
      *reinterpret_cast<two_sums*>(cells + place[c] + code[c]) += pair;
    }
  }
}

/// The same of a sparse table, whose rows have the entries that bins describe; missing values are
/// left out.
template <typename Code, typename Gradient>
void add_sparse_rows(const bins& data, const Code* codes, const Gradient* gradients,
                     std::span<const std::uint32_t> rows, const std::size_t* place, sums* cells) {
  const std::size_t* const begin = data.entry_begin();
  const std::uint32_t* const column = data.entry_column();
  for (const std::uint32_t row : rows) {
    const two_sums pair{gradients[row].g, gradients[row].h};
    for (std::size_t i = begin[row]; i < begin[row + 1]; ++i) {
      *reinterpret_cast<two_sums*>(cells + place[column[i]] + codes[i]) += pair;
    }
  }
}

/// Fills the cells of missing values of a sparse table: what all rows of a task have, less what is
/// in the column's other cells.
inline void add_missing(const bins& data, const fixed_gradients& gradients,
                        std::span<const histogram_task> tasks, std::span<sums> cells) {
  parallel_for(tasks.size(), 1, [&](std::size_t first, std::size_t last) {
    for (const histogram_task& task : tasks.subspan(first, last - first)) {
      sums all;
      std::visit(
          [&](const auto& pairs) {
            for (const std::uint32_t row : task.rows) all += {pairs[row].g, pairs[row].h};
          },
          gradients.rows);
      for (std::size_t c = 0; c < data.columns(); ++c) {
        if (!data.has_missing(c)) continue;
        sums* const of_column = cells.data() + task.place[c];
        sums& missing = of_column[data.cell_begin()[c + 1] - data.cell_begin()[c] - 1];
        sums rest = all;
        for (sums* each = of_column; each != &missing; ++each) rest -= *each;
        missing = rest;
      }
    }
  });
}

}  // namespace detail

/// Local. Adds the histograms of all tasks into `cells`, which are 0 before, by the threads of this
/// rank.
inline void add_histograms(const bins& data, const fixed_gradients& gradients,
                           std::span<const histogram_task> tasks, std::span<sums> cells) {
  std::size_t all = 0;
  for (const histogram_task& task : tasks) all += task.rows.size();
  const auto add = [&](std::span<const std::uint32_t> rows, const std::size_t* place, sums* into) {
    data.with_codes([&](const auto& codes) {
      std::visit(
          [&](const auto& pairs) {
            if (data.sparse()) {
              return detail::add_sparse_rows(data, codes.by_row.data(), pairs.data(), rows, place,
                                             into);
            }
            for (std::size_t c = 0; c < data.columns(); c += detail::columns_of_a_pass) {
              detail::add_rows(codes.by_row.data() + c, data.stride(),
                               std::min(detail::columns_of_a_pass, data.columns() - c),
                               pairs.data(), rows, place + c, into);
            }
          },
          gradients.rows);
    });
  };
  // More parts than threads, so that a thread that started late does fewer.
  constexpr std::size_t parts_a_thread = 4;
  constexpr std::size_t least_rows = 8192;
  const auto threads = static_cast<std::size_t>(get_num_threads());
  const std::size_t parts =
      threads == 1 ? 1 : std::clamp<std::size_t>(all / least_rows, 1, threads * parts_a_thread);
  if (parts == 1) {
    for (const histogram_task& task : tasks) add(task.rows, task.place, cells.data());
    if (data.sparse()) detail::add_missing(data, gradients, tasks, cells);
    return;
  }
  struct continued {
    const std::size_t* place = nullptr;  ///< of the node that a part before this one began
    std::vector<sums> cells;
  };
  std::vector<continued> continuations(parts);
  parallel_for(parts, 1, [&](std::size_t first_part, std::size_t last_part) {
    for (std::size_t part = first_part; part < last_part; ++part) {
      const std::size_t begin = all * part / parts;
      const std::size_t end = all * (part + 1) / parts;
      std::size_t first = 0;  // row of the call that the task begins with
      for (const histogram_task& task : tasks) {
        const std::size_t last = first + task.rows.size();
        const std::size_t from = std::max(first, begin);
        const std::size_t to = std::min(last, end);
        if (from < to) {
          const auto rows = task.rows.subspan(from - first, to - from);
          if (from == first) {
            add(rows, task.place, cells.data());
          } else {
            continuations[part].place = task.place;
            continuations[part].cells.resize(data.cells());
            add(rows, data.cell_begin().data(), continuations[part].cells.data());
          }
        }
        first = last;
      }
    }
  });
  parallel_for(data.columns(), 4, [&](std::size_t first, std::size_t last) {
    for (const continued& each : continuations) {
      if (each.place == nullptr) continue;
      for (std::size_t c = first; c < last; ++c) {
        const std::size_t begin = data.cell_begin()[c];
        const std::size_t count = data.cell_begin()[c + 1] - begin;
        for (std::size_t i = 0; i < count; ++i) cells[each.place[c] + i] += each.cells[begin + i];
      }
    }
  });
  if (data.sparse()) detail::add_missing(data, gradients, tasks, cells);
}

}  // namespace parx::trees
