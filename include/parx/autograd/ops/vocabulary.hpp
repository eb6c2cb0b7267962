// vocabulary: an embedding and a cross-entropy whose rows and classes are cut over the ranks of an
// axis.
//
// Neither the table nor the logits are ever gathered. The embedding sums the rows that each rank
// has, by one all-reduce of the result. The loss needs two reductions of a few numbers per row: the
// largest logit, then the sum of exponentials with the label's logit (and with label smoothing the
// sum of all). Backward of both sends nothing.
// Source: Megatron-LM's vocab_parallel_embedding and vocab_parallel_cross_entropy.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/loss.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/hash.hpp>
#include <parx/tensor/rank_axis.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI {

/// This rank's summand of the rows at `indices`: `table` (own rows, width) is its chunk of a table
/// of `whole` rows; rows of other ranks are zero in the result. Sends nothing: see across::sum.
/// Throws usage_error for an index outside the whole, on all ranks.
template <typename T, std::integral Index>
[[nodiscard]] variable<T> embedding_of_chunk(const rank_axis& axis, const variable<T>& table,
                                             std::size_t whole, const tensor<Index>& indices) {
  const std::size_t first = chunk_begin(whole, axis.size(), axis.rank());
  const std::size_t count = table.extent(0), width = table.extent(1);
  const tensor<Index> index = indices.contiguous();
  shape s = indices.shape();
  s.push_back(width);
  tensor<T> picked = tensor<T>::zeros(s);
  std::vector<std::size_t> rows, places;  // the rows on this rank, and their places in the result
  for (std::size_t i = 0; i < index.size(); ++i) {
    const auto row = static_cast<std::size_t>(index.data()[i]);  // a negative index becomes huge
    require(row < whole, "embedding: index {} at position {} is outside a table of {} rows",
            index.data()[i], i, whole);
    if (row < first || row >= first + count) continue;
    rows.push_back(row - first);
    places.push_back(i);
  }
  const tensor<T> source = table.value_at_rows(rows).contiguous();
  detail::copy_rows(
      width, rows.size(), [&](std::size_t i) { return source.data() + rows[i] * width; },
      [&](std::size_t i) { return picked.data() + places[i] * width; });
  return differentiable(
      std::move(picked),
      [rows = std::move(rows), places = std::move(places), width](const tensor<T>& upstream,
                                                                  grad_sink<T> dtable) {
        T* const sum = dtable.rows(rows).data();
        detail::add_rows(
            width, rows.size(), [&](std::size_t i) { return upstream.data() + places[i] * width; },
            [&](std::size_t i) { return sum + rows[i] * width; });
      },
      table);
}

namespace detail {

/// A hash below 2^20, which a float represents exactly.
template <typename T, typename Label>
[[nodiscard]] T digest_of_labels(const tensor<Label>& labels) {
  const auto* const bytes = reinterpret_cast<const char*>(labels.data());
  const std::uint64_t hash = fnv1a({bytes, labels.size() * sizeof(Label)});
  return static_cast<T>((hash ^ (hash >> 20) ^ (hash >> 40)) % (1U << 20));
}

}  // namespace detail

/// The part of cross_entropy for logits (..., classes) that are cut: `logits` is this rank's chunk
/// of the last axis. Labels and options are the same on all ranks, and so is the result. Throws as
/// cross_entropy does, on all ranks, and errc::mismatch where labels differ.
template <typename T, std::integral Label>
[[nodiscard]] weighted_loss<T> vocab_cross_entropy(rank_axis& axis, const variable<T>& logits,
                                                   std::size_t classes, const tensor<Label>& labels,
                                                   const cross_entropy_options& options = {},
                                                   call_site site = call_site::current()) {
  const std::size_t first = chunk_begin(classes, axis.size(), axis.rank());
  const std::size_t here = chunk_begin(classes, axis.size(), axis.rank() + 1) - first;
  const std::size_t rows = labels.size();
  require(logits.rank() == labels.rank() + 1 && logits.extent(-1) == here &&
              logits.size() == rows * here,
          "cross_entropy at {}: of {} classes rank {} of {} has {}: logits of shape {} and "
          "labels of shape {} do not fit",
          site, classes, axis.rank(), axis.size(), here, to_string(logits.shape()),
          to_string(labels.shape()));
  require(options.row_weights.empty() || options.row_weights.size() == rows,
          "cross_entropy at {}: {} row weights for {} rows", site, options.row_weights.size(),
          rows);
  require(options.label_smoothing >= 0 && options.label_smoothing <= 1,
          "cross_entropy at {}: a label smoothing of {} is not in [0, 1]", site,
          options.label_smoothing);
  const tensor<Label> label = labels.contiguous();
  std::vector<T> weight(rows);
  double count = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto index = static_cast<std::int64_t>(label.data()[row]);
    weight[row] = index == options.ignore_index ? T(0)
                  : options.row_weights.empty() ? T(1)
                                                : static_cast<T>(options.row_weights[row]);
    require(weight[row] == T(0) || (index >= 0 && static_cast<std::size_t>(index) < classes),
            "cross_entropy at {}: the label of row {} is {}, but there are {} classes, "
            "counted from 0",
            site, row, index, classes);
    count += static_cast<double>(weight[row]);
  }
  const tensor<T> input = logits.value().contiguous();
  const auto smoothing = static_cast<T>(options.label_smoothing);
  const std::size_t figures = smoothing == T(0) ? 2 : 3;

  // Two more numbers check that all ranks have the same labels: the largest digest, and minus the
  // smallest.
  std::vector<T> highest(rows + 2, -std::numeric_limits<T>::infinity());
  detail::for_each_row(here > 0 ? rows : 0, here, [&](std::size_t row) {
    highest[row] = detail::row_max(input.data() + row * here, here);
  });
  highest[rows] = detail::digest_of_labels<T>(label);
  highest[rows + 1] = -highest[rows];
  highest = detail::once([&] {
    axis.all_reduce(const_view_of(highest), view_of(highest), rank_axis::reduction::max);
    return highest;
  });
  if (highest[rows] != -highest[rows + 1]) {
    throw_error(errc::mismatch,
                "cross_entropy at {}: the ranks over which the classes are cut have "
                "different labels. They need the same batch: give the sampler data_group() of the "
                "model, not the group of all ranks, or the loader the model itself",
                site);
  }

  // The gradient is a by-product of the exponentials, as in cross_entropy.
  const tensor<T> gradient = tensor<T>::empty(logits.shape());
  std::vector<T> sums(figures * rows);  // of exponentials, the label's logit, of highest - logits
  const auto hit = [&](std::size_t row) {
    return static_cast<std::size_t>(label.data()[row]) - first;  // huge where it is elsewhere
  };
  detail::for_each_row(rows, here, [&](std::size_t row) {
    if (weight[row] == T(0) || here == 0) return;
    const T* const x = input.data() + row * here;
    T* const of_row = sums.data() + figures * row;
    of_row[0] = detail::row_exp(x, highest[row], here, gradient.data() + row * here);
    if (hit(row) < here) of_row[1] = x[hit(row)] - highest[row];
    if (figures == 3) {
      const T top = highest[row];
      of_row[2] = reduce_lanes(0, here, T(0), add_op{}, [=](std::size_t i) { return top - x[i]; });
    }
  });
  sums = detail::once([&] {
    axis.all_reduce(const_view_of(sums), view_of(sums), rank_axis::reduction::sum);
    return sums;
  });

  const T everywhere = smoothing / static_cast<T>(classes);
  const auto loss_of = [&](std::size_t row) {
    T* const e = gradient.data() + row * here;
    if (weight[row] == T(0)) {
      std::fill_n(e, here, T(0));
      return 0.0;
    }
    const T* const of_row = sums.data() + figures * row;
    const T log_sum = std::log(of_row[0]);
    T loss = log_sum - of_row[1];
    if (figures == 3)
      loss = (T(1) - smoothing) * loss + smoothing * log_sum + everywhere * of_row[2];
    const T scale = weight[row] / of_row[0], shift = weight[row] * everywhere;
    for (std::size_t i = 0; i < here; ++i) e[i] = e[i] * scale - shift;
    if (hit(row) < here) e[hit(row)] -= weight[row] * (T(1) - smoothing);
    return static_cast<double>(weight[row]) * static_cast<double>(loss);
  };
  // In blocks of rows that do not depend on how many classes this rank has.
  const double total = ordered_reduce<double>(rows, rows_of_a_block(classes),
                                              [&](std::size_t row, std::size_t last) {
                                                double sum = 0;
                                                for (; row < last; ++row) sum += loss_of(row);
                                                return sum;
                                              });
  variable<T> sum = differentiable_of_cut(
      tensor<T>::scalar(static_cast<T>(total)),
      [gradient](const tensor<T>& upstream, grad_sink<T> dx) {
        if (dx.needed()) dx.map([u = upstream.item()](T g) { return u * g; }, gradient);
      },
      logits);
  return {std::move(sum), count};
}

}  // namespace parx
