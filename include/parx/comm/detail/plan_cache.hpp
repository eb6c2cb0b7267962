// plan_cache: the plans of a group, each made when its call comes for the first time.
//
// A plan is found by everything that it and the choice of its algorithm depend on, uneven counts in
// full: a hash that collides would send the wrong elements. Looking one up allocates nothing.
// Threads: those of its group, one at a time.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/schedule/call_shape.hpp>
#include <parx/comm/schedule/plan.hpp>

namespace parx::detail {

struct plan_scalars {
  operation what = operation::barrier;
  algorithm asked = algorithm::automatic;
  std::size_t count = 0;
  int root = -1;
  std::size_t element_bytes = 1;
  reduction_order order = reduction_order::any;
  bool shared_input = false;
  bool shared_output = false;
  int staging_turn = 0;
  auto operator<=>(const plan_scalars&) const = default;
};

template <typename List>
struct plan_key {
  plan_scalars scalars{};
  List counts{};
  List incoming{};
};
using borrowed_plan_key = plan_key<std::span<const std::size_t>>;
using kept_plan_key = plan_key<std::vector<std::size_t>>;

class plan_cache {
 public:
  /// The plan of `key`; `make` is called for its schedule if there is none yet. What is returned
  /// stays until the next call.
  template <typename Make>
  [[nodiscard]] const std::shared_ptr<const plan>& find(const borrowed_plan_key& key, Make make) {
    static constexpr std::size_t most_plans = 256;
    if (latest_ != plans_.end() && equal(latest_->first, key)) return latest_->second;
    latest_ = plans_.find(key);
    if (latest_ != plans_.end()) return latest_->second;
    std::shared_ptr<const plan> made(new plan(make_plan(make())));
    if (plans_.size() >= most_plans) plans_.clear();
    latest_ = plans_.emplace(kept_plan_key{key.scalars,
                                           {key.counts.begin(), key.counts.end()},
                                           {key.incoming.begin(), key.incoming.end()}},
                             std::move(made)).first;
    return latest_->second;
  }

 private:
  struct less {
    using is_transparent = void;
    template <typename A, typename B>
    [[nodiscard]] bool operator()(const plan_key<A>& a, const plan_key<B>& b) const noexcept {
      if (const auto order = a.scalars <=> b.scalars; order != 0) return order < 0;
      if (const int order = compare(a.counts, b.counts); order != 0) return order < 0;
      return compare(a.incoming, b.incoming) < 0;
    }
    [[nodiscard]] static int compare(std::span<const std::size_t> a,
                                     std::span<const std::size_t> b) noexcept {
      if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
      const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin());
      return x == a.end() ? 0 : *x < *y ? -1 : 1;
    }
  };

  using kept_plans = std::map<kept_plan_key, std::shared_ptr<const plan>, less>;

  [[nodiscard]] static bool equal(const kept_plan_key& a, const borrowed_plan_key& b) noexcept {
    return a.scalars == b.scalars && less::compare(a.counts, b.counts) == 0 &&
           less::compare(a.incoming, b.incoming) == 0;
  }

  kept_plans plans_;
  kept_plans::iterator latest_ = plans_.end();  ///< found: a loop asks for the same again and again
};

}  // namespace parx::detail
