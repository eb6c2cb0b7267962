#include <parx/data/sampler.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <boost/test/unit_test.hpp>

using namespace parx;
using namespace parx::data;

namespace {

/// PyTorch's DistributedSampler, written out from its documentation, over a given global order.
std::vector<std::size_t> torch_indices(std::vector<std::size_t> order, std::size_t rank,
                                       std::size_t world, bool drop_last) {
  if (order.empty()) return {};
  const std::size_t each = drop_last ? order.size() / world : (order.size() + world - 1) / world;
  const std::vector<std::size_t> head = order;
  for (std::size_t i = 0; order.size() < each * world; ++i) order.push_back(head[i % head.size()]);
  order.resize(each * world);
  std::vector<std::size_t> mine;
  for (std::size_t i = rank; i < order.size(); i += world) mine.push_back(order[i]);
  return mine;
}

template <typename Check>
void for_all_sizes_worlds_and_modes(Check check) {
  for (std::size_t size = 0; size <= 50; ++size) {
    for (int world = 1; world <= 8; ++world) {
      for (const auto order : {sample_order::shuffled, sample_order::sequential}) {
        for (const auto mode : {remainder::exact, remainder::repeat, remainder::drop}) {
          check(size, world, sampler_options{.order = order, .seed = 7, .remainder = mode});
        }
      }
    }
  }
}

/// The entries of all ranks in global order: entry k of rank r is number k * world + r.
std::vector<sample_entry> global_entries(std::size_t size, int world, sampler_options options,
                                         std::uint64_t epoch, std::size_t consumed = 0) {
  std::vector<std::vector<sample_entry>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back(distributed_sampler(size, rank, world, options).entries(epoch, consumed));
  }
  std::vector<sample_entry> all;
  for (std::size_t k = 0; k < ranks[0].size(); ++k) {
    for (const auto& rank : ranks) all.push_back(rank.at(k));
  }
  return all;
}

struct group {
  [[nodiscard]] int rank() const { return 2; }
  [[nodiscard]] int size() const { return 3; }
};

}  // namespace

BOOST_AUTO_TEST_CASE(exact_mode_counts_every_sample_exactly_once) {
  for_all_sizes_worlds_and_modes([](std::size_t size, int world, sampler_options options) {
    if (options.remainder != remainder::exact) return;
    std::vector<float> counted(size, 0.0F);
    for (const auto& entry : global_entries(size, world, options, 3))
      counted.at(entry.index) += entry.weight;
    BOOST_TEST((counted == std::vector<float>(size, 1.0F)), "size " << size << " world " << world);
  });
}

BOOST_AUTO_TEST_CASE(repeat_and_drop_give_pytorchs_indices) {
  for_all_sizes_worlds_and_modes([](std::size_t size, int world, sampler_options options) {
    if (options.remainder == remainder::exact) return;
    const auto order = distributed_sampler(size, 0, 1, options).indices(5);
    for (int rank = 0; rank < world; ++rank) {
      const distributed_sampler sampler(size, rank, world, options);
      BOOST_TEST((sampler.indices(5) == torch_indices(order, sampler.rank(), sampler.world(),
                                                      options.remainder == remainder::drop)),
                 "size " << size << " rank " << rank << " world " << world);
      for (const auto& entry : sampler.entries(5)) BOOST_TEST(entry.weight == 1.0F);
    }
  });
}

BOOST_AUTO_TEST_CASE(
    all_ranks_have_equally_many_entries_and_the_same_global_order_at_any_world_size) {
  for_all_sizes_worlds_and_modes([](std::size_t size, int world, sampler_options options) {
    const auto alone = global_entries(size, 1, options, 2);
    const auto together = global_entries(size, world, options, 2);
    for (std::size_t i = 0; i < std::min(alone.size(), together.size()); ++i)
      BOOST_TEST((alone[i] == together[i]));
    for (int rank = 0; rank < world; ++rank) {
      const distributed_sampler sampler(size, rank, world, options);
      BOOST_TEST(sampler.entries(2).size() == sampler.per_rank());
    }
    BOOST_TEST(together.size() % static_cast<std::size_t>(world) == 0U);
  });
}

BOOST_AUTO_TEST_CASE(an_order_is_a_permutation_that_differs_by_epoch_and_seed) {
  for (std::size_t size = 0; size <= 50; ++size) {
    const auto order = distributed_sampler(size, 0, 1).indices(size);
    BOOST_TEST(std::set<std::size_t>(order.begin(), order.end()).size() == size);
    if (size > 0) BOOST_TEST(*std::max_element(order.begin(), order.end()) == size - 1);
  }
  const distributed_sampler sampler(50, 0, 1, {.seed = 1});
  BOOST_TEST((sampler.indices(0) == sampler.indices(0)));
  BOOST_TEST((sampler.indices(0) != sampler.indices(1)));
  BOOST_TEST((sampler.indices(0) != distributed_sampler(50, 0, 1, {.seed = 2}).indices(0)));
  const auto sequential =
      distributed_sampler(3, 0, 1, {.order = sample_order::sequential}).indices(9);
  BOOST_TEST((sequential == std::vector<std::size_t>{0, 1, 2}));
}

BOOST_AUTO_TEST_CASE(batches_of_like_length_come_in_another_order_in_each_epoch) {
  auto lengths = std::make_shared<std::vector<std::uint32_t>>();
  for (std::uint32_t i = 0; i < 64; ++i) lengths->push_back(i * 37 % 64);
  const distributed_sampler sampler(
      64, 0, 1, {.seed = 1, .group_by_length = {.lengths = lengths, .batch = 4, .pool = 16}});
  std::set<std::vector<std::uint32_t>> orders;  // of the batches, by their shortest
  for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
    const auto order = sampler.indices(epoch);
    std::vector<std::uint32_t> shortest;
    for (std::size_t begin = 0; begin < 64; begin += 4) {
      std::vector<std::uint32_t> batch;
      for (std::size_t i = begin; i < begin + 4; ++i) batch.push_back((*lengths)[order[i]]);
      const auto [low, high] = std::minmax_element(batch.begin(), batch.end());
      BOOST_TEST(*high - *low == 3U);  // all samples are one pool: a batch has four neighbours
      shortest.push_back(*low);
    }
    BOOST_TEST(!std::is_sorted(shortest.begin(), shortest.end()));
    orders.insert(shortest);
  }
  BOOST_TEST(orders.size() == 8U);
}

BOOST_AUTO_TEST_CASE(all_orders_are_equally_likely) {
  const distributed_sampler sampler(4, 0, 1);
  std::map<std::vector<std::size_t>, int> seen;
  for (std::uint64_t epoch = 0; epoch < 24'000; ++epoch) ++seen[sampler.indices(epoch)];
  BOOST_TEST(seen.size() == 24U);
  // Each count is binomial with mean 1000 and standard deviation 31.
  for (const auto& [order, count] : seen) BOOST_TEST(std::abs(count - 1000) < 150);
}

BOOST_AUTO_TEST_CASE(a_run_resumed_at_another_world_size_goes_on_with_the_same_global_order) {
  for (const std::size_t size : {1U, 10U, 37U}) {
    for (int before = 1; before <= 4; ++before) {
      for (int after = 1; after <= 4; ++after) {
        const sampler_options options{.seed = 3};
        const auto whole = global_entries(size, before, options, 1);
        for (std::size_t steps = 0; steps * static_cast<std::size_t>(before) <= whole.size();
             ++steps) {
          const std::size_t consumed = steps * static_cast<std::size_t>(before);
          std::vector<float> counted(size, 0.0F);
          for (std::size_t i = 0; i < consumed; ++i) counted.at(whole[i].index) += whole[i].weight;
          const auto rest = global_entries(size, after, options, 1, consumed);
          for (const auto& entry : rest) counted.at(entry.index) += entry.weight;
          BOOST_TEST((counted == std::vector<float>(size, 1.0F)));
          for (std::size_t i = 0; consumed + i < whole.size() && i < rest.size(); ++i)
            BOOST_TEST((rest[i] == whole[consumed + i]));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_state_is_one_integer) {
  const distributed_sampler sampler(10, 1, 4);
  BOOST_TEST(sampler.state({.epoch = 2, .consumed = 4}) == 24U);
  BOOST_TEST((sampler.position(24) == sample_position{2, 4}));
  // 3 steps of 4 ranks pad the epoch's 10 samples to 12; the next epoch begins all the same.
  BOOST_TEST(
      (sampler.position(sampler.state({.epoch = 2, .consumed = 12})) == sample_position{3, 0}));
}

BOOST_AUTO_TEST_CASE(a_group_gives_rank_and_world_and_wrong_ranks_are_refused) {
  const distributed_sampler sampler{10, group{}};
  BOOST_TEST(sampler.rank() == 2U);
  BOOST_TEST(sampler.world() == 3U);
  BOOST_CHECK_THROW(distributed_sampler(10, 3, 3), usage_error);
  BOOST_CHECK_THROW(distributed_sampler(10, -1, 3), usage_error);
  BOOST_CHECK_THROW(distributed_sampler(10, 0, 0), usage_error);
}
