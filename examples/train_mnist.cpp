// Trains a classifier of images with DDP: an MLP or a CNN, on MNIST-like IDX files or generated digits.
//   parxrun -n 4 build/release/bin/train_mnist --data /usr/share/datasets/fashion-mnist --model cnn
//   srun -N 3 --ntasks-per-node=2 build/release/bin/train_mnist --data mnist --epochs 5
#include <cstdio>
#include <string>
#include <variant>

#include <cxxopts.hpp>

#include <parx/data.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/trace.hpp>

namespace nn = parx::nn;

struct settings {
  std::string data, model, save;
  std::size_t epochs, batch_size;
  double lr;
  std::uint64_t seed;
};

// Held-out accuracy over all ranks, each of which looks at its share of the images.
template <typename Model, typename Dataset>
double evaluate(Model& model, const Dataset& test, parx::world& world) {
  const parx::no_grad guard;
  model.eval();
  nn::tally right;
  const parx::data::loader loader{test, {.batch_size = 250, .sampler = parx::data::distributed_sampler{
      test.size(), world, {.order = parx::data::sample_order::sequential}}}};
  for (auto& batch : loader.epoch(0)) {
    right += nn::accuracy(model(batch.x), batch.y, {.row_weights = batch.weights});
  }
  model.train();
  return parx::global_mean(world, right.sum, right.count);
}

template <typename Model, typename Dataset>
void train(Model model, const Dataset& images, const Dataset& test, const settings& s, parx::world& world) {
  model.initialize(s.seed);
  parx::ddp ddp{model, world};
  parx::optim::adamw opt{ddp.parameters(), {.lr = s.lr}};
  const parx::data::loader loader{images, {.batch_size = s.batch_size, .sampler =
      parx::data::distributed_sampler{images.size(), world, {.seed = s.seed}}}};
  const std::size_t steps = s.epochs * loader.batches();
  const parx::optim::schedule schedule{.lr = s.lr, .warmup = steps / 20, .steps = steps,
                                       .decay = parx::optim::decay::cosine};
  parx::print0(world, "{} parameters in {} buckets, {} + {} images, {} ranks x batch {}\n",
               model.parameter_count(), ddp.bucket_count(), images.size(), test.size(), world.size(),
               s.batch_size);
  parx::progress progress{{.total = steps, .enabled = world.rank() == 0}};
  std::size_t step = 0;
  double accuracy = 0;
  for (std::size_t epoch = 0; epoch < s.epochs; ++epoch) {
    nn::tally loss_of_epoch;
    for (auto& batch : loader.epoch(epoch)) {
      opt.options().lr = schedule.at(step);
      const auto loss = nn::cross_entropy(ddp(batch.x), batch.y, {.row_weights = batch.weights});
      loss.backward();
      opt.step();
      loss_of_epoch += {.sum = loss.sum.item(), .count = loss.count};
      progress.update(++step, fmt::format("loss {:.3f}", loss.mean()));
    }
    const double loss = parx::global_mean(world, loss_of_epoch.sum, loss_of_epoch.count);
    accuracy = evaluate(model, test, world);
    progress.print(fmt::format("epoch {}: loss {:.4f}, held-out accuracy {:.2f} %", epoch + 1, loss,
                               100 * accuracy));
  }
  progress.finish();
  const bool equal = ddp.replicas_equal();
  parx::print0(world, "parameters are {} on all {} ranks (hash {:016x})\n",
               equal ? "bit-equal" : "DIFFERENT", world.size(), ddp.values_hash());
  if (!s.save.empty()) {
    parx::save0(world, model, s.save);
    parx::print0(world, "saved to {}\n", s.save);
  }
  parx::print0(world, "held-out accuracy: {:.2f} %\n", 100 * accuracy);
}

template <typename Dataset>
void choose_model(const Dataset& images, const Dataset& test, const settings& s, parx::world& world) {
  if (s.model == "mlp") {
    train(nn::sequential{nn::flatten{}, nn::linear{784, 256}, nn::relu{}, nn::linear{256, 10}}, images,
          test, s, world);
  } else {
    train(nn::sequential{nn::conv2d{1, 16, 3, {.padding = 1}}, nn::relu{}, nn::max_pool2d{2},
                         nn::conv2d{16, 32, 3, {.padding = 1}}, nn::relu{}, nn::max_pool2d{2},
                         nn::flatten{}, nn::linear{32 * 7 * 7, 128}, nn::relu{}, nn::linear{128, 10}},
          images, test, s, world);
  }
}

int main(int argc, char** argv) {
  cxxopts::Options options("train_mnist", "Trains an image classifier, data parallel");
  options.add_options()
      ("data", "folder with the IDX files (.gz too); generated digits without it", cxxopts::value<std::string>()->default_value(""))
      ("model", "mlp or cnn", cxxopts::value<std::string>()->default_value("mlp"))
      ("epochs", "passes over the images", cxxopts::value<std::size_t>()->default_value("5"))
      ("batch-size", "images of one rank in one step", cxxopts::value<std::size_t>()->default_value("32"))
      ("lr", "highest learning rate", cxxopts::value<double>()->default_value("0.002"))
      ("seed", "of weights and order", cxxopts::value<std::uint64_t>()->default_value("0"))
      ("save", "write the model to this .safetensors file", cxxopts::value<std::string>()->default_value(""))
      ("h,help", "print this");
  return parx::run([&](parx::world& world) {
    settings s;
    try {
      const auto given = options.parse(argc, argv);
      if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
      s = {given["data"].as<std::string>(), given["model"].as<std::string>(), given["save"].as<std::string>(),
           given["epochs"].as<std::size_t>(), given["batch-size"].as<std::size_t>(),
           given["lr"].as<double>(), given["seed"].as<std::uint64_t>()};
    } catch (const cxxopts::exceptions::exception& wrong) {
      throw parx::usage_error(fmt::format("{}; --help lists the options", wrong.what()));
    }
    parx::require(s.model == "mlp" || s.model == "cnn", "--model must be mlp or cnn, not {}", s.model);
    fmt::print("[RANK {}] WORLD_SIZE={}\n", world.rank(), world.size());
    if (!s.save.empty()) parx::check_writable0(world, s.save);
    if (s.data.empty()) {
      choose_model(parx::data::generated_digits{20'000}, parx::data::generated_digits{10'000, {.first = 20'000}}, s, world);
    } else {
      auto images = parx::data::image_dataset::from_folder(s.data, "train");
      const auto scale = images.statistics();
      images = std::move(images).with(scale);
      choose_model(images, parx::data::image_dataset::from_folder(s.data, "t10k", scale), s, world);
    }
  });
}
