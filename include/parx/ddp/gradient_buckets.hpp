// gradient_buckets: the communication of a ddp. Sums the gradients of a bucket over the ranks while
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
// reduction_state decides when each function is called. Threads: on the thread that runs backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/error.hpp>
#include <parx/ddp/bucket.hpp>
#include <parx/ddp/bucket_memory.hpp>
#include <parx/ddp/frozen_alike.hpp>
#include <parx/ddp/gathered_rows.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/ddp/reduction_group.hpp>
#include <parx/ddp/reduction_state.hpp>
#include <parx/ddp/shared_rows.hpp>
#include <parx/ddp/step_header.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

/// Handle is parameter_handle. A template, so that a program that includes ddp but wraps no model
/// does not compile it.
template <typename Handle>
class gradient_buckets {
 public:
  using handles = std::vector<std::unique_ptr<Handle>>;

  /// Collective over all `groups`. Binds the gradients of `parameters`; both are borrowed. `site`
  /// is where the user's program made the ddp; error messages name the sums by it.
  gradient_buckets(const reduction_groups& groups, const handles& parameters,
                   const bucket_limits& limits, comm_hook hook, reduction_order order,
                   call_site site)
      : gradient_buckets(groups, parameters, std::move(hook), order, site) {
    std::vector<bucket_parameter> sizes;
    for (const auto& each : parameters_) {
      const std::size_t group = groups_.number_of(*each);
      const bool is_alone = group == own && row_exchange::suits(*each);
      sizes.push_back({each->type(), each->bytes(), is_alone, group});
    }
    std::vector<bucket_layout> layouts = assign_buckets(sizes, limits);
    std::vector<std::size_t> bytes(groups_.size());
    for (const bucket_layout& each : layouts) bytes[each.group] += each.bytes + mark_bytes(each);
    std::vector<std::byte*> begin;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      controls_.emplace_back(parameters_of(sizes, group));
      memory_.emplace_back(groups_[group], bytes[group], site_);
      begin.push_back(memory_.back().data());
    }
    for (bucket_layout& each : layouts) {
      const std::size_t room = each.bytes + mark_bytes(each);
      std::byte*& next = begin[each.group];
      add_bucket(std::move(each), std::exchange(next, next + room));
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      places_[i].number = parameters_of(std::span(sizes).first(i), sizes[i].group);
    }
  }
  ~gradient_buckets() {
    // Sums in flight may still write to the buckets: wait before the parameters are unbound.
    control_works_.clear();
    hook_ = {};
    for (bucket& each : buckets_) {
      each.sum = {};
      if (each.rows != nullptr) each.rows->settle();
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (places_[i].memory != nullptr) parameters_[i]->unbind();
    }
  }
  gradient_buckets(const gradient_buckets&) = delete;
  gradient_buckets& operator=(const gradient_buckets&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return buckets_.size(); }
  [[nodiscard]] std::size_t bytes(std::size_t index) const noexcept {
    return buckets_[index].layout.bytes;
  }
  [[nodiscard]] std::size_t bucket_of(std::size_t parameter) const noexcept {
    return places_[parameter].bucket;
  }
  /// The step header of the own group: this rank's values before finish(), the sums after it.
  [[nodiscard]] step_header& control() noexcept { return controls_[own]; }
  [[nodiscard]] const step_header& control() const noexcept { return controls_[own]; }

  /// Collective. Copies the parameter values of each group's rank 0 to its other ranks, bucket by
  /// bucket, with the bucket's memory as the send buffer.
  void broadcast_values() {
    for (std::size_t group = 0; group < groups_.size(); ++group) broadcast_values(group);
  }

  /// Collective, asynchronous. Starts the sums of the step headers.
  void start(const reduction_state& state) {
    control().count() = state.count();
    for (step_header& each : controls_) each.last_count() = last_count_;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const parameter_use otherwise =
          parameters_[i]->is_frozen() ? parameter_use::frozen : parameter_use::unused;
      control_of(i).set_use(places_[i].number,
                            state.is_used(i) ? parameter_use::used : otherwise);
    }
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      control_works_[group] =
          async_all_reduce(groups_[group], controls_[group].values(), {.order = order_}, site_);
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!state.is_awaited(i) && buckets_[bucket_of(i)].rows == nullptr) clear_absent(i);
    }
  }

  /// Collective, asynchronous, in the order of the buckets: the gradients of buckets [first, last)
  /// are final.
  void launch(std::size_t first, std::size_t last) {
    for (; first < last; ++first) {
      if (buckets_[first].rows != nullptr) {
        buckets_[first].rows->announce();
      } else {
        start_sum(first);
      }
    }
    groups_.poll();
  }

  /// Collective. Called after all buckets were launched. Blocks until their gradients are means.
  void finish() {
    for (work& each : control_works_) each.wait();
    require_equal_counts();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      process_group& group = groups_[buckets_[bucket_of(i)].layout.group];
      require_frozen_alike(group, "ddp", *parameters_[i],
                           control_of(i).frozen_ranks(places_[i].number), site_);
    }
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      bucket& each = buckets_[i];
      if (each.rows == nullptr) continue;
      each.by_rows = each.rows->is_cheaper();
      if (!each.by_rows) {
        clear_absent(each.layout.items.front().parameter);
        start_sum(i);
      } else if (is_used(each)) {
        each.rows->start(control().factor());
      }
    }
    for (int round = 0; round < hook_.rounds(); ++round) {
      for (std::size_t i = 0; i < buckets_.size(); ++i) {
        if (buckets_[i].by_rows || buckets_[i].layout.group != own) continue;
        hook_bucket hooked = as_hooked(i);
        hooked.count = control().count();
        hook_.proceed(hooked, round);
      }
    }
    for (bucket& each : buckets_) {
      each.sum.wait();
      if (each.by_rows && is_used(each)) each.rows->finish();
      if (each.layout.group != own) {
        const buffer_view sum = each.view();
        scale_kernel(sum.type)(sum.data, sum.count, control().factor());
      }
    }
    last_count_ = control().count();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      // For a row-sparse gradient this also records that any row may be nonzero now.
      if (users(i) > 0 && !buckets_[bucket_of(i)].by_rows) parameters_[i]->assume_grad();
    }
  }

  [[nodiscard]] std::vector<hook_memory> remembered_by_hook() {
    if (!hook_) return {};
    std::vector<hook_bucket> buckets;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i].layout.group == own) buckets.push_back(as_hooked(i));
    }
    std::vector<hook_memory> all = hook_.memory(buckets);
    // The next step's scale is computed from it.
    all.push_back({"samples_of_last_step", {&last_count_, 1, dtype::float64}, hook_share::equal});
    return all;
  }

 private:
  /// Makes no buckets yet. Once it has returned, the destructor runs even if the delegating
  /// constructor throws, and unbinds the gradients that were bound so far.
  gradient_buckets(const reduction_groups& groups, const handles& parameters, comm_hook&& hook,
                   reduction_order order, call_site site)
      : groups_(groups), site_(site), parameters_(parameters), order_(order),
        places_(parameters.size()), hook_(std::move(hook)), control_works_(groups.size()) {}

  static constexpr std::size_t own = 0;  ///< the index of the ddp's own group

  struct bucket {
    bucket_layout layout;
    std::byte* memory = nullptr;
    std::vector<hook_tensor> tensors = {};
    std::unique_ptr<row_exchange> rows = nullptr;  ///< set if the bucket holds one embedding
    bool by_rows = false;                          ///< whether this step uses `rows`
    work sum = {};

    [[nodiscard]] buffer_view view() const noexcept {
      return {memory, layout.bytes / size_of(layout.type), layout.type};
    }
  };
  /// Where the gradient of a parameter lives.
  struct place {
    std::size_t bucket = 0;
    std::byte* memory = nullptr;
    std::size_t number = 0;  ///< its index among the parameters of its group
  };

  [[nodiscard]] std::size_t mark_bytes(const bucket_layout& of) const {
    const Handle& first = *parameters_[of.items.front().parameter];
    return of.group == own && row_exchange::suits(first) ? shared_rows::mark_bytes(first) : 0;
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
    if (made.layout.group != own || !row_exchange::suits(first)) return;
    process_group& group = groups_[own];
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
      broadcast(groups_[group], each.view(), {.root = 0}, site_);
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
  [[nodiscard]] step_header& control_of(std::size_t i) noexcept {
    return controls_[buckets_[bucket_of(i)].layout.group];
  }
  [[nodiscard]] double users(std::size_t i) noexcept {
    return control_of(i).users(places_[i].number);
  }
  [[nodiscard]] bool is_used(const bucket& alone) noexcept {
    return users(alone.layout.items.front().parameter) > 0;
  }
  [[nodiscard]] static std::size_t parameters_of(std::span<const bucket_parameter> parameters,
                                                 std::size_t group) {
    return static_cast<std::size_t>(
        std::count_if(parameters.begin(), parameters.end(),
                      [&](const bucket_parameter& each) { return each.group == group; }));
  }

  /// If ranks divided the same sum by different counts, their parameters would silently diverge.
  /// The count that each has used is sent with the next step's step header, at no cost.
  void require_equal_counts() {
    const double count = control().last_count() / groups_[own].size();
    for (std::size_t group = 1; group < groups_.size(); ++group) {
      const double mean = controls_[group].last_count() / groups_[group].size();
      if (std::abs(mean - count) <= 1e-9 * count) continue;
      throw_error(errc::mismatch,
                  "ddp on reduction group \"{}\": this rank has divided the last step's gradients "
                  "by {} samples, but the ranks of the group by {} on average. All must count the "
                  "same samples; a pipeline's last stage counts, earlier stages receive the count",
                  groups_.name(group), count, mean);
    }
  }

  void start_sum(std::size_t index) {
    bucket& leaving = buckets_[index];
    if (leaving.layout.group != own) {
      leaving.sum = async_all_reduce(groups_[leaving.layout.group], leaving.view(),
                                     {.order = order_}, site_);
    } else if (hook_) {
      if (last_count_ == 0) {
        control_works_[own].wait();
        last_count_ = control().count();
      }
      hook_bucket hooked = as_hooked(index);
      hook_.start(hooked);
    } else {
      // The step header's sum was issued first, so the count is complete when this sum runs.
      leaving.sum = async_all_reduce(
          groups_[own], leaving.view(), {.divide_by = &control().count(), .order = order_}, site_);
    }
  }

  [[nodiscard]] hook_bucket as_hooked(std::size_t index) {
    const bucket& each = buckets_[index];
    // A power of two scales without rounding.
    const double scale = last_count_ > 0 ? std::ldexp(1.0, -std::ilogb(last_count_)) : 1;
    return {groups_[own], site_, index, each.view(), each.tensors, scale, 0, order_};
  }

  const reduction_groups& groups_;
  const call_site site_;
  const handles& parameters_;
  const reduction_order order_;
  std::vector<place> places_;
  std::vector<step_header> controls_;    ///< by group
  std::vector<bucket_memory> memory_;    ///< by group
  std::vector<bucket> buckets_;
  comm_hook hook_;
  std::vector<work> control_works_;  // destroyed, and so waited for, before the memory they write
  double last_count_ = 0;  ///< samples of the last synchronised step on all ranks
};

}  // namespace parx::detail
