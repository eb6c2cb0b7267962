#include <parx/data.hpp>

#include <map>
#include <stdexcept>
#include <string>

#include <boost/test/unit_test.hpp>
#include <fmt/format.h>

#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using parx_test::mentions;
using parx_test::message_of;

namespace {

/// Sample i is x = (i, 2 i), y = i.
data::tensor_dataset<> numbered(std::size_t count) {
  auto x = tensor<float>::empty({count, 2});
  for (std::size_t i = 0; i < count; ++i) {
    x.at(i, 0) = static_cast<float>(i);
    x.at(i, 1) = static_cast<float>(2 * i);
  }
  return {x, tensor<std::int64_t>::iota({count})};
}

/// Fails at one sample.
struct damaged_dataset {
  data::tensor_dataset<> good = numbered(100);
  std::size_t bad = 41;
  [[nodiscard]] std::size_t size() const { return good.size(); }
  [[nodiscard]] data::batch fetch(std::span<const std::size_t> indices) const {
    for (const std::size_t index : indices) {
      if (index == bad) throw std::runtime_error("sample 41 cannot be read");
    }
    return good.fetch(indices);
  }
};

struct graph_batch {  // the nodes of several graphs, of which each has a label
  tensor<float> nodes;
  tensor<std::int64_t> labels;
  tensor<float> weights;
};
struct named_batch : data::batch {
  std::string name;
};
/// As many labels, and as many rows of x, as `rows` makes of the number of samples.
template <typename Batch>
struct ragged_dataset {
  std::size_t (*rows)(std::size_t) = nullptr;
  [[nodiscard]] std::size_t size() const { return 20; }
  [[nodiscard]] Batch fetch(std::span<const std::size_t> indices) const {
    const auto x = tensor<float>::ones({3 * indices.size(), 2});
    const auto y = tensor<std::int64_t>::zeros({rows(indices.size())});
    if constexpr (std::is_same_v<Batch, graph_batch>) return {x, y, {}};
    else return {{x, y, {}}, "several"};
  }
};

using labels = std::vector<std::int64_t>;

labels taken_labels(const data::batch& batch) { return {batch.y.begin(), batch.y.end()}; }

}  // namespace

BOOST_AUTO_TEST_CASE(batches_hold_the_samplers_entries_in_order_with_any_number_of_workers) {
  const auto source = numbered(103);
  const data::distributed_sampler sampler(103, 1, 4, {.seed = 9});
  const auto expected = sampler.entries(3);
  for (const std::size_t workers : {0U, 1U, 3U}) {
    const data::loader loader{source, {.batch_size = 8, .sampler = sampler, .workers = workers}};
    BOOST_TEST(loader.batches() == 4U);  // 26 entries: 8 + 8 + 8 + 2
    std::size_t next = 0;
    std::vector<std::size_t> sizes;
    for (auto& batch : loader.epoch(3)) {
      sizes.push_back(batch.size());
      BOOST_TEST((batch.x.shape() == shape{batch.size(), 2}));
      for (std::size_t i = 0; i < batch.size(); ++i, ++next) {
        BOOST_TEST(batch.y.at(i) == static_cast<std::int64_t>(expected.at(next).index));
        BOOST_TEST(batch.x.at(i, 1) == static_cast<float>(2 * expected.at(next).index));
        BOOST_TEST(batch.weights.at(i) == expected.at(next).weight);
      }
    }
    BOOST_TEST(sizes == (std::vector<std::size_t>{8, 8, 8, 2}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_together_count_every_sample_once_in_equally_many_batches) {
  const auto source = numbered(50);
  for (int world = 1; world <= 5; ++world) {
    float total = 0;
    std::vector<std::size_t> batches;
    for (int rank = 0; rank < world; ++rank) {
      const data::loader loader{
          source, {.batch_size = 7, .sampler = data::distributed_sampler(50, rank, world)}};
      batches.push_back(0);
      for (auto& batch : loader.epoch(0)) {
        ++batches.back();
        total += batch.count();
      }
      BOOST_TEST(batches.back() == loader.batches());
      BOOST_TEST(batches.back() == batches.front());
    }
    BOOST_TEST(total == 50.0F);
  }
}

BOOST_AUTO_TEST_CASE(a_smaller_last_batch_can_be_dropped) {
  const auto source = numbered(20);
  const data::loader loader{source, {.batch_size = 8, .last_batch = data::last_batch::drop}};
  std::size_t count = 0;
  for (auto& batch : loader.epoch(0)) {
    BOOST_TEST(batch.size() == 8U);
    ++count;
  }
  BOOST_TEST(count == 2U);
  BOOST_TEST(loader.batches() == 2U);
}

BOOST_AUTO_TEST_CASE(a_batch_without_a_tensor_of_one_row_for_each_sample_is_refused) {
  const auto taken = [](auto source) {
    return message_of([&] {
      for (const auto& batch : data::loader{source, {.batch_size = 8}}.epoch(0)) (void)batch;
    });
  };
  const auto all = [](std::size_t samples) { return samples; };
  const auto one_less = [](std::size_t samples) { return samples - 1; };
  BOOST_TEST(taken(ragged_dataset<graph_batch>{all}) == "nothing was thrown");
  // It cannot be looked into.
  BOOST_TEST(taken(ragged_dataset<named_batch>{one_less}) == "nothing was thrown");
  const std::string said = taken(ragged_dataset<graph_batch>{one_less});
  BOOST_TEST(mentions(said, "asked for 8 samples", "24, 7 rows"), said);
}

BOOST_AUTO_TEST_CASE(dropping_all_that_there_is_is_refused) {
  const auto source = numbered(7);
  const std::string said = message_of([&] {
    const data::loader loader{source, {.batch_size = 8, .last_batch = data::last_batch::drop}};
  });
  BOOST_TEST(mentions(said, "leaves no batch", "7 samples, and a batch 8"), said);
}

BOOST_AUTO_TEST_CASE(a_loader_that_gives_every_rank_all_samples_to_train_on_says_so) {
  std::vector<std::string> lines;
  logger::instance().set_sink([&](log_level, std::string_view line) { lines.emplace_back(line); });
  const auto set = numbered(10);
  logger::instance().set_rank(0, 4);
  const data::loader alone{set};
  BOOST_TEST_REQUIRE(lines.size() == 1U);
  BOOST_TEST(mentions(lines[0], "each of the 4 ranks will train on all 10 samples", "loader_test"));
  struct {
    [[nodiscard]] int rank() const { return 0; }
    [[nodiscard]] int size() const { return 4; }
  } of_four;
  const data::loader evaluated{set, {.samples = {.order = data::sample_order::sequential}}};
  const data::loader dealt{set, of_four};
  const data::loader sampled{set, {.sampler = data::distributed_sampler{10, 0, 4}}};
  logger::instance().set_rank(-1, 0);
  const data::loader one{set};
  logger::instance().set_sink({});
  BOOST_TEST(lines.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_data_set_without_samples_is_refused) {
  const auto source = numbered(0);
  BOOST_CHECK_EXCEPTION(data::loader(source, {.batch_size = 8}), usage_error, [](const auto& e) {
    return std::string(e.what()).find("the data set has no samples") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(ranks_beyond_the_number_of_samples_take_part_with_weight_0) {
  const auto source = numbered(2);
  float counted = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const data::loader loader{source, {.sampler = data::distributed_sampler(2, rank, 4)}};
    for (auto& batch : loader.epoch(0)) {
      BOOST_TEST(batch.size() == 1U);
      counted += batch.count();
    }
  }
  BOOST_TEST(counted == 2);
}

BOOST_AUTO_TEST_CASE(an_interrupted_epoch_goes_on_where_it_stopped_even_with_another_world) {
  const auto source = numbered(61);
  std::map<std::int64_t, float> counted;
  std::uint64_t state = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const data::loader loader{source,
                              {.batch_size = 4, .sampler = data::distributed_sampler(61, rank, 3)}};
    auto epoch = loader.epoch(2);
    for (auto& batch : epoch) {
      for (std::size_t i = 0; i < batch.size(); ++i) counted[batch.y.at(i)] += batch.weights.at(i);
      state = loader.sampler().state(epoch.position());
      if (state >= 2 * 61 + 24) break;
    }
  }
  BOOST_TEST(state == 2U * 61 + 24);
  for (int rank = 0; rank < 2; ++rank) {
    const data::loader loader{source,
                              {.batch_size = 5, .sampler = data::distributed_sampler(61, rank, 2)}};
    for (auto& batch : loader.epoch(loader.sampler().position(state))) {
      for (std::size_t i = 0; i < batch.size(); ++i) counted[batch.y.at(i)] += batch.weights.at(i);
    }
  }
  BOOST_TEST(counted.size() == 61U);
  for (const auto& [label, count] : counted) BOOST_TEST(count == 1.0F);
}

BOOST_AUTO_TEST_CASE(an_exception_in_the_data_set_reaches_the_loop_at_its_batch) {
  const damaged_dataset source;
  for (const std::size_t workers : {0U, 2U}) {
    const data::loader loader{
        source,
        {.batch_size = 10,
         .sampler = data::distributed_sampler(100, 0, 1, {.order = data::sample_order::sequential}),
         .workers = workers}};
    labels seen;
    const auto run = [&] {
      for (auto& batch : loader.epoch(0)) seen.push_back(batch.y.at(0));
    };
    BOOST_CHECK_EXCEPTION(run(), std::runtime_error, [](const std::runtime_error& failure) {
      return std::string_view(failure.what()) == "sample 41 cannot be read";
    });
    BOOST_TEST(seen == (labels{0, 10, 20, 30}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_batch_that_is_kept_is_not_overwritten_by_later_ones) {
  const auto source = numbered(40);
  const data::loader loader{source, {.batch_size = 4}};
  std::vector<data::batch> kept;
  std::vector<labels> copies;
  for (auto& batch : loader.epoch(0)) {
    kept.push_back(batch);
    copies.push_back(taken_labels(batch));
  }
  for (std::size_t i = 0; i < kept.size(); ++i) BOOST_TEST((taken_labels(kept[i]) == copies[i]));
}

BOOST_AUTO_TEST_CASE(wrong_options_are_refused_with_the_reason) {
  const auto source = numbered(10);
  using data::loader;
  BOOST_CHECK_THROW((loader{source, {.batch_size = 0}}), usage_error);
  BOOST_CHECK_THROW((loader{source, {.prefetch = 0}}), usage_error);
  BOOST_CHECK_EXCEPTION(
      (loader{source, {.sampler = data::distributed_sampler(11, 0, 1)}}), usage_error,
      [](const usage_error& failure) {
        return std::string_view(failure.what()).find("11 samples, but the data set has 10") !=
               std::string_view::npos;
      });
  static_assert(!std::is_constructible_v<loader<data::tensor_dataset<>>, data::tensor_dataset<>,
                                         data::loader_options>,
                "a loader must not refer to a temporary data set");
}

BOOST_AUTO_TEST_CASE(virtual_replicas_take_what_as_many_ranks_would_take_on_any_number_of_ranks) {
  constexpr int replicas = 5;
  const auto source = numbered(52);
  const auto batches_of = [&](int rank, int world, int virtual_ones) {
    const data::distributed_sampler sampler(52, rank, world,
                                            {.seed = 9, .replicas = virtual_ones});
    const data::loader loader{source, {.batch_size = 3, .sampler = sampler}};
    std::vector<labels> taken;
    auto epoch = loader.epoch(1);
    for (auto& batch : epoch) taken.push_back(taken_labels(batch));
    BOOST_TEST(epoch.position().consumed == 60U);
    return taken;
  };
  for (int world = 1; world <= replicas; ++world) {
    std::vector<labels> found, expected;
    for (int rank = 0; rank < world; ++rank) {
      const auto taken = batches_of(rank, world, replicas);
      if (found.empty()) found.resize(taken.size());
      BOOST_TEST_REQUIRE(taken.size() == found.size());
      for (std::size_t i = 0; i < taken.size(); ++i)
        found[i].insert(found[i].end(), taken[i].begin(), taken[i].end());
    }
    expected.resize(found.size());
    for (int replica = 0; replica < replicas; ++replica) {
      const auto taken = batches_of(replica, replicas, 0);
      for (std::size_t i = 0; i < taken.size(); ++i)
        expected.at(i).insert(expected.at(i).end(), taken[i].begin(), taken[i].end());
    }
    BOOST_TEST((found == expected), world << " ranks");
  }
  BOOST_CHECK_THROW(data::distributed_sampler(52, 0, 6, {.replicas = 5}), usage_error);
}

namespace {

/// A model as a loader sees it: one of two replicas, on a rank that needs samples or not.
struct model_of_two_replicas {
  struct group {
    [[nodiscard]] int rank() const { return 1; }
    [[nodiscard]] int size() const { return 2; }
  } ranks;
  struct layout_type {
    int replicas = 0;
  } words;
  bool reads = true;

  group& data_group() { return ranks; }
  [[nodiscard]] const layout_type& layout() const { return words; }
  [[nodiscard]] bool needs_input() const { return reads; }
};

labels all_labels(const auto& loader) {
  labels all;
  for (auto& batch : loader.epoch(2)) {
    all.insert(all.end(), batch.y.begin(), batch.y.end());
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loader_for_a_model_takes_the_samples_of_its_replica) {
  const auto source = numbered(21);
  model_of_two_replicas model;
  const auto by_hand = [&](data::sampler_options options) {
    return all_labels(data::loader{
        source, {.batch_size = 4, .sampler = data::distributed_sampler{21, 1, 2, options}}});
  };
  const auto sequential = data::sample_order::sequential;
  const data::loader shuffled{source, model, {.batch_size = 4, .samples = {.seed = 3}}};
  BOOST_TEST(all_labels(shuffled) == by_hand({.seed = 3}), boost::test_tools::per_element());
  const data::loader by_group{source, model.ranks, {.batch_size = 4, .samples = {.seed = 3}}};
  BOOST_TEST(all_labels(by_group) == by_hand({.seed = 3}), boost::test_tools::per_element());
  const data::loader own{
      source, model, {.batch_size = 4, .sampler = data::distributed_sampler{21, 0, 1}}};
  BOOST_TEST(all_labels(own).size() == 21U);

  model.words.replicas = 6;  // which are trained on, and evaluated as ranks
  const data::loader replicas{source, model, {.batch_size = 4, .samples = {.seed = 3}}};
  BOOST_TEST(all_labels(replicas) == by_hand({.seed = 3, .replicas = 6}),
             boost::test_tools::per_element());
  const data::loader in_order{source, model, {.batch_size = 4, .samples = {.order = sequential}}};
  BOOST_TEST(all_labels(in_order) == by_hand({.order = sequential}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_sampler_that_deals_to_other_replicas_than_the_layout_is_refused) {
  const auto source = numbered(24);
  model_of_two_replicas model;
  const auto refused = [&](int replicas, data::sampler_options options) {
    model.words.replicas = replicas;
    try {
      (void)data::loader{source, model, {.sampler = data::distributed_sampler{24, 1, 2, options}}};
    } catch (const usage_error& said) {
      const std::string words = said.what();
      BOOST_TEST(words.find("loader_test.cpp:") != words.npos, words);
      return words.find(fmt::format("has {} virtual replicas, and the sampler deals samples to {}",
                                    replicas, options.replicas)) != words.npos;
    }
    return false;
  };
  BOOST_TEST(refused(6, {}));
  BOOST_TEST(refused(6, {.replicas = 4}));
  BOOST_TEST(refused(0, {.replicas = 4}));
  BOOST_TEST(!refused(6, {.replicas = 6}));
  BOOST_TEST(!refused(6, {.order = data::sample_order::sequential}));
  model.words.replicas = 6;
  BOOST_CHECK_THROW((data::loader{source, model, {.samples = {.replicas = 4}}}), usage_error);
}

BOOST_AUTO_TEST_CASE(a_loader_for_a_rank_that_needs_no_samples_fetches_none) {
  const auto source = numbered(10);
  model_of_two_replicas model;
  model.reads = false;
  const data::loader loader{source, model, {.batch_size = 3}};
  for (auto& batch : loader.epoch(0)) {
    BOOST_TEST(batch.x.size() == 0U);
    BOOST_TEST(batch.weights.size() > 0U);
  }
}
