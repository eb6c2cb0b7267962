// proof: runs the schedules of a call on all ranks and reports what is wrong with the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "comm/symbolic_run.hpp"

namespace proof {

/// Element `index` of ranks first to last - 1, in order.
inline symbol in_order(int first, int last, std::size_t index) {
  symbol value = leaf(first, index);
  for (int r = first + 1; r < last; ++r) value = combine(value, leaf(r, index));
  return value;
}

/// What a rank's output must hold. `shapes` are all ranks', for what the others send it.
inline std::vector<symbol> expected_output(const std::vector<call_shape>& shapes, int rank) {
  const call_shape& shape = shapes[static_cast<std::size_t>(rank)];
  const partition cut = shape.cut();
  const bool is_root = shape.rank == shape.root;
  std::vector<symbol> wanted;
  const auto add = [&](std::size_t count, auto&& value) {
    for (std::size_t k = 0; k < count; ++k) wanted.push_back(value(k));
  };
  const auto reduced = [&](int first, int last, std::size_t from, std::uint32_t scaled) {
    return [=](std::size_t k) {
      symbol value = in_order(first, last, from + k);
      value.scaled = scaled;
      return value;
    };
  };
  const auto nothing = [](std::size_t) { return unwritten; };
  switch (shape.what) {
    case operation::all_reduce: add(shape.count, reduced(0, shape.world, 0, 1)); break;
    case operation::reduce:
      if (is_root) add(shape.count, reduced(0, shape.world, 0, 1));
      else add(shape.count, nothing);
      break;
    case operation::reduce_scatter:
      add(cut.count(rank), reduced(0, shape.world, cut.offset(rank), 1));
      break;
    case operation::scan: add(shape.count, reduced(0, rank + 1, 0, 0)); break;
    case operation::exscan:
      if (rank > 0) add(shape.count, reduced(0, rank, 0, 0));
      else add(shape.count, nothing);
      break;
    case operation::all_gather:
    case operation::gather:
      for (int r = 0; r < shape.world; ++r) {
        if (shape.what == operation::gather && !is_root) add(cut.count(r), nothing);
        else add(cut.count(r), [&](std::size_t k) { return leaf(r, k); });
      }
      break;
    case operation::broadcast:
      add(shape.count, [&](std::size_t k) { return leaf(shape.root, k); });
      break;
    case operation::scatter:
      add(cut.count(rank), [&](std::size_t k) { return leaf(shape.root, cut.offset(rank) + k); });
      break;
    case operation::all_to_all:
      for (int r = 0; r < shape.world; ++r) {
        const partition theirs = shapes[static_cast<std::size_t>(r)].cut();
        add(theirs.count(rank), [&](std::size_t k) { return leaf(r, theirs.offset(rank) + k); });
      }
      break;
    default: break;
  }
  return wanted;
}

/// How the sent elements are distributed over the ranks.
enum class burden { equal, any };

/// Runs one call on all ranks and compares every element with the expected one. "" if all is well.
inline std::string prove(const std::vector<call_shape>& shapes, algorithm use, memory where,
                         std::size_t sent, burden share, std::size_t most_scratch, unsigned seed) {
  const call_shape& first = shapes.front();
  const auto fail = [&](const std::string& what) {
    return fmt::format("{} by {}, {} ranks, {} elements, root {}, {} blocks, {}: {}",
                       name_of(first.what), name_of(use), first.world, first.count, first.root,
                       first.blocks.is_even() ? "even" : "uneven",
                       where == memory::in_place ? "in place" : "apart", what);
  };
  simulation run(shapes, use, where, seed);
  if (const std::string problem = run.run(); !problem.empty()) return fail(problem);
  const auto claims = [&](parx::reduction_order order) {
    call_shape strict = first;
    strict.order = order;
    return can_do(*parx::find_algorithm(first.what, use), strict);
  };
  const bool ordered = claims(parx::reduction_order::ranks);
  const bool serial = claims(parx::reduction_order::serial);
  for (int r = 0; r < first.world; ++r) {
    rank_state& state = run.ranks()[static_cast<std::size_t>(r)];
    const auto wanted = expected_output(shapes, r);
    if (wanted.size() != state.output_size) {
      return fail("the oracle disagrees about the output's size");
    }
    const symbol* output = state.output();
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      if (wanted[k] == unwritten) {
        // In place, memory that is not written holds the input.
        if (where == memory::apart && output[k] != unwritten) {
          return fail(fmt::format("rank {} was given an output it must not have", r));
        }
        continue;
      }
      if (output[k].sum != wanted[k].sum) {
        return fail(fmt::format("rank {}: element {} is not what it should be", r, k));
      }
      if (output[k].scaled != wanted[k].scaled) {
        return fail(fmt::format("rank {}: element {} was scaled {} times, not {}", r, k,
                                output[k].scaled, wanted[k].scaled));
      }
      if (ordered && output[k].affine != wanted[k].affine) {
        return fail(fmt::format("rank {}: element {} was not reduced in rank order", r, k));
      }
      if (serial && output[k].exact != wanted[k].exact) {
        return fail(fmt::format("rank {}: element {} was not reduced in serial order", r, k));
      }
      if (first.world <= 2 && output[k].tree != wanted[k].tree) {
        return fail(fmt::format("rank {}: element {} of two ranks has other bits", r, k));
      }
      if (first.what == operation::all_reduce &&
          output[k].tree != run.ranks().front().output()[k].tree) {
        return fail(fmt::format("ranks 0 and {} combined element {} differently", r, k));
      }
    }
    if (state.scratch.size() > most_scratch) {
      return fail(fmt::format("rank {} has {} elements of scratch, more than {}", r,
                              state.scratch.size(), most_scratch));
    }
  }
  if (run.sent() != sent) {
    return fail(fmt::format("{} elements were sent, not {}", run.sent(), sent));
  }
  for (const rank_state& each : run.ranks()) {
    if (share == burden::equal && each.sent * shapes.size() != sent) {
      return fail(fmt::format("a rank sent {} elements of {}, not its share", each.sent, sent));
    }
  }
  return {};
}

}  // namespace proof
