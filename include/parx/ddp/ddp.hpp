// ddp: distributed data parallel, PyTorch's DistributedDataParallel for C++.
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

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/distributed_module.hpp>
#include <parx/autograd/lendable.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/formatted.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/ddp/layout.hpp>
#include <parx/ddp/reducer.hpp>
#include <parx/ddp/reduction_group.hpp>

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
};

/// While it lives, backward accumulates gradients on this rank only. The first backward after it
/// sums them over the ranks; every sample then has the same weight.
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
  void for_each_parameter(accepts_any_parameter visitor) const;
};

}  // namespace detail

template <distributed_module Module>
class ddp {
  using reducer = detail::reducer<parameter_handle>;

 public:
  /// Collective over `group`. Checks that all ranks have the same parameters (throws errc::mismatch
  /// with the difference otherwise) and copies rank 0's values to all ranks. Random layers, such as
  /// dropout, draw different numbers on each rank, whatever the seed. Model and group are borrowed
  /// and must outlive this object, which owns the gradients' memory from here on. Throws
  /// usage_error while another wrapper of the model exists.
  explicit ddp(Module& model, process_group& group = detail::missing_group<Module>(),
               ddp_options options = {}, call_site site = call_site::current())
      : model_(model), group_(group), options_(std::move(options)), site_(site),
        loan_(lend(model, formatted("ddp at {}", site))) {
    if constexpr (requires { model.materialize(); }) model.materialize();
    join();
  }

  /// Collective over `next`: the surviving ranks after a rank was lost. `next` is move-assigned to
  /// the group that this ddp borrows, so every other reference to that group sees the new ranks.
  /// Has the effect of constructing the ddp again: gradients and the hook's state are dropped, and
  /// all ranks get rank 0's values. If it throws, call it again before anything else. Throws
  /// usage_error for a ddp with reduction groups.
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
  /// micro-batches but the last. An optimizer throws if the last one was under no_sync(), too.
  no_sync_scope no_sync() noexcept { return no_sync_scope(reducer_->synchronising()); }

  /// Collective. Starts summing the gradients accumulated under no_sync(), without another pass.
  void reduce() { reducer_->add_pass(0); }
  /// For a wrapper that cuts a graph: the same as a pass of so many samples that reached none of
  /// the parameters. Collective unless under no_sync().
  void add_pass(double count) { reducer_->add_pass(count); }
  /// The passes so far: those that reached a parameter, and those of reduce() and add_pass().
  [[nodiscard]] std::uint64_t passes() const noexcept { return reducer_->passes(); }
  /// Collective. With options.finish == when_asked: blocks until the sums of the last backward are
  /// complete and the gradients are means. Does nothing if no sums are under way.
  void finish() { reducer_->finish(); }

  /// From any thread. Tells all ranks something that one rank has noticed (its host goes down, a
  /// disk is full). The flag is sent with the next backward() that sums gradients, at no cost.
  void raise_flag() noexcept { reducer_->raise_flag(); }
  /// Whether any rank's flag was sent with the last such gradients. The same on all ranks, until
  /// the next such backward().
  [[nodiscard]] bool flag_raised() const noexcept { return reducer_->flag_raised(); }

  /// Collective. Copies rank 0's buffers, the ones that save0 writes, to all ranks. Call it before
  /// an evaluation, so that all ranks evaluate the same model; the trainer does. PyTorch's DDP
  /// broadcasts them in every forward pass instead.
  void broadcast_buffers(call_site site = call_site::current()) {
    if constexpr (requires { model_.for_each_buffer([](const std::string&, auto&) {}); }) {
      model_.for_each_buffer([&](const std::string&, auto& buffer) {
        broadcast(group_, buffer.value().span(), {.root = 0}, site);
      });
    }
  }

  /// Drops the gradients of all parameters, including those that no optimizer has: the next
  /// backward overwrites them. Same as the model's zero_grad(), without a walk over its layers.
  void zero_grad() { reducer_->zero_grad(); }

  /// Local. A hash of all parameter values, for comparing replicas.
  [[nodiscard]] std::uint64_t values_hash() const { return reducer_->values_hash(); }

  /// Collective. Whether all ranks hold the same parameter values, bit by bit: true unless
  /// something other than the optimizer changed them on some rank. A parameter with a reduction
  /// group is compared over that group.
  [[nodiscard]] bool replicas_equal(call_site site = call_site::current()) {
    return reducer_->replicas_equal(site);
  }

  /// Local. The state that the hook, and this object for the hook, keep between two steps; a
  /// hook_state saves it. Empty without a hook.
  [[nodiscard]] std::vector<hook_memory> remembered_by_hook() {
    return reducer_->buckets().remembered_by_hook();
  }
  [[nodiscard]] bool has_hook_state() { return !remembered_by_hook().empty(); }

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
  [[nodiscard]] bool has_one_group() const noexcept { return reducer_->has_one_group(); }
  [[nodiscard]] decltype(auto) parameters() { return model_.parameters(); }
  /// The number of buckets, and their sizes in the order in which they are sent.
  [[nodiscard]] std::size_t bucket_count() const noexcept { return reducer_->buckets().size(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const noexcept {
    return reducer_->buckets().bytes(index);
  }
  /// How long backward passes have communicated and waited so far:
  /// `(ddp.times() - before).hidden()`.
  [[nodiscard]] ddp_times times() const noexcept { return reducer_->times(); }

 private:
  /// Collective. Makes the reducer and copies rank 0's values to all ranks.
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
    detail::reduction_groups groups(group_, options_.reduction_groups,
                                    formatted("ddp at {}", site_));
    detail::check_layout(groups, parameters, site_);
    const bool is_alone = groups.is_alone();
    reducer_.reset(new reducer(std::move(groups), std::move(parameters), options_.buckets,
                               options_.hook, options_.order, options_.finish, site_));
    if (!is_alone) reducer_->buckets().broadcast_values();
    broadcast_buffers(site_);
    // Each rank has different samples, so each draws its own dropout masks.
    if constexpr (requires { model_.set_replica(std::uint64_t{}); }) {
      model_.set_replica(static_cast<std::uint64_t>(group_.rank()));
    }
  }

  Module& model_;
  process_group& group_;
  const ddp_options options_;
  const call_site site_;
  const std::shared_ptr<const std::string> loan_;
  std::unique_ptr<reducer> reducer_;
};

/// For a class that cannot be wrapped: a compile-time error that says what can.
template <typename Other, typename Group>
  requires(!distributed_module<Other>)
ddp(Other&, const Group&, ddp_options = {}) -> ddp<detail::no_module<Other>>;

}  // namespace parx
