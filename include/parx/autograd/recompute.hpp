// The bookkeeping of a checkpointed part of a forward pass (autograd/checkpoint.hpp): which outside
// variables it uses, and what must happen only once although it runs twice.
//
// Draws of a random layer, collectives and running statistics go through once(): the first run
// keeps their results, the recomputation reuses them. Thread-local state.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/detail/node.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::detail {

/// The results of once() in one checkpointed part, in order.
using once_results = std::vector<std::shared_ptr<const void>>;

/// One run of a checkpointed part; runs nest.
class region_run {
 public:
  enum class purpose { first, recomputation };

  region_run(purpose what, once_results& results) noexcept
      : purpose_(what), results_(results), outer_(std::exchange(innermost(), this)) {}
  ~region_run() { innermost() = outer_; }
  region_run(const region_run&) = delete;
  region_run& operator=(const region_run&) = delete;

  [[nodiscard]] static region_run*& innermost() noexcept {
    thread_local region_run* run = nullptr;
    return run;
  }
  /// A first run within a recomputation recomputes, too.
  [[nodiscard]] bool recomputes() const noexcept {
    return purpose_ == purpose::recomputation || (outer_ != nullptr && outer_->recomputes());
  }

  template <typename Function>
  static auto once(region_run* run, Function& f) -> std::invoke_result_t<Function&> {
    using result = std::invoke_result_t<Function&>;
    if (run == nullptr) return f();
    if (run->purpose_ == purpose::recomputation) {
      require(run->next_ < run->results_.size(),
              "the recomputation of a checkpointed part does more than its first run did: it must "
              "take the same way both times");
      return *static_cast<const result*>(run->results_[run->next_++].get());
    }
    // The outer part, if any, may be recomputing.
    auto made = std::make_shared<const result>(once(run->outer_, f));
    run->results_.push_back(made);
    return *made;
  }

 private:
  const purpose purpose_;
  once_results& results_;
  std::size_t next_ = 0;
  region_run* const outer_;
};

/// The result of f(), which must be copyable. A recomputation returns that of the first run without
/// calling f: for whatever changes state or talks to other ranks.
template <typename Function>
[[nodiscard]] auto once(Function&& f) {
  return region_run::once(region_run::innermost(), f);
}

/// Whether this forward pass, or one that contains it, is a recomputation.
[[nodiscard]] inline bool is_recomputing() noexcept {
  return region_run::innermost() != nullptr && region_run::innermost()->recomputes();
}

/// The outside variables that an unrecorded run uses, in the order of first use.
struct used_nodes {
  std::vector<counted<node_base>> nodes;

  void note(node_base* used) {
    for (const counted<node_base>& known : nodes) {
      if (known.get() == used) return;
    }
    nodes.emplace_back(used);
  }
};

}  // namespace parx::detail
