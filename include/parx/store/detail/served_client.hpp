// served_client: what a store's server keeps of each of its clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <parx/store/detail/mutual_authentication.hpp>
#include <parx/store/detail/protocol.hpp>
#include <parx/store/detail/request_parser.hpp>
#include <parx/store/detail/store_socket.hpp>

namespace parx::inline PARX_ABI::detail {

struct served_client {
  std::uint64_t id;
  store_socket wire;
  store_protocol::request_parser parser;
  std::optional<mutual_authentication>
      authentication;                       // until it is admitted, where the server has a key
  std::string outgoing = {};                // answers that the socket did not take yet
  std::size_t outgoing_sent = 0;
  std::optional<store_protocol::request> postponed = {};  // until there is room, or time
  bool awaiting_write = false;      // polled for EPOLLOUT, else for EPOLLIN
  bool paused = false;              // until there is room
  bool deferred = false;            // until there is time for its request
  bool member = false;              // has made a request
  bool marked_for_hang_up = false;  // closed when control is back in the event loop
};

}  // namespace parx::detail
