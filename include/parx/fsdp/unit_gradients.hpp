// unit_gradients: where gradients are born, and how each rank gets its part of their mean.
//
// The gradients of a flat are reduced at once, straight from the memory in which backward writes
// them. Either every flat has such memory (stage 1), in which the parts stay; or there are slots
// that flats take in turns (stages 2 and 3), and parts have memory of their own. A unit that others
// are within, as the root, is in use while those take turns, and so has a slot for itself. A flat
// takes its slot when backward enters its unit, or when its gradients leave, if another one that is
// not complete has the slot then: until it has one, its gradients are in ordinary memory, as those
// of micro-batches under no_sync are. Flats leave strictly in the reverse order of the plan,
// whatever the order in which gradients become final, each from the same slot on all ranks;
// part_sum.hpp says how. Where sums of several passes are added up in the parts, they leave in
// every pass.
// Tables that are cut by rows leave behind all flats.
// What is called when is reduction_state's to say, where flats are the buckets. Threads: on the
// thread that runs backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/ddp/bucket_memory.hpp>
#include <parx/ddp/control_block.hpp>
#include <parx/ddp/reduction_state.hpp>
#include <parx/fsdp/lasting_memory.hpp>
#include <parx/fsdp/part_sum.hpp>
#include <parx/fsdp/row_table.hpp>
#include <parx/fsdp/sharded_parameter.hpp>
#include <parx/fsdp/unit_plan.hpp>

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
                 summing how, gradient_memory_of kind, call_site site);
  ~unit_gradients();
  unit_gradients(const unit_gradients&) = delete;
  unit_gradients& operator=(const unit_gradients&) = delete;

  /// The flats that have gradients, in the order in which they leave.
  [[nodiscard]] std::size_t size() const noexcept { return flats_.size(); }
  [[nodiscard]] std::size_t bytes(std::size_t i) const noexcept { return planned(i).whole_bytes(); }
  /// Of flats and tables, which leave behind them.
  [[nodiscard]] std::size_t launches() const noexcept { return flats_.size() + tables_.size(); }
  /// The number of the launch that a parameter is in; launches() for one that is frozen.
  [[nodiscard]] std::size_t number_of(std::size_t parameter) const noexcept {
    return numbers_[parameter];
  }
  [[nodiscard]] control_block& control() noexcept { return control_; }
  [[nodiscard]] const control_block& control() const noexcept { return control_; }

  /// The sums of passes before, which the next one would be added to, are gone: zero_grad() has
  /// discarded them.
  void forget_sums() noexcept { has_sums_ = false; }

  /// Collective, asynchronous: the sums of a pass that is not the last of its step begin.
  void start_adding() {
    is_last_ = false;
    begin();
  }
  /// Those of the last one. Tells what this rank has counted and used, and `way`, which is to be
  /// equal on all ranks. `is_mean`: gradients are means already, of the one rank that there is.
  void start(const reduction_state& state, std::uint32_t way, bool is_mean);
  /// Backward enters the unit: its gradients are born in their slots where those are free.
  void enter(std::size_t unit);
  /// Collective, asynchronous, in order: the gradients of these flats are final.
  void launch(std::size_t first, std::size_t last);
  /// Collective. All have been launched: blocks until this rank's parts have their sums or means.
  void finish();
  /// The pass has failed: what there is of gradients stays with the parameters.
  void abandon() noexcept;

 private:
  static constexpr std::size_t nobody = static_cast<std::size_t>(-1);

  struct slot {
    explicit slot(part_sum way) : sum(std::move(way)) {}

    part_sum sum;
    std::size_t bytes = 0;
    std::byte* memory = nullptr;
    std::size_t holder = nobody;  ///< the flat whose gradients are here
    std::size_t summed = nobody;  ///< the flat that `sum` is of
  };
  struct leaving {
    std::size_t flat = 0;  ///< in the plan
    std::size_t slot = 0;
    std::byte* part = nullptr;
    bool has_left = false;
  };

  [[nodiscard]] const unit_flat& planned(std::size_t i) const noexcept {
    return plan_.flats()[flats_[i].flat];
  }

  [[nodiscard]] slot& slot_of(std::size_t i) noexcept { return slots_[flats_[i].slot]; }
  void deal_slots();

  /// Ranks that gathered other units, of equal sizes, have computed with wrong values.
  void require_one_way() const;
  void begin();
  /// Replicas add up flats in the order in which they leave.
  void pass_on(std::size_t last);
  void pass_on_ready();
  void settle(slot& each);
  /// What its holder has not sent goes back to memory of the parameters' own.
  void evict(slot& from) noexcept;
  void take_slot(std::size_t i);

  void launch(std::size_t i);

  const unit_plan& plan_;
  const parameters& all_;
  const std::vector<trained_table> tables_;
  const summing how_;
  const gradient_memory_of kind_;
  const call_site site_;
  std::vector<leaving> flats_;
  std::unique_ptr<bucket_memory> memory_;
  std::unique_ptr<lasting_memory> parts_;
  std::vector<std::size_t> numbers_;  ///< by parameter
  control_block control_;
  std::vector<slot> slots_;
  work telling_;
  std::size_t launched_ = 0, passed_on_ = 0;  ///< flats, in this pass
  double own_way_ = 0;
  bool is_mean_ = false;
  bool is_last_ = true;
  bool has_sums_ = false;
  bool is_running_ = false;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/unit_gradients_impl.hpp>
#endif
