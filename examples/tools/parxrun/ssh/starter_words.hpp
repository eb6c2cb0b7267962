// starter_words: what the parxrun that has started this one by ssh says (ssh_start.hpp) behind the
// order (take_order.hpp): signals, and by its end that it, or the connection, is gone. One thread,
// that of the io_context.
#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "tools/parxrun/ranks/line_cutter.hpp"
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::detail {

class starter_words {
 public:
  /// Takes the descriptor over. `on_signal` gets the number of each signal that the starter passes
  /// on; `on_end` is called once.
  starter_words(boost::asio::io_context& io, int input, std::function<void(int)> on_signal,
                std::function<void()> on_end)
      : input_(io, input), on_signal_(std::move(on_signal)), on_end_(std::move(on_end)) {
    read_next();
  }

 private:
  void read_next() {
    input_.async_read_some(boost::asio::buffer(buffer_), [this](const auto& failed, auto got) {
      if (failed) return on_end_();
      lines_.feed({buffer_.data(), got}, [this](std::string_view line) {
        static constexpr std::string_view word = "signal ";
        if (!line.starts_with(word)) return;
        if (const auto number = parse_number<int>(line.substr(word.size()))) on_signal_(*number);
      });
      read_next();
    });
  }

  boost::asio::posix::stream_descriptor input_;
  std::function<void(int)> on_signal_;
  std::function<void()> on_end_;
  std::array<char, 256> buffer_{};
  line_cutter lines_;
};

}  // namespace parx::detail
