// A store's server that runs out of memory hangs up on the client that it cannot serve, and ends
// when it is asked to.
#include <parx/store/tcp_server.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <optional>
#include <string>

#include <parx/store/tcp.hpp>

#include "short_memory.hpp"
#include "store/raw_client.hpp"
#include "store/store_claims.hpp"
#include "store/wire.hpp"

namespace {

using namespace std::chrono_literals;
using parx_test::has_its_own;
using parx_test::memory_is_short;
using store_claims::soon;
using store_wire::text;

}  // namespace

BOOST_AUTO_TEST_CASE(a_server_without_memory_hangs_up_on_one_client_and_can_be_stopped) {
  if (!parx_test::memory_can_be_short) {
    fmt::print("SKIPPED: clang's sanitizers do not let memory run out\n");
    return;
  }
  has_its_own = true;
  std::optional<parx::tcp_store_server> server(std::in_place);
  parx::tcp_store other({.port = server->port()});
  raw_client greedy(server->port());
  other.set("key", "value", soon());
  memory_is_short = true;
  greedy.send(std::string(1, '\0') + text("/k") + text(std::string(10000, 'v')));
  BOOST_TEST(greedy.receive(1) == "closed");
  memory_is_short = false;
  BOOST_TEST(other.get("key", soon()) == "value");

  memory_is_short = true;
  raw_client late(server->port());
  const auto start = std::chrono::steady_clock::now();
  server.reset();
  memory_is_short = false;
  BOOST_TEST((std::chrono::steady_clock::now() - start < 2s));
}
