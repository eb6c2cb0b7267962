// proof_cases: the calls on which an algorithm of the catalog is proven, and how much each may send
// and store, by formulas that are independent of the schedules.
#pragma once

#include <bit>
#include <set>

#include <comm/proof.hpp>

namespace proof {

/// Elements that all ranks together send.
inline std::size_t expected_sent(const std::vector<call_shape>& shapes, algorithm use) {
  const call_shape& shape = shapes.front();
  const partition cut = shape.cut();
  const auto p = static_cast<std::size_t>(shape.world);
  const std::size_t n = shape.count;
  const std::size_t power = std::bit_floor(p);
  const std::size_t extra = p - power;
  // Rank r has a partner at distance d if r + d < P.
  const auto doubling_steps = [n](std::size_t ranks) {
    std::size_t sum = 0;
    for (std::size_t d = 1; d < ranks; d *= 2) sum += (ranks - d) * n;
    return sum;
  };
  const auto halving = [n](std::size_t ranks) {
    return 2 * n * (std::bit_floor(ranks) - 1) + 2 * n * (ranks - std::bit_floor(ranks));
  };
  // Rank v is as many hops from rank 0 of a binomial tree as it has bits.
  const auto popcounts = [](int ranks) {
    std::size_t sum = 0;
    for (int v = 1; v < ranks; ++v) {
      sum += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(v)));
    }
    return sum;
  };
  const std::size_t barrier =
      p * static_cast<std::size_t>(std::bit_width(p - 1));  // a signal a round
  const std::size_t meeting = shape.world <= parx::most_in_host_barrier ? 0 : barrier;
  if (use == algorithm::shared) return 2 * meeting;
  if (use == algorithm::staged) {
    if (shape.is_staged_whole()) return meeting;
    return (n == 0 ? 2 : (n - 1) / shape.slice_count() + 2) * meeting;
  }
  switch (shape.what) {
    case operation::all_reduce:
      if (use == algorithm::doubling) {
        return n * (power * static_cast<std::size_t>(std::countr_zero(power)) + 2 * extra);
      }
      if (use == algorithm::halving) return halving(p);
      if (use == algorithm::ordered_tree) {
        return n * (p - 1) + n * popcounts(shape.world);
      }
      if (use == algorithm::hierarchical) {
        const auto hosts = static_cast<std::size_t>(shape.hosts());
        return 2 * n * (p - hosts) + halving(hosts);
      }
      return 2 * n * (p - 1);  // ring, direct: 2 n (P-1)/P a rank; chain: 2 n, n at its ends
    case operation::reduce_scatter: {
      if (use == algorithm::chain) {  // up the whole vector, down the blocks below
        std::size_t down = 0;
        for (int r = 1; r < shape.world; ++r) down += cut.offset(r);
        return n * (p - 1) + down;
      }
      if (use != algorithm::halving) return n * (p - 1);
      std::size_t sum = n * (power - 1) + n * extra;
      for (std::size_t idle = 0; idle < 2 * extra; idle += 2) {
        sum += cut.count(static_cast<int>(idle));
      }
      return sum;
    }
    case operation::all_gather:
    case operation::broadcast: return n * (p - 1);  // everybody receives every element once
    case operation::reduce:
      return n * (p - 1) + (use == algorithm::ordered_tree && shape.root != 0 ? n : 0);
    case operation::gather:
    case operation::scatter: {
      if (use == algorithm::direct) return n - cut.count(shape.root);
      std::size_t sum = 0;  // v is as many hops from the root as it has bits
      for (int v = 1; v < shape.world; ++v) {
        sum += cut.count((v + shape.root) % shape.world) *
               static_cast<std::size_t>(std::popcount(static_cast<unsigned>(v)));
      }
      return sum;
    }
    case operation::all_to_all: {
      std::size_t sum = 0;
      for (int r = 0; r < shape.world; ++r) {
        const partition out = shapes[static_cast<std::size_t>(r)].cut();
        for (int ahead = 1; ahead < shape.world; ++ahead) {
          sum += out.count((r + ahead) % shape.world) *
                 (use == algorithm::bruck
                      ? static_cast<std::size_t>(std::popcount(static_cast<unsigned>(ahead)))
                      : 1);
        }
      }
      return sum;
    }
    case operation::scan: return use == algorithm::chain ? n * (p - 1) : doubling_steps(p);
    case operation::exscan:
      return n * (p - 1) + (use == algorithm::chain ? n * (p - 2) : doubling_steps(p - 1));
    case operation::barrier: return barrier;
    default: return 0;
  }
}

/// If no rank is a root or a proxy and all blocks have the same size, all ranks send the same
/// amount.
inline burden expected_burden(const call_shape& shape, algorithm use) {
  const auto p = static_cast<std::size_t>(shape.world);
  if (shape.what == operation::barrier || use == algorithm::shared || use == algorithm::staged) {
    return burden::equal;
  }
  if (!shape.blocks.is_even() || shape.count % p != 0) return burden::any;
  switch (use) {
    case algorithm::ring:
    case algorithm::direct:
    case algorithm::pairwise:
    case algorithm::bruck:
      return parx::has_root(shape.what) ? burden::any : burden::equal;
    case algorithm::doubling:
    case algorithm::halving: {
      const bool scans = shape.what == operation::scan || shape.what == operation::exscan;
      return std::has_single_bit(p) && !scans ? burden::equal : burden::any;
    }
    default: return burden::any;
  }
}

/// Elements of scratch that any rank may use.
inline std::size_t most_scratch(const call_shape& shape, algorithm use) {
  const std::size_t n = shape.count;
  if (use == algorithm::shared) return 1;
  if (use == algorithm::staged) return 3 * shape.slice_count() + 1;
  switch (shape.what) {
    case operation::all_reduce:
      if (use == algorithm::direct) return shape.cut().largest();
      if (use == algorithm::ordered_tree) return n * static_cast<std::size_t>(shape.world / 2);
      return use == algorithm::tree || use == algorithm::hierarchical ? n : 0;
    case operation::reduce_scatter:
      if (use == algorithm::direct) return shape.cut().largest();
      return use == algorithm::ring ? 2 * shape.cut().largest() : n;
    case operation::reduce:
    case operation::exscan: return n;
    case operation::gather:
    case operation::scatter: return use == algorithm::tree ? n : 0;
    case operation::barrier: return 1;
    case operation::all_to_all:
      return use == algorithm::bruck
                 ? n * static_cast<std::size_t>(
                           std::bit_width(static_cast<unsigned>(shape.world - 1)))
                 : 0;
    default: return 0;
  }
}

/// All ranks' shapes of one call.
inline std::vector<call_shape> everybody(call_shape shape) {
  std::vector<call_shape> shapes;
  for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) shapes.push_back(shape);
  return shapes;
}

/// 0 to 4 elements a block, many of them empty, and one block that is far larger.
inline partition uneven(int world, int salt) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < world; ++r) {
    const int draw = (r * 7 + salt * 3) % 5;
    counts.push_back(r == salt % world ? 23 : draw < 2 ? 0 : static_cast<std::size_t>(draw));
  }
  return partition::uneven(counts);
}

inline bool has_blocks(operation what) {
  return what == operation::reduce_scatter || what == operation::all_gather ||
         what == operation::gather || what == operation::scatter || what == operation::all_to_all;
}

/// The calls on `world` ranks that `entry` is proven on.
inline std::vector<std::vector<call_shape>> cases(const parx::catalog_entry& entry, int world,
                                                  const std::vector<std::vector<int>>& hosts) {
  std::vector<std::vector<call_shape>> all;
  const auto w = static_cast<std::size_t>(world);
  const auto add = [&](std::vector<call_shape> shapes) {
    for (call_shape& each : shapes) {
      each.shared = parx::shared_buffers::both;
      // Seven elements a slice; half of the counts are so short that each rank reduces all of it.
      each.element_bytes = each.count % 2 == 0 ? 1 : parx::most_staged_whole;
      each.staging_bytes = 7 * each.element_bytes;
    }
    if (std::all_of(shapes.begin(), shapes.end(), [&](auto& s) { return can_do(entry, s); })) {
      all.push_back(std::move(shapes));
    }
  };
  std::set<std::size_t> counts{0, 1, 2, w - 1, w, 3 * w + 1, 61};
  if (world > 16) counts = {0, w - 1, 3 * w + 1};
  if (entry.what == operation::barrier) counts = {0};
  std::set<int> roots{0};
  if (parx::has_root(entry.what)) roots = {0, world / 2, world - 1};
  for (const int root : roots) {
    for (const std::size_t count : counts) {
      const auto n =
          entry.what == operation::all_to_all ? count / w * w + (count > 2 ? w : 0) : count;
      call_shape shape{.what = entry.what, .world = world, .count = n, .root = root};
      if (entry.name != algorithm::hierarchical) {
        add(everybody(shape));
        continue;
      }
      for (const auto& each : hosts) {
        shape.host_of = each;
        add(everybody(shape));
      }
    }
    if (!has_blocks(entry.what)) continue;
    if (entry.what == operation::all_to_all) {
      std::vector<call_shape> shapes = everybody({.what = entry.what, .world = world});
      for (int r = 0; r < world; ++r) {
        std::vector<std::size_t> incoming;
        for (int from = 0; from < world; ++from) incoming.push_back(uneven(world, from).count(r));
        call_shape& shape = shapes[static_cast<std::size_t>(r)];
        shape.blocks = uneven(world, r);
        shape.count = shape.blocks.total();
        shape.incoming = partition::uneven(incoming);
      }
      add(shapes);
      continue;
    }
    for (const int salt : {0, world + 2}) {
      call_shape shape{.what = entry.what, .world = world, .root = root};
      shape.blocks = uneven(world, salt);
      shape.count = shape.blocks.total();
      if (entry.name == algorithm::hierarchical) shape.host_of = hosts.front();
      add(everybody(shape));
    }
  }
  return all;
}

/// Proves every algorithm of `operations` on every one of `worlds`. "" when all is well.
inline std::string prove_all(std::initializer_list<operation> operations,
                             const std::vector<int>& worlds) {
  for (const parx::catalog_entry& entry : parx::catalog()) {
    if (std::find(operations.begin(), operations.end(), entry.what) == operations.end()) continue;
    std::size_t proven = 0;
    for (const int world : worlds) {
      // Hosts side by side, the last one smaller; and ranks dealt to the hosts in turn.
      std::vector<std::vector<int>> hosts(2);
      const int size = std::max(2, world / 4);
      for (int r = 0; r < world; ++r) {
        hosts[0].push_back(r / size);
        hosts[1].push_back(r % std::max(2, world / 3));
      }
      for (const auto& shapes : cases(entry, world, hosts)) {
        for (const memory where : {memory::apart, memory::in_place}) {
          if (where == memory::in_place && entry.what == operation::all_to_all) continue;
          const std::string problem =
              prove(shapes, entry.name, where, world == 1 ? 0 : expected_sent(shapes, entry.name),
                    expected_burden(shapes.front(), entry.name),
                    most_scratch(shapes.front(), entry.name), static_cast<unsigned>(proven));
          if (!problem.empty()) return problem;
          ++proven;
        }
      }
    }
    if (proven < worlds.size()) {
      return fmt::format("{} by {} was hardly tried", name_of(entry.what), name_of(entry.name));
    }
  }
  return {};
}

}  // namespace proof
