// What a program may do with an fsdp between its first step and its last: all stages and storages
// train on to the bits of a ddp.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/jobs.hpp>
#include <fsdp/blocks.hpp>
#include <messages.hpp>

#include <parx/autograd.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using namespace blocks;
using parx::bfloat16;
using parx_test::expect_failures;

constexpr auto gathered = parx::value_storage::gathered;

// Parameters in 16 bits.
struct small_model : parx::nn::module<small_model> {
  using value_type = bfloat16;
  parx::nn::linear<bfloat16> in{6, 40}, out{40, 3};

  variable forward(const variable& x) { return out(parx::relu(in(x))); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("in", in);
    visit("out", out);
  }
};

// Modules of one parameter each.
struct part : parx::nn::module<part> {
  using value_type = float;
  parx::parameter<float> value;

  part() = default;
  explicit part(const parx::shape& extents) : value("value", extents) {}
  variable forward(const variable& x) { return value.size() > 0 ? x * value : x; }
  template <typename Visit>
  void members(Visit& visit) {
    visit("value", value, parx::nn::init::constant(2));
  }
};
struct two_parts : parx::nn::module<two_parts> {
  using value_type = float;
  part left, right;

  variable forward(const variable& x) { return right(left(x)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("left", left);
    visit("right", right);
  }
};

/// A ddp or an fsdp, whatever it is of.
struct face {
  int rank = 0;
  std::function<variable(const tensor<float>&)> forward;
  std::function<void()> zero_grad, step, reduce, finish;
  std::function<double(double)> clip;
  std::function<std::unique_ptr<parx::no_sync_scope>()> no_sync;
  /// Of the parameters within a module.
  std::function<void(const std::string&)> freeze, unfreeze;
};
using steps = std::function<void(face&, std::vector<double>&)>;

/// What a run ends with, on a rank.
struct outcome {
  std::uint64_t hash = 0;
  std::vector<double> seen;
  bool operator==(const outcome&) const = default;
};

template <typename Model>
std::vector<outcome> train(jobs::kind kind, int world, std::optional<parx::fsdp_options> options,
                           const steps& run, const std::function<void(Model&)>& prepare,
                           parx::reduction_finish finish) {
  std::vector<outcome> found(static_cast<std::size_t>(world));
  if (options) options->finish = finish;
  const auto failures = jobs::run_collecting(kind, world, [&](parx::process_group& group) {
    Model m;
    prepare(m);
    outcome& own = found[static_cast<std::size_t>(group.rank())];
    const auto drive = [&](auto& wrapper, auto clip) {
      auto parameters = wrapper.parameters();
      parx::optim::adamw opt{parameters, {.lr = 1e-2}};
      face any{
          group.rank(),
          [&](const tensor<float>& x) { return wrapper(x); },
          [&] { wrapper.zero_grad(); },
          [&] { opt.step(); },
          [&] { wrapper.reduce(); },
          [&] { wrapper.finish(); },
          clip,
          [&] {
            return std::unique_ptr<parx::no_sync_scope>(new parx::no_sync_scope(wrapper.no_sync()));
          },
          [&](const std::string& module) {
            m.for_each_parameter([&](const std::string& path, auto& each) {
              if (parx::is_in_module(path, module)) each.freeze();
            });
          },
          [&](const std::string& module) {
            m.for_each_parameter([&](const std::string& path, auto& each) {
              if (parx::is_in_module(path, module)) each.unfreeze();
            });
          }};
      run(any, own.seen);
      own.hash = wrapper.values_hash();
    };
    m.initialize(3);
    if (!options) {
      parx::ddp ddp{m, group, {.order = parx::reduction_order::serial, .finish = finish}};
      drive(ddp, [&](double most) { return parx::optim::clip_grad_norm(ddp.parameters(), most); });
    } else {
      parx::fsdp fsdp{m, group, *options};
      drive(fsdp,
            [&](double most) { return parx::optim::clip_grad_norm(fsdp.parameters(), most); });
    }
  });
  for (const std::string& failure : failures) BOOST_TEST(failure == "");
  return found;
}

template <typename Model = model>
void check_all(
    const steps& run, parx::unit_choice units = parx::by_type<block>, int world = 2,
    const std::type_identity_t<std::function<void(Model&)>>& prepare = [](Model&) {},
    parx::reduction_finish finish = parx::reduction_finish::with_backward) {
  const auto expected = train<Model>(jobs::kind::inproc, world, std::nullopt, run, prepare, finish);
  for (const int stage : {1, 2, 3}) {
    for (const auto values : {parx::value_storage::by_hosts, gathered}) {
      if (stage < 3 && values == gathered) continue;
      const auto found = train<Model>(
          jobs::kind::inproc, world,
          parx::fsdp_options{.stage = stage, .units = units, .values = values}, run, prepare,
          finish);
      BOOST_TEST((found == expected),
                 "stage " << stage << ", " << (values == gathered ? "gathered" : "by hosts"));
    }
  }
}

void take_step(face& any, int i) {
  const auto x = samples(any.rank, i);
  loss_of(any.forward(x), x).backward();
  any.step();
}
const steps plain = [](face& any, std::vector<double>&) {
  for (int i = 0; i < 4; ++i) take_step(any, i);
};

}  // namespace

BOOST_AUTO_TEST_CASE(shared_weights_statistics_and_dropout_train_to_the_bits_of_ddp) {
  check_all(plain);
  check_all(plain, parx::by_type<block>, 1);
  check_all(plain, parx::by_type<model>);
  check_all(plain, parx::by_path({"first", "second", "head"}), 3);
}

BOOST_AUTO_TEST_CASE(ranks_drop_other_elements_of_the_same_samples) {
  std::vector<float> found[2];
  expect_failures(failures_of(gathered_blocks(),
                              [&](auto& fsdp, model&, auto& group) {
                                const variable y = fsdp(samples(0, 0));
                                found[group.rank()].assign(y.value().begin(), y.value().end());
                              }),
                  "");
  BOOST_TEST(found[0] != found[1]);
}

BOOST_AUTO_TEST_CASE(a_unit_that_is_called_twice_in_a_pass) {
  check_all(plain, parx::by_type<block>, 2, [](model& m) { m.twice = true; });
}

BOOST_AUTO_TEST_CASE(a_graph_that_is_kept_and_run_again) {
  check_all([](face& any, std::vector<double>&) {
    for (int i = 0; i < 3; ++i) {
      const auto x = samples(any.rank, i);
      const variable loss = loss_of(any.forward(x), x);
      loss.backward({.graph = parx::graph_after::retained});
      any.zero_grad();
      loss.backward();
      any.step();
    }
  });
}

BOOST_AUTO_TEST_CASE(forward_passes_of_which_no_backward_follows) {
  check_all([](face& any, std::vector<double>&) {
    for (int i = 0; i < 4; ++i) {
      (void)any.forward(samples(any.rank, i + 20));
      const variable kept = any.forward(samples(any.rank, i + 40));
      take_step(any, i);
    }
  });
}

BOOST_AUTO_TEST_CASE(gradients_that_are_dropped_between_passes) {
  check_all([](face& any, std::vector<double>&) {
    for (int i = 0; i < 3; ++i) {
      const auto x = samples(any.rank, i);
      {
        const auto alone = any.no_sync();
        loss_of(any.forward(x), x).backward();
      }
      any.zero_grad();
      loss_of(any.forward(x), x).backward();
      any.zero_grad();
      const variable loss = loss_of(any.forward(x), x);
      any.zero_grad();
      loss.backward();
      any.step();
    }
  });
}

BOOST_AUTO_TEST_CASE(sums_that_are_waited_for_when_asked) {
  const steps run = [](face& any, std::vector<double>& seen) {
    for (int i = 0; i < 4; ++i) {
      const auto x = samples(any.rank, i);
      if (i % 2 == 0) {
        loss_of(any.forward(x), x).backward();
      } else {
        {
          const auto alone = any.no_sync();
          loss_of(any.forward(x), x).backward();
        }
        any.reduce();
      }
      seen.push_back(static_cast<double>(sum(any.forward(samples(any.rank, i + 9))).item()));
      any.finish();
      any.finish();
      any.step();
    }
  };
  check_all(run, parx::by_type<block>, 2, [](model&) {}, parx::reduction_finish::when_asked);
  check_all(run, parx::by_type<block>, 1, [](model&) {}, parx::reduction_finish::when_asked);
}

BOOST_AUTO_TEST_CASE(a_micro_batch_that_fails_on_all_ranks_is_dropped_and_training_goes_on) {
  check_all([](face& any, std::vector<double>& seen) {
    for (int i = 0; i < 3; ++i) {
      const auto x = samples(any.rank, i);
      const variable y = any.forward(x);
      const variable z = parx::differentiable(
          y.value(),
          [](const tensor<float>&, parx::grad_sink<float>) { throw std::runtime_error("bad"); }, y);
      try {
        const auto alone = any.no_sync();
        loss_of(z, x).backward();
      } catch (const std::runtime_error&) {
        seen.push_back(i);
      }
      any.zero_grad();
      take_step(any, i);
    }
  });
}

BOOST_AUTO_TEST_CASE(gradients_that_are_infinite_have_the_norm_of_a_ddp) {
  check_all([](face& any, std::vector<double>& seen) {
    for (int i = 0; i < 3; ++i) {
      const auto x = samples(any.rank, i);
      const float factor = i == 1 && any.rank == 1 ? std::numeric_limits<float>::infinity() : 1;
      (loss_of(any.forward(x), x) * variable(tensor<float>::scalar(factor))).backward();
      const double norm = any.clip(0.5);
      seen.push_back(std::isfinite(norm) ? norm : -1);
      if (std::isfinite(norm))
        any.step();
      else
        any.zero_grad();
    }
  });
}

BOOST_AUTO_TEST_CASE(parameters_in_16_bits_have_master_weights_in_parts) {
  check_all<small_model>(plain, parx::by_type<parx::nn::linear<bfloat16>>);
  check_all<small_model>(plain, {}, 3);
}

BOOST_AUTO_TEST_CASE(units_without_an_element) {
  const steps run = [](face& any, std::vector<double>&) {
    for (int i = 0; i < 2; ++i) {
      const variable y = any.forward(samples(any.rank, i));
      mean(y * y).backward();
      any.step();
    }
  };
  const std::function<void(two_parts&)> some = [](two_parts& m) {
    m.left = part({0, 3});
    m.right = part({6});
  };
  check_all<two_parts>(run, parx::by_type<part>, 2, some);
  check_all<two_parts>(run, parx::by_path({"left"}), 3, some);
  const steps no_backward = [](face& any, std::vector<double>&) {
    (void)any.forward(samples(any.rank, 0));
    any.step();
  };
  const std::function<void(two_parts&)> none = [](two_parts& m) {
    m.left = part({0, 3});
    m.right = part({2, 0});
  };
  check_all<two_parts>(no_backward, parx::by_type<part>, 2, none);
  check_all<two_parts>(no_backward, {}, 2, none);
}

BOOST_AUTO_TEST_CASE(a_model_that_is_wholly_frozen) {
  check_all(
      [](face& any, std::vector<double>& seen) {
        const variable y = any.forward(samples(0, 0));
        seen.push_back(y.requires_grad() ? 1 : 0);
      },
      parx::by_type<block>, 2, [](model& m) { m.freeze(); });
}

BOOST_AUTO_TEST_CASE(values_that_are_gathered_stay_readable_through_a_step_of_backward) {
  for (const auto values : {gathered, parx::value_storage::by_hosts}) {
    for (const bool recomputes : {false, true}) {
      expect_failures(
          failures_of({.units = parx::by_type<block>, .values = values},
                      [&](auto& fsdp, model& m, auto& group) {
                        const auto whole = fsdp.gathered(m.first.shared);
                        const auto read = [&] {
                          const auto all = m.first.shared.value().span();
                          return std::vector<float>(all.begin(), all.end());
                        };
                        const std::vector<float> before = read();
                        const auto x = samples(group.rank(), 0);
                        const variable y = recomputes ? parx::checkpoint(fsdp, x) : fsdp(x);
                        parx::require(read() == before, "other values after forward");
                        loss_of(y, x).backward();
                        parx::require(read() == before, "other values after backward");
                      }),
          "");
    }
  }
}

BOOST_AUTO_TEST_CASE(layers_that_are_unfrozen_and_frozen_on_the_way_train_to_the_bits_of_ddp) {
  const steps run = [](face& any, std::vector<double>& seen) {
    int i = 0;
    const auto some_steps = [&] {
      take_step(any, i++);
      const auto x = samples(any.rank, i);
      loss_of(any.forward(x), x).backward();
      seen.push_back(any.clip(0.1));
      any.step();
      ++i;
    };
    some_steps();
    any.unfreeze("second");
    some_steps();
    any.unfreeze("first.norm.weight");  // a part of what was frozen together
    some_steps();
    any.unfreeze("first");
    some_steps();
    any.freeze("second");
    some_steps();
    any.unfreeze("second");
    some_steps();
  };
  const std::function<void(model&)> head_alone = [](model& m) {
    m.first.freeze();
    m.second.freeze();
  };
  for (const int world : {1, 2, 3}) {
    check_all<model>(run, parx::by_type<block>, world, head_alone);
    check_all<model>(run, {}, world, head_alone);
    check_all<model>(run, parx::by_size(64), world, head_alone);
    check_all<model>(run, parx::by_type<block>, world, [](model& m) {
      m.freeze();
      m.head.unfreeze();
    });
  }
}

BOOST_AUTO_TEST_CASE(layers_unfrozen_between_micro_batches_keep_earlier_gradients) {
  check_all<model>(
      [](face& any, std::vector<double>&) {
        for (int i = 0; i < 4; ++i) {
          {
            const auto alone = any.no_sync();
            const auto x = samples(any.rank, 3 * i);
            loss_of(any.forward(x), x).backward();
            if (i == 1) any.unfreeze("second");
            const auto y = samples(any.rank, 3 * i + 1);
            loss_of(any.forward(y), y).backward();
          }
          if (i == 2) any.unfreeze("first");
          if (i == 3) any.freeze("second");
          const auto z = samples(any.rank, 3 * i + 2);
          const variable loss = loss_of(any.forward(z), z);
          if (i == 3) any.reduce();
          else loss.backward();
          any.step();
        }
      },
      parx::by_type<block>, 2,
      [](model& m) {
        m.first.freeze();
        m.second.freeze();
      });
}

BOOST_AUTO_TEST_CASE(layers_unfrozen_between_sums_of_shards_add_up_as_if_always_trained) {
  for (const int stage : {2, 3}) {
    std::vector<std::uint64_t> found[2];
    for (const bool is_frozen_at_first : {false, true}) {
      found[is_frozen_at_first].resize(2);
      expect_failures(
          jobs::run_collecting(
              jobs::kind::inproc, 2,
              [&](parx::process_group& group) {
                model m;
                m.initialize(3);
                if (is_frozen_at_first) m.first.freeze();
                parx::fsdp fsdp{m, group,
                                {.stage = stage, .units = parx::by_type<block>,
                                 .accumulate = parx::accumulated_gradients::sharded}};
                m.first.freeze();
                parx::optim::adamw opt{fsdp.parameters(), {.lr = 1e-2}};
                for (int i = 0; i < 3; ++i) {
                  for (int part = 0; part < 3; ++part) {
                    if (i == 1 && part == 1) m.first.unfreeze();
                    const auto x = samples(group.rank(), 3 * i + part);
                    std::unique_ptr<parx::no_sync_scope> alone;
                    if (part < 2) alone.reset(new parx::no_sync_scope(fsdp.no_sync()));
                    loss_of(fsdp(x), x).backward();
                  }
                  opt.step();
                }
                found[is_frozen_at_first][static_cast<std::size_t>(group.rank())] =
                    fsdp.values_hash();
              }),
          "");
    }
    BOOST_TEST(found[0] == found[1]);
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_a_frozen_layer_take_memory_from_when_it_is_unfrozen) {
  for (const int stage : {1, 2, 3}) {
    expect_failures(
        jobs::run_collecting(
            jobs::kind::inproc, 2,
            [&](parx::process_group& group) {
              model m;
              m.first.freeze();
              parx::fsdp fsdp{m, group, {.stage = stage, .units = parx::by_type<block>}};
              parx::optim::sgd opt{fsdp.parameters(), {.lr = 0.1F}};
              const auto bytes_of_a_step = [&] {
                const auto x = samples(group.rank(), 0);
                loss_of(fsdp(x), x).backward();
                opt.step();
                std::size_t bytes = 0;
                for (std::size_t i = 0; i < fsdp.bucket_count(); ++i) bytes += fsdp.bucket_bytes(i);
                return bytes;
              };
              const std::size_t before = bytes_of_a_step();
              const std::size_t first = fsdp.plan().whole_bytes(1);
              m.first.unfreeze();
              const std::size_t after = bytes_of_a_step();
              parx::require(after == before + first, "{} bytes, {} before, {} of the layer", after,
                            before, first);
            }),
        "");
  }
}

BOOST_AUTO_TEST_CASE(layers_that_ranks_unfreeze_alone_are_an_error_on_all) {
  const auto unfreezing = [](int stage, auto unfreeze) {
    return jobs::run_collecting(jobs::kind::inproc, 2, [&](parx::process_group& group) {
      model m;
      m.freeze();
      m.head.unfreeze();
      parx::fsdp fsdp{m, group, gathered_blocks(stage)};
      unfreeze(m, group.rank());
      const auto x = samples(group.rank(), 0);
      loss_of(fsdp(x), x).backward();
    });
  };
  for (const int stage : {1, 3}) {
    expect_failures(
        unfreezing(stage,
                   [](model& m, int rank) { (rank == 0 ? m.first : m.second).unfreeze(); }),
        "Call unfreeze() on all ranks or on none");
    expect_failures(unfreezing(stage,
                               [](model& m, int rank) {
                                 if (rank == 0) m.first.unfreeze();
                               }),
                    "parameter \"first.a\" is unfrozen on rank 0 and frozen on 1 of 2 ranks");
  }
}
