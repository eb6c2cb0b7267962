// Sums over all ranks that hold a part of the gradients: the norm of the whole gradient, whether
// any rank found an overflow.
//
// A parameter's places (autograd/gradient_axis.hpp) say on which axes its other parts and copies
// are. Targets on the same axes are added up together, one collective for each axis; where every
// rank has all gradients nothing is sent. Allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/autograd/gradient_axis.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/target.hpp>
#include <parx/types/square_sum.hpp>

namespace parx::inline PARX_ABI::optim {

namespace detail {

[[nodiscard]] inline bool are_on_same_axes(const gradient_places& a, const gradient_places& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.axis == y.axis; });
}
[[nodiscard]] inline bool are_on_axes(const gradient_places& places, const share_axes& axes) {
  return std::equal(places.begin(), places.end(), axes.begin(), axes.end(),
                    [](const auto& x, const auto& y) { return x.axis == y.lock(); });
}
[[nodiscard]] inline bool counts_here(const gradient_places& places) {
  return std::all_of(places.begin(), places.end(), [](const auto& each) { return each.counts; });
}

[[nodiscard]] inline gradient_places places_on(const share_axes& axes) {
  gradient_places places;
  for (const std::weak_ptr<gradient_axis>& each : axes) {
    if (auto axis = each.lock()) places.push_back({std::move(axis)});
  }
  return places;
}

/// Calls use(places) once for each different list of axes, in an order that is the same on all of
/// their ranks: those of the shares of a model, with parameters here or not, then those of other
/// targets.
template <typename T>
void for_each_axes(const std::vector<target<T>>& targets, const std::vector<share_axes>& shares,
                   function_ref<void(const gradient_places&)> use) {
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const gradient_places places = places_on(shares[i]);
    const bool is_first = std::none_of(
        shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const share_axes& before) { return are_on_axes(places, before); });
    if (is_first) use(places);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const gradient_places& places = targets[i].places();
    const bool is_of_share = std::any_of(
        shares.begin(), shares.end(),
        [&](const share_axes& share) { return are_on_axes(places, share); });
    const bool is_first = std::none_of(
        targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const target<T>& before) { return are_on_same_axes(before.places(), places); });
    if (is_first && !is_of_share) use(places);
  }
}

}  // namespace detail

/// Collective over the axes of the targets; local where there are none. The sum of the squares of
/// the whole gradient, exactly, the same on all ranks.
template <typename T>
[[nodiscard]] square_sum grad_squares_of_all_ranks(const std::vector<target<T>>& targets,
                                                   const std::vector<share_axes>& shares,
                                                   call_site site) {
  square_sum all;
  detail::for_each_axes(targets, shares, [&](const gradient_places& axes) {
    square_sum squares;
    for (const target<T>& each : targets) {
      if (!detail::are_on_same_axes(each.places(), axes)) continue;
      if (!detail::counts_here(each.places())) continue;
      each.for_each_grad([&](std::span<const T> grad) { squares.add(grad); });
    }
    for (const gradient_place& each : axes) each.axis->add_up(squares.words(), site);
    all += squares;
  });
  return all;
}

/// Collective as grad_squares_of_all_ranks. Whether any rank that has a part of these gradients
/// says so.
template <typename T>
[[nodiscard]] bool on_any_rank_of(const std::vector<target<T>>& targets,
                                  const std::vector<share_axes>& shares, bool here,
                                  call_site site) {
  std::int64_t ranks = here ? 1 : 0;
  detail::for_each_axes(targets, shares, [&](const gradient_places& axes) {
    ranks = ranks != 0 ? 1 : 0;
    for (const gradient_place& each : axes) each.axis->add_up({&ranks, 1}, site);
  });
  return ranks != 0;
}

}  // namespace parx::optim
