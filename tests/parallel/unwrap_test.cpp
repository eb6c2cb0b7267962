// A wrapper leaves a model as it found it: the same model goes into one layout after another.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parallel/small.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/ema.hpp>

namespace {

using parx::process_group;

auto tied_gpt() { return small::tied_gpt(); }
auto llama() { return small::llama(); }

std::vector<std::string> failures_of(int ranks, const std::function<void(process_group&)>& body) {
  return jobs::run_collecting(jobs::kind::inproc, ranks, body);
}
void expect_all(const std::vector<std::string>& failures, const std::string& said) {
  parx_test::expect_failures(failures, said);
}
void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// The mean loss of all samples of step 0, by one process.
template <typename Net>
double loss_of(Net& net) {
  const auto all = small::some(0, 0, 1);
  const parx::no_grad guard;
  parx::nn::tally loss;
  loss += small::criterion(net(all.input_ids), all);
  return loss.mean();
}

/// Trains `net` in one layout after the other, each time from the same values.
template <typename Make>
void goes_through_all_layouts(Make make) {
  const auto failures = failures_of(4, [&](process_group& world) {
    auto net = make(), alone = make();
    alone.initialize(3);
    const double expected = loss_of(alone);
    for (const char* const layout :
         {"tp=2", "ddp", "pp=2", "tp=2,sp", "fsdp", "pp=2,tp=2", "tp=2,zero=1", "pp=4",
          "pp=2,tp=2,sp", "tp=2,fsdp", "zero=2", "ddp"}) {
      parx::parallel model{net, world, parx::layout::parse(layout)};
      model.initialize(3);
      parx::optim::adamw opt{model.parameters(), {.lr = 1e-2f}};
      const auto& readers = model.data_group();
      const auto loss =
          model.forward_backward(small::some(0, readers.rank(), readers.size()), small::criterion);
      const double mean = parx::global_mean(model.data_group(), loss);
      expect(std::abs(mean - expected) < 1e-5, layout);
      opt.step();
    }
    net.initialize(3);
    expect(std::abs(loss_of(net) - expected) < 1e-6, "without a wrapper");
  });
  expect_all(failures, "");
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_goes_into_one_layout_after_the_other) {
  goes_through_all_layouts(llama);
  goes_through_all_layouts(tied_gpt);
}

BOOST_AUTO_TEST_CASE(unwrap_leaves_the_trained_values_on_every_rank) {
  const auto failures = failures_of(4, [&](process_group& world) {
    for (const char* const layout : {"ddp", "fsdp", "tp=2,sp", "pp=2", "pp=2,tp=2,zero=1"}) {
      auto net = tied_gpt();
      parx::parallel model{net, world, parx::layout::parse(layout)};
      model.initialize(3);
      {
        parx::optim::adamw opt{model.parameters(), {.lr = 1e-2f}};
        const auto& readers = model.data_group();
        (void)model.forward_backward(small::some(0, readers.rank(), readers.size()),
                                     small::criterion);
        opt.step();
      }
      const double trained = model.evaluate(small::some(0, 0, 1), small::criterion).mean();
      const std::uint64_t hash = model.values_hash();
      model.unwrap();
      expect(std::abs(loss_of(net) - trained) < 1e-5, layout);
      for (const char* const next : {"zero=2", "tp=2", "tp=2,sp,fsdp", "pp=2", "pp=2,tp=2"}) {
        parx::parallel again{net, world, parx::layout::parse(next)};
        expect(again.values_hash() == hash, layout + std::string(" to ") + next);
        again.unwrap();
      }
    }
  });
  expect_all(failures, "");
}

BOOST_AUTO_TEST_CASE(values_that_all_ranks_have_go_into_the_next_layout) {
  const auto failures = failures_of(4, [&](process_group& world) {
    for (const char* const layout :
         {"ddp", "fsdp", "tp=2", "tp=2,sp", "pp=2", "pp=2,tp=2,zero=1"}) {
      auto net = tied_gpt(), alone = tied_gpt();
      alone.initialize(7);
      const double expected = loss_of(alone);
      {  // rank 0's count
        parx::parallel model{net, world};
        model.initialize(7);
      }
      net.for_each_parameter([&](auto&, auto& each) {
        for (float& value : each.value()) value += static_cast<float>(world.rank());
      });
      parx::parallel model{net, world, parx::layout::parse(layout)};
      expect(
          std::abs(model.evaluate(small::some(0, 0, 1), small::criterion).mean() - expected) < 1e-5,
          layout);
      expect(model.replicas_equal(), layout + std::string(": replicas differ"));
    }
  });
  expect_all(failures, "");
}

BOOST_AUTO_TEST_CASE(values_of_some_parameters_stay_and_the_others_are_those_of_seed_0) {
  const auto failures = failures_of(2, [&](process_group& world) {
    for (const char* const layout : {"ddp", "fsdp", "tp=2", "pp=2"}) {
      const auto is_head = [](const std::string& path) { return path == "lm_head.weight"; };
      auto net = llama(), expected = llama();
      expected.initialize(0);
      net.initialize(7);
      std::vector<parx::tensor<float>> body;
      net.for_each_parameter([&](const std::string& path, auto& each) {
        if (is_head(path)) each.forget_values();
        else body.push_back(each.value().clone());
      });
      std::size_t next = 0;
      expected.for_each_parameter([&](const std::string& path, auto& each) {
        if (!is_head(path)) each.value().copy_from(body.at(next++));
      });
      parx::parallel model{net, world, parx::layout::parse(layout)};
      auto got = llama();
      model.copy_values_to(got);
      expect(loss_of(got) == loss_of(expected), layout);
    }
  });
  expect_all(failures, "");
}

BOOST_AUTO_TEST_CASE(an_optimizer_or_an_average_of_a_whole_model_that_is_cut_says_so) {
  for (const bool is_average : {false, true}) {
    expect_all(failures_of(2,
                           [&](process_group& world) {
                             auto net = llama();
                             net.initialize(1);
                             parx::optim::ema average{net.parameters()};
                             parx::optim::adamw opt{net.parameters(), {.lr = 1e-2}};
                             const auto batch = small::some(0, 0, 1);
                             small::criterion(net(batch.input_ids), batch).backward();
                             opt.step();
                             parx::parallel model{net, world, {.tp = 2}};
                             (void)model.forward_backward(batch, small::criterion);
                             is_average ? average.update() : opt.step();
                           }),
               "it has been cut, or made whole, since. Make a new");
  }
}

BOOST_AUTO_TEST_CASE(what_has_ended_or_lost_its_values_says_so) {
  expect_all(failures_of(2,
                         [](process_group& world) {
                           auto net = llama();
                           parx::parallel model{net, world, {.tp = 2}};
                           model.unwrap();
                           (void)model.forward_backward(small::some(0, 0, 1), small::criterion);
                         }),
             "unwrap() has ended this");
  for (const char* const layout : {"fsdp", "tp=2"}) {
    expect_all(failures_of(2,
                           [&](process_group& world) {
                             auto net = llama();
                             parx::parallel(net, world, parx::layout::parse(layout)).initialize(1);
                             (void)net(small::some(0, 0, 1).input_ids);
                           }),
               "has no values yet");
  }
}

BOOST_AUTO_TEST_CASE(layers_stay_cut_while_a_wrapper_of_theirs_lives) {
  const auto failures = failures_of(2, [](process_group& world) {
    auto net = llama();
    std::optional<parx::parallelized> cut(parx::parallelize(net, world, parx::tp::ready_plan(net)));
    const auto is_cut = [&] {
      bool any = false;
      net.for_each_parameter([&](auto&, auto& each) { any |= !each.spec().is_whole(); });
      return any;
    };
    {
      const auto copy = cut;
      cut.reset();
      expect(is_cut(), "whole, with a copy of the cut");
    }
    expect(!is_cut(), "still cut");
    cut.emplace(parx::parallelize(net, world, parx::tp::ready_plan(net)));
    {
      process_group alone = world.subgroup(std::vector{world.rank()});
      parx::ddp ddp{net, alone};
      cut.reset();
      expect(is_cut(), "whole, under a ddp of the parts");
    }
    net = llama();
    cut.emplace(parx::parallelize(net, world, parx::tp::ready_plan(net)));
    cut.reset();
    net.initialize(1);
    auto other = llama();
    other.initialize(1);
    expect(loss_of(net) == loss_of(other), "another model");
  });
  expect_all(failures, "");
}
