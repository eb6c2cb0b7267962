// framed_socket: a TCP connection between an agent and the coordinator. Passes the texts of the
// other side on once that has proved to be of the job (agent_channel.hpp), and says once when it is
// over. One thread, that of its io_context.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "tools/parxrun/nodes/agent_channel.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/json.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/stream_options.hpp>

namespace parx::inline PARX_ABI::detail {

/// How a connection has ended.
struct channel_end {
  enum class kind {
    closed,   ///< by the other side, or the network
    refused,  ///< by the other side, as `why` says
    wrong,    ///< the other side does not keep to the protocol, or does not know the key
    failed,   ///< this side, in doing what a text asks
  };
  kind how = kind::closed;
  std::string why;
};

/// Kept alive by its pending operations; after close() it calls nothing any more.
class framed_socket : public std::enable_shared_from_this<framed_socket> {
 public:
  using tcp = boost::asio::ip::tcp;

  struct handlers {
    std::function<void()> open;                    ///< the other side is of the job
    std::function<void(const json::value&)> text;  ///< one of its texts
    std::function<void(const channel_end&)> end;   ///< there will be no more, unless by close()
  };

  /// `key` may be null, and must outlive this.
  framed_socket(tcp::socket socket, channel_side side, const std::string& id, const job_key* key)
      : socket_(std::move(socket)), channel_(side, id, key) {
    socket_.non_blocking(true);
    set_stream_options(socket_.native_handle());
    // Asio's sockets are inherited by children, and a rank's copy would keep the connection open.
    ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
  }

  void start(handlers call) {
    call_ = std::move(call);
    send_bytes(channel_.take_replies());
    read();
  }

  /// Nothing is sent to a side that has not proved to be of the job.
  void send(const json::value& what) {
    if (open_ && channel_.is_open()) send_bytes(channel_.frame(what));
  }

  /// Sends why the other side is refused, and closes.
  void refuse(const std::string& why) {
    if (!open_) return;
    finishing_ = true;
    send_bytes(channel_.refusal(why));
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

  /// The other side is one of the job's nodes: it may send long texts.
  void trust() noexcept { channel_.trust(); }
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
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const auto& failed) {
      if (!self->open_) return;
      if (failed) return self->end({channel_end::kind::closed, std::string(closed_text)});
      self->read_some();
    });
  }
  /// Not into a buffer of its own: a coordinator may have many connections of strangers.
  void read_some() {
    std::array<char, 1 << 14> buffer;
    const ssize_t got = ::recv(socket_.native_handle(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return read();
    if (got <= 0) return end({channel_end::kind::closed, std::string(closed_text)});
    const auto self = shared_from_this();
    try {
      channel_.feed({buffer.data(), static_cast<std::size_t>(got)});
      take_texts();
    } catch (const channel_error& wrong) {
      using kind = channel_end::kind;
      const bool is_refusal = wrong.because == channel_error::cause::refusal;
      return end({is_refusal ? kind::refused : kind::wrong, wrong.what()});
    } catch (const json::error& wrong) {
      return end({channel_end::kind::wrong,
                  formatted("it is a parxrun of another version ({})", printable(wrong.what()))});
    } catch (const std::exception& failure) {
      return end({channel_end::kind::failed, failure.what()});
    }
    if (open_) read();
  }
  void take_texts() {
    while (open_ && !finishing_) {
      const bool was_open = channel_.is_open();
      const auto text = channel_.next();
      send_bytes(channel_.take_replies());
      if (!was_open && channel_.is_open() && call_.open) call_.open();
      if (!text) return;
      if (open_ && !finishing_) call_.text(*text);
    }
  }

  void send_bytes(const std::string& bytes) {
    if (!open_ || bytes.empty()) return;
    waiting_ += bytes;
    if (sending_.empty()) write();
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

  void end(const channel_end& how) {
    if (!open_) return;
    call_.end(how);
    if (!finishing_) close();
  }

  static constexpr std::string_view closed_text = "it closed the connection";

  tcp::socket socket_;
  agent_channel channel_;
  handlers call_;
  std::string waiting_;
  std::string sending_;
  bool finishing_ = false;
  bool open_ = true;
};

}  // namespace parx::detail
