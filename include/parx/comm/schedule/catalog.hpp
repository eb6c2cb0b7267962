// catalog: the algorithms of each operation: how a schedule is made, and its price.
//
// Groups, explain, the simulator, the benchmark and the tests all read this table. An algorithm in
// it can be chosen by price, selected by name, and is proven by the tests. A group reads the part
// of the operation that is called: a program has no code of the algorithms of others.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <string>

#include <parx/comm/schedule/barrier.hpp>
#include <parx/comm/schedule/bruck.hpp>
#include <parx/comm/schedule/call_shape.hpp>
#include <parx/comm/schedule/chain.hpp>
#include <parx/comm/schedule/direct.hpp>
#include <parx/comm/schedule/doubling.hpp>
#include <parx/comm/schedule/exchange.hpp>
#include <parx/comm/schedule/halving.hpp>
#include <parx/comm/schedule/hierarchical.hpp>
#include <parx/comm/schedule/ordered_tree.hpp>
#include <parx/comm/schedule/price.hpp>
#include <parx/comm/schedule/ring.hpp>
#include <parx/comm/schedule/rooted_blocks.hpp>
#include <parx/comm/schedule/scan.hpp>
#include <parx/comm/schedule/scatter_gather.hpp>
#include <parx/comm/schedule/shared.hpp>
#include <parx/comm/schedule/staged.hpp>
#include <parx/comm/schedule/tree.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

struct catalog_entry {
  operation what;
  algorithm name;
  /// The schedule of one rank, for worlds of two and more.
  schedule (*make)(const call_shape&);
  double (*price)(const prices::load&, const link_costs&);  ///< seconds
  /// The order in which it reduces, for any number of ranks.
  reduction_order order = reduction_order::any;
  /// Another reason why it cannot do a call, or null. The function is null if it can do any call.
  const char* (*objection)(const call_shape&) = nullptr;
};

namespace detail {

// Objections: why an algorithm cannot do a call; null if it can.
inline constexpr auto must_start_at_first = [](const call_shape& s) -> const char* {
  return s.order == reduction_order::any || s.root == 0
             ? nullptr
             : "needs an operation that commutes, or root 0";
};
inline constexpr auto must_be_power_of_two = [](const call_shape& s) -> const char* {
  return std::has_single_bit(static_cast<unsigned>(s.world))
             ? nullptr
             : "needs a power of two of ranks";
};
inline constexpr auto must_share_hosts = [](const call_shape& s) -> const char* {
  const int hosts = s.hosts();
  return hosts > 1 && hosts < s.world ? nullptr
                                      : "needs several hosts, and ranks that share one";
};
inline constexpr auto must_have_equal_blocks = [](const call_shape& s) -> const char* {
  const partition cut = s.cut();
  const bool equal = s.incoming.parts() == 0 && cut.is_even() &&
                     cut.total() % static_cast<std::size_t>(s.world) == 0;
  return equal ? nullptr : "needs blocks of one size";
};

inline constexpr auto must_share_output = [](const call_shape& s) -> const char* {
  return s.shares(shared_buffers::output) ? nullptr : "needs an output from allocate_shared";
};
inline constexpr auto must_share_input = [](const call_shape& s) -> const char* {
  return s.shares(shared_buffers::input) ? nullptr : "needs an input from allocate_shared";
};
/// A slice takes a few actions and one per rank. Longer plans would take too much memory.
inline constexpr auto must_stage = [](const call_shape& s) -> const char* {
  constexpr std::size_t most_actions = 16384;
  if (s.slice_count() == 0) {
    return "needs memory that all ranks see, and elements that fit into a slice of it";
  }
  const std::size_t slices = most_actions / (3 + static_cast<std::size_t>(s.world));
  return s.count <= slices * s.slice_count() ? nullptr : "is for fewer bytes";
};

// Makers take only the fields that their algorithm depends on: these adapt them to call_shape.
template <schedule (*maker)(int rank, int world, std::size_t count)>
[[nodiscard]] schedule made_by(const call_shape& s) {
  return maker(s.rank, s.world, s.count);
}
template <schedule (*maker)(int rank, int world, std::size_t count, int root)>
[[nodiscard]] schedule made_by(const call_shape& s) {
  return maker(s.rank, s.world, s.count, s.root);
}
template <schedule (*maker)(int rank, const partition& blocks)>
[[nodiscard]] schedule made_by(const call_shape& s) {
  return maker(s.rank, s.cut());
}
template <schedule (*maker)(int rank, const partition& blocks, int root)>
[[nodiscard]] schedule made_by(const call_shape& s) {
  return maker(s.rank, s.cut(), s.root);
}

inline constexpr auto unordered = reduction_order::any;
inline constexpr auto in_rank_order = reduction_order::ranks;
inline constexpr auto serially = reduction_order::serial;

inline constexpr auto catalog_table = std::to_array<catalog_entry>({
    {operation::all_reduce, algorithm::doubling, made_by<algorithms::doubling_all_reduce>,
     prices::doubling_all_reduce, in_rank_order},
    {operation::all_reduce, algorithm::ring, made_by<algorithms::ring_all_reduce>,
     prices::ring_all_reduce},
    {operation::all_reduce, algorithm::direct, made_by<algorithms::direct_all_reduce>,
     prices::direct_all_reduce, serially},
    {operation::all_reduce, algorithm::shared, made_by<algorithms::shared_all_reduce>,
     prices::shared_all_reduce, serially, must_share_output},
    {operation::all_reduce, algorithm::staged,
     [](const call_shape& s) {
       return algorithms::staged_all_reduce(s.rank, s.world, s.count, s.slice_count(),
                                            s.is_staged_whole());
     },
     prices::staged_all_reduce, serially, must_stage},
    {operation::all_reduce, algorithm::halving, made_by<algorithms::halving_all_reduce>,
     prices::halving_all_reduce, in_rank_order},
    {operation::all_reduce, algorithm::tree, made_by<algorithms::tree_all_reduce>,
     prices::tree_all_reduce, in_rank_order},
    {operation::all_reduce, algorithm::chain, made_by<algorithms::chain_all_reduce>,
     prices::chain_all_reduce, serially},
    {operation::all_reduce, algorithm::ordered_tree, made_by<algorithms::ordered_tree_all_reduce>,
     prices::ordered_tree_all_reduce, serially},
    {operation::all_reduce, algorithm::hierarchical,
     [](const call_shape& s) {
       return algorithms::hierarchical_all_reduce(s.rank, s.host_of, s.count);
     },
     prices::hierarchical_all_reduce, unordered, must_share_hosts},

    {operation::reduce_scatter, algorithm::direct, made_by<algorithms::direct_reduce_scatter>,
     prices::direct_reduce_scatter, serially},
    {operation::reduce_scatter, algorithm::chain, made_by<algorithms::chain_reduce_scatter>,
     prices::chain_reduce_scatter, serially},
    {operation::reduce_scatter, algorithm::ring, made_by<algorithms::ring_reduce_scatter>,
     prices::ring_reduce_scatter},
    {operation::reduce_scatter, algorithm::shared, made_by<algorithms::shared_reduce_scatter>,
     prices::shared_reduce_scatter, serially, must_share_input},
    {operation::reduce_scatter, algorithm::halving, made_by<algorithms::halving_reduce_scatter>,
     prices::halving_reduce_scatter},

    {operation::all_gather, algorithm::direct, made_by<algorithms::direct_all_gather>,
     prices::direct_all_gather},
    {operation::all_gather, algorithm::ring, made_by<algorithms::ring_all_gather>,
     prices::ring_all_gather},
    {operation::all_gather, algorithm::shared, made_by<algorithms::shared_all_gather>,
     prices::shared_all_gather, unordered, must_share_output},
    {operation::all_gather, algorithm::doubling, made_by<algorithms::doubling_all_gather>,
     prices::doubling_all_gather, unordered, must_be_power_of_two},
    {operation::all_gather, algorithm::bruck, made_by<algorithms::bruck_all_gather>,
     prices::bruck_all_gather},
    {operation::all_gather, algorithm::hierarchical,
     [](const call_shape& s) {
       return algorithms::hierarchical_all_gather(s.rank, s.host_of, s.cut());
     },
     prices::hierarchical_all_gather, unordered, must_share_hosts},

    {operation::broadcast, algorithm::tree, made_by<algorithms::tree_broadcast>,
     prices::tree_broadcast},
    {operation::broadcast, algorithm::chain, made_by<algorithms::chain_broadcast>,
     prices::chain_broadcast},
    {operation::broadcast, algorithm::shared, made_by<algorithms::shared_broadcast>,
     prices::shared_broadcast, unordered, must_share_output},
    {operation::broadcast, algorithm::scatter_gather, made_by<algorithms::scatter_gather_broadcast>,
     prices::scatter_gather_broadcast},
    {operation::broadcast, algorithm::hierarchical,
     [](const call_shape& s) {
       return algorithms::hierarchical_broadcast(s.rank, s.host_of, s.count, s.root);
     },
     prices::hierarchical_broadcast, unordered, must_share_hosts},

    {operation::reduce, algorithm::tree, made_by<algorithms::tree_reduce>, prices::tree_reduce,
     in_rank_order, must_start_at_first},
    {operation::reduce, algorithm::chain, made_by<algorithms::chain_reduce>, prices::chain_reduce,
     in_rank_order, must_start_at_first},
    {operation::reduce, algorithm::ordered_tree, made_by<algorithms::ordered_tree_reduce>,
     prices::ordered_tree_reduce, in_rank_order},
    {operation::reduce, algorithm::direct, made_by<algorithms::direct_reduce>,
     prices::direct_reduce, serially},

    {operation::gather, algorithm::tree, made_by<algorithms::tree_gather>, prices::tree_blocks},
    {operation::gather, algorithm::direct,
     [](const call_shape& s) { return algorithms::direct_gather(s.rank, s.cut(), s.root); },
     prices::direct_blocks},

    {operation::scatter, algorithm::tree, made_by<algorithms::tree_scatter>, prices::tree_blocks},
    {operation::scatter, algorithm::direct,
     [](const call_shape& s) { return algorithms::direct_scatter(s.rank, s.cut(), s.root); },
     prices::direct_blocks},

    {operation::all_to_all, algorithm::direct,
     [](const call_shape& s) {
       return algorithms::direct_all_to_all(s.rank, s.cut(), s.arriving());
     },
     prices::direct_all_to_all},
    {operation::all_to_all, algorithm::pairwise,
     [](const call_shape& s) {
       return algorithms::pairwise_all_to_all(s.rank, s.cut(), s.arriving());
     },
     prices::pairwise_all_to_all},
    {operation::all_to_all, algorithm::bruck,
     [](const call_shape& s) {
       return algorithms::bruck_all_to_all(s.rank, s.world, s.cut().count(0));
     },
     prices::bruck_all_to_all, unordered, must_have_equal_blocks},

    {operation::scan, algorithm::doubling, made_by<algorithms::doubling_scan>,
     prices::doubling_scan, in_rank_order},
    {operation::scan, algorithm::chain, made_by<algorithms::chain_scan>, prices::chain_scan,
     serially},

    {operation::exscan, algorithm::doubling, made_by<algorithms::doubling_exscan>,
     prices::doubling_exscan, in_rank_order},
    {operation::exscan, algorithm::chain, made_by<algorithms::chain_exscan>, prices::chain_exscan,
     serially},

    {operation::barrier, algorithm::dissemination,
     [](const call_shape& s) { return algorithms::dissemination_barrier(s.rank, s.world); },
     prices::dissemination_barrier},
});

[[nodiscard]] consteval std::size_t number_of_entries(operation what) noexcept {
  std::size_t number = 0;
  for (const catalog_entry& each : catalog_table) number += each.what == what ? 1 : 0;
  return number;
}
/// The entries of one operation.
template <operation What>
inline constexpr auto entries_of = [] {
  std::array<catalog_entry, number_of_entries(What)> found{};
  std::size_t i = 0;
  for (const catalog_entry& each : catalog_table) {
    if (each.what == What) found[i++] = each;
  }
  return found;
}();

/// Which operations have which algorithms, without their code.
struct algorithm_of_operation {
  operation what;
  algorithm name;
};
inline constexpr auto algorithms_of_operations = [] {
  std::array<algorithm_of_operation, catalog_table.size()> names{};
  std::size_t i = 0;
  for (const catalog_entry& each : catalog_table) names[i++] = {each.what, each.name};
  return names;
}();

/// The schedule for a world of one: copies the input to the output. (exscan writes nothing, but a
/// schedule must have an action.)
[[nodiscard]] inline schedule lone_schedule(const call_shape& shape, algorithm use) {
  schedule steps{.name = use};
  if (shape.what == operation::exscan) {
    steps.fence(no_action);
    return steps;
  }
  steps.add({.kind = action_kind::copy,
             .from = {place::input, 0, shape.count},
             .to = {place::output, 0, shape.count},
             .completes = reduces(shape.what) && shape.what != operation::scan});
  return steps;
}

[[nodiscard]] inline prices::load load_of(const call_shape& shape) {
  return {static_cast<double>(shape.world), shape.bytes(), static_cast<double>(shape.hosts())};
}

}  // namespace detail

/// Every algorithm of every operation; the first of equal price is chosen.
[[nodiscard]] constexpr algorithm_list catalog() noexcept { return detail::catalog_table; }

/// Why `entry`, an algorithm of shape.what, cannot do this call; null if it can.
[[nodiscard]] inline const char* objection_to(const catalog_entry& entry, const call_shape& shape) {
  if (entry.order < shape.order) {
    return shape.order == reduction_order::serial ? "does not reduce in serial order"
                                                  : "needs an operation that commutes";
  }
  const bool moves_single_blocks = entry.name == algorithm::direct || entry.name == algorithm::ring;
  if (shape.separate_blocks && shape.world > 1 && !moves_single_blocks) {
    return "needs an output in one piece";
  }
  return entry.objection == nullptr ? nullptr : entry.objection(shape);
}
[[nodiscard]] inline bool can_do(const catalog_entry& entry, const call_shape& shape) {
  return entry.what == shape.what && objection_to(entry, shape) == nullptr;
}

/// Null where `what` has no such algorithm.
[[nodiscard]] constexpr const catalog_entry* find_algorithm(
    operation what, algorithm use, algorithm_list among = catalog()) noexcept {
  for (const catalog_entry& each : among) {
    if (each.what == what && each.name == use) return &each;
  }
  return nullptr;
}

/// "ring, doubling": those that can do this call.
[[nodiscard]] inline std::string candidate_names(const call_shape& shape, algorithm_list among) {
  std::string names;
  for (const catalog_entry& each : among) {
    if (!can_do(each, shape)) continue;
    if (!names.empty()) names += ", ";
    names += name_of(each.name);
  }
  return names;
}

/// The entry of `use`. Throws usage_error if the operation has no such algorithm or it cannot do
/// this call.
[[nodiscard]] inline const catalog_entry& require_algorithm(const call_shape& shape, algorithm use,
                                                            algorithm_list among = catalog()) {
  const catalog_entry* found = find_algorithm(shape.what, use, among);
  if (found == nullptr) {
    throw_usage("{} has no algorithm \"{}\"; it has: {}", name_of(shape.what), name_of(use),
                candidate_names(shape, among));
  }
  if (const char* objection = objection_to(*found, shape)) {
    throw_usage("{} cannot use algorithm \"{}\" for this call on {} ranks: it {}; possible are: {}",
                name_of(shape.what), name_of(use), shape.world, objection,
                candidate_names(shape, among));
  }
  return *found;
}

/// The schedule of rank `shape.rank`. Throws usage_error as require_algorithm does.
[[nodiscard]] inline schedule make_schedule(const call_shape& shape, algorithm use,
                                            algorithm_list among = catalog()) {
  const catalog_entry& entry = require_algorithm(shape, use, among);
  return shape.world == 1 ? detail::lone_schedule(shape, use) : entry.make(shape);
}

/// Seconds. Throws usage_error as require_algorithm does.
[[nodiscard]] inline double price(const call_shape& shape, algorithm use,
                                  const link_costs& costs = {}) {
  return require_algorithm(shape, use).price(detail::load_of(shape), costs);
}

/// Whether a call that may be reduced in any order uses serial order anyway: all_reduce and
/// reduce_scatter of ranks that share memory, where no other order is faster. Over TCP, even inside
/// a host, serial order takes up to 1.4 times as long for short vectors. (Two ranks have one
/// order.)
[[nodiscard]] inline bool is_serial_anyway(const call_shape& shape) noexcept {
  return (shape.what == operation::all_reduce || shape.what == operation::reduce_scatter) &&
         shape.staging_bytes > 0 && shape.world > 2;
}

/// The cheapest algorithm that can do this call. Equal on all ranks if the costs are.
[[nodiscard]] inline algorithm choose(call_shape shape, const link_costs& costs = {},
                                      algorithm_list among = catalog()) {
  const prices::load load = detail::load_of(shape);
  if (is_serial_anyway(shape)) shape.order = reduction_order::serial;
  algorithm best = algorithm::automatic;
  double least = 0;
  for (const catalog_entry& each : among) {
    if (!can_do(each, shape)) continue;
    const double seconds = each.price(load, costs);
    if (best != algorithm::automatic && seconds >= least) continue;
    best = each.name;
    least = seconds;
  }
  return best;
}

}  // namespace parx
