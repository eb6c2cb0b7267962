// scaled_dot_product_attention: softmax(scale q k^T + bias) v without the matrix of scores.
//
// See detail/attention_tiles.hpp for the algorithm. The tape keeps q, k, v, the result, and one
// number for each query and head. Under autocast the first four are rounded and kept in 16 bits.
// Scores, probabilities and their gradients are float; as operands of products of bfloat16 they are
// rounded, too.
// Vaswani et al.: Attention Is All You Need (arXiv 1706.03762).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/attention_tiles.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI {

template <typename T = float>
struct attention_options {
  std::size_t heads = 0;         ///< for q, k, v of three axes: see scaled_dot_product_attention
  bool causal = false;           ///< query t sees the keys up to position query_offset + t
  std::size_t query_offset = 0;  ///< the number of keys before the first query (a cache)
  tensor<std::uint8_t> key_mask = {};  ///< (batch, keys): 0 for keys to ignore (padding)
  tensor<T> bias = {};          ///< added to the scores, broadcast to (batch, heads, queries, keys)
  double scale = 0;             ///< 0: 1 / sqrt(width of a head)
  double dropout = 0;           ///< probability with which a query does not use a key that it sees
  random_stream stream{0, ""};  ///< decides what is dropped; take a substream for each call
  /// Where heads are cut over ranks: the number of the first one here, and of all of them (0: all
  /// are here). Dropout draws by these numbers, so the cut changes no bit.
  std::size_t first_head = 0;
  std::size_t whole_heads = 0;
};

/// The key_mask of batches whose first lengths[b] keys of `keys` are real.
[[nodiscard]] inline tensor<std::uint8_t> key_mask_of(std::span<const std::size_t> lengths,
                                                      std::size_t keys,
                                                      call_site = call_site::current()) {
  tensor<std::uint8_t> mask = tensor<std::uint8_t>::zeros({lengths.size(), keys});
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    require(lengths[b] <= keys, "key_mask_of: a length of {} among {} keys", lengths[b], keys);
    std::fill_n(mask.data() + b * keys, lengths[b], std::uint8_t{1});
  }
  return mask;
}

namespace detail {

template <typename T>
[[nodiscard]] attention_problem<T> describe_attention(const shape& q, const shape& k,
                                                      const shape& v,
                                                      const attention_options<T>& options) {
  const std::size_t heads = options.heads > 0 ? options.heads : q[1];
  const std::size_t positions = options.heads > 0 ? 1 : 2;
  const std::size_t width = options.heads > 0 ? q.back() / heads : q.back();
  const std::size_t served = options.heads == 0 ? k[1] : width == 0 ? 0 : k.back() / width;
  const std::size_t value_width = options.heads == 0 || served == 0 ? v.back() : v.back() / served;
  const auto whole = [&](std::size_t count, std::size_t at, std::size_t each) {
    return options.heads > 0 ? shape{q[0], at, count * each} : shape{q[0], count, at, each};
  };
  require(
      served > 0 && heads % served == 0 && q == whole(heads, q[positions], width) &&
          k == whole(served, k[positions], width) && v == whole(served, k[positions], value_width),
      "attention: queries {}, keys {} and values {} do not fit: the batches are equal, keys and "
      "values have the same positions and heads, and their heads divide those of the queries",
      to_string(q), to_string(k), to_string(v));
  require(options.dropout >= 0 && options.dropout < 1,
          "attention: a dropout of {} is not in [0, 1)", options.dropout);
  attention_problem<T> p;
  p.batches = q[0], p.heads = heads, p.group = heads / served;
  p.queries = q[positions], p.keys = k[positions], p.width = width, p.value_width = value_width;
  p.scale = static_cast<T>(options.scale != 0 ? options.scale
                                              : 1 / std::sqrt(static_cast<double>(width)));
  p.causal = options.causal;
  p.query_offset = options.query_offset;
  p.dropout = options.dropout;
  p.stream = options.stream;
  p.first_head = options.first_head;
  p.whole_heads = options.whole_heads > 0 ? options.whole_heads : heads;
  require(p.first_head + heads <= p.whole_heads, "attention: heads {} to {} are not among {}",
          p.first_head, p.first_head + heads - 1, p.whole_heads);
  p.products = autocast_type();
  p.key_end.assign(p.batches, p.keys);
  if (options.key_mask.defined()) {
    require(options.key_mask.shape() == shape{p.batches, p.keys},
            "attention: a key mask of shape {} for {} batches of {} keys",
            to_string(options.key_mask.shape()), p.batches, p.keys);
    const tensor<std::uint8_t> mask = options.key_mask.contiguous();
    for (std::size_t b = 0; b < p.batches; ++b) {
      const std::uint8_t* const row = mask.data() + b * p.keys;
      while (p.key_end[b] > 0 && row[p.key_end[b] - 1] == 0) --p.key_end[b];
      for (std::size_t s = 0; s < p.key_end[b]; ++s) {
        if (row[s] != 0) continue;
        if (!p.key_bias.defined()) p.key_bias = tensor<T>::zeros({p.batches, p.keys});
        p.key_bias.data()[b * p.keys + s] = -std::numeric_limits<T>::infinity();
      }
    }
  }
  if (options.bias.defined()) {
    p.bias = options.bias.expand({p.batches, p.heads, p.queries, p.keys});
  }
  return p;
}

/// Queries, keys or values as operands of the tiles, and the form to keep for backward.
template <typename T>
struct attention_operand {
  tensor<T> values;
  saved<T> kept;

  explicit attention_operand(const variable<T>& x) {
    if (autocasting<T>()) {
      const product_operand<T> operand(x, products_by::gemm);
      values = dense_rows(operand.values());
      kept = operand.kept();
    } else {
      values = dense_rows(x.value());
      kept = saved<T>(values);
    }
  }
};

/// Memory for a contribution that is summed in several steps: the gradient's own memory if it is
/// the first contribution, else separate memory, so that the sum has the same bits either way.
template <typename T>
class whole_contribution {
 public:
  whole_contribution(const grad_sink<T>& sink, bool may_be_in_place, const shape& s) {
    if (may_be_in_place && sink.needed()) {
      const auto target = sink.memory();
      if (!target.add) memory_ = target.values;
    }
    is_in_place_ = memory_.defined();
    if (!is_in_place_) memory_ = tensor<T>::empty(s);
  }
  [[nodiscard]] const tensor<T>& memory() const noexcept { return memory_; }
  void add_to(const grad_sink<T>& sink) const {
    if (sink.needed() && !is_in_place_) sink.add(memory_);
  }

 private:
  tensor<T> memory_;
  bool is_in_place_ = false;
};

}  // namespace detail

/// For each query the values of the keys it sees, weighted by softmax(scale q k^T + bias).
///
/// q is (batch, heads, queries, width), k (batch, heads, keys, width), v (batch, heads, keys, value
/// width), any strides; the result is (batch, heads, queries, value width). k and v may have fewer
/// heads; each then serves several consecutive heads of q (grouped queries). With options.heads, q
/// is (batch, queries, heads * width) with the heads side by side, as a projection returns them; k,
/// v and the result likewise. A query that sees no key gets 0, and contributes no gradient.
/// options.bias gets no gradient. Throws usage_error naming the shapes that do not fit.
template <typename T>
[[nodiscard]] variable<T> scaled_dot_product_attention(
    const variable<T>& q, const variable<T>& k, const variable<T>& v,
    const std::type_identity_t<attention_options<T>>& options = {},
    call_site = call_site::current()) {
  const std::size_t axes = options.heads > 0 ? 3 : 4;
  require(q.rank() == axes && k.rank() == axes && v.rank() == axes,
          "attention: queries {}, keys {} and values {} need {} axes {} options.heads",
          to_string(q.shape()), to_string(k.shape()), to_string(v.shape()), axes,
          options.heads > 0 ? "with" : "without");
  const auto problem = detail::describe_attention(q.shape(), k.shape(), v.shape(), options);
  const std::size_t heads = options.heads;
  const std::size_t served = heads / problem.group;  // 0 with four axes
  const detail::attention_operand<T> of_q(q), of_k(k), of_v(v);
  const std::size_t value_width = problem.value_width;
  const tensor<T> result = tensor<T>::empty(
      heads > 0 ? shape{problem.batches, problem.queries, problem.heads * value_width}
                : shape{problem.batches, problem.heads, problem.queries, value_width});
  const tensor<T> log_sum = tensor<T>::empty({problem.batches, problem.heads, problem.queries});
  using input = detail::heads_view<const T>;
  using target = detail::heads_view<T>;
  detail::attention_forward<T>(problem, input::of(of_q.values, heads),
                               input::of(of_k.values, served), input::of(of_v.values, served),
                               target::of(result, heads), log_sum.data());
  detail::round_result(result);
  // A variable in two places (attention(x, x, x)) has one gradient: its contributions must be
  // computed in separate memory.
  const auto* const key_node = k.node().get();
  const bool apart =
      q.node().get() != key_node && key_node != v.node().get() && v.node().get() != q.node().get();
  return differentiable(
      result,
      single_call([problem, heads, served, apart, log_sum, kept_q = of_q.kept, kept_k = of_k.kept,
                   kept_v = of_v.kept,
                   kept = detail::saved<T>(result)](const tensor<T>& upstream, grad_sink<T> dq,
                                                    grad_sink<T> dk, grad_sink<T> dv) {
        const tensor<T> queries = kept_q.unrounded(), keys = kept_k.unrounded();
        const tensor<T> values = kept_v.unrounded(), outcome = kept.values();
        const detail::whole_contribution<T> to_q(dq, apart, queries.shape());
        const detail::whole_contribution<T> to_k(dk, apart, keys.shape());
        const detail::whole_contribution<T> to_v(dv, apart, values.shape());
        to_k.memory().fill(T(0));
        to_v.memory().fill(T(0));
        detail::attention_backward<T>(
            problem, input::of(queries, heads), input::of(keys, served), input::of(values, served),
            input::of(outcome, heads), input::of(upstream, heads), log_sum.data(),
            target::of(to_q.memory(), heads), T(0), target::of(to_k.memory(), served),
            target::of(to_v.memory(), served));
        to_q.add_to(dq);
        to_k.add_to(dk);
        to_v.add_to(dv);
      }),
      q, k, v);
}

/// Self-attention over a fused projection, with queries, keys and values side by side: qkv is
/// (batch, positions, 3 * heads * width), the result (batch, positions, heads * width). Needs
/// options.heads; otherwise as scaled_dot_product_attention.
template <typename T>
[[nodiscard]] variable<T> self_attention(const variable<T>& qkv,
                                         const std::type_identity_t<attention_options<T>>& options,
                                         call_site = call_site::current()) {
  const std::size_t heads = options.heads;
  require(
      qkv.rank() == 3 && heads > 0 && qkv.extent(-1) % (3 * heads) == 0,
      "self_attention: an input of shape {} is not cut into queries, keys and values of {} heads",
      to_string(qkv.shape()), heads);
  const std::size_t whole = qkv.extent(-1) / 3;
  const shape one{qkv.extent(0), qkv.extent(1), whole};
  const auto problem = detail::describe_attention(one, one, one, options);
  const detail::attention_operand<T> operand(qkv);
  const tensor<T> result = tensor<T>::empty(one);
  const tensor<T> log_sum = tensor<T>::empty({problem.batches, heads, problem.queries});
  using input = detail::heads_view<const T>;
  using target = detail::heads_view<T>;
  const auto part = [=](const auto& tensor_of_three, std::size_t i) {
    return tensor_of_three.slice(-1, i * whole, (i + 1) * whole);
  };
  const tensor<T>& whole_qkv = operand.values;
  detail::attention_forward<T>(
      problem, input::of(part(whole_qkv, 0), heads), input::of(part(whole_qkv, 1), heads),
      input::of(part(whole_qkv, 2), heads), target::of(result, heads), log_sum.data());
  detail::round_result(result);
  return differentiable(
      result,
      [problem, heads, part, log_sum, kept_qkv = operand.kept, kept = detail::saved<T>(result)](
          const tensor<T>& upstream, grad_sink<T> dqkv) {
        const tensor<T> packed = kept_qkv.unrounded(), outcome = kept.values();
        const tensor<T> sum = dqkv.zeroed();
        detail::attention_backward<T>(
            problem, input::of(part(packed, 0), heads), input::of(part(packed, 1), heads),
            input::of(part(packed, 2), heads), input::of(outcome, heads),
            input::of(upstream, heads), log_sum.data(), target::of(part(sum, 0), heads), T(1),
            target::of(part(sum, 1), heads), target::of(part(sum, 2), heads));
      },
      qkv);
}

}  // namespace parx
