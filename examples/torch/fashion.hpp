// What both programs on Fashion-MNIST do with their models: data parallel training and a test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <parx/torch.hpp>

#include <parx/comm/metrics.hpp>
#include <parx/comm/print.hpp>
#include <parx/data/formats/idx.hpp>
#include <parx/launch.hpp>

struct labelled_images {
  torch::Tensor images;  // [samples, 1, 28, 28]
  torch::Tensor labels;  // [samples]

  labelled_images at(const torch::Tensor& samples) const {
    return {images.index_select(0, samples), labels.index_select(0, samples)};
  }
};

// `part` is "train" or "t10k".
inline labelled_images read_fashion(const std::string& folder, const std::string& part) {
  auto images = parx::data::read_idx_images(folder + "/" + part + "-images-idx3-ubyte.gz");
  auto labels = parx::data::read_idx_labels(folder + "/" + part + "-labels-idx1-ubyte.gz");
  const auto count = static_cast<std::int64_t>(labels.size());
  const auto pixels = torch::from_blob(images.pixels.data(), {count, 1, 28, 28}, torch::kByte);
  return {(pixels.to(torch::kFloat) / 255 - 0.286) / 0.353,
          torch::from_blob(labels.data(), {count}, torch::kByte).to(torch::kLong)};
}

template <typename Model>
double accuracy(parx::world& world, Model& model, const labelled_images& test) {
  const torch::NoGradGuard guard;
  model.eval();
  const auto mine = torch::arange(world.rank(), test.labels.size(0), world.size());
  double right = 0;
  for (const auto& part : mine.split(500)) {
    const labelled_images batch = test.at(part);
    right += model.forward(batch.images).argmax(1).eq(batch.labels).sum().template item<double>();
  }
  model.train();
  return parx::global_mean(world, right, static_cast<double>(mine.size(0)));
}

template <typename Model>
void train_on_fashion(parx::world& world, Model& model, const std::string& folder, int epochs) {
  const labelled_images train = read_fashion(folder, "train"), test = read_fashion(folder, "t10k");
  parx::torch_ddp ddp{model, world};
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
  const std::int64_t samples = train.labels.size(0), step = 128;  // of all ranks
  for (int epoch = 0; epoch < epochs; ++epoch) {
    torch::manual_seed(epoch);  // all ranks draw the same order, and each takes its part of a step
    const auto order = torch::randperm(samples, torch::kLong);
    double sum = 0;
    for (std::int64_t first = 0; first < samples; first += step) {
      const auto part = order.slice(0, first, std::min(samples, first + step))
                            .tensor_split(world.size())[static_cast<std::size_t>(world.rank())];
      const labelled_images batch = train.at(part);
      const auto loss = torch::cross_entropy_loss(ddp(batch.images), batch.labels);
      // Parts of a step may differ by a sample: every sample has the same weight.
      const auto count = static_cast<double>(part.size(0));
      ddp.backward(loss, count);
      optimizer.step();
      optimizer.zero_grad();
      sum += count > 0 ? loss.template item<double>() * count : 0;
    }
    const double mean = parx::global_mean(world, sum, static_cast<double>(samples) / world.size());
    parx::print0(world, "epoch {}: loss {:.4f}, accuracy {:.4f}\n", epoch + 1, mean,
                 accuracy(world, model, test));
  }
  if (world.rank() == 0) parx::save_torch(model, "fashion.safetensors");
}

// program [FOLDER [EPOCHS]]
template <typename Model>
int fashion_program(int argc, char** argv) {
  return parx::run([&](parx::world& world) {
    torch::manual_seed(1);
    Model model;
    train_on_fashion(world, model, argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist",
                     argc > 2 ? std::stoi(argv[2]) : 3);
  });
}
