// Trains a convolutional image classifier with the trainer: MNIST-like IDX files, CIFAR's binary
// version, or drawn digits.
//   parxrun -n 2 build/release/bin/train_cnn --data /usr/share/datasets/fashion-mnist --explain
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_cnn --data mnist --output-dir out
#include <string>

#include "trainer_flags.hpp"
#include <parx/data.hpp>
#include <parx/ddp.hpp>
#include <parx/ddp/sync_batch_norm.hpp>
#include <parx/models/cnn.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace data = parx::data;
namespace nn = parx::nn;

int main(int argc, char** argv) {
  using examples::text;
  cxxopts::Options options("train_cnn", "Trains a convolutional image classifier, data parallel\n");
  options.add_options()("h,help", "print this");
  options.add_options("Data and model")
      ("data", "folder with IDX (.gz too) or CIFAR .bin files; else drawn digits", text(""))
      ("shift", "move training images by up to this many pixels", text("0"))
      ("mirror", "mirror half of the training images", cxxopts::value<bool>())
      ("channels", "of the first convolution", text("32"))
      ("norm", "batch (over the images of all ranks) or none", text("batch"))
      ("dropout", "before the last layer", text("0.25"))
      ("label-smoothing-factor", "fraction of a label spread over all classes", text("0"))
      ("ema-decay", "evaluate an average of the weights at the end; 0: none", text("0"));
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
    const data::augmentation changes{
        examples::number<std::size_t>(given, "shift", 0, 27),
        given["mirror"].as<bool>() ? data::mirror::allowed : data::mirror::never};
    using parx::models::cnn_norm;
    const bool plain = examples::choice(given, "norm", {"batch", "none"}) == "none";
    parx::models::cnn_config config{
        .hidden_channels = examples::number<std::size_t>(given, "channels", 1, 4096),
        .classifier_dropout = examples::number(given, "dropout", 0.0, 0.99),
        .norm = plain ? cnn_norm::none : cnn_norm::batch};
    const auto smoothing = examples::number(given, "label-smoothing-factor", 0.0, 1.0);
    const auto ema_decay = examples::number(given, "ema-decay", 0.0, 1.0);
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

    parx::models::cnn<float, parx::sync_batch_norm<float>> model{config, world};
    model.initialize(s.trainer.seed);
    parx::ddp ddp{model, world};
    parx::optim::adamw opt{parx::optim::decay_groups(
        ddp.parameters(), parx::optim::adamw_options{.weight_decay = s.weight_decay})};
    const data::distributed_sampler sampler{images.size(), world, {.seed = s.trainer.seed}};
    const data::loader loader{
        images, {.batch_size = s.batch_size, .sampler = sampler, .workers = s.workers}};
    const data::distributed_sampler test_sampler{held_out.size(), world};
    const data::loader test{held_out, {.batch_size = s.eval_batch_size, .sampler = test_sampler}};
    std::uint64_t step = 0;
    parx::train::trainer trainer{
        ddp, opt, loader,
        [&](auto& net, const auto& batch) {
          const auto seed = parx::train::step_seed(s.trainer.seed, step, world.rank());
          return nn::cross_entropy(net(data::augmented(batch.x, changes, seed)), batch.y,
                                   {.row_weights = batch.weights, .label_smoothing = smoothing});
        },
        s.trainer};
    trainer.add_evaluation(test, [](auto& net, const auto& batch) -> parx::train::metrics {
      const auto logits = net(batch.x);
      return {{"loss", nn::cross_entropy(logits, batch.y, {.row_weights = batch.weights})},
              {"accuracy", nn::accuracy(logits, batch.y, {.row_weights = batch.weights})}};
    });
    parx::optim::ema average{model.parameters(), {.decay = ema_decay}};
    trainer.add_callbacks({.on_train_begin = [&](const auto& state) { step = state.global_step; },
                           .on_step_end = [&](const auto& state) {
                             step = state.global_step;
                             if (ema_decay > 0) average.update();
                           }});
    if (ema_decay > 0) trainer.add_state("ema", average);
    trainer.train();
    parx::print0(world, "test accuracy: {:.2f} % of {} images\n",
                 100 * trainer.evaluate().at("eval_accuracy"), held_out.size());
    if (ema_decay > 0) {
      const auto averaged = average.swap();
      parx::print0(world, "test accuracy of the averaged weights: {:.2f} %\n",
                   100 * trainer.evaluate().at("eval_accuracy"));
    }
    const std::string& folder = s.trainer.output_dir;
    if (!folder.empty()) trainer.save_model(folder + "/model.safetensors");
    examples::finish_run(world, s);
  });
}
