// gradient_buckets: the gradient_sums of a ddp. Sums the gradients of a bucket over the ranks while
// backward is still computing the next ones, then divides by the number of samples.
//
// Gradients are sums over samples. The count of samples is sent ahead of them, so the engine
// divides each element once, when the last rank's contribution arrives. The gradients of embeddings
// can be exchanged by rows instead (row_exchange), and a hook can change what is sent for a bucket;
// both finish after backward, in the order of the buckets, and both are for the ddp's own group
// only. Buckets of other reduction groups are all-reduced whole and divided after backward, because
// the count of samples is the own group's.
// No deadlock is possible. The sums of a group start in the order of its buckets, which all its
// ranks share. All sums of other groups have started when backward ends, and starting one never
// waits for a sum of another group. finish() waits for those sums and starts further operations of
// the own group only, in the same order on all its ranks.
// If no rank used a parameter, its gradient stays absent. If some rank used it, all ranks get the
// mean, and the ranks that did not use it count as zero.
// Threads: on the thread that runs backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/bucket.hpp>
#include <parx/ddp/gathered_rows.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/ddp/replica_exchange.hpp>
#include <parx/ddp/shared_rows.hpp>
#include <parx/reduction/gradient_sums.hpp>
#include <parx/reduction/group_memory.hpp>
#include <parx/reduction/reduction_group.hpp>
#include <parx/reduction/reduction_state.hpp>
#include <parx/reduction/replica_counts.hpp>
#include <parx/reduction/replica_sum.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/reduction/row_sparse.hpp>
#include <parx/reduction/step_header.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

/// Handle is parameter_handle. A template, so that a program that includes ddp but wraps no model
/// does not compile it.
template <typename Handle>
class gradient_buckets final : public gradient_sums {
 public:
  using handles = std::vector<std::unique_ptr<Handle>>;

  /// Collective over all `groups`, which are borrowed. Binds the gradients of `parameters`. `site`
  /// is where the user's program made the ddp; error messages name the sums by it.
  gradient_buckets(const reduction_groups& groups, handles parameters, const bucket_limits& limits,
                   comm_hook hook, reduction_order order, int replicas, call_site site)
      : gradient_buckets(groups, std::move(parameters), std::move(hook), order, site) {
    if (replicas > 0) plan(replicas);
    std::vector<bucket_parameter> sizes;
    for (const auto& each : parameters_) {
      const std::size_t group = groups.number_of(*each);
      const bool is_alone = group == own && is_exchanged_by_rows(*each);
      sizes.push_back({each->type(), each->bytes(), is_alone, group});
    }
    std::vector<bucket_layout> layouts = assign_buckets(sizes, limits);
    std::vector<std::size_t> bytes(groups.size());
    for (const bucket_layout& each : layouts) bytes[each.group] += each.bytes + mark_bytes(each);
    std::vector<std::byte*> begin;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      memory_.emplace_back(groups[group], bytes[group], site_);
      begin.push_back(memory_.back().data());
    }
    for (bucket_layout& each : layouts) {
      const std::size_t room = each.bytes + mark_bytes(each);
      std::byte*& next = begin[each.group];
      add_bucket(std::move(each), std::exchange(next, next + room));
    }
  }
  ~gradient_buckets() override {
    // Sums in flight may still write to the buckets: wait before the parameters are unbound.
    hook_ = {};
    for (bucket& each : buckets_) {
      each.sum = {};
      if (each.rows != nullptr) each.rows->settle();
      if (each.replicas != nullptr) each.replicas->drop();
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (places_[i].memory == nullptr) continue;
      parameters_[i]->detach_observer();
      parameters_[i]->unbind();
    }
  }

  [[nodiscard]] std::size_t bucket_count() const noexcept override { return buckets_.size(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const noexcept override {
    return buckets_[index].layout.bytes;
  }
  [[nodiscard]] const handles& parameters() const noexcept { return parameters_; }
  /// That of no pass yet.
  [[nodiscard]] reduction_state state() const {
    std::vector<reduction_state::member> members;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      members.push_back({parameters_[i]->name(), places_[i].bucket});
    }
    return {headers().who(), std::move(members), bucket_count()};
  }

  /// Collective. Copies the parameter values of each group's rank 0 to its other ranks, bucket by
  /// bucket, with the bucket's memory as the send buffer.
  void broadcast_values() {
    for (std::size_t group = 0; group < groups().size(); ++group) broadcast_values(group);
  }

  [[nodiscard]] std::size_t held() const override {
    if (counts_ && !counts_->empty()) return 0;  // earlier replicas of the step have gradients
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i]->has_grad()) return i;
    }
    return reduction_state::nothing;
  }
  void start(const reduction_state& state, const reduction_pass& pass) override {
    if (counts_) counts_->send(pass.count);
    headers().send(state, parameters_);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!state.is_awaited(i) && bucket_of(i).rows == nullptr) clear_absent(i);
    }
  }
  /// With virtual replicas: the gradients go to the replica's place in the tree.
  void end_local_pass(double count) override {
    if (!counts_) return;
    counts_->add(count);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (bucket_of(i).rows == nullptr) clear_absent(i);
    }
    for (bucket& each : buckets_) {
      if (each.rows != nullptr) rows_of_replicas(each).add();
      else each.replicas->add(each.memory);
    }
    for (const auto& each : parameters_) each->zero_grad();
  }
  /// Forgets the replicas of this step so far: gradients are dropped.
  void drop_replicas() noexcept {
    if (counts_) counts_->drop();
    for (bucket& each : buckets_) {
      if (each.replicas != nullptr) each.replicas->drop();
      else if (counts_) each.rows->settle();
    }
  }
  void launch(std::size_t first, std::size_t last) override {
    for (; first < last; ++first) {
      if (buckets_[first].rows != nullptr) {
        buckets_[first].rows->announce();
      } else {
        start_sum(first);
      }
    }
  }
  void finish() override {
    headers().receive(parameters_);
    add_up();
  }
  void abandon() noexcept override { drop_replicas(); }

  [[nodiscard]] std::vector<hook_memory> remembered_by_hook() {
    if (!hook_) return {};
    std::vector<hook_bucket> buckets;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i].layout.group == own) buckets.push_back(as_hooked(i));
    }
    std::vector<hook_memory> all = hook_.memory(buckets);
    // The next step's scale is computed from it.
    double& samples = headers().own().count();
    all.push_back({"samples_of_last_step", {&samples, 1, dtype::float64}, hook_share::equal});
    return all;
  }

 private:
  /// Makes no buckets yet. Once it has returned, the destructor runs even if the delegating
  /// constructor throws, and unbinds the gradients that were bound so far.
  gradient_buckets(const reduction_groups& groups, handles&& parameters, comm_hook&& hook,
                   reduction_order order, call_site site)
      : gradient_sums({groups, groups_of(groups, parameters), order, site}), site_(site),
        parameters_(std::move(parameters)), order_(order), places_(parameters_.size()),
        hook_(std::move(hook)) {}

  static constexpr std::size_t own = 0;  ///< the index of the ddp's own group

  struct bucket {
    bucket_layout layout;
    std::byte* memory = nullptr;
    std::vector<hook_tensor> tensors = {};
    std::unique_ptr<row_exchange> rows = nullptr;  ///< set if the bucket holds one embedding
    bool by_rows = false;                          ///< whether this step uses `rows`
    std::unique_ptr<replica_sum> replicas = nullptr;  ///< set with virtual replicas
    work sum = {};

    [[nodiscard]] buffer_view view() const noexcept {
      return {memory, layout.bytes / size_of(layout.type), layout.type};
    }
  };
  /// Where the gradient of a parameter lives.
  struct place {
    std::size_t bucket = 0;
    std::byte* memory = nullptr;
  };

  [[nodiscard]] static std::vector<std::size_t> groups_of(const reduction_groups& groups,
                                                          const handles& parameters) {
    std::vector<std::size_t> numbers;
    for (const auto& each : parameters) numbers.push_back(groups.number_of(*each));
    return numbers;
  }
  [[nodiscard]] const reduction_groups& groups() const noexcept { return headers().groups(); }
  [[nodiscard]] step_header& header() noexcept { return headers().own(); }
  [[nodiscard]] const bucket& bucket_of(std::size_t parameter) const noexcept {
    return buckets_[places_[parameter].bucket];
  }

  /// Waits for the sums, and starts those that need the header, after backward.
  void add_up() {
    if (counts_) header().count() = counts_->receive();
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      bucket& each = buckets_[i];
      if (each.rows == nullptr) continue;
      each.by_rows = each.rows->is_cheaper();
      if (!each.by_rows) {
        clear_absent(each.layout.items.front().parameter);
        start_sum(i);
      } else if (is_used(each)) {
        each.rows->start(header().factor());
      } else {
        each.rows->settle();
      }
    }
    for (int round = 0; round < hook_.rounds(); ++round) {
      for (std::size_t i = 0; i < buckets_.size(); ++i) {
        if (buckets_[i].by_rows || buckets_[i].layout.group != own) continue;
        hook_bucket hooked = as_hooked(i);
        hooked.count = header().count();
        hook_.proceed(hooked, round);
      }
    }
    if (counts_) add_up_replicas();
    for (bucket& each : buckets_) {
      each.sum.wait();
      if (each.by_rows && is_used(each)) each.rows->finish();
      if (each.layout.group != own && each.replicas == nullptr) {
        const buffer_view sum = each.view();
        scale_kernel(sum.type)(sum.data, sum.count, header().factor());
      }
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      // For a row-sparse gradient this also records that any row may be nonzero now.
      if (headers().users(i) > 0 && !bucket_of(i).by_rows) parameters_[i]->assume_grad();
    }
  }

  /// Of another group, the ranks come as often as there are stages that use its parameters.
  void plan(int replicas) {
    process_group& data = groups()[own];
    for (std::size_t group = 0; group < groups().size(); ++group) {
      replicas_.emplace_back(replicas, data.rank(), data.size(),
                             groups()[group].size() / data.size());
    }
    counts_.emplace(replicas_[own], data, groups().who(), site_);
  }
  void add_up_replicas() {
    for (bucket& each : buckets_) {
      if (each.replicas == nullptr) continue;
      process_group& group = groups()[each.layout.group];
      const std::vector<std::size_t> blocks = blocks_of(each);
      const std::size_t begin =
          std::accumulate(blocks.begin(), blocks.begin() + group.rank(), std::size_t{0});
      std::byte* const block = each.memory + begin * size_of(each.layout.type);
      each.replicas->finish(block, header().factor());
      const const_buffer_view mine{block, blocks[static_cast<std::size_t>(group.rank())],
                                   each.layout.type};
      each.sum = async_all_gather_v(group, mine, each.view(), blocks, {}, site_);
    }
  }
  /// The elements of a bucket that each rank adds up.
  [[nodiscard]] std::vector<std::size_t> blocks_of(const bucket& of) const {
    const auto ranks = static_cast<std::size_t>(groups()[of.layout.group].size());
    std::vector<std::size_t> blocks(ranks);
    const std::size_t count = of.view().count;
    for (std::size_t i = 0; i < ranks; ++i) {
      blocks[i] = count * (i + 1) / ranks - count * i / ranks;
    }
    return blocks;
  }
  [[nodiscard]] static replica_exchange& rows_of_replicas(bucket& table) {
    return static_cast<replica_exchange&>(*table.rows);
  }

  [[nodiscard]] std::size_t mark_bytes(const bucket_layout& of) const {
    const Handle& first = *parameters_[of.items.front().parameter];
    return of.group == own && is_exchanged_by_rows(first) ? shared_rows::mark_bytes(first) : 0;
  }

  void add_bucket(bucket_layout&& layout, std::byte* memory) {
    bucket& made = buckets_.emplace_back(bucket{std::move(layout), memory});
    for (const bucket_item& item : made.layout.items) {
      const Handle& each = *parameters_[item.parameter];
      each.bind_grad(memory + item.offset);
      places_[item.parameter] = {buckets_.size() - 1, memory + item.offset};
      made.tensors.push_back(
          {item.offset / size_of(each.type()), each.rows(), each.count() / each.rows()});
    }
    const Handle& first = *parameters_[made.layout.items.front().parameter];
    const std::size_t number = made.layout.group;
    const bool by_rows = number == own && is_exchanged_by_rows(first);
    if (!replicas_.empty() && by_rows) {
      made.rows.reset(new replica_exchange(groups()[own], first, replicas_[own], site_));
    } else if (!replicas_.empty()) {
      made.replicas.reset(new replica_sum(replicas_[number], groups()[number], made.layout.type,
                                          blocks_of(made), site_));
    }
    if (!by_rows || !replicas_.empty()) return;
    process_group& group = groups()[own];
    if (const shared_buffer<std::byte>* const shared = memory_[own].shared()) {
      const auto offset = static_cast<std::size_t>(memory - shared->data());
      made.rows.reset(new shared_rows(group, first, site_, *shared, offset, made.layout.bytes));
    } else {
      made.rows.reset(new gathered_rows(group, first, site_));
    }
  }

  void broadcast_values(std::size_t group) {
    for (bucket& each : buckets_) {
      if (each.layout.group != group) continue;
      for (const bucket_item& item : each.layout.items) {
        const Handle& from = *parameters_[item.parameter];
        std::memcpy(each.memory + item.offset, from.value(), from.bytes());
      }
      broadcast(groups()[group], each.view(), {.root = 0}, site_);
      for (const bucket_item& item : each.layout.items) {
        const Handle& to = *parameters_[item.parameter];
        std::memcpy(to.value(), each.memory + item.offset, to.bytes());
      }
      std::memset(each.memory, 0, each.layout.bytes);
    }
  }

  /// If this rank has no gradient of parameter `i`, it contributes zeros: others may have one.
  void clear_absent(std::size_t i) {
    const Handle& absent = *parameters_[i];
    if (!absent.has_grad()) std::memset(places_[i].memory, 0, absent.bytes());
  }
  [[nodiscard]] bool is_used(const bucket& alone) noexcept {
    return headers().users(alone.layout.items.front().parameter) > 0;
  }

  void start_sum(std::size_t index) {
    bucket& leaving = buckets_[index];
    if (leaving.replicas != nullptr) {
      leaving.replicas->start(leaving.memory);
    } else if (leaving.layout.group != own) {
      leaving.sum = async_all_reduce(groups()[leaving.layout.group], leaving.view(),
                                     {.order = order_}, site_);
    } else if (hook_) {
      hook_bucket hooked = as_hooked(index);
      hook_.start(hooked);
    } else {
      // The step header's sum was issued first, so the count is complete when this sum runs.
      leaving.sum = async_all_reduce(
          groups()[own], leaving.view(), {.divide_by = &header().count(), .order = order_}, site_);
    }
  }

  [[nodiscard]] hook_bucket as_hooked(std::size_t index) {
    const bucket& each = buckets_[index];
    // A power of two scales without rounding.
    const double count = headers().recent_count();
    const double scale = count > 0 ? std::ldexp(1.0, -std::ilogb(count)) : 1;
    return {groups()[own], site_, index, each.view(), each.tensors, scale, 0, order_};
  }

  const call_site site_;
  const handles parameters_;
  const reduction_order order_;
  std::vector<place> places_;
  std::vector<group_memory> memory_;  ///< by group
  std::vector<bucket> buckets_;
  comm_hook hook_;
  std::vector<replica_plan> replicas_;  ///< by group; none without virtual replicas
  std::optional<replica_counts> counts_;
};

}  // namespace parx::detail
