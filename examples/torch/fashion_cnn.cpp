// fashion_cnn: two convolutions on Fashion-MNIST, data parallel.
//   parxrun -n 2 fashion_cnn [FOLDER [EPOCHS]]
#include "fashion.hpp"

struct cnn : torch::nn::Module {
  cnn() {
    using options = torch::nn::Conv2dOptions;
    first = register_module("first", torch::nn::Conv2d(options(1, 16, 3).padding(1)));
    second = register_module("second", torch::nn::Conv2d(options(16, 32, 3).padding(1)));
    drop = register_module("drop", torch::nn::Dropout(0.1));
    last = register_module("last", torch::nn::Linear(32 * 7 * 7, 10));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    auto h = torch::max_pool2d(torch::relu(first(images)), 2);
    h = torch::max_pool2d(torch::relu(second(h)), 2);
    return last(drop(h.flatten(1)));
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::Linear last{nullptr};
};

int main(int argc, char** argv) { return fashion_program<cnn>(argc, argv); }
