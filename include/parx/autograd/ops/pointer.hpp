// pointer_mixture: a mixture of a generated distribution over a vocabulary and one that copies
// tokens of a source text.
//
//   P(v) = g softmax(logits)[v] + (1 - g) sum of softmax(scores)[s] over the s with ids[s] = v,
//   g = sigmoid(gate)
//
// Computed in logarithms, so that small probabilities keep their digits beside large ones.
// See, Liu, Manning: Get To The Point (arXiv 1704.04368).
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/cut_rows.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// log(exp(a) + exp(b)).
template <typename T>
[[nodiscard]] T log_add(T a, T b) {
  const T high = std::max(a, b);
  return high + std::log1p(std::exp(std::min(a, b) - high));
}

/// For each source position the first one with the same token; `keys` for a masked position.
template <std::integral Id, std::integral Mask>
[[nodiscard]] std::vector<std::size_t> first_places(const tensor<Id>& ids, const tensor<Mask>& mask,
                                                    std::size_t vocabulary) {
  const std::size_t batches = ids.extent(0), keys = ids.extent(1);
  const tensor<Id> tokens = ids.contiguous();
  const tensor<Mask> seen = mask.contiguous();
  std::vector<std::size_t> first(batches * keys, keys);
  std::vector<std::size_t> place(vocabulary, keys);
  for (std::size_t b = 0; b < batches; ++b) {
    const Id* const row = tokens.data() + b * keys;
    const Mask* const counts = seen.data() + b * keys;
    for (std::size_t s = 0; s < keys; ++s) {
      if (counts[s] == 0) continue;
      require(row[s] >= 0 && static_cast<std::size_t>(row[s]) < vocabulary,
              "pointer_mixture: the token {} of source {} is outside a vocabulary of {}", row[s], b,
              vocabulary);
      auto& at = place[static_cast<std::size_t>(row[s])];
      at = std::min(at, s);
      first[b * keys + s] = at;
    }
    require(std::any_of(counts, counts + keys, [](Mask m) { return m != 0; }),
            "pointer_mixture: source {} has nothing to copy; its whole mask is 0", b);
    for (std::size_t s = 0; s < keys; ++s) {
      if (counts[s] != 0) place[static_cast<std::size_t>(row[s])] = keys;
    }
  }
  return first;
}

}  // namespace detail

/// log P as above: of logits (batch, positions, vocabulary), scores (batch, positions, keys), gate
/// (batch, positions, 1), and the source's ids and mask (batch, keys), 0 for tokens not to be
/// copied. Log-probabilities can be used as logits: in cross_entropy, in beam_search. Throws
/// usage_error naming the shapes that do not fit, for logits that are cut by classes, for an id
/// outside the vocabulary and for a source that is masked entirely.
template <typename T, std::integral Id, std::integral Mask>
[[nodiscard]] variable<T> pointer_mixture(const variable<T>& logits, const variable<T>& scores,
                                          const variable<T>& gate, const tensor<Id>& ids,
                                          const tensor<Mask>& mask,
                                          call_site site = call_site::current()) {
  const shape& s = logits.shape();
  require_whole_rows(logits.value(), "pointer_mixture", site);
  require(s.rank() == 3 && scores.rank() == 3 && gate.shape() == shape{s[0], s[1], 1} &&
              scores.shape() == shape{s[0], s[1], scores.extent(2)} &&
              ids.shape() == shape{s[0], scores.extent(2)} && mask.shape() == ids.shape(),
          "pointer_mixture: logits {}, scores {}, gate {}, ids {} and mask {} do not fit: give "
          "(batch, positions, vocabulary), (batch, positions, keys), (batch, positions, 1) and "
          "twice (batch, keys)",
          to_string(s), to_string(scores.shape()), to_string(gate.shape()), to_string(ids.shape()),
          to_string(mask.shape()));
  const std::size_t positions = s[1], width = s[2], keys = scores.extent(2), rows = s[0] * s[1];
  const auto first = detail::first_places(ids, mask, width);
  const auto tokens = ids.template cast<std::int64_t>();
  const tensor<T> x = logits.value().contiguous();
  const tensor<T> score = scores.value().contiguous();
  const tensor<T> z = gate.value().contiguous();
  const tensor<T> y = tensor<T>::empty(s);
  const tensor<T> attention = tensor<T>::zeros(scores.shape());
  // For each source token, at its first position: the copy probability, and the logarithm of the
  // generated fraction of P.
  const tensor<T> copied = tensor<T>::zeros(scores.shape());
  const tensor<T> log_share = tensor<T>::zeros(scores.shape());
  detail::for_each_row(rows, width + keys, [&](std::size_t row) {
    const T log_generate = -detail::log_add(T(0), -z.data()[row]);
    const T log_copy = -detail::log_add(T(0), z.data()[row]);
    const T* const in = x.data() + row * width;
    T* const out = y.data() + row * width;
    const T highest = detail::row_max(in, width);
    const T shift = highest + std::log(detail::row_exp(in, highest, width, out)) - log_generate;
    for (std::size_t v = 0; v < width; ++v) out[v] = in[v] - shift;

    const std::size_t b = row / positions;
    const std::size_t* const place = first.data() + b * keys;
    const std::int64_t* const id = tokens.data() + b * keys;
    const T* const points = score.data() + row * keys;
    T* const a = attention.data() + row * keys;
    T* const c = copied.data() + row * keys;
    T top = -std::numeric_limits<T>::infinity();
    for (std::size_t k = 0; k < keys; ++k) {
      if (place[k] < keys) top = std::max(top, points[k]);
    }
    T sum = 0;
    for (std::size_t k = 0; k < keys; ++k) {
      if (place[k] < keys) sum += a[k] = std::exp(points[k] - top);
    }
    for (std::size_t k = 0; k < keys; ++k) {
      if (place[k] < keys) c[place[k]] += a[k] /= sum;
    }
    for (std::size_t k = 0; k < keys; ++k) {
      if (place[k] != k || c[k] == T(0)) continue;
      T& both = out[id[k]];
      const T generated = both;
      both = detail::log_add(generated, log_copy + std::log(c[k]));
      log_share.data()[row * keys + k] = generated - both;
    }
  });
  return differentiable(
      y,
      single_call([=](const tensor<T>& upstream, grad_sink<T> dlogits, grad_sink<T> dscores,
                      grad_sink<T> dgate) {
        const tensor<T> to_logits = tensor<T>::empty(y.shape());
        const tensor<T> to_scores = tensor<T>::zeros(attention.shape());
        const tensor<T> to_gate = tensor<T>::empty(z.shape());
        detail::for_each_row(rows, width + keys, [&](std::size_t row) {
          const T* const u = upstream.data() + row * width;
          const T* const log_p = y.data() + row * width;
          const T* const a = attention.data() + row * keys;
          const T* const c = copied.data() + row * keys;
          const T* const share = log_share.data() + row * keys;
          const std::size_t* const place = first.data() + row / positions * keys;
          const std::int64_t* const id = tokens.data() + row / positions * keys;
          // u of each token is split between its generation and its copies.
          const T all = detail::row_sum(u, width);
          T to_copies = 0;
          for (std::size_t k = 0; k < keys; ++k) {
            if (place[k] == k) to_copies -= u[id[k]] * std::expm1(share[k]);
          }
          const T generated = all - to_copies;
          const T log_generate = -detail::log_add(T(0), -z.data()[row]);
          T* const d = to_logits.data() + row * width;
          detail::row_exp_shifted(log_p, log_generate, width, d);
          for (std::size_t v = 0; v < width; ++v) d[v] = u[v] - d[v] * generated;
          T* const e = to_scores.data() + row * keys;
          for (std::size_t k = 0; k < keys; ++k) {
            if (place[k] == keys || c[place[k]] == T(0)) continue;
            const T r = share[place[k]];
            const auto v = static_cast<std::size_t>(id[k]);
            e[k] = a[k] * (-u[v] * std::expm1(r) / c[place[k]] - to_copies);
            if (place[k] == k)
              d[v] = u[v] * std::exp(r) - std::exp(log_p[v] - log_generate + r) * generated;
          }
          to_gate.data()[row] = generated - std::exp(log_generate) * all;
        });
        if (dlogits.needed()) dlogits.add(to_logits);
        if (dscores.needed()) dscores.add(to_scores);
        if (dgate.needed()) dgate.add(to_gate);
      }),
      logits, scores, gate);
}

}  // namespace parx
