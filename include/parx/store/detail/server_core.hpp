// server_core: what a TCPStore server does with a request, without any socket.
//
// Requests of numbered clients in, bytes for clients out through a callback; a wait is answered
// when its last key appears. Never blocks. One thread.
//
// Source: torch/csrc/distributed/c10d/{TCPStoreBackend,TCPStoreLibUvBackend}.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/store/detail/protocol.hpp>
#include <parx/store/detail/value_map.hpp>
#include <parx/store/dialect.hpp>

namespace parx::inline PARX_ABI::detail::store_protocol {

enum class verdict { keep, hang_up };

class server_core {
 public:
  using client_id = std::uint64_t;
  /// Queues bytes for a client. Must not call back into the core.
  using sender = std::function<void(client_id, std::string_view)>;

  /// Longer answers are not given: the client is hung up on.
  static constexpr std::size_t max_answer_bytes = 2 * max_message_bytes;

  explicit server_core(sender send) : send_(std::move(send)) {}

  /// Executes one request. hang_up: the client asked for what its dialect answers by closing.
  verdict execute(client_id client, store_dialect dialect, const request& r) {
    // Between a wait and its answer a client sends nothing but a cancellation; torch 1.13, which
    // has none, sends its next request after a timeout and would take the late answer for that
    // one's.
    stop_waiting(client);
    switch (r.op) {
      case operation::validate:
        return verdict::keep;
      case operation::ping:
        return answer(client, static_cast<std::uint32_t>(r.number));
      case operation::set:
        store(r.keys[0], r.values[0]);
        return verdict::keep;
      case operation::append:
        return append(r.keys[0], r.values[0]);
      case operation::compare_set:
        return compare_set(client, r);
      case operation::get:
        return get(client, dialect, r.keys[0]);
      case operation::multi_get:
        return multi_get(client, dialect, r.keys);
      case operation::multi_set:
        for (std::size_t i = 0; i < r.keys.size(); ++i) store(r.keys[i], r.values[i]);
        return verdict::keep;
      case operation::add:
        return add(client, r);
      case operation::check:
        return check(client, r.keys);
      case operation::wait:
        return wait(client, r.keys);
      case operation::cancel_wait:
        return answer(client, std::uint8_t{1});
      case operation::num_keys:
        return answer(client, std::uint64_t{values_.size()});
      case operation::delete_key:
        return remove(client, r.keys[0]);
      case operation::watch_key:
        return watch(client, r.keys[0]);
      case operation::queue_push:
        push(r.keys[0], r.values[0]);
        return verdict::keep;
      case operation::queue_pop:
        return pop(client, r.keys[0]);
      case operation::queue_len:
        return answer(client, std::uint64_t{queue_length(r.keys[0])});
      case operation::list:
        return list(client);
    }
    return verdict::hang_up;
  }

  /// A client has gone.
  void forget(client_id client) {
    stop_waiting(client);
    const auto gone = clients_.find(client);
    if (gone == clients_.end()) return;
    take_off(client, &key_state::watchers, gone->second.watched);
    clients_.erase(gone);
  }

 private:
  enum class event : std::uint8_t { updated, created, removed };

  /// What a key has besides its value; those that have nothing are not in keys_.
  struct key_state {
    std::vector<client_id> waiters;   // in the order of their waits
    std::vector<client_id> watchers;  // torch 1.13 only
    std::vector<std::string> queue;
  };
  struct client_state {
    std::vector<std::string> missing;  // the keys that it waits for, each once
    std::vector<std::string> watched;
  };

  template <typename Unsigned>
  verdict answer(client_id client, Unsigned value) {
    std::string bytes;
    put(bytes, value);
    send_(client, bytes);
    return verdict::keep;
  }

  verdict answer_value(client_id client, std::string_view value) {
    std::string bytes;
    put_string(bytes, value);
    send_(client, bytes);
    return verdict::keep;
  }

  void store(const std::string& key, std::string_view value) {
    change(key, value, &value_map::set);
  }

  // Sets or appends, then tells those who wait for the key or watch it.
  void change(const std::string& key, std::string_view value,
              void (value_map::*how)(std::string_view, std::string_view)) {
    const auto state = keys_.find(key);
    if (state == keys_.end()) {
      (values_.*how)(key, value);
      return;
    }
    const std::vector<client_id>& watchers = state->second.watchers;
    if (watchers.empty()) {
      (values_.*how)(key, value);
    } else {
      const std::string* before = values_.find(key);
      const event kind = before == nullptr ? event::created : event::updated;
      const std::string old = before == nullptr ? std::string{} : *before;
      (values_.*how)(key, value);
      tell_watchers(watchers, kind, key, old, *values_.find(key));
    }
    const std::vector<client_id> woken = std::exchange(state->second.waiters, {});
    drop_if_unused(state);
    for (const client_id client : woken) key_appeared(client, key);
  }

  void tell_watchers(const std::vector<client_id>& clients, event kind, std::string_view key,
                     std::string_view before, std::string_view after) {
    std::string bytes;
    put(bytes, static_cast<std::uint8_t>(kind));
    for (const std::string_view text : {key, before, after}) put_string(bytes, text);
    for (const client_id client : clients) send_(client, bytes);
  }

  verdict append(const std::string& key, std::string_view value) {
    const std::string* present = values_.find(key);
    if (present != nullptr && present->size() + value.size() > max_message_bytes)
      return verdict::hang_up;
    change(key, value, &value_map::append);
    return verdict::keep;
  }

  verdict compare_set(client_id client, const request& r) {
    const std::string* present = values_.find(r.keys[0]);
    if (value_map::matches(present, r.values[0])) {
      store(r.keys[0], r.values[1]);
      return answer_value(client, r.values[1]);
    }
    return answer_value(client, present == nullptr ? r.values[0] : *present);
  }

  verdict get(client_id client, store_dialect dialect, const std::string& key) {
    const std::string* value = values_.find(key);
    if (value != nullptr) return answer_value(client, *value);
    // PyTorch's clients wait before they get. Its older server hangs up here, its newer one does
    // this:
    return dialect == store_dialect::torch_2_5 ? answer_value(client, {}) : verdict::hang_up;
  }

  verdict multi_get(client_id client, store_dialect dialect, const std::vector<std::string>& keys) {
    std::size_t total = 8 * keys.size();
    for (const std::string& key : keys) {
      const std::string* value = values_.find(key);
      if (value == nullptr && dialect != store_dialect::torch_2_5) return verdict::hang_up;
      total += value == nullptr ? 0 : value->size();
    }
    if (total > max_answer_bytes) return verdict::hang_up;
    std::string bytes;
    bytes.reserve(total);
    for (const std::string& key : keys) {
      const std::string* value = values_.find(key);
      put_string(bytes, value == nullptr ? std::string_view{} : std::string_view(*value));
    }
    send_(client, bytes);
    return verdict::keep;
  }

  verdict add(client_id client, const request& r) {
    const auto sum = value_map::plus(values_.find(r.keys[0]), r.number);
    if (!sum) return verdict::hang_up;
    store(r.keys[0], std::to_string(*sum));
    return answer(client, static_cast<std::uint64_t>(*sum));
  }

  verdict check(client_id client, const std::vector<std::string>& keys) {
    const bool all =
        std::all_of(keys.begin(), keys.end(), [&](const auto& key) { return exists(key); });
    return answer(client, static_cast<std::uint8_t>(all ? 0 : 1));
  }

  verdict wait(client_id client, const std::vector<std::string>& keys) {
    std::vector<std::string> missing;
    for (const std::string& key : keys) {
      if (exists(key)) continue;
      std::vector<client_id>& waiters = keys_[key].waiters;
      if (!waiters.empty() && waiters.back() == client) continue;  // it names the key twice
      waiters.push_back(client);
      missing.push_back(key);
    }
    if (missing.empty()) return answer(client, std::uint8_t{0});
    clients_[client].missing = std::move(missing);
    return verdict::keep;
  }

  /// Takes a client off the list of each of `keys` that it is on.
  void take_off(client_id client, std::vector<client_id> key_state::*list,
                const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      const auto state = keys_.find(key);
      std::erase(state->second.*list, client);
      drop_if_unused(state);
    }
  }
  void stop_waiting(client_id client) {
    const auto known = clients_.find(client);
    if (known == clients_.end()) return;
    take_off(client, &key_state::waiters, known->second.missing);
    known->second.missing.clear();
    drop_if_unused(known);
  }

  void key_appeared(client_id client, const std::string& key) {
    const auto waiting = clients_.find(client);
    std::erase(waiting->second.missing, key);
    if (!waiting->second.missing.empty()) return;
    drop_if_unused(waiting);
    answer(client, std::uint8_t{0});
  }

  verdict remove(client_id client, const std::string& key) {
    const std::string* present = values_.find(key);
    if (present == nullptr) return answer(client, std::uint64_t{0});
    const std::string old = *present;
    values_.erase(key);
    if (const auto state = keys_.find(key); state != keys_.end()) {
      tell_watchers(state->second.watchers, event::removed, key, old, {});
    }
    return answer(client, std::uint64_t{1});
  }

  verdict watch(client_id client, const std::string& key) {
    keys_[key].watchers.push_back(client);
    clients_[client].watched.push_back(key);
    constexpr std::uint8_t callback_registered = 3;
    return answer(client, callback_registered);
  }

  void push(const std::string& key, std::string value) {
    key_state& state = keys_[key];
    state.queue.push_back(std::move(value));
    // One value is for one waiter: waking all would send the others into an empty queue.
    if (state.waiters.empty()) return;
    const client_id first = state.waiters.front();
    state.waiters.erase(state.waiters.begin());
    key_appeared(first, key);
  }

  verdict pop(client_id client, const std::string& key) {
    const std::size_t length = queue_length(key);
    answer(client, std::uint64_t{length});
    if (length == 0) return verdict::keep;
    const auto state = keys_.find(key);
    std::vector<std::string>& queue = state->second.queue;
    answer_value(client, queue.front());
    queue.erase(queue.begin());
    drop_if_unused(state);
    return verdict::keep;
  }

  verdict list(client_id client) {
    std::size_t total = 8;
    for (const auto& [key, value] : values_.entries()) total += 8 + key.size();
    if (total > max_answer_bytes) return verdict::hang_up;
    std::string bytes;
    put(bytes, std::uint64_t{values_.size()});
    for (const auto& [key, value] : values_.entries()) put_string(bytes, key);
    send_(client, bytes);
    return verdict::keep;
  }

  [[nodiscard]] std::size_t queue_length(const std::string& key) const {
    const auto state = keys_.find(key);
    return state == keys_.end() ? 0 : state->second.queue.size();
  }
  [[nodiscard]] bool exists(const std::string& key) const {
    return values_.contains(key) || queue_length(key) > 0;
  }

  void drop_if_unused(std::map<std::string, key_state>::iterator at) {
    const key_state& state = at->second;
    if (state.waiters.empty() && state.watchers.empty() && state.queue.empty()) keys_.erase(at);
  }
  void drop_if_unused(std::map<client_id, client_state>::iterator at) {
    if (at->second.missing.empty() && at->second.watched.empty()) clients_.erase(at);
  }

  sender send_;
  value_map values_;
  std::map<std::string, key_state> keys_;
  std::map<client_id, client_state> clients_;
};

}  // namespace parx::detail::store_protocol
