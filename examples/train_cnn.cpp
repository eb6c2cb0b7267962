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
      ("h,help", "print this");
  examples::add_trainer_flags(options, {.trainer = {.learning_rate = 0.002,
                                                    .warmup_ratio = 0.05,
                                                    .logging_steps = 50,
                                                    .eval_strategy = parx::train::strategy::epoch,
                                                    .save_strategy = parx::train::strategy::epoch,
                                                    .save_total_limit = 2,
                                                    .metric_for_best_model = "accuracy"},
                                        .eval_batch_size = 250});
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto s = examples::trainer_flags(given);
    examples::start_run(world, s);

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
    model.initialize(s.trainer.seed);
    parx::ddp ddp{model, world};
    parx::optim::adamw opt{parx::optim::decay_groups(
        ddp.parameters(), parx::optim::adamw_options{.weight_decay = s.weight_decay})};
    const data::loader loader{images, {.batch_size = s.batch_size,
                                       .sampler = data::distributed_sampler{images.size(), world, {.seed = s.trainer.seed}}}};
    const data::loader held_out{
        test, {.batch_size = s.eval_batch_size,
               .sampler = data::distributed_sampler{test.size(), world, {.order = data::sample_order::sequential}}}};

    parx::train::trainer trainer{ddp, opt, loader,
                                 [](auto& m, auto& batch) {
                                   return nn::cross_entropy(m(batch.x), batch.y, {.row_weights = batch.weights});
                                 },
                                 s.trainer};
    trainer.add_evaluation(held_out, [](auto& m, auto& batch) -> parx::train::metrics {
      const auto logits = m(batch.x);
      return {{"loss", nn::cross_entropy(logits, batch.y, {.row_weights = batch.weights})},
              {"accuracy", nn::accuracy(logits, batch.y, {.row_weights = batch.weights})}};
    });
    trainer.train();
    if (!s.trainer.output_dir.empty()) trainer.save_model(s.trainer.output_dir + "/model.safetensors");
    parx::print0(world, "parameters are {} on all {} ranks (hash {:016x})\n",
                 ddp.replicas_equal() ? "bit-equal" : "DIFFERENT", world.size(), ddp.values_hash());
    examples::finish_run(world, s);
  });
}
