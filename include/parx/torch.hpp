// torch: data parallel training of libtorch's modules, which C++ has no DistributedDataParallel
// for.
//
//   auto model = std::make_shared<net>();      // any torch::nn::Module, unchanged
//   parx::torch_ddp ddp{*model, world};        // values and buffers are rank 0's from here on
//   torch::optim::AdamW optimizer(model->parameters(), 1e-3);
//   auto loss = torch::cross_entropy_loss(model->forward(x), y);
//   loss.backward();                           // sums leave while backward runs
//   optimizer.step();                          // every rank takes the same step
//   optimizer.zero_grad();
//
// Needs LibTorch 1.13 or newer (Debian: libtorch-dev), by CMake find_package(Torch) and, beside
// parx::parx, ${TORCH_LIBRARIES}. No other chapter includes this one, parx.hpp neither.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <torch/version.h>
#if defined(__clang__) && TORCH_VERSION_MAJOR < 2
#error "clang does not compile the headers of PyTorch 1.x as C++20, which parx needs: use g++"
#endif

#include <torch/torch.h>
#undef CHECK  // glog's

#include <parx/torch/ddp.hpp>
#include <parx/torch/file.hpp>
