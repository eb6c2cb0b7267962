// server_loop: the event loop of a store's server, run by the server's own thread.
//
// It waits in epoll and never blocks on a client. Answers that do not fit into the socket are
// queued, and a client with queued answers is not read from. The memory of incomplete requests and
// of queued answers is limited for all clients together, see room: a client that would exceed a
// limit is paused (not read from) until there is room, and slow clients are disconnected. How
// connections are taken is told in server_door.hpp.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/log.hpp>
#include <parx/core/stream_options.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/member_count.hpp>
#include <parx/store/detail/mutual_authentication.hpp>
#include <parx/store/detail/poller.hpp>
#include <parx/store/detail/protocol.hpp>
#include <parx/store/detail/request_parser.hpp>
#include <parx/store/detail/room.hpp>
#include <parx/store/detail/server_core.hpp>
#include <parx/store/detail/server_door.hpp>
#include <parx/store/detail/store_socket.hpp>
#include <parx/store/dialect.hpp>

namespace parx::inline PARX_ABI::detail {

/// What the server keeps of each of its clients.
struct served_client {
  std::uint64_t id;
  store_socket wire;
  store_protocol::request_parser parser;
  std::optional<mutual_authentication>
      authentication;                       // until it is admitted, where the server has a key
  std::string outgoing = {};                // answers that the socket did not take yet
  std::size_t outgoing_sent = 0;
  std::optional<store_protocol::request> postponed = {};  // until there is room, or time
  bool awaiting_write = false;      // polled for EPOLLOUT, else for EPOLLIN
  bool paused = false;              // until there is room
  bool deferred = false;            // until there is time for its request
  bool member = false;              // has made a request
  bool marked_for_hang_up = false;  // closed when control is back in the event loop
};

class server_loop {
 public:
  /// With a `key`, only clients that prove to know it are served. Throws errc::io.
  [[gnu::cold]] server_loop(descriptor listener, store_dialect legacy, std::optional<job_key> key,
                            std::string presence_keys, member_count& members)
      : legacy_(legacy),
        key_(std::move(key)),
        door_(std::move(listener), poller_, listener_id),
        port_(door_.port()),
        core_([this](std::uint64_t client, std::string_view bytes) { send(client, bytes); },
              std::move(presence_keys)),
        members_(&members) {
    if (!stop_.valid()) {
      throw_error(errc::io, "a store's server cannot start: {}", errno_text(errno));
    }
    poller_.watch(EPOLL_CTL_ADD, stop_, EPOLLIN, stop_id);
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// From any thread.
  void stop() noexcept { ::eventfd_write(stop_.get(), 1); }

  void run() {
    while (true) {
      try {
        if (!serve_ready()) return;
      } catch (const std::exception& failure) {
        log(log_level::error, "the store's server on port {} goes on after: {}", port_,
            failure.what());
      }
    }
  }

 private:
  using client_id = std::uint64_t;
  using clock = deadline::clock;
  static constexpr client_id listener_id = 0;
  static constexpr client_id stop_id = 1;
  using verdict = store_protocol::verdict;
  using request_parser = store_protocol::request_parser;
  using peer = served_client;

  // False when the server is to stop.
  bool serve_ready() {
    std::array<epoll_event, 64> ready;
    const std::span<epoll_event> events = poller_.wait(ready, patience_ms());
    keys_in_pass_ = 0;
    // First: what a client causes may fail at each turn, where memory has run out.
    for (const epoll_event& each : events) {
      if (each.data.u64 == stop_id) return false;
    }
    if (door_.is_pause_over()) accept_some();
    for (const epoll_event& each : events) {
      const client_id id = each.data.u64;
      if (id == listener_id) {
        accept_some();
      } else if (const auto found = clients_.find(id); found != clients_.end()) {
        // It is not read from while answers are queued; flush() continues with it afterwards.
        peer& c = found->second;
        guarded(c, [&] { c.awaiting_write ? flush(c) : read_from(c); });
      }
    }
    read_buffered_tls();
    serve_deferred();
    const bool more_arrive = free_room(arriving_);
    const bool more_leave = free_room(leaving_);
    unfinished_ = more_arrive || more_leave;
    return true;
  }

  [[nodiscard]] int patience_ms() const noexcept {
    if (unfinished_ || !tls_buffered_.empty() || !deferred_.empty()) return 0;
    const bool timed = door_.is_paused() || arriving_.is_short() || leaving_.is_short();
    return timed ? look_again_after_ms : -1;
  }

  void accept_some() {
    door_.accept_some([this](descriptor socket) { admit(std::move(socket)); },
                      [this](client_id id) { hang_up(id); });
  }

  [[gnu::cold]] void admit(descriptor socket) {
    set_stream_options(socket.get());
    const client_id id = ++last_id_;
    poller_.watch(EPOLL_CTL_ADD, socket, EPOLLIN, id);
    marked_.reserve(clients_.size() + 1);
    auto authentication = key_ ? std::optional<mutual_authentication>(*key_) : std::nullopt;
    clients_.emplace(id, peer{id, store_socket(std::move(socket)), request_parser(legacy_),
                              std::move(authentication)});
    door_.expect(id);
  }

  // An exception in serving one client disconnects that client only.
  template <typename Action>
  void guarded(peer& c, Action action) {
    guard(c, action);
    hang_up_on_marked();
  }
  template <typename Action>
  void guard(peer& c, Action action) {
    try {
      action();
    } catch (const std::exception& failure) {
      log(log_level::warn, "the store's server on port {} hangs up on a client: {}", port_,
          failure.what());
      mark_for_hang_up(c);
    }
  }

  [[nodiscard]] static bool is_transient(int error_number) noexcept {
    return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
  }

  // epoll does not report bytes that TLS has read from the socket already.
  void note_buffered_tls(peer& c) {
    if (c.wire.may_hold_bytes()) tls_buffered_.push_back(c.id);
  }
  [[gnu::cold]] void read_buffered_tls() {
    for (const client_id id : std::exchange(tls_buffered_, {})) {
      const auto found = clients_.find(id);
      if (found == clients_.end() || found->second.awaiting_write || found->second.paused) continue;
      guarded(found->second, [&, this] { read_from(found->second); });
    }
  }

  // Requests with many keys do not keep those with a few waiting.
  [[gnu::cold]] void defer(peer& c) {
    if (!std::exchange(c.deferred, true)) deferred_.push_back(c.id);
  }
  [[gnu::cold]] void serve_deferred() {
    for (int i = 0; i < deferred_at_once && !deferred_.empty(); ++i) {
      const auto found = clients_.find(deferred_.front());
      deferred_.pop_front();
      if (found == clients_.end()) continue;
      peer& c = found->second;
      c.deferred = false;
      guarded(c, [&, this] { serve_on(c); });
    }
  }

  // One read per turn, so that a client with a large request does not keep the others waiting.
  void read_from(peer& c) {
    if (c.deferred) return;
    if (c.paused) return mark_for_hang_up(c);  // epoll reports only that its connection has broken
    std::size_t size = incoming_size;
    if (arriving_.is_full() && !arriving_.goes_first(c.id)) {
      if (c.parser.held() > 0) return pause(c, arriving_, incoming_size);
      size = small_request;
    }
    const ssize_t got = c.wire.take(incoming_.get(), size);
    if (got < 0 && is_transient(errno)) return;
    if (got <= 0) return mark_for_hang_up(c);
    std::string_view bytes(incoming_.get(), static_cast<std::size_t>(got));
    if (c.authentication && !admitted(c, bytes)) return;
    c.parser.feed(bytes);
    serve_on(c);
  }
  void serve_on(peer& c) {
    arriving_.progress(c.id, clock::now());
    if (!c.deferred) note_buffered_tls(c);
    serve(c);
    count_arriving(c);
  }

  [[nodiscard]] room::patience patience_with(const peer& c) const noexcept {
    return key_ && !c.authentication ? room::for_rank : room::for_stranger;
  }

  // Incomplete requests, requests that wait behind an answer, and the one whose answer has no room.
  void count_arriving(const peer& c) {
    const std::size_t postponed = c.postponed ? store_protocol::memory_of(*c.postponed) : 0;
    arriving_.hold(c.id, c.parser.held() + postponed, clock::now(), patience_with(c));
  }

  void pause(peer& c, room& full, std::size_t wanted) {
    if (c.marked_for_hang_up || std::exchange(c.paused, true)) return;
    full.wait(c.id, wanted);
    poller_.watch(EPOLL_CTL_MOD, c.wire.socket(), 0, c.id);
  }

  // Disconnects the clients that are too slow, then resumes those for which there is room. Returns
  // whether it stopped before it was done, for the sake of the other clients.
  [[gnu::cold]] bool free_room(room& shared) {
    int turns = 0;
    const auto now = clock::now();
    for (auto slow = shared.overdue(now); slow; slow = shared.overdue(now)) {
      if (clients_.at(*slow).postponed) break;  // it waits for the server
      if (++turns > turns_at_once) return true;
      warn_sometimes(
          "it does not end its request, or take its answers, while others wait for room");
      hang_up(*slow);
    }
    for (auto next = shared.next(); next; next = shared.next()) {
      if (++turns > turns_at_once) return true;
      resume(clients_.at(*next));
    }
    return false;
  }

  void resume(peer& c) {
    const auto now = clock::now();
    arriving_.resume(c.id, now);
    leaving_.resume(c.id, now);
    c.paused = false;
    if (c.awaiting_write) return;  // flush() continues
    guarded(c, [&] {
      poller_.watch(EPOLL_CTL_MOD, c.wire.socket(), EPOLLIN, c.id);
      c.postponed ? serve_on(c) : read_from(c);
    });
  }

  // Feeds the authentication; true once the client is admitted and `bytes` may hold requests.
  [[gnu::cold]] bool admitted(peer& c, std::string_view& bytes) {
    std::string answer;
    const auto status = c.authentication->feed(bytes, answer);
    if (!answer.empty()) send(c.id, answer);
    if (status == mutual_authentication::status::refused) {
      log(log_level::info,
          "the store's server on port {} refuses a client without the job's secret", port_);
      mark_for_hang_up(c);
    }
    if (status != mutual_authentication::status::admitted) return false;
    const mac tls_key = c.authentication->tls_key();
    c.authentication.reset();
    if (!key_->encrypts()) return true;
    c.wire.encrypt(tls_side::server, tls_key);
    if (!bytes.empty() || c.awaiting_write) mark_for_hang_up(c);  // bytes that are not encrypted
    return false;
  }

  void serve(peer& c) {
    using store_protocol::parse_status;
    store_protocol::request r;
    while (!c.marked_for_hang_up && !c.awaiting_write && !c.paused) {
      if (c.postponed) {
        r = std::move(*c.postponed);
        c.postponed.reset();
      } else {
        const parse_status status = c.parser.next(r);
        if (status == parse_status::need_more) return;
        if (status == parse_status::bad) {
          log(log_level::debug, "the store's server on port {} hangs up on a stranger: {}", port_,
              c.parser.reason());
          return mark_for_hang_up(c);
        }
        count_member(c);
        if (r.keys.size() > few_keys && (keys_in_pass_ += r.keys.size()) > keys_per_pass) {
          c.postponed = std::move(r);
          return defer(c);
        }
      }
      const std::size_t answer = core_.answer_bytes(r);
      if (answer > small_answer && !leaving_.fits(answer)) {
        c.postponed = std::move(r);
        return pause(c, leaving_, answer);
      }
      if (core_.execute(c.id, c.parser.dialect(), r) == verdict::hang_up) {
        if (!core_.passed_limit().empty()) {
          warn_sometimes(formatted("{}; a client asked for more", core_.passed_limit()));
          return mark_for_hang_up(c);
        }
        log(log_level::info,
            "the store's server on port {} hangs up on a client: its request for {} cannot "
            "be answered",
            port_, r.keys.empty() ? "nothing" : quoted_keys(r.keys));
        mark_for_hang_up(c);
      }
    }
  }

  void send(client_id id, std::string_view bytes) {
    const auto found = clients_.find(id);
    if (found == clients_.end() || found->second.marked_for_hang_up) return;
    peer& c = found->second;
    if (!c.awaiting_write) {
      const ssize_t sent = c.wire.put(bytes);
      if (sent >= 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
      if (sent < 0 && !is_transient(errno)) return mark_for_hang_up(c);
      if (bytes.empty()) return;
    }
    // serve() has not checked the room for small answers and watch events.
    if (!leaving_.fits(bytes.size())) return mark_for_hang_up(c);
    c.outgoing.append(bytes);
    leaving_.hold(c.id, c.outgoing.size(), clock::now(), patience_with(c));
    if (!c.awaiting_write) await_room(c);
  }

  void await_room(peer& c) {
    c.awaiting_write = true;
    poller_.watch(EPOLL_CTL_MOD, c.wire.socket(), EPOLLOUT, c.id);
  }

  void flush(peer& c) {
    const std::string_view rest = std::string_view(c.outgoing).substr(c.outgoing_sent);
    const ssize_t sent = c.wire.put(rest);
    if (sent < 0 && !is_transient(errno)) return mark_for_hang_up(c);
    if (sent > 0) {
      c.outgoing_sent += static_cast<std::size_t>(sent);
      for (room* each : {&leaving_, &arriving_}) each->progress(c.id, clock::now());
    }
    if (c.outgoing_sent < c.outgoing.size()) return;
    leaving_.hold(c.id, 0, clock::now());
    c.outgoing = {};
    c.outgoing_sent = 0;
    c.awaiting_write = false;
    poller_.watch(EPOLL_CTL_MOD, c.wire.socket(), c.paused ? 0U : EPOLLIN, c.id);
    serve_on(c);  // requests that came while the answer was on its way
  }

  // For warnings that a client could provoke a thousand times a second.
  void warn_sometimes(std::string_view text) {
    if (clock::now() < warn_after_) return;
    warn_after_ = clock::now() + warning_interval;
    log(log_level::warn, "the store's server on port {} hangs up on a client: {}", port_, text);
  }

  // A client is not erased while an operation still uses it: see guarded(). Allocates nothing, see
  // admit(): a client for whose request there is no memory is hung up on.
  void mark_for_hang_up(peer& c) noexcept {
    if (!std::exchange(c.marked_for_hang_up, true)) marked_.push_back(c.id);
  }

  void hang_up_on_marked() {
    // The end of a client may wake others that cannot be sent to.
    while (!marked_.empty()) {
      const client_id last = marked_.back();
      marked_.pop_back();
      hang_up(last);
    }
  }
  [[gnu::cold]] void hang_up(client_id id) {
    const auto gone = clients_.find(id);
    if (gone == clients_.end()) return;
    const bool was_member = gone->second.member;
    arriving_.forget(id);
    leaving_.forget(id);
    clients_.erase(gone);
    door_.forget(id);
    if (was_member) members_->leave();
    core_.forget(id);
  }

  void count_member(peer& c) {
    if (c.member) return;
    c.member = true;
    door_.forget(c.id);
    members_->join();
  }

  static constexpr int look_again_after_ms = 100;
  static constexpr std::size_t incoming_size = 16 * 1024;
  static constexpr std::size_t small_request = 4 * 1024;
  static constexpr std::size_t small_answer = 16 * 1024;
  static constexpr int turns_at_once = 256;
  static constexpr int deferred_at_once = 4;
  static constexpr std::size_t few_keys = 16;
  static constexpr std::size_t keys_per_pass = 512;
  static constexpr std::chrono::seconds warning_interval{10};

  store_dialect legacy_;
  std::optional<job_key> key_;
  poller poller_;
  server_door door_;
  std::uint16_t port_;
  client_id last_id_ = stop_id;
  std::unique_ptr<char[]> incoming_ = std::make_unique<char[]>(incoming_size);
  std::map<client_id, peer> clients_;
  std::vector<client_id> marked_;
  std::vector<client_id> tls_buffered_;  // TLS may hold bytes of theirs
  std::deque<client_id> deferred_;       // the longest deferred first
  std::size_t keys_in_pass_ = 0;         // of the requests with many keys
  room arriving_{store_protocol::max_arriving_bytes};  // incomplete requests
  room leaving_{store_protocol::max_leaving_bytes};    // queued answers
  bool unfinished_ = false;                            // free_room() has more to do
  clock::time_point warn_after_{};
  store_protocol::server_core core_;
  descriptor stop_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  member_count* members_;
};

}  // namespace parx::detail
