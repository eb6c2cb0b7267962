#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "comm/jobs.hpp"
#include "comm/matrix.hpp"
#include "sanitizers.hpp"

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
//             others have published their notices and compared their calls
// hierarchical runs with several hosts, over hybrid. shared runs if memory is shared.
namespace {

using namespace std::chrono_literals;
using matrix::trial;
using parx::algorithm;
using parx::catalog_entry;
using parx::dtype;
using parx::operation;
using parx::reduce_op;

// ThreadSanitizer makes the formulas of the oracle, not the transfers, take minutes.
constexpr std::size_t megabytes = parx_test::thread_sanitizer ? 250'003 : 1'000'003;  // values

constexpr int worlds[] = {1, 2, 3, 4, 5, 7, 8};

bool possible(const catalog_entry& entry, const trial& t, int world, bool shares, jobs::kind kind) {
  const auto w = static_cast<std::size_t>(world);
  parx::call_shape shape{.what = t.what,
                         .world = world,
                         .count = matrix::has_blocks(t.what) ? t.count * w : t.count,
                         .root = t.root};
  shape.shared_input = shape.shared_output = shares;
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

bool is_defined(const trial& t) {
  const bool scales = t.op == reduce_op::avg || t.op == reduce_op::premul_sum;
  if (t.what == operation::scan || t.what == operation::exscan) {
    if (scales) return false;
  }
  return parx::is_defined(t.type, t.op);
}

/// Runs the trials that `trials` adds for each algorithm in one job; all ranks compute the same
/// list. With `lateness` one rank, a different one each time, is that much later than the others.
template <typename Trials>
void run(jobs::kind kind, int world, std::size_t shared_bytes, Trials trials,
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

std::vector<std::size_t> awkward_counts(int world) {
  const auto w = static_cast<std::size_t>(world);
  return {0, 1, w - 1, w, 7 * w + 3, 1000};
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_algorithm_is_exact_for_every_shape) {
  for (const int world : worlds) {
    run(jobs::kind::inproc, world, 1 << 20,
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
    run(kind, world, 1 << 18, [&](const catalog_entry& entry, std::vector<trial>& out) {
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
  for (const auto kind :
       {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm, jobs::kind::hybrid}) {
    for (const int world : worlds) try_all(kind, world);
  }
  try_all(jobs::kind::shm_ring, 3);
}

BOOST_AUTO_TEST_CASE(every_algorithm_is_exact_over_every_kind_of_link) {
  for (const auto kind :
       {jobs::kind::tcp, jobs::kind::tcp_striped, jobs::kind::shm, jobs::kind::hybrid}) {
    for (const int world : worlds) {
      std::size_t turn = 0;
      run(kind, world, 1 << 18, [&](const catalog_entry& entry, std::vector<trial>& out) {
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
  }
}

BOOST_AUTO_TEST_CASE(megabytes_in_place_never_stand_still) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::tcp_striped, jobs::kind::shm,
                          jobs::kind::shm_ring, jobs::kind::hybrid}) {
    for (const int world : {2, 3, 4}) {
      run(kind, world, 0, [&](const catalog_entry& entry, std::vector<trial>& out) {
        if (entry.what == operation::barrier) return;
        const bool blocks = matrix::has_blocks(entry.what);
        const std::size_t count = blocks ? megabytes / static_cast<std::size_t>(world) : megabytes;
        out.push_back({.count = count, .root = world - 1, .in_place = true});
      });
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_late_is_waited_for_by_every_algorithm_even_and_uneven) {
  for (const auto kind :
       {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm, jobs::kind::hybrid}) {
    run(kind, 4, 1 << 20, [](const catalog_entry& entry, std::vector<trial>& out) {
      for (const bool uneven : {false, true}) {
        if (uneven && !matrix::has_blocks(entry.what)) continue;
        // More than a shared-memory link buffers of an unexpected message.
        out.push_back({.count = 20'000, .root = 1, .uneven = uneven});
      }
    }, 15ms);
  }
}
