// The same steps on a ddp and on an fsdp of every stage and storage: they must end in the same
// bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/autograd.hpp>
#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/optim.hpp>

#include <comm/jobs.hpp>
#include <fsdp/blocks.hpp>

namespace blocks {

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
    for (const auto values : {parx::value_storage::by_hosts, parx::value_storage::gathered}) {
      const bool gathers = values == parx::value_storage::gathered;
      if (stage < 3 && gathers) continue;
      const auto found =
          train<Model>(jobs::kind::inproc, world,
                       parx::fsdp_options{.stage = stage, .units = units, .values = values}, run,
                       prepare, finish);
      BOOST_TEST((found == expected),
                 "stage " << stage << ", " << (gathers ? "gathered" : "by hosts"));
    }
  }
}

inline void take_step(face& any, int i) {
  const auto x = samples(any.rank, i);
  loss_of(any.forward(x), x).backward();
  any.step();
}
inline const steps plain = [](face& any, std::vector<double>&) {
  for (int i = 0; i < 4; ++i) take_step(any, i);
};

}  // namespace blocks
