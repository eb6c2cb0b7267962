// The trainer runs wrappers of any kind. The one here has four ranks: two pairs, which work on
// different samples, each of two ranks that hold equal replicas and need each other for every
// forward pass, as ranks that share a layer do.
#include <parx/train/wrapped_model.hpp>

#include <array>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "runs.hpp"

namespace train = parx::train;
using runs::folder;
using runs::quiet;
using runs::setup;

namespace pairs {

parx::process_group every_second(parx::process_group& job) {
  const std::array ranks{job.rank() % 2, job.rank() % 2 + 2};
  return job.subgroup(ranks);
}
parx::process_group pair_of(parx::process_group& job) {
  const std::array ranks{job.rank() / 2 * 2, job.rank() / 2 * 2 + 1};
  return job.subgroup(ranks);
}

template <typename Module>
class wrapper {
 public:
  wrapper(Module& model, parx::process_group& job)
      : job_(job), data_(every_second(job)), pair_(pair_of(job)), inner_(model, data_) {}

  parx::variable<float> operator()(const parx::variable<float>& x) {
    std::array<std::size_t, 2> rows{x.shape()[0], 1};
    parx::all_reduce(pair_, rows);
    if (rows != std::array<std::size_t, 2>{2 * x.shape()[0], 2}) {
      throw std::logic_error("a pair works on two different batches");
    }
    return inner_(x);
  }

  parx::process_group& data_group() { return data_; }
  parx::process_group& job_group() { return job_; }
  Module& module() { return inner_.module(); }
  auto parameters() { return inner_.parameters(); }
  parx::no_sync_scope no_sync() { return inner_.no_sync(); }
  void zero_grad() { inner_.zero_grad(); }
  void raise_flag() { inner_.raise_flag(); }
  bool flag_raised() {  // a flag has come to the ranks of its data group; the other ones ask
    return parx::on_any_rank(pair_, inner_.flag_raised());
  }
  void broadcast_buffers(parx::call_site site) { inner_.broadcast_buffers(site); }
  parx::reduction_times times() const { return inner_.times(); }
  std::size_t bucket_count() const { return inner_.bucket_count(); }
  std::size_t bucket_bytes(std::size_t i) const { return inner_.bucket_bytes(i); }

  std::string reason_to_stop_at_loss() const { return "the pairs of this test need both"; }

  parx::ddp<Module>& inner() { return inner_; }

 private:
  parx::process_group& job_;
  parx::process_group data_, pair_;
  parx::ddp<Module> inner_;
};

// All ranks of the job have the model, and share the writing; the optimizer is rank 1's.
template <typename Module, typename Optimizer>
void add_training_state(wrapper<Module>& model, Optimizer& optimizer,
                        parx::checkpoint_parts& parts, parx::call_site) {
  parts.add_shard("model", parx::replicated_over(model.job_group()), model.module());
  if (model.job_group().rank() == 1) parts.add_shard("optimizer", {}, optimizer);
}
template <typename Module, typename State>
void add_part(wrapper<Module>& model, const std::string& name, State& state,
              parx::checkpoint_parts& parts) {
  add_part(model.inner(), name, state, parts);
}
template <typename Module, typename State>
void load_part(wrapper<Module>& model, const std::string& name, State& state,
               const parx::saved_checkpoint& saved) {
  load_part(model.inner(), name, state, saved);
}
template <typename Module>
void load_model(wrapper<Module>& model, const parx::saved_checkpoint& saved) {
  saved.load("model", model.module());
}
template <typename Module, typename Optimizer>
void load_training_state(wrapper<Module>& model, Optimizer& optimizer,
                         const parx::saved_checkpoint& saved) {
  load_model(model, saved);
  saved.load("optimizer", optimizer);
}
template <typename Module>
void save(wrapper<Module>& model, const std::string& path, parx::call_site site) {
  parx::process_group& job = model.job_group();
  parx::save(job, parx::replicated_over(job), model.module(), path, site);
}

}  // namespace pairs

namespace {

static_assert(train::wrapped_model<parx::ddp<runs::classifier>, parx::optim::sgd<float>>);
static_assert(train::wrapped_model<pairs::wrapper<runs::classifier>, parx::optim::sgd<float>>);
static_assert(!train::wrapped_model<runs::classifier, parx::optim::sgd<float>>);

// What each of the four ranks of two pairs has after a run.
template <typename Use>
std::vector<runs::result> in_pairs(const setup& s, Use use) {
  std::vector<runs::result> results(4);
  parx::run_threads(4, [&](parx::process_group& job) {
    results[static_cast<std::size_t>(job.rank())] = runs::run_wrapped(
        s, [&](runs::classifier& model) { return pairs::wrapper<runs::classifier>{model, job}; },
        [&](auto& trainer) { use(trainer, job); });
  });
  return results;
}
std::vector<runs::result> in_pairs(const setup& s) {
  return in_pairs(s, [](auto&, auto&) {});
}

}  // namespace

BOOST_AUTO_TEST_CASE(two_pairs_train_to_the_bits_of_two_ranks_under_ddp) {
  setup s{.dropout = 0.3, .options = quiet(12)};
  s.options.gradient_accumulation_steps = 2;
  s.options.max_grad_norm = 0.1;
  s.options.eval_strategy = train::strategy::steps;
  s.options.eval_steps = 5;
  const auto plain = runs::on_ranks(2, s)[0];
  for (const auto& each : in_pairs(s)) {
    BOOST_TEST(each.parameters == plain.parameters, boost::test_tools::per_element());
    for (const char* name : {"loss", "grad_norm", "eval_loss", "eval_accuracy", "epoch"}) {
      BOOST_TEST(runs::curve(each.state, name) == runs::curve(plain.state, name),
                 boost::test_tools::per_element());
    }
    BOOST_TEST(each.state.global_batch == plain.state.global_batch);
    BOOST_TEST(each.state.samples_seen == plain.state.samples_seen);
    BOOST_TEST(each.last.at("train_loss") == plain.last.at("train_loss"));
  }
}

BOOST_AUTO_TEST_CASE(a_rank_of_any_pair_stops_all_and_the_run_resumes_in_its_bits_also_under_ddp) {
  const folder place("pairs"), other("ddp");
  setup s{.options = quiet(9)};
  s.options.logging_steps = 0;  // so that the flag alone brings the news
  const auto whole = in_pairs(s);
  s.options.output_dir = place.path;
  const auto stopped = in_pairs(s, [](auto& trainer, parx::process_group& job) {
    trainer.add_callbacks({.on_step_end = [&](const train::trainer_state& state) {
      if (job.rank() == 3 && state.global_step == 4) trainer.request_stop();
    }});
  });
  for (const auto& each : stopped) BOOST_TEST(each.state.global_step == 5U);
  for (const char* name : {"model-00001-of-00004", "model-00004-of-00004",
                           "optimizer-00001-of-00001"}) {
    BOOST_TEST(std::filesystem::exists(place.path + "/checkpoint-5/" + name + ".safetensors"));
  }
  std::filesystem::copy(place.path, other.path, std::filesystem::copy_options::recursive);
  s.options.resume_from_checkpoint = train::resume::latest;
  for (const auto& each : in_pairs(s)) {
    BOOST_TEST(each.parameters == whole[0].parameters, boost::test_tools::per_element());
  }
  s.options.output_dir = other.path;
  for (const auto& each : runs::on_ranks(2, s)) {
    BOOST_TEST(each.parameters == whole[0].parameters, boost::test_tools::per_element());
  }
}

namespace {

// The batches of a loader from a sample on that is the rank's own.
template <typename Loader>
struct late_start {
  const Loader& whole;
  std::size_t from;
  [[nodiscard]] auto epoch(std::uint64_t number) const { return whole.epoch(number, from); }
  [[nodiscard]] auto batches() const { return whole.batches(); }
  [[nodiscard]] auto batch_size() const { return whole.batch_size(); }
  [[nodiscard]] auto& sampler() const { return whole.sampler(); }
};

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_with_fewer_batches_evaluate_as_often_as_the_others) {
  // 60 samples for 3 ranks, batches of 4. Rank 1 begins at sample 30, rank 2 at 51: 5, 3 and 1
  // batches, of 20, 10 and 3 samples.
  constexpr std::array<std::size_t, 3> from{0, 30, 51};
  std::array<int, 3> passes{};
  std::array<double, 3> counted{};
  parx::run_threads(3, [&](parx::process_group& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto source = runs::points(60);
    runs::classifier model(0);
    model.initialize(3);
    parx::ddp ddp{model, group};
    parx::optim::sgd opt{ddp.parameters()};
    const parx::data::loader loader{
        source, {.batch_size = 4, .sampler = parx::data::distributed_sampler{60, group}}};
    train::trainer trainer{
        ddp, opt, loader,
        [](auto& m, auto& batch) { return parx::nn::cross_entropy(m(batch.x), batch.y); },
        quiet(1)};
    const late_start<std::remove_const_t<decltype(loader)>> late{loader, from[rank]};
    trainer.add_evaluation(late, [&](auto&, auto& batch) -> train::metrics {
      ++passes[rank];
      std::array<int, 1> here{1};
      parx::all_reduce(group, here);  // as the forward pass of a sharded model
      return {{"samples", {.sum = batch.count(), .count = 1}}};
    });
    const auto line = trainer.evaluate();
    counted[rank] = line.at("eval_samples") * (5 + 3 + 1);
  });
  BOOST_TEST((passes == std::array{5, 5, 5}));
  for (const double each : counted) BOOST_TEST(each == 20 + 10 + 3);
}
