// A store whose job's key encrypts: it does all that a store does, and shows nothing of it.
#include <parx/store/detail/mutual_authentication.hpp>

#include <store/raw_client.hpp>
#include <store/store_claims.hpp>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/store/tcp.hpp>
#include <parx/store/tcp_server.hpp>

namespace {

using namespace std::chrono_literals;
using parx::job_key;
using store_claims::message_of;
using store_claims::soon;

const std::string secret = "open-sesame-0123456789";
const job_key key(secret, "run", true);

}  // namespace

BOOST_AUTO_TEST_CASE(it_does_what_every_store_must_do) {
  const parx::tcp_store_server server({.key = key});
  parx::tcp_store a({.port = server.port(), .key = key});
  parx::tcp_store b({.port = server.port(), .key = key});
  store_claims::hold_for({a, b});
}

BOOST_AUTO_TEST_CASE(values_of_megabytes_pass_between_many_clients_at_once) {
  const parx::tcp_store_server server({.key = key});
  std::vector<std::jthread> clients;
  std::atomic<int> right = 0;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      parx::tcp_store mine({.port = server.port(), .key = key});
      for (int round = 0; round < 4; ++round) {
        const auto name = std::to_string(client) + "/" + std::to_string(round);
        const std::string value((std::size_t{1} << 20) + static_cast<std::size_t>(client), 'v');
        mine.set(name, value, soon());
        right += mine.get(name, soon()) == value;
        mine.delete_key(name, soon());
      }
    });
  }
  clients.clear();
  BOOST_TEST(right == 32);
}

BOOST_AUTO_TEST_CASE(a_client_or_server_that_alone_encrypts_is_told_of_the_variable) {
  const parx::tcp_store_server encrypted({.key = key});
  const job_key plain_key(secret, "run");
  const auto plain = message_of(
      [&] { parx::tcp_store({.port = encrypted.port(), .key = plain_key}); }, parx::errc::protocol);
  BOOST_TEST(plain.find("PARX_TLS") != std::string::npos, plain);
  const parx::tcp_store_server open({.key = plain_key});
  const auto alone = message_of([&] { parx::tcp_store({.port = open.port(), .key = key}); },
                                parx::errc::protocol);
  BOOST_TEST(alone.find("PARX_TLS") != std::string::npos, alone);
}

BOOST_AUTO_TEST_CASE(plain_requests_behind_a_proof_are_not_served) {
  const parx::tcp_store_server server({.key = key});
  for (const bool together : {true, false}) {
    const parx::detail::authentication_nonce mine{1, 2, 3};
    raw_client client(server.port());
    client.send(std::string(parx::detail::authentication_magic).append(job_key::view(mine)));
    const std::string answer = client.receive(32);
    BOOST_TEST_REQUIRE(answer.size() == 32U);
    parx::detail::authentication_nonce theirs{};
    std::copy(answer.begin(), answer.end(), theirs.begin());
    const auto proof = parx::detail::proof_of(key, "store client", mine, theirs);
    const std::string ping = parx::detail::hello(parx::detail::greeting::magic_and_ping, 77);
    client.send(std::string(job_key::view(proof)) + (together ? ping : ""));
    BOOST_TEST(client.receive(32).size() == 32U);
    if (!together) client.send(ping);
    BOOST_TEST(client.hung_up());
  }
  BOOST_TEST(server.clients() == 0U);
}
