// replica_gradients: the unit_gradients of an fsdp with virtual replicas. A pass is one replica, or
// padding where other ranks have one more.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/fsdp/unit_gradients.hpp>
#include <parx/reduction/replica_counts.hpp>

namespace parx::inline PARX_ABI::detail {

class replica_gradients final : public unit_gradients {
 public:
  /// As unit_gradients; `how` has virtual replicas.
  template <typename... Args>
  explicit replica_gradients(Args&&... args)
      : unit_gradients(std::forward<Args>(args)...),
        counts_(*how_.virtual_replicas, how_.all, headers().who(), site_) {}

  void extend(std::vector<trained_table> tables) override {
    require(!has_sums_,
            "{}: a parameter is unfrozen between two replicas of a step: unfreeze it between steps",
            headers().who());
    unit_gradients::extend(std::move(tables));
  }
  void drop_replicas() noexcept override {
    if (is_running_) return;
    drop();
    has_sums_ = false;
  }
  [[nodiscard]] std::size_t held() const override {
    const std::size_t found = unit_gradients::held();
    if (found != reduction_state::nothing) return found;
    // Tables keep the gradients of replicas to themselves: of a model that trains nothing else, no
    // parameter has a gradient between two replicas.
    const bool are_in_tables = has_sums_ && sums_.empty() && !tables_.empty();
    return are_in_tables ? tables_.front().parameter : reduction_state::nothing;
  }

 private:
  void begin_pass() override {
    if (!pass_.adds) drop();
    pass_.is_padding = !pass_.adds && how_.virtual_replicas->has_fewer();
    require(!pass_.is_padding || pass_.count == 0,
            "{}: other ranks have a replica more than this one, whose first pass of a step is "
            "therefore of an empty batch; this one has {} samples",
            headers().who(), pass_.count);
    if (pass_.is_last) counts_.send(pass_.count);
    else if (!pass_.is_padding) counts_.add(pass_.count);
  }
  void receive_header() override {
    unit_gradients::receive_header();
    headers().own().count() = counts_.receive();
  }
  void drop() noexcept override {
    unit_gradients::drop();
    counts_.drop();
  }

  replica_counts counts_;
};

}  // namespace parx::detail
