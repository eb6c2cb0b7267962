// tcp_store: the client of a store on the network, over PyTorch's TCPStore protocol.
//
// The server is a tcp_store_server of parx or PyTorch's own (any release since 1.x); the client
// probes for its dialect. Every call takes one or two round trips and is complete when it returns:
// after set() every other rank can see the value. A failed call closes its connection, so the store
// stays usable after a timeout. Once the server is gone, every later call fails at once.
//
// Threads: any number. Each call uses a connection of its own, an idle one or else a new one; a
// program with one thread holds one connection.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/store/detail/connection.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/handshake.hpp>
#include <parx/store/detail/protocol.hpp>
#include <parx/store/detail/tcp_watch.hpp>
#include <parx/store/dialect.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI {

/// Whether to count this process in PyTorch's "init/" counter. A PyTorch server that was given a
/// world size waits for that many processes; parx's own server does not.
enum class worker_count { leave, increment };

struct tcp_store_options {
  std::string host = detail::loopback_address();  ///< name or address; IPv6 also in brackets
  std::uint16_t port = 29500;
  std::optional<store_dialect> dialect = std::nullopt;  ///< nullopt: probe
  std::chrono::milliseconds timeout{300'000};           ///< to connect, and the default of calls
  /// To connect, where a process accepts connections but does not answer as a store. After that
  /// it is taken for another program (errc::protocol), and no server is waited for.
  std::chrono::milliseconds silence = std::chrono::milliseconds::max();
  worker_count workers = worker_count::leave;
  /// Required by the server of a job with a secret. Only servers of parx know keys.
  std::optional<job_key> key = std::nullopt;
};

class tcp_store final : public store {
 public:
  /// Connects. Waits until the deadline (default: options.timeout from now) for a server that has
  /// not started yet; after 5 s it logs once what it waits for.
  [[gnu::cold]] explicit tcp_store(tcp_store_options options, std::optional<deadline> limit = {})
      : address_{detail::without_brackets(std::move(options.host)), options.port,
                 std::move(options.key)} {
    set_default_timeout(options.timeout);
    const deadline until = limit ? *limit : deadline::after(options.timeout);
    try {
      auto met = detail::meet(address_, options.dialect, describe(), until, options.silence);
      dialect_ = met.dialect;
      idle_.push_back(std::move(met.server));
    } catch (const detail::store_failure& failure) {
      detail::throw_store_error(failure.code, "connect", {}, describe(), until, failure.reason);
    }
    if (options.workers == worker_count::increment) {
      call("connect", {}, until, [&, this](detail::connection& server) {
        ask(server, until, {.op = operation::add, .keys = {"init/"}, .number = 1});
        (void)server.receive<std::uint64_t>(until);
      });
    }
  }

  [[nodiscard]] std::string describe() const override {
    return formatted("tcp_store {}", detail::with_port(address_.host, address_.port));
  }

  /// Closes the connections. Every later call throws errc::closed; one that is under way ends
  /// first.
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (detail::connection& each : idle_) each.hang_up();
    idle_.clear();
  }

  [[nodiscard]] store_dialect dialect() const noexcept { return dialect_; }

 private:
  using operation = detail::store_protocol::operation;
  using request = detail::store_protocol::request;

  void do_set(std::string_view key, std::string_view value, deadline limit) override {
    change("set", {.op = operation::set, .keys = {wire(key)}, .values = {std::string(value)}},
           limit);
  }

  std::string do_get(std::string_view key, deadline limit) override {
    const std::string keys[] = {std::string(key)};
    return std::move(get_all("get", keys, limit).front());
  }

  std::int64_t do_add(std::string_view key, std::int64_t delta, deadline limit) override {
    const std::string keys[] = {std::string(key)};
    std::int64_t sum = 0;
    call("add", keys, limit, [&, this](detail::connection& server) {
      ask(server, limit, {.op = operation::add, .keys = {wire(key)}, .number = delta});
      try {
        sum = static_cast<std::int64_t>(server.receive<std::uint64_t>(limit));
      } catch (detail::store_failure& failure) {
        if (failure.code == errc::peer_lost) {
          failure.reason += "; servers also do this when the key does not hold a decimal number";
        }
        throw;
      }
    });
    return sum;
  }

  void do_wait(std::span<const std::string> keys, deadline limit) override {
    bool all_exist = true;
    call("wait", keys, limit, [&, this](detail::connection& server) {
      for_each_part(keys, [&, this](auto part) {
        return all_exist = wait_on(server, part, limit);
      });
    });
    if (!all_exist) throw_missing("wait", keys, limit);
  }

  bool do_check(std::span<const std::string> keys, deadline limit) override {
    bool all_exist = true;
    call("check", keys, limit, [&, this](detail::connection& server) {
      for_each_part(keys, [&, this](auto part) {
        return all_exist = check_on(server, part, limit);
      });
    });
    return all_exist;
  }

  std::string do_compare_set(std::string_view key, std::string_view expected,
                             std::string_view desired, deadline limit) override {
    const std::string keys[] = {std::string(key)};
    std::string present;
    call("compare_set", keys, limit, [&, this](detail::connection& server) {
      ask(server, limit,
          {.op = operation::compare_set,
           .keys = {wire(key)},
           .values = {std::string(expected), std::string(desired)}});
      present = server.receive_string(limit);
    });
    return present;
  }

  bool do_delete_key(std::string_view key, deadline limit) override {
    const std::string keys[] = {std::string(key)};
    bool existed = false;
    call("delete_key", keys, limit, [&, this](detail::connection& server) {
      ask(server, limit, {.op = operation::delete_key, .keys = {wire(key)}});
      existed = server.receive<std::uint64_t>(limit) != 0;
    });
    return existed;
  }

  std::int64_t do_num_keys(deadline limit) override {
    std::int64_t count = 0;
    call("num_keys", {}, limit, [&, this](detail::connection& server) {
      ask(server, limit, {.op = operation::num_keys});
      count = static_cast<std::int64_t>(server.receive<std::uint64_t>(limit));
    });
    return count;
  }

  void do_append(std::string_view key, std::string_view value, deadline limit) override {
    if (dialect_ == store_dialect::torch_1_13) return append_under_lock(key, value, limit);
    change("append", {.op = operation::append, .keys = {wire(key)}, .values = {std::string(value)}},
           limit);
  }

  std::vector<std::string> do_multi_get(std::span<const std::string> keys,
                                        deadline limit) override {
    return get_all("multi_get", keys, limit);
  }

  void do_multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                    deadline limit) override {
    if (dialect_ == store_dialect::torch_1_13) {
      for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i], limit);
      return;
    }
    change(
        "multi_set",
        {.op = operation::multi_set, .keys = wire(keys), .values = {values.begin(), values.end()}},
        limit);
  }

  [[gnu::cold]] std::unique_ptr<store_watch> do_watch(std::string_view key,
                                                      deadline limit) override {
    const std::string keys[] = {std::string(key)};
    try {
      {
        const std::lock_guard lock(mutex_);
        require_open();
      }
      detail::connection server = connect_again(limit);
      ask(server, limit, {.op = operation::wait, .keys = {wire(key)}});
      return std::unique_ptr<store_watch>(
          new detail::tcp_watch(std::move(server), dialect_, keys[0], wire(key), describe()));
    } catch (const detail::store_failure& failure) {
      report("watch", keys, limit, failure);
    }
  }

  // A user's key starts with a slash on the wire, so that it never collides with PyTorch's "init/".
  static std::string wire(std::string_view key) { return formatted("/{}", key); }
  static std::vector<std::string> wire(std::span<const std::string> keys) {
    std::vector<std::string> result;
    result.reserve(keys.size());
    for (const std::string& key : keys) result.push_back(wire(key));
    return result;
  }

  void ask(detail::connection& server, const deadline& limit, const request& question) const {
    detail::store_protocol::require_within_limits(question);
    std::string bytes;
    detail::store_protocol::encode(bytes, dialect_, question);
    server.send(bytes, limit);
  }

  // Sends a request to which the protocol has no answer, and then one that has, which confirms
  // both.
  void change(std::string_view name, request question, const deadline& limit) {
    detail::store_protocol::require_within_limits(question);
    std::string bytes;
    detail::store_protocol::encode(bytes, dialect_, question);
    const bool has_ping = dialect_ == store_dialect::torch_2_5;
    detail::store_protocol::encode(bytes, dialect_,
                                   {.op = has_ping ? operation::ping : operation::num_keys});
    for (std::string& key : question.keys) key.erase(0, 1);
    call(name, question.keys, limit, [&](detail::connection& server) {
      try {
        server.send(bytes, limit);
        if (has_ping) {
          (void)server.receive<std::uint32_t>(limit);
        } else {
          (void)server.receive<std::uint64_t>(limit);
        }
      } catch (detail::store_failure& failure) {
        if (failure.code == errc::peer_lost) {
          failure.reason += "; servers also do this when they hold as much as they may, and say so";
        }
        throw;
      }
    });
  }

  bool check_on(detail::connection& server, std::span<const std::string> keys,
                const deadline& limit) const {
    ask(server, limit, {.op = operation::check, .keys = wire(keys)});
    return server.receive<std::uint8_t>(limit) == 0;
  }

  // False when the deadline passed first. The connection is then closed, which ends the wait at the
  // server: to cancel it would take an answer, and a server that is stopped gives none.
  [[gnu::cold]] bool wait_on(detail::connection& server, std::span<const std::string> keys,
                             const deadline& limit) const {
    ask(server, limit, {.op = operation::wait, .keys = wire(keys)});
    if (server.available(1, limit)) {
      if (server.receive<std::uint8_t>(limit) == 0) return true;
      throw detail::store_failure{errc::protocol, "the server's answer to a wait is invalid"};
    }
    server.hang_up();
    return false;
  }

  [[gnu::cold]] std::vector<std::string> get_all(std::string_view name,
                                                 std::span<const std::string> keys,
                                                 const deadline& limit) {
    std::vector<std::string> values;
    bool all_exist = true;
    call(name, keys, limit, [&, this](detail::connection& server) {
      values.reserve(keys.size());
      for_each_part(keys, [&, this](std::span<const std::string> part) {
        all_exist = wait_on(server, part, limit);
        if (all_exist) get_part(server, part, values, limit);
        return all_exist;
      });
    });
    if (!all_exist) throw_missing(name, keys, limit);
    return values;
  }

  // Appends the values of existing keys to `values`.
  [[gnu::cold]] void get_part(detail::connection& server, std::span<const std::string> keys,
                              std::vector<std::string>& values, const deadline& limit) const {
    if (keys.size() > 1 && dialect_ != store_dialect::torch_1_13) {
      ask(server, limit, {.op = operation::multi_get, .keys = wire(keys)});
      for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(server.receive_string(limit));
      return;
    }
    for (const std::string& key : keys) {
      ask(server, limit, {.op = operation::get, .keys = {wire(key)}});
      values.push_back(server.receive_string(limit));
    }
  }

  // Calls act(part) for parts of at most as many keys as fit into a request, until it returns
  // false.
  template <typename Act>
  static void for_each_part(std::span<const std::string> keys, Act act) {
    constexpr std::size_t most = detail::store_protocol::max_keys;
    do {
      const auto part = keys.first(std::min(most, keys.size()));
      if (!act(part)) return;
      keys = keys.subspan(part.size());
    } while (!keys.empty());
  }

  // torch 1.13 has no append. One made of get and set must not interleave with another one, and
  // compare_set on the value cannot distinguish its own success from an equal value stored by
  // another process. So a second key is the lock; it holds the owner's token.
  [[gnu::cold]] void append_under_lock(std::string_view key, std::string_view value,
                                       const deadline& limit) {
    const std::string lock = formatted("{}.append-lock", key);
    const std::string token = detail::random_hex();
    while (compare_set(lock, "", token, limit) != token) {
      if (limit.passed()) {
        detail::throw_store_error(
            errc::timeout, "append", detail::quoted_key(key), describe(), limit,
            "another process holds its lock, the key " + detail::quoted_key(lock));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::string keys[] = {std::string(key)};
    const std::string before = check(keys, limit) ? get(key, limit) : std::string{};
    set(key, before + std::string(value), limit);
    delete_key(lock, limit);
  }

  // Runs `action` on a connection of its own; its failures are reported as this operation's.
  void call(std::string_view name, std::span<const std::string> keys, const deadline& limit,
            function_ref<void(detail::connection&)> action) {
    try {
      detail::connection server = take(limit);
      action(server);
      give_back(std::move(server));
    } catch (const detail::store_failure& failure) {
      report(name, keys, limit, failure);
    }
  }
  [[noreturn]] void report(std::string_view name, std::span<const std::string> keys,
                           const deadline& limit, const detail::store_failure& failure) {
    detail::throw_store_error(failure.code, name, detail::quoted_keys(keys), describe(), limit,
                              failure.reason);
  }

  detail::connection take(const deadline& limit) {
    {
      const std::lock_guard lock(mutex_);
      require_open();
      while (!idle_.empty()) {
        detail::connection server = std::move(idle_.back());
        idle_.pop_back();
        if (server.quiet()) return server;
      }
    }
    return connect_again(limit);
  }

  void give_back(detail::connection server) {
    constexpr std::size_t most_idle = 2;
    const std::lock_guard lock(mutex_);
    if (closed_) return server.hang_up();
    if (server.open() && idle_.size() < most_idle) idle_.push_back(std::move(server));
  }

  // The caller holds the lock.
  void require_open() const {
    if (closed_) throw detail::store_failure{errc::closed, "this process has closed it"};
  }

  // No retry: a server that accepted before and refuses now is gone.
  [[nodiscard]] detail::connection connect_again(const deadline& limit) const {
    detail::connection server = detail::dial(address_, limit, detail::encounter::later);
    detail::greet(server, dialect_, limit);
    return server;
  }

  [[noreturn, gnu::cold]] void throw_missing(std::string_view name,
                                             std::span<const std::string> keys,
                                             const deadline& limit) {
    constexpr std::size_t most_asked = 256;
    std::vector<std::string> missing;
    std::string reason = "nobody set ";
    try {
      const auto patience = deadline::after(std::chrono::milliseconds(500));
      detail::connection server = take(patience);
      for (const std::string& key : keys.first(std::min(keys.size(), most_asked))) {
        if (!check_on(server, std::span(&key, 1), patience)) missing.push_back(key);
      }
      give_back(std::move(server));
    } catch (const detail::store_failure&) {
      reason = "the server did not answer in time; it may be stopped, or nobody set ";
      missing.clear();
    }
    reason += detail::quoted_keys(missing.empty() ? keys : std::span<const std::string>(missing));
    detail::throw_store_error(errc::timeout, name, detail::quoted_keys(keys), describe(), limit,
                              reason);
  }

  detail::server_address address_;
  store_dialect dialect_ = store_dialect::torch_2_5;
  std::mutex mutex_;
  bool closed_ = false;
  std::vector<detail::connection> idle_;
};

}  // namespace parx
