#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <set>
#include <vector>

#include "comm/jobs.hpp"
#include "comm/matrix.hpp"
#include "comm/matrix_runs.hpp"

// Every operation by every algorithm of the catalog against formulas. What is covered where:
//   shapes    inproc: worlds 1, 2, 3, 4, 5, 7, 8; awkward counts, even and uneven blocks, in place
//             and apart, first and last root; float32
//   types     inproc, tcp, shm and hybrid, the same worlds: every dtype with every reduce_op that
//             is defined for it; the count, root, place and evenness change from one to the next
//   links     tcp, shm and hybrid: the same worlds and counts; the dtype, root, place and evenness
//             change from one algorithm to the next
//   size      every kind of link between processes, worlds 2, 3 and 4: megabytes, in place: links
//             buffer almost nothing, so a schedule that relies on their buffers deadlocks
//   lateness  every kind of link between ranks, world 4: one rank enters each call only after the
//             others have published their reports and compared their calls
// hierarchical runs with several hosts, over hybrid. shared runs if memory is shared.
namespace {

using namespace std::chrono_literals;
using matrix::awkward_counts;
using matrix::run_trials;
using matrix::trial;
using matrix::worlds;
using parx::catalog_entry;
using parx::dtype;
using parx::operation;
using parx::reduce_op;
}  // namespace

BOOST_AUTO_TEST_CASE(every_algorithm_is_exact_for_every_shape) {
  for (const int world : worlds) {
    run_trials(jobs::kind::inproc, world, 1 << 20,
        [&](const catalog_entry& entry, std::vector<trial>& out) {
          const std::set<int> roots =
              parx::has_root(entry.what) ? std::set{0, world - 1} : std::set{0};
          for (const std::size_t count : awkward_counts(world)) {
            for (const int root : roots) {
              for (const bool in_place : {false, true}) {
                out.push_back({.count = count, .root = root, .in_place = in_place});
                if (!matrix::has_blocks(entry.what)) continue;
                // In place, all_to_all_v would need an output of the input's size.
                if (entry.what == operation::all_to_all && in_place) continue;
                out.push_back({.count = count, .root = root, .in_place = in_place, .uneven = true});
              }
            }
          }
        });
  }
}

BOOST_AUTO_TEST_CASE(every_dtype_and_reduction_is_exact_by_every_algorithm) {
  const auto try_all = [](jobs::kind kind, int world) {
    const auto counts = awkward_counts(world);
    std::size_t turn = 0;
    run_trials(kind, world, 1 << 18, [&](const catalog_entry& entry, std::vector<trial>& out) {
      for (std::size_t type = 0; type < parx::dtype_count; ++type) {
        for (std::size_t op = 0; op < (parx::reduces(entry.what) ? parx::reduce_op_count : 1);
             ++op) {
          ++turn;
          const bool blocks = matrix::has_blocks(entry.what) && turn % 3 == 0;
          const bool in_place = turn % 2 == 0;
          out.push_back({.type = static_cast<dtype>(type),
                         .op = static_cast<reduce_op>(op),
                         .count = counts[turn % counts.size()],
                         .root = parx::has_root(entry.what) ? static_cast<int>(turn) % world : 0,
                         .in_place = in_place,
                         .uneven = blocks && !(in_place && entry.what == operation::all_to_all)});
        }
      }
    });
  };
  for (const auto kind : jobs::common_kinds) {
    for (const int world : worlds) try_all(kind, world);
  }
  try_all(jobs::kind::shm_ring, 3);
}

BOOST_AUTO_TEST_CASE(every_algorithm_is_exact_over_every_kind_of_link) {
  for (const auto kind :
       {jobs::kind::tcp, jobs::kind::tcp_striped, jobs::kind::shm, jobs::kind::hybrid}) {
    for (const int world : worlds) {
      matrix::run_awkward_counts(kind, world);
    }
  }
}

BOOST_AUTO_TEST_CASE(megabytes_in_place_never_stand_still) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::tcp_striped, jobs::kind::shm,
                          jobs::kind::shm_ring, jobs::kind::hybrid}) {
    for (const int world : {2, 3, 4}) {
      matrix::run_megabytes(kind, world);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_late_is_waited_for_by_every_algorithm_even_and_uneven) {
  for (const auto kind : jobs::common_kinds) {
    run_trials(kind, 4, 1 << 20, [](const catalog_entry& entry, std::vector<trial>& out) {
      for (const bool uneven : {false, true}) {
        if (uneven && !matrix::has_blocks(entry.what)) continue;
        // More than a shared-memory link buffers of an unexpected message.
        out.push_back({.count = 20'000, .root = 1, .uneven = uneven});
      }
    }, 15ms);
  }
}
