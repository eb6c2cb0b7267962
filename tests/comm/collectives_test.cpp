#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "comm/jobs.hpp"

// Every operation against exact oracles: small integers, whose sums no dtype rounds.
namespace {

using parx::algorithm;
using parx::reduce_op;

void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("wrong result: " + what);
}

template <typename T>
std::vector<T> contribution(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<float>((i + static_cast<std::size_t>(rank) * 3) % 4));
  }
  return values;
}

template <typename T>
T expected(reduce_op op, int world, std::size_t i) {
  double result = static_cast<double>(static_cast<float>(contribution<T>(0, i + 1)[i]));
  const auto bits = [](double x) { return static_cast<std::uint64_t>(x); };
  for (int rank = 1; rank < world; ++rank) {
    const auto next = static_cast<double>((i + static_cast<std::size_t>(rank) * 3) % 4);
    switch (op) {
      case reduce_op::sum: case reduce_op::avg: case reduce_op::premul_sum: result += next; break;
      case reduce_op::product: result *= next; break;
      case reduce_op::min: result = std::min(result, next); break;
      case reduce_op::max: result = std::max(result, next); break;
      case reduce_op::band: result = static_cast<double>(bits(result) & bits(next)); break;
      case reduce_op::bor: result = static_cast<double>(bits(result) | bits(next)); break;
      case reduce_op::bxor: result = static_cast<double>(bits(result) ^ bits(next)); break;
    }
  }
  if (op == reduce_op::premul_sum) result *= 2;
  return static_cast<T>(static_cast<float>(result));
}

std::vector<std::size_t> counts(int world) {
  const auto w = static_cast<std::size_t>(world);
  return {0, 1, w - 1, w, 7 * w + 3, 1000};
}

template <typename T>
void all_operations(parx::process_group& group, std::size_t n, algorithm reduce_by, algorithm scatter_by,
                    algorithm rooted_by) {
  const int world = group.size();
  const auto w = static_cast<std::size_t>(world);
  const auto mine = contribution<T>(group.rank(), n);
  std::vector<reduce_op> ops{reduce_op::sum, reduce_op::min, reduce_op::max};
  if (parx::is_defined(parx::dtype_of<T>, reduce_op::band)) {
    ops.insert(ops.end(), {reduce_op::band, reduce_op::bor, reduce_op::bxor});
  } else {
    ops.insert(ops.end(), {reduce_op::avg, reduce_op::premul_sum});
  }
  if (world <= 4) ops.push_back(reduce_op::product);  // 3^4 still fits everywhere
  for (const reduce_op op : ops) {
    if (op == reduce_op::avg && (world & (world - 1)) != 0) continue;  // 1/3 is not exact
    const auto wanted = [&](std::size_t i) {
      const T whole = expected<T>(op, world, i);
      if (op != reduce_op::avg) return whole;
      return static_cast<T>(static_cast<float>(whole) / static_cast<float>(world));
    };
    const auto matches = [&](const std::vector<T>& got, std::size_t first) {
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (!(got[i] == wanted(first + i))) return false;
      }
      return true;
    };
    std::vector<T> out(n);
    parx::all_reduce(group, mine, out, {.op = op, .factor = 2, .use = reduce_by});
    check(matches(out, 0), "all_reduce");
    auto in_place = mine;
    parx::async_all_reduce(group, in_place, {.op = op, .factor = 2, .use = reduce_by}).wait();
    check(matches(in_place, 0), "all_reduce in place");

    const auto wide = contribution<T>(group.rank(), n * w);
    parx::reduce_scatter(group, wide, out, {.op = op, .factor = 2, .use = scatter_by});
    check(matches(out, n * static_cast<std::size_t>(group.rank())), "reduce_scatter");
    auto wide_in_place = wide;
    const std::span<T> own(wide_in_place.data() + n * static_cast<std::size_t>(group.rank()), n);
    parx::reduce_scatter(group, wide_in_place, own, {.op = op, .factor = 2, .use = scatter_by});
    check(std::equal(own.begin(), own.end(), out.begin()), "reduce_scatter in place");

    const int root = static_cast<int>(n) % world;
    std::vector<T> at_root(group.rank() == root ? n : 0);
    parx::reduce(group, mine, at_root, {.root = root, .op = op, .factor = 2, .use = rooted_by});
    check(matches(at_root, 0), "reduce");
    auto root_in_place = mine;
    parx::reduce(group, root_in_place, {.root = root, .op = op, .factor = 2, .use = rooted_by});
    check(group.rank() == root ? matches(root_in_place, 0) : root_in_place == mine, "reduce in place");
  }

  std::vector<T> gathered(n * w);
  parx::all_gather(group, mine, gathered, {.use = scatter_by});
  std::vector<T> in_place(n * w);
  std::copy(mine.begin(), mine.end(), in_place.begin() + static_cast<std::ptrdiff_t>(n) * group.rank());
  parx::all_gather(group, std::span<const T>(in_place.data() + n * static_cast<std::size_t>(group.rank()), n),
                   in_place, {.use = scatter_by});
  for (int rank = 0; rank < world; ++rank) {
    const auto theirs = contribution<T>(rank, n);
    const auto at = static_cast<std::ptrdiff_t>(n) * rank;
    check(std::equal(theirs.begin(), theirs.end(), gathered.begin() + at), "all_gather");
    check(std::equal(theirs.begin(), theirs.end(), in_place.begin() + at), "all_gather in place");
    auto cast = mine;
    parx::broadcast(group, cast, {.root = rank, .use = rooted_by});
    check(cast == theirs, "broadcast");
  }
}

template <typename... T>
void all_dtypes(parx::process_group& group, std::size_t n, algorithm a, algorithm b, algorithm c) {
  (all_operations<T>(group, n, a, b, c), ...);
}

void matrix(jobs::kind kind, const std::vector<int>& worlds) {
  for (const int world : worlds) {
    const auto failure = jobs::run(kind, world, [](parx::process_group& group) {
      for (const std::size_t n : counts(group.size())) {
        all_dtypes<float, std::int32_t>(group, n, algorithm::automatic, algorithm::automatic, algorithm::automatic);
        all_dtypes<float, std::uint8_t>(group, n, algorithm::ring, algorithm::ring, algorithm::chain);
        all_dtypes<parx::bfloat16>(group, n, algorithm::doubling, algorithm::direct, algorithm::tree);
        parx::barrier(group);
      }
      all_dtypes<double, parx::float16, parx::bfloat16, std::int8_t, std::int16_t, std::int32_t, std::int64_t,
                 std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>(
          group, 23, algorithm::ring, algorithm::ring, algorithm::chain);
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ", world " << world << ": " << failure);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_operation_dtype_and_algorithm_is_exact_over_inproc) {
  matrix(jobs::kind::inproc, {1, 2, 3, 4, 5, 7, 8});
}

BOOST_AUTO_TEST_CASE(every_operation_dtype_and_algorithm_is_exact_over_tcp) {
  matrix(jobs::kind::tcp, {2, 3, 5});
}

BOOST_AUTO_TEST_CASE(every_operation_dtype_and_algorithm_is_exact_over_shared_memory) {
  matrix(jobs::kind::shm, {2, 3, 4, 5});
}

BOOST_AUTO_TEST_CASE(large_vectors_stream_and_leave_the_same_bits_on_all_ranks) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm}) {
    for (const int world : {2, 3, 4}) {
      for (const auto use : {algorithm::ring, algorithm::doubling}) {
        const std::size_t n = 1'000'003;
        std::vector<std::vector<float>> results(static_cast<std::size_t>(world));
        const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
          std::mt19937 random(static_cast<unsigned>(group.rank()));
          std::vector<float> x(n);
          for (auto& each : x) each = static_cast<float>(random()) * 1e-9f - 2;
          parx::all_reduce(group, x, {.use = use});
          results[static_cast<std::size_t>(group.rank())] = std::move(x);
        });
        BOOST_TEST(failure == "");
        for (const auto& each : results) BOOST_TEST((each == results[0]));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(all_reduce_is_reduce_scatter_and_all_gather_bit_by_bit) {
  const auto failure = jobs::run(jobs::kind::inproc, 3, [](parx::process_group& group) {
    std::mt19937 random(static_cast<unsigned>(group.rank()) + 5);
    std::vector<float> x(3 * 1111);
    for (auto& each : x) each = static_cast<float>(random()) * 1e-9f;
    std::vector<float> piece(1111), whole(x.size());
    parx::reduce_scatter(group, x, piece, {.use = algorithm::ring});
    parx::all_gather(group, piece, whole);
    parx::all_reduce(group, x, {.use = algorithm::ring});
    check(x == whole, "the bits differ");
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(asynchronous_operations_run_in_issue_order_beside_blocking_ones) {
  for (const auto mode : {parx::progress_mode::thread, parx::progress_mode::inline_poll}) {
    for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm}) {
      const auto failure = jobs::run(kind, 3, [](parx::process_group& group) {
        for (int round = 0; round < 20; ++round) {
          std::vector<std::vector<int>> data(10, std::vector<int>(100 * static_cast<std::size_t>(round), 1));
          std::vector<parx::work> works;
          for (auto& each : data) works.push_back(parx::async_all_reduce(group, each));
          std::vector<int> now{group.rank()};
          parx::all_reduce(group, now);  // queues behind the ten
          check(now[0] == 3, "blocking behind asynchronous");
          for (auto& each : works) check(each.test(), "an earlier operation must be done by now");
          for (auto& each : works) each.wait();
          for (const auto& each : data) {
            for (const int x : each) check(x == 3, "asynchronous");
          }
        }
      }, {.progress = mode});
      BOOST_TEST(failure == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_count_can_divide_the_sum_that_follows_it) {
  const auto failure = jobs::run(jobs::kind::inproc, 4, [](parx::process_group& group) {
    std::vector<double> count{static_cast<double>(group.rank())};  // 0 + 1 + 2 + 3
    std::vector<float> sum(100, static_cast<float>(group.rank()) * 6);
    auto first = parx::async_all_reduce(group, count);
    auto second = parx::async_all_reduce(group, sum, {.divide_by = count.data()});
    first.wait();
    second.wait();
    check(count[0] == 6 && sum[17] == 6, "mean by a total that was still under way");
    count[0] = 0;
    parx::all_reduce(group, sum, {.divide_by = count.data()});
    check(sum[3] == 0, "nothing divided by nothing is nothing");
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(messages_match_by_sender_and_tag_in_any_order) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm}) {
    const auto failure = jobs::run(kind, 3, [](parx::process_group& group) {
      const int next = (group.rank() + 1) % 3;
      const int previous = (group.rank() + 2) % 3;
      // Everybody sends before anybody receives, and receives in another order.
      std::vector<int> a(300'000, group.rank()), b(7, group.rank() + 10), self{42};
      auto large = parx::async_send(group, a, next, {.tag = 1});
      auto small = parx::async_send(group, b, next, {.tag = 2});
      parx::send(group, self, group.rank(), {.tag = 9});
      std::vector<int> c(300'000), d(7), e(1), none;
      parx::recv(group, d, previous, {.tag = 2});
      parx::recv(group, c, previous, {.tag = 1});
      parx::recv(group, e, group.rank(), {.tag = 9});
      check(d[6] == previous + 10 && c[299'999] == previous && e[0] == 42, "message");
      auto incoming = parx::async_recv(group, c, next);
      auto empty = parx::async_recv(group, none, next, {.tag = 5});
      auto outgoing = parx::async_send(group, a, previous);
      parx::send(group, none, previous, {.tag = 5});
      std::vector<int> sum{1};
      parx::all_reduce(group, sum);  // a collective in between does not mind
      check(sum[0] == 3, "collective among messages");
      outgoing.wait();
      incoming.wait();
      empty.wait();
      check(c[5] == next, "asynchronous message");
    });
    BOOST_TEST(failure == "", jobs::name_of(kind));
  }
}

BOOST_AUTO_TEST_CASE(structs_travel_as_bytes) {
  struct point {
    float x;
    int y;
    bool operator==(const point&) const = default;
  };
  const auto failure = jobs::run(jobs::kind::inproc, 2, [](parx::process_group& group) {
    std::vector<point> all(2);
    parx::all_gather(group, std::vector<point>{{1.5f, group.rank()}}, all);
    check((all == std::vector<point>{{1.5f, 0}, {1.5f, 1}}), "struct");
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(split_makes_groups_that_do_not_meet) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm}) {
    const auto failure = jobs::run(kind, 5, [](parx::process_group& group) {
      auto half = *parx::split(group, group.rank() % 2, -group.rank());
      check(half.size() == (group.rank() % 2 == 0 ? 3 : 2), "size");
      check(half.rank() == (half.size() - 1) - group.rank() / 2, "key orders the ranks backwards");
      std::vector<int> x{group.rank()};
      auto y = x;
      auto pending = parx::async_all_reduce(half, x);
      parx::all_reduce(group, y);
      pending.wait();
      check(x[0] == (group.rank() % 2 == 0 ? 6 : 4) && y[0] == 10, "sums");
      auto again = *parx::split(group, 0);  // all in one, a second time
      parx::all_reduce(again, x);
      check(x[0] == 3 * 6 + 2 * 4, "second split");
    });
    BOOST_TEST(failure == "", jobs::name_of(kind));
  }
}

BOOST_AUTO_TEST_CASE(bytes_on_the_wire_equal_the_formula) {
  for (const int world : {2, 4}) {
    std::vector<std::size_t> sent(static_cast<std::size_t>(world));
    const std::size_t n = 64 * 1024;
    const auto failure = jobs::run(jobs::kind::inproc, world, [&](parx::process_group& group) {
      std::vector<float> x(n);
      parx::all_reduce(group, x, {.use = algorithm::ring});
      sent[static_cast<std::size_t>(group.rank())] = group.bytes_sent();
    });
    BOOST_TEST(failure == "");
    const auto w = static_cast<std::size_t>(world);
    for (const auto bytes : sent) BOOST_TEST(bytes == 2 * n * sizeof(float) * (w - 1) / w + 64);
  }
}
