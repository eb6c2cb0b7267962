#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm/schedule/catalog.hpp>

#include "comm/jobs.hpp"

// What the operations do beyond moving numbers: user operations, coalesced buffers, objects,
// groups. The operations themselves are in matrix_test.cpp, messages in messages_test.cpp.
namespace {

using jobs::check;
using jobs::expect_success;

using namespace std::chrono_literals;
using parx::algorithm;
using parx::operation;
using parx::process_group;
using counts = std::vector<std::size_t>;

std::size_t index_of(const process_group& group) { return static_cast<std::size_t>(group.rank()); }

/// x -> a x + b: composition is associative, but f after g is not g after f.
struct affine {
  std::uint32_t a;
  std::uint32_t b;
  bool operator==(const affine&) const = default;
};
affine then(const affine& first, const affine& second) {
  return {second.a * first.a, second.a * first.b + second.b};
}
affine map_of(std::size_t rank, std::size_t i) {
  return {static_cast<std::uint32_t>(2 * rank + 3), static_cast<std::uint32_t>(7 * rank + i)};
}
/// Of ranks first to last - 1, one after the other.
affine composed(std::size_t first, std::size_t last, std::size_t i) {
  affine whole{1, 0};
  for (std::size_t rank = first; rank < last; ++rank) whole = then(whole, map_of(rank, i));
  return whole;
}

}  // namespace

namespace {

/// Every reduction by every algorithm that keeps the order of the ranks, in memory that all of them
/// see where the algorithm wants it. How many there were.
int reduce_in_order(process_group& group) {
  constexpr std::size_t n = 37;
  const std::size_t own = index_of(group);
  const auto w = static_cast<std::size_t>(group.size());
  auto area = parx::allocate_shared<affine>(group, n * w);
  std::vector<affine> ordinary(n * w), out(n);
  const auto is_composed = [&](std::span<const affine> got, std::size_t last, std::size_t offset) {
    for (std::size_t i = 0; i < n; ++i) {
      if (got[i] != composed(0, last, offset + i)) return false;
    }
    return true;
  };
  int tried = 0;
  for (const auto& entry : parx::catalog()) {
    const bool in_area = entry.name == algorithm::shared;
    const bool has_area =
        parx::detail::core_of(group)->issuer().areas().find(area.data(), 1).area != nullptr;
    const parx::call_shape shape{
        .what = entry.what,
        .world = group.size(),
        .count = entry.what == operation::reduce_scatter ? n * w : n,
        .root = group.size() - 1,
        .element_bytes = sizeof(affine),
        .order = parx::reduction_order::ranks,
        .shared = in_area && has_area ? parx::shared_buffers::both : parx::shared_buffers::none,
        .staging_bytes = parx::detail::core_of(group)->issuer().choice().staging_bytes(),
        .host_of = parx::detail::core_of(group)->issuer().choice().hosts()};
    if (!parx::reduces(entry.what) || !parx::can_do(entry, shape)) continue;
    ++tried;
    const auto by = parx::user_op(then, {.root = shape.root, .use = entry.name});
    if (in_area) parx::barrier(group);  // others may still look at the last result
    const std::span<affine> wide = in_area ? std::span(area.data(), n * w) : std::span(ordinary);
    for (std::size_t i = 0; i < n * w; ++i) wide[i] = map_of(own, i);
    const std::span<affine> data = wide.first(n);
    const std::string what = fmt::format("{} by {}", name_of(entry.what), name_of(entry.name));
    switch (entry.what) {
      case operation::all_reduce:
        parx::all_reduce(group, data, by);
        check(is_composed(data, w, 0), what);
        break;
      case operation::reduce_scatter:
        parx::reduce_scatter(group, wide, out, by);
        check(is_composed(out, w, n * own), what);
        break;
      case operation::reduce:
        parx::reduce(group, data, by);
        check(group.rank() != shape.root || is_composed(data, w, 0), what);
        break;
      case operation::scan:
        parx::async_scan(group, data, out, by).wait();
        check(is_composed(out, own + 1, 0), what);
        break;
      case operation::exscan:
        parx::exscan(group, data, by);
        check(own == 0 ? data[n - 1] == map_of(0, n - 1) : is_composed(data, own, 0), what);
        break;
      default:
        throw std::runtime_error("a reduction that is not tried");
    }
  }
  return tried;
}

}  // namespace

BOOST_AUTO_TEST_CASE(
    a_users_operation_that_does_not_commute_keeps_the_order_of_the_ranks_by_every_algorithm) {
  for (const auto kind : jobs::common_kinds) {
    const bool shares = kind == jobs::kind::inproc || kind == jobs::kind::shm;
    for (const int world : {1, 2, 3, 5, 8}) {
      const auto failure = jobs::run(kind, world, [&](process_group& group) {
        const int tried = reduce_in_order(group);
        check(tried >= (shares && world > 1 ? 12 : 9), "only tried " + std::to_string(tried));
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ", world " << world << ": " << failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_users_operation_combines_numbers_and_structs_and_may_hold_state) {
  struct best {
    double loss;
    int rank;
  };
  expect_success(4, [](process_group& group) {
    std::vector<best> found{{std::abs(group.rank() - 2.25), group.rank()}};
    parx::all_reduce(group, found, parx::user_op([](const best& a, const best& b) {
                       return a.loss < b.loss ? a : b;
                     }));
    check(found[0].rank == 2, "the best");
    std::vector<std::int64_t> x(10'001, group.rank() + 1);
    parx::work pending;
    {
      const std::int64_t modulus = group.size() + 3;
      pending = parx::async_all_reduce(
          group, x,
          parx::user_op([modulus](std::int64_t a, std::int64_t b) { return a * b % modulus; }));
    }  // the work keeps the function
    pending.wait();
    check(x[10'000] == 24 % 7, "a product modulo 7");
  });
}

BOOST_AUTO_TEST_CASE(
    an_exception_from_a_users_operation_ends_the_group_on_every_rank_with_its_text) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 3, [](process_group& group) {
    std::vector<int> x(5, 1);
    parx::all_reduce(
        group, x, parx::user_op([](int, int) -> int { throw std::runtime_error("no sum today"); }));
  });
  for (const auto& each : failures) {
    BOOST_TEST(each.find("no sum today") != std::string::npos, each);
  }
}

BOOST_AUTO_TEST_CASE(coalesced_buffers_are_one_operation_of_one_header) {
  expect_success(3, [](process_group& group) {
    const int rank = group.rank();
    std::vector<float> a(5, static_cast<float>(rank)), b, c(70'000, 2);
    const std::array views{parx::view_of(a), parx::view_of(b), parx::view_of(c)};
    const std::size_t before = group.bytes_sent();
    parx::all_reduce_coalesced(group, views);
    check(a[4] == 3 && c[0] == 6 && c[69'999] == 6, "all_reduce_coalesced");
    // One doubling or ring step more and the headers of three operations would show.
    check(group.bytes_sent() - before <= 2 * (a.size() + c.size()) * 4 + 2 * 64,
          "one header a link");

    std::vector<int> d(3, rank), e(4, 10 * rank);
    parx::async_broadcast_coalesced(group, std::array{parx::view_of(d), parx::view_of(e)},
                                    {.root = 2})
        .wait();
    check(d[2] == 2 && e[3] == 20, "broadcast_coalesced");

    std::vector<int> f{rank, rank + 1}, g{100 + rank}, all_f(6), all_g(3);
    const std::array inputs{parx::const_view_of(f), parx::const_view_of(g)};
    parx::all_gather_coalesced(group, inputs,
                               std::array{parx::view_of(all_f), parx::view_of(all_g)});
    check(
        (all_f == std::vector<int>{0, 1, 1, 2, 2, 3}) && (all_g == std::vector<int>{100, 101, 102}),
        "all_gather_coalesced");
    std::vector<int> in_place(6, -1);
    std::copy(f.begin(), f.end(), in_place.begin() + 2 * rank);
    auto pending = parx::async_all_gather_coalesced(
        group,
        std::array{
            parx::const_view_of(std::span<const int>(in_place).subspan(2 * index_of(group), 2))},
        std::array{parx::view_of(in_place)});
    pending.wait();
    check(in_place == all_f, "all_gather_coalesced in place");
    // What is packed is read when the operation runs, not when it is issued.
    std::vector<double> x{1}, y{1};
    auto first = parx::async_all_reduce(group, x);
    auto second =
        parx::async_all_reduce_coalesced(group, std::array{parx::view_of(x), parx::view_of(y)});
    first.wait();
    second.wait();
    check(x[0] == 9 && y[0] == 3, "packed too early");
  });
}

namespace {

struct tree {  // a type that knows its bytes
  std::map<std::string, int> leaves;
  [[nodiscard]] std::string to_bytes() const {
    std::string text;
    for (const auto& [name, value] : leaves) text += name + "=" + std::to_string(value) + "\n";
    return text;
  }
  static tree from_bytes(std::span<const std::byte> bytes) {
    tree made;
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (std::size_t at = 0; at < text.size();) {
      const auto equals = text.find('=', at), end = text.find('\n', at);
      made.leaves[text.substr(at, equals - at)] =
          std::stoi(text.substr(equals + 1, end - equals - 1));
      at = end + 1;
    }
    return made;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(objects_of_unknown_size_travel_whole) {
  expect_success(3, [](process_group& group) {
    const int rank = group.rank();
    std::string text = rank == 1 ? std::string(100'000, 'x') + "end" : "something shorter";
    parx::broadcast_object(group, text, {.root = 1});
    check(text.size() == 100'003 && text.ends_with("end"), "string");
    std::string empty;
    parx::broadcast_object(group, empty);
    check(empty.empty(), "empty string");
    const auto all =
        parx::all_gather_object(group, std::vector<int>(static_cast<std::size_t>(rank) * 2, rank));
    check(all.size() == 3 && all[0].empty() && (all[2] == std::vector<int>{2, 2, 2, 2}), "vectors");
    const auto trees = parx::gather_object(group, tree{{{"rank", rank}, {"size", 3}}}, {.root = 2});
    check(trees.size() == (rank == 2 ? 3u : 0u), "gathered at the root only");
    if (rank == 2) {
      check(trees[1].leaves.at("rank") == 1 && trees[0].leaves.at("size") == 3, "trees");
    }
    std::vector<std::string> parts;
    if (rank == 0) parts = {"", "one", "two two"};
    check(parx::scatter_object(group, parts) ==
              std::vector<std::string>{"", "one", "two two"}[index_of(group)],
          "scatter");
    if (rank == 0) parx::send_object(group, tree{{{"x", 5}}}, 1, {.tag = 6});
    if (rank == 1) {
      check(parx::recv_object<tree>(group, 0, {.tag = 6}).leaves.at("x") == 5, "message");
    }
    double number = rank + 0.5;
    parx::broadcast_object(group, number);
    check(number == 0.5, "number");
  });
}

BOOST_AUTO_TEST_CASE(an_object_larger_than_allowed_is_refused_by_all_ranks_and_the_group_goes_on) {
  expect_success(3, [](process_group& group) {
    const auto refused = [](auto&& call) {
      try {
        call();
      } catch (const parx::error& failure) {
        check(failure.code_value() == parx::errc::bad_data, failure.what());
        check(std::string(failure.what()).find("faces_test.cpp:") != std::string::npos,
              failure.what());
        return;
      }
      throw std::runtime_error("was accepted");
    };
    const std::size_t size = group.rank() == 1 ? 1000 : 10;
    std::string text(size, 'x');
    refused([&] { parx::broadcast_object(group, text, {.root = 1, .max_bytes = 999}); });
    refused([&] { static_cast<void>(parx::all_gather_object(group, text, {.max_bytes = 999})); });
    refused([&] {
      static_cast<void>(parx::gather_object(group, text, {.root = 2, .max_bytes = 999}));
    });
    refused([&] {
      static_cast<void>(parx::scatter_object(group, std::vector<std::string>(3, text),
                                             {.root = 1, .max_bytes = 999}));
    });
    std::vector<int> three(3);
    refused([&] {  // 10 or 1000 bytes are no whole number of 3-byte elements
      static_cast<void>(parx::all_gather_object(group, std::string(4, 'x')));
      struct triple {
        char c[3];
      };
      std::vector<triple> odd;
      std::string four(4, 'x');
      if (group.rank() == 0) {
        parx::broadcast_object(group, four);
        throw parx::error(parx::errc::bad_data, "faces_test.cpp: the root has nothing to refuse");
      }
      parx::broadcast_object(group, odd);
    });
    // A size that a broken peer invents: nothing is allocated for it.
    std::vector<std::size_t> forged{std::numeric_limits<std::size_t>::max() - 7};
    refused([&] {
      if (group.rank() != 1) {
        std::string received;
        parx::broadcast_object(group, received, {.root = 1});
      } else {
        parx::broadcast(group, forged, {.root = 1});
        throw parx::error(parx::errc::bad_data, "faces_test.cpp: the forger knows");
      }
    });
    parx::all_reduce(group, three);
  });
}

BOOST_AUTO_TEST_CASE(a_forged_size_in_a_message_ends_the_group) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [](process_group& group) {
    const std::vector<std::size_t> forged{std::size_t{1} << 60};
    if (group.rank() == 0) {
      parx::send(group, forged, 1);
    } else {
      try {
        static_cast<void>(parx::recv_object<std::string>(group, 0));
      } catch (const parx::error&) {
        // The program goes on, but not in this group.
      }
    }
    parx::barrier(group);
  });
  for (const auto& each : failures) {
    BOOST_TEST(each.find("larger than max_bytes") != std::string::npos, each);
  }
}

BOOST_AUTO_TEST_CASE(a_monitored_barrier_names_all_late_ranks_on_every_rank) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(kind, 5, [](process_group& group) {
      parx::monitored_barrier(group, 10s);  // all in time
      if (group.rank() == 1 || group.rank() == 4) std::this_thread::sleep_for(1500ms);
      parx::monitored_barrier(group, 500ms);
    });
    for (const auto& each : failures) {
      BOOST_TEST(each.find("for rank 1") != std::string::npos, each);
      BOOST_TEST(each.find("for rank 4") != std::string::npos, each);
      BOOST_TEST(each.find("for rank 2") == std::string::npos, each);
      BOOST_TEST(each.find("for rank 3") == std::string::npos, each);
      BOOST_TEST(each.find("has not entered") != std::string::npos, each);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_negative_color_is_in_no_group) {
  expect_success(4, [](process_group& group) {
    auto part = parx::split(group, group.rank() == 2 ? parx::no_group : 0);
    check(part.has_value() == (group.rank() != 2), "membership");
    if (part) {
      std::vector<int> x{group.rank()};
      parx::all_reduce(*part, x);
      check(x[0] == 4 && part->size() == 3, "sum of the others");
    }
    check(!parx::split(group, -5), "nobody");
  });
}

BOOST_AUTO_TEST_CASE(uneven_counts_that_collide_in_a_hash_would_still_get_their_own_plans) {
  // Every cut of 4 elements into 3 blocks, twice: a plan of another cut would move the wrong ones.
  const auto failure = jobs::run(jobs::kind::inproc, 3, [](process_group& group) {
    for (int round = 0; round < 2; ++round) {
      for (std::size_t a = 0; a <= 4; ++a) {
        for (std::size_t b = 0; a + b <= 4; ++b) {
          const counts cut{a, b, 4 - a - b};
          const std::vector<int> mine(cut[index_of(group)], group.rank());
          std::vector<int> all(4), expected;
          for (int r = 0; r < 3; ++r) {
            expected.insert(expected.end(), cut[static_cast<std::size_t>(r)], r);
          }
          parx::all_gather_v(group, mine, all, cut);
          check(all == expected, "all_gather_v");
        }
      }
    }
  });
  BOOST_TEST(failure == "", failure);
}

BOOST_AUTO_TEST_CASE(a_variable_that_is_a_number_is_a_vector_of_one_element) {
  expect_success(3, [](process_group& group) {
    const int own = group.rank();
    int k = own + 1;
    parx::all_reduce(group, k);
    check(k == 6, "sum");
    double largest = own == 1 ? 7.5 : -1;
    parx::all_reduce(group, largest, {.op = parx::reduce_op::max});
    check(largest == 7.5, "max");
    std::uint64_t weighed = index_of(group) + 2;
    parx::all_reduce(group, weighed,
                     parx::user_op([](std::uint64_t a, std::uint64_t b) { return a * b; }));
    check(weighed == 24, "the user's operation");
    auto work = parx::async_all_reduce(group, k, {.op = parx::reduce_op::min});
    work.wait();
    check(k == 6, "async");
    parx::bfloat16 half{static_cast<float>(own)};
    parx::broadcast(group, half, {.root = 2});
    check(static_cast<float>(half) == 2, "broadcast");
    long total = own;
    parx::reduce(group, total, {.root = 1});
    check(total == (own == 1 ? 3 : own), "reduce");
    parx::scan(group, k);
    check(k == 6 * (own + 1), "scan");
    std::vector<std::int64_t> all(3);
    const std::int64_t mine = 10 * own;
    parx::all_gather(group, mine, all);
    check(all == std::vector<std::int64_t>{0, 10, 20}, "all_gather");
    float token = 0;
    if (own == 0) parx::send(group, 2.5f, 1);
    if (own == 1) parx::recv(group, token, 0);
    check(token == (own == 1 ? 2.5f : 0), "a message");
  });
}

BOOST_AUTO_TEST_CASE(counts_are_any_integers_as_mpi_programs_have_them) {
  const auto failure = jobs::run(jobs::kind::inproc, 3, [](process_group& group) {
    const std::vector<int> ints{2, 0, 1};
    const std::array<long, 3> longs{2, 0, 1};
    const std::vector<int> mine(static_cast<std::size_t>(ints[index_of(group)]), group.rank());
    const std::vector<int> expected{0, 0, 2};
    std::vector<int> all(3), own(mine.size());
    parx::all_gather_v(group, mine, all, ints);
    check(all == expected, "all_gather_v by ints");
    parx::scatter_v(group, all, own, longs, {.root = 2});
    check(own == mine, "scatter_v by longs");

    const int equal[] = {1, 1, 1};
    const std::vector<int> to_each{group.rank(), group.rank(), group.rank()};
    parx::async_all_to_all_v(group, to_each, equal, all, std::vector<short>{1, 1, 1}).wait();
    check(all == std::vector<int>{0, 1, 2}, "all_to_all_v by ints and shorts");

    const std::vector<int> negative{2, -1, 2};
    try {
      parx::all_gather_v(group, mine, all, negative);
      check(false, "negative counts are refused");
    } catch (const parx::usage_error& refusal) {
      const std::string_view text = refusal.what();
      check(text.find("or one of them is negative") != text.npos, refusal.what());
    }
  });
  BOOST_TEST(failure == "", failure);
}
