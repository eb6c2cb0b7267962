// unit_gradients: the gradient_sums of an fsdp: reduces gradients to each rank's part of the mean.
//
// The gradients of a flat are reduced as one, directly from the memory in which backward writes
// them (gradient_slots.hpp); a flat_sum does it. A flat takes its slot when backward enters its
// unit, or, if the slot is still held by an incomplete flat then, when it is launched. Flats are
// launched strictly in the reverse order of the plan, whatever the order in which gradients become
// final, and each from the same slot on all ranks. If sums of several passes are added up in the
// parts, or each is a virtual replica (replica_gradients.hpp), every pass launches the flats.
// Tables that are cut by rows are launched after all flats. Flats, then tables, are the buckets of
// reduction_state.
// Threads: the one that runs backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/fsdp/flat_sum.hpp>
#include <parx/fsdp/gradient_slots.hpp>
#include <parx/fsdp/narrow_sum.hpp>
#include <parx/fsdp/rank_order_sum.hpp>
#include <parx/fsdp/replica_flat_sum.hpp>
#include <parx/fsdp/scattered_sum.hpp>
#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/unit_prefetcher.hpp>
#include <parx/reduction/gradient_sums.hpp>
#include <parx/reduction/rows/row_table.hpp>

namespace parx::inline PARX_ABI::detail {

class unit_gradients : public gradient_sums {
 public:
  using parameters = std::vector<std::unique_ptr<sharded_parameter>>;

  /// Collective over the groups of `how`. Binds the gradients of `all`; everything is borrowed. The
  /// order in which `uses` gathers must be the same on all ranks. Errors begin with `who`.
  unit_gradients(const unit_plan& plan, const parameters& all, std::vector<trained_table> tables,
                 unit_prefetcher& uses, sum_settings how, gradient_memory_of kind,
                 const std::string& who, call_site site)
      : gradient_sums({{how.all, {}, who}, std::vector<std::size_t>(all.size()), how.order, site}),
        how_(std::move(how)), site_(site), tables_(std::move(tables)), plan_(plan), all_(all),
        uses_(uses), kind_(kind), numbers_(all.size()) {
    allocate();
  }
  ~unit_gradients() override { drop_sums(); }  // operations still write to memory that goes

  /// Collective. Throws errc::mismatch where other ranks have not unfrozen these parameters, and
  /// ends the group with that reason.
  void require_unfrozen(const std::vector<std::size_t>& unfrozen);
  /// Collective, between passes: flats of the plan, and tables, are trained that were not before.
  /// Gradients and sums that there are stay.
  virtual void extend(std::vector<trained_table> tables) {
    slots_->unbind();
    sums_.clear();
    slots_.reset();
    tables_ = std::move(tables);
    allocate();
  }

  /// The number of launches in a pass: flats, then tables.
  [[nodiscard]] std::size_t launches() const noexcept { return sums_.size() + tables_.size(); }
  /// The number of the launch that a parameter is in; launches() for one of a frozen flat.
  [[nodiscard]] std::size_t number_of(std::size_t parameter) const noexcept {
    return numbers_[parameter];
  }
  /// zero_grad(): forgets the virtual replicas of this step so far.
  virtual void drop_replicas() noexcept {}
  /// Backward enters the unit: its flats take their slots if those are free.
  void enter(std::size_t unit) {
    if (!is_running_) return;
    for (std::size_t i = launched_; i < sums_.size(); ++i) {
      if (slots_->flat(i).unit == unit && slots_->holder(i) == nobody) take_slot(i);
    }
  }

  // gradient_sums:

  [[nodiscard]] std::size_t bucket_count() const noexcept override { return sums_.size(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t i) const noexcept override {
    return slots_->flat(i).whole_bytes();
  }
  [[nodiscard]] std::size_t held() const override {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i]->has_part_grad() || all_[i]->has_whole_grad()) return i;
    }
    return reduction_state::nothing;
  }
  void start(const reduction_state& state, const reduction_pass& pass) override {
    has_sums_ = has_sums_ && pass.adds;  // or zero_grad() has discarded them
    pass_ = pass;
    pass_.adds = has_sums_;
    begin_pass();
    if (pass.is_last) {
      headers().own().order_hash() = own_order_hash_ = uses_.take_order_hash();
      headers().send(state, all_);
    }
    passed_on_ = launched_ = 0;
    is_running_ = true;
  }
  void launch(std::size_t first, std::size_t last) override {
    for (; first < last; ++first) {
      if (first < sums_.size()) launch(first);
      else launch_rows(*tables_[first - sums_.size()].rows);
    }
    pass_on_ready();
  }
  void finish() override;
  void abandon() noexcept override {
    if (!std::exchange(is_running_, false)) return;
    drop();
    slots_->abandon();
  }

 protected:
  /// Local: the pass is known, nothing is sent yet.
  virtual void begin_pass() {}
  /// Blocks until the step header has arrived.
  virtual void receive_header() { headers().wait(); }
  /// Gives all sums up.
  virtual void drop() noexcept {
    for (const trained_table& each : tables_) each.rows->abandon();
    drop_sums();
  }

  const sum_settings how_;
  const call_site site_;
  std::vector<trained_table> tables_;
  std::vector<std::unique_ptr<flat_sum>> sums_;  ///< by flat, in launch order
  reduction_pass pass_{};
  bool has_sums_ = false;  ///< the parts have sums of earlier passes
  bool is_running_ = false;

 private:
  void drop_sums() noexcept {
    for (const auto& each : sums_) each->drop();
  }
  static constexpr std::size_t nobody = gradient_slots::nobody;

  /// Allocates memory for the trained flats and binds the gradients to it.
  void allocate();
  [[nodiscard]] std::unique_ptr<flat_sum> sum_of(std::size_t i) const {
    const flat_parameter& flat = slots_->flat(i);
    const auto make = [&]<typename Sum>(std::type_identity<Sum>) -> std::unique_ptr<flat_sum> {
      return std::make_unique<Sum>(how_, flat, slots_->part(i), headers().own(), site_);
    };
    if (how_.virtual_replicas) return make(std::type_identity<replica_flat_sum>());
    if (is_narrowed(how_.wire.reduce, flat.type)) return make(std::type_identity<narrow_sum>());
    if (how_.in_rank_order()) return make(std::type_identity<rank_order_sum>());
    return make(std::type_identity<scattered_sum>());
  }

  /// Throws if the ranks used units in different orders: a gather then mixed units of equal sizes,
  /// and the ranks computed with wrong values.
  void require_one_order() const {
    if (headers().own().order_hash() == own_order_hash_ * how_.all.size()) return;
    throw_error(errc::mismatch,
                "fsdp on group \"{}\": the ranks have called other modules, or in another order, "
                "since the last step, so values of one unit were gathered into another. Every rank "
                "must call the units in the same order; a rank without samples calls them with an "
                "empty batch",
                how_.all.name());
  }
  /// Passes the sums of flats up to `last` on to the replicas, in launch order.
  void pass_on(std::size_t last) {
    if (pass_.is_last) receive_header();
    for (; passed_on_ <= last; ++passed_on_) sums_[passed_on_]->pass_on();
  }
  void pass_on_ready() {
    if (!how_.has_replicas()) return;
    while (passed_on_ < launched_ && headers().test() && sums_[passed_on_]->is_ready()) {
      pass_on(passed_on_);
    }
  }
  /// Finishes the sum that runs in the slot of flat i.
  void settle(std::size_t i) {
    const std::size_t summed = std::exchange(slots_->summed(i), nobody);
    if (summed == nobody) return;
    pass_on(summed);
    sums_[summed]->finish();
  }
  void take_slot(std::size_t i) {
    if (slots_->holder(i) == i) return;
    settle(i);
    slots_->take(i);
  }
  void launch_rows(any_row_table& table) {
    pass_.is_last ? table.announce() : table.keep(pass_);
  }
  void launch(std::size_t i) {
    take_slot(i);
    slots_->hand_over(i);
    launched_ = i + 1;
    sums_[i]->start(slots_->memory(i), pass_);
  }

  const unit_plan& plan_;
  const parameters& all_;
  unit_prefetcher& uses_;
  const gradient_memory_of kind_;
  std::optional<gradient_slots> slots_;
  std::vector<std::size_t> numbers_;          ///< by parameter
  std::size_t launched_ = 0, passed_on_ = 0;  ///< flats, in this pass
  double own_order_hash_ = 0;
};

inline void unit_gradients::require_unfrozen(const std::vector<std::size_t>& unfrozen) {
  step_header& header = headers().own();
  std::fill(header.values().begin(), header.values().end(), 0.0);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const bool is_frozen = all_[i]->is_frozen() && !all_[i]->has_whole_grad();
    header.set_use(i, is_frozen ? parameter_use::frozen : parameter_use::unused);
  }
  // Ranks that have unfrozen none are in start(), which calls the same operation.
  all_reduce(how_.all, header.values(), {.order = how_.order}, site_);
  for (const std::size_t i : unfrozen) {
    if (header.frozen_ranks(i) == 0) continue;
    const std::string why = formatted(
        "{}: parameter \"{}\" is unfrozen on rank {} and frozen on {} of {} ranks. Call "
        "unfreeze() on all ranks or on none",
        headers().who(), all_[i]->name(), how_.all.rank(), header.frozen_ranks(i),
        how_.all.size());
    how_.all.abort(why);
    throw_error(errc::mismatch, "{}", why);
  }
}

inline void unit_gradients::allocate() {
  std::vector<std::size_t> flats;
  for (std::size_t flat = plan_.flats().size(); flat-- > 0;) {
    if (plan_.flats()[flat].is_trained) flats.push_back(flat);
  }
  slots_.emplace(plan_, all_, std::move(flats), kind_, how_.first(), how_.part, site_);
  for (std::size_t i = 0; i < slots_->size(); ++i) sums_.push_back(sum_of(i));
  std::fill(numbers_.begin(), numbers_.end(), launches());
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    for (const flat_item& item : slots_->flat(i).items) numbers_[item.parameter] = i;
  }
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    numbers_[tables_[i].parameter] = sums_.size() + i;
  }
}

inline void unit_gradients::finish() {
  if (pass_.is_last) {
    headers().receive(all_);
    receive_header();
    require_one_order();
    for (const trained_table& each : tables_) each.rows->start();
  }
  for (std::size_t i = 0; i < sums_.size(); ++i) settle(i);
  if (pass_.is_last) {
    for (const trained_table& each : tables_) {
      each.rows->finish(headers().own().factor(), headers().users(each.parameter) > 0);
    }
  }
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (numbers_[i] >= sums_.size()) continue;
    // Only the last pass knows which parameters no rank has used.
    if (!pass_.is_last || headers().users(i) > 0) all_[i]->assume_part_grad();
    else if (has_sums_) all_[i]->zero_grad();
  }
  has_sums_ = !pass_.is_last;
  is_running_ = false;
}

}  // namespace parx::detail
