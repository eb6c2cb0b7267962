// The state of an optimizer over parts of parameters, as the file that torch::save writes of one
// over the whole parameters.
//
// Libtorch writes an optimizer as nested archives: "param_groups" has, for each group and
// parameter, a key, and "state" an archive under that key. A tensor with the sizes of the part is
// one that has a number for each element, as Adam's moments; what else there is (numbers of steps)
// belongs to the whole parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>
#undef CHECK

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/torch/leaf.hpp>

namespace parx::inline PARX_ABI::detail {

using torch_leaves = std::vector<std::unique_ptr<torch_leaf>>;

/// What rank `rank` has of leaf `index`.
[[nodiscard]] inline shard_spec part_of_leaf(const torch_leaves& leaves, const unit_plan& plan,
                                             std::size_t index, std::size_t rank) {
  return plan.part(shard_spec::whole(parx::shape(std::span(leaves[index]->shape))), index, rank);
}

inline void copy_archive(::torch::serialize::InputArchive& from,
                         ::torch::serialize::OutputArchive& to) {
  for (const std::string& key : from.keys()) {
    at::IValue value;
    from.read(key, value);
    if (!value.isObject()) {
      to.write(key, value);
      continue;
    }
    ::torch::serialize::InputArchive inner;
    ::torch::serialize::OutputArchive copy(to.compilation_unit());
    from.read(key, inner);
    copy_archive(inner, copy);
    to.write(key, copy);
  }
}

/// The keys of the parameters in an optimizer's archive, by group.
[[nodiscard]] inline std::vector<std::vector<std::string>> parameter_keys(
    ::torch::serialize::InputArchive& groups) {
  const auto size_in = [](::torch::serialize::InputArchive& archive, const std::string& key) {
    at::Tensor size;
    archive.read(key, size);
    return size.item<std::int64_t>();
  };
  std::vector<std::vector<std::string>> all(
      static_cast<std::size_t>(size_in(groups, "param_groups/size")));
  for (std::size_t i = 0; i < all.size(); ++i) {
    ::torch::serialize::InputArchive group;
    groups.read("param_groups/" + std::to_string(i), group);
    const std::int64_t size = size_in(group, "params/size");
    for (std::int64_t each = 0; each < size; ++each) {
      at::IValue key;
      group.read("params/" + std::to_string(each), key);
      all[i].push_back(key.toStringRef());
    }
  }
  return all;
}

/// A copy of an optimizer's archive in which the tensors of the state of `optimizer`'s n-th
/// parameter are change(parameter, name, tensor), in the same order on all ranks.
template <typename Change>
[[nodiscard]] ::torch::serialize::OutputArchive changed_archive(
    ::torch::serialize::InputArchive& from, const ::torch::optim::Optimizer& optimizer,
    const std::string& what, Change change) {
  ::torch::serialize::InputArchive groups, states;
  ::torch::serialize::OutputArchive to;
  ::torch::serialize::OutputArchive new_groups(to.compilation_unit());
  ::torch::serialize::OutputArchive new_states(to.compilation_unit());
  at::IValue version;
  from.read("pytorch_version", version);
  from.read("param_groups", groups);
  from.read("state", states);
  to.write("pytorch_version", version);
  copy_archive(groups, new_groups);
  const auto keys = parameter_keys(groups);
  const auto& of = optimizer.param_groups();
  require(keys.size() == of.size(), "{} is of {} groups of parameters, and the optimizer has {}",
          what, keys.size(), of.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    require(keys[i].size() == of[i].params().size(),
            "{} has {} parameters in group {}, and the optimizer {}", what, keys[i].size(), i,
            of[i].params().size());
    for (std::size_t each = 0; each < keys[i].size(); ++each) {
      ::torch::serialize::InputArchive state;
      if (!states.try_read(keys[i][each], state)) continue;
      ::torch::serialize::OutputArchive new_state(to.compilation_unit());
      for (const std::string& name : state.keys()) {
        at::IValue value;
        state.read(name, value);
        if (value.isTensor()) value = change(of[i].params()[each], name, value.toTensor());
        new_state.write(name, value);
      }
      new_states.write(keys[i][each], new_state);
    }
  }
  to.write("state", new_states);
  to.write("param_groups", new_groups);
  return to;
}

[[nodiscard]] inline std::size_t index_of_part(const torch_leaves& leaves, const at::Tensor& part) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i]->stepped.is_same(part)) return i;
  }
  throw_usage("an optimizer has a tensor [{}] that is not one of zero.parameters()",
              joined_text(part.sizes()));
}

/// Collective: rank 0 writes, whole or not at all.
inline void save_whole_optimizer(const ::torch::optim::Optimizer& optimizer,
                                 const std::string& path, const torch_leaves& leaves,
                                 const unit_plan& plan, process_group& group, call_site site) {
  std::stringstream bytes;
  ::torch::serialize::OutputArchive own;
  optimizer.save(own);
  own.save_to(bytes);
  ::torch::serialize::InputArchive parts;
  parts.load_from(bytes);
  const auto whole_of = [&](const at::Tensor& part, const std::string&, const at::Tensor& state) {
    if (state.sizes() != part.sizes()) return state;
    const std::size_t index = index_of_part(leaves, part);
    const at::Tensor& of = leaves[index]->parameter;
    at::Tensor whole = at::empty_strided(of.sizes(), of.strides(), state.options());
    const auto bytes_of_one = static_cast<std::size_t>(state.element_size());
    std::vector<std::size_t> counts;  // in bytes
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank) {
      counts.push_back(part_of_leaf(leaves, plan, index, rank).size() * bytes_of_one);
    }
    const at::Tensor mine = state.contiguous();
    all_gather_v(group, std::span(static_cast<const std::byte*>(mine.data_ptr()), mine.nbytes()),
                 std::span(static_cast<std::byte*>(whole.data_ptr()), whole.nbytes()), counts, {},
                 site);
    return whole;
  };
  auto whole = changed_archive(parts, optimizer, "the state", whole_of);
  if (group.rank() != 0) return;
  const std::string partial = path + ".partial";
  whole.save_to(partial);
  std::filesystem::rename(partial, path);
}

/// Local. Throws errc::bad_data where there is no such file, and errc::mismatch where it is of
/// other parameters.
inline void load_optimizer_parts(::torch::optim::Optimizer& optimizer, const std::string& path,
                                 const torch_leaves& leaves, const unit_plan& plan, int rank) try {
  ::torch::serialize::InputArchive whole;
  whole.load_from(path);
  const auto part_of = [&](const at::Tensor& part, const std::string& name,
                           const at::Tensor& state) {
    const std::size_t index = index_of_part(leaves, part);
    const at::Tensor& of = leaves[index]->parameter;
    if (state.dim() == 0 && of.dim() > 0) return state;
    if (state.sizes() != of.sizes()) {
      throw_error(errc::mismatch, "{}: {} of \"{}\" is [{}], and the parameter is [{}]", path, name,
                  leaves[index]->name, joined_text(state.sizes()), joined_text(of.sizes()));
    }
    at::Tensor ordered = at::empty_strided(of.sizes(), of.strides(), state.options());
    ordered.copy_(state);
    const shard_spec spec = part_of_leaf(leaves, plan, index, static_cast<std::size_t>(rank));
    return ordered.as_strided({of.numel()}, {1})
        .narrow(0, static_cast<std::int64_t>(spec.flat_begin()), part.numel())
        .clone();
  };
  auto parts = changed_archive(whole, optimizer, path, part_of);
  std::stringstream bytes;
  parts.save_to(bytes);
  ::torch::serialize::InputArchive own;
  own.load_from(bytes);
  optimizer.load(own);
} catch (const c10::Error& failure) {
  throw_error(errc::bad_data, "cannot read \"{}\" as what torch::save(optimizer, path) wrote: {}",
              path, failure.what_without_backtrace());
}

}  // namespace parx::detail
