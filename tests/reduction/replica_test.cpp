// The sum over virtual replicas is one expression, whatever the number of ranks.
#include <parx/reduction/replica_sum.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/reduction/rows/replica_rows.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parx/comm/collectives/all_gather.hpp>

namespace {

using parx::replica_range;

/// By its definition.
template <typename Leaf>
std::string expression_of(replica_range node, Leaf leaf) {
  if (node.size() == 1) return leaf(node.first);
  int half = 1;
  while (2 * half < node.size()) half *= 2;
  return "(" + expression_of({node.first, node.first + half}, leaf) + "+" +
         expression_of({node.first + half, node.last}, leaf) + ")";
}

/// Adds the last two up as often as `merges` says after each of `terms`.
std::vector<std::string> added_up(const std::vector<std::string>& terms, const auto& merges) {
  std::vector<std::string> sums;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    sums.push_back(terms[i]);
    for (int merge = merges[i]; merge > 0; --merge) {
      const std::string right = sums.back();
      sums.pop_back();
      sums.back() = "(" + sums.back() + "+" + right + ")";
    }
  }
  return sums;
}

/// Gradient `i` of replica `r`: sums of such numbers depend on their order in most places.
float gradient(int r, std::size_t i) {
  const auto mixed = static_cast<std::uint32_t>(r * 7919 + static_cast<int>(i) * 104729) *
                     std::uint32_t{2654435761};
  if (i % 17 == 3 || mixed % 11 == 0) return -0.0F;
  const float large = mixed % 5 == 0 ? 1e6F : 1.0F;
  return large * (static_cast<float>(mixed >> 8U) / 8388608.0F - 1.0F);
}

/// The sum by definition, in float.
float sum_of(replica_range node, std::size_t i) {
  if (node.size() == 1) return gradient(node.first, i) + 0.0F;
  int half = 1;
  while (2 * half < node.size()) half *= 2;
  return sum_of({node.first, node.first + half}, i) + sum_of({node.first + half, node.last}, i);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_number_of_ranks_forms_the_one_expression_of_its_replicas) {
  for (int replicas = 1; replicas <= 64; ++replicas) {
    const auto number = [](int replica) { return std::to_string(replica); };
    const std::string expected = expression_of({0, replicas}, number);
    for (int ranks = 1; ranks <= replicas; ++ranks) {
      std::vector<std::string> sent;
      std::vector<int> merges;
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const parx::replica_plan plan(replicas, rank, ranks);
        const replica_range own = plan.own();
        BOOST_TEST_REQUIRE(own.first == next);
        next = own.last;
        BOOST_TEST_REQUIRE(own.size() >= replicas / ranks);
        BOOST_TEST_REQUIRE(own.size() <= replicas / ranks + 1);
        std::vector<std::string> leaves;
        for (int i = own.first; i < own.last; ++i) leaves.push_back(std::to_string(i));
        const auto sums = added_up(leaves, plan.own_merges());
        BOOST_TEST_REQUIRE(sums.size() == plan.sums_of()[static_cast<std::size_t>(rank)]);
        sent.insert(sent.end(), sums.begin(), sums.end());
        merges.assign(plan.merges().begin(), plan.merges().end());
      }
      BOOST_TEST_REQUIRE(next == replicas);
      const auto whole = added_up(sent, merges);
      BOOST_TEST_REQUIRE(whole.size() == 1U);
      BOOST_TEST_REQUIRE(whole[0] == expected, replicas << " replicas on " << ranks << " ranks");
    }
  }
}

BOOST_AUTO_TEST_CASE(what_two_stages_have_is_summed_along_two_trees_and_then_added_up) {
  for (int replicas = 1; replicas <= 24; ++replicas) {
    const auto of_first = [](int replica) { return std::to_string(replica) + "a"; };
    const auto of_last = [](int replica) { return std::to_string(replica) + "b"; };
    const replica_range all{0, replicas};
    const std::string expected =
        "(" + expression_of(all, of_last) + "+" + expression_of(all, of_first) + ")";
    for (int ranks = 1; ranks <= replicas; ++ranks) {
      const parx::replica_plan plan(replicas, ranks - 1, ranks, 2);
      BOOST_TEST_REQUIRE(plan.sums_of().size() == 2 * static_cast<std::size_t>(ranks));
      std::vector<std::string> sent;
      for (const auto& each : plan.order()) {
        const auto nodes =
            parx::nodes_within(parx::replicas_of(each.rank % ranks, ranks, replicas), replicas);
        BOOST_TEST_REQUIRE(nodes.size() == plan.sums_of()[static_cast<std::size_t>(each.rank)]);
        sent.push_back(each.rank < ranks ? expression_of(nodes[each.number], of_first)
                                         : expression_of(nodes[each.number], of_last));
      }
      const auto whole = added_up(sent, plan.merges());
      BOOST_TEST_REQUIRE(whole.size() == 1U);
      BOOST_TEST_REQUIRE(whole[0] == expected, replicas << " replicas on " << ranks << " ranks");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_keeps_at_most_log2_of_its_replicas_sums) {
  for (int replicas = 1; replicas <= 64; ++replicas) {
    const parx::replica_plan plan(replicas, 0, 1);
    int levels = 0;
    while ((1 << levels) < replicas) ++levels;
    BOOST_TEST(plan.most_kept() <= levels);
    if (replicas == 1 << levels) BOOST_TEST(plan.most_kept() == levels);
  }
}

BOOST_AUTO_TEST_CASE(the_sum_over_the_ranks_has_the_bits_of_the_tree) {
  constexpr std::size_t count = 5003;
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm}) {
    for (const int replicas : {5, 8}) {
      std::vector<float> expected(count);
      for (std::size_t i = 0; i < count; ++i) expected[i] = sum_of({0, replicas}, i) * 0.125F;
      for (const int ranks : {1, 2, 3, 4}) {
        std::vector<std::vector<float>> found(static_cast<std::size_t>(ranks));
        const auto failures = jobs::run_collecting(kind, ranks, [&](parx::process_group& group) {
          const parx::replica_plan plan(replicas, group.rank(), ranks);
          std::vector<std::size_t> counts;
          std::size_t begin = 0;
          for (int i = 0; i < ranks; ++i) {
            const auto at = [&](int rank) {
              return count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
            };
            counts.push_back(at(i + 1) - at(i));
            if (i < group.rank()) begin += counts.back();
          }
          parx::replica_sum sum(plan, group, parx::dtype::float32, counts,
                                parx::call_site::current());
          std::vector<float> gradients(count);
          for (int step = 0; step < 2; ++step) {  // the second one in the memory of the first
            for (int replica = plan.own().first; replica < plan.own().last; ++replica) {
              for (std::size_t i = 0; i < count; ++i) gradients[i] = gradient(replica, i);
              if (replica + 1 < plan.own().last) sum.add(gradients.data());
            }
            sum.start(gradients.data());
            sum.finish(gradients.data() + begin, 0.125);
          }
          const auto own = counts[static_cast<std::size_t>(group.rank())];
          auto& all = found[static_cast<std::size_t>(group.rank())];
          all.resize(count);
          parx::all_gather_v(group, std::span(gradients).subspan(begin, own), all, counts);
        });
        parx_test::expect_failures(failures, "");
        for (const auto& each : found) {
          BOOST_TEST(std::memcmp(each.data(), expected.data(), count * sizeof(float)) == 0,
                     replicas << " replicas on " << ranks << " ranks, " << jobs::name_of(kind));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_sends_its_part_of_a_reduce_scatter_for_each_node_that_it_has_whole) {
  constexpr std::size_t each = 1200;
  // Of eight replicas: on 3 ranks two of them send two sums, on 5 one does.
  const std::map<int, std::vector<std::size_t>> sums_of{
      {2, {1, 1}}, {3, {1, 2, 2}}, {4, {1, 1, 1, 1}}, {5, {1, 2, 1, 1, 1}}};
  for (const auto& [ranks, expected] : sums_of) {
    const auto failures = jobs::run_collecting(
        jobs::kind::tcp, ranks, [&, n = ranks, &sums = expected](parx::process_group& group) {
          const auto count = static_cast<std::size_t>(n);
          const parx::replica_plan plan(8, group.rank(), n);
          parx::replica_sum sum(plan, group, parx::dtype::float32, std::vector(count, each),
                                parx::call_site::current());
          std::vector<float> gradients(count * each, 1.0F), block(each);
          const std::size_t before = group.bytes_sent();
          for (int i = 1; i < plan.own().size(); ++i) sum.add(gradients.data());
          sum.start(gradients.data());
          sum.finish(block.data(), 1);
          const std::size_t sent = group.bytes_sent() - before;
          const std::size_t one = (count - 1) * each * sizeof(float);
          const std::size_t least = sums[static_cast<std::size_t>(group.rank())] * one;
          parx::require(sent >= least && sent < least + 1024, "{} bytes instead of {}", sent,
                        least);
          parx::require(block.front() == 8, "{} instead of 8", block.front());
        });
    parx_test::expect_failures(failures, "");
  }
}

BOOST_AUTO_TEST_CASE(rows_that_replicas_touched_have_the_bits_of_the_tree_over_whole_tables) {
  constexpr std::size_t rows = 307, width = 5;
  const auto touches = [](int replica, std::size_t row) {
    return replica != 2 && (row * 7 + static_cast<std::size_t>(replica) * 13) % 5 < 2;
  };
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp}) {
    for (const int ranks : {1, 2, 3, 4}) {
      constexpr int replicas = 8;
      std::vector<std::vector<float>> found(static_cast<std::size_t>(ranks));
      const auto failures = jobs::run_collecting(kind, ranks, [&](parx::process_group& group) {
        const parx::replica_plan plan(replicas, group.rank(), ranks);
        std::vector<std::size_t> bounds;
        for (int i = 0; i <= ranks; ++i) {
          bounds.push_back(rows * static_cast<std::size_t>(i) / static_cast<std::size_t>(ranks));
        }
        parx::replica_rows sum(plan, group, "words", width, parx::dtype::float32, bounds,
                               parx::call_site::current());
        std::vector<float> table(rows * width);
        for (int step = 0; step < 2; ++step) {
          for (int replica = plan.own().first; replica < plan.own().last; ++replica) {
            std::vector<std::size_t> touched;
            for (std::size_t row = 0; row < rows; ++row) {
              if (!touches(replica, row)) continue;
              touched.push_back(row);
              for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
                table[i] = gradient(replica, i);
              }
            }
            sum.add(reinterpret_cast<const std::byte*>(table.data()), touched);
          }
          sum.announce();
          sum.start();
          const parx::row_values& own = sum.finish(0.125);
          auto& mine = found[static_cast<std::size_t>(group.rank())];
          mine.assign(rows * width, 0.0F);
          for (std::size_t i = 0; i < own.numbers.size(); ++i) {
            std::memcpy(mine.data() + own.numbers[i] * width,
                        own.values.data() + i * width * sizeof(float), width * sizeof(float));
          }
        }
      });
      parx_test::expect_failures(failures, "");
      for (std::size_t i = 0; i < rows * width; ++i) {
        const auto leaf = [&](int replica) {
          return touches(replica, i / width) ? gradient(replica, i) + 0.0F : 0.0F;
        };
        const float pairs[] = {leaf(0) + leaf(1), leaf(2) + leaf(3), leaf(4) + leaf(5),
                               leaf(6) + leaf(7)};
        const float expected = ((pairs[0] + pairs[1]) + (pairs[2] + pairs[3])) * 0.125F;
        std::size_t owner = 0;
        while (i / width >= rows * (owner + 1) / static_cast<std::size_t>(ranks)) ++owner;
        BOOST_TEST_REQUIRE(std::memcmp(&found[owner][i], &expected, sizeof expected) == 0,
                           "element " << i << " on " << ranks << " ranks");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(only_touched_rows_are_sent) {
  constexpr std::size_t rows = 4096, width = 16, each = 10;
  const auto failures = jobs::run_collecting(jobs::kind::tcp, 2, [&](parx::process_group& group) {
    const parx::replica_plan plan(2, group.rank(), 2);
    parx::replica_rows sum(plan, group, "words", width, parx::dtype::float32, {0, rows / 2, rows},
                           parx::call_site::current());
    const std::vector<float> table(rows * width, 1.0F);
    std::vector<std::size_t> touched;
    for (std::size_t i = 0; i < each; ++i) touched.push_back(i * rows / each);
    const std::size_t before = group.bytes_sent();
    sum.add(reinterpret_cast<const std::byte*>(table.data()), touched);
    sum.announce();
    sum.start();
    (void)sum.finish(1);
    // Half of them to the other rank, with their numbers; the rest are headers.
    const std::size_t sent = group.bytes_sent() - before;
    const std::size_t least = each / 2 * (width * sizeof(float) + 4);
    parx::require(sent >= least && sent < least + 512, "{} bytes instead of {}", sent, least);
  });
  parx_test::expect_failures(failures, "");
}

BOOST_AUTO_TEST_CASE(a_replica_too_many_or_too_few_is_a_usage_error) {
  jobs::run_collecting(jobs::kind::inproc, 1, [](parx::process_group& group) {
    const parx::replica_plan plan(2, 0, 1);
    parx::replica_sum sum(plan, group, parx::dtype::float32, {3}, parx::call_site::current());
    std::vector<float> gradients(3, 1.0F);
    BOOST_CHECK_THROW(sum.start(gradients.data()), parx::usage_error);
    sum.drop();
    sum.add(gradients.data());
    sum.add(gradients.data());
    BOOST_CHECK_THROW(sum.start(gradients.data()), parx::usage_error);
  });
}
