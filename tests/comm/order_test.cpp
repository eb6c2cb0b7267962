#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/comm/schedule/catalog.hpp>

#include "comm/jobs.hpp"

// Sums in serial order against a loop over the ranks, to the last bit: every algorithm that claims
// it, over every transport, whatever the blocks. The schedules are proven in
// schedule_proof_test.cpp and other orders tried in faces_test.cpp.
namespace {

using parx::algorithm;
using parx::operation;
using parx::process_group;
using parx::reduction_order;
using counts = std::vector<std::size_t>;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <typename T>
constexpr int significant_bits = std::is_same_v<T, double>          ? 53
                                 : std::is_same_v<T, float>         ? 24
                                 : std::is_same_v<T, parx::float16> ? 11
                                                                    : 8;
/// What a T is computed in.
template <typename T>
using wide = std::conditional_t<sizeof(T) == 8, double, float>;

/// Rank `rank`'s element i: a T exactly, between 2^-6 and 2^6, of either sign.
template <typename T>
wide<T> value(std::size_t rank, std::size_t i) {
  constexpr int bits = significant_bits<T>;
  const std::uint64_t draw = mix(rank << 40 | i);
  const auto fraction = static_cast<double>((draw >> 11) >> (53 - bits) | 1u);
  const int exponent = static_cast<int>(draw % 13) - 6;
  const double sign = (draw >> 8) % 2 == 0 ? 1 : -1;
  return static_cast<wide<T>>(std::ldexp(sign * fraction, exponent - bits));
}

/// To the nearest T, the even one of two.
template <typename T>
wide<T> rounded(wide<T> x) {
  if (sizeof(T) > 2 || x == 0) return x;
  const int exponent = std::max(std::ilogb(x), -14) + 1 - significant_bits<T>;
  return static_cast<wide<T>>(
      std::ldexp(std::nearbyint(std::ldexp(double{x}, -exponent)), exponent));
}

/// ((x0 + x1) + x2) + ..., each sum a T.
template <typename T>
wide<T> folded(std::size_t world, std::size_t i) {
  wide<T> sum = value<T>(0, i);
  for (std::size_t r = 1; r < world; ++r) sum = rounded<T>(sum + value<T>(r, i));
  return sum;
}

/// The first `count` of value(of, i) or folded(of, i), and more. Computed once for all ranks and
/// calls: that takes longer than the calls.
template <typename T, wide<T> (*element)(std::size_t, std::size_t)>
const std::vector<wide<T>>& known(std::size_t of, std::size_t count) {
  static std::mutex one_at_a_time;
  static std::map<std::pair<std::size_t, std::size_t>, std::vector<wide<T>>> all;
  const std::lock_guard lock(one_at_a_time);
  const std::size_t size = std::bit_ceil(count);
  auto& elements = all[{of, size}];
  while (elements.size() < size) elements.push_back(element(of, elements.size()));
  return elements;
}

template <typename T>
wide<T> widened(T x) {
  return static_cast<wide<T>>(x);
}

/// Block sizes that differ, some of them empty.
counts uneven(int world, std::size_t n) {
  counts all;
  for (int r = 0; r < world; ++r) all.push_back(static_cast<std::size_t>(r * 3 + 1) % 4 * n / 3);
  return all;
}

/// One rank's calls on elements of type T, by `use`. `area` is memory that all ranks see, if any.
template <typename T>
class calls {
 public:
  calls(process_group& group, operation what, algorithm use, std::size_t n, std::span<T> area = {})
      : group_(group), world_(group.size()), what_(what), use_(use), n_(n), area_(area) {}

  void run() {
    if (what_ == operation::all_reduce) all_reduce();
    else reduce_scatter();
  }

 private:
  void all_reduce() {
    std::vector<T> own, out(n_, T(99.0F));
    const std::span<T> in = filled(own, n_);
    if (use_ != algorithm::shared) {  // which needs the output in shared memory
      parx::async_all_reduce(group_, in, out, options_).wait();
      is_folded(out, 0, 1, "apart, asynchronous");
    }
    parx::reduce_options mean = options_;
    mean.divide_by = &four_;
    parx::all_reduce(group_, in, mean);
    is_folded(in, 0, 4, "in place, divided");
  }

  void reduce_scatter() {
    const auto rank = static_cast<std::size_t>(group_.rank());
    const auto w = static_cast<std::size_t>(world_);
    std::vector<T> own, out(n_, T(99.0F));
    std::span<T> in = filled(own, n_ * w);
    parx::reduce_options mean = options_;
    mean.divide_by = &four_;
    parx::async_reduce_scatter(group_, in, out, mean).wait();
    is_folded(out, rank * n_, 4, "apart, asynchronous, divided");
    const std::span<T> block = in.subspan(rank * n_, n_);
    parx::reduce_scatter(group_, in, block, options_);
    is_folded(block, rank * n_, 1, "in place");

    const counts cut = uneven(world_, n_);
    std::size_t begin = 0, total = 0;
    for (std::size_t r = 0; r < w; ++r) {
      if (r < rank) begin += cut[r];
      total += cut[r];
    }
    in = filled(own, total);
    out.resize(cut[rank]);
    parx::reduce_scatter_v(group_, in, out, cut, options_);
    is_folded(out, begin, 1, "uneven");
  }

  std::span<T> filled(std::vector<T>& own, std::size_t count) {
    std::span<T> all = area_.first(std::min(count, area_.size()));
    if (area_.empty()) {
      own.resize(count);
      all = own;
    } else {
      parx::barrier(group_);  // others may still look at the last call's
    }
    const auto& values = known<T, value<T>>(static_cast<std::size_t>(group_.rank()), count);
    for (std::size_t i = 0; i < count; ++i) all[i] = T(values[i]);
    return all;
  }

  void is_folded(std::span<const T> got, std::size_t first, int divisor, const char* how) {
    const auto& sums = known<T, folded<T>>(static_cast<std::size_t>(world_), first + got.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto wanted = sums[first + i] / static_cast<wide<T>>(divisor);
      if (widened(got[i]) == wanted) continue;
      throw std::runtime_error(fmt::format("{} by {} of {} {}, {}: element {} is {}, not {}",
                                           name_of(what_), name_of(use_), n_,
                                           name_of(parx::dtype_of<T>), how, i, widened(got[i]),
                                           wanted));
    }
  }

  process_group& group_;
  int world_;
  operation what_;
  algorithm use_;
  std::size_t n_;
  std::span<T> area_;
  double four_ = 4;
  parx::reduce_options options_{.order = reduction_order::serial, .use = use_};
};

/// Every algorithm that claims serial order here, and the choice among them. How many.
template <typename T>
int run_all(process_group& group, std::size_t n) {
  int tried = 0;
  const std::vector<int> hosts = group.hosts();
  const std::size_t slice = group.shares_memory() ? parx::slice_bytes(group.size()) : 0;
  for (const operation what : {operation::all_reduce, operation::reduce_scatter}) {
    calls<T>(group, what, algorithm::automatic, n).run();
    for (const auto& entry : parx::catalog()) {
      const parx::call_shape shape{.what = what,
                                   .world = group.size(),
                                   .count = n,
                                   .element_bytes = sizeof(T),
                                   .order = reduction_order::serial,
                                   .staging_bytes = slice,
                                   .host_of = hosts};
      if (!can_do(entry, shape)) continue;
      calls<T>(group, what, entry.name, n).run();
      ++tried;
    }
  }
  return tried;
}

template <typename T>
void run_shared(process_group& group, std::size_t n) {
  const auto w = static_cast<std::size_t>(group.size());
  auto area = parx::allocate_shared<T>(group, (n + 1) * w);
  for (const auto use : {algorithm::automatic, algorithm::shared}) {
    if (use == algorithm::shared && !group.shares_memory()) continue;
    const std::span<T> all(area.data(), area.size());
    calls<T>(group, operation::all_reduce, use, n, all).run();
    calls<T>(group, operation::reduce_scatter, use, n, all).run();
  }
}

constexpr jobs::kind kinds[] = {jobs::kind::tcp, jobs::kind::shm, jobs::kind::hybrid};

}  // namespace

BOOST_AUTO_TEST_CASE(the_test_data_distinguish_orders_of_summation) {
  const auto differs = []<typename T>(std::type_identity<T>) {
    int different = 0;
    for (std::size_t i = 0; i < 100; ++i) {
      const auto x = [i](std::size_t r) { return value<T>(r, i); };
      const auto sum = [](auto a, auto b) { return rounded<T>(a + b); };
      different += folded<T>(3, i) != sum(x(0), sum(x(1), x(2))) ? 1 : 0;
      different += folded<T>(3, i) != sum(sum(x(0), x(2)), x(1)) ? 1 : 0;
    }
    return different;
  };
  BOOST_TEST(differs(std::type_identity<double>{}) > 20);
  BOOST_TEST(differs(std::type_identity<float>{}) > 20);
  BOOST_TEST(differs(std::type_identity<parx::bfloat16>{}) > 20);
  BOOST_TEST(differs(std::type_identity<parx::float16>{}) > 20);
}

BOOST_AUTO_TEST_CASE(
    a_sum_in_serial_order_is_a_loop_over_the_ranks_by_every_algorithm_that_has_it) {
  for (const auto kind : kinds) {
    for (const int world : {2, 3, 4, 7}) {
      const auto failure = jobs::run(kind, world, [&](process_group& group) {
        for (const std::size_t n : {1u, 37u, 1003u}) {
          const int tried = run_all<float>(group, n);
          if (tried < (kind == jobs::kind::shm ? 5 : 4)) throw std::runtime_error("hardly tried");
          run_all<double>(group, n);
          run_all<parx::bfloat16>(group, n);
          run_all<parx::float16>(group, n);
        }
        run_shared<float>(group, 1003);
        run_shared<parx::bfloat16>(group, 37);
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ", world " << world << ": " << failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(vectors_of_several_segments_keep_their_order_and_so_do_packed_ones) {
  for (const auto kind : kinds) {
    const auto failure = jobs::run(kind, 5, [](process_group& group) {
      run_all<float>(group, 200'003);  // blocks of reduce_scatter longer than a link's staging
      const auto rank = static_cast<std::size_t>(group.rank());
      std::vector<float> a(70), b(1100);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = value<float>(rank, i);
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = value<float>(rank, i + a.size());
      parx::all_reduce_coalesced(group, std::array{parx::view_of(a), parx::view_of(b)},
                                 {.order = reduction_order::serial});
      a.insert(a.end(), b.begin(), b.end());
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (a[i] != folded<float>(5, i)) throw std::runtime_error("packed " + std::to_string(i));
      }
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
}

BOOST_AUTO_TEST_CASE(an_operation_that_is_not_associative_is_applied_one_rank_after_the_other) {
  // 3 a + b: neither associative nor commutative.
  const auto step = [](std::uint32_t a, std::uint32_t b) { return 3 * a + b; };
  for (const auto kind : kinds) {
    for (const int world : {2, 3, 6}) {
      const auto failure = jobs::run(kind, world, [&](process_group& group) {
        const auto by = [&](algorithm use) {
          return parx::user_op(step, {.order = reduction_order::serial, .root = 1, .use = use});
        };
        for (const auto use : {algorithm::automatic, algorithm::direct}) {
          std::vector<std::uint32_t> all(9, static_cast<std::uint32_t>(group.rank()) + 5);
          std::vector<std::uint32_t> one = all;
          parx::all_reduce(group, all, by(use));
          parx::reduce(group, one, by(use));
          std::uint32_t wanted = 5;
          for (int r = 1; r < world; ++r) wanted = 3 * wanted + static_cast<std::uint32_t>(r) + 5;
          if (all != std::vector(9, wanted)) throw std::runtime_error("all_reduce");
          if (group.rank() == 1 && one != all) throw std::runtime_error("reduce");
        }
      });
      BOOST_TEST(failure == "", jobs::name_of(kind) << ", world " << world << ": " << failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_order_is_asked_of_an_algorithm_only_where_it_changes_bits) {
  using parx::dtype;
  using parx::reduce_op;
  const auto needed = [](reduce_op op, dtype type, int world, reduction_order asked) {
    const parx::detail::arithmetic how{.op = op, .order = asked};
    return parx::detail::needed_order(how, static_cast<std::uint8_t>(type), world);
  };
  constexpr auto any = reduction_order::any;
  constexpr auto serial = reduction_order::serial;
  BOOST_TEST((needed(reduce_op::sum, dtype::float32, 3, serial) == serial));
  BOOST_TEST((needed(reduce_op::avg, dtype::bfloat16, 8, serial) == serial));
  BOOST_TEST((needed(reduce_op::product, dtype::float64, 3, serial) == serial));
  BOOST_TEST((needed(reduce_op::sum, dtype::float32, 3, any) == any));
  BOOST_TEST((needed(reduce_op::sum, dtype::float32, 2, serial) == any));  // x0 + x1 == x1 + x0
  BOOST_TEST((needed(reduce_op::sum, dtype::int32, 8, serial) == any));
  BOOST_TEST((needed(reduce_op::max, dtype::float32, 8, serial) == any));

  for (const int world : {2, 3}) {
    const auto failure = jobs::run(jobs::kind::inproc, world, [](process_group& group) {
      std::vector<float> x(8);
      parx::all_reduce(group, x, {.order = reduction_order::serial, .use = algorithm::ring});
    });
    const bool refused = failure.find("it does not reduce in serial order") != std::string::npos;
    BOOST_TEST((world == 2 ? failure == "" : refused), failure);
  }
}
