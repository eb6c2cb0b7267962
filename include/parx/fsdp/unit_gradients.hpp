// unit_gradients: the memory of gradients, and their reduction to each rank's part of the mean.
//
// The gradients of a flat are reduced as one, directly from the memory in which backward writes
// them. In stage 1 every flat has such memory, and the parts stay in it. In stages 2 and 3 the
// flats take turns in a few slots, and the parts have memory of their own. A unit that contains
// others, such as the root, is in use while those take turns, so its flats have slots of their own.
// A flat takes its slot when backward enters its unit, or, if the slot is still held by an
// incomplete flat then, when it is launched; until then its gradients are in ordinary memory, as
// those of micro-batches under no_sync are. Flats are launched strictly in the reverse order of the
// plan, whatever the order in which gradients become final, and each from the same slot on all
// ranks; shard_reduction.hpp does the sum. If sums of several passes are added up in the parts,
// every pass launches the flats. Tables that are cut by rows are launched after all flats.
// reduction_state decides when each function is called; flats are its buckets.
// Threads: the one that runs backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <parx/comm/work.hpp>
#include <parx/ddp/bucket_memory.hpp>
#include <parx/ddp/reduction_state.hpp>
#include <parx/ddp/step_header.hpp>
#include <parx/fsdp/row_table.hpp>
#include <parx/fsdp/shard_reduction.hpp>
#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/zeroed_pages.hpp>

namespace parx::inline PARX_ABI::detail {

enum class gradient_memory_of { all_flats, slots };

/// A trained parameter that is cut by rows.
struct trained_table {
  std::size_t parameter;
  row_table_part* rows;
};

class unit_gradients {
 public:
  using parameters = std::vector<std::unique_ptr<sharded_parameter>>;

  /// Collective over the groups of `how`. Binds the gradients of `all`; everything is borrowed.
  unit_gradients(const unit_plan& plan, const parameters& all, std::vector<trained_table> tables,
                 reduction_layout how, gradient_memory_of kind, call_site site);
  ~unit_gradients();
  unit_gradients(const unit_gradients&) = delete;
  unit_gradients& operator=(const unit_gradients&) = delete;

  /// Collective. Throws errc::mismatch where other ranks have not unfrozen these parameters, and
  /// ends the group with that reason.
  void require_unfrozen(const std::vector<std::size_t>& unfrozen);
  /// Collective, between passes: flats of the plan, and tables, are trained that were not before.
  /// Gradients and sums that there are stay.
  void extend(std::vector<trained_table> tables);

  /// The number of flats that have gradients, and their sizes in launch order.
  [[nodiscard]] std::size_t size() const noexcept { return flats_.size(); }
  [[nodiscard]] std::size_t bytes(std::size_t i) const noexcept { return planned(i).whole_bytes(); }
  /// The number of launches in a pass: flats, then tables.
  [[nodiscard]] std::size_t launches() const noexcept { return flats_.size() + tables_.size(); }
  /// The number of the launch that a parameter is in; launches() for one of a frozen flat.
  [[nodiscard]] std::size_t number_of(std::size_t parameter) const noexcept {
    return numbers_[parameter];
  }
  [[nodiscard]] step_header& control() noexcept { return control_; }
  [[nodiscard]] const step_header& control() const noexcept { return control_; }

  /// zero_grad() has discarded the sums of earlier passes: the next pass does not add to them.
  void forget_sums() noexcept { has_sums_ = false; }

  /// Collective, asynchronous: begins the sums of a pass that is not the last of its step.
  void start_adding() {
    is_last_ = false;
    begin();
  }
  /// Collective, asynchronous: begins the sums of the last pass. Sends what this rank has counted
  /// and used, and `order_hash`, which must be equal on all ranks. `is_mean`: the gradients are
  /// means already, because there is only one rank.
  void start(const reduction_state& state, std::uint32_t order_hash, bool is_mean);
  /// Backward enters the unit: its flats take their slots if those are free.
  void enter(std::size_t unit);
  /// Collective, asynchronous: the gradients of launches [first, last) are final. In launch order.
  void launch(std::size_t first, std::size_t last);
  /// Collective, after all launches: blocks until this rank's parts have their sums or means.
  void finish();
  /// The pass has failed: gradients that were not launched stay with the parameters.
  void abandon() noexcept;

 private:
  static constexpr std::size_t nobody = static_cast<std::size_t>(-1);

  struct slot {
    explicit slot(shard_reduction empty) : sum(std::move(empty)) {}

    shard_reduction sum;
    std::size_t bytes = 0;
    std::byte* memory = nullptr;
    std::size_t holder = nobody;  ///< the flat whose gradients are here
    std::size_t summed = nobody;  ///< the flat that `sum` is summing
  };
  struct trained_flat {
    std::size_t flat = 0;  ///< index in the plan
    std::size_t slot = 0;
    std::byte* part = nullptr;
    bool is_launched = false;
  };

  [[nodiscard]] const flat_parameter& planned(std::size_t i) const noexcept {
    return plan_.flats()[flats_[i].flat];
  }

  [[nodiscard]] slot& slot_of(std::size_t i) noexcept { return slots_[flats_[i].slot]; }
  /// Allocates memory for the trained flats and binds the gradients to it.
  void allocate();
  void assign_slots();

  /// Throws if the ranks used units in different orders: a gather then mixed units of equal sizes,
  /// and the ranks computed with wrong values.
  void require_one_order() const;
  void begin();
  /// Passes the sums of flats up to `last` on to the replicas, in launch order.
  void pass_on(std::size_t last);
  void pass_on_ready();
  /// Finishes the sum that runs in the slot.
  void settle(slot& each);
  /// Moves the holder's gradients to the parameters' own memory.
  void evict(slot& from) noexcept;
  void take_slot(std::size_t i);

  void launch(std::size_t i);

  const unit_plan& plan_;
  const parameters& all_;
  std::vector<trained_table> tables_;
  const reduction_layout how_;
  const gradient_memory_of kind_;
  const call_site site_;
  std::vector<trained_flat> flats_;  ///< in launch order
  std::unique_ptr<bucket_memory> memory_;
  std::unique_ptr<zeroed_pages> parts_;
  std::vector<std::size_t> numbers_;  ///< by parameter
  step_header control_;
  std::vector<slot> slots_;
  work control_sum_;
  std::size_t launched_ = 0, passed_on_ = 0;  ///< flats, in this pass
  double own_order_hash_ = 0;
  bool is_mean_ = false;
  bool is_last_ = true;
  bool has_sums_ = false;
  bool is_running_ = false;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/unit_gradients_impl.hpp>
#endif
