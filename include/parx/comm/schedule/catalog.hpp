// catalog: which algorithms each operation has, how each is made, and what it costs.
//
// The one table that the groups, explain, the simulator, the benchmark and the tests all read: an
// algorithm that is in it is chosen by price, selectable by name and proven by the tests.
#pragma once

#include <array>
#include <string>

#include <parx/comm/schedule/barrier.hpp>
#include <parx/comm/schedule/call_shape.hpp>
#include <parx/comm/schedule/chain.hpp>
#include <parx/comm/schedule/direct.hpp>
#include <parx/comm/schedule/doubling.hpp>
#include <parx/comm/schedule/price.hpp>
#include <parx/comm/schedule/ring.hpp>
#include <parx/comm/schedule/shared.hpp>
#include <parx/comm/schedule/tree.hpp>
#include <parx/core/check.hpp>

namespace parx {

struct catalog_entry {
  operation what;
  algorithm name;
  /// The schedule of one rank, for worlds of two and more.
  schedule (*make)(const call_shape&);
  /// Seconds for `ranks` ranks and `bytes` bytes of the whole vector.
  double (*price)(double ranks, double bytes, const link_costs&);
  /// Whether it can do this call; null where it always can.
  bool (*fits)(const call_shape&) = nullptr;
};

namespace detail {

// What rules an algorithm out.
inline constexpr auto if_commutative = [](const call_shape& s) {
  return s.order == reduction_order::any;
};
inline constexpr auto if_root_is_first = [](const call_shape& s) {
  return s.order == reduction_order::any || s.root == 0;
};

inline constexpr auto if_output_is_shared = [](const call_shape& s) { return s.shared_output; };
inline constexpr auto if_input_is_shared = [](const call_shape& s) { return s.shared_input; };

inline constexpr std::array catalog_table{
    // all_reduce
    catalog_entry{operation::all_reduce, algorithm::doubling,
                  [](const call_shape& s) {
                    return schedules::doubling_all_reduce(s.rank, s.world, s.count);
                  },
                  prices::doubling_all_reduce},
    catalog_entry{operation::all_reduce, algorithm::ring,
                  [](const call_shape& s) {
                    return schedules::ring_all_reduce(s.rank, s.world, s.count);
                  },
                  prices::ring_all_reduce, if_commutative},
    catalog_entry{operation::all_reduce, algorithm::shared,
                  [](const call_shape& s) {
                    return schedules::shared_all_reduce(s.rank, s.world, s.count);
                  },
                  prices::shared_all_reduce, if_output_is_shared},

    // reduce_scatter
    catalog_entry{operation::reduce_scatter, algorithm::direct,
                  [](const call_shape& s) {
                    return schedules::direct_reduce_scatter(s.rank, s.cut());
                  },
                  prices::direct_reduce_scatter},
    catalog_entry{operation::reduce_scatter, algorithm::ring,
                  [](const call_shape& s) {
                    return schedules::ring_reduce_scatter(s.rank, s.cut());
                  },
                  prices::ring_reduce_scatter, if_commutative},
    catalog_entry{operation::reduce_scatter, algorithm::shared,
                  [](const call_shape& s) {
                    return schedules::shared_reduce_scatter(s.rank, s.cut());
                  },
                  prices::shared_reduce_scatter, if_input_is_shared},

    // all_gather
    catalog_entry{operation::all_gather, algorithm::direct,
                  [](const call_shape& s) {
                    return schedules::direct_all_gather(s.rank, s.cut());
                  },
                  prices::direct_all_gather},
    catalog_entry{operation::all_gather, algorithm::ring,
                  [](const call_shape& s) { return schedules::ring_all_gather(s.rank, s.cut()); },
                  prices::ring_all_gather},
    catalog_entry{operation::all_gather, algorithm::shared,
                  [](const call_shape& s) { return schedules::shared_all_gather(s.rank, s.cut()); },
                  prices::shared_all_gather, if_output_is_shared},

    // broadcast
    catalog_entry{operation::broadcast, algorithm::tree,
                  [](const call_shape& s) {
                    return schedules::tree_broadcast(s.rank, s.world, s.count, s.root);
                  },
                  prices::tree_broadcast},
    catalog_entry{operation::broadcast, algorithm::chain,
                  [](const call_shape& s) {
                    return schedules::chain_broadcast(s.rank, s.world, s.count, s.root);
                  },
                  prices::chain_broadcast},
    catalog_entry{operation::broadcast, algorithm::shared,
                  [](const call_shape& s) {
                    return schedules::shared_broadcast(s.rank, s.world, s.count, s.root);
                  },
                  prices::shared_broadcast, if_output_is_shared},

    // reduce
    catalog_entry{operation::reduce, algorithm::tree,
                  [](const call_shape& s) {
                    return schedules::tree_reduce(s.rank, s.world, s.count, s.root);
                  },
                  prices::tree_reduce, if_root_is_first},
    catalog_entry{operation::reduce, algorithm::chain,
                  [](const call_shape& s) {
                    return schedules::chain_reduce(s.rank, s.world, s.count, s.root);
                  },
                  prices::chain_reduce, if_root_is_first},

    // barrier
    catalog_entry{operation::barrier, algorithm::dissemination,
                  [](const call_shape& s) {
                    return schedules::dissemination_barrier(s.rank, s.world);
                  },
                  prices::dissemination_barrier},
};

/// A world of one has nobody to talk to: its input is its output. (exscan has no output then.)
[[nodiscard]] inline schedule lone_schedule(const call_shape& shape, algorithm use) {
  schedule plan{.name = use, .actions = {}, .scratch_count = 0};
  if (shape.what == operation::exscan) return plan;
  plan.add({.kind = action_kind::copy,
            .from = {place::input, 0, shape.count},
            .to = {place::output, 0, shape.count},
            .completes = true});
  return plan;
}

}  // namespace detail

/// Every algorithm of every operation; the first of equal price is chosen.
[[nodiscard]] constexpr const auto& catalog() noexcept { return detail::catalog_table; }

[[nodiscard]] inline bool can_do(const catalog_entry& entry, const call_shape& shape) {
  return entry.what == shape.what && (entry.fits == nullptr || entry.fits(shape));
}

/// Null where `what` has no such algorithm.
[[nodiscard]] constexpr const catalog_entry* find_algorithm(operation what, algorithm use) noexcept {
  for (const catalog_entry& each : catalog()) {
    if (each.what == what && each.name == use) return &each;
  }
  return nullptr;
}

/// "ring, doubling": those that can do this call.
[[nodiscard]] inline std::string candidate_names(const call_shape& shape) {
  std::string names;
  for (const catalog_entry& each : catalog()) {
    if (!can_do(each, shape)) continue;
    if (!names.empty()) names += ", ";
    names += name_of(each.name);
  }
  return names;
}

/// The entry of `use`. Throws usage_error where the operation has no such algorithm, or it cannot do
/// this call.
[[nodiscard]] inline const catalog_entry& require_algorithm(const call_shape& shape, algorithm use) {
  const catalog_entry* found = find_algorithm(shape.what, use);
  if (found == nullptr) {
    throw_usage("{} has no algorithm \"{}\"; it has: {}", name_of(shape.what), name_of(use),
                candidate_names(shape));
  }
  if (!can_do(*found, shape)) {
    throw_usage("{} cannot use algorithm \"{}\" for this call ({} ranks{}{}); possible are: {}",
                name_of(shape.what), name_of(use), shape.world,
                shape.blocks.is_even() ? "" : ", uneven blocks",
                shape.order == reduction_order::ranks ? ", an operation that does not commute" : "",
                candidate_names(shape));
  }
  return *found;
}

/// What `shape.rank` does. Throws usage_error as require_algorithm does.
[[nodiscard]] inline schedule make_schedule(const call_shape& shape, algorithm use) {
  const catalog_entry& entry = require_algorithm(shape, use);
  return shape.world == 1 ? detail::lone_schedule(shape, use) : entry.make(shape);
}

/// Seconds. Throws usage_error as require_algorithm does.
[[nodiscard]] inline double price(const call_shape& shape, algorithm use,
                                  const link_costs& costs = {}) {
  return require_algorithm(shape, use).price(shape.world, shape.bytes(), costs);
}

/// The cheapest algorithm that can do this call: the same on all ranks when the costs are.
[[nodiscard]] inline algorithm choose(const call_shape& shape, const link_costs& costs = {}) {
  algorithm best = algorithm::automatic;
  double least = 0;
  for (const catalog_entry& each : catalog()) {
    if (!can_do(each, shape)) continue;
    const double seconds = each.price(shape.world, shape.bytes(), costs);
    if (best != algorithm::automatic && seconds >= least) continue;
    best = each.name;
    least = seconds;
  }
  return best;
}

}  // namespace parx
