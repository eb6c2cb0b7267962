// layer_cut: how a layer is cut over ranks, and which part each rank then has. Pure.
//
// A rule is data in a plan (parx/tensor_parallel/plan.hpp). part_of_matrix() and the other
// functions here compute which part a rule leaves on a rank and which messages it causes, without
// any ranks running; cut.hpp carries the rule out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/tensor/cut_rows.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI::nn {

enum class cut {
  columns,         ///< by outputs; a dropout's inputs are cut by their last axis
  rows,            ///< by inputs, which are cut by their last axis; the result is whole
  vocabulary,      ///< an embedding by its rows
  heads,           ///< attention by its heads
  positions,       ///< a norm or dropout is whole; its inputs are cut by positions (axis 1)
  to_positions,    ///< a dropout's inputs are whole, its result is cut by positions
  from_positions,  ///< a norm's inputs are cut by positions, its result is whole
};

/// How activations lie on the ranks outside of the pairs of columns and rows.
enum class between_cuts {
  whole,      ///< the same on all ranks
  positions,  ///< cut by axis 1 of (batch, positions, features)
};

using parx::cut_result;

struct layer_cut {
  nn::cut how = cut::columns;
  /// The number of units that stay together, such as heads. 0: single features.
  std::size_t units = 0;
  /// Equal blocks of outputs, each of which is cut: 3 for queries, keys and values of one matrix.
  std::size_t blocks = 1;
  /// Grouped-query attention, where `units` are key or value heads: the number of query heads.
  std::size_t query_heads = 0;
  /// How the layer's input (columns) or result (rows) lies on the ranks.
  between_cuts between = between_cuts::whole;
  /// The same for the input of an output that is tied to this embedding.
  between_cuts output = between_cuts::whole;
  cut_result result = cut_result::features;
  /// Only to count messages (layer_cut_impl.hpp): positions of a text that come here (0: all), and
  /// inputs of the layer in a step.
  std::size_t positions_used = 0, inputs = 1;
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
  std::size_t a_token = 0;  ///< elements of the whole tensor for each position of each text
  std::size_t fixed = 0;    ///< or elements of the whole tensor
  std::size_t positions_used = 0;  ///< positions of a text; 0: all
};

/// A rank's part of a layer, and the messages that it causes.
struct layer_piece {
  struct parameter {
    std::string_view name;
    shard_spec part;
  };
  std::vector<parameter> cut;  ///< others are whole
  std::vector<cut_message> messages;
};

[[noreturn]] void refuse_cut(std::string_view path, const char* layer, const char* cuts);

/// The lines of a plan that cut the multi_head_attention `path`, and others of its name:
/// `{"*.attention", parx::tp::column}, {"*.attention.out_proj", parx::tp::row}`. For errors.
[[nodiscard]] std::string lines_for_attention(std::string_view path);

/// This rank's units. Throws usage_error where there are fewer units than ranks.
[[nodiscard]] unit_range units_here(const cut_place& where, std::size_t units,
                                    std::string_view path);

/// The key and value heads, of `heads`, that this rank's query heads, of `query_heads`, read.
/// Throws usage_error where a rank would read a part of a group.
[[nodiscard]] unit_range heads_serving(const cut_place& where, std::size_t heads,
                                       std::size_t query_heads, std::string_view path);

/// The messages for inputs of `width` features of a layer that is cut by columns.
[[nodiscard]] std::vector<cut_message> messages_of_input(const layer_cut& how,
                                                         between_cuts between, std::size_t width);
/// The messages for results of `width` features that are sums over the ranks.
[[nodiscard]] std::vector<cut_message> messages_of_result(const layer_cut& how, std::size_t width);

/// A rank's part of a matrix and a bias; nullopt: whole.
struct matrix_piece {
  std::optional<shard_spec> weight = {}, bias = {};
  unit_range used = {};  ///< the outputs used here, where the matrix is whole
  std::vector<cut_message> messages = {};

  [[nodiscard]] layer_piece named(std::string_view weight_name, std::string_view bias_name) const;
};

/// `out` is the axis of a matrix's outputs. Throws usage_error for sizes that cannot be cut.
[[nodiscard]] matrix_piece part_of_matrix(const cut_place& where, const layer_cut& how,
                                         std::string_view path, const shape& weight,
                                         const shape* bias, std::size_t out);

}  // namespace parx::nn

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/nn/detail/layer_cut_impl.hpp>
#endif
