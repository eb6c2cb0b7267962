// Definitions of layer_cut.hpp.
#pragma once

#include <parx/core/check.hpp>
#include <parx/nn/layer_cut.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI::nn {

PARX_INLINE void refuse_cut(std::string_view path, const char* layer, const char* cuts) {
  throw_usage("\"{}\" is {}: it can be cut by {}", path, layer, cuts);
}

PARX_INLINE std::string lines_for_attention(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  std::string pattern(path);
  const bool is_named = path.find_first_of("0123456789", dot) != dot + 1;  // not in a sequential
  if (dot != std::string_view::npos && is_named) pattern.replace(0, dot, "*");
  return formatted("{{\"{}\", parx::tp::column}}, {{\"{}.out_proj\", parx::tp::row}}", pattern,
                   pattern);
}

PARX_INLINE unit_range units_here(const cut_place& where, std::size_t units,
                                  std::string_view path) {
  require(units >= static_cast<std::size_t>(where.ranks),
          "\"{}\" cannot be cut over {} ranks: it has {} to deal out, so {} ranks at most", path,
          where.ranks, units, units);
  return {chunk_begin(units, where.ranks, where.rank),
          chunk_begin(units, where.ranks, where.rank + 1)};
}

PARX_INLINE unit_range heads_serving(const cut_place& where, std::size_t heads,
                                     std::size_t query_heads, std::string_view path) {
  const std::size_t each = query_heads / heads;
  const auto serving = [&](const unit_range& queries) {
    return unit_range{queries.begin / each, (queries.end + each - 1) / each};
  };
  for (int rank = 0; rank < where.ranks; ++rank) {  // so that all ranks throw or none
    const unit_range queries{chunk_begin(query_heads, where.ranks, rank),
                             chunk_begin(query_heads, where.ranks, rank + 1)};
    require(serving(queries).size() == 1 || (queries.begin % each == 0 && queries.end % each == 0),
            "\"{}\": {} heads of queries, {} for each head of keys and values, cannot be cut over "
            "{} ranks: rank {} would need a part of a group. Take a number of ranks that divides "
            "{} or is a multiple of it",
            path, query_heads, each, where.ranks, rank, heads);
  }
  return serving(units_here(where, query_heads, path));
}

PARX_INLINE std::vector<cut_message> messages_of_input(const layer_cut& how, between_cuts between,
                                                       std::size_t width) {
  using enum cut_collective;
  std::vector<cut_message> all;
  for (std::size_t i = 0; i < how.inputs; ++i) {
    if (between == between_cuts::positions) {
      all.push_back({cut_pass::forward, all_gather, "its input", width, 0, how.positions_used});
      all.push_back({cut_pass::backward, reduce_scatter, "its input's gradient", width, 0,
                     how.positions_used});
    } else {
      all.push_back(
          {cut_pass::backward, all_reduce, "its input's gradient", width, 0, how.positions_used});
    }
  }
  return all;
}

PARX_INLINE std::vector<cut_message> messages_of_result(const layer_cut& how, std::size_t width) {
  using enum cut_collective;
  std::vector<cut_message> all;
  for (std::size_t i = 0; i < how.inputs; ++i) {
    if (how.between == between_cuts::positions) {
      all.push_back(
          {cut_pass::forward, reduce_scatter, "its result", width, 0, how.positions_used});
      all.push_back(
          {cut_pass::backward, all_gather, "its result's gradient", width, 0, how.positions_used});
    } else {
      all.push_back({cut_pass::forward, all_reduce, "its result", width, 0, how.positions_used});
    }
  }
  return all;
}

PARX_INLINE layer_piece matrix_piece::named(std::string_view weight_name,
                                          std::string_view bias_name) const {
  layer_piece all{{}, messages};
  if (weight) all.cut.push_back({weight_name, *weight});
  if (bias) all.cut.push_back({bias_name, *bias});
  return all;
}

PARX_INLINE matrix_piece part_of_matrix(const cut_place& where, const layer_cut& how,
                                       std::string_view path, const shape& weight,
                                       const shape* bias, std::size_t out) {
  require(how.how == cut::columns || how.how == cut::rows,
          "\"{}\" is a linear layer: it can be cut by columns or by rows", path);
  require(how.result == cut_result::features || (how.units == 0 && how.blocks == 1),
          "\"{}\": classes are cut one by one, not in units or blocks", path);
  using enum cut_collective;
  const bool columns = how.how == cut::columns;
  const std::size_t along = columns ? out : 1 - out;
  const std::size_t extent = weight[along] / how.blocks;
  const std::size_t units = how.units > 0 ? how.units : extent;
  require(extent % units == 0, "\"{}\": {} {} are not {} units of one size", path, extent,
          columns ? "outputs" : "inputs", units);
  const std::size_t width = extent / units;
  matrix_piece here;
  here.messages = columns ? messages_of_input(how, how.between, weight[1 - out])
                          : messages_of_result(how, weight[out]);
  if (columns && how.query_heads > 0 && units % static_cast<std::size_t>(where.ranks) != 0) {
    // Several ranks use the same head: all keep the whole matrix and sum its gradient.
    const unit_range heads = heads_serving(where, units, how.query_heads, path);
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
