// Trains a convolutional image classifier with the trainer: MNIST-like IDX files or drawn digits.
//   parxrun -n 2 build/release/bin/train_cnn --data /usr/share/datasets/fashion-mnist --explain
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_cnn --data mnist --output-dir out
#include <optional>
#include <string>

#include "trainer_flags.hpp"
#include <parx/data.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace data = parx::data;
namespace nn = parx::nn;

namespace {

enum class norms { batch, none };

/// Two convolutions, each with a pooling of 2 x 2, and two linear layers, for 28 x 28 pixels. The
/// first convolution makes `channels`, the second twice as many.
class cnn : public nn::module<cnn> {
 public:
  using value_type = float;

  cnn(std::size_t channels, double dropout, norms kind, parx::process_group& group)
      : first_{1, channels, 3, {.padding = 1}},
        second_{channels, 2 * channels, 3, {.padding = 1}},
        hidden_{2 * channels * 7 * 7, 128},
        dropout_{dropout},
        classes_{128, 10} {
    if (kind == norms::none) return;
    first_norm_.emplace(channels, group);
    second_norm_.emplace(2 * channels, group);
  }

  [[nodiscard]] parx::variable<float> forward(const parx::variable<float>& images) {
    auto x = first_(images);
    x = parx::max_pool2d(parx::relu(first_norm_ ? (*first_norm_)(x) : x), {.size = 2});
    x = second_(x);
    x = parx::max_pool2d(parx::relu(second_norm_ ? (*second_norm_)(x) : x), {.size = 2});
    return classes_(dropout_(parx::relu(hidden_(parx::flatten(x)))));
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("conv1", first_);
    if (first_norm_) visit("norm1", *first_norm_);
    visit("conv2", second_);
    if (second_norm_) visit("norm2", *second_norm_);
    visit("hidden", hidden_);
    visit("dropout", dropout_);
    visit("classifier", classes_);
  }

 private:
  nn::conv2d<float> first_, second_;
  std::optional<parx::sync_batch_norm<float>> first_norm_, second_norm_;
  nn::linear<float> hidden_;
  nn::dropout dropout_;
  nn::linear<float> classes_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto text = [](auto value) { return cxxopts::value<std::string>()->default_value(value); };
  cxxopts::Options options("train_cnn", "Trains a convolutional image classifier, data parallel\n");
  options.add_options()("h,help", "print this");
  options.add_options("Data and model")
      ("data", "folder with the IDX files (.gz too); else drawn digits", text(""))
      ("shift", "images to train with are moved by so many pixels at most", text("0"))
      ("mirror", "half of the images to train with are mirrored", cxxopts::value<bool>())
      ("channels", "of the first convolution", text("32"))
      ("norm", "batch (over the images of all ranks) or none", text("batch"))
      ("dropout", "before the last layer", text("0.25"))
      ("label-smoothing-factor", "part of a label that goes to all classes", text("0"))
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
    const auto s = examples::trainer_flags(given);
    const data::augmentation changes{
        examples::number<std::size_t>(given, "shift", 0, 27),
        given["mirror"].as<bool>() ? data::mirror::allowed : data::mirror::never};
    const auto channels = examples::number<std::size_t>(given, "channels", 1, 4096);
    const bool plain = examples::choice(given, "norm", {"batch", "none"}) == "none";
    const auto smoothing = examples::number(given, "label-smoothing-factor", 0.0, 1.0);
    const auto ema_decay = examples::number(given, "ema-decay", 0.0, 1.0);
    examples::start_run(world, s);

    data::any_dataset images = data::generated_digits{20'000};
    data::any_dataset held_out = data::generated_digits{10'000, {.first = 20'000}};
    if (const auto path = given["data"].as<std::string>(); !path.empty()) {
      auto read = data::image_dataset::from_folder(path, "train");
      const auto scale = read.statistics();
      images = std::move(read).with(scale);
      held_out = data::image_dataset::from_folder(path, "t10k", scale);
    }

    cnn model(channels, examples::number(given, "dropout", 0.0, 0.99),
              plain ? norms::none : norms::batch, world);
    model.initialize(s.trainer.seed);
    parx::ddp ddp{model, world};
    parx::optim::adamw opt{parx::optim::decay_groups(
        ddp.parameters(), parx::optim::adamw_options{.weight_decay = s.weight_decay})};
    const data::distributed_sampler shuffled{images.size(), world, {.seed = s.trainer.seed}};
    const data::loader loader{images, {s.batch_size, shuffled}};
    const data::distributed_sampler all{held_out.size(), world};
    const data::loader test{held_out, {s.eval_batch_size, all}};
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
