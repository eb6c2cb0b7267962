// batch: several sends and receives that move together (PyTorch's batch_isend_irecv).
//
//   parx::batch halo(world);
//   halo.send(right_edge, next).recv(left_ghost, previous).run();
//
// The order may differ from rank to rank: no message waits for the one before it, so no order can
// deadlock. Between two ranks, messages with the same tag are matched in the order in which they
// were added. Short messages to one rank are sent together, which over TCP takes a third of the
// time of sending them one by one.
#pragma once

#include <memory>
#include <utility>

#include <parx/comm/collectives/message.hpp>

namespace parx::inline PARX_ABI {

class batch {
 public:
  /// An empty batch. `group` must outlive it.
  explicit batch(process_group& group) noexcept : group_(&group) {}

  /// Adds a message; nothing moves yet. The buffer is borrowed until run() returns or the work is
  /// waited for. Throws usage_error for a rank outside the group.
  template <typename Data>
  batch& send(Data&& data, int to, message_options options = {},
              call_site site = call_site::current()) {
    detail::explain_temporary<Data>();
    detail::fill_message<operation::send>(*group_, to, data, options, site, add());
    return *this;
  }
  template <typename Data>
  batch& recv(Data&& data, int from, message_options options = {},
              call_site site = call_site::current()) {
    detail::explain_temporary<Data>();
    detail::fill_message<operation::recv>(*group_, from, data, options, site, add());
    return *this;
  }

  /// Blocks until all messages are done; the batch is then empty and may be filled again. Throws
  /// parx::error when communication fails (the group is then closed).
  void run() {
    last_ = nullptr;
    const auto all = std::move(first_);
    if (all != nullptr) detail::run(*group_, *all);
  }

  /// The same, asynchronously: returns one work for all messages. The batch is then empty.
  [[nodiscard]] work start() {
    last_ = nullptr;
    auto all = std::move(first_);
    if (all == nullptr) return {};
    return detail::start(*group_, std::move(all));
  }

 private:
  detail::call& add() {
    auto& place = last_ == nullptr ? first_ : last_->next;
    place = std::make_unique<detail::call>();
    last_ = place.get();
    return *last_;
  }

  process_group* group_;
  std::unique_ptr<detail::call> first_;
  detail::call* last_ = nullptr;
};

}  // namespace parx
