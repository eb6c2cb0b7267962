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

[[noreturn]] void refuse_cut(std::string_view path, const char* layer, const char* cuts);

/// This rank's of `units`. Throws usage_error where there are fewer than ranks.
[[nodiscard]] unit_range units_here(const cut_place& where, std::size_t units,
                                    std::string_view path);

/// Of `served` heads of queries this rank's need these of `heads` of keys and values. Throws
/// usage_error where they need parts of several.
[[nodiscard]] unit_range heads_serving(const cut_place& where, std::size_t heads,
                                       std::size_t served, std::string_view path);

/// What a layer exchanges of inputs with `width` features that columns read.
[[nodiscard]] std::vector<cut_message> messages_of_input(const layer_cut& how,
                                                                between_cuts between,
                                                                std::size_t width);
/// What it exchanges of results with `width` features that are sums over the ranks.
[[nodiscard]] std::vector<cut_message> messages_of_result(const layer_cut& how,
                                                                 std::size_t width);

/// What a rank has of a matrix and a bias; empty ones are whole.
struct matrix_part {
  std::optional<shard_spec> weight = {}, bias = {};
  unit_range used = {};  ///< outputs, of a matrix that is whole
  std::vector<cut_message> messages = {};

  [[nodiscard]] layer_part named(std::string_view weight_name, std::string_view bias_name) const;
};

/// `out` is the axis of a matrix's outputs. Throws usage_error for sizes that cannot be cut.
[[nodiscard]] matrix_part part_of_matrix(const cut_place& where, const layer_cut& how,
                                         std::string_view path, const shape& weight,
                                         const shape* bias, std::size_t out);

}  // namespace parx::nn

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/nn/detail/layer_cut_impl.hpp>
#endif
