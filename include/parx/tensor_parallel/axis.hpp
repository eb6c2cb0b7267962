// axis: the ranks over which a model's layers are cut, as layers (rank_axis) and sums of gradients
// (gradient_axis) see them, by a process group.
//
//   parx::tp::axis axis{mesh["tp"]};
//
// Collectives block the caller, except start_sum(): a gradient that is summed while others are
// computed runs on the group's progress thread. Threads: as a process_group.
//
// start_sum() is for links: backward at d = 512 takes 176 ms instead of 211 over 500 Mbit/s, 116
// instead of 119 over 2 Gbit/s, the same in shared memory, and over TCP inside a host, where the
// progress thread has no core of its own, 93 instead of 90. The small sums of sequence parallel
// (six times 2 KiB a layer) are not coalesced: together they take longer in shared memory (3 to
// 5 us, each 0.5 to 2.3), and they become final at different times. (2026-11-23, 2 ranks.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <parx/autograd/gradient_axis.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/comm/collectives/reduce_scatter.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/formatted.hpp>
#include <parx/tensor/rank_axis.hpp>

namespace parx::inline PARX_ABI::tp {

class axis final : public rank_axis, public gradient_axis {
 public:
  /// The group is borrowed. Errors of the collectives name `site`.
  explicit axis(process_group& group, call_site site = call_site::current()) noexcept
      : group_(group), site_(site) {}
  axis(const axis&) = delete;
  axis& operator=(const axis&) = delete;

  [[nodiscard]] process_group& group() const noexcept { return group_; }
  [[nodiscard]] int rank() const noexcept override { return group_.rank(); }
  [[nodiscard]] int size() const noexcept override { return group_.size(); }
  [[nodiscard]] std::string cut_at() const override { return formatted(" at {}", site_); }

  void all_reduce(const_buffer_view from, buffer_view to, reduction how) override {
    const reduce_op op = how == reduction::sum ? reduce_op::sum : reduce_op::max;
    parx::all_reduce(group_, from, to, reduce_options{.op = op}, site_);
  }
  void all_gather(const_buffer_view from, buffer_view to,
                  std::span<const std::size_t> counts) override {
    parx::all_gather_v(group_, from, to, counts, {}, site_);
  }
  void reduce_scatter(const_buffer_view from, buffer_view to,
                      std::span<const std::size_t> counts) override {
    parx::reduce_scatter_v(group_, from, to, counts, reduce_options{}, site_);
  }
  void all_to_all(const_buffer_view from, std::span<const std::size_t> sent, buffer_view to,
                  std::span<const std::size_t> received) override {
    parx::all_to_all_v(group_, from, sent, to, received, {}, site_);
  }
  void add_up(std::span<std::int64_t> numbers, call_site site) override {
    parx::all_reduce(group_, numbers, {}, site);
  }
  [[nodiscard]] std::unique_ptr<pending> start_sum(buffer_view data) override {
    struct in_flight final : pending {
      explicit in_flight(work started) : sum(std::move(started)) {}
      void wait() override { sum.wait(); }
      work sum;
    };
    return std::make_unique<in_flight>(async_all_reduce(group_, data, reduce_options{}, site_));
  }

 private:
  process_group& group_;
  call_site site_;
};

}  // namespace parx::tp
