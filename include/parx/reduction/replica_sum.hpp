// replica_sum: sums one array of gradients over virtual replicas, along replica_tree.hpp's tree.
//
//   add(), after the backward pass of each replica of this rank but the last
//   start() -> finish(), for the last one
//
// A rank keeps sums of nodes whose siblings are not complete yet: at most log2 (rounded up) of its
// replicas arrays beside that of the gradients. Each sum that a rank sends is cut into one block
// for each rank, which gets that block of all ranks' sums and adds them up along the rest of the
// tree. If a rank's replicas are one node of the tree, it sends one array, as in a reduce_scatter.
// It receives (sums that all ranks send) / ranks arrays.
// Threads: the one that runs backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/work.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/aligned_memory.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/types/buffer.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI {

/// A replica's gradient of -0 counts as +0: whether memory was cleared before something was added
/// to it must not show, nor whether a row was sent.
inline void make_zeros_positive(dtype type, void* gradients, std::size_t count) {
  visit_dtype(type, [&]<typename T>(std::type_identity<T>) {
    T* const all = static_cast<T*>(gradients);
    const T zero{};
    for (std::size_t i = 0; i < count; ++i) all[i] = all[i] == zero ? zero : all[i];
  });
}

class replica_sum {
 public:
  /// Plan and group are borrowed. `counts` has the elements of each rank's block, in rank order,
  /// equal on all ranks.
  replica_sum(const replica_plan& plan, process_group& group, dtype type,
              std::vector<std::size_t> counts, call_site site)
      : plan_(&plan), group_(&group), type_(type), counts_(std::move(counts)), site_(site) {
    for (const std::size_t each : counts_) total_ += each;
  }

  /// The replicas that were added since the last finish() or drop().
  [[nodiscard]] std::size_t added() const noexcept { return added_; }

  /// Local. Adds a replica's gradients: all blocks, which may be overwritten when this returns.
  void add(const void* gradients) {
    require_more();
    const int merges = plan_->own_merges()[added_++];
    if (merges == 0) {
      sums_.push_back(take_spare());
      spare_.reserve(spare_.size() + sums_.size());  // drop() must not allocate
      copy(sums_.back().get(), gradients);
      return;
    }
    add_to(sums_.back().get(), gradients);
    for (int i = 1; i < merges; ++i) {
      aligned_memory right = std::move(sums_.back());
      sums_.pop_back();
      add_to(sums_.back().get(), right.get());
      spare_.push_back(std::move(right));
    }
  }

  /// Collective, asynchronous. `gradients` are those of this rank's last replica; the memory is in
  /// use until finish(), which may leave anything there.
  void start(void* gradients) {
    require_more();
    const reduce_function plus = reduce_kernel(type_, reduce_op::sum);
    make_zeros_positive(type_, gradients, total_);
    for (int i = plan_->own_merges()[added_++]; i > 0; --i) {
      plus(gradients, sums_.back().get(), gradients, total_);
      spare_.push_back(std::move(sums_.back()));
      sums_.pop_back();
    }
    require(added_ == own_count(), "{} of this rank's {} replicas have computed gradients", added_,
            own_count());
    const std::size_t own_block = counts_[static_cast<std::size_t>(group_->rank())];
    std::size_t sent = 0;
    for (const std::size_t each : plan_->sums_of()) sent += each;
    received_ = allocate(sent * own_block);
    std::size_t at = 0;
    for (std::size_t round = 0; round < plan_->most_sums(); ++round) {
      const bool sends = round < sums_.size() + 1;
      const void* const from = round < sums_.size() ? sums_[round].get() : gradients;
      std::vector<std::size_t> outgoing(counts_.size()), incoming;
      if (sends) outgoing = counts_;
      const std::size_t begin = at;
      for (const std::size_t each : plan_->sums_of()) {
        incoming.push_back(round < each ? own_block : 0);
        at += incoming.back();
      }
      const const_buffer_view out{from, sends ? total_ : 0, type_};
      const buffer_view in{received_.get() + begin * size_of(type_), at - begin, type_};
      works_.push_back(async_all_to_all_v(*group_, out, outgoing, in, incoming, {}, site_));
    }
  }

  /// Collective. Blocks until this rank's block of the sum is at `block`, which may be its place in
  /// the gradients given to start(). It is multiplied by `factor`.
  void finish(void* block, double factor) {
    for (work& each : works_) each.wait();
    add_up(static_cast<std::byte*>(block));
    scale_kernel(type_)(block, counts_[static_cast<std::size_t>(group_->rank())], factor);
    drop();
  }

  /// Gives up what was added; blocks until no operation uses the memory any more.
  void drop() noexcept {
    works_.clear();
    received_.reset();
    for (aligned_memory& each : sums_) spare_.push_back(std::move(each));
    sums_.clear();
    added_ = 0;
  }

 private:
  [[nodiscard]] aligned_memory allocate(std::size_t elements) const {
    return allocate_aligned(elements * size_of(type_));
  }
  [[nodiscard]] aligned_memory take_spare() {
    if (spare_.empty()) return allocate(total_);
    aligned_memory taken = std::move(spare_.back());
    spare_.pop_back();
    return taken;
  }
  [[nodiscard]] std::size_t own_count() const noexcept {
    return static_cast<std::size_t>(plan_->own().size());
  }
  void require_more() const {
    require(added_ < own_count(),
            "a step has {} replicas, and {} of them are this rank's: a further one has computed "
            "gradients. Without replicas in the layout gradients may be added up as often as "
            "wanted",
            plan_->replicas(), own_count());
  }

  void copy(std::byte* to, const void* gradients) const {
    std::memcpy(to, gradients, total_ * size_of(type_));
    make_zeros_positive(type_, to, total_);
  }
  void add_to(std::byte* left, const void* right) const {
    reduce_kernel(type_, reduce_op::sum)(left, left, right, total_);
  }

  /// The rest of the tree, a few cache lines at a time.
  void add_up(std::byte* block) const {
    constexpr std::size_t step = 2048;
    const std::size_t count = counts_[static_cast<std::size_t>(group_->rank())];
    const reduce_function plus = reduce_kernel(type_, reduce_op::sum);
    const std::vector<std::byte*> in_order = received_sums(count);
    std::vector<std::byte*> open;
    for (std::size_t begin = 0; begin < count; begin += step) {
      const std::size_t some = std::min(step, count - begin);
      open.clear();
      for (std::size_t i = 0; i < in_order.size(); ++i) {
        open.push_back(in_order[i] + begin * size_of(type_));
        for (int merges = plan_->merges()[i]; merges > 0; --merges) {
          std::byte* const right = open.back();
          open.pop_back();
          plus(open.back(), open.back(), right, some);
        }
      }
      std::memcpy(block + begin * size_of(type_), open.front(), some * size_of(type_));
    }
  }
  /// Where start() has received this rank's block of all sums, from the tree's left to its right.
  [[nodiscard]] std::vector<std::byte*> received_sums(std::size_t count) const {
    std::vector<std::vector<std::byte*>> by_rank(counts_.size());
    std::byte* next = received_.get();
    for (std::size_t round = 0; round < plan_->most_sums(); ++round) {
      for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
        if (round < plan_->sums_of()[rank]) {
          by_rank[rank].push_back(std::exchange(next, next + count * size_of(type_)));
        }
      }
    }
    std::vector<std::byte*> all;
    for (const auto& each : plan_->order()) {
      all.push_back(by_rank[static_cast<std::size_t>(each.rank)][each.number]);
    }
    return all;
  }

  const replica_plan* plan_;
  process_group* group_;
  dtype type_;
  std::vector<std::size_t> counts_;
  call_site site_;
  std::size_t total_ = 0;
  std::size_t added_ = 0;
  std::vector<aligned_memory> sums_;   ///< of complete nodes whose sibling is not complete
  std::vector<aligned_memory> spare_;  ///< of total_ elements each
  aligned_memory received_;
  std::vector<work> works_;  // destroyed, and so waited for, before the memory they use
};

}  // namespace parx
