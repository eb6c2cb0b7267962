// Arguments that no call may have.
#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/jobs.hpp"
#include "messages.hpp"

namespace {

using parx_test::mentions;
using counts = std::vector<std::size_t>;

constexpr double total_of_nothing = 0;

}  // namespace

BOOST_AUTO_TEST_CASE(
    wrong_arguments_are_refused_before_anything_is_sent_and_the_group_stays_usable) {
  for (const auto kind : jobs::common_kinds) {
    const auto failure = jobs::run(kind, 2, [&](parx::process_group& group) {
      const auto refused = [&](auto&& call, const std::string& part) {
        try {
          call();
        } catch (const parx::usage_error& wrong) {
          if (mentions(wrong.what(), part)) return;
          throw std::runtime_error(std::string("unclear message: ") + wrong.what());
        }
        throw std::runtime_error("was accepted: " + part);
      };
      std::vector<float> x(8), y(7);
      std::vector<int> i(8);
      refused([&] { parx::all_reduce(group, x, y); }, "8 elements, the output 7");
      refused([&] { parx::all_reduce(group, x, i); }, "float32, the output int32");
      refused([&] { parx::all_reduce(group, x, {.op = parx::reduce_op::band}); }, "band");
      refused([&] { parx::all_reduce(group, i, {.op = parx::reduce_op::avg}); }, "avg");
      refused([&] { parx::all_reduce(group, x, {.use = parx::algorithm::bruck}); }, "bruck");
      refused([&] { parx::broadcast(group, x, {.root = 2}); }, "root 2");
      refused([&] { parx::reduce(group, x, {.root = -1}); }, "root -1");
      refused([&] { parx::reduce_scatter(group, x, y); }, "2 ranks x 7");
      refused([&] { parx::all_gather(group, x, y); }, "2 ranks x 8 elements");
      refused([&] { parx::send(group, x, 5); }, "rank 5");
      refused(
          [&] {
            parx::all_reduce(group, std::span<float>(x.data(), 4),
                             std::span<float>(x.data() + 2, 4));
          },
          "overlap");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{0, 7})); }, "rank 7");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{0, 0})); }, "twice");
      refused([&] { static_cast<void>(group.subgroup(std::vector<int>{1 - group.rank()})); },
              "not among");
      const std::size_t own = static_cast<std::size_t>(group.rank());
      std::vector<float> sixteen(16), none;
      const counts cut{3, 5}, long_cut{3, 5, 0},
          own_cut{own == 0 ? 8u : 0u, own == 0 ? 0u : 8u};  // all for itself
      const counts vast{std::numeric_limits<std::size_t>::max(), 2};
      // Each names the operation, the group and the place.
      refused([&] { parx::scan(group, x, y); }, "scan on group \"world\" at arguments_test.cpp:");
      refused([&] { parx::all_gather(group, x, y); },
              "all_gather on group \"world\" at arguments_test.cpp:");
      refused([&] { parx::reduce_scatter(group, x, y); },
              "reduce_scatter on group \"world\" at arguments_test.cpp:");
      refused([&] { parx::all_reduce(group, x, {.op = parx::reduce_op::bor}); },
              "all_reduce on group \"world\" at arguments_test.cpp:");
      refused([&] { parx::broadcast(group, x, {.use = parx::algorithm::ring}); },
              "broadcast on group \"world\" at arguments_test.cpp:");
      refused([&] { parx::recv(group, x, -2); }, "recv on group \"world\" at arguments_test.cpp:");
      refused([&] { parx::batch(group).send(x, 2); },
              "send on group \"world\" at arguments_test.cpp:");
      refused(
          [&] {
            static_cast<void>(group.subgroup(std::vector<int>{0, 7}));
          },
          "at arguments_test.cpp:");
      // Roots, counts and types.
      refused([&] { parx::gather(group, x, sixteen, {.root = 2}); },
              "root 2 is not in this group of 2 ranks");
      refused([&] { parx::scatter(group, x, y, {.root = -1}); }, "root -1 is not");
      refused([&] { static_cast<void>(parx::gather_object(group, 1, {.root = 9})); },
              "root 9 is not");
      refused([&] { parx::gather(group, x, i, {.root = group.rank()}); },
              "float32, the output int32");
      refused([&] { parx::gather(group, x, x, {.root = group.rank()}); },
              "2 ranks x 8 elements = 16, not 8");
      refused([&] { parx::scatter(group, x, x, {.root = group.rank()}); },
              "2 ranks x 8 elements = 16, not 8");
      refused([&] { parx::all_to_all(group, y); }, "7 elements cannot be cut into 2 blocks");
      refused([&] { parx::all_to_all(group, x, y); }, "8 elements, the output 7");
      refused([&] { parx::scan(group, x, {.op = parx::reduce_op::avg}); },
              "avg is not defined for it");
      refused([&] { parx::exscan(group, i, {.op = parx::reduce_op::avg}); },
              "avg is not defined for it");
      refused([&] { parx::all_reduce(group, i, {.divide_by = &total_of_nothing}); },
              "divide_by needs");
      refused(
          [&] {
            parx::all_reduce(
                group, x,
                parx::user_op([](float a, float) { return a; }, {.use = parx::algorithm::ring}));
          },
          "needs an operation that commutes");
      refused(
          [&] {
            parx::reduce(group, x, parx::user_op([](float a, float) { return a; }, {.root = 4}));
          },
          "root 4");
      // Uneven counts that do not fit.
      refused([&] { parx::all_gather_v(group, x, sixteen, cut); },
              "the sum of all counts, 8 elements, not 16");
      refused([&] { parx::all_gather_v(group, x, x, cut); },
              own == 0 ? "counts[0] is 3" : "counts[1] is 5");
      refused([&] { parx::all_gather_v(group, x, x, long_cut); },
              "counts has 3 entries for 2 ranks");
      std::vector<int> keys(8), received(8);  // integers, as counts are
      refused([&] { parx::all_to_all_v(group, keys, received, std::vector<int>{4, 4},
                                       std::vector<int>{4, 4}); },
              "send_counts has 8 entries and receive_counts 2, but both have one for each of the 2 "
              "ranks. As in MPI, the arguments are: group, input, send_counts, output, "
              "receive_counts");
      refused([&] { parx::all_gather_v(group, x, x, vast); },
              "the sum of counts is more than memory can hold");
      refused([&] { parx::reduce_scatter_v(group, sixteen, x, cut); },
              "the sum of all counts, 8 elements, not 16");
      refused([&] { parx::reduce_scatter_v(group, x, x, cut); },
              "the output holds 8 elements, but counts");
      refused([&] { parx::gather_v(group, y, x, cut, {.root = group.rank()}); },
              "the input holds 7 elements, but counts");
      refused(
          [&] {
            parx::gather_v(group, std::span(x.data(), cut[own]), y, cut, {.root = group.rank()});
          },
          "8 elements, not 7");
      refused(
          [&] {
            parx::scatter_v(group, y, std::span(x.data(), cut[own]), cut, {.root = group.rank()});
          },
          "8 elements, not 7");
      refused([&] { parx::scatter_v(group, x, y, vast); }, "more than memory can hold");
      refused([&] { parx::all_to_all_v(group, x, own_cut, y, own_cut); },
              "sum of all receive_counts, 8 elements, not 7");
      refused([&] { parx::all_to_all_v(group, y, own_cut, x, own_cut); },
              "sum of all send_counts, 8 elements, not 7");
      refused(
          [&] {
            parx::all_to_all_v(group, x, counts{4, 4}, x,
                               counts{own == 0 ? 5u : 3u, own == 0 ? 3u : 5u});
          },
          "sends itself 4 elements, but expects 5");
      refused([&] { parx::all_to_all_v(group, x, cut, x, counts{8}); },
              "send_counts has 2 entries and receive_counts 1");
      // Sizes beyond memory.
      const parx::const_buffer_view huge{x.data(), std::numeric_limits<std::size_t>::max() / 4,
                                         parx::dtype::float64};
      refused([&] { parx::all_gather(group, huge, x); }, "more than memory can hold");
      refused([&] { parx::send(group, huge, 0); }, "more than memory can hold");
      const parx::const_buffer_view large{x.data(), std::numeric_limits<std::size_t>::max() / 2 - 8,
                                          parx::dtype::uint8};
      const parx::buffer_view bytes{y.data(), 28, parx::dtype::uint8};
      refused([&] { parx::all_gather(group, large, bytes); },
              "for each of 2 ranks are more than memory can hold");
      const parx::const_buffer_view wrong{x.data(), 8, static_cast<parx::dtype>(99)};
      refused([&] { parx::all_gather(group, wrong, bytes); }, "99 is not the number of a dtype");
      // Of other ranks' blocks too, which may pass through this one.
      const counts beyond{own == 0 ? 8 : std::size_t{1} << 62, own == 0 ? std::size_t{1} << 62 : 8};
      refused([&] { parx::scatter_v(group, none, x, beyond, {.root = 1 - group.rank()}); },
              "the sum of counts is more than memory can hold");
      refused([&] { parx::gather_v(group, x, none, beyond, {.root = 1 - group.rank()}); },
              "the sum of counts is more than memory can hold");
      // Buffers that overlap by mistake.
      refused([&] { parx::scan(group, std::span(x.data(), 4), std::span(x.data() + 2, 4)); },
              "overlap");
      refused(
          [&] {
            parx::gather(group, std::span(sixteen.data() + 3, 8), sixteen, {.root = group.rank()});
          },
          "overlap");
      refused(
          [&] {
            parx::scatter(group, sixteen, std::span(sixteen.data() + 3, 8), {.root = group.rank()});
          },
          "overlap");
      refused([&] { parx::all_to_all(group, std::span(x.data(), 4), std::span(x.data() + 2, 4)); },
              "overlap");
      refused([&] { parx::all_gather_v(group, std::span(x.data() + 1, cut[own]), x, cut); },
              "overlap");
      // Coalesced buffers.
      refused([&] { parx::all_reduce_coalesced(group, {}); }, "no buffers");
      refused(
          [&] {
            parx::all_reduce_coalesced(group, std::array{parx::view_of(x), parx::view_of(i)});
          },
          "buffer 1 holds int32, but buffer 0 float32");
      refused([&] { parx::broadcast_coalesced(group, std::array{parx::view_of(x)}, {.root = 2}); },
              "root 2");
      refused(
          [&] {
            parx::all_gather_coalesced(group, std::array{parx::const_view_of(x)},
                                       std::array{parx::view_of(y)});
          },
          "buffer 0: the input holds 8 elements, the output 7");
      refused([&] { parx::all_gather_coalesced(group, std::array{parx::const_view_of(x)}, {}); },
              "1 inputs and 0 outputs");
      // Each is told by the name that was called.
      const counts three{1, 1, 1}, none_at_all{0, 0};
      refused([&] { parx::all_gather_v(group, x, y, three); }, "all_gather_v on group");
      refused([&] { parx::gather_v(group, x, y, three); }, "gather_v on group");
      refused([&] { parx::scatter_v(group, x, y, three); }, "scatter_v on group");
      refused([&] { parx::scatter_v(group, none, none, none_at_all, {.root = 2}); },
              "scatter_v on group");
      refused([&] { parx::reduce_scatter_v(group, x, y, three); }, "reduce_scatter_v on group");
      refused([&] { parx::all_to_all_v(group, x, three, y, three); }, "all_to_all_v on group");
      refused([&] { parx::all_gather(group, x, y); }, "all_gather on group");
      refused([&] { parx::all_reduce_coalesced(group, {}); }, "all_reduce_coalesced on group");
      std::vector<int> one{1};
      parx::all_reduce(group, one);
      if (one[0] != 2) throw std::runtime_error("the group is no longer usable");
    });
    BOOST_TEST(failure == "", failure);
  }
}
