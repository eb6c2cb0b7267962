// any_parallel: a model in any layout, without its type and that of its batches: its values, its
// ranks, and what trainers and checkpoints need. parallel_model has its passes (model.hpp).
//
// Every function says who calls it: collective ones are called by all ranks of the job, in the same
// order and with equal arguments. Results are the same on all ranks unless they are said to be of a
// replica, the ranks that together have one copy of the model and the same samples.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/mesh/mesh.hpp>
#include <parx/parallel/any_model.hpp>
#include <parx/parallel/choices.hpp>
#include <parx/parallel/parallel_module.hpp>
#include <parx/parallel/strategy.hpp>
#include <parx/pipeline/same_batches.hpp>
#include <parx/plan/layout.hpp>
#include <parx/reduction/metrics.hpp>
#include <parx/reduction/steps_that_compare.hpp>
#include <parx/reduction/training_engine.hpp>
#include <parx/tensor_parallel/parallelize.hpp>
#include <parx/types/replica_range.hpp>

namespace parx::inline PARX_ABI {

#ifdef PARX_SEPARATE_COMPILATION
/// What a library has (instances.hpp).
template <typename T>
concept parallel_element = std::same_as<T, float> || std::same_as<T, double>;
#else
template <typename T>
concept parallel_element = std::floating_point<T>;
#endif

/// T: the type of the parameters.
template <typename T>
class any_parallel : public pipelined_wrapper {
  static_assert(parallel_element<T>,
                "a parallel model has parameters of float or double: its 16-bit copies are amp's");

 public:
  using value_type = T;

  any_parallel(const any_parallel&) = delete;
  any_parallel& operator=(const any_parallel&) = delete;

  // Training.

  /// A scope in which forward_backward adds gradients up on each rank alone; the first one after it
  /// sums them over the ranks.
  [[nodiscard]] no_sync_scope no_sync() {
    require(layout_.replicas == 0,
            "gradients of several batches cannot be added up with replicas= in the layout, which "
            "says how many micro-batches a step has: ask for more replicas");
    return engine().no_sync();
  }
  /// Local. The next forward_backward overwrites the gradients.
  void zero_grad() { engine().zero_grad(); }
  /// Local. Tells all ranks something that this one has noticed (its host goes down), with the
  /// gradients of the next forward_backward.
  void raise_flag() { engine().raise_flag(); }
  /// Collective. Whether any rank's flag was raised before the last forward_backward.
  [[nodiscard]] bool flag_raised(call_site site = call_site::current()) {
    const bool here = engine().flag_raised(site);
    return cut_ && strategy().stages() == nullptr ? on_any_rank(tensor_group(), here, site) : here;
  }

  // Values.

  /// Local. This rank's parts of the parameters, for an optimizer: none of a stage that has none.
  [[nodiscard]] parameter_list<T> parameters(call_site site = call_site::current()) {
    return strategy().parameters(site);
  }
  /// Collective. The values that one process would give the model from this seed, in every layout.
  /// Throws usage_error on all ranks if they were given different seeds.
  void initialize(std::uint64_t seed, call_site site = call_site::current());
  /// Collective. Calls use(path, whole) with the whole values of each parameter, one at a time,
  /// in the model's order.
  void for_each_whole_value(
      function_ref<void(const std::string& path, const tensor<T>& whole)> use,
      call_site site = call_site::current());
  /// Collective. Gives `copy`, a model of the same configuration on each rank, all values. Throws
  /// usage_error on all ranks, before anything is written, unless every copy has the parameters of
  /// this model, of the same shapes, and no others.
  template <typename Other>
  void copy_values_to(Other& copy, call_site site = call_site::current()) {
    std::map<std::string, parameter<T>> to;
    copy.for_each_parameter(
        [&](const std::string& path, parameter<T>& each) { to.emplace(path, each); });
    require_on_all("copy_values_to", difference_from(to), site);
    copy.materialize();
    for_each_whole_value(
        [&](const std::string& path, const tensor<T>& values) {
          to.at(path).value().copy_from(values);
          to.at(path).note_change();
        },
        site);
  }
  /// Collective. A hash of all values, equal in every layout.
  [[nodiscard]] std::uint64_t values_hash(call_site site = call_site::current());
  /// Collective. Whether ranks that have the same part of a parameter have the same bits of it:
  /// true unless something other than the optimizer has changed them.
  [[nodiscard]] bool replicas_equal(call_site site = call_site::current());
  /// Collective. Gives the ranks of each stage the buffers of the first of them.
  void broadcast_buffers(call_site site = call_site::current()) {
    engine().broadcast_buffers(site);
  }

  /// Collective. Ends this object early and leaves the model its values, whole on every rank. (The
  /// destructor communicates with nobody: it leaves whole layers, with values only under a ddp,
  /// where each rank has all of them.) Buffers are those of this rank's stages. Optimizers and
  /// averages of parameters() must not be used any more.
  void unwrap(call_site site = call_site::current());

  // Ranks.

  /// As it is on these ranks: dp is known, and "auto" has become what was chosen.
  [[nodiscard]] const parx::layout& layout() const noexcept { return layout_; }
  /// The coordinates of this rank.
  struct coordinates {
    int stage = 0, replica = 0, piece = 0;
  };
  [[nodiscard]] coordinates place() const {
    if (!mesh_) return {.replica = world_.rank()};
    return {mesh_->rank("pp"), mesh_->rank("dp"), mesh_->rank("tp")};
  }
  /// All ranks that train the model.
  [[nodiscard]] process_group& job_group() noexcept { return mesh_ ? mesh_->all() : world_; }
  /// The ranks that have other samples: for a sampler, and to sum losses.
  [[nodiscard]] process_group& data_group() noexcept { return mesh_ ? (*mesh_)["dp"] : world_; }
  /// To how many the samples of a step are dealt: the virtual replicas, or the ranks of
  /// data_group().
  [[nodiscard]] int data_parts() noexcept {
    return layout_.replicas > 0 ? layout_.replicas : data_group().size();
  }
  /// The virtual replicas that this rank computes; without them its own replica alone.
  [[nodiscard]] replica_range replicas() {
    return replicas_of(data_group().rank(), layout_.dp, layout_.replicas);
  }
  /// The ranks that must make the same calls of the model, with the same ids: those of a replica,
  /// all where shards of values are gathered or looked up; null where each rank is by itself.
  [[nodiscard]] process_group* ranks_in_step() {
    if (layout_.zero > 0) return &job_group();
    return mesh_ ? &mesh_->flatten({"pp", "tp"}) : nullptr;
  }
  /// Whether this rank needs samples: the middle stages of a pipeline do not.
  [[nodiscard]] bool needs_input() const { return strategy().needs_input(); }
  /// Local. How many ranks of the job have the same part of the parameter, or of its optimizer
  /// state "path.exp_avg", and which of them this one is.
  [[nodiscard]] shard_place copies(const std::string& name) {
    const shard_place same = strategy().copies(name);
    return !cut_ || cut_->is_cut(name) ? same : place_within(same, place_in(tensor_group()));
  }

  /// Whether a lost rank's state is on all others: a trainer may go on with them.
  [[nodiscard]] bool keeps_whole_replicas() const noexcept { return layout_.is_ddp(); }
  /// Collective over `next`, the surviving ranks: see ddp::regroup. Throws usage_error unless
  /// keeps_whole_replicas().
  void regroup(process_group next);

  // For checkpoints (checkpoint/distributed_wrapper.hpp) and the trainer (train/wrapped_model.hpp).

  void before_save(call_site /*site*/) const noexcept {}
  [[nodiscard]] std::string reason_to_stop_at_loss() const {
    if (keeps_whole_replicas()) return {};
    return "a parallel model keeps a part of the model on each rank, and a lost rank's is gone";
  }
  /// Call this on all ranks before parameters are written by anything other than an optimizer or
  /// load().
  void before_write() { engine().before_write(); }
  [[nodiscard]] parallel_module<T>& module() {
    (void)strategy();
    return *part_;
  }
  [[nodiscard]] parallel_shapes<T>& whole_model() {
    (void)strategy();
    return *shapes_;
  }
  [[nodiscard]] reduction_times times() const { return engine().times(); }
  [[nodiscard]] std::size_t bucket_count() const { return engine().bucket_count(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const {
    return engine().bucket_bytes(index);
  }

  /// Of a language model; 0 where it has no limit to tell.
  [[nodiscard]] std::size_t max_positions() const { return whole_->max_positions(); }
  /// See parx::generate.
  [[nodiscard]] parallel_strategy<T>& strategy() const {
    require(strategy_ != nullptr,
            "parallel at {}: unwrap() has ended this: use the model itself, or wrap it again",
            site_);
    return *strategy_;
  }
  [[nodiscard]] training_engine& engine() const { return strategy().engine(); }
  /// What runs this rank's stages, with their cut(), table() and timeline(); measure() takes it.
  /// Throws usage_error without stages. <parx/pipeline.hpp> defines its class.
  [[nodiscard]] pipeline_engine<T>& stages() const {
    pipeline_engine<T>* const found = strategy().pipeline();
    require(found != nullptr, "parallel at {}: stages() of a model without any: give pp=2", site_);
    return *found;
  }
  /// The layers' cut; null where tp is 1.
  [[nodiscard]] const parallelized* cut() const noexcept { return cut_ ? &*cut_ : nullptr; }

 protected:
  /// Collective over `world`, which is borrowed.
  any_parallel(std::unique_ptr<any_model<T>> model, process_group& world, parx::layout how,
               const parallel_choices& choices, call_site site);
  ~any_parallel() = default;
  /// The ranks of a replica need the same samples: compares their parts of a batch now and then.
  template <typename Batch>
  void compare(std::span<const Batch> parts, call_site site) {
    if (!mesh_ || !comparing_.is_next()) return;
    if (!needs_input()) parts = {};
    require_same_batches("parallel", parts, mesh_->flatten({"pp", "tp"}), site);
  }

  /// After a step: warns, once and on rank 0 alone, of a loss that is no number.
  void look_at(double loss, call_site site) {
    ++steps_;
    if (std::isfinite(loss) || told_of_loss_) [[likely]] return;
    warn_of_loss(loss, site);
  }

  parx::layout layout_;
  const call_site site_;
  process_group& world_;

 private:
  [[gnu::cold]] void warn_of_loss(double loss, call_site site);
  [[nodiscard]] process_group& tensor_group() { return cut_->axis().group(); }

  /// Collective. Throws on all ranks the fault of the first rank that has one; "" is none.
  void require_on_all(const char* what, const std::string& fault, call_site site);
  /// In what these parameters differ from those of the model; "" if in nothing.
  [[nodiscard]] std::string difference_from(const std::map<std::string, parameter<T>>& others);

  const std::unique_ptr<any_model<T>> whole_;
  std::optional<mesh<>> mesh_;  // none where all ranks have other samples
  std::optional<parallelized> cut_;
  std::unique_ptr<parallel_strategy<T>> strategy_;
  std::optional<parallel_module<T>> part_;
  std::optional<parallel_shapes<T>> shapes_;
  steps_that_compare comparing_;
  std::uint64_t steps_ = 0;    // calls of forward_backward
  bool told_of_loss_ = false;  // warn_of_loss() has been called
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/parallel/detail/any_parallel_impl.hpp>
#endif
