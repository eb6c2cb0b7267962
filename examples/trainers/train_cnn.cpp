// Trains a convolutional image classifier with the trainer: MNIST-like IDX files, CIFAR's binary
// version, or drawn digits.
//   parxrun -n 2 build/release/bin/train_cnn --data /usr/share/datasets/fashion-mnist --explain
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_cnn --data mnist --output-dir out
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "parallel_flags.hpp"
#include "trainer_flags.hpp"
#include <parx/data.hpp>
#include <parx/ddp/sync_batch_norm.hpp>
#include <parx/models/cnn.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/parallel.hpp>
#include <parx/train.hpp>

namespace data = parx::data;
namespace nn = parx::nn;

namespace {

struct recipe {
  data::augmentation changes;
  double label_smoothing = 0, ema_decay = 0;
};

template <typename Model>
void train(Model net, const data::any_dataset& images, const data::any_dataset& held_out,
           const recipe& how, const examples::trainer_settings& s, const parx::layout& layout,
           parx::world& world) {
  parx::parallel model{net, world, layout};
  model.initialize(s.trainer.seed);
  parx::optim::adamw opt{parx::optim::decay_groups(
      model.parameters(), parx::optim::adamw_options{.weight_decay = s.weight_decay})};
  const data::loader loader{images, model, {.batch_size = s.batch_size,
                                            .samples = {.seed = s.trainer.seed},
                                            .workers = s.workers}};
  const data::loader test{held_out, model,
                          {.batch_size = s.eval_batch_size,
                           .samples = {.order = data::sample_order::sequential}}};
  std::uint64_t step = 0;
  parx::train::trainer trainer{
      model, opt, loader,
      [&](auto& wrapped, const auto& batch) {
        auto seen = batch;
        auto changes = how.changes;
        const auto mine = wrapped.replicas();
        changes.first_image = batch.size() * std::size_t(mine.first) / std::size_t(mine.size());
        seen.x = data::augmented(batch.x, changes, parx::train::step_seed(s.trainer.seed, step, 0));
        return wrapped.forward_backward(seen, [&](const auto& logits, const auto& part) {
          return nn::cross_entropy(logits, part.y, {.row_weights = part.weights,
                                                    .label_smoothing = how.label_smoothing});
        });
      },
      s.trainer};
  trainer.add_evaluation(test, [](auto& wrapped, const auto& batch) {
    return wrapped.evaluate(
        batch, [](const auto& logits, const auto& part) -> parx::train::metrics {
          const parx::cross_entropy_options weighted{.row_weights = part.weights};
          return {{"loss", nn::cross_entropy(logits, part.y, weighted)},
                  {"accuracy", nn::accuracy(logits, part.y, weighted)}};
        });
  });
  parx::optim::ema average{model.parameters(), {.decay = how.ema_decay}};
  trainer.add_callbacks({.on_train_begin = [&](const auto& state) { step = state.global_step; },
                         .on_step_end = [&](const auto& state) {
                           step = state.global_step;
                           if (how.ema_decay > 0) average.update();
                         }});
  if (how.ema_decay > 0) trainer.add_state("ema", average);
  trainer.train();
  parx::print0(world, "test accuracy: {:.2f} % of {} images\n",
               100 * trainer.evaluate().at("eval_accuracy"), held_out.size());
  if (how.ema_decay > 0) {
    const auto averaged = average.swap();
    parx::print0(world, "test accuracy of the averaged weights: {:.2f} %\n",
                 100 * trainer.evaluate().at("eval_accuracy"));
  }
  const std::string& to = s.trainer.output_dir;
  if (!to.empty()) trainer.save_model(to + "/model.safetensors");
}

}  // namespace

int main(int argc, char** argv) {
  using examples::text;
  cxxopts::Options options("train_cnn", "Trains a convolutional image classifier, data parallel\n"
                           "Guide: examples/guide/trainer.md\n");
  options.add_options()("h,help", "print this");
  options.add_options("Data and model")
      ("data", "folder with IDX (.gz too) or CIFAR .bin files; else drawn digits", text(""))
      ("shift", "move training images by up to this many pixels", text("0"))
      ("mirror", "mirror half of the training images", cxxopts::value<bool>())
      ("channels", "of the first convolution", text("32"))
      ("norm", "batch (over the images of all ranks, or of a replica) or none", text("batch"))
      ("dropout", "before the last layer", text("0.25"))
      ("label-smoothing-factor", "fraction of a label spread over all classes", text("0"))
      ("ema-decay", "evaluate an average of the weights at the end; 0: none", text("0"));
  examples::add_parallel_flag(options);
  using parx::train::strategy;
  examples::add_trainer_flags(
      options, {.trainer = {.num_train_epochs = 5, .learning_rate = 2e-3, .warmup_ratio = 0.05,
                            .logging_steps = 100, .eval_strategy = strategy::epoch,
                            .save_strategy = strategy::epoch, .save_total_limit = 2,
                            .metric_for_best_model = "accuracy"},
                .eval_batch_size = 250});
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto s = examples::trainer_flags(given, world, {"loss", "accuracy"});
    recipe how;
    how.changes.shift = examples::number<std::size_t>(given, "shift", 0, 27);
    if (given["mirror"].as<bool>()) how.changes.mirror = data::mirror::allowed;
    how.label_smoothing = examples::number(given, "label-smoothing-factor", 0.0, 1.0);
    how.ema_decay = examples::number(given, "ema-decay", 0.0, 1.0);
    using parx::models::cnn_norm;
    const bool plain = examples::choice(given, "norm", {"batch", "none"}) == "none";
    parx::models::cnn_config config;
    config.hidden_channels = examples::number<std::size_t>(given, "channels", 1, 4096);
    config.classifier_dropout = examples::number(given, "dropout", 0.0, 0.99);
    config.norm = plain ? cnn_norm::none : cnn_norm::batch;
    examples::start_run(world, s);

    data::any_dataset images = data::generated_digits{20'000};
    data::any_dataset held_out = data::generated_digits{10'000, {.first = 20'000}};
    if (const auto path = given["data"].as<std::string>(); !path.empty()) {
      auto read = data::image_dataset::from_folder(path, data::split::train);
      const auto scale = read.statistics();
      config.image_channels = read.channels();
      config.image_rows = read.rows();
      config.image_columns = read.columns();
      config.num_labels = read.classes();
      images = std::move(read).with(scale);
      held_out = data::image_dataset::from_folder(path, data::split::test, scale);
    }

    const parx::layout layout = examples::parallel_flag(given);
    // A virtual replica has the statistics of its own images.
    if (layout.replicas > 0) {
      train(parx::models::cnn<>{config}, images, held_out, how, s, layout, world);
    } else {
      train(parx::models::cnn<float, parx::sync_batch_norm<float>>{config, world}, images, held_out,
            how, s, layout, world);
    }
    examples::finish_run(world, s);
  });
}
