// server_core: executes the requests of a TCPStore server, without sockets.
//
// Takes requests of numbered clients and passes bytes for clients to a callback. A wait is answered
// when its last key appears. Does not block; a request takes time in proportion to its keys and to
// the clients that it wakes. Stored data and pending waits are limited; the limits are checked
// before memory is allocated. One thread.
//
// Source: torch/csrc/distributed/c10d/{TCPStoreBackend,TCPStoreLibUvBackend}.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/formatted.hpp>
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

  /// `presence_keys` is a prefix of keys, see tcp_store_server_options; empty for none.
  explicit server_core(sender send, std::string presence_keys = {})
      : send_(std::move(send)), presence_keys_(std::move(presence_keys)) {}

  /// A lower bound of the size of a request's answer; fixed-size answers count as 0.
  [[nodiscard]] std::size_t answer_bytes(const request& r) const {
    std::size_t total = 0;
    const auto count_value = [&](const std::string& key) {
      if (const std::string* value = values_.find(key)) total += value->size();
    };
    switch (r.op) {
      case operation::get:
      case operation::compare_set:
      case operation::multi_get:
        for (const std::string& key : r.keys) count_value(key);
        break;
      case operation::queue_pop:
        if (queue_length(r.keys[0]) > 0) total = keys_.find(r.keys[0])->second.queue.front().size();
        break;
      case operation::list:
        total = key_bytes_ + 8 * values_.size();
        break;
      default:
        break;
    }
    return total;
  }

  /// The limit that caused the latest hang_up; empty where none did.
  [[nodiscard]] const std::string& passed_limit() const noexcept { return passed_limit_; }

  /// Executes one request. hang_up: the connection must be closed, which is the dialect's answer to
  /// an error, or because of a limit.
  verdict execute(client_id client, store_dialect dialect, const request& r) {
    // Until its wait is answered a client sends nothing but a cancellation. torch 1.13 cannot
    // cancel: after a timeout it sends its next request, and would mistake the late answer for that
    // one's.
    stop_waiting(client);
    passed_limit_.clear();
    switch (r.op) {
      case operation::validate:
        return verdict::keep;
      case operation::ping:
        return answer(client, static_cast<std::uint32_t>(r.number));
      case operation::set:
        return store(r.keys[0], r.values[0]);
      case operation::append:
        return append(r.keys[0], r.values[0]);
      case operation::compare_set:
        return compare_set(client, r);
      case operation::get:
        return get(client, dialect, r.keys[0]);
      case operation::multi_get:
        return multi_get(client, dialect, r.keys);
      case operation::multi_set:
        for (std::size_t i = 0; i < r.keys.size(); ++i) {
          if (store(r.keys[i], r.values[i]) == verdict::hang_up) return verdict::hang_up;
        }
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
        return push(r.keys[0], r.values[0]);
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
    give_up(gone->second.watched, &key_state::watchers);
    const std::string presence = std::move(gone->second.presence);
    clients_.erase(gone);
    if (presence.empty()) return;
    waiting_bytes_ -= place_bytes + presence.size();
    static_cast<void>(store(presence + "/gone", "1"));
  }

 private:
  enum class event : std::uint8_t { updated, created, removed };

  /// Clients under ascending numbers, none of which is used twice.
  using client_list = std::map<std::uint64_t, client_id>;
  /// State of a key besides its value. Keys without any are not in keys_.
  struct key_state {
    client_list waiters;   // in the order of their waits
    client_list watchers;  // torch 1.13 only
    std::deque<std::string> queue;
    std::size_t places = 0;  // that refer to this state
  };
  using key_map = std::map<std::string, key_state>;
  /// A client's place in a list of a key. It keeps the key's state.
  struct place {
    key_map::iterator key;
    std::uint64_t number;
  };
  struct client_state {
    std::vector<place> waited;  // the keys that were missing when its wait began
    std::size_t missing = 0;    // how many of them are still missing
    std::vector<place> watched;
    std::string presence;  // its key with the prefix presence_keys_
  };
  // Approximate memory of a map entry besides its key and value, measured with glibc.
  static constexpr std::size_t entry_bytes = 160;
  static constexpr std::size_t state_bytes = 288;
  static constexpr std::size_t place_bytes = 96;
  static constexpr std::size_t queued_bytes = 64;

  verdict refuse(std::string limit) {
    passed_limit_ = std::move(limit);
    return verdict::hang_up;
  }
  verdict refuse_to_wait() {
    return refuse(formatted("all clients together wait for at most {} MiB of keys",
                            max_waiting_bytes >> 20));
  }
  // Whether `grown` more bytes may be stored; `added`: for a new key.
  verdict make_room(std::size_t grown, bool added) {
    if (added && values_.size() >= max_stored_keys) {
      return refuse(formatted("a store holds at most {} keys", max_stored_keys));
    }
    if (stored_bytes_ + grown > max_stored_bytes) {
      return refuse(formatted("a store holds at most {} MiB of keys and values",
                                max_stored_bytes >> 20));
    }
    return verdict::keep;
  }

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

  verdict store(const std::string& key, std::string_view value) {
    const std::string* present = values_.find(key);
    const std::size_t before = present == nullptr ? 0 : present->size();
    const std::size_t grown = value.size() > before ? value.size() - before : 0;
    const std::size_t whole = present == nullptr ? key.size() + entry_bytes : 0;
    if (make_room(grown + whole, present == nullptr) == verdict::hang_up) return verdict::hang_up;
    stored_bytes_ += whole + value.size() - before;
    if (present == nullptr) key_bytes_ += key.size();
    change(key, value, &value_map::set);
    return verdict::keep;
  }

  // Sets or appends, then notifies the clients that watch the key or wait for it.
  void change(const std::string& key, std::string_view value,
              void (value_map::*how)(std::string_view, std::string_view)) {
    const auto state = keys_.find(key);
    if (state == keys_.end()) {
      (values_.*how)(key, value);
      return;
    }
    const client_list& watchers = state->second.watchers;
    if (watchers.empty()) {
      (values_.*how)(key, value);
    } else {
      const std::string* before = values_.find(key);
      const event kind = before == nullptr ? event::created : event::updated;
      const std::string old = before == nullptr ? std::string{} : *before;
      (values_.*how)(key, value);
      tell_watchers(watchers, kind, key, old, *values_.find(key));
    }
    const client_list woken = std::exchange(state->second.waiters, {});
    for (const auto& [number, client] : woken) key_appeared(client);
  }

  void tell_watchers(const client_list& clients, event kind, std::string_view key,
                     std::string_view before, std::string_view after) {
    std::string bytes;
    put(bytes, static_cast<std::uint8_t>(kind));
    for (const std::string_view text : {key, before, after}) put_string(bytes, text);
    for (const auto& [number, client] : clients) send_(client, bytes);
  }

  verdict append(const std::string& key, std::string_view value) {
    const std::string* present = values_.find(key);
    if (present == nullptr) return store(key, value);
    if (present->size() + value.size() > max_value_bytes) {
      return refuse(formatted("a value grows to at most {} MiB", max_value_bytes >> 20));
    }
    if (make_room(value.size(), false) == verdict::hang_up) return verdict::hang_up;
    stored_bytes_ += value.size();
    change(key, value, &value_map::append);
    return verdict::keep;
  }

  verdict compare_set(client_id client, const request& r) {
    const std::string* present = values_.find(r.keys[0]);
    if (value_map::matches(present, r.values[0])) {
      if (present == nullptr && note_presence(client, r.keys[0]) == verdict::hang_up) {
        return verdict::hang_up;
      }
      if (store(r.keys[0], r.values[1]) == verdict::hang_up) return verdict::hang_up;
      return answer_value(client, r.values[1]);
    }
    return answer_value(client, present == nullptr ? r.values[0] : *present);
  }

  /// Keeps the first key of a client that marks its presence.
  verdict note_presence(client_id client, const std::string& key) {
    if (presence_keys_.empty() || !key.starts_with(presence_keys_)) return verdict::keep;
    const std::size_t whole = place_bytes + key.size();
    if (waiting_bytes_ + whole > max_waiting_bytes) return refuse_to_wait();
    std::string& presence = clients_[client].presence;
    if (!presence.empty()) return verdict::keep;
    presence = key;
    waiting_bytes_ += whole;
    return verdict::keep;
  }

  verdict get(client_id client, store_dialect dialect, const std::string& key) {
    const std::string* value = values_.find(key);
    if (value != nullptr) return answer_value(client, *value);
    // PyTorch's clients wait before they get. For a missing key its newer server answers with an
    // empty value, its older one closes the connection.
    return dialect == store_dialect::torch_2_5 ? answer_value(client, {}) : verdict::hang_up;
  }

  verdict multi_get(client_id client, store_dialect dialect, const std::vector<std::string>& keys) {
    std::size_t total = 8 * keys.size();
    for (const std::string& key : keys) {
      const std::string* value = values_.find(key);
      if (value == nullptr && dialect != store_dialect::torch_2_5) return verdict::hang_up;
      total += value == nullptr ? 0 : value->size();
    }
    if (total > max_answer_bytes) {
      return refuse(formatted("an answer has at most {} MiB", max_answer_bytes >> 20));
    }
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
    if (!sum || store(r.keys[0], std::to_string(*sum)) == verdict::hang_up) return verdict::hang_up;
    return answer(client, static_cast<std::uint64_t>(*sum));
  }

  verdict check(client_id client, const std::vector<std::string>& keys) {
    const bool all =
        std::all_of(keys.begin(), keys.end(), [&](const auto& key) { return exists(key); });
    return answer(client, static_cast<std::uint8_t>(all ? 0 : 1));
  }

  verdict wait(client_id client, const std::vector<std::string>& keys) {
    client_state& waiting = clients_[client];
    for (const std::string& key : keys) {
      if (values_.contains(key)) continue;
      const auto state = state_of(key);
      if (state == keys_.end()) {
        stop_waiting(client);
        return verdict::hang_up;
      }
      if (!state->second.queue.empty()) continue;
      const client_list& waiters = state->second.waiters;
      if (!waiters.empty() && waiters.rbegin()->second == client) continue;  // it is listed twice
      waiting.waited.push_back(add_place(client, &key_state::waiters, state));
    }
    waiting.missing = waiting.waited.size();
    if (waiting.missing > 0) return verdict::keep;
    drop_if_unused(clients_.find(client));
    return answer(client, std::uint8_t{0});
  }

  /// The state of a key, created where it is missing; end() where one more waiter would exceed the
  /// limit.
  [[nodiscard]] key_map::iterator state_of(const std::string& key) {
    const auto state = keys_.lower_bound(key);
    const bool known = state != keys_.end() && state->first == key;
    const std::size_t whole = known ? 0 : state_bytes + key.size();
    if (waiting_bytes_ + whole + place_bytes > max_waiting_bytes) {
      static_cast<void>(refuse_to_wait());
      return keys_.end();
    }
    if (known) return state;
    waiting_bytes_ += whole;
    return keys_.emplace_hint(state, key, key_state{});
  }

  place add_place(client_id client, client_list key_state::*list, key_map::iterator key) {
    (key->second.*list).emplace(++last_number_, client);
    ++key->second.places;
    waiting_bytes_ += place_bytes;
    return {key, last_number_};
  }
  void give_up(std::vector<place>& places, client_list key_state::*list) {
    for (const place& each : places) {
      (each.key->second.*list).erase(each.number);
      --each.key->second.places;
      waiting_bytes_ -= place_bytes;
      drop_if_unused(each.key);
    }
    places.clear();
  }
  void stop_waiting(client_id client) {
    const auto known = clients_.find(client);
    if (known == clients_.end()) return;
    give_up(known->second.waited, &key_state::waiters);
    drop_if_unused(known);
  }

  // One of the keys that a client waits for exists now.
  void key_appeared(client_id client) {
    if (--clients_.at(client).missing > 0) return;
    stop_waiting(client);
    answer(client, std::uint8_t{0});
  }

  verdict remove(client_id client, const std::string& key) {
    const std::string* present = values_.find(key);
    if (present == nullptr) return answer(client, std::uint64_t{0});
    const std::string old = *present;
    stored_bytes_ -= key.size() + old.size() + entry_bytes;
    key_bytes_ -= key.size();
    values_.erase(key);
    if (const auto state = keys_.find(key); state != keys_.end()) {
      tell_watchers(state->second.watchers, event::removed, key, old, {});
    }
    return answer(client, std::uint64_t{1});
  }

  verdict watch(client_id client, const std::string& key) {
    const auto state = state_of(key);
    if (state == keys_.end()) return verdict::hang_up;
    clients_[client].watched.push_back(add_place(client, &key_state::watchers, state));
    constexpr std::uint8_t callback_registered = 3;
    return answer(client, callback_registered);
  }

  verdict push(const std::string& key, const std::string& value) {
    if (make_room(value.size() + queued_bytes, false) == verdict::hang_up) return verdict::hang_up;
    const auto state = state_of(key);
    if (state == keys_.end()) return verdict::hang_up;
    stored_bytes_ += value.size() + queued_bytes;
    state->second.queue.push_back(value);
    // One value wakes one waiter: the others would find an empty queue.
    client_list& waiters = state->second.waiters;
    if (waiters.empty()) return verdict::keep;
    const client_id first = waiters.begin()->second;
    waiters.erase(waiters.begin());
    key_appeared(first);
    return verdict::keep;
  }

  verdict pop(client_id client, const std::string& key) {
    const std::size_t length = queue_length(key);
    answer(client, std::uint64_t{length});
    if (length == 0) return verdict::keep;
    const auto state = keys_.find(key);
    std::deque<std::string>& queue = state->second.queue;
    answer_value(client, queue.front());
    stored_bytes_ -= queue.front().size() + queued_bytes;
    queue.pop_front();
    drop_if_unused(state);
    return verdict::keep;
  }

  verdict list(client_id client) {
    if (8 + 8 * values_.size() + key_bytes_ > max_answer_bytes) {
      return refuse(formatted("an answer has at most {} MiB", max_answer_bytes >> 20));
    }
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

  void drop_if_unused(key_map::iterator at) {
    const key_state& state = at->second;
    if (state.places > 0 || !state.queue.empty()) return;
    waiting_bytes_ -= state_bytes + at->first.size();
    keys_.erase(at);
  }
  void drop_if_unused(std::map<client_id, client_state>::iterator at) {
    const client_state& state = at->second;
    if (state.waited.empty() && state.watched.empty() && state.presence.empty()) clients_.erase(at);
  }

  sender send_;
  std::string presence_keys_;
  value_map values_;
  key_map keys_;
  std::map<client_id, client_state> clients_;
  std::size_t stored_bytes_ = 0;   // of values and queues
  std::size_t key_bytes_ = 0;      // of the keys in values_
  std::size_t waiting_bytes_ = 0;  // memory of keys_ and clients_
  std::uint64_t last_number_ = 0;  // of client_list
  std::string passed_limit_;
};

}  // namespace parx::detail::store_protocol
