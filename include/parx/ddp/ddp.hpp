// ddp: distributed data parallel, PyTorch's DistributedDataParallel for C++.
//
//   parx::ddp ddp{model, world};          // same values on all ranks from here on
//   auto loss = parx::nn::cross_entropy(ddp(x), y);
//   loss.backward();                      // gradients leave as they become final
//   optimizer.step();                     // every rank takes the same step
//
// Each rank works on its own samples; after backward() every rank has the gradient of the mean over
// all of them, however unevenly they are dealt. All ranks end with bit-identical parameters. A
// parameter that is not the model's stays this rank's own: it gets the gradient of the mean over
// its samples, and one warning, because as a rule it belongs to a layer that members() leaves out.
// Buffers, such as the running statistics of a batch norm, are this rank's own from step to step:
// see broadcast_buffers().
//
// Where ranks have different numbers of batches (PyTorch's Join; a data::loader gives all equally
// many), one that has run out goes on with batches without rows until nobody has more:
//   for (bool more = true; more; more = ddp.flag_raised()) {
//     ... x and y of the next batch, with an extent of 0 where there is none ...
//     if (has_another) ddp.raise_flag();
//     parx::nn::cross_entropy(ddp(x), y).backward();
//     optimizer.step();
//   }
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/distributed_module.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/formatted.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/ddp/layout.hpp>
#include <parx/ddp/reducer.hpp>
#include <parx/ddp/reduction_group.hpp>

namespace parx::inline PARX_ABI {

struct ddp_options {
  bucket_limits buckets{};
  comm_hook hook{};  ///< what is sent instead of the gradients as they are; equal on all ranks
  /// serial: the same bits however the buckets are cut and the ranks connected. Where all ranks
  /// share memory they are anyway; over TCP see reduce_options::order. Equal on all ranks.
  reduction_order order = reduction_order::any;
  reduction_finish finish = reduction_finish::with_backward;
  /// For parameters whose gradients are summed over other ranks than the ddp's.
  std::vector<reduction_group> reduction_groups{};
};

/// While it lives, backward adds gradients up on this rank only; the first backward after it sums
/// them over the ranks, with the right weights.
class [[nodiscard]] no_sync_scope {
 public:
  explicit no_sync_scope(bool& synchronising) noexcept
      : synchronising_(synchronising), before_(std::exchange(synchronising, false)) {}
  ~no_sync_scope() { synchronising_ = before_; }
  no_sync_scope(const no_sync_scope&) = delete;
  no_sync_scope& operator=(const no_sync_scope&) = delete;

 private:
  bool& synchronising_;
  bool before_;
};

namespace detail {

/// Stands for the group where none was given: a compile-time error that says what to do.
template <typename Module>
[[nodiscard]] process_group& missing_group() {
  static_assert(std::is_void_v<Module>,
                "a ddp takes the model and the group of its ranks: parx::ddp ddp{model, world}");
  std::abort();
}

/// Stands for a class that cannot be wrapped where a ddp is made of it: the sentence that a failed
/// constraint does not find.
template <typename M>
struct no_module {
  static_assert(distributed_module<M>,
                "parx::ddp ddp{model, world} wraps an nn::module, whose members() names its "
                "layers, a raw_module, or a class with for_each_parameter(visitor): see "
                "autograd/distributed_module.hpp");
  void for_each_parameter(accepts_any_parameter visitor) const;
};

}  // namespace detail

template <distributed_module Module>
class ddp {
  using reducer = detail::reducer<parameter_handle>;

 public:
  /// Collective over `group`. Checks that all ranks have the same parameters (errc::mismatch with
  /// the difference otherwise), gives all of them rank 0's values, and the random layers (dropout)
  /// of each rank numbers of its own, under whatever seed. Model and group are borrowed and must
  /// outlive this object; the gradients' memory is this object's from here on. Throws usage_error
  /// where another wrapper of the model still lives.
  explicit ddp(Module& model, process_group& group = detail::missing_group<Module>(),
               ddp_options options = {}, call_site site = call_site::current())
      : model_(model), group_(group), options_(std::move(options)), site_(site) {
    if constexpr (requires { model.materialize(); }) model.materialize();
    join();
  }

  /// Collective over `next`, which is moved to where the group is, whoever refers to it: after a
  /// loss, the ranks that are left. As if made anew: gradients, and what a hook remembers, are
  /// dropped, and all ranks get rank 0's values. Where it fails it has to be called again before
  /// anything else. Throws usage_error for a ddp with reduction groups.
  void regroup(process_group next) {
    if (reducer_ != nullptr) {
      require(has_one_group(), "ddp: one with reduction_groups cannot be given other ranks");
      reducer_->zero_grad();
    }
    reducer_.reset();
    group_ = std::move(next);
    join();
  }

  /// The model's forward pass.
  template <typename... Inputs>
  decltype(auto) operator()(Inputs&&... inputs) {
    return model_(std::forward<Inputs>(inputs)...);
  }

  /// Gradient accumulation: `{ auto guard = ddp.no_sync(); loss.backward(); }` for all
  /// micro-batches but the last. An optimizer refuses a step without that one.
  no_sync_scope no_sync() noexcept { return no_sync_scope(reducer_->synchronising()); }

  /// Collective. Begins to sum what passes under no_sync() have added up, without another pass.
  void reduce() { reducer_->reduce(); }
  /// Collective. Blocks until gradients are what the optimizer should see, where options.finish is
  /// when_asked; nothing where no sums are under way.
  void finish() { reducer_->finish(); }

  /// From any thread. What one rank has seen and all should know (its host goes down, a disk is
  /// full): the flag leaves with the gradients of the next backward() that sums any, at no cost.
  void raise_flag() noexcept { reducer_->raise_flag(); }
  /// Whether any rank's flag came with the last such gradients: equal on all ranks until the next.
  [[nodiscard]] bool flag_raised() const noexcept { return reducer_->flag_raised(); }

  /// Collective. Gives all ranks rank 0's buffers, which are those that save0 writes: before an
  /// evaluation, so that all ranks evaluate one model. The trainer does so. PyTorch's DDP sends
  /// them with each forward pass.
  void broadcast_buffers(call_site site = call_site::current()) {
    if constexpr (requires { model_.for_each_buffer([](const std::string&, auto&) {}); }) {
      model_.for_each_buffer([&](const std::string&, auto& buffer) {
        broadcast(group_, buffer.value().span(), {.root = 0}, site);
      });
    }
  }

  /// Drops the gradients of all parameters, also of those that are no optimizer's: the next
  /// backward overwrites them. As the model's zero_grad(), without a walk over its layers.
  void zero_grad() { reducer_->zero_grad(); }

  /// Local. A hash of all parameter values, to compare replicas by.
  [[nodiscard]] std::uint64_t values_hash() const { return reducer_->values_hash(); }

  /// Collective. Whether all ranks hold the same parameter values, bit by bit: true unless
  /// something other than the optimizer changed them on some rank. A parameter with a reduction
  /// group is compared over its ranks.
  [[nodiscard]] bool replicas_equal(call_site site = call_site::current()) {
    return reducer_->replicas_equal(site);
  }

  /// Local. What the hook, and this object for it, remember between two steps: what a hook_state
  /// keeps. Empty without a hook.
  [[nodiscard]] std::vector<hook_memory> remembered_by_hook() {
    return reducer_->buckets().remembered_by_hook();
  }
  [[nodiscard]] bool has_hook_state() { return !remembered_by_hook().empty(); }

  [[nodiscard]] Module& module() noexcept { return model_; }
  [[nodiscard]] process_group& group() noexcept { return group_; }
  // What the trainer asks (train/wrapped_model.hpp).
  /// The ranks that have different samples.
  [[nodiscard]] process_group& data_group() noexcept { return group_; }
  /// The ranks that run, log and save together.
  [[nodiscard]] process_group& job_group() noexcept { return group_; }
  /// The ranks whose gradients together are the whole gradient; null where each rank has all of it.
  [[nodiscard]] process_group* gradient_group() noexcept { return nullptr; }
  /// The ranks that have the same parameters as this one: all.
  [[nodiscard]] process_group& replica_group() noexcept { return group_; }
  /// Whether all gradients are summed over group(): without that, ranks may hold different parts.
  [[nodiscard]] bool has_one_group() const noexcept { return reducer_->has_one_group(); }
  [[nodiscard]] decltype(auto) parameters() { return model_.parameters(); }
  /// The buckets in the order in which they leave, and their sizes.
  [[nodiscard]] std::size_t bucket_count() const noexcept { return reducer_->buckets().size(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const noexcept {
    return reducer_->buckets().bytes(index);
  }
  /// What backward passes have waited for so far: `(ddp.times() - before).hidden()`.
  [[nodiscard]] ddp_times times() const noexcept { return reducer_->times(); }

 private:
  /// Collective. Makes the sums, and the ranks' values equal.
  void join() {
    std::vector<std::unique_ptr<parameter_handle>> parameters = parameter_handles(model_);
    require(!parameters.empty(),
            "ddp at {}:{}: the model has no parameters. Does its members() name its layers?",
            site_.file_name(), site_.line);
    for (const auto& each : parameters) {
      require(each->observer() == nullptr,
              "ddp at {}:{}: parameter \"{}\" belongs to another wrapper that still lives. Destroy "
              "that one first (reset() or a scope of its own), or use it instead of a second one",
              site_.file_name(), site_.line, each->name());
    }
    detail::reduction_groups groups(
        group_, options_.reduction_groups,
        formatted("ddp at {}:{}", site_.file_name(), site_.line));
    detail::check_layout(groups, parameters, site_);
    const bool is_alone = groups.is_alone();
    reducer_.reset(new reducer(std::move(groups), std::move(parameters), options_.buckets,
                               options_.hook, options_.order, options_.finish, site_));
    if (!is_alone) reducer_->buckets().broadcast_values();
    broadcast_buffers(site_);
    // Different samples want different dropout masks.
    if constexpr (requires { model_.set_replica(std::uint64_t{}); }) {
      model_.set_replica(static_cast<std::uint64_t>(group_.rank()));
    }
  }

  Module& model_;
  process_group& group_;
  const ddp_options options_;
  const call_site site_;
  std::unique_ptr<reducer> reducer_;
};

/// Of what cannot be wrapped: a compile-time error that says what can.
template <typename Other, typename Group>
  requires(!distributed_module<Other>)
ddp(Other&, const Group&, ddp_options = {}) -> ddp<detail::no_module<Other>>;

}  // namespace parx
