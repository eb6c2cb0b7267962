// save_torch and load_torch: a libtorch model's parameters and buffers as a safetensors file, which
// Python's safetensors.torch reads and writes under the same names. (torch::save and torch::load go
// on working, on one rank each.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>
#undef CHECK

#include <parx/checkpoint/safetensors.hpp>
#include <parx/core/call_context.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/torch/dtype.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Calls visit(name, tensor) for each parameter, then each buffer; of one with several names, under
/// the first.
void for_each_torch_tensor(const ::torch::nn::Module& model, auto&& visit) {
  for (const auto& item : model.named_parameters()) visit(item.key(), item.value());
  for (const auto& item : model.named_buffers()) {
    if (item.value().defined()) visit(item.key(), item.value());
  }
}

[[nodiscard]] inline dtype stored_type(const std::string& name, const at::Tensor& tensor,
                                       call_site site) {
  const auto type = dtype_of_torch(tensor.scalar_type());
  require(type.has_value(),
          "at {}: \"{}\" has elements of type {}, which a safetensors file of parx has not", site,
          name, at::toString(tensor.scalar_type()));
  return *type;
}

}  // namespace detail

/// Local; call it on one rank. Writes `path` atomically: an existing file is unchanged if it fails.
/// Throws errc::io.
inline void save_torch(const ::torch::nn::Module& model, const std::string& path,
                       call_site site = call_site::current()) {
  std::vector<at::Tensor> held;  // the memory of what is written
  std::vector<tensor_to_store> tensors;
  detail::for_each_torch_tensor(model, [&](const std::string& name, const at::Tensor& tensor) {
    held.push_back(tensor.detach().contiguous());
    const at::Tensor& memory = held.back();
    tensor_to_store& next = tensors.emplace_back();
    next.name = name;
    next.type = detail::stored_type(name, tensor, site);
    for (const auto extent : tensor.sizes())
      next.shape.push_back(static_cast<std::uint64_t>(extent));
    next.data = {static_cast<const std::byte*>(memory.data_ptr()), memory.nbytes()};
  });
  write_safetensors(path, tensors, {{"format", "pt"}});
}

/// Local; every rank may read the same file. Nothing of the model changes unless the file has each
/// of its parameters and buffers, with their shapes and types; tensors of other names are left
/// alone. Throws errc::io, errc::bad_data and, with the first difference, errc::mismatch.
inline void load_torch(::torch::nn::Module& model, const std::string& path,
                       call_site site = call_site::current()) {
  const safetensors_file file =
      with_call_context("load_torch", site, [&] { return safetensors_file(path); });
  std::vector<std::pair<const stored_tensor*, at::Tensor>> found;
  detail::for_each_torch_tensor(model, [&](const std::string& name, const at::Tensor& tensor) {
    const stored_tensor* const stored = file.find(name);
    const auto refuse = [&](const std::string& why) {
      throw error(errc::mismatch, formatted("load_torch at {}: {}: {}", site, path, why));
    };
    if (stored == nullptr)
      refuse(formatted("there is no tensor \"{}\", which the model has", name));
    const std::vector<std::uint64_t> shape(tensor.sizes().begin(), tensor.sizes().end());
    if (stored->shape != shape || stored->type != detail::stored_type(name, tensor, site)) {
      refuse(formatted("\"{}\" is {} [{}] there and {} [{}] in the model", name, stored->dtype_name,
                       joined_text(stored->shape), at::toString(tensor.scalar_type()),
                       joined_text(tensor.sizes())));
    }
    found.emplace_back(stored, tensor);
  });
  const at::NoGradGuard guard;
  for (auto& [stored, tensor] : found) {
    const at::Tensor memory = at::empty(tensor.sizes(), tensor.options().requires_grad(false));
    file.read(*stored, std::span(static_cast<std::byte*>(memory.data_ptr()), memory.nbytes()));
    tensor.detach().copy_(memory);
  }
}

}  // namespace parx
