#include <comm/jobs.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <stdexcept>

using parx::operation;

namespace {

// What rank `rank` puts in at index i.
std::int64_t value(int rank, std::size_t i) {
  return rank * std::int64_t{1'000'003} + static_cast<std::int64_t>(i) * 7;
}
std::int64_t sum(int first, int last, std::size_t i) {
  std::int64_t total = 0;
  for (int r = first; r < last; ++r) total += value(r, i);
  return total;
}

// One call of `entry` with n elements in all, through the engine; throws where an element is wrong.
void run(parx::process_group& group, const parx::catalog_entry& entry, std::size_t n, int root) {
  const int rank = group.rank();
  const int world = group.size();
  const auto cut = parx::partition::even(n, world);
  const bool one_in = entry.what == operation::all_gather || entry.what == operation::gather;
  const bool one_out = entry.what == operation::reduce_scatter || entry.what == operation::scatter;
  const bool root_only = entry.what == operation::reduce || entry.what == operation::gather;
  std::vector<std::int64_t> in, out(one_out ? cut.count(rank) : n, -1);
  for (std::size_t i = 0; i < (one_in ? cut.count(rank) : n); ++i) in.push_back(value(rank, i));

  parx::detail::collective_arguments given;
  given.what = entry.what;
  given.input = in.data();
  given.output = root_only && rank != root ? nullptr : out.data();
  given.input_count = in.size();
  given.output_count = out.size();
  given.type = parx::dtype::int64;
  given.root = root;
  given.reduces = reduces(entry.what);
  given.use = entry.name;
  parx::detail::run(group, given);

  if ((root_only && rank != root) || entry.what == operation::barrier) return;
  const std::size_t begin = one_out ? cut.offset(rank) : 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int64_t wanted = -1;
    switch (entry.what) {
      case operation::all_reduce:
      case operation::reduce:
      case operation::reduce_scatter: wanted = sum(0, world, begin + i); break;
      case operation::scan: wanted = sum(0, rank + 1, i); break;
      case operation::exscan: wanted = rank == 0 ? -1 : sum(0, rank, i); break;
      case operation::broadcast:
      case operation::scatter: wanted = value(root, begin + i); break;
      default: {
        int from = 0;
        while (cut.offset(from + 1) <= i) ++from;
        const std::size_t k = i - cut.offset(from);
        wanted = value(from, entry.what == operation::all_to_all ? cut.offset(rank) + k : k);
      }
    }
    if (out[i] != wanted) {
      throw std::runtime_error(fmt::format("{} by {}: element {} of {} is {}, not {}", name_of(entry.what),
                                           name_of(entry.name), i, n, out[i], wanted));
    }
  }
}

std::size_t run_catalog(jobs::kind kind, int world) {
  std::size_t tried = 0;
  for (const auto& entry : parx::catalog()) {
    const auto w = static_cast<std::size_t>(world);
    if (!can_do(entry, {.what = entry.what, .world = world, .count = 3 * w})) continue;
    ++tried;
    const auto failure = jobs::run(kind, world, [&](parx::process_group& group) {
      // Fewer elements than ranks, an even cut, and blocks of several segments.
      for (const std::size_t n : {std::size_t{1}, 3 * w, 40'000 * w}) {
        if (!can_do(entry, {.what = entry.what, .world = world, .count = n})) continue;
        if (entry.what == operation::all_to_all && n % w != 0) continue;
        run(group, entry, n, world - 1);
      }
    });
    BOOST_TEST(failure == "", jobs::name_of(kind) << ", world " << world << ": " << failure);
  }
  return tried;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_engine_runs_every_algorithm_of_the_catalog_between_threads) {
  for (const int world : {1, 2, 3, 4, 6, 8}) BOOST_TEST(run_catalog(jobs::kind::inproc, world) >= 28u);
}

BOOST_AUTO_TEST_CASE(the_engine_runs_every_algorithm_of_the_catalog_over_tcp) {
  for (const int world : {2, 5}) BOOST_TEST(run_catalog(jobs::kind::tcp, world) >= 28u);
}
