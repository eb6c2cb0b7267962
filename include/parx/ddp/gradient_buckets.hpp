// gradient_buckets: what a ddp does with its groups: sums gradients while backward is still
// computing the next ones, and makes means of them.
//
// Gradients are sums over samples and the count of samples travels ahead of them: the engine
// divides each element once, when its last contribution arrives. Embeddings' gradients are added up
// apart, by rows (row_exchange); what else a bucket's gradients are sent as, a hook can tell.
// Either ends after backward, in the order of the buckets.
// A parameter that no rank used keeps its gradient absent; one that some rank used gets the mean
// everywhere, those who did not use it counting as zero.
// What is called when is reduction_state's to say. Threads: on the thread that runs backward.
#pragma once

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
#include <parx/ddp/bucket.hpp>
#include <parx/ddp/bucket_memory.hpp>
#include <parx/ddp/control_block.hpp>
#include <parx/ddp/gathered_rows.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/ddp/reduction_state.hpp>
#include <parx/ddp/shared_rows.hpp>

namespace parx::inline PARX_ABI::detail {

/// Of parameter_handle. A template, so that a program which includes ddp and wraps no model does
/// not compile it.
template <typename Handle>
class gradient_buckets {
 public:
  using handles = std::vector<std::unique_ptr<Handle>>;

  /// Collective. Binds the gradients of `parameters`, which are borrowed. `site` is the ddp's place
  /// in the user's program: the sums are named by it.
  gradient_buckets(process_group& group, const handles& parameters, const bucket_limits& limits,
                   comm_hook hook, reduction_order order, call_site site)
      : gradient_buckets(group, parameters, std::move(hook), order, site) {
    std::vector<bucket_parameter> sizes;
    for (const auto& each : parameters_) {
      sizes.push_back({each->type(), each->bytes(), row_exchange::suits(*each)});
    }
    std::vector<bucket_layout> layouts = assign_buckets(sizes, limits);
    std::size_t bytes = 0;
    for (const bucket_layout& each : layouts) bytes += each.bytes + mark_bytes(each);
    memory_.reset(new bucket_memory(group_, bytes, site_));
    std::byte* begin = memory_->data();
    for (bucket_layout& each : layouts) {
      const std::size_t room = each.bytes + mark_bytes(each);
      add_bucket(std::move(each), std::exchange(begin, begin + room));
    }
  }
  ~gradient_buckets() {
    // Sums may still be written to the memory that the parameters are about to leave.
    control_work_ = {};
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
  /// What was told ahead of the last step's sums; added up, after finish().
  [[nodiscard]] control_block& control() noexcept { return control_; }
  [[nodiscard]] const control_block& control() const noexcept { return control_; }

  /// Collective. Gives every rank the values of rank 0, a bucket's memory full at a time.
  void broadcast_values() {
    for (bucket& each : buckets_) {
      for (const bucket_item& item : each.layout.items) {
        const Handle& from = *parameters_[item.parameter];
        std::memcpy(each.memory + item.offset, from.value(), from.bytes());
      }
      broadcast(group_, each.view(), {.root = 0}, site_);
      for (const bucket_item& item : each.layout.items) {
        const Handle& to = *parameters_[item.parameter];
        std::memcpy(to.value(), each.memory + item.offset, to.bytes());
      }
      std::memset(each.memory, 0, each.layout.bytes);
    }
  }

  /// Collective, asynchronous. Tells what this rank has counted and used.
  void start(const reduction_state& state) {
    control_.count() = state.count();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      control_.users(i) = state.is_used(i) ? 1 : 0;
    }
    control_work_ = async_all_reduce(group_, control_.values(), {}, site_);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!state.is_awaited(i) && buckets_[bucket_of(i)].rows == nullptr) clear_absent(i);
    }
  }

  /// Collective, asynchronous, in the order of the buckets: the gradients of these are final.
  void launch(std::size_t first, std::size_t last) {
    for (; first < last; ++first) {
      if (buckets_[first].rows != nullptr) {
        buckets_[first].rows->announce();
      } else {
        start_sum(first);
      }
    }
    group_.poll();
  }

  /// Collective. All buckets have been launched: blocks until their gradients are means.
  void finish() {
    control_work_.wait();
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      bucket& each = buckets_[i];
      if (each.rows == nullptr) continue;
      each.by_rows = each.rows->is_cheaper();
      if (!each.by_rows) {
        clear_absent(each.layout.items.front().parameter);
        start_sum(i);
      } else if (is_used(each)) {
        each.rows->start(control_.factor());
      }
    }
    for (int round = 0; round < hook_.rounds(); ++round) {
      for (std::size_t i = 0; i < buckets_.size(); ++i) {
        if (buckets_[i].by_rows) continue;
        hook_bucket hooked = as_hooked(i);
        hooked.count = control_.count();
        hook_.proceed(hooked, round);
      }
    }
    for (bucket& each : buckets_) {
      each.sum.wait();
      if (each.by_rows && is_used(each)) each.rows->finish();
    }
    last_count_ = control_.count();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      // Also tells a row-sparse gradient that other rows than its own may be set now.
      if (control_.users(i) > 0 && !buckets_[bucket_of(i)].by_rows) parameters_[i]->assume_grad();
    }
  }

  [[nodiscard]] std::vector<hook_memory> remembered_by_hook() {
    if (!hook_) return {};
    std::vector<hook_bucket> buckets;
    for (std::size_t i = 0; i < buckets_.size(); ++i) buckets.push_back(as_hooked(i));
    std::vector<hook_memory> all = hook_.memory(buckets);
    // The next step's scale is made of it.
    all.push_back({"samples_of_last_step", {&last_count_, 1, dtype::float64}, hook_share::equal});
    return all;
  }

 private:
  /// Without buckets yet: what is bound to their memory is unbound also where the rest fails.
  gradient_buckets(process_group& group, const handles& parameters, comm_hook&& hook,
                   reduction_order order, call_site site)
      : group_(group), site_(site), parameters_(parameters), order_(order),
        places_(parameters.size()), control_(parameters.size()), hook_(std::move(hook)) {}

  struct bucket {
    bucket_layout layout;
    std::byte* memory = nullptr;
    std::vector<hook_tensor> tensors = {};
    std::unique_ptr<row_exchange> rows = nullptr;  ///< of an embedding that travels alone
    bool by_rows = false;                          ///< in this step
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

  [[nodiscard]] std::size_t mark_bytes(const bucket_layout& of) const {
    const Handle& first = *parameters_[of.items.front().parameter];
    return row_exchange::suits(first) ? shared_rows::mark_bytes(first) : 0;
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
    if (!row_exchange::suits(first)) return;
    if (const shared_buffer<std::byte>* const shared = memory_->shared()) {
      const auto offset = static_cast<std::size_t>(memory - shared->data());
      made.rows.reset(new shared_rows(group_, first, site_, *shared, offset, made.layout.bytes));
    } else {
      made.rows.reset(new gathered_rows(group_, first, site_));
    }
  }

  /// Others may have a gradient where this rank has none.
  void clear_absent(std::size_t i) {
    const Handle& absent = *parameters_[i];
    if (!absent.has_grad()) std::memset(places_[i].memory, 0, absent.bytes());
  }
  [[nodiscard]] bool is_used(const bucket& alone) const noexcept {
    return control_.users(alone.layout.items.front().parameter) > 0;
  }

  void start_sum(std::size_t index) {
    bucket& leaving = buckets_[index];
    if (hook_) {
      if (last_count_ == 0) {
        control_work_.wait();
        last_count_ = control_.count();
      }
      hook_bucket hooked = as_hooked(index);
      hook_.start(hooked);
    } else {
      // The control sum was issued before, so its count is there when this sum starts to run.
      leaving.sum = async_all_reduce(
          group_, leaving.view(), {.divide_by = &control_.count(), .order = order_}, site_);
    }
  }

  [[nodiscard]] hook_bucket as_hooked(std::size_t index) {
    const bucket& each = buckets_[index];
    // A power of two scales without rounding.
    const double scale = last_count_ > 0 ? std::ldexp(1.0, -std::ilogb(last_count_)) : 1;
    return {group_, site_, index, each.view(), each.tensors, scale, 0, order_};
  }

  process_group& group_;
  const call_site site_;
  const handles& parameters_;
  const reduction_order order_;
  std::vector<place> places_;
  control_block control_;
  std::unique_ptr<bucket_memory> memory_;
  std::vector<bucket> buckets_;
  comm_hook hook_;
  work control_work_;  // destroyed, and so waited for, before the memory it writes
  double last_count_ = 0;  ///< samples of the last synchronised step on all ranks
};

}  // namespace parx::detail
