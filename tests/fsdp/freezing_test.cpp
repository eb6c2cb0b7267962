// Layers that are frozen and unfrozen while an fsdp trains: on to the bits of a ddp.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <comm/jobs.hpp>
#include <fsdp/against_ddp.hpp>
#include <fsdp/blocks.hpp>
#include <messages.hpp>

#include <parx/autograd.hpp>
#include <parx/optim.hpp>

namespace {

using namespace blocks;
using parx_test::expect_failures;

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_that_is_wholly_frozen) {
  check_all(
      [](face& any, std::vector<double>& seen) {
        const variable y = any.forward(samples(0, 0));
        seen.push_back(y.requires_grad() ? 1 : 0);
      },
      parx::by_type<block>, 2, [](model& m) { m.freeze(); });
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
