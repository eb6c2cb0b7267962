// What a program may do with an fsdp between its first step and its last: all stages and storages
// train on to the bits of a ddp.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include <fsdp/against_ddp.hpp>
#include <fsdp/blocks.hpp>
#include <messages.hpp>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>

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
