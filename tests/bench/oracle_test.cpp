// Whether parx-bench's column #wrong counts what is wrong: every operation's result is worked out
// here, one rank's element at a time from what the ranks put in, and then damaged.
#include <bench/oracle.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using bench::operation;

template <typename T>
struct job {
  std::vector<std::vector<T>> inputs, outputs;  // by rank
  std::vector<bench::call> calls;
};

/// The inputs of every rank, as the benchmark fills them. A piece has `piece` elements.
template <typename T>
job<T> prepared(const bench::oracle& judge, operation op, int world, int root, std::size_t piece) {
  job<T> made;
  const std::size_t whole = piece * static_cast<std::size_t>(world);
  const bench::layout data = bench::row_of(op).data;
  const auto ranks = static_cast<std::size_t>(world);
  made.inputs.assign(ranks, std::vector<T>(data == bench::layout::gathered ? piece : whole));
  made.outputs.assign(ranks, std::vector<T>(data == bench::layout::scattered ? piece : whole));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    made.calls.push_back({.op = op,
                          .input = parx::const_view_of(made.inputs[rank]),
                          .output = parx::view_of(made.outputs[rank]),
                          .root = root});
    judge.prepare(made.calls.back(), static_cast<int>(rank));
  }
  return made;
}

/// Element i of rank's output, of a job that adds; false where nothing is said about it.
template <typename T>
std::pair<bool, T> wanted(const job<T>& all, operation op, std::size_t rank, std::size_t root,
                          std::size_t i) {
  const std::size_t world = all.inputs.size();
  const std::size_t piece = all.outputs[rank].size() / world;  // of a whole vector
  const auto sum = [&](std::size_t ranks, std::size_t at) {
    T total{};
    for (std::size_t r = 0; r < ranks; ++r) total = static_cast<T>(total + all.inputs[r][at]);
    return total;
  };
  switch (op) {
    case operation::all_reduce: return {true, sum(world, i)};
    case operation::reduce: return {rank == root, sum(world, i)};
    case operation::reduce_scatter: return {true, sum(world, rank * all.outputs[rank].size() + i)};
    case operation::scan: return {true, sum(rank + 1, i)};
    case operation::exscan: return {rank > 0, sum(rank, i)};
    case operation::all_gather: return {true, all.inputs[i / piece][i % piece]};
    case operation::gather: return {rank == root, all.inputs[i / piece][i % piece]};
    case operation::broadcast: return {true, all.inputs[root][i]};
    case operation::scatter: return {true, all.inputs[root][rank * all.outputs[rank].size() + i]};
    case operation::all_to_all: return {true, all.inputs[i / piece][rank * piece + i % piece]};
    case operation::send_recv: return {true, all.inputs[(rank + world - 1) % world][i]};
    case operation::barrier: break;
  }
  return {false, T{}};
}

template <typename T>
void finds_what_is_wrong(operation op, int world, std::size_t piece) {
  const bench::oracle judge(parx::dtype_of<T>, parx::reduce_op::sum, world);
  const int root = world - 1;
  job<T> all = prepared<T>(judge, op, world, root, piece);
  for (std::size_t rank = 0; rank < all.calls.size(); ++rank) {
    const std::string title = fmt::format("{} at rank {} of {}", name_of(op), rank, world);
    std::vector<T>& output = all.outputs[rank];
    const auto wrong = [&] { return judge.count_wrong(all.calls[rank], static_cast<int>(rank)); };
    const auto expect = [&](std::size_t i) {
      return wanted(all, op, rank, static_cast<std::size_t>(root), i);
    };
    if (!expect(0).first) {
      BOOST_TEST(wrong() == 0u, title);
      continue;
    }
    BOOST_TEST(wrong() == output.size(), title << ": nothing has been written yet");
    for (std::size_t i = 0; i < output.size(); ++i) output[i] = expect(i).second;
    BOOST_TEST(wrong() == 0u, title);
    const std::size_t at = output.size() * 2 / 3;
    output[at] = static_cast<T>(output[at] + T(1));
    BOOST_TEST(wrong() == 1u, title << ": one element is off by one");
    output[at] = expect(at).second;
    output.front() = static_cast<T>(output.front() - T(1));
    output.back() = static_cast<T>(output.back() - T(1));
    BOOST_TEST(wrong() == 2u, title << ": the ends are off by one");
    // Everything one element too early, as when a chunk lands where another belongs.
    for (std::size_t i = 0; i < output.size(); ++i) {
      output[i] = expect((i + 1) % output.size()).second;
    }
    BOOST_TEST(wrong() > output.size() / 2, title << ": shifted");
    for (std::size_t chunk = 16; 2 * chunk <= output.size(); chunk *= 2) {
      for (std::size_t i = 0; i < output.size(); ++i) output[i] = expect(i).second;
      std::swap_ranges(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(chunk),
                       output.begin() + static_cast<std::ptrdiff_t>(chunk));
      BOOST_TEST(wrong() > chunk, title << ": two chunks of " << chunk << " have changed places");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_wrong_element_of_every_operation_is_counted) {
  for (const bench::operation_row& row : bench::operation_table) {
    if (row.op == operation::barrier) continue;
    for (const int world : {2, 3, 8}) {
      finds_what_is_wrong<float>(row.op, world, 1500);
      finds_what_is_wrong<parx::bfloat16>(row.op, world, 600);
      finds_what_is_wrong<std::int64_t>(row.op, world, 5);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_result_that_is_not_a_number_is_wrong) {
  const bench::oracle judge(parx::dtype::float32, parx::reduce_op::avg, 3);
  job<float> all = prepared<float>(judge, operation::all_reduce, 3, 0, 10);
  for (std::size_t i = 0; i < 30; ++i) {
    all.outputs[1][i] = (all.inputs[0][i] + all.inputs[1][i] + all.inputs[2][i]) / 3;
  }
  BOOST_TEST(judge.count_wrong(all.calls[1], 1) == 0u);
  all.outputs[1][7] = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(judge.count_wrong(all.calls[1], 1) == 1u);
}

BOOST_AUTO_TEST_CASE(products_differ_from_place_to_place) {
  const bench::oracle judge(parx::dtype::int64, parx::reduce_op::product, 3);
  job<std::int64_t> all = prepared<std::int64_t>(judge, operation::all_reduce, 3, 0, 100);
  std::vector<std::int64_t>& output = all.outputs[0];
  for (std::size_t i = 0; i < output.size(); ++i) {
    output[i] = all.inputs[0][i] * all.inputs[1][i] * all.inputs[2][i];
  }
  BOOST_TEST(judge.count_wrong(all.calls[0], 0) == 0u);
  std::swap_ranges(output.begin(), output.begin() + 64, output.begin() + 64);
  BOOST_TEST(judge.count_wrong(all.calls[0], 0) > 64u);
}
