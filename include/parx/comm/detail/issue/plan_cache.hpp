// plan_cache: the plans of a group, each made when its call comes for the first time.
//
// A plan is found by everything that it and the choice of its algorithm depend on, uneven counts in
// full: a hash that collides would send the wrong elements. Looking one up allocates nothing.
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
  /// The plan of `key`; `make` is called for its schedule if there is none yet. What is returned
  /// stays until the next call.
  template <typename Make>
  [[nodiscard]] const std::shared_ptr<const execution_plan>& find(const plan_key& key, Make make) {
    static constexpr std::size_t most_plans = 256;  // few enough to look at each
    static constexpr std::size_t most_actions = 65'536;  // of all of them: some 8 MB
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
  std::size_t latest_ = 0;  ///< found: a loop asks for the same again and again
};

}  // namespace parx::detail
