// Trains an image classifier with DDP: MLP or CNN, on MNIST-like IDX files or generated digits.
//   parxrun -n 4 build/release/bin/train_mnist --data /usr/share/datasets/fashion-mnist --model cnn
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_mnist --data mnist --epochs 5
#include <filesystem>
#include <string>

#include "banner.hpp"
#include "common/networks.hpp"
#include "common/options.hpp"
#include <parx/checkpoint/save.hpp>
#include <parx/checkpoint/writable.hpp>
#include <parx/data.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/trace.hpp>

namespace data = parx::data;
namespace nn = parx::nn;
struct settings {
  std::size_t epochs, batch_size, seed;
  double lr;
  std::string save;
};

// Held-out accuracy over all ranks. Each rank evaluates its part of the images.
template <typename Model>
double evaluate(Model& model, const data::any_dataset& test, parx::world& world) {
  const parx::no_grad guard;
  model.eval();
  nn::tally correct;
  const data::loader loader{
      test, world, {.batch_size = 250, .samples = {.order = data::sample_order::sequential}}};
  for (auto& batch : loader.epoch(0)) {
    correct += nn::accuracy(model(batch.x), batch.y, {.row_weights = batch.weights});
  }
  model.train();
  return parx::global_mean(world, correct);
}

template <typename Model>
void train(Model model, const data::any_dataset& images, const data::any_dataset& test,
           const settings& s, parx::world& world) {
  model.initialize(s.seed);
  parx::ddp ddp{model, world};
  parx::optim::adamw opt{ddp.parameters(), {.lr = s.lr}};
  const data::loader loader{images, ddp, {.batch_size = s.batch_size, .samples = {.seed = s.seed}}};
  const std::size_t steps = s.epochs * loader.batches();
  const parx::optim::lr_schedule schedule{
      .lr = s.lr, .warmup = steps / 20, .steps = steps, .decay = parx::optim::decay::cosine};
  parx::print0(world, "{} parameters, {} + {} images, {} ranks x batch {}\n",
               model.parameter_count(), images.size(), test.size(), world.size(), s.batch_size);
  parx::progress progress{{.total = steps, .enabled = world.rank() == 0}};
  double accuracy = 0;
  for (std::size_t epoch = 0, step = 0; epoch < s.epochs; ++epoch) {
    nn::tally loss_of_epoch;
    for (auto& batch : loader.epoch(epoch)) {
      opt.options().lr = schedule.at(step);
      const auto loss = nn::cross_entropy(ddp(batch.x), batch.y, {.row_weights = batch.weights});
      loss.backward();
      opt.step();
      loss_of_epoch += {.sum = loss.sum.item(), .count = loss.count};
      progress.update(++step, fmt::format("loss {:.3f}", loss.mean()));
    }
    const double loss = parx::global_mean(world, loss_of_epoch);
    accuracy = 100 * evaluate(model, test, world);
    progress.print(fmt::format("epoch {}: loss {:.4f}, held-out accuracy {:.2f} %", epoch + 1, loss,
                               accuracy));
  }
  progress.finish();
  parx::print0(world, "parameters are {} on all {} ranks (hash {:016x})\n",
               ddp.replicas_equal() ? "bit-equal" : "DIFFERENT", world.size(), ddp.values_hash());
  if (!s.save.empty()) {
    parx::save(ddp, s.save);
    parx::print0(world, "saved to {}\n", s.save);
  }
  parx::print0(world, "held-out accuracy: {:.2f} %\n", accuracy);
}

int main(int argc, char** argv) {
  using examples::text;
  cxxopts::Options options("train_mnist", "Trains an image classifier, data parallel\n"
                           "Guide: examples/guide/start.md");
  options.add_options()
      ("data", "folder with the IDX files (.gz too); generated digits without it", text(""))
      ("model", "mlp or cnn", text("mlp"))
      ("epochs", "passes over the images", text("5"))
      ("batch-size", "images of one rank in one step", text("32"))
      ("lr", "highest learning rate", text("0.004"))
      ("seed", "of weights and order", text("0"))
      ("save", "write the model to this .safetensors file", text(""))
      ("h,help", "print this");
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const settings s{examples::number<std::size_t>(given, "epochs", 1, 1'000'000),
                     examples::number<std::size_t>(given, "batch-size", 1, 1'000'000),
                     examples::number<std::size_t>(given, "seed", 0, SIZE_MAX),
                     examples::number(given, "lr", 0.0, 100.0), given["save"].as<std::string>()};
    const std::string model = examples::choice(given, "model", {"mlp", "cnn"});
    const std::string folder = given["data"].as<std::string>();
    examples::print_ranks(world);
    if (!s.save.empty()) parx::require_writable(world, s.save);

    data::any_dataset images = data::generated_digits{20'000};
    data::any_dataset test = data::generated_digits{10'000, {.first = 20'000}};
    if (!folder.empty()) {
      auto read = data::image_dataset::from_folder(folder, data::split::train);
      const auto scale = read.statistics();
      images = std::move(read).with(scale);
      test = data::image_dataset::from_folder(folder, data::split::test, scale);
    }
    parx::print0(world, "data: {}\n",
                 folder.empty() ? "generated digits" : std::filesystem::absolute(folder).string());
    if (model == "mlp") {
      train(nn::sequential{nn::flatten{}, nn::linear{784, 256}, nn::relu{}, nn::linear{256, 10}},
            images, test, s, world);
    } else {
      train(nn::sequential{nn::conv2d{1, 16, 3, {.padding = 1}}, nn::relu{}, nn::max_pool2d{2},
                           nn::conv2d{16, 32, 3, {.padding = 1}}, nn::relu{}, nn::max_pool2d{2},
                           nn::flatten{}, nn::linear{1568, 128}, nn::relu{}, nn::linear{128, 10}},
            images, test, s, world);
    }
  });
}
