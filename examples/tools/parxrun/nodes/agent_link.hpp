// agent_link: an agent's connection with the job's coordinator (coordinator.hpp): finds it, says
// hello once that has proved to be of the job, sends beats and notices its silence. What follows
// from that is for generation_node.hpp to say. One thread, that of its io_context.
//
// A beat carries this side's clock, and the coordinator sends it back. So an agent knows of a
// moment at which it was sent what the coordinator has heard, and from then on its lease runs at
// the earliest, whichever direction of the network fails.
//
// A coordinator that has gone, or speaks another protocol, is given up. Where no coordinator has
// been met and nobody listens at the endpoint any more, this process may listen there.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tools/parxrun/nodes/framed_socket.hpp"
#include "tools/parxrun/nodes/generation_node.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include "tools/parxrun/ranks/after.hpp"
#include <parx/core/deadline.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/json.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/socket_address.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::chrono::milliseconds time_between_beats{500};

struct agent_link_options {
  std::string host;  ///< of the coordinator
  std::uint16_t port = 0;
  std::string id;      ///< of the job
  std::string secret;  ///< empty where it has none
  bool encrypts = false;
};

class agent_link {
 public:
  using tcp = boost::asio::ip::tcp;

  struct handlers {
    std::function<agent_hello()> hello;             ///< what to say of this node
    std::function<void(const to_agent&)> message;   ///< of the coordinator; `welcome` comes first
    std::function<void()> silent;                   ///< the connection is over
    std::function<void(const std::string&)> waits;  ///< once, where the coordinator does not answer
    std::function<void(const std::string&)> gave_up;  ///< why
    /// Nobody has listened at the endpoint for a while, and no coordinator was ever met there. If
    /// there was one, its agents have ended their ranks by now. May close this link.
    std::function<void()> vacant;
  };

  agent_link(boost::asio::io_context& io, agent_link_options options, handlers call)
      : options_(std::move(options)),
        call_(std::move(call)),
        io_(io),
        attempt_(io),
        pause_(io),
        beats_(io),
        patience_(io) {
    if (!options_.secret.empty()) key_.emplace(options_.secret, options_.id, options_.encrypts);
  }
  agent_link(const agent_link&) = delete;
  agent_link& operator=(const agent_link&) = delete;
  ~agent_link() { close(); }

  /// Tries to be admitted, until `limit` is over.
  void connect(std::chrono::milliseconds limit) {
    is_closed_ = false;
    limit_ = deadline::after(limit);
    refused_since_.reset();
    told_that_it_waits_ = false;
    started_ = protocol_clock::now();
    if (!spoils_.empty()) return give_up(spoils_);
    try_once();
  }

  void send(const to_coordinator& what) { send_text(wire_text(what)); }

  /// Ends the connection after what is queued, and everything that is pending.
  void finish() {
    is_closed_ = true;
    is_in_ = false;
    stop_timers();
    if (socket_ != nullptr) socket_->finish();
    socket_.reset();
  }
  void close() {
    is_closed_ = true;
    stop_timers();
    drop_socket();
  }

  [[nodiscard]] std::string place() const { return with_port(options_.host, options_.port); }
  /// How long the ranks of an agent without its coordinator may live on.
  [[nodiscard]] std::chrono::milliseconds time_left() const {
    return std::max(std::chrono::milliseconds(0), until(answered_ + node_patience + abandon_grace));
  }

 private:
  using time_point = protocol_clock::time_point;
  static constexpr std::chrono::milliseconds attempt_limit{3'000};
  /// A coordinator at whose door strangers queue answers only when it has come to this one.
  static constexpr std::chrono::milliseconds answer_limit{10'000};
  static constexpr std::chrono::milliseconds between_attempts{50};
  static constexpr std::chrono::milliseconds tells_after{5'000};
  /// A coordinator that was there and whose host refuses connections has ended.
  static constexpr std::chrono::milliseconds gone_after{1'000};
  static constexpr std::chrono::milliseconds vacant_after{4'000};
  static_assert(vacant_after > node_patience + abandon_grace);

  void try_once() {
    int code = 0;
    const address_list found =
        find_addresses(without_brackets(options_.host).c_str(), options_.port, 0, code);
    if (!found) {
      return failed(
          formatted("the name \"{}\" cannot be resolved: {}", options_.host, ::gai_strerror(code)),
          is_final::yes);
    }
    std::vector<tcp::endpoint> ends;
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
      tcp::endpoint end;
      end.resize(each->ai_addrlen);
      std::memcpy(end.data(), each->ai_addr, each->ai_addrlen);
      ends.push_back(end);
    }
    const auto socket = std::make_shared<tcp::socket>(io_);
    after(at_most(attempt_limit), attempt_, [socket] {
      boost::system::error_code ignored;
      socket->close(ignored);
    });
    boost::asio::async_connect(*socket, ends,
                               [this, socket](const boost::system::error_code& wrong, const auto&) {
                                 if (is_closed_) return;
                                 if (wrong) return not_connected(wrong);
                                 if (!socket->is_open()) {  // the time was over meanwhile
                                   return not_connected(boost::asio::error::operation_aborted);
                                 }
                                 refused_since_.reset();
                                 open(std::move(*socket));
                               });
  }

  void not_connected(const boost::system::error_code& wrong) {
    if (wrong != boost::asio::error::connection_refused) {
      refused_since_.reset();
    } else {
      if (!refused_since_) refused_since_ = protocol_clock::now();
      if (!has_met_ && refused_for(vacant_after)) call_.vacant();
      if (is_closed_) return;
    }
    failed(wrong == boost::asio::error::operation_aborted ? "no answer" : wrong.message(),
           was_admitted_ && refused_for(gone_after) ? is_final::yes : is_final::no);
  }

  [[nodiscard]] std::chrono::milliseconds at_most(std::chrono::milliseconds time) const {
    return std::min(time, limit_.remaining());
  }
  [[nodiscard]] bool refused_for(std::chrono::milliseconds time) const {
    return refused_since_ && protocol_clock::now() - *refused_since_ >= time;
  }

  enum class is_final { no, yes };

  void failed(const std::string& why, is_final final) {
    disarm(attempt_);
    drop_socket();
    if (final == is_final::yes || limit_.passed()) {
      return give_up(
          formatted("the job's first parxrun cannot be reached at {}: {}", place(), why));
    }
    if (protocol_clock::now() - started_ >= tells_after) tell_that_it_waits(why);
    after(between_attempts, pause_, [this] { try_once(); });
  }
  void tell_that_it_waits(std::string_view why) {
    if (std::exchange(told_that_it_waits_, true)) return;
    call_.waits(
        formatted("waits for the job's first parxrun, which must run on the node that has the "
                  "address {} ({}: {})",
                  options_.host, place(), why));
  }
  void give_up(const std::string& why) {
    drop_socket();
    stop_timers();
    call_.gave_up(why);
  }

  void open(tcp::socket connected) {
    after(at_most(tells_after), attempt_, [this] {
      if (!limit_.passed()) tell_that_it_waits(silent_text);
      after(at_most(answer_limit - tells_after), attempt_,
            [this] { failed(std::string(silent_text), is_final::no); });
    });
    socket_ = std::make_shared<framed_socket>(std::move(connected), channel_side::agent,
                                              options_.id, key_ ? &*key_ : nullptr);
    socket_->start({.open = [this] { say_hello(); },
                    .text = [this](const json::value& text) { receive(text); },
                    .end = [this](const channel_end& end) { ended(end); }});
  }

  void say_hello() {
    has_met_ = true;
    answered_ = protocol_clock::now();  // the coordinator hears the hello later
    socket_->send(wire_text(to_coordinator(call_.hello())));
  }

  void receive(const json::value& text) {
    if (const json::value* const why = text.find("refused")) {
      throw channel_error(printable(why->text()), channel_error::cause::refusal);
    }
    if (is_in_ && text.contains("beat")) return take_beat(text.as<std::int64_t>("beat"));
    const auto message = message_of<to_agent>(text);
    if (std::holds_alternative<welcome>(message) == is_in_) throw_other_version();
    if (!is_in_) return be_admitted(message);
    call_.message(message);
  }
  void take_beat(std::int64_t clock) {
    const time_point sent{time_point::duration(clock)};
    if (sent < answered_ || sent > protocol_clock::now()) throw_other_version();
    answered_ = sent;
  }

  void ended(const channel_end& end) {
    using kind = channel_end::kind;
    if (is_in_) {
      if (end.how != kind::closed) {
        spoils_ = formatted("the job's first parxrun at {} is given up: {}", place(), end.why);
      }
      return lost();
    }
    if (end.how == kind::refused) {
      return give_up(
          formatted("the parxrun at {} refuses this one: {}", place(), printable(end.why)));
    }
    failed(end.why, end.how == kind::closed ? is_final::no : is_final::yes);
  }

  void be_admitted(const to_agent& message) {
    disarm(attempt_);
    is_in_ = true;
    was_admitted_ = true;
    call_.message(message);
    if (!is_in_) return;
    beat();
    watch();
  }

  /// Once for each time that it was admitted.
  void lost() {
    if (!is_in_) return;
    stop_timers();
    drop_socket();
    call_.silent();
  }
  void drop_socket() {
    if (socket_ != nullptr) socket_->close();
    socket_.reset();
    is_in_ = false;
  }

  void send_text(const json::value& text) {
    if (socket_ != nullptr && is_in_) socket_->send(text);
  }
  void beat() {
    send_text(json::object{{"beat", protocol_clock::now().time_since_epoch().count()}});
    after(time_between_beats, beats_, [this] { beat(); });
  }
  void watch() {
    const auto left = until(answered_ + node_patience);
    if (left.count() <= 0) return lost();
    after(left, patience_, [this] { watch(); });
  }

  [[nodiscard]] static std::chrono::milliseconds until(time_point then) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(then - protocol_clock::now());
  }
  void stop_timers() {
    for (auto* each : {&attempt_, &pause_, &beats_, &patience_}) disarm(*each);
  }

  static constexpr std::string_view silent_text = "it accepts connections but does not answer";

  agent_link_options options_;
  handlers call_;
  boost::asio::io_context& io_;
  std::optional<job_key> key_;
  boost::asio::steady_timer attempt_;
  boost::asio::steady_timer pause_;
  boost::asio::steady_timer beats_;
  boost::asio::steady_timer patience_;
  std::shared_ptr<framed_socket> socket_;
  deadline limit_ = deadline::unset();
  time_point started_{};
  time_point answered_{};  ///< when the last thing was sent of which the coordinator has told since
  std::optional<time_point> refused_since_;
  std::string spoils_;  ///< why there is no use in trying again; empty: there is
  bool told_that_it_waits_ = false;
  bool has_met_ = false;  ///< a process that has proved to be of the job
  bool is_in_ = false;
  bool was_admitted_ = false;
  bool is_closed_ = false;
};

}  // namespace parx::detail
