// What the trainer refuses, because it would train or measure otherwise than was meant.
#include <parx/train.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "messages.hpp"
#include "runs.hpp"

namespace train = parx::train;
using parx::data::distributed_sampler;
using sampler_of = std::function<std::optional<distributed_sampler>(parx::process_group&)>;

namespace {

using parx_test::mentions;

constexpr std::size_t samples = 24;

// What each of two ranks hears, "" where nothing: with these samplers for training and for the
// evaluation, `use` of the trainer.
template <typename Use>
std::vector<std::string> heard(const sampler_of& training, const sampler_of& evaluating, Use use,
                               int world = 2) {
  std::vector<std::string> said(static_cast<std::size_t>(world));
  parx::run_threads(world, [&](parx::process_group& group) {
    const auto source = runs::points(samples);
    runs::classifier model(0);
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{ddp.parameters()};
    const parx::data::loader loader{source, {.batch_size = 4, .sampler = training(group)}};
    const parx::data::loader held_out{source, {.batch_size = 4, .sampler = evaluating(group)}};
    const auto loss = [](auto& m, auto& batch) {
      return parx::nn::cross_entropy(m(batch.x), batch.y, {.row_weights = batch.weights});
    };
    try {
      train::trainer trainer{ddp, opt, loader, loss, runs::quiet(1)};
      use(trainer, [&] {
        trainer.add_evaluation(held_out, [&](auto& m, auto& batch) -> train::metrics {
          return {{"loss", loss(m, batch)}};
        });
      });
    } catch (const parx::usage_error& refused) {
      said[static_cast<std::size_t>(group.rank())] = refused.what();
    }
  });
  return said;
}

const sampler_of dealt = [](parx::process_group& group) {
  return distributed_sampler{samples, group};
};
const sampler_of forgotten = [](parx::process_group&) { return std::nullopt; };
const sampler_of always_rank0 = [](parx::process_group& group) {
  return distributed_sampler{samples, 0, group.size()};
};

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_that_would_train_on_the_same_samples_are_refused) {
  const auto only_made = [](auto&, auto) {};
  for (const auto& each : heard(forgotten, dealt, only_made)) {
    BOOST_TEST(mentions(each, "each of the 2 ranks would take all samples of training"), each);
    BOOST_TEST(mentions(each, "parx::data::loader{dataset, model, {.batch_size = ...}}"), each);
  }
  const auto said = heard(always_rank0, dealt, only_made);
  BOOST_TEST(said[0] == "");
  BOOST_TEST(mentions(said[1], "this is rank 1 of 2, but the sampler of training takes the part of "
                               "rank 0 of 2"),
             said[1]);
}

BOOST_AUTO_TEST_CASE(ranks_that_would_evaluate_the_same_samples_are_refused) {
  const auto adds = [](auto&, auto add_evaluation) { add_evaluation(); };
  for (const auto& each : heard(dealt, forgotten, adds)) {
    BOOST_TEST(mentions(each, "all samples of the evaluation \"eval\""), each);
  }
  BOOST_TEST(mentions(heard(dealt, always_rank0, adds)[1], "the evaluation \"eval\""));
}

BOOST_AUTO_TEST_CASE(one_rank_needs_no_sampler) {
  const auto evaluates = [](auto& trainer, auto add_evaluation) {
    add_evaluation();
    BOOST_TEST(trainer.evaluate().at("eval_loss") > 0);
  };
  BOOST_TEST(heard(forgotten, forgotten, evaluates, 1)[0] == "");
}

BOOST_AUTO_TEST_CASE(an_evaluation_that_nobody_added_is_asked_for) {
  const auto evaluates = [](auto& trainer, auto) { (void)trainer.evaluate(); };
  for (const auto& each : heard(dealt, dealt, evaluates)) {
    BOOST_TEST(mentions(each, "add_evaluation(loader, measure)"), each);
  }
}

BOOST_AUTO_TEST_CASE(asking_a_record_for_a_missing_figure_lists_those_it_has) {
  const train::record line{{"eval_loss", 1.5}, {"eval_accuracy", 0.75}};
  BOOST_TEST(line.at("eval_accuracy") == 0.75);
  BOOST_CHECK_EXCEPTION((void)line.at("accuracy"), parx::usage_error, [](const auto& said) {
    return mentions(said.what(), "no \"accuracy\"; it has eval_loss, eval_accuracy");
  });
  BOOST_CHECK_EXCEPTION((void)train::record{}.at("loss"), parx::usage_error,
                        [](const auto& said) { return mentions(said.what(), "it has nothing"); });
}
