// ddp: PyTorch's DistributedDataParallel for C++. Most programs use it by parx::parallel.
//
//   parx::ddp ddp{model, world};          // same values on all ranks from here on
//   auto loss = parx::nn::cross_entropy(ddp(x), y);
//   loss.backward();                      // gradients leave as they become final
//   optimizer.step();                     // every rank takes the same step
//
// Each rank works on its own samples. After backward() every rank has the gradient of the mean over
// all samples, even if ranks have different numbers of them. All ranks end with bit-identical
// parameters. A parameter that the model does not name stays local: its gradient is the mean over
// this rank's samples. The ddp warns once, because usually members() leaves out a layer. Buffers,
// such as the running statistics of a batch norm, stay local between steps: see
// broadcast_buffers().
//
// Ranks may have different numbers of batches (PyTorch's Join; a data::loader gives every rank the
// same number). A rank that has run out continues with empty batches until no rank has more:
//   for (bool more = true; more; more = ddp.flag_raised()) {
//     ... x and y of the next batch, with an extent of 0 where there is none ...
//     if (has_another) ddp.raise_flag();
//     parx::nn::cross_entropy(ddp(x), y).backward();
//     optimizer.step();
//   }
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/distributed_module.hpp>
#include <parx/autograd/pinnable.hpp>
#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/ddp/gradient_buckets.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/ddp/layout.hpp>
#include <parx/reduction/data_parallel_wrapper.hpp>
#include <parx/reduction/reduction_group.hpp>

namespace parx::inline PARX_ABI {

struct ddp_options {
  bucket_limits buckets{};
  comm_hook hook{};  ///< changes what is sent for a bucket; the same on all ranks
  /// serial: the result does not depend on bucket sizes or on the network. With shared memory that
  /// is always so; for TCP see reduce_options::order. The same on all ranks.
  reduction_order order = reduction_order::any;
  reduction_finish finish = reduction_finish::with_backward;
  /// For parameters whose gradients are summed over a group other than the ddp's.
  std::vector<reduction_group> reduction_groups{};
  /// Virtual replicas: a step is this many backward passes over all ranks, of which this one runs
  /// those of replicas_of(rank, ranks, replicas), all but the last under no_sync(). The bits of
  /// gradients do not depend on the number of ranks: see replica_tree.hpp. 0: each rank is one
  /// replica, of any number of passes. Not with .hook. Of .reduction_groups each has the ranks of
  /// the ddp's group, then those of other stages with the same samples (replica_plan's stages).
  int replicas = 0;
};

namespace detail {

/// The default argument when no group is given: a compile-time error that says what to do.
template <typename Module>
[[nodiscard]] process_group& missing_group() {
  static_assert(std::is_void_v<Module>,
                "a ddp takes the model and the group of its ranks: parx::ddp ddp{model, world}");
  std::abort();
}

/// The module type that is deduced for a class that cannot be wrapped: a compile-time error that
/// says more than a failed constraint would.
template <typename M>
struct no_module {
  static_assert(distributed_module<M>,
                "parx::ddp ddp{model, world} wraps an nn::module, whose members() names its "
                "layers, a raw_module, or a class with for_each_parameter(visitor): see "
                "autograd/distributed_module.hpp");
  void for_each_parameter(auto&& visitor) const;
};

}  // namespace detail

template <distributed_module Module>
class ddp : public data_parallel_wrapper, public whole_wrapper {
  using gradient_buckets = detail::gradient_buckets;

 public:
  /// Collective over `group`. Checks that all ranks have the same parameters (throws errc::mismatch
  /// with the difference otherwise) and copies rank 0's values to all ranks. Random layers, such as
  /// dropout, draw different numbers on each rank, whatever the seed. Model and group are borrowed
  /// and must outlive this object, which owns the gradients' memory from here on. Throws
  /// usage_error while another wrapper of the model exists.
  explicit ddp(Module& model, process_group& group = detail::missing_group<Module>(),
               ddp_options options = {}, call_site site = call_site::current())
      : model_(model), group_(group), options_(std::move(options)), site_(site),
        pin_(pin(model, formatted("ddp at {}", site))) {
    if constexpr (requires { model.materialize(); }) model.materialize();
    join();
  }

  /// Collective over `next`: the surviving ranks after a rank was lost. `next` is move-assigned to
  /// the group that this ddp borrows, so every other reference to that group sees the new ranks.
  /// Has the effect of constructing the ddp again: gradients and the hook's state are dropped, and
  /// all ranks get rank 0's values. If it throws, call it again before anything else. Throws
  /// usage_error for a ddp with reduction groups.
  void regroup(process_group next) {
    if (buckets_ != nullptr) {
      require(has_one_group(), "ddp: one with reduction_groups cannot be given other ranks");
      zero_grad();
    }
    buckets_.reset();
    group_ = std::move(next);
    join();
  }

  /// The model's forward pass.
  template <typename... Inputs>
  decltype(auto) operator()(Inputs&&... inputs) {
    return model_(std::forward<Inputs>(inputs)...);
  }

  /// Collective. Copies rank 0's buffers, the ones that save() writes, to all ranks. Call it before
  /// an evaluation, so that all ranks evaluate the same model; the trainer does. PyTorch's DDP
  /// broadcasts them in every forward pass instead.
  void broadcast_buffers(call_site site = call_site::current()) override {
    if constexpr (requires { model_.for_each_buffer([](const std::string&, auto&) {}); }) {
      model_.for_each_buffer([&](const std::string&, auto& buffer) {
        broadcast(group_, buffer.value().span(), {.root = 0}, site);
      });
    }
  }

  /// Same as the model's zero_grad(), without a walk over its layers.
  void zero_grad() override {
    buckets_->drop_replicas();
    for (const auto& each : buckets_->parameters()) each->zero_grad();
  }

  /// Local. A hash of all parameter values, for comparing replicas.
  [[nodiscard]] std::uint64_t values_hash() const {
    return values_hash([](const parameter_handle&) { return true; });
  }

  /// Collective. Whether all ranks hold the same parameter values, bit by bit: true unless
  /// something other than the optimizer changed them on some rank. A parameter with a reduction
  /// group is compared over that group.
  [[nodiscard]] bool replicas_equal(call_site site = call_site::current()) {
    const reduction_groups& groups = buckets_->headers().groups();
    bool equal = true;
    for (std::size_t group = groups.size(); group-- > 0;) {
      // The own group comes last, so that its ranks also exchange what they found in the others.
      const auto is_of_group = [&](const auto& each) { return groups.number_of(each) == group; };
      const std::array<std::uint64_t, 2> mine{values_hash(is_of_group), equal ? 1U : 0U};
      std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(groups[group].size()));
      all_gather(groups[group], mine, all, {}, site);
      for (std::size_t i = 0; i < all.size(); ++i) {
        equal = equal && all[i] == (i % 2 == 0 ? mine[0] : 1);
      }
    }
    return equal;
  }

  /// Local. The state that the hook, and this object for the hook, keep between two steps; a
  /// hook_state saves it. Empty without a hook.
  [[nodiscard]] std::vector<hook_memory> hook_state() {
    return buckets_->hook_state();
  }

  // For saving (checkpoint/distributed_wrapper.hpp).
  /// Throws usage_error for a ddp with reduction groups, whose ranks may have different parts.
  void before_save(call_site site) const {
    require(has_one_group(),
            "ddp at {}: this ddp sums some gradients over reduction_groups of their own, so its "
            "ranks may hold different parts of the model, and what one of them saves would be a "
            "part. Train it in a loop of your own: merge the norm with optim::grad_squares over "
            "the ranks that hold the parts, and save each part",
            site);
  }
  void before_write() noexcept override {}
  /// Local. Why training cannot continue after a rank is lost; empty if it can.
  [[nodiscard]] std::string reason_to_stop_at_loss() {
    if (!has_one_group()) {
      return "this ddp sums some gradients over reduction_groups of their own, which a lost rank "
             "leaves incomplete";
    }
    if (!hook_state().empty()) {
      return "this ddp's hook keeps what it has not sent yet on each rank, and a lost rank's is "
             "gone";
    }
    return {};
  }

  [[nodiscard]] Module& module() noexcept { return model_; }
  [[nodiscard]] process_group& group() noexcept { return group_; }
  // For the trainer (train/wrapped_model.hpp).
  /// The ranks that have different samples.
  [[nodiscard]] process_group& data_group() noexcept { return group_; }
  /// The ranks that run, log and save together.
  [[nodiscard]] process_group& job_group() noexcept { return group_; }
  /// The ranks that have the same parameters as this one: all.
  [[nodiscard]] process_group& replica_group() noexcept { return group_; }
  /// Whether all gradients are summed over group(). If not, ranks may hold different parts.
  [[nodiscard]] bool has_one_group() const noexcept {
    return buckets_->headers().groups().size() == 1;
  }
  template <typename M = Module>
    requires requires(M& model) { model.parameters(); }
  [[nodiscard]] decltype(auto) parameters() {
    return static_cast<M&>(model_).parameters();
  }

 private:
  /// Collective. Makes the buckets and copies rank 0's values to all ranks.
  void join() {
    std::vector<std::unique_ptr<parameter_handle>> parameters = parameter_handles(model_);
    require(!parameters.empty(),
            "ddp at {}: the model has no parameters. Does its members() name its layers?", site_);
    for (const auto& each : parameters) {
      require(each->observer() == nullptr,
              "ddp at {}: parameter \"{}\" belongs to another wrapper that still lives. Destroy "
              "that one first (reset() or a scope of its own), or use it instead of a second one",
              site_, each->name());
    }
    const reduction_groups groups(group_, options_.reduction_groups,
                                    formatted("ddp at {}", site_));
    require_replicas(groups);
    detail::check_layout(groups, parameters, site_);
    buckets_ = gradient_buckets::make(groups, std::move(parameters), options_.buckets,
                                      options_.hook, options_.order, options_.replicas, site_);
    reducer_.reset(new gradient_reducer(groups, *buckets_, buckets_->state(), pass_kind::local,
                                        options_.finish));
    for (std::size_t i = 0; i < buckets_->parameters().size(); ++i) {
      buckets_->parameters()[i]->attach(reducer_.get(), i);
    }
    reduce_by(*reducer_);
    if (!groups.is_alone()) buckets_->broadcast_values();
    broadcast_buffers(site_);
    // Each rank has different samples, so each draws its own dropout masks.
    if constexpr (requires { model_.set_replica(std::uint64_t{}); }) {
      model_.set_replica(static_cast<std::uint64_t>(group_.rank()));
    }
  }

  void require_replicas(const reduction_groups& groups) const {
    const int replicas = options_.replicas;
    require(replicas == 0 || replicas >= group_.size(),
            "ddp at {}: .replicas = {} for {} ranks: a rank needs at least one", site_, replicas,
            group_.size());
    require(replicas == 0 || !options_.hook,
            "ddp at {}: .replicas sums gradients in an order of its own: leave .hook out", site_);
    for (std::size_t i = 1; i < groups.size() && replicas > 0; ++i) {
      require(groups[i].size() % group_.size() == 0,
              "ddp at {}: with .replicas a reduction group has the {} data-parallel ranks of each "
              "stage that uses its parameters, and \"{}\" has {} ranks",
              site_, group_.size(), groups.name(i), groups[i].size());
    }
  }

  /// Of the parameters for which `counts(parameter)`.
  [[nodiscard]] std::uint64_t values_hash(auto&& counts) const {
    std::uint64_t hash = detail::fnv1a({});
    for (const auto& each : buckets_->parameters()) {
      if (!counts(*each)) continue;
      hash = detail::fnv1a({static_cast<const char*>(each->value()), each->bytes()}, hash);
    }
    return hash;
  }

  Module& model_;
  process_group& group_;
  const ddp_options options_;
  const call_site site_;
  const std::shared_ptr<const std::string> pin_;
  std::unique_ptr<gradient_reducer> reducer_;
  std::unique_ptr<gradient_buckets> buckets_;  // destroyed first: it detaches the parameters
};

/// For a class that cannot be wrapped: a compile-time error that says what can.
template <typename Other, typename Group>
  requires(!distributed_module<Other>)
ddp(Other&, const Group&, ddp_options = {}) -> ddp<detail::no_module<Other>>;

}  // namespace parx
