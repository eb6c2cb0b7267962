// agent_link: an agent's connection with the job's keeper (keeper.hpp): finds it, says hello, sends
// beats and notices its silence. What follows from that is for generation_node.hpp to say. One
// thread, that of its io_context.
//
// A beat carries this side's clock, and the keeper sends it back. So an agent knows of a moment at
// which it was sent what the keeper has heard, and from then on its lease runs at the earliest,
// whichever direction of the network fails.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <parx/core/deadline.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/json.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/random_hex.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/detail/after.hpp>
#include <parx/launch/detail/framed_socket.hpp>
#include <parx/launch/generation_node.hpp>
#include <parx/launch/keeper.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::chrono::milliseconds time_between_beats{500};

struct agent_link_options {
  std::string host;  ///< of the keeper
  std::uint16_t port = 0;
  std::string id;      ///< of the job
  std::string secret;  ///< empty where it has none
  bool encrypts = false;
  std::chrono::milliseconds join_limit{600'000};
};

class agent_link {
 public:
  using tcp = boost::asio::ip::tcp;

  struct handlers {
    std::function<json::object()> hello;  ///< what to say of this node
    std::function<void()> admitted;
    std::function<void(const json::value&)> text;     ///< of the keeper: form, stop or end
    std::function<void()> silent;                     ///< the connection is over
    std::function<void(const std::string&)> waits;    ///< once, where the keeper does not answer
    std::function<void(const std::string&)> gave_up;  ///< why
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

  /// Tries to be admitted, until the join limit is over.
  void connect() {
    is_closed_ = false;
    limit_ = deadline::after(options_.join_limit);
    refused_since_.reset();
    told_that_it_waits_ = false;
    started_ = protocol_clock::now();
    try_once();
  }

  void send(const json::value& what) {
    if (socket_ != nullptr) socket_->send(what);
  }

  /// Ends the connection after what is queued, and everything that is pending.
  void finish() {
    is_closed_ = true;
    stop_timers();
    if (socket_ != nullptr) socket_->finish();
    socket_.reset();
  }
  void close() {
    is_closed_ = true;
    stop_timers();
    if (socket_ != nullptr) socket_->close();
    socket_.reset();
  }

  [[nodiscard]] std::string place() const { return with_port(options_.host, options_.port); }
  /// How long the ranks of an agent without its keeper may live on.
  [[nodiscard]] std::chrono::milliseconds time_left() const {
    return std::max(std::chrono::milliseconds(0), until(answered_ + node_patience + abandon_grace));
  }

 private:
  using time_point = protocol_clock::time_point;
  static constexpr std::chrono::milliseconds attempt_limit{3'000};
  static constexpr std::chrono::milliseconds between_attempts{50};
  static constexpr std::chrono::milliseconds tells_after{5'000};
  /// A keeper that was there and whose host refuses connections has ended.
  static constexpr std::chrono::milliseconds gone_after{1'000};

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
    after(attempt_limit, attempt_, [this, socket] {
      boost::system::error_code ignored;
      socket->close(ignored);
      if (socket_ != nullptr) failed("it accepts connections but does not answer", is_final::no);
    });
    boost::asio::async_connect(*socket, ends,
                               [this, socket](const boost::system::error_code& wrong, const auto&) {
                                 if (is_closed_) return;
                                 if (wrong) return not_connected(wrong);
                                 open(std::move(*socket));
                               });
  }

  void not_connected(const boost::system::error_code& wrong) {
    if (wrong != boost::asio::error::connection_refused) {
      refused_since_.reset();
    } else if (!refused_since_) {
      refused_since_ = protocol_clock::now();
    }
    const bool is_gone =
        was_admitted_ && refused_since_ && protocol_clock::now() - *refused_since_ >= gone_after;
    failed(wrong == boost::asio::error::operation_aborted ? "no answer" : wrong.message(),
           is_gone ? is_final::yes : is_final::no);
  }

  enum class is_final { no, yes };

  void failed(const std::string& why, is_final final) {
    attempt_.cancel();
    if (socket_ != nullptr) socket_->close();
    socket_.reset();
    if (final == is_final::yes || limit_.passed()) {
      return call_.gave_up(
          formatted("the job's first parxrun cannot be reached at {}: {}", place(), why));
    }
    if (protocol_clock::now() - started_ >= tells_after &&
        !std::exchange(told_that_it_waits_, true)) {
      call_.waits(
          formatted("waits for the job's first parxrun, which must run on the node that has "
                    "the address {} ({}: {})",
                    options_.host, place(), why));
    }
    after(between_attempts, pause_, [this] { try_once(); });
  }

  void open(tcp::socket connected) {
    socket_ = std::make_shared<framed_socket>(std::move(connected), channel_side::agent,
                                              key_ ? &*key_ : nullptr);
    const std::string nonce = random_hex();
    socket_->send(
        json::object{{"id", options_.id}, {"secret", key_.has_value()}, {"nonce", nonce}});
    socket_->start(
        [this, nonce](const json::value& text) {
          if (const json::value* const refused = text.find("refused")) {
            const std::string why = refused->text();
            attempt_.cancel();
            socket_->close();
            socket_.reset();
            return call_.gave_up(
                formatted("the parxrun at {} refuses this one: {}", place(), printable(why)));
          }
          if (const json::value* const theirs = text.find("nonce")) {
            socket_->channel().set_nonces(nonce, theirs->text());
            answered_ = protocol_clock::now();  // the keeper hears the hello later
            socket_->send(call_.hello());
          } else if (text.contains("welcome")) {
            welcome();
          } else if (text.contains("beat")) {
            answered_ = time_point(time_point::duration(text.as<std::int64_t>("beat")));
          } else {
            call_.text(text);
          }
        },
        [this](const std::string& why) {
          if (is_in_) return lost();
          failed(why, why == closed_text ? is_final::no : is_final::yes);
        });
  }

  void welcome() {
    attempt_.cancel();
    is_in_ = true;
    was_admitted_ = true;
    beat();
    watch();
    call_.admitted();
  }

  void lost() {
    stop_timers();
    if (socket_ != nullptr) socket_->close();
    socket_.reset();
    is_in_ = false;
    call_.silent();
  }

  void beat() {
    send(json::object{{"beat", protocol_clock::now().time_since_epoch().count()}});
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
    for (auto* each : {&attempt_, &pause_, &beats_, &patience_}) each->cancel();
  }

  static constexpr std::string_view closed_text = "it closed the connection";

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
  time_point answered_{};  ///< when the last thing was sent of which the keeper has told since
  std::optional<time_point> refused_since_;
  bool told_that_it_waits_ = false;
  bool is_in_ = false;
  bool was_admitted_ = false;
  bool is_closed_ = false;
};

}  // namespace parx::detail
