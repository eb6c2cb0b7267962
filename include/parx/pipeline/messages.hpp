// stage_messages: the messages between stages in one step.
//
// Every receive of the step is posted before its first action, so messages are received whatever
// the rank is doing; their memory is allocated on arrival, in the shape that the frame names. Sends
// are asynchronous and free their memory when they are done. Each tensor has its own tag, so
// neither direction blocks the other, and no message blocks a later one.
// Threads: one, but memory is allocated on the group's thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/any_shape.hpp>
#include <parx/comm/collectives/batch.hpp>
#include <parx/comm/collectives/message.hpp>
#include <parx/core/source.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

enum class stage_direction : std::uint8_t {
  onwards,    ///< results, to the next stage
  backwards,  ///< gradients with the count of the loss, to the stage before
};

/// What a stage hands to another for one micro-batch.
template <typename T>
struct stage_values {
  /// Of the last block, then of skip connections. A gradient that is not defined is absent: the
  /// loss does not depend on that result.
  std::vector<tensor<T>> values;
  double count = 0;  ///< the loss's count, with gradients
};

template <typename T>
class stage_messages {
 public:
  /// A message has at most `most` tensors. The group is borrowed. `site` is the step's.
  stage_messages(process_group& group, int stages, int microbatches, std::size_t most,
                 call_site site)
      : group_(&group),
        site_(site),
        stages_(stages),
        tags_(static_cast<int>(most) + 1),
        arrivals_(static_cast<std::size_t>(2 * stages * microbatches)) {}

  /// Posts the receives of the `tensors` tensors that `stage` will get from rank `from`.
  void expect(stage_direction way, int stage, int microbatch, int from, std::size_t tensors) {
    arrival& to = *(arrivals_[index(way, stage, microbatch)] = std::make_unique<arrival>());
    int tag = tag_of(way, stage, microbatch);
    to.held.values.resize(tensors);
    for (tensor<T>& made : to.held.values) {
      to.parts.push_back(async_recv_any_shape(
          *group_, from,
          [&made](dtype, const axis_extents& extents) {
            if (extents == absent()) return std::span<std::byte>();
            made = tensor<T>::empty(shape(std::span(extents.begin(), extents.end())));
            return std::as_writable_bytes(std::span(made.data(), made.size()));
          },
          {.tag = tag++, .type = dtype_of<T>}, site_));
    }
    if (way == stage_direction::backwards) {
      to.parts.push_back(
          async_recv(*group_, std::span(&to.held.count, 1), from, {.tag = tag}, site_));
    }
  }
  /// Delivers to a stage of this same rank.
  void hand_over(stage_direction way, int stage, int microbatch, stage_values<T> what) {
    arrival& to = *(arrivals_[index(way, stage, microbatch)] = std::make_unique<arrival>());
    to.held = std::move(what);
  }
  /// Blocks until the message has arrived.
  [[nodiscard]] stage_values<T> take(stage_direction way, int stage, int microbatch) {
    const std::unique_ptr<arrival> found =
        std::move(arrivals_[index(way, stage, microbatch)]);
    for (work& each : found->parts) each.wait();
    return std::move(found->held);
  }
  /// Sends to `stage` on rank `to`.
  void send(stage_direction way, int stage, int microbatch, int to, stage_values<T> what) {
    while (!leaving_.empty() && leaving_.front().sent.test()) leave();
    departure& next = leaving_.emplace_back();
    next.held = std::move(what);
    int tag = tag_of(way, stage, microbatch);
    batch together(*group_);
    for (tensor<T>& each : next.held.values) {
      if (each.defined()) {
        each = std::move(each).contiguous();
        together.send(each, to, {.tag = tag++, .extents = each.shape()}, site_);
      } else {
        together.send(std::span<const T>(), to, {.tag = tag++, .extents = absent()}, site_);
      }
    }
    if (way == stage_direction::backwards) {
      const std::span<const double> count(&next.held.count, 1);
      together.send(count, to, {.tag = tag}, site_);
    }
    next.sent = together.start();
  }
  /// Blocks until all sends are done.
  void finish() {
    while (!leaving_.empty()) leave();
  }

 private:
  struct arrival {
    stage_values<T> held;
    std::vector<work> parts;  // last: their destructors wait, before `held` goes
  };
  struct departure {
    stage_values<T> held;
    work sent;
  };

  /// The shape that stands for an absent gradient: no result has so many axes, all empty.
  [[nodiscard]] static const axis_extents& absent() {
    static const axis_extents none{0, 0, 0, 0, 0, 0, 0, 0};
    return none;
  }
  void leave() {
    leaving_.front().sent.wait();
    leaving_.pop_front();
  }
  [[nodiscard]] std::size_t index(stage_direction way, int stage, int microbatch) const noexcept {
    return static_cast<std::size_t>((microbatch * stages_ + stage) * 2 + static_cast<int>(way));
  }
  [[nodiscard]] int tag_of(stage_direction way, int stage, int microbatch) const noexcept {
    return static_cast<int>(index(way, stage, microbatch)) * tags_;
  }

  process_group* group_;
  const call_site site_;
  int stages_, tags_;
  std::vector<std::unique_ptr<arrival>> arrivals_;
  std::list<departure> leaving_;
};

}  // namespace parx
