// ucx_link: a link to a process that is reached over UCX.
//
// A message's header and the first part of its body are one active message, whose next parts are
// others. Eager or not, bytes are sent from the caller's memory and count as sent once UCX does not
// need them any more: until then the caller passes them again. See network.hpp.
#pragma once

#include <poll.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/transport/detail/incoming_connections.hpp>
#include <parx/transport/detail/process_link.hpp>
#include <parx/transport/ucx/network.hpp>

namespace parx::inline PARX_ABI {

class ucx_link final : public detail::process_link {
 public:
  /// A link of rank `from` of the group to the peer that is `rank` in the job, whose worker has
  /// this address and who has published this challenge. Throws link_lost.
  ucx_link(detail::ucx_network& network, const detail::link_key& key, int from, int rank,
           const std::string& address, const std::string& challenge)
      : network_(network), key_(key) {
    const std::lock_guard lock(network_.mutex());
    try {
      peer_ = &network_.peer(rank, address, challenge);
    } catch (const error& refused) {
      throw link_lost(key.peer, refused.what());
    }
    stream_ = &network_.open(*peer_, key.group, key.what_for, from, key.peer);
  }
  ~ucx_link() override { close(); }
  ucx_link(const ucx_link&) = delete;
  ucx_link& operator=(const ucx_link&) = delete;

  std::size_t try_send(const const_bytes& first, const const_bytes& second) override {
    const std::lock_guard lock(network_.mutex());
    require_open();
    std::size_t counted = count_sent();
    const std::size_t whole = first.size + second.size;
    std::size_t posted = counted + pending_;
    while (posted < whole) {
      const std::size_t of_first = first.size - std::min(posted, first.size);
      const std::size_t front = std::min(of_first, prefix_bytes);
      const std::size_t done = posted + front - std::min(posted + front, first.size);
      const std::size_t body = front < of_first ? 0 : std::min(second.size - done, peer_->piece());
      if (!may_post(front + body)) break;
      post({first.data + (first.size - of_first), front}, {second.data + done, body});
      posted += front + body;
    }
    blocked_ = posted < whole;
    counted += count_sent();
    if (counted == 0 && network_.progress()) counted = count_sent();
    if (counted == 0) throw_if_lost();
    return counted;
  }

  std::size_t try_receive(const mutable_bytes& first, const mutable_bytes& second) override {
    const std::lock_guard lock(network_.mutex());
    require_open();
    detail::ucx_inbox& inbox = stream_->inbox;
    detail::ucx_destination to{first, second};
    take(to);
    if (to.got < to.wanted()) {
      inbox.set_destination(&to);
      network_.progress();
      inbox.set_destination(nullptr);
      take(to);
    }
    bool fetches = false;
    inbox.start_fetches(to, [&](detail::ucx_rendezvous& each, std::byte* where) {
      network_.fetch(*stream_, each, where);
      fetches = true;
    });
    if (fetches) take(to);  // inside a host some end at once
    if (stream_->owes_credit()) send_control(detail::ucx_kind::credit);
    if (to.got == 0 && inbox.empty()) throw_if_lost();
    return to.got;
  }

  [[nodiscard]] detail::sleep_plan before_sleep(bool readable, bool writable,
                                                std::vector<pollfd>& polled) override {
    const std::lock_guard lock(network_.mutex());
    if (stream_ == nullptr) return {};
    stream_->asleep = true;  // before arm(), which may wake
    busy_ = !network_.arm() || may_move(readable, writable);
    const int event = network_.event_descriptor();
    if (polled.empty() || polled.back().fd != event) polled.push_back({event, POLLIN, 0});
    return {.looks_twice = busy_};
  }
  [[nodiscard]] bool ready(bool /*readable*/, bool /*writable*/) const noexcept override {
    return busy_;
  }
  void after_sleep(short /*events*/) override {
    const std::lock_guard lock(network_.mutex());
    if (stream_ != nullptr) stream_->asleep = false;
  }

  void close() noexcept override {
    std::unique_lock lock(network_.mutex());
    if (stream_ == nullptr) return;
    await_requests(lock);
    send_control(detail::ucx_kind::end);
    network_.discard(*stream_);
    stream_->ended = true;
    // A request that UCX has still not ended keeps its header.
    for (auto& each : sent_) {
      each->stream = nullptr;
      static_cast<void>(each.release());
    }
    sent_.clear();
    stream_ = nullptr;
  }

 private:
  /// At most so many messages that UCX has not sent yet.
  static constexpr std::size_t most_in_flight = 8;
  /// Requests that use the caller's memory have this long to end by themselves when a link closes.
  static constexpr std::chrono::milliseconds close_patience{300};
  static constexpr std::chrono::milliseconds force_patience{700};

  /// A message that is given to UCX and not counted as sent.
  struct outgoing {
    detail::ucx_front front;
    std::size_t size = 0;  ///< of the stream's bytes in it
    ucs_status_t state = UCS_INPROGRESS;
    detail::ucx_network* network = nullptr;
    detail::ucx_stream* stream = nullptr;
  };

  void require_open() const {
    if (stream_ == nullptr) throw link_lost(key_.peer, "this rank closed the connection");
  }
  void throw_if_lost() const {
    if (!stream_->broken.empty()) throw link_lost(key_.peer, stream_->broken);
    if (stream_->ended) throw closed_by(key_.peer);
    if (peer_->lost() != UCS_OK) throw lost(peer_->lost());
  }
  [[nodiscard]] link_lost lost(ucs_status_t why) const {
    if (why == UCS_ERR_CANCELED) {
      return {key_.peer, "it or this rank closed the connection", link_end::closed};
    }
    return {key_.peer,
            formatted("its connection ended (UCX: {})", network_.worker().ucx().status_string(why)),
            link_end::closed};
  }

  [[nodiscard]] bool may_post(std::size_t size) const noexcept {
    const std::size_t eager = size > peer_->most_eager() + prefix_bytes ? prefix_bytes : size;
    return sent_.size() < most_in_flight && peer_->usable() && !stream_->ended &&
           stream_->admits(eager);
  }
  void post(const const_bytes& front, const const_bytes& body) {
    if (spare_.empty()) spare_.emplace_back(new outgoing);
    sent_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    outgoing& next = *sent_.back();
    next.front.header = stream_->out;
    next.front.header.number = stream_->out.number++;
    next.front.header.consumed = stream_->told = stream_->inbox.consumed();
    if (front.size > 0) std::memcpy(next.front.prefix.data(), front.data, front.size);
    next.size = front.size + body.size;
    next.state = UCS_INPROGRESS;
    next.network = &network_;
    next.stream = stream_;
    const bool eager = body.size <= peer_->most_eager();
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
    how.cb.send = [](void* request, ucs_status_t state, void* self) {
      auto& ended = *static_cast<outgoing*>(self);
      ended.state = state;
      if (ended.stream != nullptr) ended.network->wake(*ended.stream);
      detail::ucx_network::free_request(request);
    };
    how.user_data = &next;
    void* const request = network_.worker().ucx().am_send_nbx(
        peer_->endpoint(), detail::ucx_worker::message_id, &next.front,
        sizeof next.front.header + front.size, body.data, body.size, &how);
    if (!UCS_PTR_IS_PTR(request)) next.state = UCS_PTR_STATUS(request);
    stream_->sent += front.size + (eager ? body.size : 0);
    pending_ += next.size;
  }
  /// Bytes that are the caller's again. Throws link_lost where UCX could not send some.
  [[nodiscard]] std::size_t count_sent() {
    std::size_t counted = 0;
    while (!sent_.empty() && sent_.front()->state != UCS_INPROGRESS) {
      if (sent_.front()->state != UCS_OK) {
        throw_if_lost();
        throw lost(sent_.front()->state);
      }
      counted += sent_.front()->size;
      spare_.push_back(std::move(sent_.front()));
      sent_.pop_front();
    }
    pending_ -= counted;
    return counted;
  }

  void take(detail::ucx_destination& to) {
    if (const auto state = stream_->inbox.take(to); state != UCS_OK) {
      throw_if_lost();
      throw lost(state);
    }
  }
  void send_control(detail::ucx_kind kind) noexcept {
    detail::ucx_header header = stream_->out;
    header.kind = kind;
    header.consumed = stream_->told = stream_->inbox.consumed();
    network_.send_control(*peer_, header);
  }

  /// Whether a call may move bytes now, or throw.
  [[nodiscard]] bool may_move(bool readable, bool writable) const noexcept {
    if (peer_->lost() != UCS_OK || stream_->ended || !stream_->broken.empty()) return true;
    if (readable && stream_->inbox.ready()) return true;
    if (!writable) return false;
    if (!sent_.empty() && sent_.front()->state != UCS_INPROGRESS) return true;
    return (sent_.empty() || blocked_) && may_post(peer_->piece() + prefix_bytes);
  }

  [[nodiscard]] bool has_requests() const noexcept {
    const auto is_pending = [](const auto& each) { return each->state == UCS_INPROGRESS; };
    return stream_->inbox.is_fetching() || std::any_of(sent_.begin(), sent_.end(), is_pending);
  }
  /// Waits until UCX does not use the caller's memory any more. A request cannot be ended alone,
  /// only together with the connection, which all groups of the two processes share.
  void await_requests(std::unique_lock<std::mutex>& lock) noexcept {
    const auto began = std::chrono::steady_clock::now();
    while (has_requests()) {
      network_.progress();
      const auto waited = std::chrono::steady_clock::now() - began;
      if (waited > close_patience + force_patience) return;
      if (waited > close_patience)
        peer_->close(detail::ucx_peer::closing::by_force, force_patience);
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      lock.lock();
    }
  }

  detail::ucx_network& network_;
  detail::link_key key_;
  detail::ucx_peer* peer_ = nullptr;
  detail::ucx_stream* stream_ = nullptr;        ///< null once closed
  std::deque<std::unique_ptr<outgoing>> sent_;  ///< given to UCX and not counted, the oldest first
  std::vector<std::unique_ptr<outgoing>> spare_;
  std::size_t pending_ = 0;  ///< bytes in sent_
  bool blocked_ = false;     ///< the last send was not given to UCX as a whole
  bool busy_ = false;
};

}  // namespace parx
