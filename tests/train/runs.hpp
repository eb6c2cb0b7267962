// What the tests of the trainer train: a small classifier with dropout on generated points, by
// threads as ranks.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd.hpp>
#include <parx/comm/threads.hpp>
#include <parx/data.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/train.hpp>

namespace runs {

namespace train = parx::train;
using parx::tensor;

struct folder {
  std::string path;
  explicit folder(const std::string& name)
      : path(std::filesystem::temp_directory_path() /
             fmt::format("parx_train_{}_{}", ::getpid(), name)) {
    std::filesystem::remove_all(path);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() { std::filesystem::remove_all(path); }
};

inline std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// `count` points in the plane; the class is their quadrant.
inline parx::data::tensor_dataset<> points(std::size_t count) {
  auto x = tensor<float>::empty({count, 2});
  auto y = tensor<std::int64_t>::empty({count});
  parx::random_stream(7, "points").uniform(x, -1.0F, 1.0F);
  for (std::size_t i = 0; i < count; ++i) {
    y.data()[i] = (x.data()[2 * i] > 0 ? 1 : 0) + (x.data()[2 * i + 1] > 0 ? 2 : 0);
  }
  return {x, y};
}

struct classifier : parx::nn::module<classifier> {
  explicit classifier(double dropout) : noise(dropout) {}
  parx::nn::linear<> first{2, 16};
  parx::nn::dropout noise;
  parx::nn::linear<> second{16, 4};

  parx::variable<float> forward(const parx::variable<float>& x) {
    return second(noise(parx::relu(first(x))));
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("noise", noise);
    visit("second", second);
  }
};

// Options of a run that shows and writes nothing but what it is asked for.
inline train::trainer_options quiet(std::uint64_t steps) {
  return {
      .max_steps = steps, .logging_steps = 1, .disable_progress = true, .log_to_console = false};
}

struct setup {
  std::size_t samples = 50;
  std::size_t batch_size = 8;
  double dropout = 0;
  train::trainer_options options = {};
  parx::comm_hook hook = {};
};

struct result {
  std::vector<float> parameters;
  train::trainer_state state;
  parx::train::record last;
};

// A run of its own, as a new process would make it, of the model in the wrapper that wrap(model)
// makes; `use` may add to the trainer before it starts.
template <typename Wrap, typename Use>
result run_wrapped(const setup& s, Wrap&& wrap, Use&& use) {
  const auto source = points(s.samples);
  classifier model(s.dropout);
  model.initialize(3);
  auto wrapped = wrap(model);
  parx::process_group& group = wrapped.data_group();
  parx::optim::adamw opt{wrapped.parameters(), {.lr = 0.02}};
  const parx::data::loader loader{
      source,
      {.batch_size = s.batch_size,
       .sampler = parx::data::distributed_sampler{s.samples, group, {.seed = 5}}}};
  train::trainer trainer{wrapped, opt, loader,
                         [](auto& m, auto& batch) {
                           return parx::nn::cross_entropy(m(batch.x), batch.y,
                                                          {.row_weights = batch.weights});
                         },
                         s.options};
  const parx::data::loader held_out{
      source, {.batch_size = 7, .sampler = parx::data::distributed_sampler{s.samples, group}}};
  if (s.options.eval_strategy != train::strategy::no) {
    trainer.add_evaluation(held_out, [](auto& m, auto& batch) -> train::metrics {
      const auto logits = m(batch.x);
      return {{"loss", parx::nn::cross_entropy(logits, batch.y, {.row_weights = batch.weights})},
              {"accuracy", parx::nn::accuracy(logits, batch.y, {.row_weights = batch.weights})}};
    });
  }
  use(trainer);
  result made;
  made.last = trainer.train();
  model.for_each_parameter([&](const std::string&, auto& p) {
    made.parameters.insert(made.parameters.end(), p.value().data(),
                           p.value().data() + p.value().size());
  });
  made.state = trainer.state();
  return made;
}

template <typename Use>
result run(parx::process_group& group, const setup& s, Use&& use) {
  return run_wrapped(
      s, [&](classifier& model) { return parx::ddp{model, group, {.hook = s.hook}}; }, use);
}

// The same on threads as ranks; every rank's result.
template <typename Use>
std::vector<result> on_ranks(int world, const setup& s, Use use) {
  std::vector<result> results(static_cast<std::size_t>(world));
  parx::run_threads(world, [&](parx::process_group& group) {
    results[static_cast<std::size_t>(group.rank())] = run(group, s, use);
  });
  return results;
}
inline std::vector<result> on_ranks(int world, const setup& s) {
  return on_ranks(world, s, [](auto&) {});
}

// The figures of one name in the log, in order.
inline std::vector<double> curve(const train::trainer_state& state, const std::string& name) {
  std::vector<double> values;
  for (const train::record& line : state.log_history) {
    if (const auto value = line.find(name)) values.push_back(*value);
  }
  return values;
}

}  // namespace runs
