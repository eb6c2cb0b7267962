// Trains a convolutional image classifier with the trainer, on MNIST-like IDX files or generated digits.
//   parxrun -n 2 build/release/bin/train_cnn --data /usr/share/datasets/fashion-mnist --output-dir out --explain
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_cnn --data mnist --epochs 5 --output-dir out --resume
//   build/release/bin/parx_report out -o report.html
#include <string>

#include "trainer_flags.hpp"
#include <parx/data.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/train.hpp>

namespace data = parx::data;
namespace nn = parx::nn;

int main(int argc, char** argv) {
  const auto text = [](const char* value) { return cxxopts::value<std::string>()->default_value(value); };
  cxxopts::Options options("train_cnn", "Trains a convolutional image classifier, data parallel");
  options.add_options()
      ("data", "folder with the IDX files (.gz too); generated digits without it", text(""))
      ("batch-size", "images of one rank in one batch", text("32"))
      ("h,help", "print this");
  examples::add_trainer_flags(options, {.learning_rate = 0.002, .warmup_ratio = 0.05, .logging_steps = 50,
                                        .save_steps = 0, .save_total_limit = 2, .metric_for_best_model = "accuracy"});
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto training = examples::trainer_options_from(given);
    const auto batch_size = examples::number<std::size_t>(given, "batch-size", 1, 1'000'000);
    fmt::print("[RANK {}] WORLD_SIZE={}\n", world.rank(), world.size());

    data::any_dataset images = data::generated_digits{20'000};
    data::any_dataset test = data::generated_digits{10'000, {.first = 20'000}};
    if (const auto folder = given["data"].as<std::string>(); !folder.empty()) {
      auto read = data::image_dataset::from_folder(folder, "train");
      const auto scale = read.statistics();
      images = std::move(read).with(scale);
      test = data::image_dataset::from_folder(folder, "t10k", scale);
    }

    nn::sequential model{nn::conv2d{1, 16, 3, {.padding = 1}}, nn::relu{}, nn::max_pool2d{2},
                         nn::conv2d{16, 32, 3, {.padding = 1}}, nn::relu{}, nn::max_pool2d{2},
                         nn::flatten{}, nn::linear{1568, 128}, nn::relu{}, nn::dropout{0.25}, nn::linear{128, 10}};
    model.initialize(training.seed);
    parx::ddp ddp{model, world};
    parx::optim::adamw opt{ddp.parameters()};
    const data::loader loader{images, {.batch_size = batch_size,
                                       .sampler = data::distributed_sampler{images.size(), world, {.seed = training.seed}}}};
    const data::loader held_out{
        test, {.batch_size = 250,
               .sampler = data::distributed_sampler{test.size(), world, {.order = data::sample_order::sequential}}}};

    parx::train::trainer trainer{ddp, opt, loader,
                                 [](auto& m, auto& batch) {
                                   return nn::cross_entropy(m(batch.x), batch.y, {.row_weights = batch.weights});
                                 },
                                 training};
    trainer.add_evaluation(held_out, [](auto& m, auto& batch) -> parx::train::metrics {
      const auto logits = m(batch.x);
      return {{"loss", nn::cross_entropy(logits, batch.y, {.row_weights = batch.weights})},
              {"accuracy", nn::accuracy(logits, batch.y, {.row_weights = batch.weights})}};
    });
    trainer.train();
    if (!training.output_dir.empty()) trainer.save_model(training.output_dir + "/model.safetensors");
    parx::print0(world, "parameters are {} on all {} ranks (hash {:016x})\n",
                 ddp.replicas_equal() ? "bit-equal" : "DIFFERENT", world.size(), ddp.values_hash());
  });
}
