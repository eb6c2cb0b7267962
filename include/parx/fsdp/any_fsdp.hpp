// any_fsdp: an fsdp without the type of its model: all of it but the call of forward, so that it is
// compiled once for all models.
//
// A pipeline has one for the stages of a rank, and parallel one for a whole model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/pinnable.hpp>
#include <parx/autograd/region.hpp>
#include <parx/checkpoint/distributed_wrapper.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/fsdp/options.hpp>
#include <parx/fsdp/sharded_module.hpp>
#include <parx/fsdp/sharded_units.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/nn/module_hook.hpp>
#include <parx/reduction/data_parallel_wrapper.hpp>

namespace parx::inline PARX_ABI {

/// Keeps the values of some units readable: see fsdp::gathered. Backward through what was computed
/// from them must run before this object is destroyed.
class [[nodiscard]] gathered_values_scope : private backward_region {
 public:
  gathered_values_scope(detail::sharded_units& units, const std::vector<std::size_t>& wanted)
      : units_(units), region_(*this), outer_(std::exchange(current_region(), region_.number())) {
    try {
      for (const std::size_t unit : wanted) {
        units.open(unit);
        open_.push_back(unit);
      }
    } catch (...) {
      close();
      throw;
    }
  }
  ~gathered_values_scope() { close(); }
  gathered_values_scope(const gathered_values_scope&) = delete;
  gathered_values_scope& operator=(const gathered_values_scope&) = delete;

 private:
  void close() noexcept {
    for (const std::size_t unit : open_) units_.close(unit);
    current_region() = outer_;
  }
  void enter_backward() override {}
  void leave_backward(const backward_region* /*next*/) noexcept override {}

  detail::sharded_units& units_;
  std::vector<std::size_t> open_;
  const region_registration region_;
  const region_number outer_;
};

/// Model: a handle, of which this keeps a copy: nn::any_module, or a part of a model with the same
/// functions.
template <typename Model>
class any_fsdp : public distributed_wrapper, public data_parallel_wrapper {
 public:
  /// As fsdp(model, group, options): see there.
  any_fsdp(Model model, process_group& group, fsdp_options options, call_site site);
  ~any_fsdp();
  any_fsdp(const any_fsdp&) = delete;
  any_fsdp& operator=(const any_fsdp&) = delete;

  /// Collective. Runs f(), which may call methods of the model other than forward, and read its
  /// parameters. What f() itself reads stays in memory until f() returns.
  template <typename Function>
  decltype(auto) call(Function&& f) {
    const nn::hooked_call within(&units_->hook(0));
    return std::forward<Function>(f)();
  }

  /// Collective. While the returned object lives, the whole values of these parameters of the
  /// model, and of all others in their units, can be read. Copy what you need longer. Do not write
  /// to them: a write may be lost, or be seen by other ranks; write to parameters() instead. Do not
  /// step or load meanwhile. Throws usage_error for a parameter that is not the model's.
  template <typename... T>
  [[nodiscard]] gathered_values_scope gathered(const parameter<T>&... parameters) {
    return {*units_, {unit_of(parameters.node().get())...}};
  }
  void before_write() override { units_->about_to_write(); }
  /// Collective. Call this before an operation that all ranks must take part in, such as a save. If
  /// one rank is there while others run on, all of them throw errc::mismatch that names both
  /// places, instead of waiting for each other.
  void synchronize(call_site site = call_site::current()) { units_->synchronize(site); }
  // For saving (checkpoint/distributed_wrapper.hpp).
  void before_save(call_site site) { synchronize(site); }
  [[nodiscard]] std::string reason_to_stop_at_loss() const {
    return "an fsdp keeps a shard of the parameters on each rank, and a lost rank's is gone";
  }

  /// Local; call it on all ranks. Each rank fills its part of all parameters with the initial
  /// values that the model would get from this seed, and seeds the model's random layers.
  void initialize(std::uint64_t seed);

  void zero_grad() override { units_->zero_grad(); }

  /// Collective. Gives all ranks rank 0's buffers.
  void broadcast_buffers(call_site site = call_site::current()) override;

  /// Collective. A hash of all values: the same on all ranks, and equal to that of a ddp with the
  /// same values. Gathers one unit at a time.
  [[nodiscard]] std::uint64_t values_hash();

  /// This rank's parts of the parameters, for optimizers, clipping and averages.
  template <typename T = typename sharded_module<Model>::value_type>
  [[nodiscard]] std::vector<parameter<T>> parameters() {
    return shards_->template parameters<T>();
  }
  /// The model as this rank sees it: its parts of the parameters, buffers and modes.
  [[nodiscard]] sharded_module<Model>& module() noexcept { return *shards_; }
  [[nodiscard]] const unit_plan& plan() const noexcept { return units_->plan(); }
  [[nodiscard]] process_group& group() noexcept { return group_; }
  // For the trainer (train/wrapped_model.hpp).
  [[nodiscard]] process_group& data_group() noexcept { return group_; }
  [[nodiscard]] process_group& job_group() noexcept { return group_; }
  /// Whether tables of embeddings are cut by rows: then each lookup is collective, in every stage.
  [[nodiscard]] bool has_cut_tables() const noexcept { return units_->has_cut_tables(); }
  /// The ranks whose parts together make the whole model: group(), unless .shard_within is set.
  [[nodiscard]] process_group& shard_group() noexcept { return units_->shards(); }
  /// The ranks that have the same part as this one.
  [[nodiscard]] process_group& replica_group() noexcept { return units_->replicas(); }
  /// What this rank has sent since the wrapper was made, including what the program itself sends on
  /// group().
  [[nodiscard]] fsdp_traffic bytes_sent() const noexcept { return units_->bytes_sent(); }

 private:
  [[nodiscard]] std::size_t unit_of(const void* node);
  [[nodiscard]] unit_plan make_plan(const fsdp_options& options, int shards,
                                    std::vector<std::unique_ptr<detail::sharded_parameter>>& all);
  [[nodiscard]] bool stays_in_place(
      const std::vector<std::unique_ptr<detail::sharded_parameter>>& all,
      const fsdp_options& options) const;
  void check_layout(const unit_plan& plan,
                    const std::vector<std::unique_ptr<detail::sharded_parameter>>& all,
                    const fsdp_options& options, call_site site);
  /// Initializes this rank's part of each parameter i for which is_wanted(i).
  void fill(std::uint64_t seed, function_ref<bool(std::size_t)> is_wanted);
  void hook_modules();

  Model model_;
  process_group& group_;
  const std::string who_;
  const std::shared_ptr<const std::string> pin_;
  std::vector<bool> had_values_;  ///< by parameter: the model came with values
  std::map<std::string, nn::detail::module_state*> hooked_;  ///< all modules, by path
  std::unique_ptr<detail::sharded_units> units_;
  std::unique_ptr<sharded_module<Model>> shards_;
};

}  // namespace parx

#include <parx/fsdp/detail/any_fsdp_impl.hpp>
