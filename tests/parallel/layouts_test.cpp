// One training program at every layout: losses, norms, values, figures and generated tokens are
// those of one process. By the law of parallel.hpp, bits depend on (dp, tp, sp, micro-batches)
// alone.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <messages.hpp>
#include <parallel/small.hpp>
#include <parx/nn/loss.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/clip.hpp>
#ifdef PARX_HAS_UCX
#include <parx/transport/ucx.hpp>
#endif

namespace {

using parx::process_group;
using small::llama;
using small::some;
using small::tied_gpt;
using small::tokens;

constexpr int steps = 3;

struct outcome {
  std::vector<double> losses{}, norms{};
  std::uint64_t initial = 0, values = 0;
  double evaluated = 0, correct = 0;
  std::vector<std::int64_t> text{};
  bool are_replicas_equal = true;

  bool operator==(const outcome&) const = default;
};

/// The program: nothing in it depends on the layout.
template <typename Make>
outcome trained(process_group& world, const parx::layout& how, Make make) {
  auto net = make();
  parx::parallel model{net, world, how};
  model.initialize(5);
  parx::optim::adamw opt{model.parameters(), {.lr = 1e-2}};
  outcome found;
  found.initial = model.values_hash();
  process_group& readers = model.data_group();
  for (int step = 0; step < steps; ++step) {
    const tokens batch = some(step, readers.rank(), readers.size());
    const auto loss = model.forward_backward(batch, small::criterion);
    found.losses.push_back(parx::global_mean(readers, loss));
    found.norms.push_back(parx::optim::clip_grad_norm(opt.targets(), 0.5));
    opt.step();
  }
  found.are_replicas_equal = model.replicas_equal();
  found.values = model.values_hash();
  const auto figures = [](const auto& logits, const tokens& part) -> parx::nn::metrics {
    return {{"loss", parx::nn::cross_entropy(logits, part.labels)},
            {"accuracy", parx::nn::accuracy(logits, part.labels)}};
  };
  const parx::nn::metrics measured = model.evaluate(some(99, 0, 1), figures);
  found.evaluated = measured.at(0).value.mean();
  found.correct = measured.at(1).value.sum;
  found.text = parx::generate(model, std::vector<std::int64_t>{1, 2, 3},
                              {.max_new_tokens = 20, .temperature = 1, .seed = 3});
  return found;
}

template <typename Make>
outcome at(const std::string& layout, int ranks, Make make, jobs::kind kind = jobs::kind::inproc) {
  std::vector<outcome> found(static_cast<std::size_t>(ranks));
  const auto failures = jobs::run_collecting(kind, ranks, [&](process_group& world) {
    found[static_cast<std::size_t>(world.rank())] =
        trained(world, parx::layout::parse(layout), make);
  });
  parx_test::expect_failures(failures, "");
  for (const outcome& each : found) BOOST_TEST((each == found[0]), layout << ": ranks differ");
  BOOST_TEST(found[0].are_replicas_equal, layout << ": replicas");
  return found[0];
}

void expect_close(const outcome& found, const outcome& expected, double tolerance,
                  const std::string& what) {
  const auto close = [&](double a, double b) { return std::abs(a - b) <= tolerance * std::abs(b); };
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    BOOST_TEST(close(found.losses.at(i), expected.losses[i]),
               what << ": loss " << found.losses[i] << " for " << expected.losses[i]);
    BOOST_TEST(close(found.norms.at(i), expected.norms[i]),
               what << ": norm " << found.norms[i] << " for " << expected.norms[i]);
  }
  BOOST_TEST(close(found.evaluated, expected.evaluated), what << ": evaluated");
  BOOST_TEST(found.correct == expected.correct, what << ": correct");
  BOOST_TEST(found.initial == expected.initial, what << ": initial values");
  BOOST_TEST((found.text == expected.text), what << ": text");
}

struct way {
  std::string layout;
  int ranks;
  jobs::kind kind = jobs::kind::inproc;
};
/// All of them give the same bits.
using same_bits = std::vector<way>;

const std::vector<same_bits> law{
    {{"ddp,microbatches=4", 1},
     {"pp=2,microbatches=4", 2},
     {"pp=2,microbatches=4,schedule=gpipe", 2},
     {"pp=2,microbatches=4,schedule=eager_1f1b", 2},
     {"pp=2,microbatches=4,schedule=interleaved,chunks=2", 2},
     {"pp=2,microbatches=4,schedule=zb1p", 2},
     {"pp=2,microbatches=4,schedule=zbv,chunks=2", 2},
     {"pp=4,microbatches=4", 4}},
    {{"ddp", 2},
     {"ddp", 2, jobs::kind::tcp},
     {"zero=1", 2},
     {"zero=2", 2},
     {"fsdp", 2},
     {"fsdp", 2, jobs::kind::tcp},
#ifdef PARX_HAS_UCX
     {"ddp", 2, jobs::kind::ucx_tcp},
     {"fsdp", 2, jobs::kind::ucx_tcp},
#endif
     {"fsdp,gathered", 2},
     {"hybrid", 2}},
    {{"ddp,microbatches=2", 2},
     {"fsdp,microbatches=2", 2},
     {"pp=2,microbatches=2", 4},
     {"pp=2,microbatches=2", 4, jobs::kind::tcp},
#ifdef PARX_HAS_UCX
     {"pp=2,microbatches=2", 4, jobs::kind::ucx_tcp},
#endif
     {"pp=2,zero=1,microbatches=2", 4},
     {"pp=2,zero=2,microbatches=2", 4},
     {"pp=2,fsdp,microbatches=2", 4},
     {"pp=2,fsdp,gathered,microbatches=2", 4},
     {"pp=2,zero=1,microbatches=2,schedule=zb1p", 4}},
    // Of six rows two of the eight parts are empty, or not made.
    {{"ddp,microbatches=8", 2},
     {"fsdp,microbatches=8", 2},
     {"pp=2,microbatches=8", 4},
     {"pp=2,fsdp,microbatches=8", 4}},
    {{"ddp,microbatches=2", 3},
     {"ddp,microbatches=2", 3, jobs::kind::tcp},
     {"fsdp,microbatches=2", 3},
     {"pp=2,microbatches=2", 6}},
    {{"tp=2,microbatches=2", 2},
     {"pp=2,tp=2,microbatches=2", 4},
     {"pp=2,tp=2,microbatches=2,schedule=zb1p", 4},
     {"pp=2,tp=2,microbatches=2,schedule=zbv,chunks=2", 4}},
    {{"tp=2,microbatches=2", 4},
     {"tp=2,zero=2,microbatches=2", 4},
     {"tp=2,zero=3,microbatches=2", 4},
     {"pp=2,tp=2,microbatches=2", 8},
     {"pp=2,tp=2,zero=3,microbatches=2", 8}},
    {{"tp=2,sp,microbatches=2", 2}, {"pp=2,tp=2,sp,microbatches=2", 4}},
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_program_gives_the_same_at_every_layout_and_the_same_bits_by_the_law) {
  const outcome alone = at("ddp", 1, llama<float>);
  for (const same_bits& all : law) {
    const outcome first = at(all[0].layout, all[0].ranks, llama<float>, all[0].kind);
    expect_close(first, alone, 1e-5, all[0].layout);
    for (const way& each : all) {
      const outcome found = at(each.layout, each.ranks, llama<float>, each.kind);
      BOOST_TEST(found.values == first.values, each.layout << ": values");
      BOOST_TEST(found.losses == first.losses, each.layout << ": losses");
      BOOST_TEST(found.norms == first.norms, each.layout << ": norms");
      expect_close(found, first, 1e-6, each.layout);
    }
  }
}

BOOST_AUTO_TEST_CASE(in_doubles_one_process_and_a_tied_model_are_met_to_the_last_digits) {
  for (const way& each :
       {way{"ddp", 2}, way{"fsdp,microbatches=2", 3}, way{"pp=2,microbatches=4", 2},
        way{"pp=2,tp=2,schedule=zb1p,microbatches=4", 4},
        way{"pp=2,tp=2,zero=1,microbatches=2", 8}, way{"tp=2,sp", 2}, way{"tp=2,zero=3", 4}}) {
    expect_close(at(each.layout, each.ranks, llama<double>), at("ddp", 1, llama<double>), 1e-12,
                 each.layout);
    expect_close(at(each.layout, each.ranks, tied_gpt<double>), at("ddp", 1, tied_gpt<double>),
                 1e-12, each.layout + " of a tied gpt");
  }
}

BOOST_AUTO_TEST_CASE(weight_decay_is_meant_for_the_same_parameters_at_every_layout) {
  for (const way& each : {way{"ddp", 2}, way{"zero=1", 2}, way{"fsdp,gathered", 2}, way{"tp=2", 2},
                          way{"pp=2", 2}, way{"pp=2,tp=2,zero=3", 8}}) {
    const auto failures = jobs::run_collecting(each.kind, each.ranks, [&](process_group& world) {
      auto net = tied_gpt();
      parx::parallel model{net, world, parx::layout::parse(each.layout)};
      for (const auto& part : model.parameters()) {
        jobs::check(parx::optim::is_meant_to_decay(part) == (part.global_shape().rank() > 1),
                    part.name());
      }
    });
    parx_test::expect_failures(failures, "");
  }
}
