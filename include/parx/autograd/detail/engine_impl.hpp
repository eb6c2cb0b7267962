// Definitions of engine.hpp.
#pragma once

#include <algorithm>
#include <functional>

#include <parx/autograd/detail/engine.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void backward_pass::collect(node_base& root) {
  const std::uint64_t pass = next_pass();
  visit(root, pass);
  while (!scratch_.stack.empty()) {
    node_base* const here = scratch_.stack.back();
    scratch_.stack.pop_back();
    for (std::size_t i = 0; i < here->inputs(); ++i) {
      node_base* const input = here->input(i);
      if (input == nullptr || input->sequence < oldest_) continue;
      if (input->changed_at > here->sequence) [[unlikely]] refuse_changed(*input);
      visit(*input, pass);
    }
  }
  std::sort(scratch_.order.begin(), scratch_.order.end(),
            [](const auto& a, const auto& b) { return a->sequence > b->sequence; });
}

PARX_INLINE void backward_pass::find_borders() {
  in_halves_ = true;
  for (std::size_t n = scratch_.order.size(); n-- > 0;) {
    node_base& here = *scratch_.order[n];
    here.leads_to_border = false;
    for (std::size_t i = 0; i < here.inputs() && !here.leads_to_border; ++i) {
      here.leads_to_border = here.input(i) != nullptr && here.input(i)->leads_to_border;
    }
  }
}

PARX_INLINE double backward_pass::start(const backward_options& options) {
  group_by_observer();
  count_ = options.count;
  of_ = options.of;
  for (const observed& each : scratch_.observers) {
    // An observer may ask for something else before the second half begins; all accept the sum.
    if (in_halves_ || each.observer->wanted() == gradient_of::sum) of_ = gradient_of::sum;
  }
  const double mean = count_ == 0 ? 1 : 1 / count_;
  unobserved_scale_ = options.of == of_ ? 1 : mean;
  return of_ == gradient_of::sum ? 1 : mean;
}

PARX_INLINE void backward_pass::begin(node_base& root, backward_half half) {
  if (root.is_leaf && root.is_of(half)) ++root.pending;
  for (const counted<node_base>& here : scratch_.order) {
    for (std::size_t i = 0; i < here->inputs(); ++i) {
      node_base* const input = here->input(i);
      if (counts(input) && input->is_of(half)) ++input->pending;
    }
  }
  if (half == backward_half::weights) group_by_observer();  // some may have attached or detached
  for (const observed& each : scratch_.observers) {
    if (!scratch_.leaves[each.begin]->is_of(half)) continue;
    require(of_ == gradient_of::sum || each.observer->wanted() == gradient_of::mean,
            "a wrapper was made between the two halves of a backward: make it before");
    scratch_.reached.clear();
    for (std::size_t i = each.begin; i < each.end; ++i) {
      scratch_.reached.push_back(scratch_.leaves[i]->observer_index);
    }
    each.observer->begin_backward({count_, scratch_.reached, of_});
    scratch_.begun.push_back(each.observer);  // not if it threw: then no abandon_backward() for it
  }
  for (const counted<node_base>& leaf : scratch_.leaves) {
    if (leaf->observer != nullptr || !leaf->is_of(half)) continue;
    for (backward_observer* const each : scratch_.begun) leaf->introduce_to(*each);
    // The sum is scaled once at the end, so the old gradient is divided by that scale first.
    if (unobserved_scale_ != 1) leaf->scale_gradient(1 / unobserved_scale_);
  }
}

PARX_INLINE void backward_pass::run(node_base& root, backward_half half) {
  const running_scope scope(*this);
  region_walk regions;
  if (root.is_leaf && root.is_of(half)) contribution_arrived(root);
  for (counted<node_base>& here : scratch_.order) {
    if (half == backward_half::inputs && !here->leads_to_border) continue;
    const bool runs_again = half == backward_half::inputs && leads_elsewhere(*here);
    here->half_run = runs_again;
    regions.go_to(here->region);
    here->run(half);
    if (anomaly_watch* const watch = anomaly_watch::current()) {
      watch->ran(*here);
      if (!runs_again) watch->forget(*here);
    }
    if (!runs_again) here->drop_gradient();
    for (std::size_t i = here->inputs(); i-- > 0;) {
      node_base* const input = here->input(i);
      if (counts(input) && input->is_of(half)) contribution_arrived(*input);
    }
    if (runs_again || after_ == graph_after::retained) continue;
    here->release();
    here.reset();
  }
  regions.end();
  if (half == backward_half::inputs) {
    std::erase_if(scratch_.order, [](const counted<node_base>& each) { return !each; });
  }
  while (!scratch_.begun.empty()) {
    scratch_.begun.back()->end_backward();
    scratch_.begun.pop_back();
  }
}

PARX_INLINE void backward_pass::input_gradient_is_final(node_base& input) {
  backward_pass* const pass = running();
  if (!input.is_leaf || input.pending != 1 || anomaly_watch::current() != nullptr) return;
  if (pass != nullptr && input.sequence >= pass->oldest_) pass->contribution_arrived(input);
}

PARX_INLINE void backward_pass::abandon() noexcept {
  for (const counted<node_base>& leaf : scratch_.leaves) leaf->pending = 0;
  drop_gradients();
  for (backward_observer* const observer : scratch_.begun) observer->abandon_backward();
}

PARX_INLINE void backward_pass::drop_gradients() noexcept {
  for (const counted<node_base>& here : scratch_.order) {
    if (here) here->drop_gradient();
  }
}

PARX_INLINE void backward_pass::scratch::clear() noexcept {
  order.clear();
  stack.clear();
  leaves.clear();
  observers.clear();
  reached.clear();
  begun.clear();
}

PARX_INLINE bool backward_pass::leads_elsewhere(const node_base& here) noexcept {
  for (std::size_t i = 0; i < here.inputs(); ++i) {
    if (here.input(i) != nullptr && !here.input(i)->leads_to_border) return true;
  }
  return false;
}

PARX_INLINE void backward_pass::group_by_observer() {
  scratch_.observers.clear();
  std::sort(scratch_.leaves.begin(), scratch_.leaves.end(), [](const auto& a, const auto& b) {
    return a->observer != b->observer ? std::less<>()(a->observer, b->observer)
                                      : a->observer_index < b->observer_index;
  });
  for (std::size_t i = 0; i < scratch_.leaves.size(); ++i) {
    const node_base& leaf = *scratch_.leaves[i];
    if (leaf.observer == nullptr) continue;
    if (scratch_.observers.empty() || scratch_.observers.back().observer != leaf.observer) {
      scratch_.observers.push_back({leaf.observer, i, i, leaf.sequence});
    }
    observed& its = scratch_.observers.back();
    its.end = i + 1;
    its.oldest = std::min(its.oldest, leaf.sequence);
  }
  // Not by address: observers that issue collectives must begin in the same order on all ranks.
  std::sort(scratch_.observers.begin(), scratch_.observers.end(),
            [](const observed& a, const observed& b) { return a.oldest < b.oldest; });
}

PARX_INLINE void backward_pass::require_unfreed(bool freed) const {
  require(
      !freed,
      "backward at {} goes through a part of the graph that an earlier backward has freed: call "
      "the earlier one as backward({{.graph = parx::graph_after::retained}}), or detach() the "
      "shared part",
      site_);
}

PARX_INLINE void backward_pass::refuse_changed(const node_base& leaf) const {
  throw_usage(
      "backward at {} goes through a forward pass that used {} before an optimizer's step changed "
      "it: the gradients would belong to neither of the two values. Call backward() before step(), "
      "or run the forward pass again after it",
      site_, leaf.label().empty() ? "a leaf" : formatted("parameter \"{}\"", leaf.label()));
}

PARX_INLINE void backward_pass::visit(node_base& found, std::uint64_t pass) {
  if (found.visited_by == pass) return;
  require_unfreed(found.released || found.half_run);
  found.visited_by = pass;
  if (found.is_leaf) {
    scratch_.leaves.emplace_back(&found);
  } else {
    scratch_.order.emplace_back(&found);
    scratch_.stack.push_back(&found);
  }
}

PARX_INLINE void backward_pass::contribution_arrived(node_base& leaf) {
  if (leaf.pending == 0 || --leaf.pending > 0) return;  // 0: input_gradient_is_final() completed it
  leaf.complete();
  if (leaf.observer != nullptr) {
    leaf.observer->leaf_ready(leaf.observer_index);
  } else if (unobserved_scale_ != 1) {
    leaf.scale_gradient(unobserved_scale_);
  }
}

PARX_INLINE backward_pass*& backward_pass::running() noexcept {
  thread_local backward_pass* pass = nullptr;
  return pass;
}

PARX_INLINE backward_pass::scratch& backward_pass::idle_scratch() {
  thread_local scratch idle;
  return idle;
}

PARX_INLINE void run_inner_backward(node_base& root, std::uint64_t oldest) {
  backward_pass pass(graph_after::freed, {}, oldest);
  try {
    pass.collect(root);
    pass.begin(root, backward_half::whole);
    pass.run(root, backward_half::whole);
  } catch (...) {
    pass.abandon();
    throw;
  }
}

PARX_INLINE half_run_pass half_run_pass::inner(node_base& root, std::uint64_t oldest) {
  half_run_pass made(root, {}, oldest);
  made.run_inputs([&] { made.pass_->begin(root, backward_half::inputs); });
  return made;
}

PARX_INLINE half_run_pass& half_run_pass::operator=(half_run_pass&& other) noexcept {
  std::swap(pass_, other.pass_);
  std::swap(root_, other.root_);
  return *this;
}

PARX_INLINE void half_run_pass::run_weights() {
  const flush_denormals flushing;
  const std::unique_ptr<backward_pass> pass = std::move(pass_);
  try {
    pass->require_unfreed();
    pass->begin(*root_, backward_half::weights);
    pass->run(*root_, backward_half::weights);
  } catch (...) {
    pass->abandon();
    throw;
  }
}

}  // namespace parx::detail
