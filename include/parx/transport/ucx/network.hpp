// ucx_network: a process's part of a network over UCX: its worker, the processes that it talks to,
// and the streams of all groups' links.
//
// Bytes travel as active messages. UCX delivers them in order, which the numbers in their headers
// prove. Whoever drives a group lets UCX deliver to all groups, and wakes a group that sleeps for
// what has arrived. Small bodies are sent eagerly, up to `ucx_stream::window` bytes ahead of the
// receiver, who tells in its headers what it has taken; larger ones wait at the sender until the
// receiver fetches them. So a receiver that does not receive stores at most a window for each link.
// Threads: safe from any thread, since one mutex guards everything here.
#pragma once

#include <ucp/api/ucp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <parx/core/log.hpp>
#include <parx/transport/detail/ended_groups.hpp>
#include <parx/transport/detail/network.hpp>
#include <parx/transport/ucx/inbox.hpp>
#include <parx/transport/ucx/message.hpp>
#include <parx/transport/ucx/peer.hpp>
#include <parx/transport/ucx/settings.hpp>
#include <parx/transport/ucx/worker.hpp>

namespace parx::inline PARX_ABI::detail {

// The two directions of one link, as far as the worker's callback must know them.
struct ucx_stream {
  ucx_header out;               ///< of the next message to the peer; its tag is 0 until opened
  std::uint64_t in_tag = 0;     ///< that the peer's messages must have
  std::uint32_t in_number = 0;  ///< of the next message from the peer
  ucx_inbox inbox;
  std::uint64_t sent = 0;   ///< eager bytes
  std::uint64_t taken = 0;  ///< of these the peer has received, as it has said
  std::uint64_t told = 0;   ///< inbox.consumed() that the peer knows
  bool ended = false;       ///< the peer has closed its link
  std::string broken;       ///< why the peer's bytes cannot be understood
  bool asleep = false;      ///< a thread sleeps until something changes here

  /// Eager bytes that may be under way or unread: what an idle receiver stores of one link.
  static constexpr std::uint64_t window = std::uint64_t{1} << 20;
  [[nodiscard]] bool admits(std::size_t size) const noexcept {
    return sent - taken + size <= window;
  }
  /// Whether the peer should be told now what it may send.
  [[nodiscard]] bool owes_credit() const noexcept { return inbox.consumed() - told >= window / 4; }
};

class ucx_network {
 public:
  /// Throws parx::error where UCX cannot be loaded or finds no transport.
  explicit ucx_network(network_identity self)
      : self_(std::move(self)),
        rendezvous_from_(rendezvous_threshold(self_.env)),
        worker_(ucx_settings_for(self_.env, has_rdma_device(), self_.own_interface),
                &ucx_network::arrived, this) {}

  ~ucx_network() {
    // What was sent last (that a group has ended) may still be under way. All peers have the same
    // second: one may be stopped.
    std::vector<void*> requests;
    for (auto& [rank, each] : peers_) {
      if (void* const request = each->start_close(ucx_peer::closing::in_order)) {
        requests.push_back(request);
      }
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    const auto ended = [this](void* each) {
      if (worker_.ucx().request_check_status(each) == UCS_INPROGRESS) return false;
      worker_.ucx().request_free(each);
      return true;
    };
    while (std::erase_if(requests, ended), !requests.empty()) {
      if (std::chrono::steady_clock::now() > until) break;
      worker_.progress();
    }
    for (void* const each : requests) worker_.ucx().request_free(each);
    for (auto& [key, each] : streams_) discard(each);
  }
  ucx_network(const ucx_network&) = delete;
  ucx_network& operator=(const ucx_network&) = delete;

  [[nodiscard]] std::string address(bool also_inside_host) const {
    return worker_.address(also_inside_host);
  }
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }
  [[nodiscard]] int event_descriptor() const noexcept { return worker_.descriptor(); }
  /// Messages that were dropped because they did not prove to be of this job.
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }

  // All below with the mutex held.

  [[nodiscard]] const ucx_worker& worker() const noexcept { return worker_; }

  /// The process of a rank of the job: where its worker is, and what it has published. Throws
  /// errc::io.
  [[nodiscard]] ucx_peer& peer(int rank, const std::string& address, const std::string& challenge) {
    auto& known = peers_[rank];
    if (known == nullptr) {
      known.reset(new ucx_peer(worker_, rank, address, challenge, rendezvous_from_, lost_one_));
      // Connects now, so that the peer's end will be noticed although nothing is sent to it.
      send_control(*known, ucx_header{.rank = self_.rank});
    }
    return *known;
  }
  /// What UCX has chosen for the ranks to which links were opened.
  [[nodiscard]] std::map<int, std::string> lanes() const {
    std::map<int, std::string> all;
    for (const auto& [rank, each] : peers_) all.emplace(rank, each->lanes());
    return all;
  }
  /// The stream of a link between this process and `to`: of rank `from` of the group to its rank
  /// `peer`.
  [[nodiscard]] ucx_stream& open(const ucx_peer& to, std::uint64_t group, purpose what_for,
                                 int from, int peer) {
    ucx_stream& stream = streams_[{group, what_for, peer}];
    stream.out = {.group = group,
                  .from = from,
                  .to = peer,
                  .rank = self_.rank,
                  .what_for = what_for,
                  .kind = ucx_kind::data};
    stream.out.tag = self_.tag(hello_of(stream.out), to.challenge());
    stream.in_tag = tag_from(to.rank(), stream.out);
    return stream;
  }
  /// A group has closed, and so have its links: drops what arrives for it from now on.
  void forget(std::uint64_t group) {
    if (ended_.has(group)) return;
    ended_.add(group);
    auto each = streams_.lower_bound({group, purpose::collective, -1});
    while (each != streams_.end() && std::get<0>(each->first) == group) {
      discard(each->second);
      each = streams_.erase(each);
    }
  }
  void discard(ucx_stream& stream) noexcept {
    stream.inbox.discard(
        [this](void* descriptor) { worker_.ucx().am_data_release(worker_.handle(), descriptor); });
  }

  /// Lets UCX deliver and send. True where something has moved.
  bool progress() {
    const bool moved = worker_.progress();
    if (!noticed_loss()) return moved;
    for (auto& [key, stream] : streams_) wake(stream);
    return true;
  }
  /// Before a sleep: false where something has moved meanwhile.
  [[nodiscard]] bool arm() {
    bool moved = false;
    while (worker_.progress()) moved = true;
    moved |= noticed_loss();
    return worker_.arm() && !moved;
  }
  void wake(ucx_stream& stream) {
    if (stream.asleep) self_.wake(stream.out.group);
  }
  /// Sends a header alone. Where it cannot be sent the peer is lost, which its links find out.
  void send_control(ucx_peer& to, const ucx_header& header) noexcept {
    if (!to.usable()) return;
    auto* const kept = new (std::nothrow) ucx_header(header);
    if (kept == nullptr) return;
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_AM_SEND_FLAG_EAGER;
    how.cb.send = [](void* request, ucs_status_t, void* sent) {
      delete static_cast<ucx_header*>(sent);
      free_request(request);
    };
    how.user_data = kept;
    void* const request = worker_.ucx().am_send_nbx(to.endpoint(), ucx_worker::message_id, kept,
                                                    sizeof *kept, nullptr, 0, &how);
    if (!UCS_PTR_IS_PTR(request)) delete kept;
  }
  /// Starts to move the bytes of a message to `where`.
  void fetch(ucx_stream& stream, ucx_rendezvous& message, std::byte* where) {
    message.started = true;
    message.network = this;
    message.stream = &stream;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.cb.recv_am = [](void* request, ucs_status_t state, std::size_t, void* fetched) {
      auto& ended = *static_cast<ucx_rendezvous*>(fetched);
      ended.state = state;
      if (ended.stream != nullptr) ended.network->wake(*ended.stream);
      free_request(request);
    };
    how.user_data = &message;
    void* const request = worker_.ucx().am_recv_data_nbx(worker_.handle(), message.descriptor,
                                                         where, message.size, &how);
    if (!UCS_PTR_IS_PTR(request)) message.state = UCS_PTR_STATUS(request);
  }
  static void free_request(void* request) noexcept {
    ucx_library::instance().request_free(request);
  }

 private:
  using stream_key = std::tuple<std::uint64_t, purpose, std::int32_t>;  // group, purpose, peer

  /// The tag of the messages that answer `out`, from the rank `rank` of the job.
  [[nodiscard]] std::uint64_t tag_from(int rank, const ucx_header& out) const {
    link_hello hello = hello_of(out);
    std::swap(hello.from, hello.to);
    hello.rank = rank;
    return self_.tag(hello, self_.challenge);
  }
  /// The stream of a message, new if the link is not open yet; null where its tag is wrong.
  [[nodiscard]] ucx_stream* proven(const ucx_header& header) {
    const stream_key key{header.group, header.what_for, header.from};
    const auto found = streams_.find(key);
    if (found != streams_.end()) {
      return found->second.in_tag == header.tag ? &found->second : nullptr;
    }
    if (self_.tag(hello_of(header), self_.challenge) != header.tag) return nullptr;
    ucx_stream& stream = streams_[key];
    stream.out = mirrored(header);
    stream.in_tag = header.tag;
    return &stream;
  }
  [[nodiscard]] ucx_header mirrored(const ucx_header& header) const noexcept {
    return {.group = header.group,
            .from = header.to,
            .to = header.from,
            .rank = self_.rank,
            .what_for = header.what_for,
            .kind = ucx_kind::data};
  }
  [[nodiscard]] ucs_status_t refuse(const char* why) {
    ++refused_;
    log(log_level::debug, "dropped a message over UCX that {}", why);
    return UCS_OK;
  }
  /// To the sender of a message for a group that has ended here, this is what the end of a
  /// connection is. It ignores this if it was told by the link before.
  void tell_end(const ucx_header& late) {
    const auto sender = peers_.find(late.rank);
    if (sender == peers_.end() || late.kind != ucx_kind::data) return;
    ucx_header end = mirrored(late);
    end.kind = ucx_kind::end;
    end.tag = self_.tag(hello_of(end), sender->second->challenge());
    send_control(*sender->second, end);
  }
  /// Frees what belongs to peers that UCX has lost since the last call; false where it has lost
  /// none.
  bool noticed_loss() noexcept {
    if (!std::exchange(lost_one_, false)) return false;
    self_.lost();
    for (auto& [rank, each] : peers_) {
      if (each->lost() == UCS_OK) continue;
      if (void* const request = each->start_close(ucx_peer::closing::by_force)) {
        free_request(request);
      }
    }
    return true;
  }

  /// Called by UCX from progress(), with the mutex held.
  static ucs_status_t arrived(void* self, const void* header, std::size_t front_size, void* data,
                              std::size_t size, const ucp_am_recv_param_t* how) {
    const bool remote = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    try {
      return static_cast<ucx_network*>(self)->accept(
          {static_cast<const std::byte*>(header), front_size}, static_cast<std::byte*>(data), size,
          remote);
    } catch (const std::exception&) {  // no memory
      return UCS_ERR_NO_MEMORY;
    }
  }
  ucs_status_t accept(std::span<const std::byte> front, std::byte* data, std::size_t size,
                      bool remote) {
    const auto header = parse_ucx_header(front);
    if (!header) return refuse("is no message of parx");
    if (header->kind == ucx_kind::hello) return UCS_OK;
    if (ended_.has(header->group)) {
      tell_end(*header);
      return remote ? UCS_ERR_CANCELED : UCS_OK;
    }
    ucx_stream* const stream = proven(*header);
    if (stream == nullptr) return refuse("has not proved to be of this job");
    stream->taken = std::max(stream->taken, header->consumed);
    wake(*stream);
    if (header->kind == ucx_kind::credit || !stream->broken.empty()) return UCS_OK;
    if (header->kind == ucx_kind::end && header->number < stream->in_number) return UCS_OK;
    if (header->number != stream->in_number++) {
      stream->broken = "UCX has delivered its messages out of order";
      return remote ? UCS_ERR_CANCELED : UCS_OK;
    }
    if (header->kind == ucx_kind::end) {
      stream->ended = true;
      return UCS_OK;
    }
    try {
      stream->inbox.deliver(front.subspan(sizeof *header));
      if (!remote) stream->inbox.deliver({data, size});
      if (remote) stream->inbox.announce(data, size);
    } catch (const std::bad_alloc&) {
      stream->broken = "there is no memory for what it has sent";
      return UCS_ERR_NO_MEMORY;
    }
    return remote ? UCS_INPROGRESS : UCS_OK;  // UCX keeps the descriptor of a rendezvous
  }

  const network_identity self_;
  /// Larger bodies go by rendezvous; where it is empty, the path decides.
  const std::optional<std::size_t> rendezvous_from_;
  std::mutex mutex_;
  ucx_worker worker_;
  bool lost_one_ = false;  ///< UCX has told of a peer's loss
  std::map<int, std::unique_ptr<ucx_peer>> peers_;
  std::map<stream_key, ucx_stream> streams_;
  ended_groups ended_;
  std::uint64_t refused_ = 0;
};

}  // namespace parx::detail
