#include <parx/tensor/shard_spec.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include <tensor/shard_oracle.hpp>

#include <parx/core/error.hpp>

using parx::shape;
using parx::shard_run;
using parx::shard_spec;
using shard_oracle::listing;
using shard_oracle::random_cuts;

namespace {

std::vector<std::size_t> indices_of(const shard_spec& spec) {
  std::vector<std::size_t> indices;
  spec.for_each_run([&](const shard_run& run) {
    BOOST_REQUIRE(run.local == indices.size());
    BOOST_REQUIRE(run.length > 0U);
    // As few runs as there can be: this one does not go on where the last one ended.
    BOOST_REQUIRE((indices.empty() || indices.back() + 1 != run.global));
    for (std::size_t i = 0; i < run.length; ++i) indices.push_back(run.global + i);
  });
  return indices;
}

void require_equal(const shard_spec& spec, const listing& expected) {
  BOOST_REQUIRE_MESSAGE(indices_of(spec) == expected.indices, spec.text());
  BOOST_REQUIRE(spec.size() == expected.indices.size());
  BOOST_REQUIRE((spec.shape() == shape(expected.extents)));
  // From anywhere, not only from the beginning of a run.
  for (std::size_t at = 0; at < spec.size(); ++at) {
    const shard_run run = spec.run_at(at);
    BOOST_REQUIRE(run.local == at);
    BOOST_REQUIRE(run.global == expected.indices[at]);
    BOOST_REQUIRE(at + run.length <= spec.size());
    BOOST_REQUIRE(expected.indices[at + run.length - 1] == run.global + run.length - 1);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(runs_equal_the_indices_counted_one_by_one_for_any_composition_of_cuts) {
  random_cuts random;
  for (int round = 0; round < 5000; ++round) {
    const shape s = random.any_shape();
    shard_spec spec = shard_spec::whole(s);
    listing list = listing::whole(s);
    require_equal(spec, list);
    for (std::size_t cuts = random.below(4); cuts > 0; --cuts) random.cut(spec, list);
    require_equal(spec, list);
    BOOST_REQUIRE((spec.global_shape() == s));
  }
}

BOOST_AUTO_TEST_CASE(the_parts_of_every_partition_cover_each_element_exactly_once) {
  const auto require_cover = [](const shape& s, const std::vector<shard_spec>& parts) {
    std::vector<int> times(s.size(), 0);
    for (const shard_spec& part : parts) {
      for (const std::size_t index : indices_of(part)) ++times[index];
    }
    BOOST_REQUIRE((times == std::vector<int>(s.size(), 1)));
  };
  for (const shape& s : {shape{7}, shape{6, 4}, shape{4, 3, 5}, shape{1, 6}, shape{0, 3}}) {
    const shard_spec whole = shard_spec::whole(s);
    for (int axis = 0; axis < static_cast<int>(s.rank()); ++axis) {
      for (int count = 1; count <= 9; ++count) {
        std::vector<shard_spec> chunks, pieces;
        for (int index = 0; index < count; ++index) {
          chunks.push_back(whole.chunk(axis, index, count));
          // ZeRO within tensor parallel: each chunk in three flat pieces of any size.
          const shard_spec& mine = chunks.back();
          const std::size_t third = mine.size() / 3, half = mine.size() / 2;
          pieces.push_back(mine.flat(0, third));
          pieces.push_back(mine.flat(third, half));
          pieces.push_back(mine.flat(half, mine.size()));
        }
        require_cover(s, chunks);
        require_cover(s, pieces);
      }
    }
  }
  // Queries, keys and values in one matrix, of grouped heads and not, over two to four ranks.
  for (const auto& blocks : {std::vector<std::size_t>{8, 8, 8}, {16, 4, 4}, {5, 3, 1}}) {
    const shape s{std::accumulate(blocks.begin(), blocks.end(), std::size_t{0}), 3};
    for (int count = 2; count <= 4; ++count) {
      std::vector<shard_spec> parts;
      for (int index = 0; index < count; ++index) {
        parts.push_back(shard_spec::whole(s).chunk_of_blocks(0, blocks, index, count));
      }
      require_cover(s, parts);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_intersection_of_two_shards_equals_the_indices_in_both) {
  random_cuts random;
  std::size_t some = 0;
  for (int round = 0; round < 5000; ++round) {
    const shape s = random.any_shape();
    shard_spec a = shard_spec::whole(s), b = a;
    listing in_a = listing::whole(s), in_b = in_a;
    for (std::size_t cuts = random.below(3); cuts > 0; --cuts) random.cut(a, in_a);
    for (std::size_t cuts = random.below(3); cuts > 0; --cuts) random.cut(b, in_b);
    std::vector<std::size_t> expected, found;
    std::set_intersection(in_a.indices.begin(), in_a.indices.end(), in_b.indices.begin(),
                          in_b.indices.end(), std::back_inserter(expected));
    parx::for_each_common_run(a, b, [&](std::size_t of_a, std::size_t of_b, std::size_t length) {
      BOOST_REQUIRE(length > 0U);
      for (std::size_t i = 0; i < length; ++i) {
        BOOST_REQUIRE(in_a.indices.at(of_a + i) == in_b.indices.at(of_b + i));
        found.push_back(in_a.indices[of_a + i]);
      }
    });
    BOOST_REQUIRE_MESSAGE(found == expected, a.text() << " with " << b.text());
    some += found.empty() ? 0U : 1U;
  }
  BOOST_TEST(some > 2000U);
}

BOOST_AUTO_TEST_CASE(a_large_part_is_described_and_searched_without_counting_elements) {
  // 2^50 elements, in 2^21 runs: nothing here may take a step for each.
  const shard_spec part =
      shard_spec::whole({std::size_t{1} << 20U, std::size_t{1} << 30U}).chunk(1, 5, 8);
  BOOST_TEST(part.size() == std::size_t{1} << 47U);
  const std::size_t row = 777'777, column = 4242;
  const shard_run run = part.run_at(row * (std::size_t{1} << 27U) + column);
  BOOST_TEST(run.global == row * (std::size_t{1} << 30U) + 5 * (std::size_t{1} << 27U) + column);
  BOOST_TEST(run.length == (std::size_t{1} << 27U) - column);
}

BOOST_AUTO_TEST_CASE(equal_parts_are_equal_however_their_cuts_were_spelled) {
  const shard_spec whole = shard_spec::whole({6, 4});
  BOOST_TEST((whole.slice(0, 0, 6) == whole));
  BOOST_TEST((whole.chunk(0, 1, 2) == whole.slice(-2, 3, 6)));
  BOOST_TEST((whole.slice(0, 1, 6).slice(0, 2, 4) == whole.slice(0, 3, 5)));
  BOOST_TEST((whole.slice(0, 1, 3).slice(1, 0, 2) == whole.slice(1, 0, 2).slice(0, 1, 3)));
  BOOST_TEST((whole.flat(5, 20).flat(2, 4) == whole.flat(7, 9)));
  BOOST_TEST((whole.flat(0, 24).chunk(0, 1, 3) == whole.flat(8, 16)));
  BOOST_TEST((shard_spec::whole({9}).flat(2, 5) == shard_spec::whole({9}).slice(0, 2, 5)));
  BOOST_TEST((whole.slice(0, 2, 2) == whole.slice(0, 5, 5)));
  BOOST_TEST((whole.slice(0, 0, 3) != whole.slice(0, 0, 2)));
  BOOST_TEST((whole.slice(0, 0, 3) != whole.flat(0, 12)));  // one has rows, the other has not
  BOOST_TEST((whole != shard_spec::whole({4, 6})));
}

BOOST_AUTO_TEST_CASE(a_part_says_what_it_is) {
  const auto text = [](const shard_spec& spec) { return spec.text(); };
  const shard_spec matrix = shard_spec::whole({128, 784});
  BOOST_TEST(text(matrix) == "[128, 784]");
  BOOST_TEST(text(matrix.chunk(0, 0, 2)) == "rows 0-63 of [128, 784]");
  BOOST_TEST(text(matrix.slice(1, 5, 6)) == "columns 5 of [128, 784]");
  BOOST_TEST(text(matrix.chunk(0, 1, 2).chunk(1, 0, 4)) ==
             "rows 64-127 and columns 0-195 of [128, 784]");
  BOOST_TEST(text(matrix.flat(100, 200)) == "elements 100-199 of [128, 784]");
  BOOST_TEST(text(matrix.chunk(0, 0, 2).flat(7, 9)) ==
             "elements 7-8 of rows 0-63 of [128, 784]");
  BOOST_TEST(text(matrix.slice(0, 3, 3)) == "rows none of [128, 784]");
  BOOST_TEST(text(shard_spec::whole({12, 4}).chunk_of_blocks(0, {4, 4, 4}, 1, 2)) ==
             "rows 2-3, 6-7, 10-11 of [12, 4]");
  BOOST_TEST(text(shard_spec::whole({2, 3, 4}).slice(2, 1, 3)) == "axis 2: 1-2 of [2, 3, 4]");
  BOOST_TEST(text(shard_spec::whole({5}).slice(0, 1, 3)) == "elements 1-2 of [5]");
  BOOST_TEST(text(shard_spec()) == "[]");
}

BOOST_AUTO_TEST_CASE(cuts_outside_a_part_are_refused) {
  const shard_spec part = shard_spec::whole({6, 4}).slice(0, 2, 4);
  BOOST_CHECK_THROW((void)part.slice(0, 1, 3), parx::usage_error);
  BOOST_CHECK_THROW((void)part.slice(2, 0, 1), parx::usage_error);
  BOOST_CHECK_THROW((void)part.slice(0, 2, 1), parx::usage_error);
  BOOST_CHECK_THROW((void)part.chunk(0, 2, 2), parx::usage_error);
  BOOST_CHECK_THROW((void)part.chunk(0, -1, 2), parx::usage_error);
  BOOST_CHECK_THROW((void)part.chunk_of_blocks(0, {1, 2}, 0, 2), parx::usage_error);
  BOOST_CHECK_THROW((void)part.flat(0, 9), parx::usage_error);
  BOOST_CHECK_THROW((void)part.flat(0, 4).slice(1, 0, 1), parx::usage_error);
  BOOST_CHECK_THROW((void)part.flat(0, 4).slice(0, 0, 5), parx::usage_error);
  BOOST_CHECK_THROW((void)part.flat(0, 4).chunk_of_blocks(0, {2, 2}, 0, 2), parx::usage_error);
  BOOST_CHECK_THROW(parx::for_each_common_run(part, shard_spec::whole({4, 6}),
                                              [](std::size_t, std::size_t, std::size_t) {}),
                    parx::usage_error);
}

BOOST_AUTO_TEST_CASE(activations_know_their_place_from_the_chunk_and_what_is_here) {
  const auto whole = shard_spec::whole({3, 8, 12});
  BOOST_TEST((parx::axis_chunk{}.of({3, 8, 12}) == whole));
  BOOST_TEST((parx::axis_chunk{.index = 1, .count = 4}.of({3, 8, 3}) == whole.chunk(-1, 1, 4)));
  BOOST_TEST((parx::axis_chunk{.axis = 1, .index = 1, .count = 3, .whole = 8}.of({3, 3, 12}) ==
              whole.chunk(1, 1, 3)));
  BOOST_CHECK_THROW((void)(parx::axis_chunk{.index = 2, .count = 3, .whole = 8}.of({3, 3})),
                    parx::usage_error);
}
