// replica_buckets: the gradient_buckets of a ddp with virtual replicas. A pass is one replica. Its
// gradients go to the replica's place in the tree, and the parameters have none afterwards, until
// they have the mean.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/ddp/gradient_buckets.hpp>
#include <parx/ddp/replica_bucket.hpp>
#include <parx/reduction/replica_counts.hpp>
#include <parx/reduction/replica_tree.hpp>

namespace parx::inline PARX_ABI::detail {

class replica_buckets final : public gradient_buckets {
 public:
  replica_buckets(const reduction_groups& groups, handles&& parameters, reduction_order order,
                  int replicas, call_site site)
      : gradient_buckets(groups, std::move(parameters), {}, order, site),
        plans_(plans_of(groups, replicas)), counts_(plans_[own], groups[own], groups.who(), site) {
  }
  ~replica_buckets() override { drop(); }

  void drop_replicas() noexcept override {
    counts_.drop();
    drop();
  }
  [[nodiscard]] std::size_t held() const override {
    // Earlier replicas of the step have gradients.
    return counts_.empty() ? gradient_buckets::held() : reduction_state::nothing;
  }
  void start(const reduction_state& state, const reduction_pass& pass) override {
    counts_.send(pass.count);
    gradient_buckets::start(state, pass);
  }
  void end_local_pass(double count) override {
    counts_.add(count);
    for (replica_bucket* const each : all_) each->add();
    for (const auto& each : parameters()) each->zero_grad();
  }
  void abandon() noexcept override { drop_replicas(); }

 private:
  /// By group. The ranks of another one than the ddp's come as often as there are stages that use
  /// its parameters.
  [[nodiscard]] static std::vector<replica_plan> plans_of(const reduction_groups& groups,
                                                          int replicas) {
    const process_group& data = groups[own];
    std::vector<replica_plan> plans;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      plans.emplace_back(replicas, data.rank(), data.size(), groups[i].size() / data.size());
    }
    return plans;
  }
  [[nodiscard]] std::unique_ptr<bucket_sum> sum_of(const gradient_bucket& bucket,
                                                   bool is_table) override {
    const std::size_t group = bucket.plan.group;
    const auto make =
        [this, &bucket, group]<typename Sum>(std::type_identity<Sum>) -> replica_bucket* {
      return new Sum(plans_[group], bucket, groups()[group], headers(), order_, site_);
    };
    all_.push_back(is_table ? make(std::type_identity<replica_row_sum>())
                            : make(std::type_identity<replica_whole_sum>()));
    return std::unique_ptr<bucket_sum>(all_.back());
  }
  [[nodiscard]] int rounds() const noexcept override { return 1; }
  void receive() override {
    gradient_buckets::receive();
    headers().own().count() = counts_.receive();
  }

  const std::vector<replica_plan> plans_;
  replica_counts counts_;
  std::vector<replica_bucket*> all_;
};

}  // namespace parx::detail
