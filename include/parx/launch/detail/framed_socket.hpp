// framed_socket: a TCP connection between an agent and the keeper. Passes texts on and says once
// when it is over. One thread, that of its io_context.
#pragma once

#include <fcntl.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <parx/core/job_key.hpp>
#include <parx/core/json.hpp>
#include <parx/core/stream_options.hpp>
#include <parx/launch/detail/agent_channel.hpp>

namespace parx::inline PARX_ABI::detail {

/// Kept alive by its pending operations; after close() it calls nothing any more.
class framed_socket : public std::enable_shared_from_this<framed_socket> {
 public:
  using tcp = boost::asio::ip::tcp;

  /// `key` may be null, and must outlive this.
  framed_socket(tcp::socket socket, channel_side side, const job_key* key)
      : socket_(std::move(socket)), channel_(side, key) {
    set_stream_options(socket_.native_handle());
    // Asio's sockets are inherited by children, and a rank's copy would keep the connection open.
    ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
  }

  /// `on_text` gets each text; `on_end` the reason why there will be no more, unless close() was
  /// called.
  void start(std::function<void(const json::value&)> on_text,
             std::function<void(const std::string&)> on_end) {
    on_text_ = std::move(on_text);
    on_end_ = std::move(on_end);
    read();
  }

  void send(const json::value& what) {
    if (!open_) return;
    waiting_ += channel_.frame(what);
    if (sending_.empty()) write();
  }

  /// Sends a last text without a signature, and closes.
  void refuse(const json::value& why) {
    if (!open_) return;
    waiting_ += channel_.unsigned_frame(why);
    finishing_ = true;
    if (sending_.empty()) write();
  }
  /// Closes after what is queued has been sent; takes no more texts.
  void finish() {
    finishing_ = true;
    if (sending_.empty()) close();
  }
  void close() {
    if (!std::exchange(open_, false)) return;
    boost::system::error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] agent_channel& channel() noexcept { return channel_; }
  /// The numeric address of the other side; empty where the connection is over.
  [[nodiscard]] std::string remote_address() const {
    boost::system::error_code failed;
    const auto end = socket_.remote_endpoint(failed);
    if (failed) return {};
    const auto address = end.address();
    if (address.is_v6() && address.to_v6().is_v4_mapped()) {
      return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6())
          .to_string();
    }
    return address.to_string();
  }

 private:
  void read() {
    socket_.async_read_some(boost::asio::buffer(buffer_),
                            [self = shared_from_this()](const auto& failed, auto got) {
                              if (!self->open_) return;
                              if (failed) return self->end("it closed the connection");
                              self->channel_.feed({self->buffer_.data(), got});
                              try {
                                while (self->open_ && !self->finishing_) {
                                  const auto text = self->channel_.next();
                                  if (!text) break;
                                  self->on_text_(*text);
                                }
                              } catch (const std::exception& wrong) {
                                return self->end(wrong.what());
                              }
                              if (self->open_) self->read();
                            });
  }

  void write() {
    sending_ = std::exchange(waiting_, {});
    boost::asio::async_write(socket_, boost::asio::buffer(sending_),
                             [self = shared_from_this()](const auto& failed, auto) {
                               self->sending_.clear();
                               if (!self->open_) return;
                               if (failed) {  // read() says that it is over
                                 if (self->finishing_) self->close();
                                 return;
                               }
                               if (!self->waiting_.empty()) return self->write();
                               if (self->finishing_) self->close();
                             });
  }

  void end(const std::string& why) {
    if (!open_) return;
    on_end_(why);
    if (!finishing_) close();
  }

  tcp::socket socket_;
  agent_channel channel_;
  std::function<void(const json::value&)> on_text_;
  std::function<void(const std::string&)> on_end_;
  std::array<char, 1 << 14> buffer_{};
  std::string waiting_;
  std::string sending_;
  bool finishing_ = false;
  bool open_ = true;
};

}  // namespace parx::detail
