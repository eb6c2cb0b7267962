// agent_connection: an agent that a coordinator has admitted, and the way to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tools/parxrun/nodes/framed_socket.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI::detail {

struct agent_connection {
  std::function<void(const to_agent&)> tell;
  std::shared_ptr<framed_socket> socket;  ///< null for the agent in the coordinator's process
  std::string node;
  std::string process;
  int ranks = 0;
  std::uint16_t free_port = 0;  ///< that its agent holds for rank 0's use
  bool told_to_wait = false;

  [[nodiscard]] static agent_connection of(const agent_hello& hello,
                                           std::function<void(const to_agent&)> tell,
                                           std::shared_ptr<framed_socket> socket) {
    return {.tell = std::move(tell),
            .socket = std::move(socket),
            .node = printable(hello.node),
            .process = hello.process,
            .ranks = hello.ranks,
            .free_port = hello.free_port};
  }
  void close() const {
    if (socket) socket->close();
  }
  /// Numeric; empty in the coordinator's process, or where the connection is over.
  [[nodiscard]] std::string address() const {
    return socket ? socket->remote_address() : std::string();
  }
};

}  // namespace parx::detail
