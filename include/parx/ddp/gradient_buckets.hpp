// gradient_buckets: the gradient_sums of a ddp. Sums the gradients of a bucket over the ranks while
// backward is still computing the next ones, then divides by the number of samples.
//
// Gradients are sums over samples. The count of samples is sent ahead of them, so the engine
// divides each element once, when the last rank's contribution arrives. A bucket_sum decides what
// is sent for a bucket. Those of embeddings and of hooks also send after backward, and only over
// the ddp's own group.
// No deadlock is possible. The sums of a group start in the order of its buckets, which all its
// ranks share. All sums of other groups have started when backward ends, and starting one never
// waits for a sum of another group. finish() waits for those sums and starts further operations of
// the own group only, in the same order on all its ranks.
// If no rank used a parameter, its gradient stays absent. If some rank used it, all ranks get the
// mean, and the ranks that did not use it count as zero.
// Threads: on the thread that runs backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/bucket_sum.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/reduction/gradient_sums.hpp>
#include <parx/reduction/group_memory.hpp>
#include <parx/reduction/reduction_group.hpp>
#include <parx/reduction/reduction_state.hpp>
#include <parx/reduction/steps_that_compare.hpp>

namespace parx::inline PARX_ABI::detail {

class hooked_sum;

class gradient_buckets : public gradient_sums {
 public:
  using handles = std::vector<std::unique_ptr<parameter_handle>>;

  /// Collective over all `groups`, which are borrowed. Binds the gradients of `parameters`. Of
  /// virtual `replicas` they are replica_buckets. `site` is where the user's program made the ddp;
  /// error messages name the sums by it.
  [[nodiscard]] static std::unique_ptr<gradient_buckets> make(
      const reduction_groups& groups, handles parameters, const bucket_limits& limits,
      comm_hook hook, reduction_order order, int replicas, call_site site);
  ~gradient_buckets() override;

  [[nodiscard]] std::size_t bucket_count() const noexcept override { return sums_.size(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const noexcept override {
    return buckets_[index]->plan.bytes;
  }
  [[nodiscard]] const handles& parameters() const noexcept { return parameters_; }
  /// That of no pass yet.
  [[nodiscard]] reduction_state state() const;

  /// Collective. Copies the parameter values of each group's rank 0 to its other ranks, bucket by
  /// bucket, with the bucket's memory as the send buffer.
  void broadcast_values();
  /// zero_grad(): forgets the virtual replicas of this step so far.
  virtual void drop_replicas() noexcept {}

  [[nodiscard]] std::size_t held() const override {
    const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                    [](const auto& each) { return each->has_grad(); });
    if (found == parameters_.end()) return reduction_state::nothing;
    return static_cast<std::size_t>(found - parameters_.begin());
  }
  void start(const reduction_state& state, const reduction_pass& /*pass*/) override {
    note_values();
    headers().send(state, parameters_);
  }
  void launch(std::size_t first, std::size_t last) override {
    for (; first < last; ++first) sums_[first]->start();
  }
  void finish() override;
  void abandon() noexcept override {}

  [[nodiscard]] std::vector<hook_memory> hook_state();

 protected:
  static constexpr std::size_t own = 0;  ///< the index of the ddp's own group

  /// make() calls lay_out() then, which throws in an object whose destructor runs.
  gradient_buckets(const reduction_groups& groups, handles&& parameters, comm_hook&& hook,
                   reduction_order order, call_site site)
      : gradient_sums({groups, groups_of(groups, parameters), order, site}), order_(order),
        site_(site), parameters_(std::move(parameters)), bucket_of_(parameters_.size()),
        hook_(std::move(hook)) {}

  [[nodiscard]] const reduction_groups& groups() const noexcept { return headers().groups(); }
  [[nodiscard]] virtual std::unique_ptr<bucket_sum> sum_of(const gradient_bucket& bucket,
                                                           bool is_table);
  /// Of bucket_sum::proceed.
  [[nodiscard]] virtual int rounds() const noexcept { return hook_.rounds(); }
  /// Blocks until the headers have arrived.
  virtual void receive() { headers().receive(parameters_); }
  void drop() noexcept {
    for (const auto& each : sums_) each->drop();
  }

  const reduction_order order_;
  const call_site site_;

 private:
  [[nodiscard]] static std::vector<std::size_t> groups_of(const reduction_groups& groups,
                                                          const handles& parameters) {
    std::vector<std::size_t> numbers;
    for (const auto& each : parameters) numbers.push_back(groups.number_of(*each));
    return numbers;
  }
  /// Whether it is an embedding that is exchanged by rows, in a bucket of its own.
  [[nodiscard]] bool is_table(const parameter_handle& parameter) const;
  void lay_out(const bucket_limits& limits);
  void broadcast_values(const gradient_bucket& bucket);
  /// Copies of a model diverge in silence where ranks take different steps: with other learning
  /// rates, or by values that one of them writes. So, in the first steps and then from time to
  /// time, the header carries a hash of a few values of each parameter of the own group; the sums
  /// tell all ranks whether they differ. (Ranks of another group may hold a parameter differently,
  /// as a table here and as a head there.)
  void note_values();
  /// Once the headers have arrived; collective where values differ. Warns once, on rank 0: not an
  /// error, for an optimizer that is not parx's may round differently on another processor.
  void compare_values();

  steps_that_compare comparing_;
  std::optional<std::uint32_t> values_hash_;  ///< of a step that compares values
  bool told_of_values_ = false;               ///< the same on all ranks
  const handles parameters_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<group_memory> memory_;    ///< by group
  comm_hook hook_;
  std::vector<hooked_sum*> hooked_;  ///< the buckets of the own group, if there is a hook
  std::vector<std::unique_ptr<gradient_bucket>> buckets_;
  std::vector<std::unique_ptr<bucket_sum>> sums_;  ///< by bucket
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/ddp/detail/gradient_buckets_impl.hpp>
#endif
