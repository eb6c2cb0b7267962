// sharded_units: the part of an fsdp that does not depend on the model's type. It observes module
// calls and backward passes, and from them drives unit_prefetcher, which makes units readable. Its
// gradient_reducer drives unit_gradients, which reduces gradients.
//
// Gathers run on a group of their own, so that an urgent one does not queue behind a reduction.
// Threads: the one that runs forward and backward; reducer().raise_flag() may be called on any.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/no_grad.hpp>
#include <parx/autograd/observer.hpp>
#include <parx/autograd/recompute.hpp>
#include <parx/autograd/region.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/fsdp/options.hpp>
#include <parx/fsdp/shard_groups.hpp>
#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/unit_prefetcher.hpp>
#include <parx/fsdp/unit_values.hpp>
#include <parx/nn/module_hook.hpp>
#include <parx/reduction/gradient_reducer.hpp>

namespace parx::inline PARX_ABI {

/// What a rank has sent, in bytes, including headers.
struct fsdp_traffic {
  std::size_t values = 0;
  std::size_t gradients = 0;
};

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

class unit_gradients;
struct sum_settings;

class sharded_units final : private closed_reads {
 public:
  using parameters = std::vector<std::unique_ptr<sharded_parameter>>;

  /// Collective. `all` are the parameters in the order of the plan; errors begin with `who`.
  sharded_units(process_group& group, shard_groups groups, unit_plan plan, parameters all,
                const fsdp_options& options, std::string who, call_site site);
  ~sharded_units();
  sharded_units(const sharded_units&) = delete;
  sharded_units& operator=(const sharded_units&) = delete;

  /// The ranks whose parts together are the whole, and the ranks that have the same part as this.
  [[nodiscard]] process_group& shards() noexcept { return gathering_; }
  [[nodiscard]] process_group& replicas() noexcept { return replicas_; }
  [[nodiscard]] fsdp_traffic bytes_sent() const noexcept {
    const std::size_t sums = shard_sums_ ? shard_sums_->bytes_sent() : 0;
    return {gathering_.bytes_sent(), group_.bytes_sent() + sums + replicas_.bytes_sent()};
  }
  [[nodiscard]] const unit_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] const parameters& all() const noexcept { return all_; }
  [[nodiscard]] bool has_cut_tables() const noexcept { return !tables_.empty(); }
  [[nodiscard]] gradient_reducer& reducer() noexcept { return *reducer_; }
  /// The hook to set on the unit's module, and that to set on modules that are no units.
  [[nodiscard]] nn::module_hook& hook(std::size_t unit) noexcept { return *hooks_[unit]; }
  [[nodiscard]] nn::module_hook& inner_hook() noexcept { return inner_hook_; }

  void zero_grad() const;
  /// Collective. The parts have been, or are about to be, written: gathered values become invalid.
  /// Throws usage_error while a unit is in use.
  void about_to_write();

  /// Collective. A barrier on both groups. Ranks that are elsewhere in the program gather on one
  /// group or reduce on the other, so one of the two barriers reports the mismatch on all ranks. A
  /// barrier on a single group could wait forever for ranks that wait on the other one.
  void synchronize(call_site site);

  /// Collective. The values of a unit may be read until close().
  void open(std::size_t unit) {
    uses_->enter_forward(unit);
    begin_reads(unit);
  }
  void close(std::size_t unit, bool is_kept = false) noexcept {
    end_reads(unit);
    uses_->leave_forward(unit, is_kept);
  }

 private:
  /// The region of nodes whose backward needs these units: first the unit that computed, then, in
  /// ascending order, those whose parameters it has read from outside of their modules.
  class use_region final : public backward_region {
   public:
    use_region(sharded_units& owner, std::vector<std::size_t> units)
        : owner_(owner), units_(std::move(units)), registration_(*this) {}

    void enter_backward() override;
    void leave_backward(const backward_region* next) noexcept override;

    [[nodiscard]] const sharded_units& owner() const noexcept { return owner_; }
    [[nodiscard]] const std::vector<std::size_t>& units() const noexcept { return units_; }
    [[nodiscard]] region_number number() const noexcept { return registration_.number(); }

   private:
    sharded_units& owner_;
    const std::vector<std::size_t> units_;
    const region_registration registration_;
  };

  class unit_hook final : public nn::module_hook {
   public:
    unit_hook(sharded_units& owner, std::size_t unit) : owner_(owner), unit_(unit) {}

    void before_forward() override;
    void after_forward() noexcept override;
    void returns(const void* data) override { owner_.note_result(data, unit_); }

   private:
    sharded_units& owner_;
    const std::size_t unit_;
  };
  /// For modules that are no units. A unit that such a module reads stays open until its call ends.
  class reading_hook final : public nn::module_hook {
   public:
    explicit reading_hook(sharded_units& owner) : owner_(owner) {}

    void before_forward() override { owner_.begin_call(owner_.computing_unit()); }
    void after_forward() noexcept override { owner_.end_call(use_order::none); }
    void returns(const void* data) override { owner_.note_result(data, use_order::none); }

   private:
    sharded_units& owner_;
  };

  /// A module that computes.
  struct running_call {
    std::size_t unit;                    ///< computing_unit()
    region_number outer;                 ///< the region of the nodes before the call
    std::vector<std::size_t> read = {};  ///< units that are open for its reads
  };

  /// Observes backward passes over the model's own parameters.
  class whole_observer final : public gradient_reducer {
   public:
    whole_observer(sharded_units& owner, reduction_groups groups, reduction_finish finish);

    void begin_backward(const backward_start& start) override {
      if (is_synchronising() || owner_.adds_in_parts_) owner_.train_unfrozen(start);
      gradient_reducer::begin_backward(start);
    }
    void step_without_gradient() const override;

   private:
    sharded_units& owner_;
  };

  /// Observes optimizer steps and other writes on the parts.
  class part_observer final : public backward_observer {
   public:
    explicit part_observer(sharded_units& owner) noexcept : owner_(owner) {}

    [[nodiscard]] gradient_of wanted() const override { return gradient_of::sum; }
    void begin_backward(const backward_start& start) override;
    void leaf_ready(std::size_t /*index*/) override {}
    void end_backward() override {}
    void abandon_backward() noexcept override {}
    void before_step() const override { owner_.before_part_step(); }
    void step_without_gradient() const override { owner_.before_step_without_gradient(); }
    void value_changed(std::size_t index) const override {
      owner_.all_[index]->note_change();
      if (!owner_.is_table(index)) owner_.values_->part_written(owner_.plan_.place(index).flat);
    }
    void before_write() const override { owner_.about_to_write(); }

   private:
    sharded_units& owner_;
  };

  /// The innermost unit that has been called, or that a recomputation is in.
  [[nodiscard]] std::size_t computing_unit() const {
    if (!calls_.empty()) return calls_.back().unit;
    const use_region* const recomputed = own_region(current_region());
    return recomputed == nullptr ? use_order::none : recomputed->units().front();
  }
  void begin_call(std::size_t unit) { calls_.push_back({unit, current_region()}); }
  /// Of the unit's module, or (use_order::none) of one that is no unit.
  void end_call(std::size_t unit) noexcept;
  /// A recomputation is followed by its backward, and every backward pass begins in the root.
  [[nodiscard]] bool is_wanted_next(std::size_t unit) const noexcept {
    return is_recomputing() || (is_followed_by_backward() && (unit == 0 || keeps_));
  }
  [[nodiscard]] bool open_unit_of(std::size_t parameter) override;
  /// Opens the unit until the call ends.
  void open_for(running_call& reader, std::size_t unit);
  /// A result of the innermost call that is a view of a parameter counts as a read of its caller.
  /// `unit` as for end_call().
  void note_result(const void* data, std::size_t unit);
  [[nodiscard]] bool is_in_values(const void* data, std::size_t unit) const;
  /// The region of these units.
  [[nodiscard]] use_region& region_of(std::vector<std::size_t> units);
  /// The region of `unit` that also has what the region `outer` has read.
  [[nodiscard]] region_number region_within(std::size_t unit, region_number outer);
  /// The region `here` with one more unit that it has read.
  [[nodiscard]] region_number region_reading(std::size_t unit, region_number here);
  /// This object's region of that number, or null.
  [[nodiscard]] const use_region* own_region(region_number number) const;

  /// Allows reads of the unit's parameters, until end_reads() has been called as often.
  void begin_reads(std::size_t unit) noexcept;
  void end_reads(std::size_t unit) noexcept;

  [[nodiscard]] std::size_t rank_of_part() const noexcept {
    return static_cast<std::size_t>(gathering_.rank());
  }
  [[nodiscard]] std::vector<reduction_state::member> members() const;

  [[nodiscard]] bool is_table(std::size_t parameter) const noexcept {
    return plan_.place(parameter).flat == unit_place::nowhere;
  }

  /// The tags of operations on gathering_: the number of a unit, or one above them for a table.
  void name_tags();
  [[nodiscard]] int tag_of_table(std::size_t parameter) const noexcept {
    return static_cast<int>(plan_.units().size() + parameter);
  }
  [[nodiscard]] std::unique_ptr<unit_values> storage_of(const fsdp_options& options,
                                                        call_site site);
  [[nodiscard]] sum_settings sum_settings_of(std::vector<std::size_t> part_of,
                                           const fsdp_options& options, call_site site);
  /// Scatters the values of rank 0's model to the parts, flat by flat.
  void take_values(call_site site);
  /// The same for the tables, by rows.
  void cut_tables(const sum_settings& sums, call_site site);
  [[nodiscard]] std::vector<trained_table> trained_tables() const;
  /// Collective. Gives gradients to parameters that were frozen when memory was made for those of
  /// the others. Throws if the ranks have unfrozen different ones, or a parameter that the pass
  /// reaches is frozen again.
  void train_unfrozen(const backward_start& start);
  void note_frozen();

  void before_part_step() {
    reducer_->before_step();
    about_to_write();
  }

  /// A part has no gradient while that of the whole is only added up, or still being reduced.
  void before_step_without_gradient() const;

  const std::string who_;
  const bool keeps_;
  process_group& group_;
  process_group gathering_, replicas_;
  std::optional<process_group> shard_sums_;  ///< the ranks of gathering_, where there are replicas
  unit_plan plan_;
  std::unique_ptr<unit_values> values_;
  std::optional<unit_prefetcher> uses_;
  std::unique_ptr<unit_gradients> gradients_;
  const parameters all_;  // destroyed before the memory that they are bound to
  const bool adds_in_parts_;
  std::vector<std::vector<sharded_parameter*>> of_unit_;
  std::vector<std::size_t> readers_;  ///< by unit
  std::vector<trained_table> tables_;  ///< all, the frozen ones too
  std::vector<std::size_t> frozen_;    ///< parameters that no memory for gradients is made for
  std::optional<whole_observer> reducer_;
  part_observer part_observer_;
  std::vector<std::unique_ptr<unit_hook>> hooks_;
  reading_hook inner_hook_{*this};
  std::vector<running_call> calls_;
  std::map<std::vector<std::size_t>, use_region> regions_;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/sharded_units_impl.hpp>
#endif
