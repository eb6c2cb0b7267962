// tensor_parallel: one wrapper for a model whose layers are cut and which is in a ddp or fsdp over
// the ranks that have the same parts.
//
//   parx::mesh<"dp", "tp"> mesh{world, {2, 2}};
//   const auto cut = parx::parallelize(model, mesh["tp"], parx::tp::ready_plan(model));
//   parx::fsdp fsdp{model, mesh["dp"]};            // or model.initialize(seed) and a ddp
//   parx::tensor_parallel parallel{cut, fsdp, mesh.all()};
//   parx::optim::adamw opt{parallel.parameters()};
//   parx::train::trainer trainer{parallel, opt, loader, [](auto& model, auto& batch) {
//     return parx::nn::cross_entropy(model(batch.x), batch.y);
//   }};
//
// Samples are distributed over mesh["dp"]; ranks that differ only in "tp" get the same. Losses,
// norms and steps are those of one process, except for the order of sums. For a trainer include
// <parx/tensor_parallel.hpp> and <parx/train.hpp>, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <parx/autograd/parameter.hpp>
#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/whole_value.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/hash.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

namespace parx::inline PARX_ABI {

/// Inner: a ddp or an fsdp.
template <typename Inner>
class tensor_parallel : public distributed_wrapper {
 public:
  /// Local. `job` has all ranks: those of the axis times those of `inner`. All are borrowed. Throws
  /// usage_error if the numbers of ranks do not match.
  tensor_parallel(const parallelized& cut, Inner& inner, process_group& job,
                  call_site site = call_site::current())
      : cut_(cut), inner_(inner), job_(job) {
    require(axis().size() * inner.data_group().size() == job.size(),
            "tensor_parallel at {}: layers are cut over {} ranks and samples dealt out to {}, "
            "which are not the {} ranks of group \"{}\"",
            site, axis().size(), inner.data_group().size(), job.size(), job.name());
  }

  /// The model's forward pass. Collective over the axis; over the job if `inner` is an fsdp.
  template <typename... Inputs>
  decltype(auto) operator()(Inputs&&... inputs) {
    return inner_(std::forward<Inputs>(inputs)...);
  }
  [[nodiscard]] const parallelized& cut() const noexcept { return cut_; }
  [[nodiscard]] Inner& inner() noexcept { return inner_; }
  /// The ranks over which layers are cut.
  [[nodiscard]] process_group& axis() const noexcept { return cut_.axis().group(); }

  /// Collective over the job. Calls use(path, tensor<T>) with the whole values of each parameter,
  /// one at a time, in the order of the model, on all ranks.
  template <typename Use>
  void for_each_whole_value(Use&& use, call_site site = call_site::current()) {
    inner_.module().for_each_parameter([&]<typename T>(const std::string& path,
                                                       parameter<T>& part) {
      const bool is_counted = inner_.replica_group().rank() == 0 && cut_.is_counted(path);
      use(path, detail::whole_value(job_, part.global_shape(), is_counted ? &part : nullptr, site));
    });
  }
  /// Collective over the job. A hash of all values: the same on all ranks, and equal to that of a
  /// ddp with the same values.
  [[nodiscard]] std::uint64_t values_hash(call_site site = call_site::current()) {
    std::uint64_t hash = detail::fnv1a({});
    for_each_whole_value(
        [&]<typename T>(const std::string&, const tensor<T>& whole) {
          hash = detail::hash_of(whole, hash);
        },
        site);
    return hash;
  }

  // For saving (checkpoint/distributed_wrapper.hpp).

  static constexpr std::string_view keeps = "a tensor_parallel keeps a part of each layer";
  void before_save(call_site /*site*/) const noexcept {}
  /// Throws usage_error for a ddp whose hook has state.
  void require_resumable(call_site site) {
    require(!inner_.has_hook_state(),
            "checkpoint at {}: the ddp's hook has state, which cannot be saved if layers are cut: "
            "use a hook without state",
            site);
  }
  /// Call this before parameters are written by anything other than an optimizer or load(): it
  /// invalidates the gathered values of an fsdp.
  void before_write() {
    module().for_each_parameter([](const std::string&, auto& part) {
      if (part.observer() != nullptr) part.observer()->before_write();
    });
  }

  // For the trainer (train/wrapped_model.hpp).

  [[nodiscard]] process_group& data_group() noexcept { return inner_.data_group(); }
  [[nodiscard]] process_group& job_group() noexcept { return job_; }
  [[nodiscard]] decltype(auto) module() noexcept { return inner_.module(); }
  [[nodiscard]] decltype(auto) parameters() { return inner_.parameters(); }
  [[nodiscard]] auto no_sync() noexcept { return inner_.no_sync(); }
  void zero_grad() { inner_.zero_grad(); }
  void raise_flag() noexcept { inner_.raise_flag(); }
  /// Collective over the axis: the gradients have brought the flag only to the ranks with the same
  /// parts.
  [[nodiscard]] bool flag_raised(call_site site = call_site::current()) {
    return on_any_rank(axis(), inner_.flag_raised(), site);
  }
  /// Collective over the job. Gives all ranks rank 0's buffers.
  void broadcast_buffers(call_site site = call_site::current()) {
    inner_.module().for_each_buffer([&](const std::string&, auto& buffer) {
      broadcast(job_, buffer.value().span(), {.root = 0}, site);
    });
  }
  [[nodiscard]] auto times() const noexcept { return inner_.times(); }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return inner_.bucket_count(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const noexcept {
    return inner_.bucket_bytes(index);
  }

 private:
  const parallelized& cut_;
  Inner& inner_;
  process_group& job_;
};

}  // namespace parx
