// matrix_runs: every operation by every algorithm of the catalog against the formulas of
// matrix.hpp, over one kind of link.
#pragma once

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm/schedule/catalog.hpp>

#include "comm/jobs.hpp"
#include "comm/matrix.hpp"
#include "sanitizers.hpp"

namespace matrix {

using namespace std::chrono_literals;
using parx::catalog_entry;

// ThreadSanitizer makes the formulas of the oracle, not the transfers, take minutes.
/// Values.
inline constexpr std::size_t megabytes = parx_test::thread_sanitizer ? 250'003 : 1'000'003;

inline constexpr int worlds[] = {1, 2, 3, 4, 5, 7, 8};

inline bool possible(const catalog_entry& entry, const trial& t, int world, bool shares,
                     jobs::kind kind) {
  const auto w = static_cast<std::size_t>(world);
  parx::call_shape shape{.what = t.what,
                         .world = world,
                         .count = matrix::has_blocks(t.what) ? t.count * w : t.count,
                         .root = t.root};
  if (shares) shape.shared = parx::shared_buffers::both;
  if (kind == jobs::kind::inproc || kind == jobs::kind::shm || kind == jobs::kind::shm_ring) {
    shape.staging_bytes = parx::slice_bytes(world);
  }
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) {
    hosts.push_back(kind == jobs::kind::hybrid ? rank % 2 : 0);
  }
  shape.host_of = hosts;
  if (t.uneven && t.what == operation::all_to_all) {
    shape.blocks = shape.incoming = parx::partition::uneven(std::vector<std::size_t>(w, 1));
  }
  return parx::can_do(entry, shape);
}

inline bool is_defined(const trial& t) {
  const bool scales = t.op == reduce_op::avg || t.op == reduce_op::premul_sum;
  if (t.what == operation::scan || t.what == operation::exscan) {
    if (scales) return false;
  }
  return parx::is_defined(t.type, t.op);
}

/// Runs the trials that `trials` adds for each algorithm in one job; all ranks compute the same
/// list. With `lateness` one rank, a different one each time, is that much later than the others.
template <typename Trials>
void run_trials(jobs::kind kind, int world, std::size_t shared_bytes, Trials trials,
         std::chrono::milliseconds lateness = {}) {
  const bool shares = (kind == jobs::kind::inproc || kind == jobs::kind::shm) && shared_bytes > 0;
  std::size_t tried = 0;
  std::set<std::pair<operation, algorithm>> algorithms;
  std::vector<trial> all;
  for (const catalog_entry& entry : parx::catalog()) {
    std::vector<trial> wanted;
    trials(entry, wanted);
    for (trial& each : wanted) {
      each.what = entry.what;
      each.use = entry.name;
      if (!possible(entry, each, world, shares, kind) || !is_defined(each)) continue;
      algorithms.insert({entry.what, entry.name});
      all.push_back(each);
      ++tried;
    }
  }
  const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
    auto area = parx::allocate_shared<std::byte>(group, shares ? shared_bytes : 0);
    int turn = 0;
    for (const trial& each : all) {
      if (lateness.count() > 0) {
        parx::barrier(group);
        if (turn++ % world == group.rank()) std::this_thread::sleep_for(lateness);
      }
      const bool in_area = each.use == algorithm::shared;
      try {
        matrix::run(group, each,
                    in_area ? std::span(area.data(), area.size()) : std::span<std::byte>());
      } catch (const parx::error& broken) {
        throw std::runtime_error(matrix::describe(each) + ": " + broken.what());
      }
      if (in_area) parx::barrier(group);  // the next trial writes where others still look
    }
  }, {.look_after = lateness.count() > 0 ? 2ms : 300ms});
  BOOST_TEST(failure == "", jobs::name_of(kind) << ", world " << world << ": " << failure);
  BOOST_TEST(algorithms.size() >= (shares ? 30u : 25u));
  BOOST_TEST_MESSAGE(jobs::name_of(kind) << ", world " << world << ": " << tried << " trials, "
                                         << algorithms.size() << " algorithms");
}

inline std::vector<std::size_t> awkward_counts(int world) {
  const auto w = static_cast<std::size_t>(world);
  return {0, 1, w - 1, w, 7 * w + 3, 1000};
}

/// Every algorithm with awkward counts; the dtype, root, place and evenness change from one to the
/// next.
inline void run_awkward_counts(jobs::kind kind, int world) {
  std::size_t turn = 0;
  run_trials(kind, world, 1 << 18, [&](const catalog_entry& entry, std::vector<trial>& out) {
    const auto w = static_cast<std::size_t>(world);
    for (const std::size_t count : awkward_counts(world)) {
      ++turn;
      const bool uneven = matrix::has_blocks(entry.what) && turn % 3 == 0;
      const auto type = static_cast<dtype>(turn % parx::dtype_count);
      out.push_back(
          {.type = type,
           .count = count,
           .root = parx::has_root(entry.what) ? static_cast<int>(turn % w) : 0,
           .in_place = turn % 2 == 0 && !(uneven && entry.what == operation::all_to_all),
           .uneven = uneven});
    }
  });
}

/// Every algorithm with megabytes, in place.
inline void run_megabytes(jobs::kind kind, int world) {
  run_trials(kind, world, 0, [&](const catalog_entry& entry, std::vector<trial>& out) {
    if (entry.what == operation::barrier) return;
    const bool blocks = matrix::has_blocks(entry.what);
    const std::size_t count = blocks ? megabytes / static_cast<std::size_t>(world) : megabytes;
    out.push_back({.count = count, .root = world - 1, .in_place = true});
  });
}

}  // namespace matrix
