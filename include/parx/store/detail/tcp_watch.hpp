// tcp_watch: a WAIT request pending on a connection of its own. The socket becomes readable when
// the key is set or the server ends. One thread.
#pragma once

#include <string>
#include <utility>

#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/store/detail/connection.hpp>
#include <parx/store/detail/failure.hpp>
#include <parx/store/detail/protocol.hpp>
#include <parx/store/dialect.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI::detail {

class tcp_watch final : public store_watch {
 public:
  /// `server` has been sent WAIT[wire_key].
  tcp_watch(connection server, store_dialect dialect, std::string key, std::string wire_key,
            std::string where)
      : server_(std::move(server)),
        dialect_(dialect),
        key_(std::move(key)),
        wire_key_(std::move(wire_key)),
        where_(std::move(where)) {}

  [[nodiscard]] int descriptor() const noexcept override { return server_.descriptor_number(); }

  [[nodiscard, gnu::cold]] watch_state ready() override {
    if (state_ != watch_state::pending) return state_;
    try {
      if (const auto answer = server_.try_receive_byte()) {
        state_ = *answer == 0 ? watch_state::set : watch_state::lost;
        loss_ = {errc::protocol, "the server's answer to a wait is invalid"};
      }
    } catch (const store_failure& failure) {
      state_ = watch_state::lost;
      loss_ = failure;
    }
    return state_;
  }

  [[nodiscard, gnu::cold]] std::string value(deadline limit) override {
    try {
      while (ready() == watch_state::pending) {
        if (!server_.available(1, limit)) throw store_failure{errc::timeout, "nobody set the key"};
      }
      if (state_ == watch_state::lost) throw loss_;
      std::string question;
      store_protocol::encode(question, dialect_,
                             {.op = store_protocol::operation::get, .keys = {wire_key_}});
      server_.send(question, limit);
      return server_.receive_string(limit);
    } catch (const store_failure& failure) {
      throw_store_error(failure.code, "watch", quoted_key(key_), where_, limit, failure.reason);
    }
  }

 private:
  connection server_;
  store_dialect dialect_;
  std::string key_;
  std::string wire_key_;
  std::string where_;
  watch_state state_ = watch_state::pending;
  store_failure loss_{errc::peer_lost, "the server has gone"};
};

}  // namespace parx::detail
