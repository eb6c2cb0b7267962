// What a program may do wrong with an fsdp: each is an error that says what to do, on all ranks.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/jobs.hpp>
#include <fsdp/blocks.hpp>
#include <fsdp/nested.hpp>
#include <messages.hpp>
#include <short_memory.hpp>

#include <parx/autograd.hpp>
#include <parx/comm/collectives/barrier.hpp>
#include <parx/comm/threads.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using namespace blocks;
using parx_test::expect_failures;

constexpr auto gathered = parx::value_storage::gathered;

struct tables : parx::nn::module<tables> {
  using value_type = float;
  parx::nn::embedding<> words{1024, 64}, places{1024, 64};
  template <typename Visit>
  void members(Visit& visit) {
    visit("words", words);
    visit("places", places);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_weight_that_two_units_share_is_named_with_both) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [](auto& group) {
    model m;
    m.second.shared = m.first.shared;
    parx::fsdp fsdp{m, group, gathered_blocks()};
  });
  expect_failures(failures,
                  "parameter \"first.a\" is in unit \"first\" and, as \"second.a\", in unit "
                  "\"second\"");
}

BOOST_AUTO_TEST_CASE(a_forward_pass_that_fails_on_one_rank_ends_all_with_its_reason) {
  using namespace std::chrono;
  const auto from = steady_clock::now();
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp}) {
    for (const int stage : {1, 3}) {
      std::vector<std::string> afterwards(2);
      const auto failures = jobs::run_collecting(kind, 2, [&](parx::process_group& group) {
        model m;
        parx::fsdp fsdp{m, group, gathered_blocks(stage)};
        if (group.rank() == 1) {
          m.second.before = [] { throw std::runtime_error("the disk is full"); };
        }
        const auto x = samples(group.rank(), 0);
        try {
          loss_of(fsdp(x), x).backward();
        } catch (const std::exception& thrown) {
          if (group.rank() == 1) group.abort(std::string("rank 1: ") + thrown.what());
          afterwards[static_cast<std::size_t>(group.rank())] =
              parx_test::message_of([&] { parx::barrier(group); });
          throw;
        }
      });
      expect_failures(failures, "the disk is full");
      expect_failures(afterwards, "the disk is full");
    }
  }
  BOOST_TEST(duration<double>(steady_clock::now() - from).count() < 5.0);
}

BOOST_AUTO_TEST_CASE(two_wrappers_of_one_model_are_refused) {
  expect_failures(failures_of(gathered_blocks(),
                              [](auto&, model& m, auto& group) {
                                parx::fsdp again{m, group, gathered_blocks()};
                              }),
                  "belongs to another wrapper that still lives");
  expect_failures(failures_of(gathered_blocks(),
                              [](auto&, model& m, auto& group) {
                                parx::ddp again{m, group};
                              }),
                  "belongs to another wrapper that still lives");
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [](auto& group) {
    model m;
    parx::ddp ddp{m, group};
    parx::fsdp fsdp{m, group, gathered_blocks()};
  });
  expect_failures(failures, "belongs to another wrapper that still lives");
}

BOOST_AUTO_TEST_CASE(an_optimizer_that_was_made_before_the_model_was_wrapped_is_refused) {
  for (const int stage : {1, 3}) {
    const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [&](auto& group) {
      model m;
      parx::optim::adamw opt{m.parameters(), {.lr = 1e-2}};
      parx::fsdp fsdp{m, group, {.stage = stage, .units = parx::by_type<block>}};
      const auto x = samples(group.rank(), 0);
      loss_of(fsdp(x), x).backward();
      opt.step();
    });
    expect_failures(failures, "make it of parameters() of what wraps the model");
  }
}

BOOST_AUTO_TEST_CASE(a_step_while_values_are_gathered_is_refused) {
  for (const auto values : {gathered, parx::value_storage::by_hosts}) {
    expect_failures(failures_of({.units = parx::by_type<block>, .values = values},
                                [](auto& fsdp, model& m, auto& group) {
                                  parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.1F}};
                                  const auto x = samples(group.rank(), 0);
                                  loss_of(fsdp(x), x).backward();
                                  const auto whole = fsdp.gathered(m.first.shared);
                                  opt.step();
                                }),
                    "while unit \"first\" is in use");
    expect_failures(
        failures_of({.units = parx::by_type<block>, .values = values},
                    [](auto& fsdp, model&, auto&) { fsdp.call([&] { fsdp.initialize(2); }); }),
        "while the root unit is in use");
  }
}

BOOST_AUTO_TEST_CASE(a_step_of_gradients_that_no_rank_has_summed_is_refused) {
  for (const auto& options : {parx::fsdp_options{.stage = 1}, gathered_blocks()}) {
    expect_failures(failures_of(options,
                                [](auto& fsdp, model&, auto& group) {
                                  parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.1F}};
                                  const auto x = samples(group.rank(), 0);
                                  const auto pass = [&] { loss_of(fsdp(x), x).backward(); };
                                  opt.step();  // no gradient at all, as after zero_grad()
                                  {
                                    const auto guard = fsdp.no_sync();
                                    pass();
                                    fsdp.zero_grad();
                                    opt.step();
                                    pass();
                                  }
                                  const std::uint64_t before = fsdp.values_hash();
                                  const auto said = parx_test::message_of([&] { opt.step(); });
                                  parx::require(fsdp.values_hash() == before, "a part has moved");
                                  pass();  // the last micro-batch
                                  opt.step();
                                  parx::require(fsdp.values_hash() != before, "no part moved");
                                  parx::throw_usage("{}", said);
                                }),
                    "were only added up on this rank, under no_sync()");
  }
}

BOOST_AUTO_TEST_CASE(a_loss_from_before_a_step_is_refused) {
  for (const auto& options :
       {parx::fsdp_options{.stage = 1}, parx::fsdp_options{}, gathered_blocks()}) {
    expect_failures(failures_of(options,
                                [](auto& fsdp, model&, auto& group) {
                                  parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.1F}};
                                  const auto x = samples(group.rank(), 0);
                                  const auto old = loss_of(fsdp(x), x);
                                  loss_of(fsdp(x), x).backward();
                                  opt.step();
                                  old.backward();
                                }),
                    "backward at misuse_test.cpp:");
  }
}

BOOST_AUTO_TEST_CASE(a_layer_that_is_frozen_on_one_rank_alone_is_refused_on_all) {
  for (const auto& options : {parx::fsdp_options{.stage = 1}, gathered_blocks()}) {
    expect_failures(failures_of(options,
                                [](auto& fsdp, model& m, auto& group) {
                                  if (group.rank() == 1) m.head.freeze();
                                  const auto x = samples(group.rank(), 0);
                                  loss_of(fsdp(x), x).backward();
                                }),
                    "parameter \"head.weight\" is frozen on rank 1 of 2");
    expect_failures(failures_of(options,
                                [](auto& fsdp, model& m, auto& group) {
                                  m.head.freeze();
                                  const auto x = samples(group.rank(), 0);
                                  loss_of(fsdp(x), x).backward();
                                }),
                    "");
  }
}

BOOST_AUTO_TEST_CASE(a_model_that_has_lost_its_wrapper_has_no_values_and_can_get_others) {
  for (const int stage : {1, 3}) {
    std::vector<std::uint64_t> found(3);
    expect_failures(
        jobs::run_collecting(
            jobs::kind::inproc, 2,
            [&](parx::process_group& group) {
              model m;
              const auto at = static_cast<std::size_t>(group.rank());
              { parx::fsdp fsdp{m, group, {.stage = stage, .units = parx::by_type<block>}}; }
              m.initialize(5);
              parx::fsdp again{m, group, gathered_blocks()};
              found[at] = again.values_hash();
            }),
        "");
    BOOST_TEST(found[0] == found[1]);
    const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [&](auto& group) {
      model m;
      { parx::fsdp fsdp{m, group, {.stage = stage, .units = parx::by_type<block>}}; }
      (void)m(samples(0, 0));
    });
    expect_failures(failures, "has no values");
  }
}

BOOST_AUTO_TEST_CASE(a_model_that_moves_away_from_its_wrapper_is_refused) {
  expect_failures(failures_of(gathered_blocks(),
                              [](auto&, model& m, auto&) { model moved = std::move(m); }),
                  "the model of fsdp at blocks.hpp");
  expect_failures(failures_of(gathered_blocks(),
                              [](auto&, model& m, auto&) { auto moved = std::move(m.first); }),
                  "a layer is moved whose model an fsdp wraps");
}

BOOST_AUTO_TEST_CASE(a_layer_that_is_frozen_again_between_forward_and_backward_is_named) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 2, [](auto& group) {
    model m;
    m.first.freeze();
    parx::fsdp fsdp{m, group, gathered_blocks()};
    m.first.unfreeze();
    const auto x = samples(group.rank(), 0);
    const variable loss = loss_of(fsdp(x), x);
    m.first.freeze();
    loss.backward();
  });
  expect_failures(failures, "freeze it after backward");
}

BOOST_AUTO_TEST_CASE(backward_after_the_values_have_gone_is_refused) {
  for (const auto& options :
       {parx::fsdp_options{.stage = 1}, parx::fsdp_options{}, gathered_blocks()}) {
    expect_failures(jobs::run_collecting(jobs::kind::inproc, 2,
                                         [&](parx::process_group& group) {
                                           model m;
                                           variable loss;
                                           {
                                             parx::fsdp fsdp{m, group, options};
                                             loss = mean(fsdp(samples(group.rank(), 0)));
                                           }
                                           loss.backward();
                                         }),
                    "has been destroyed");
    expect_failures(failures_of(options,
                                [](auto& fsdp, model& m, auto&) {
                                  variable penalty;
                                  {
                                    const auto whole = fsdp.gathered(m.first.shared);
                                    penalty = mean(m.first.shared * m.first.shared);
                                  }
                                  penalty.backward();
                                }),
                    "the gathered() scope in which they were computed has ended");
  }
}

BOOST_AUTO_TEST_CASE(a_penalty_on_values_that_are_gathered_is_differentiated_meanwhile) {
  // The derivative of the mean of 6 x 6 squares is w / 18, and a step of 18 leaves nothing.
  for (const int stage : {1, 2, 3}) {
    std::vector<std::vector<float>> found(2);
    expect_failures(failures_of({.stage = stage, .units = parx::by_type<block>, .values = gathered},
                                [&](auto& fsdp, model& m, auto& group) {
                                  parx::optim::sgd opt{fsdp.parameters(), {.lr = 18}};
                                  {
                                    const auto whole = fsdp.gathered(m.first.shared);
                                    mean(m.first.shared * m.first.shared).backward();
                                  }
                                  opt.step();
                                  const auto whole = fsdp.gathered(m.first.shared);
                                  const auto values = m.first.shared.value().span();
                                  found[static_cast<std::size_t>(group.rank())].assign(
                                      values.begin(), values.end());
                                }),
                    "");
    for (const auto& values : found) {
      BOOST_TEST(values.size() == 36U);
      for (const float value : values) BOOST_TEST(std::abs(value) < 1e-6F);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_hash_of_all_values_gathers_each_unit_once) {
  expect_failures(
      failures_of({.units = parx::by_type<block>, .values = gathered, .prefetch = 0},
                  [](auto& fsdp, model& m, auto&) {
                    parx::process_group& shards = fsdp.shard_group();
                    auto sent = [&, before = std::size_t{0}]() mutable {
                      return shards.bytes_sent() - std::exchange(before, shards.bytes_sent());
                    };
                    { const auto root = fsdp.gathered(m.head.weight()); }
                    (void)sent();
                    { const auto whole = fsdp.gathered(m.first.shared); }
                    { const auto whole = fsdp.gathered(m.second.shared); }
                    const std::size_t once = sent();
                    parx::require(once > 0, "nothing was counted");
                    (void)fsdp.values_hash();
                    const std::size_t hashing = sent();
                    parx::require(hashing == once, "{} bytes instead of {}", hashing, once);
                  }),
      "");
}

BOOST_AUTO_TEST_CASE(a_read_outside_of_its_unit_names_the_parameter) {
  for (const int stage : {1, 3}) {
    const parx::fsdp_options options{
        .stage = stage, .units = parx::by_type<nested::block>, .values = gathered};
    expect_failures(
        failures_of<nested::model>(
            options, [](auto&, auto& m, auto&) { (void)m.blocks[1].scale.value(); }),
        "parameter \"blocks.1.scale\" (6) is sharded: its values are here while");
    // Also right after a forward pass, and for the root.
    expect_failures(failures_of<nested::model>(options,
                                               [](auto& fsdp, auto& m, auto& group) {
                                                 (void)fsdp(samples(group.rank(), 0));
                                                 (void)m.head.weight().value();
                                               }),
                    "parameter \"head.weight\"");
    expect_failures(failures_of<nested::model>(
                        options,
                        [](auto&, auto& m, auto& group) {
                          (void)m.head(samples(group.rank(), 0));  // not through fsdp
                        }),
                    "call([&] { ... }) of an fsdp");
  }
}

BOOST_AUTO_TEST_CASE(options_that_cannot_be_are_refused) {
  const auto refused = [](parx::fsdp_options options) {
    return failures_of<nested::model>(options, [](auto&, auto&, auto&) {});
  };
  expect_failures(refused({.stage = 4}), ".stage is 1");
  expect_failures(refused({.units = parx::by_type<parx::nn::dropout>}),
                  "has no module of type parx::");
  expect_failures(refused({.units = parx::by_path({"blocks.7"})}), "has no module \"blocks.7\"");
}

BOOST_AUTO_TEST_CASE(ranks_that_cannot_be_divided_evenly_are_refused) {
  const auto failures = jobs::run_collecting(jobs::kind::hybrid, 3, [](auto& group) {
    model m;
    parx::fsdp fsdp{m, group, {.shard_within = "host"}};
  });
  expect_failures(failures, ".shard_within divides the ranks of group");
}

BOOST_AUTO_TEST_CASE(an_optimizer_of_the_models_own_parameters_is_refused) {
  expect_failures(failures_of({.units = parx::by_type<block>},
                              [](auto& fsdp, model& m, auto& group) {
                                parx::optim::sgd opt{m.parameters(), {.lr = 0.1F}};
                                const auto x = samples(group.rank(), 0);
                                loss_of(fsdp(x), x).backward();
                                opt.step();
                              }),
                  "make it of parameters() of what wraps the model");
}

BOOST_AUTO_TEST_CASE(ranks_with_other_units_or_models_are_told_the_difference) {
  const auto failures =
      jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
        nested::model m;
        if (group.rank() == 1) m.blocks.pop_back();
        parx::fsdp fsdp{m, group, {.units = parx::by_type<nested::block>}};
      });
  expect_failures(failures,
                  "- rank 0: blocks.2.scale [6] float32, trained, without values, in unit");
}

BOOST_AUTO_TEST_CASE(ranks_that_call_units_in_another_order_are_told_so_before_the_step) {
  const auto failures =
      failures_of({.units = parx::by_type<block>, .values = gathered, .prefetch = 0},
                  [](auto& fsdp, model& m, auto& group) {
                    const auto x = samples(group.rank(), 0);
                    const auto y = fsdp.call([&] {
                      return m.head(group.rank() == 0 ? m.second(m.first(x))
                                                      : m.first(m.second(x)));
                    });
                    loss_of(y, x).backward();
                  });
  expect_failures(failures, "for unit \"first\"");
  expect_failures(failures, "for unit \"second\"");
}

BOOST_AUTO_TEST_CASE(ranks_that_evaluate_other_units_are_told_both_on_all_ranks) {
  for (const auto kind : {jobs::kind::inproc, jobs::kind::tcp}) {
    for (const int stage : {1, 3}) {
      for (const bool narrow : {false, true}) {
        auto options = gathered_blocks(stage);
        if (narrow) options.wire.gather = parx::dtype::bfloat16;
        const auto failures = jobs::run_collecting(kind, 3, [&](parx::process_group& group) {
          model m;
          parx::fsdp fsdp{m, group, options};
          m.eval();
          const parx::no_grad without_gradients;
          const auto x = samples(group.rank(), 0);
          (void)fsdp.call([&] { return group.rank() == 1 ? m.second(x) : m.first(x); });
        });
        expect_failures(failures, " for unit \"first\"");
        expect_failures(failures, " for unit \"second\"");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_gather_units_of_other_sizes_are_told_which) {
  const auto failures = failures_of<nested::model>(
      {.units = parx::by_path({"spare", "blocks.0"}), .values = gathered},
      [](auto& fsdp, auto& m, auto& group) {
        if (group.rank() == 0) (void)fsdp.gathered(m.spare.weight());
        else (void)fsdp.gathered(m.blocks[0].scale);
      });
  expect_failures(failures, "for unit \"spare\"");
  expect_failures(failures, "for unit \"blocks.0\"");
}

BOOST_AUTO_TEST_CASE(ranks_that_look_up_other_tables_are_told_both_on_all_ranks) {
  const auto failures = failures_of<tables>({}, [](auto& fsdp, auto& m, auto& group) {
    const parx::no_grad without_gradients;
    const auto numbers = tensor<std::int32_t>::full({4}, 700);
    (void)fsdp.call([&] { return group.rank() == 0 ? m.words(numbers) : m.places(numbers); });
  });
  expect_failures(failures, "for table \"words.weight\"");
  expect_failures(failures, "for table \"places.weight\"");
}

BOOST_AUTO_TEST_CASE(a_wrapper_that_goes_when_memory_is_exhausted_drops_what_it_has_no_room_for) {
  if (!parx_test::memory_can_be_short) return;
  const auto without_memory = [](auto& wrapper) {
    parx::memory_pool::instance().trim();  // else it may have a block of the size
    parx_test::memory_is_short = true;
    wrapper.reset();
    parx_test::memory_is_short = false;
  };
  const auto pass = [](auto& wrapper, int replica) {
    const auto x = samples(0, replica);
    loss_of(wrapper(x), x).backward();
  };
  parx::run_threads(1, [&](parx::process_group& group) {
    for (const int replicas : {0, 2}) {
      model m;
      std::optional<parx::ddp<model>> ddp(std::in_place, m, group,
                                          parx::ddp_options{.replicas = replicas});
      if (replicas > 0) {
        const auto adding = ddp->no_sync();
        pass(*ddp, 0);
      }
      if (replicas == 0) pass(*ddp, 0);
      without_memory(ddp);
      parx::require(!m.head.weight().has_grad(), "a gradient is in memory that has gone");
    }
    for (const int stage : {1, 3}) {
      model m;
      std::optional<parx::fsdp<model>> fsdp(std::in_place, m, group, gathered_blocks(stage));
      const auto parts = fsdp->parameters();
      pass(*fsdp, 0);
      without_memory(fsdp);
      for (const auto& part : parts) {
        parx::require(!part.has_grad(), "a part's gradient is in memory that has gone");
        parx::require(!part.has_values(), "a part's values are in memory that has gone");
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(an_evaluation_that_ends_when_memory_is_exhausted_restores_all_modes) {
  if (!parx_test::memory_can_be_short) return;
  parx::run_threads(1, [](parx::process_group& group) {
    model m;
    m.head.eval();
    parx::fsdp fsdp{m, group, gathered_blocks(3)};
    const auto evaluate = [&](auto& evaluated) {
      std::optional<parx::nn::evaluation_mode<std::remove_reference_t<decltype(evaluated)>>> mode(
          std::in_place, evaluated);
      parx::require(!m.is_training(), "it is not in evaluation mode");
      parx_test::memory_is_short = true;
      mode.reset();
      parx_test::memory_is_short = false;
      parx::require(m.is_training() && !m.head.is_training(), "its modes are others");
      parx::require(parx::is_grad_enabled(), "gradients stay disabled");
    };
    evaluate(m);
    evaluate(fsdp.module());
  });
}

BOOST_AUTO_TEST_CASE(a_backward_that_fails_on_one_rank_ends_all_with_its_reason) {
  expect_failures(
      failures_of(gathered_blocks(),
                  [](auto& fsdp, model&, auto& group) {
                    const auto x = samples(group.rank(), 0);
                    const variable y = fsdp(x);
                    const variable z = parx::differentiable(
                        y.value(),
                        [fails = group.rank() == 1](const tensor<float>& upstream,
                                                    parx::grad_sink<float> dy) {
                          if (fails) throw std::runtime_error("the disk is full");
                          dy.add(upstream);
                        },
                        y);
                    loss_of(z, x).backward();
                  }),
      "the disk is full");
}
