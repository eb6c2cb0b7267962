// server_loop: what a store's server does in its thread.
//
// It waits in epoll for sockets that are ready and never blocks on a client. Requests are parsed
// from whatever bytes have come; answers that do not fit the socket are queued, and a client that
// does not take its answers is not read from. What half requests and untaken answers occupy is
// limited for all clients together: those that would go beyond it are not read from until there is
// room, which a client that holds it for seconds has to give. Where descriptors run out,
// connections that have made no request give theirs; the last ones are for the program that the
// server is a part of.
#pragma once

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
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
#include <parx/store/detail/admission.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/listen.hpp>
#include <parx/store/detail/member_count.hpp>
#include <parx/store/detail/request_parser.hpp>
#include <parx/store/detail/server_core.hpp>
#include <parx/store/detail/store_socket.hpp>
#include <parx/store/dialect.hpp>

namespace parx::inline PARX_ABI::detail {

class server_loop {
 public:
  /// Where `key` is given, nobody is answered who has not proved to know it. Throws errc::io.
  server_loop(descriptor listener, store_dialect legacy, std::optional<job_key> key,
              member_count& members)
      : legacy_(legacy),
        key_(std::move(key)),
        listener_(std::move(listener)),
        port_(bound_port(listener_.get())),
        core_([this](std::uint64_t client, std::string_view bytes) { send(client, bytes); }),
        members_(&members) {
    if (!poller_.valid() || !stop_.valid()) {
      throw_error(errc::io, "a store's server cannot start: {}", errno_text(errno));
    }
    watch(EPOLL_CTL_ADD, listener_, EPOLLIN, listener_id);
    watch(EPOLL_CTL_ADD, stop_, EPOLLIN, stop_id);
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

  struct peer {
    client_id id;
    store_socket wire;
    request_parser parser;
    std::optional<admission> door;  // until it is admitted, where that takes a proof
    std::string outgoing = {};  // what the socket did not take yet
    std::size_t outgoing_sent = 0;
    std::optional<store_protocol::request> postponed = {};  // its answer has no room yet
    clock::time_point since = clock::now();  // its request is half, its answers are on their way
    clock::time_point resumed = since;  // when it was let go on
    clock::time_point moved = since;  // when a part of them did
    std::size_t held = 0;                    // of arriving_
    bool awaiting_write = false;  // for its socket to take answers, else for its requests
    bool paused = false;          // for room here
    bool member = false;
    bool marked_for_hang_up = false;  // closed as soon as the stack is back in guarded()
  };

  // False when the server is to stop.
  bool serve_ready() {
    std::array<epoll_event, 64> ready;
    const int count =
        ::epoll_wait(poller_.get(), ready.data(), static_cast<int>(ready.size()), patience_ms());
    if (is_paused_ && clock::now() >= accept_after_) accept_all();
    if (!paused_.empty()) free_room();
    for (int i = 0; i < count; ++i) {
      const client_id id = ready[static_cast<std::size_t>(i)].data.u64;
      if (id == stop_id) return false;
      if (id == listener_id) {
        accept_all();
      } else if (const auto found = clients_.find(id); found != clients_.end()) {
        // No reading before it has taken its answers: flush() goes on with it.
        peer& c = found->second;
        guarded(c, [&] { c.awaiting_write ? flush(c) : read_from(c); });
      }
    }
    read_the_unread();
    return true;
  }

  [[nodiscard]] int patience_ms() const noexcept {
    if (!unread_.empty()) return 0;
    return is_paused_ || !paused_.empty() ? look_again_after_ms : -1;
  }

  // Level-triggered: what is not done now is reported again.
  void watch(int change, const descriptor& what, std::uint32_t events, client_id id) const {
    epoll_event wanted{};
    wanted.events = events;
    wanted.data.u64 = id;
    if (::epoll_ctl(poller_.get(), change, what.get(), &wanted) != 0) {
      throw_error(errc::io, "the store's server cannot watch a socket: {}", errno_text(errno));
    }
  }

  void accept_all() {
    while (true) {
      if (is_scarce() && !drop_strangers()) {
        warn_of_shortage(EMFILE);
        return pause_accepting(true);
      }
      const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket >= 0) {
        try {
          admit(descriptor(socket));
        } catch (const std::exception& failure) {
          log(log_level::warn, "the store's server on port {} cannot take a client: {}", port_,
              failure.what());
        }
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return pause_accepting(false);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        const int why = errno;
        if (drop_strangers()) continue;
        warn_of_shortage(why);
        return pause_accepting(true);
      } else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) {
        log(log_level::error, "the store's server on port {} takes no more clients: {}", port_,
            errno_text(errno));
        is_paused_ = false;
        return watch(EPOLL_CTL_DEL, listener_, 0, listener_id);
      }
      // Anything else is the failure of one connection that was waiting (accept(2), "Error
      // handling").
    }
  }

  void warn_of_shortage(int reason) {
    if (std::exchange(warned_of_shortage_, true)) return;
    log(log_level::warn,
        "the store's server on port {} cannot take a client at the moment: {}; with too many open "
        "files, raise `ulimit -n` on this host",
        port_, errno_text(reason));
  }

  // The last descriptors are for the program that the server is a part of. The kernel hands out the
  // lowest free number.
  [[nodiscard]] bool is_scarce() const noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    const rlim_t reserve = std::min<rlim_t>(limit.rlim_cur / 8, most_reserved);
    const descriptor next(::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
    return !next.valid() || static_cast<rlim_t>(next.get()) >= limit.rlim_cur - reserve;
  }
  // Hangs up on those who have not made a request in the time that this takes a client. Whether
  // there were any.
  bool drop_strangers() {
    const auto latest = clock::now() - stranger_patience;
    std::vector<client_id> found;
    for (const auto& [id, each] : clients_) {
      if (!each.member && each.since < latest) found.push_back(id);
    }
    for (const client_id id : found) hang_up(id);
    return !found.empty();
  }

  void pause_accepting(bool pause) {
    if (pause) accept_after_ = clock::now() + std::chrono::milliseconds(look_again_after_ms);
    if (std::exchange(is_paused_, pause) == pause) return;
    watch(EPOLL_CTL_MOD, listener_, pause ? 0U : EPOLLIN, listener_id);
  }

  void admit(descriptor socket) {
    set_stream_options(socket.get());
    const client_id id = ++last_id_;
    watch(EPOLL_CTL_ADD, socket, EPOLLIN, id);
    clients_.emplace(
        id, peer{id, store_socket(std::move(socket)), request_parser(legacy_), new_door()});
  }

  [[nodiscard]] std::optional<admission> new_door() const {
    return key_ ? std::optional<admission>(*key_) : std::nullopt;
  }

  // Whatever goes wrong for one client costs that client only.
  template <typename Action>
  void guarded(peer& c, Action action) {
    guard(c, action);
    hang_up_on_marked();
    if (!paused_.empty()) free_room();
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

  // What TLS has taken from the socket no poll tells of.
  void read_on(peer& c) {
    if (c.wire.may_hold_bytes()) unread_.push_back(c.id);
  }
  void read_the_unread() {
    for (const client_id id : std::exchange(unread_, {})) {
      const auto found = clients_.find(id);
      if (found == clients_.end() || found->second.awaiting_write || found->second.paused) continue;
      guarded(found->second, [&] { read_from(found->second); });
    }
  }

  // One piece a turn, so that a client with much to say does not keep the others waiting.
  void read_from(peer& c) {
    const ssize_t got = c.wire.take(incoming_.get(), incoming_size);
    if (got < 0 && is_transient(errno)) return;
    if (got <= 0) return mark_for_hang_up(c);
    std::string_view bytes(incoming_.get(), static_cast<std::size_t>(got));
    if (c.door && !admitted(c, bytes)) return;
    c.parser.feed(bytes);
    read_on(c);
    serve(c);
    count_arriving(c);
  }

  // What has come of a request that is not whole, or waits behind an answer.
  void count_arriving(peer& c) {
    const std::size_t now = c.parser.held();
    if (now != c.held) c.moved = clock::now();
    if (c.held == 0) c.since = c.resumed = c.moved;
    arriving_ += now - c.held;
    c.held = now;
    using store_protocol::max_arriving_bytes;
    // The oldest goes on, so that all come to their end one after the other.
    if (arriving_ <= max_arriving_bytes || now == 0 || c.awaiting_write) return;
    if (oldest(is_arriving) != &c) pause(c);
  }

  void pause(peer& c) {
    if (c.marked_for_hang_up || std::exchange(c.paused, true)) return;
    paused_.push_back(c.id);
    watch(EPOLL_CTL_MOD, c.wire.socket(), 0, c.id);
  }

  // Lets those go on that wait for room, the longest waiting first. Who occupies it for long has to
  // give it.
  void free_room() {
    const auto now = clock::now();
    const bool arriving = arriving_ > store_protocol::max_arriving_bytes;
    const peer* const occupant = arriving ? oldest(is_arriving) : oldest(is_leaving);
    if (occupant != nullptr && !occupant->paused &&
        (now - occupant->moved > standstill_patience ||
         now - occupant->resumed > occupant_patience)) {
      complain("it does not end its request, or take its answers, while others wait for room");
      hang_up(occupant->id);
    }
    for (const client_id id : std::exchange(paused_, {})) {
      const auto found = clients_.find(id);
      if (found == clients_.end()) continue;
      peer& c = found->second;
      c.paused = false;
      c.resumed = c.moved = now;
      guard(c, [&] {
        if (!c.awaiting_write) watch(EPOLL_CTL_MOD, c.wire.socket(), EPOLLIN, c.id);
        read_on(c);
        serve(c);
        count_arriving(c);
      });
    }
    hang_up_on_marked();
  }
  // Which has begun to occupy room before all others.
  template <typename Occupies>
  [[nodiscard]] const peer* oldest(const Occupies& occupies) const {
    const peer* found = nullptr;
    for (const auto& [id, each] : clients_) {
      if (!occupies(each) || (found != nullptr && found->since <= each.since)) continue;
      found = &each;
    }
    return found;
  }
  static bool is_arriving(const peer& c) noexcept { return c.held > 0; }
  static bool is_leaving(const peer& c) noexcept { return !c.outgoing.empty(); }
  bool admitted(peer& c, std::string_view& bytes) {
    std::string answer;
    const auto status = c.door->feed(bytes, answer);
    if (!answer.empty()) send(c.id, answer);
    if (status == admission::status::refused) {
      log(log_level::info,
          "the store's server on port {} refuses a client without the job's secret", port_);
      mark_for_hang_up(c);
    }
    if (status != admission::status::admitted) return false;
    const mac tls_key = c.door->tls_key();
    c.door.reset();
    if (!key_->encrypts()) return true;
    c.wire.encrypt(tls_side::server, tls_key);
    if (!bytes.empty() || c.awaiting_write) mark_for_hang_up(c);  // what is not encrypted
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
      }
      const std::size_t answer = core_.answer_bytes(r);
      if (answer > small_answer && leaving_ > 0 &&
          leaving_ + answer > store_protocol::max_leaving_bytes) {
        c.postponed = std::move(r);
        return pause(c);
      }
      if (core_.execute(c.id, c.parser.dialect(), r) == verdict::hang_up) {
        if (!core_.passed_limit().empty()) {
          complain(formatted("{}; a client asked for more", core_.passed_limit()));
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
    // Many small answers, or events of a watch: who has nothing waiting yet may go a bit beyond.
    using store_protocol::max_leaving_bytes;
    if (leaving_ + bytes.size() > max_leaving_bytes && (c.awaiting_write || leaving_ > 0)) {
      return mark_for_hang_up(c);
    }
    if (c.outgoing.empty()) c.since = c.resumed = c.moved = clock::now();
    c.outgoing.append(bytes);
    leaving_ += bytes.size();
    if (!c.awaiting_write) await_room(c);
  }

  void await_room(peer& c) {
    c.awaiting_write = true;
    watch(EPOLL_CTL_MOD, c.wire.socket(), EPOLLOUT, c.id);
  }

  void flush(peer& c) {
    const std::string_view rest = std::string_view(c.outgoing).substr(c.outgoing_sent);
    const ssize_t sent = c.wire.put(rest);
    if (sent < 0 && !is_transient(errno)) return mark_for_hang_up(c);
    if (sent > 0) {
      c.outgoing_sent += static_cast<std::size_t>(sent);
      leaving_ -= static_cast<std::size_t>(sent);
      c.moved = clock::now();
    }
    if (c.outgoing_sent < c.outgoing.size()) return;
    c.outgoing = {};
    c.outgoing_sent = 0;
    c.awaiting_write = false;
    watch(EPOLL_CTL_MOD, c.wire.socket(), c.paused ? 0U : EPOLLIN, c.id);
    read_on(c);
    serve(c);  // requests that came while the answer was on its way
    count_arriving(c);
  }

  // Of what somebody may repeat a thousand times a second.
  void complain(std::string_view text) {
    if (clock::now() < complain_after_) return;
    complain_after_ = clock::now() + complaint_interval;
    log(log_level::warn, "the store's server on port {} hangs up on a client: {}", port_, text);
  }

  // A client cannot be closed in the middle of an operation that still counts on it: see guarded().
  void mark_for_hang_up(peer& c) {
    c.marked_for_hang_up = true;
    marked_.push_back(c.id);
  }

  void hang_up_on_marked() {
    for (const client_id each : std::exchange(marked_, {})) hang_up(each);
  }
  void hang_up(client_id id) {
    const auto gone = clients_.find(id);
    if (gone == clients_.end()) return;
    const bool was_member = gone->second.member;
    arriving_ -= gone->second.held;
    leaving_ -= gone->second.outgoing.size() - gone->second.outgoing_sent;
    clients_.erase(gone);
    core_.forget(id);
    if (was_member) members_->leave();
  }

  void count_member(peer& c) {
    if (c.member) return;
    c.member = true;
    members_->join();
  }

  static constexpr int look_again_after_ms = 100;
  static constexpr std::size_t incoming_size = 16 * 1024;
  static constexpr std::size_t small_answer = 16 * 1024;
  static constexpr rlim_t most_reserved = 1024;  ///< descriptors
  static constexpr std::chrono::milliseconds stranger_patience{1000};
  static constexpr std::chrono::milliseconds standstill_patience{250};
  static constexpr std::chrono::seconds occupant_patience{5};
  static constexpr std::chrono::seconds complaint_interval{10};

  store_dialect legacy_;
  std::optional<job_key> key_;
  descriptor listener_;
  std::uint16_t port_;
  bool is_paused_ = false;  // in accepting, for want of descriptors
  bool warned_of_shortage_ = false;
  client_id last_id_ = stop_id;
  std::unique_ptr<char[]> incoming_ = std::make_unique<char[]>(incoming_size);
  std::map<client_id, peer> clients_;
  std::vector<client_id> marked_;
  std::vector<client_id> paused_;  // the longest waiting first
  std::vector<client_id> unread_;  // whose bytes are here, but not read
  std::size_t arriving_ = 0;       // bytes of half requests
  std::size_t leaving_ = 0;        // bytes of answers that no socket has taken
  clock::time_point complain_after_{};
  clock::time_point accept_after_{};  // while accepting is paused
  store_protocol::server_core core_;
  descriptor poller_{::epoll_create1(EPOLL_CLOEXEC)};
  descriptor stop_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  member_count* members_;
};

}  // namespace parx::detail
