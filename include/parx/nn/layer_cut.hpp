// layer_cut: how a layer is cut over ranks, and what of it is then on each. Pure.
//
// The rules are data that a plan carries (parx/tensor_parallel/plan.hpp); part_of_matrix() and its
// like say what a rule leaves on a rank and sends, before there are ranks. cut.hpp does it.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI::nn {

enum class cut {
  columns,         ///< by outputs; of dropout: its inputs are, by their last axis
  rows,            ///< by inputs, which are cut by their last axis; the result is whole
  vocabulary,      ///< an embedding by its rows
  heads,           ///< attention: some heads are here
  positions,       ///< a norm or dropout: whole, of inputs that are cut by positions (axis 1)
  to_positions,    ///< dropout: of whole inputs, and its result goes on cut by positions
  from_positions,  ///< a norm: of inputs that are cut by positions, and its result is whole
};

/// What activations are between a pair of columns and rows, and outside of all.
enum class between_cuts {
  whole,      ///< the same on all ranks
  positions,  ///< cut by axis 1 of (batch, positions, features)
};

/// What a layer's result is for.
enum class cut_result {
  features,  ///< the next layer
  logits,    ///< the loss: outputs are classes
};

struct layer_cut {
  nn::cut how = cut::columns;
  /// What is not cut apart, such as heads: the number of them. 0: single features.
  std::size_t units = 0;
  /// Equal blocks of outputs, each of which is cut: 3 for queries, keys and values of one matrix.
  std::size_t blocks = 1;
  /// Heads of queries, where `units` are heads of keys or values that may serve several of them.
  std::size_t served = 0;
  /// What the layer gets or gives outside of its cut.
  between_cuts between = between_cuts::whole;
  /// Of an embedding: what it gets where an output is tied to it.
  between_cuts output = between_cuts::whole;
  cut_result result = cut_result::features;
  /// What only explains messages: positions of a text that come here (0: all), and inputs that the
  /// layer has in a step.
  std::size_t seen = 0, inputs = 1;
};

/// Units [begin, end).
struct unit_range {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
};

/// A rank of those over which layers are cut.
struct cut_place {
  int rank = 0, ranks = 1;
};

enum class cut_collective { all_reduce, all_gather, reduce_scatter };
enum class cut_pass { forward, backward };

/// A collective of a layer in a step.
struct cut_message {
  cut_pass pass;
  cut_collective how;
  const char* of;           ///< "its result"
  std::size_t a_token = 0;  ///< numbers of what is whole, for each position of each text
  std::size_t fixed = 0;    ///< or so many at all
  std::size_t seen = 0;     ///< positions of a text; 0: all
};

/// What a rank has of a layer, and what that sends.
struct layer_part {
  struct parameter {
    std::string_view name;
    shard_spec part;
  };
  std::vector<parameter> cut;  ///< others are whole
  std::vector<cut_message> messages;
};

[[noreturn]] inline void refuse_cut(std::string_view path, const char* layer, const char* cuts) {
  throw_usage("\"{}\" is {}: it can be cut by {}", path, layer, cuts);
}

/// This rank's of `units`. Throws usage_error where there are fewer than ranks.
[[nodiscard]] inline unit_range units_here(const cut_place& where, std::size_t units,
                                           std::string_view path) {
  require(units >= static_cast<std::size_t>(where.ranks),
          "\"{}\" cannot be cut over {} ranks: it has {} to deal out, so {} ranks at most", path,
          where.ranks, units, units);
  return {chunk_begin(units, where.ranks, where.rank),
          chunk_begin(units, where.ranks, where.rank + 1)};
}

/// Of `served` heads of queries this rank's need these of `heads` of keys and values. Throws
/// usage_error where they need parts of several.
[[nodiscard]] inline unit_range heads_serving(const cut_place& where, std::size_t heads,
                                              std::size_t served, std::string_view path) {
  const std::size_t each = served / heads;
  const auto serving = [&](const unit_range& queries) {
    return unit_range{queries.begin / each, (queries.end + each - 1) / each};
  };
  for (int rank = 0; rank < where.ranks; ++rank) {  // what one refuses all do
    const unit_range queries{chunk_begin(served, where.ranks, rank),
                             chunk_begin(served, where.ranks, rank + 1)};
    require(serving(queries).size() == 1 || (queries.begin % each == 0 && queries.end % each == 0),
            "\"{}\": {} heads of queries, {} for each head of keys and values, cannot be cut over "
            "{} ranks: rank {} would need a part of a group. Take a number of ranks that divides "
            "{} or is a multiple of it",
            path, served, each, where.ranks, rank, heads);
  }
  return serving(units_here(where, served, path));
}

/// What a layer exchanges of inputs with `width` features that columns read.
[[nodiscard]] inline std::vector<cut_message> messages_of_input(const layer_cut& how,
                                                                between_cuts between,
                                                                std::size_t width) {
  using enum cut_collective;
  std::vector<cut_message> all;
  for (std::size_t i = 0; i < how.inputs; ++i) {
    if (between == between_cuts::positions) {
      all.push_back({cut_pass::forward, all_gather, "its input", width, 0, how.seen});
      all.push_back({cut_pass::backward, reduce_scatter, "its input's gradient", width, 0,
                     how.seen});
    } else {
      all.push_back({cut_pass::backward, all_reduce, "its input's gradient", width, 0, how.seen});
    }
  }
  return all;
}
/// What it exchanges of results with `width` features that are sums over the ranks.
[[nodiscard]] inline std::vector<cut_message> messages_of_result(const layer_cut& how,
                                                                 std::size_t width) {
  using enum cut_collective;
  std::vector<cut_message> all;
  for (std::size_t i = 0; i < how.inputs; ++i) {
    if (how.between == between_cuts::positions) {
      all.push_back({cut_pass::forward, reduce_scatter, "its result", width, 0, how.seen});
      all.push_back({cut_pass::backward, all_gather, "its result's gradient", width, 0, how.seen});
    } else {
      all.push_back({cut_pass::forward, all_reduce, "its result", width, 0, how.seen});
    }
  }
  return all;
}

/// What a rank has of a matrix and a bias; empty ones are whole.
struct matrix_part {
  std::optional<shard_spec> weight = {}, bias = {};
  unit_range used = {};  ///< outputs, of a matrix that is whole
  std::vector<cut_message> messages = {};

  [[nodiscard]] layer_part named(std::string_view weight_name, std::string_view bias_name) const {
    layer_part all{{}, messages};
    if (weight) all.cut.push_back({weight_name, *weight});
    if (bias) all.cut.push_back({bias_name, *bias});
    return all;
  }
};

/// `out` is the axis of a matrix's outputs. Throws usage_error for sizes that cannot be cut.
[[nodiscard]] inline matrix_part part_of_matrix(const cut_place& where, const layer_cut& how,
                                                std::string_view path, const shape& weight,
                                                const shape* bias, std::size_t out) {
  require(how.how == cut::columns || how.how == cut::rows,
          "\"{}\" is a linear layer: it can be cut by columns or by rows", path);
  using enum cut_collective;
  const bool columns = how.how == cut::columns;
  const std::size_t along = columns ? out : 1 - out;
  const std::size_t extent = weight[along] / how.blocks;
  const std::size_t units = how.units > 0 ? how.units : extent;
  require(extent % units == 0, "\"{}\": {} {} are not {} units of one size", path, extent,
          columns ? "outputs" : "inputs", units);
  const std::size_t width = extent / units;
  matrix_part here;
  here.messages = columns ? messages_of_input(how, how.between, weight[1 - out])
                          : messages_of_result(how, weight[out]);
  if (columns && how.served > 0 && units % static_cast<std::size_t>(where.ranks) != 0) {
    // Heads that several ranks use: all have them, and the gradient is the sum of theirs.
    const unit_range heads = heads_serving(where, units, how.served, path);
    here.used = {heads.begin * width, heads.end * width};
    here.messages.push_back(
        {cut_pass::backward, all_reduce, "its weight's gradient", 0, weight.size()});
    if (bias != nullptr)
      here.messages.push_back(
          {cut_pass::backward, all_reduce, "its bias's gradient", 0, bias->size()});
    return here;
  }
  const unit_range mine = units_here(where, units, path);
  std::vector<axis_interval> taken, of_bias;
  for (std::size_t block = 0; block < how.blocks; ++block) {
    const std::size_t first = block * extent;
    taken.push_back({along, first + mine.begin * width, first + mine.end * width});
    of_bias.push_back({0, taken.back().begin, taken.back().end});
  }
  here.weight = shard_spec::of_cuts(weight, taken);
  if (bias != nullptr && columns) here.bias = shard_spec::of_cuts(*bias, of_bias);
  if (bias != nullptr && !columns && how.between == between_cuts::positions)
    here.messages.push_back(
        {cut_pass::backward, all_reduce, "its bias's gradient", 0, bias->size()});
  return here;
}

}  // namespace parx::nn
