// reducer: the backward_observer of a ddp. It passes each event of a backward pass to
// reduction_state and has gradient_buckets execute the actions that it answers with.
//
// A backward pass that fails closes its groups only if its sums are under way: otherwise no other
// rank waits for them.
// Threads: called on the thread that runs backward; raise_flag() on any.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/observer.hpp>
#include <parx/autograd/parameter_handle.hpp>
#include <parx/comm/abort_reason.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/ddp/gradient_buckets.hpp>
#include <parx/ddp/reduction_finish.hpp>
#include <parx/ddp/reduction_group.hpp>
#include <parx/ddp/reduction_state.hpp>
#include <parx/ddp/times.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Handle is parameter_handle; a template for the same reason as gradient_buckets.
template <typename Handle>
class reducer final : public backward_observer {
 public:
  using handles = std::vector<std::unique_ptr<Handle>>;

  /// Collective. `site` is where the user's program made the ddp.
  reducer(reduction_groups groups, handles parameters, const bucket_limits& limits, comm_hook hook,
          reduction_order order, reduction_finish finish, call_site site)
      : groups_(std::move(groups)), parameters_(std::move(parameters)),
        buckets_(groups_, parameters_, limits, std::move(hook), order, site),
        state_(groups_.who(), members(), buckets_.size()), finish_(finish) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->attach(this, i);
  }
  ~reducer() override {
    for (const auto& each : parameters_) each->detach_observer();
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;

  [[nodiscard]] const gradient_buckets<Handle>& buckets() const noexcept { return buckets_; }
  [[nodiscard]] gradient_buckets<Handle>& buckets() noexcept { return buckets_; }
  [[nodiscard]] const ddp_times& times() const noexcept { return times_; }
  [[nodiscard]] bool has_one_group() const noexcept { return groups_.size() == 1; }
  /// While false, gradients are only accumulated on this rank.
  [[nodiscard]] bool& synchronising() noexcept { return synchronising_; }

  [[nodiscard]] std::uint64_t values_hash() const {
    return values_hash([](const Handle&) { return true; });
  }
  /// Collective. Whether all ranks of each group hold the same values of its parameters; the same
  /// answer on all ranks of the ddp's own group.
  [[nodiscard]] bool replicas_equal(call_site site) const {
    bool equal = true;
    for (std::size_t group = groups_.size(); group-- > 0;) {
      // The own group comes last, so that its ranks also exchange what they found in the others.
      const std::array<std::uint64_t, 2> mine{
          values_hash([&](const Handle& each) { return groups_.number_of(each) == group; }),
          equal ? 1U : 0U};
      std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(groups_[group].size()));
      all_gather(groups_[group], mine, all, {}, site);
      for (std::size_t i = 0; i < all.size(); ++i) {
        equal = equal && all[i] == (i % 2 == 0 ? mine[0] : 1);
      }
    }
    return equal;
  }
  void zero_grad() const {
    for (const auto& each : parameters_) each->zero_grad();
  }
  void raise_flag() noexcept { flag_ = true; }
  [[nodiscard]] bool flag_raised() const noexcept { return buckets_.control().flags() > 0; }

  /// With one rank and one pass per step there is nothing to add up: backward computes the mean.
  [[nodiscard]] gradient_of wanted() const override {
    const bool makes_mean = synchronising_ && groups_.is_alone() && state_.is_whole(held());
    return makes_mean ? gradient_of::mean : gradient_of::sum;
  }
  void begin_backward(const backward_start& start) override {
    const pass_kind kind = !synchronising_                    ? pass_kind::local
                           : start.of == gradient_of::mean ? pass_kind::mean
                                                           : pass_kind::sums;
    const reduction_actions next = state_.begin(kind, start.count, start.reached, held());
    if (kind != pass_kind::local) buckets_.control().flags() = flag_.exchange(false) ? 1 : 0;
    if (!next.start_sums) return;
    async_before_ = groups_.async_seconds();
    try {
      buckets_.start(state_);
      buckets_.launch(next.first, next.last);
    } catch (...) {
      abandon_backward();
      throw;
    }
  }

  /// Allowed, but usually a layer was forgotten in members(): rank 0 warns once.
  void unobserved(std::string_view name, std::span<const std::size_t> shape) override {
    if (std::exchange(warned_unobserved_, true) || groups_[0].rank() != 0) return;
    log(log_level::warn,
        "{}: backward reaches parameter \"{}\" [{}], which the model does not name: its gradient "
        "stays this rank's own, and what is made from the model (an optimizer, a checkpoint) "
        "leaves it out. If it belongs to a layer of the model, that is missing in members()",
        groups_.who(), name, joined_text(shape));
  }

  void leaf_ready(std::size_t index) override {
    const reduction_actions next = state_.ready(index);
    if (state_.phase() == reduction_phase::summing) buckets_.launch(next.first, next.last);
  }

  void end_backward() override {
    const reduction_actions next = state_.end();
    under_way_ = next.finish_sums && finish_ == reduction_finish::when_asked;
    if (!under_way_) end(next);
  }

  /// A pass of `count` samples that reaches no parameter: it only sums what earlier passes have
  /// accumulated.
  void add_pass(double count) {
    begin_backward({.count = count});
    end_backward();
  }
  [[nodiscard]] std::uint64_t passes() const noexcept { return state_.passes(); }
  void finish() {
    if (std::exchange(under_way_, false)) end(state_.end());
  }

  void before_step() const override { state_.before_step(); }

  void abandon_backward() noexcept override {
    if (!state_.abandon().abort) return;
    const int rank = groups_[0].rank();
    groups_.abort(std::current_exception()
                      ? abort_reason(rank)
                      : formatted("rank {}: an exception ended its backward pass; see its output",
                                    rank));
  }

 private:
  void end(const reduction_actions& next) {
    if (next.finish_sums) {
      const trace::span waiting("wait for gradients", "ddp");
      const auto from = std::chrono::steady_clock::now();
      buckets_.finish();
      times_.waited +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
      times_.communication += groups_.async_seconds() - async_before_;
    }
    if (next.end_step) {
      for (const auto& each : parameters_) {
        if (each->step() != nullptr) each->step()->end_step();
      }
    }
    state_.reduced();
  }

  [[nodiscard]] std::vector<reduction_state::member> members() const {
    std::vector<reduction_state::member> all;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      all.push_back({parameters_[i]->name(), buckets_.bucket_of(i)});
    }
    return all;
  }

  [[nodiscard]] std::uint64_t values_hash(auto&& counts) const {
    std::uint64_t hash = fnv1a({});
    for (const auto& each : parameters_) {
      if (!counts(*each)) continue;
      hash = fnv1a({static_cast<const char*>(each->value()), each->bytes()}, hash);
    }
    return hash;
  }

  /// The first parameter that has a gradient, or reduction_state::nothing.
  [[nodiscard]] std::size_t held() const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i]->has_grad()) return i;
    }
    return reduction_state::nothing;
  }

  const reduction_groups groups_;
  const handles parameters_;
  gradient_buckets<Handle> buckets_;
  reduction_state state_;
  std::atomic<bool> flag_{false};  ///< raised but not sent yet
  ddp_times times_;
  double async_before_ = 0;  ///< groups_.async_seconds() when this pass started its sums
  bool warned_unobserved_ = false;
  bool synchronising_ = true;
  const reduction_finish finish_;
  bool under_way_ = false;  ///< sums are under way and finish() has not been called yet
};

}  // namespace detail
}  // namespace parx
