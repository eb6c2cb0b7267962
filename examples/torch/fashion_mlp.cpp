// fashion_mlp: two layers on Fashion-MNIST, data parallel.
//   parxrun -n 2 fashion_mlp [FOLDER [EPOCHS]]
#include "fashion.hpp"

struct mlp : torch::nn::Module {
  mlp() {
    first = register_module("first", torch::nn::Linear(784, 256));
    last = register_module("last", torch::nn::Linear(256, 10));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return last(torch::relu(first(images.flatten(1))));
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

int main(int argc, char** argv) { return fashion_program<mlp>(argc, argv); }
