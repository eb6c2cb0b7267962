// reducer: sums gradients over ranks while backward is still computing the next ones.
//
// Invariants. Buckets are launched strictly by index, whatever order gradients become ready in, so that
// every rank issues the same collectives. Gradients are sums over samples and the count of samples
// travels ahead of them: the engine divides each element once, when its last contribution arrives.
// A parameter that no rank used keeps its gradient absent; one that some rank used gets the mean
// everywhere, those who did not use it counting as zero.
// Threads: called on the thread that runs backward.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/ddp/bucket.hpp>
#include <parx/ddp/module.hpp>
#include <parx/trace/event.hpp>

namespace parx::detail {

class reducer final : public backward_observer {
 public:
  reducer(process_group& group, std::vector<parameter_slot> parameters, const bucket_limits& limits)
      : group_(group), parameters_(std::move(parameters)), bucket_of_(parameters_.size()) {
    std::vector<bucket_parameter> sizes;
    for (const auto& each : parameters_) sizes.push_back({each.type, each.bytes()});
    for (bucket_layout& layout : assign_buckets(sizes, limits)) {
      buckets_.push_back({std::move(layout), nullptr, 0, {}});
      bucket& made = buckets_.back();
      made.memory.reset(static_cast<std::byte*>(
          ::operator new(made.layout.bytes, std::align_val_t{bucket_alignment})));
      std::memset(made.memory.get(), 0, made.layout.bytes);
      for (const bucket_item& item : made.layout.items) {
        bucket_of_[item.parameter] = buckets_.size() - 1;
        parameters_[item.parameter].bind_grad(made.memory.get() + item.offset);
      }
    }
    // [0] is the count of samples, [1 + i] tells whether parameter i was used.
    control_.resize(1 + parameters_.size());
    used_.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].attach(this, i);
  }
  ~reducer() override {
    for (const auto& each : parameters_) each.detach();
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;

  /// Collective. Gives every rank the values of rank 0, a bucket's memory full at a time.
  void broadcast_values(call_site site) {
    for (bucket& each : buckets_) {
      for (const bucket_item& item : each.layout.items) {
        const parameter_slot& from = parameters_[item.parameter];
        std::memcpy(each.memory.get() + item.offset, from.value(), from.bytes());
      }
      broadcast(group_, each.view(), {.root = 0}, site);
      for (const bucket_item& item : each.layout.items) {
        const parameter_slot& to = parameters_[item.parameter];
        std::memcpy(to.value(), each.memory.get() + item.offset, to.bytes());
      }
      std::memset(each.memory.get(), 0, each.layout.bytes);
    }
  }

  [[nodiscard]] std::uint64_t values_hash() const {
    std::uint64_t hash = fnv1a({});
    for (const parameter_slot& each : parameters_) {
      hash = fnv1a({static_cast<const char*>(each.value()), each.bytes()}, hash);
    }
    return hash;
  }

  /// While false, gradients are only added up on this rank.
  void set_synchronising(bool on) noexcept { synchronising_ = on; }
  [[nodiscard]] bool synchronising() const noexcept { return synchronising_; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }

  double begin_backward(double count, std::span<const std::size_t> reached) override {
    if (reduced_) {
      for (const auto& each : parameters_) {
        require(!each.has_grad(),
                "ddp: the gradient of \"{}\" from the last step is still there, and adding to it would "
                "count it once a rank. Call optimizer.step() or zero_grad() between two backward passes, "
                "or add up micro-batches under no_sync()", each.name);
      }
      reduced_ = false;
    }
    const bool first = count_ == 0 && !accumulating_;
    count_ += count;
    for (const std::size_t index : reached) used_[index] = 1;
    accumulating_ = true;
    if (!synchronising_) return 1;
    // Alone and in one piece there is nothing to add up: let backward make the mean itself.
    if (group_.size() == 1 && first) {
      divided_ = true;
      return count == 0 ? 1 : 1 / count;
    }
    control_[0] = count_;
    for (std::size_t i = 0; i < used_.size(); ++i) control_[1 + i] = used_[i];
    control_work_ = async_all_reduce(group_, control_, {});
    next_ = 0;
    for (bucket& each : buckets_) each.pending = each.layout.items.size();
    std::vector<unsigned char> is_reached(parameters_.size(), 0);
    for (const std::size_t index : reached) is_reached[index] = 1;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (is_reached[i] != 0) continue;
      if (!parameters_[i].has_grad()) std::memset(memory_of(i), 0, parameters_[i].bytes());
      --buckets_[bucket_of_[i]].pending;
    }
    launch_full_buckets();
    return 1;
  }

  void leaf_ready(std::size_t index) override {
    if (!synchronising_ || divided_) return;
    --buckets_[bucket_of_[index]].pending;
    launch_full_buckets();
  }

  void end_backward() override {
    if (!synchronising_) return;
    if (!divided_) {
      for (; next_ < buckets_.size(); ++next_) {
        require(buckets_[next_].pending == 0, "ddp: backward ended before gradients were ready");
      }
      const trace::span waiting("wait for gradients", "ddp");
      control_work_.wait();
      for (bucket& each : buckets_) each.sum.wait();
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        // Also tells a row-sparse gradient that other rows than its own may be set now.
        if (control_[1 + i] > 0) parameters_[i].assume_grad();
      }
    }
    start_over();
    reduced_ = true;
  }

  void abandon_backward() noexcept override {
    start_over();
    // The others would wait for gradients that will not come.
    std::string reason = fmt::format("rank {}: backward failed", group_.rank());
    try {
      if (std::current_exception()) std::rethrow_exception(std::current_exception());
    } catch (const std::exception& failure) {
      reason += fmt::format(": {}", failure.what());
    } catch (...) {
    }
    if (!group_.closed()) group_.abort(reason);
  }

 private:
  struct aligned_delete {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete(memory, std::align_val_t{bucket_alignment});
    }
  };
  struct bucket {
    bucket_layout layout;
    std::unique_ptr<std::byte, aligned_delete> memory;
    std::size_t pending = 0;  ///< gradients that are not ready yet
    work sum;

    [[nodiscard]] buffer_view view() const noexcept {
      return {memory.get(), layout.bytes / size_of(layout.type), layout.type};
    }
  };

  [[nodiscard]] std::byte* memory_of(std::size_t parameter) noexcept {
    bucket& holder = buckets_[bucket_of_[parameter]];
    for (const bucket_item& item : holder.layout.items) {
      if (item.parameter == parameter) return holder.memory.get() + item.offset;
    }
    return nullptr;
  }

  void launch_full_buckets() {
    for (; next_ < buckets_.size() && buckets_[next_].pending == 0; ++next_) {
      // The control sum was issued before, so its count is there when this sum starts to run.
      buckets_[next_].sum = async_all_reduce(group_, buckets_[next_].view(),
                                             {.op = reduce_op::sum, .divide_by = control_.data()});
    }
    group_.poll();
  }

  void start_over() noexcept {
    count_ = 0;
    accumulating_ = divided_ = false;
    std::fill(used_.begin(), used_.end(), static_cast<unsigned char>(0));
  }

  process_group& group_;
  std::vector<parameter_slot> parameters_;
  std::vector<std::size_t> bucket_of_;
  std::vector<double> control_;
  std::vector<unsigned char> used_;  ///< since the last synchronised step
  std::vector<bucket> buckets_;
  work control_work_;  // destroyed, and so waited for, before the memory it writes
  std::size_t next_ = 0;  ///< the bucket to launch next
  double count_ = 0;      ///< samples since the last synchronised step
  bool accumulating_ = false;
  bool divided_ = false;  ///< this pass needs no communication
  bool reduced_ = false;  ///< the gradients are the mean over ranks
  bool synchronising_ = true;
};

}  // namespace parx::detail
