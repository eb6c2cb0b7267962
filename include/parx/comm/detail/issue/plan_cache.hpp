// plan_cache: the execution plans of a group, each made at the first call that needs it.
//
// The key has everything that the plan and the choice of its algorithm depend on. Uneven counts are
// compared in full: with a hash, a collision would send the wrong elements. A lookup allocates
// nothing.
// Threads: those of its group, one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/schedule/call_shape.hpp>
#include <parx/comm/schedule/execution_plan.hpp>

namespace parx::inline PARX_ABI::detail {

struct plan_scalars {
  operation what = operation::barrier;
  algorithm asked = algorithm::automatic;
  std::size_t count = 0;
  int root = -1;
  std::size_t element_bytes = 1;
  reduction_order order = reduction_order::any;
  bool shared_input = false;
  bool shared_output = false;
  bool operator==(const plan_scalars&) const = default;
};

struct plan_key {
  plan_scalars scalars{};
  std::span<const std::size_t> counts{};
  std::span<const std::size_t> incoming{};
};

class plan_cache {
 public:
  /// The plan for `key`. If there is none yet, make() returns its schedule. The reference is valid
  /// until the next find().
  template <typename Make>
  [[nodiscard]] const std::shared_ptr<const execution_plan>& find(const plan_key& key, Make make) {
    static constexpr std::size_t most_plans = 256;  // few enough for a linear search
    static constexpr std::size_t most_actions = 65'536;  // of all plans: some 8 MB
    if (latest_ < kept_.size() && kept_[latest_].is_for(key)) return kept_[latest_].made;
    for (latest_ = 0; latest_ < kept_.size(); ++latest_) {
      if (kept_[latest_].is_for(key)) return kept_[latest_].made;
    }
    std::shared_ptr<const execution_plan> made(new execution_plan(make_plan(make())));
    actions_ += made->steps.actions.size();
    if (kept_.size() >= most_plans || actions_ > most_actions) {
      kept_.clear();
      actions_ = made->steps.actions.size();
    }
    latest_ = kept_.size();
    kept_.push_back({key.scalars,
                     {key.counts.begin(), key.counts.end()},
                     {key.incoming.begin(), key.incoming.end()},
                     std::move(made)});
    return kept_.back().made;
  }

 private:
  struct kept_plan {
    plan_scalars scalars;
    std::vector<std::size_t> counts;
    std::vector<std::size_t> incoming;
    std::shared_ptr<const execution_plan> made;

    [[nodiscard]] bool is_for(const plan_key& key) const noexcept {
      return scalars == key.scalars && same(counts, key.counts) && same(incoming, key.incoming);
    }
    [[nodiscard]] static bool same(std::span<const std::size_t> a,
                                   std::span<const std::size_t> b) noexcept {
      return std::equal(a.begin(), a.end(), b.begin(), b.end());
    }
  };

  std::vector<kept_plan> kept_;
  std::size_t actions_ = 0;
  std::size_t latest_ = 0;  ///< index of the last plan found: a loop needs the same one again
};

}  // namespace parx::detail
