// dot_product_attention and multi_head_attention as modules, and the cache of keys and values for
// generating a text token by token.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <parx/autograd/ops/attention.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/nn/cut.hpp>
#include <parx/nn/dropout.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::nn {

/// Keys and values of the positions that one layer has seen; for inference, without gradients.
template <typename T = float>
class kv_cache {
 public:
  /// For up to `capacity` positions in `batch` texts, of the width of the first keys.
  kv_cache(std::size_t batch, std::size_t capacity) : batch_(batch), capacity_(capacity) {}

  /// The number of positions so far.
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

  /// Text b now continues the former text rows[b]; there are rows.size() texts afterwards. Throws
  /// usage_error for a row that does not exist.
  void select(std::span<const std::size_t> rows) {
    for (const std::size_t row : rows)
      require(row < batch_, "kv_cache: text {} of {} does not exist", row, batch_);
    if (length_ > 0) {
      keys_ = selected(keys_, rows);
      values_ = selected(values_, rows);
    }
    batch_ = rows.size();
  }

  /// Adds (batch, positions, width); returns views of all keys and values so far. Throws
  /// usage_error when they do not fit.
  std::pair<tensor<T>, tensor<T>> append(const tensor<T>& keys, const tensor<T>& values) {
    if (length_ == 0) {
      keys_ = tensor<T>::empty({batch_, capacity_, keys.extent(2)});
      values_ = tensor<T>::empty({batch_, capacity_, values.extent(2)});
    }
    const std::size_t end = length_ + keys.extent(1);
    require(end <= capacity_, "kv_cache: {} positions do not fit into a capacity of {}", end,
            capacity_);
    keys_.slice(1, length_, end).copy_from(keys);
    values_.slice(1, length_, end).copy_from(values);
    length_ = end;
    return {keys_.slice(1, 0, end), values_.slice(1, 0, end)};
  }

 private:
  [[nodiscard]] tensor<T> selected(const tensor<T>& from, std::span<const std::size_t> rows) const {
    const tensor<T> to = tensor<T>::empty({rows.size(), from.extent(1), from.extent(2)});
    for (std::size_t b = 0; b < rows.size(); ++b) {
      to.slice(0, b, b + 1)
          .slice(1, 0, length_)
          .copy_from(from.slice(0, rows[b], rows[b] + 1).slice(1, 0, length_));
    }
    return to;
  }

  std::size_t batch_, capacity_, length_ = 0;
  tensor<T> keys_, values_;  // allocated by the first append()
};

/// The keys and values of a memory, computed once for many queries: multi_head_attention::project.
template <typename T = float>
struct projected_memory {
  variable<T> keys, values;
};

struct dot_product_attention_options {
  double dropout = 0;  ///< of the probabilities, in training
};

/// scaled_dot_product_attention with heads side by side, and dropout in training, which is seeded
/// by this module's path.
class dot_product_attention : public module<dot_product_attention>, public cuttable_layer {
 public:
  explicit dot_product_attention(std::size_t heads, dot_product_attention_options options = {})
      : whole_heads_(heads), heads_(heads), dropout_(options.dropout) {}

  /// Restricts all later calls to the heads [first, first + count): inputs and results have `count`
  /// heads, and dropout drops what it would drop of these heads with all heads present. For ranks
  /// that split a layer and have the same seed and replica. Throws usage_error for heads that do
  /// not exist.
  void take_heads(std::size_t first, std::size_t count) {
    require(count > 0 && first + count <= whole_heads_,
            "attention: {} heads from number {} on do not exist among {}", count, first,
            whole_heads_);
    first_head_ = first;
    heads_ = count;
  }
  [[nodiscard]] layer_piece part_on(const cut_place& where, const layer_cut& how,
                                   std::string_view path) const override {
    if (how.how != cut::heads) refuse_cut(path, "attention", "heads");
    static_cast<void>(units_here(where, whole_heads_, path));
    return {};
  }
  void shard_over(const std::shared_ptr<rank_axis>& axis, const layer_cut&,
                  std::string_view path) override {
    const unit_range here = units_here(place_on(*axis), whole_heads_, path);
    take_heads(here.begin, here.size());
  }
  void make_whole() override { take_heads(0, whole_heads_); }

  /// (batch, positions, heads * width) each. Of `masks`, heads, dropout and stream are set here.
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& q, const variable<T>& k,
                                    const variable<T>& v, const attention_options<T>& masks = {}) {
    return scaled_dot_product_attention(q, k, v, complete(masks, q.extent(0)));
  }
  /// Queries, keys and values side by side: see parx::self_attention.
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& qkv, const attention_options<T>& masks) {
    return self_attention(qkv, complete(masks, qkv.extent(0)));
  }
  /// Causal attention over the cached keys and values of earlier positions and the given ones,
  /// which are appended to the cache.
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& q, const variable<T>& k,
                                    const variable<T>& v, kv_cache<T>* cache) {
    attention_options<T> masks{.causal = true, .query_offset = cache->length()};
    const auto [keys, values] = cache->append(k.value(), v.value());
    return scaled_dot_product_attention<T>(q, keys, values, complete(masks, q.extent(0)));
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("dropout", dropout_);
  }

 private:
  template <typename T>
  [[nodiscard]] attention_options<T> complete(attention_options<T> options, std::size_t samples) {
    options.heads = heads_;
    options.first_head = first_head_;
    options.whole_heads = whole_heads_;
    if (is_training() && dropout_.probability() > 0) {
      options.dropout = dropout_.probability();
      options.stream = dropout_.draw(samples);
    }
    return options;
  }

  std::size_t whole_heads_, first_head_ = 0, heads_;
  nn::dropout dropout_;
};

struct multi_head_attention_options {
  nn::bias bias = nn::bias::learned;
  double dropout = 0;
};

/// PyTorch's nn.MultiheadAttention with batch_first = True, and its parameters: in_proj_weight (3
/// width, width), in_proj_bias, out_proj.weight, out_proj.bias.
template <typename T = float>
class multi_head_attention : public module<multi_head_attention<T>>, public cuttable_layer {
 public:
  using value_type = T;

  /// Throws usage_error unless `heads` divides `width`.
  multi_head_attention(std::size_t width, std::size_t heads,
                       multi_head_attention_options options = {})
      : heads_(heads),
        in_weight_("in_proj_weight", {3 * width, width}),
        out_(width, width, {.bias = options.bias}),
        core_(heads, {.dropout = options.dropout}) {
    require(heads > 0 && width % heads == 0,
            "multi_head_attention: {} features cannot be cut into {} heads of one size", width,
            heads);
    if (options.bias == bias::learned) {
      in_bias_ = parameter<T>("in_proj_bias", {3 * width});
      in_bias_.exempt_from_decay();
    }
  }

  /// x (batch, positions, width) attends to itself.
  [[nodiscard]] variable<T> forward(const variable<T>& x, const attention_options<T>& masks = {}) {
    return out_(core_(qkv(x), masks));
  }
  /// query (batch, queries, width) attends to key and value (batch, keys, width).
  [[nodiscard]] variable<T> forward(const variable<T>& query, const variable<T>& key,
                                    const variable<T>& value,
                                    const attention_options<T>& masks = {}) {
    const variable<T> k = cut_.enter(key);
    const variable<T> v = key.node().get() == value.node().get() ? k : cut_.enter(value);
    return out_(core_(project(cut_.enter(query), 0), project(k, 1), project(v, 2), masks));
  }

  /// Causal: x attends to itself and to the cached positions, and is appended to the cache. Cached
  /// positions get no gradients.
  [[nodiscard]] variable<T> forward(const variable<T>& x, kv_cache<T>* cache) {
    const variable<T> all = qkv(x);
    const std::size_t width = all.extent(-1) / 3;
    const auto part = [&](std::size_t i) { return slice(all, -1, i * width, (i + 1) * width); };
    return out_(core_(part(0), part(1), part(2), cache));
  }
  /// query attends to a memory that project() has projected.
  [[nodiscard]] variable<T> forward(const variable<T>& query, const projected_memory<T>& memory,
                                    const attention_options<T>& masks) {
    return out_(core_(project(cut_.enter(query), 0), memory.keys, memory.values, masks));
  }
  /// The keys and values that forward() computes of `memory` (batch, keys, width).
  [[nodiscard]] projected_memory<T> project(const variable<T>& memory) const {
    const variable<T> entered = cut_.enter(memory);
    return {project(entered, 1), project(entered, 2)};
  }

  /// By columns: each rank gets some of the heads, with their queries, keys and values. out_proj is
  /// then cut by rows.
  [[nodiscard]] layer_piece part_on(const cut_place& where, const layer_cut& how,
                                   std::string_view path) const override {
    require(how.how == cut::columns,
            "\"{}\" is multi_head_attention: it can be cut by columns, and its out_proj by rows. "
            "Write {}",
            path, lines_for_attention(path));
    return cut_.part(where, by_heads(how), path, in_weight_, in_bias_, weight_layout::out_in)
        .named("in_proj_weight", "in_proj_bias");
  }
  void shard_over(const std::shared_ptr<rank_axis>& axis, const layer_cut& how,
                  std::string_view path) override {
    cut_.cut(axis, by_heads(how), path, in_weight_, in_bias_, weight_layout::out_in);
    const unit_range here = units_here(place_on(*axis), heads_, path);
    core_.take_heads(here.begin, here.size());
  }
  void make_whole() override {
    cut_ = {};
    core_.make_whole();
  }

  template <typename Visit>
  void members(Visit& visit) {
    const std::size_t width = in_weight_.global_shape()[1];
    visit("in_proj_weight", in_weight_, init::xavier_uniform(width, 3 * width));
    visit("in_proj_bias", in_bias_, init::constant(0));
    visit("out_proj", out_);
    visit("core", core_);
  }

 private:
  [[nodiscard]] layer_cut by_heads(layer_cut how) const noexcept {
    how.units = heads_;
    how.blocks = 3;
    return how;
  }
  /// Queries, keys and values side by side.
  [[nodiscard]] variable<T> qkv(const variable<T>& x) const {
    return cut_.apply<T>(x, in_weight_, in_bias_, activation::none, weight_layout::out_in);
  }
  /// Queries (part 0), keys (1) or values (2) of an x that has passed cut_.enter().
  [[nodiscard]] variable<T> project(const variable<T>& x, std::size_t part) const {
    const std::size_t width = in_weight_.extent(0) / 3, begin = part * width, end = begin + width;
    return parx::linear<T>(x, slice<T>(in_weight_, 0, begin, end),
                           in_bias_.defined() ? slice<T>(in_bias_, 0, begin, end) : variable<T>());
  }

  std::size_t heads_;
  matrix_cut cut_;
  parameter<T> in_weight_;
  parameter<T> in_bias_;
  linear<T> out_;
  dot_product_attention core_;
};

}  // namespace parx::nn
