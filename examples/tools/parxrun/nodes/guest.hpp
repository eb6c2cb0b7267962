// guest: an agent that a keeper has admitted, and the way to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tools/parxrun/nodes/framed_socket.hpp"
#include <parx/core/json.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI::detail {

struct guest {
  std::function<void(const json::value&)> tell;
  std::shared_ptr<framed_socket> socket;  ///< null for the agent in the keeper's process
  std::string node;
  std::string process;
  int ranks = 0;
  std::uint16_t free_port = 0;  ///< that its agent holds for rank 0's use
  bool told_to_wait = false;

  /// Throws json::error where `hello` is none.
  [[nodiscard]] static guest of(const json::value& hello,
                                std::function<void(const json::value&)> tell,
                                std::shared_ptr<framed_socket> socket) {
    return {.tell = std::move(tell),
            .socket = std::move(socket),
            .node = printable(hello.at("node").text()),
            .process = hello.at("process").text(),
            .ranks = hello.as<int>("ranks"),
            .free_port = hello.as<std::uint16_t>("port")};
  }
  void close() const {
    if (socket) socket->close();
  }
  /// Numeric; empty in the keeper's process, or where the connection is over.
  [[nodiscard]] std::string address() const {
    return socket ? socket->remote_address() : std::string();
  }
};

}  // namespace parx::detail
