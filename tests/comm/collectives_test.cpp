#include <parx/comm.hpp>
#include <parx/comm/schedule/catalog.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "comm/jobs.hpp"

// How operations interact, and what holds for all of them. That each is exact, by every algorithm,
// is tested in matrix_test.cpp.
namespace {

using jobs::check;
using parx::algorithm;

}  // namespace

BOOST_AUTO_TEST_CASE(large_vectors_stream_and_leave_the_same_bits_on_all_ranks) {
  for (const auto kind : jobs::common_kinds) {
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

BOOST_AUTO_TEST_CASE(all_gather_into_fills_buffers_of_any_sizes_that_lie_anywhere) {
  for (const auto kind : jobs::common_kinds) {
    for (const int world : {1, 2, 3, 4}) {
      const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
        const auto size_of = [](int rank, std::size_t unit) {
          return rank == 1 ? 0 : unit * static_cast<std::size_t>(rank + 1);
        };
        // In backward order, so that no rank's buffer lies behind that of the rank before.
        for (const std::size_t unit : {std::size_t{1}, std::size_t{100'003}}) {
          for (const auto use : {algorithm::automatic, algorithm::direct, algorithm::ring}) {
            std::vector<std::vector<float>> all(static_cast<std::size_t>(world));
            std::vector<parx::buffer_view> views(all.size());
            for (int r = world - 1; r >= 0; --r) {
              auto& each = all[static_cast<std::size_t>(r)];
              each.assign(size_of(r, unit), -1.0f);
              views[static_cast<std::size_t>(r)] = parx::view_of(each);
            }
            const auto own = static_cast<std::size_t>(group.rank());
            std::vector<float> mine(all[own].size(), static_cast<float>(own));
            parx::all_gather_into(group, mine, views, {.use = use});
            for (std::size_t r = 0; r < all.size(); ++r) {
              check(all[r] == std::vector<float>(all[r].size(), static_cast<float>(r)), "blocks");
            }
            all[own].assign(all[own].size(), 10.0f + static_cast<float>(own));
            auto pending = parx::async_all_gather_into(group, all[own], views, {.use = use});
            pending.wait();
            check(all[0].back() == 10.0f, "in place");
          }
        }
      });
      BOOST_TEST(failure == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(all_gather_into_refuses_buffers_that_do_not_fit) {
  const auto failure = jobs::run(jobs::kind::inproc, 2, [&](parx::process_group& group) {
    std::vector<float> mine(4), other(4), short_one(3);
    std::vector<double> wide(4);
    const auto refused = [&](std::vector<parx::buffer_view> outputs, std::string_view why) {
      try {
        parx::all_gather_into(group, mine, outputs);
        check(false, "not refused");
      } catch (const parx::usage_error& e) {
        check(std::string_view(e.what()).find(why) != std::string_view::npos, e.what());
      }
    };
    using parx::view_of;
    refused({view_of(other)}, "all_gather_into on group");
    refused({view_of(short_one), view_of(short_one)}, "4 elements, the output 3");
    refused({view_of(wide), view_of(wide)}, "holds float32, the output float64");
    refused({group.rank() == 0 ? view_of(other) : view_of(wide),
             group.rank() == 1 ? view_of(other) : view_of(wide)},
            "an output holds float64");
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(every_all_reduce_of_every_floating_dtype_leaves_the_same_bits_on_all_ranks) {
  using parx::dtype;
  using parx::reduce_op;
  constexpr std::size_t n = 5003;
  for (const auto kind : jobs::common_kinds) {
    for (const int world : {2, 3, 5, 8}) {
      std::vector<std::vector<std::byte>> results(static_cast<std::size_t>(world));
      std::size_t tried = 0;
      const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
        auto area = parx::allocate_shared<std::byte>(group, n * sizeof(double));
        std::vector<std::byte> own(n * sizeof(double));
        auto& all = results[static_cast<std::size_t>(group.rank())];
        for (const auto& entry : parx::catalog()) {
          if (entry.what != parx::operation::all_reduce) continue;
          for (const dtype type :
               {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16}) {
            for (const reduce_op op : {reduce_op::sum, reduce_op::avg, reduce_op::product}) {
              std::mt19937 random(static_cast<unsigned>(group.rank()));
              const parx::buffer_view x{
                  entry.name == algorithm::shared ? area.data() : own.data(), n, type};
              visit_dtype(type, [&]<typename T>(std::type_identity<T>) {
                for (std::size_t i = 0; i < n; ++i) {
                  static_cast<T*>(x.data)[i] =
                      static_cast<T>(static_cast<float>(random()) * 1e-9f - 2);
                }
              });
              if (entry.name == algorithm::shared) parx::barrier(group);
              try {
                parx::all_reduce(group, x, {.op = op, .use = entry.name});
              } catch (const parx::usage_error&) {
                continue;  // not on these hosts, or not without shared memory
              }
              if (group.rank() == 0) ++tried;
              const auto* bits = static_cast<const std::byte*>(x.data);
              all.insert(all.end(), bits, bits + x.bytes());
            }
          }
        }
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
      BOOST_TEST(tried >= 5u * 12u);
      for (const auto& each : results) {
        BOOST_TEST((each == results[0]), jobs::name_of(kind) << ", world " << world);
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
  for (const auto kind : jobs::common_kinds) {
    const auto failure = jobs::run(kind, 3, [](parx::process_group& group) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::vector<int>> data(
            10, std::vector<int>(100 * static_cast<std::size_t>(round), 1));
        std::vector<parx::work> works;
        for (auto& each : data) works.push_back(parx::async_all_reduce(group, each));
        std::vector<int> now{group.rank()};
        parx::all_reduce(group, now);  // queues after the ten
        check(now[0] == 3, "blocking behind asynchronous");
        for (auto& each : works) check(each.test(), "an earlier operation must be done by now");
        for (auto& each : works) each.wait();
        for (const auto& each : data) {
          for (const int x : each) check(x == 3, "asynchronous");
        }
      }
    });
    BOOST_TEST(failure == "");
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
  for (const auto kind : jobs::common_kinds) {
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
  for (const auto kind : jobs::common_kinds) {
    const auto failure = jobs::run(kind, 5, [](parx::process_group& group) {
      auto half = *parx::split(group, group.rank() % 2, {.key = -group.rank()});
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
