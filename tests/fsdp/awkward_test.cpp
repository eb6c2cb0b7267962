// Units within units, and what a step may do besides one pass: to the bits of a ddp.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <fsdp/blocks.hpp>
#include <fsdp/nested.hpp>
#include <messages.hpp>

#include <parx/comm/threads.hpp>

#include <parx/autograd.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using namespace nested;
using blocks::failures_of;
using parx_test::expect_failures;

struct variant {
  bool recompute = false;
  bool frozen = false;
  parx::unit_choice units = parx::by_type<block, inner>;
  parx::reshard_after_forward reshard_after_forward = parx::reshard_after_forward::yes;
  std::size_t prefetch = 1;
  parx::value_storage values = parx::value_storage::by_hosts;
};

void prepare(model& m, const variant& how) {
  m.recompute = how.recompute;
  if (how.frozen) m.blocks[1].within.freeze();
}

/// What every wrapper does in a test, and the hash of the values afterwards, on each rank.
template <typename Step>
std::vector<std::uint64_t> hashes(jobs::kind kind, int world, int stage, const variant& how,
                                  Step step) {
  std::vector<std::uint64_t> found(static_cast<std::size_t>(world));
  const auto failures = jobs::run_collecting(kind, world, [&](parx::process_group& group) {
    model m;
    prepare(m, how);
    const auto train = [&](auto& wrapper) {
      parx::optim::adamw opt{wrapper.parameters(), {.lr = 1e-2}};
      for (int i = 0; i < 5; ++i) {
        step(wrapper, m, group, i);
        opt.step();
      }
      found[static_cast<std::size_t>(group.rank())] = wrapper.values_hash();
    };
    if (stage == 0) {
      m.initialize(3);
      parx::ddp ddp{m, group, {.order = parx::reduction_order::serial}};
      train(ddp);
    } else {
      parx::fsdp fsdp{m,
                      group,
                      {.stage = stage,
                       .units = how.units,
                       .values = how.values,
                       .reshard_after_forward = how.reshard_after_forward,
                       .prefetch = how.prefetch}};
      fsdp.initialize(3);
      train(fsdp);
    }
  });
  for (const std::string& failure : failures) BOOST_TEST(failure == "");
  return found;
}

template <typename Step>
void check_all(Step step, const variant& how = {}, jobs::kind kind = jobs::kind::inproc) {
  const auto expected = hashes(kind, 2, 0, how, step);
  BOOST_TEST(expected[0] == expected[1]);
  for (const int stage : {1, 2, 3}) {
    const auto found = hashes(kind, 2, stage, how, step);
    BOOST_TEST(found == expected, "stage " << stage << " differs from ddp");
  }
  variant gathered = how;
  gathered.values = parx::value_storage::gathered;
  BOOST_TEST(hashes(kind, 2, 3, gathered, step) == expected, "gathered units differ from ddp");
}

const auto plain_step = [](auto& wrapper, model&, parx::process_group& group, int i) {
  const auto x = samples(group.rank(), i);
  parx::nn::mse_loss(wrapper(x), x.slice(1, 0, 3)).backward();
};

constexpr auto gathered = parx::value_storage::gathered;

}  // namespace

BOOST_AUTO_TEST_CASE(units_within_units_train_to_the_bits_of_ddp) { check_all(plain_step); }

BOOST_AUTO_TEST_CASE(also_over_tcp_and_between_hosts) {
  check_all(plain_step, {}, jobs::kind::tcp);
  const auto expected = hashes(jobs::kind::hybrid, 4, 0, {}, plain_step);
  for (const int stage : {1, 3}) {
    BOOST_TEST(hashes(jobs::kind::hybrid, 4, stage, {}, plain_step) == expected);
  }
}

BOOST_AUTO_TEST_CASE(hosts_or_an_axis_that_cut_the_model_among_themselves_train_to_the_same_bits) {
  const auto train = [](parx::process_group& group, parx::fsdp_options options, auto& found) {
    model m;
    m.initialize(group.rank() == 0 ? 3 : 4);  // rank 0's are everybody's
    options.units = parx::by_type<block, inner>;
    parx::fsdp fsdp{m, group, options};
    parx::optim::adamw opt{fsdp.parameters(), {.lr = 1e-2}};
    for (int i = 0; i < 5; ++i) {
      plain_step(fsdp, m, group, i);
      found.norms[static_cast<std::size_t>(group.rank())] =
          parx::optim::clip_grad_norm(fsdp.parameters(), 0.1);
      opt.step();
    }
    found.hashes[static_cast<std::size_t>(group.rank())] = fsdp.values_hash();
  };
  struct outcome {
    std::vector<std::uint64_t> hashes = std::vector<std::uint64_t>(4);
    std::vector<double> norms = std::vector<double>(4);
    bool operator==(const outcome&) const = default;
  };
  outcome expected;
  expect_failures(jobs::run_collecting(jobs::kind::hybrid, 4,
                                       [&](auto& group) { train(group, {.stage = 1}, expected); }),
                  "");
  BOOST_TEST(expected.hashes[0] == expected.hashes[3]);
  for (const int stage : {1, 2, 3}) {
    for (const auto values : {parx::value_storage::by_hosts, gathered}) {
      outcome hosts, axis;
      expect_failures(jobs::run_collecting(
                     jobs::kind::hybrid, 4,
                     [&](auto& group) {
                       train(group, {.stage = stage, .shard_within = "host", .values = values},
                             hosts);
                     }),
                 "");
      expect_failures(jobs::run_collecting(
                     jobs::kind::tcp, 4,
                     [&](auto& group) {
                       const int first = group.rank() / 2 * 2;
                       auto pair = group.subgroup(std::array{first, first + 1});
                       train(group, {.stage = stage, .shard_within = pair}, axis);
                     }),
                 "");
      BOOST_TEST((hosts == expected), "hosts in stage " << stage);
      BOOST_TEST((axis == expected), "pairs in stage " << stage);
    }
  }
}

BOOST_AUTO_TEST_CASE(however_the_model_is_cut_into_units) {
  check_all(plain_step, {.units = {}});
  check_all(plain_step, {.units = parx::by_path({"blocks.*", "head"})});
  check_all(plain_step, {.units = parx::by_size(200)});
  check_all(plain_step, {.reshard_after_forward = parx::reshard_after_forward::no, .prefetch = 0});
  check_all(plain_step, {.prefetch = 5});
}

BOOST_AUTO_TEST_CASE(more_ranks_than_elements_is_allowed) {
  const auto expected = hashes(jobs::kind::inproc, 9, 0, {}, plain_step);
  BOOST_TEST(hashes(jobs::kind::inproc, 9, 3, {}, plain_step) == expected);
}

BOOST_AUTO_TEST_CASE(frozen_units_are_gathered_and_not_trained) {
  check_all(plain_step, {.frozen = true});
}

BOOST_AUTO_TEST_CASE(checkpointed_units_are_gathered_again_for_their_recomputation) {
  check_all(plain_step, {.recompute = true});
}

BOOST_AUTO_TEST_CASE(two_forward_passes_before_one_backward) {
  const auto step = [](auto& wrapper, model&, parx::process_group& group, int i) {
    const auto x = samples(group.rank(), i), y = samples(group.rank(), i + 9);
    const auto a = wrapper(x), b = wrapper(y);
    parx::nn::mse_loss(a + b, x.slice(1, 0, 3)).backward();
  };
  check_all(step);
  check_all(step, {.recompute = true});
}

BOOST_AUTO_TEST_CASE(micro_batches_are_added_up_without_traffic_to_the_bits_of_ddp) {
  check_all([](auto& wrapper, model&, parx::process_group& group, int i) {
    {
      const auto guard = wrapper.no_sync();
      for (int part = 0; part < 2; ++part) {
        const auto x = samples(group.rank(), 3 * i + part);
        parx::nn::mse_loss(wrapper(x), x.slice(1, 0, 3)).backward();
      }
    }
    const auto x = samples(group.rank(), 3 * i + 2);
    parx::nn::mse_loss(wrapper(x), x.slice(1, 0, 3)).backward();
  });
}

BOOST_AUTO_TEST_CASE(a_parameter_that_no_rank_uses_has_no_gradient_and_some_steps_use_it) {
  check_all([](auto& wrapper, model& m, parx::process_group& group, int i) {
    m.use_spare = i >= 2;
    plain_step(wrapper, m, group, i);
  });
  // One that some rank uses has one on all.
  check_all([](auto& wrapper, model& m, parx::process_group& group, int i) {
    m.use_spare = group.rank() == 1;
    plain_step(wrapper, m, group, i);
  });
}

BOOST_AUTO_TEST_CASE(a_rank_without_samples_takes_part) {
  check_all([](auto& wrapper, model&, parx::process_group& group, int i) {
    const std::size_t rows = group.rank() == 0 || i % 2 == 0 ? 4 : 0;
    const auto x = samples(group.rank(), i, rows);
    parx::nn::mse_loss(wrapper(x), x.slice(1, 0, 3)).backward();
  });
}

BOOST_AUTO_TEST_CASE(evaluation_between_steps_changes_nothing) {
  check_all([](auto& wrapper, model& m, parx::process_group& group, int i) {
    if (i % 2 == 0) {
      const parx::no_grad guard;
      (void)wrapper(samples(group.rank(), i + 50));
    }
    plain_step(wrapper, m, group, i);
    const parx::no_grad guard;
    (void)wrapper(samples(group.rank(), i + 60));
  });
}

BOOST_AUTO_TEST_CASE(values_can_be_read_while_they_are_gathered_and_methods_called_in_call) {
  for (const int stage : {1, 2, 3}) {
    std::vector<std::vector<float>> found(2), encoded(2);
    const auto failures = failures_of<model>(
        {.stage = stage, .units = parx::by_type<block>, .values = gathered},
        [&](auto& fsdp, model& m, auto& group) {
          const auto at = static_cast<std::size_t>(group.rank());
          {
            const auto whole = fsdp.gathered(m.blocks[2].scale, m.head.weight());
            for (const float value : m.blocks[2].scale.value().span()) found[at].push_back(value);
          }
          const parx::no_grad guard;
          const auto y = fsdp.call([&] { return m.encode(samples(0, 0)); });
          encoded[at].assign(y.value().begin(), y.value().end());
        });
    expect_failures(failures, "");
    BOOST_TEST(found[0] == std::vector<float>(6, 0.5F));
    BOOST_TEST(found[1] == found[0]);
    model alone;
    alone.initialize(0);
    const parx::no_grad guard;
    const auto y = alone.encode(samples(0, 0));
    const std::vector<float> expected(y.value().begin(), y.value().end());
    BOOST_TEST(encoded[0] == expected);
    BOOST_TEST(encoded[1] == expected);
  }
}

BOOST_AUTO_TEST_CASE(each_rank_takes_its_part_of_rank_0s_values) {
  for (const int stage : {1, 3}) {
    std::vector<std::uint64_t> found(2);
    (void)jobs::run_collecting(jobs::kind::tcp, 2, [&](parx::process_group& group) {
      model m;
      m.initialize(group.rank() == 0 ? 11 : 12);
      parx::fsdp fsdp{m, group, {.stage = stage, .units = parx::by_type<block>}};
      found[static_cast<std::size_t>(group.rank())] = fsdp.values_hash();
    });
    parx::run_threads(1, [&](parx::process_group& alone) {
      model m;
      m.initialize(11);
      found.push_back(parx::ddp(m, alone).values_hash());
    });
    BOOST_TEST(found[0] == found[2]);
    BOOST_TEST(found[1] == found[2]);
  }
}

BOOST_AUTO_TEST_CASE(an_average_that_is_swapped_in_is_what_the_model_computes_with) {
  for (const int stage : {1, 3}) {
    expect_failures(
        failures_of<model>({.stage = stage, .units = parx::by_type<block>, .values = gathered},
                           [&](auto& fsdp, model& m, auto& group) {
                             parx::optim::ema average{fsdp.parameters(), {.decay = 0}};
                             const auto before = fsdp.values_hash();
                             parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.1}};
                             plain_step(fsdp, m, group, 0);
                             opt.step();
                             const auto after = fsdp.values_hash();
                             parx::require(before != after, "no step");
                             const auto swapped = average.swap();
                             parx::require(fsdp.values_hash() == before, "not the average");
                           }),
        "");
  }
}

BOOST_AUTO_TEST_CASE(a_gradient_that_some_ranks_have_is_a_mean_and_one_that_none_has_is_absent) {
  // Before which block each rank's loss of a step stops: what comes before it gets no gradient.
  constexpr std::size_t stops[][2] = {{0, 0}, {2, 0}, {1, 2}, {2, 2}, {0, 1}, {0, 0}};
  const parx::optim::sgd_options with_memory{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1};
  const auto encode = [](model& m, variable y, std::size_t stop) {
    for (std::size_t i = 0; i < m.blocks.size(); ++i) {
      y = m.blocks[i](i == stop && i > 0 ? y.detach() : y);
    }
    return y;  // spare and head: no rank uses them
  };
  const auto result_of = [&](const variable& y) {
    return std::vector<float>(y.value().begin(), y.value().end());
  };
  model alone;
  alone.initialize(3);
  parx::optim::sgd opt{alone.parameters(), with_memory};
  for (std::size_t step = 0; step < std::size(stops); ++step) {
    double count = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const auto x = samples(rank, static_cast<int>(step));
      const auto loss = parx::nn::mse_loss(
          encode(alone, x, stops[step][static_cast<std::size_t>(rank)]), x);
      loss.backward({.of = parx::gradient_of::sum});
      count += loss.count;
    }
    for (const auto& each : alone.parameters()) {
      if (!each.has_grad()) continue;
      for (float& value : each.grad().span()) value *= static_cast<float>(1 / count);
    }
    opt.step();
  }
  const std::vector<float> expected = result_of(encode(alone, samples(0, 9), 0));
  const auto train = [&](auto& wrapper, model& m, parx::process_group& group, auto call) {
    parx::optim::sgd own{wrapper.parameters(), with_memory};
    for (std::size_t step = 0; step < std::size(stops); ++step) {
      const auto x = samples(group.rank(), static_cast<int>(step));
      const std::size_t stop = stops[step][static_cast<std::size_t>(group.rank())];
      parx::nn::mse_loss(call([&] { return encode(m, x, stop); }), x).backward();
      own.step();
    }
    const parx::no_grad guard;
    const auto found = result_of(call([&] { return encode(m, samples(0, 9), 0); }));
    for (std::size_t i = 0; i < found.size(); ++i) {
      const float off = std::abs(found[i] - expected[i]);
      parx::require(off <= 1e-5F * (1 + std::abs(expected[i])), "{} is not {}", found[i],
                    expected[i]);
    }
  };
  expect_failures(jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
                    model m;
                    m.initialize(3);
                    parx::ddp ddp{m, group};
                    train(ddp, m, group, [](auto f) { return f(); });
                  }),
                  "");
  // Of stage 3 in shared memory: what a rank gathers in backward, all must gather.
  for (const int stage : {1, 2, 3}) {
    const auto values = stage == 3 ? parx::value_storage::shared : gathered;
    BOOST_TEST_CONTEXT("stage " << stage) {
      expect_failures(
          jobs::run_collecting(stage == 3 ? jobs::kind::shm : jobs::kind::inproc, 2,
                               [&](parx::process_group& group) {
                                 model m;
                                 m.initialize(3);
                                 parx::fsdp fsdp{m, group,
                                                 {.stage = stage, .units = parx::by_type<block>,
                                                  .values = values}};
                                 train(fsdp, m, group, [&](auto f) { return fsdp.call(f); });
                               }),
          "");
    }
  }
}
