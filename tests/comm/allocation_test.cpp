// Operations over real links, repeated: after the first ones no rank allocates memory.
#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <count_allocations.hpp>

#include "comm/jobs.hpp"

namespace {

struct repeated {
  const char* name;
  std::function<void()> run;
  std::size_t allowed = 0;  ///< calls of operator new
};

/// The fewest calls of operator new on this thread in one of many rounds: a vector that grows when
/// a rank first sleeps, or when two messages meet for the first time, is not what is looked for.
std::size_t fewest_allocations(const std::function<void()>& round) {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (int i = 0; i < 20; ++i) {
    const std::size_t before = parx_test::allocations;
    round();
    fewest = std::min(fewest, parx_test::allocations - before);
  }
  return fewest;
}

void repeat_all(parx::process_group& group, std::size_t n) {
  const auto world = static_cast<std::size_t>(group.size());
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<float> x(n * world), y(n * world), part(n), other(n);
  const std::vector<std::size_t> even(world, n);
  const auto add = [](float a, float b) { return a + b; };
  const std::vector<repeated> all{
      {"all_reduce", [&] { parx::all_reduce(group, x); }},
      {"all_reduce by ring", [&] { parx::all_reduce(group, x, {.use = parx::algorithm::ring}); }},
      {"all_reduce by a user's operation",
       [&] { parx::all_reduce(group, x, parx::user_op(add)); }},
      {"reduce_scatter", [&] { parx::reduce_scatter(group, x, part); }},
      {"reduce_scatter_v", [&] { parx::reduce_scatter_v(group, x, part, even); }},
      {"all_gather", [&] { parx::all_gather(group, part, x); }},
      {"all_gather_v", [&] { parx::all_gather_v(group, part, x, even); }},
      {"broadcast", [&] { parx::broadcast(group, x); }},
      {"reduce", [&] { parx::reduce(group, x); }},
      {"gather", [&] { parx::gather(group, part, x); }},
      {"scatter", [&] { parx::scatter(group, x, part); }},
      {"all_to_all", [&] { parx::all_to_all(group, x, y); }},
      {"all_to_all_v", [&] { parx::all_to_all_v(group, x, even, y, even); }},
      {"scan", [&] { parx::scan(group, x); }},
      {"exscan", [&] { parx::exscan(group, x); }},
      {"barrier", [&] { parx::barrier(group); }},
      // An unexpected message would be buffered, so a token goes around instead.
      {"send and recv",
       [&] {
         if (group.rank() == 0) parx::send(group, part, next);
         parx::recv(group, other, previous);
         if (group.rank() != 0) parx::send(group, other, next);
       }},
      {"async_all_reduce", [&] { parx::async_all_reduce(group, x).wait(); }, 1},  // its handle
  };
  for (const repeated& each : all) {
    std::fill(x.begin(), x.end(), 0.0F);
    parx::barrier(group);
    const std::size_t found = fewest_allocations(each.run);
    parx::require(found <= each.allowed, "{} of {} elements on rank {}: {} allocations a call",
                  each.name, n, group.rank(), found);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(operations_allocate_nothing_after_warm_up) {
  for (const auto kind : {jobs::kind::tcp, jobs::kind::tcp_striped, jobs::kind::shm,
                          jobs::kind::shm_ring, jobs::kind::hybrid}) {
    const auto failure = jobs::run(kind, 3, [](parx::process_group& group) {
      for (const std::size_t n : {std::size_t{100}, std::size_t{100'000}}) repeat_all(group, n);
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
  const std::size_t before = parx_test::allocations;
  const std::vector<int> counted(1);
  [[maybe_unused]] static const void* volatile seen = nullptr;
  seen = counted.data();                        // else a compiler may leave the allocation out
  BOOST_TEST(parx_test::allocations > before);  // the counter counts
}
