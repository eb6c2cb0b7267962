// A store with a job's key against those who do not know it.
#include <parx/store/detail/mutual_authentication.hpp>

#include <store/raw_client.hpp>
#include <store/store_claims.hpp>
#include <store/wire.hpp>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/store/tcp.hpp>
#include <parx/store/tcp_server.hpp>

namespace {

using namespace std::chrono_literals;
using parx::deadline;
using parx::job_key;
using parx::store_dialect;
using store_claims::message_of;
using store_claims::soon;
using store_wire::text;
using store_wire::u64;

const std::string secret = "open-sesame-0123456789";
const job_key key(secret, "run");

std::string hello_of_torch() {
  return parx::detail::hello(parx::detail::greeting::magic_and_ping, 77);
}

// Passes bytes on between a client and a server, and keeps them.
class wire_tap {
 public:
  explicit wire_tap(std::uint16_t server) {
    listener_ = parx::detail::listen_on("127.0.0.1", 0);
    port_ = parx::detail::bound_port(listener_.get());
    thread_ = std::thread([this, server] { run(server); });
  }
  ~wire_tap() { thread_.join(); }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  std::string from_client;  // once the client has gone
  std::string from_server;

 private:
  void run(std::uint16_t server) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    ::poll(&waiting, 1, 10'000);
    const parx::descriptor client(::accept(listener_.get(), nullptr, nullptr));
    raw_client other(server);
    while (true) {
      pollfd both[2] = {{client.get(), POLLIN, 0}, {other.number(), POLLIN, 0}};
      if (::poll(both, 2, 10'000) <= 0) return;
      char piece[4096];
      for (int i = 0; i < 2; ++i) {
        if (both[i].revents == 0) continue;
        const auto got = ::recv(both[i].fd, piece, sizeof piece, 0);
        if (got <= 0) return;
        (i == 0 ? from_client : from_server).append(piece, static_cast<std::size_t>(got));
        ::send(both[1 - i].fd, piece, static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
    }
  }
  parx::descriptor listener_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(clients_that_know_the_key_are_served) {
  const parx::tcp_store_server server({.key = key});
  parx::tcp_store a({.port = server.port(), .key = key});
  parx::tcp_store b({.port = server.port(), .key = job_key(secret, "run")});
  a.set("k", "v", soon());
  BOOST_TEST(b.get("k", soon()) == "v");
  const auto watch = b.watch("later", soon());
  a.set("later", "x", soon());
  BOOST_TEST(watch->value(soon()) == "x");
}

BOOST_AUTO_TEST_CASE(a_stranger_is_answered_nothing_and_LIST_least_of_all) {
  const parx::tcp_store_server server({.key = key});
  parx::tcp_store member({.port = server.port(), .key = key});
  member.set("k", "v", soon());
  const std::string list(1, static_cast<char>(
      *parx::detail::store_protocol::opcode_of(store_dialect::torch_2_5,
                                               parx::detail::store_protocol::operation::list)));
  raw_client modern(server.port());
  modern.send(hello_of_torch() + list);
  // Four bytes that tell a client of parx what it lacks, and the end.
  BOOST_TEST(modern.receive(4) == "PKEY");
  BOOST_TEST(modern.hung_up());
  for (const std::string& first :
       {std::string("\x06"), "\x02" + text("/k"), std::string("GET / ")}) {
    raw_client old(server.port());
    old.send(first);
    BOOST_TEST(old.receive(4) == "PKEY");
    BOOST_TEST(old.hung_up());
  }
  BOOST_TEST(server.clients() == 1U);
}

BOOST_AUTO_TEST_CASE(a_client_says_at_once_what_is_wrong_with_its_secret) {
  const parx::tcp_store_server server({.key = key});
  const auto begin = deadline::clock::now();
  const auto without = message_of([&] { parx::tcp_store({.port = server.port()}); },
                                  parx::errc::protocol);
  BOOST_TEST(without.find("this process has none") != std::string::npos, without);
  const auto other = message_of(
      [&] { parx::tcp_store({.port = server.port(), .key = job_key("guess", "run")}); },
      parx::errc::protocol);
  BOOST_TEST(other.find("has another secret") != std::string::npos, other);
  BOOST_TEST(other.find(secret) == std::string::npos);
  BOOST_TEST((deadline::clock::now() - begin < 2s));
  BOOST_TEST(server.clients() == 0U);
  const parx::tcp_store_server open;
  const auto plain = message_of(
      [&] { parx::tcp_store({.port = open.port(), .timeout = 300ms, .key = key}); },
      parx::errc::timeout);
  BOOST_TEST(plain.find("its process has no secret") != std::string::npos, plain);
}

BOOST_AUTO_TEST_CASE(a_server_that_has_ended_is_not_said_to_lack_the_secret) {
  for (const bool answers : {false, true}) {
    auto server = std::make_unique<parx::tcp_store_server>(
        parx::tcp_store_server_options{.address = "127.0.0.1", .key = key});
    const auto port = server->port();
    parx::tcp_store member({.port = port, .key = key});
    server.reset();
    const auto listener = parx::detail::listen_on("127.0.0.1", port);
    std::thread dying([&] {  // a server's process that is killed during the exchange
      pollfd waiting{listener.get(), POLLIN, 0};
      ::poll(&waiting, 1, 5'000);
      const parx::descriptor client(::accept(listener.get(), nullptr, nullptr));
      char greeting[40];
      ::recv(client.get(), greeting, sizeof greeting, MSG_WAITALL);
      if (answers) ::send(client.get(), greeting, 32, MSG_NOSIGNAL);
      if (answers) ::recv(client.get(), greeting, 32, MSG_WAITALL);
    });
    const auto text = message_of([&] { static_cast<void>(member.watch("k", soon())); },
                                 parx::errc::peer_lost);
    dying.join();
    BOOST_TEST(text.find("secret") == std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(a_server_that_does_not_know_the_key_is_believed_nothing) {
  const parx::descriptor listener = parx::detail::listen_on("127.0.0.1", 0);
  std::thread impostor([&] {
    pollfd waiting{listener.get(), POLLIN, 0};
    ::poll(&waiting, 1, 10'000);
    const parx::descriptor client(::accept(listener.get(), nullptr, nullptr));
    const std::string noise(64, 'n');  // a nonce and a proof
    ::send(client.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    char piece[256];
    while (::recv(client.get(), piece, sizeof piece, 0) > 0) {}
  });
  const auto port = parx::detail::bound_port(listener.get());
  const auto message = message_of([&] { parx::tcp_store({.port = port, .key = key}); },
                                  parx::errc::protocol);
  impostor.join();
  BOOST_TEST(message.find("another secret") != std::string::npos, message);
}

BOOST_AUTO_TEST_CASE(a_recorded_exchange_is_worth_nothing_and_holds_no_secret) {
  const parx::tcp_store_server server({.key = key});
  std::string said;
  std::string heard;
  {
    wire_tap tap(server.port());
    {
      parx::tcp_store member({.port = tap.port(), .key = key});
      member.set("k", "v", soon());
    }
    std::this_thread::sleep_for(100ms);
    said = tap.from_client;
    heard = tap.from_server;
  }
  BOOST_TEST(said.size() > 72U);
  BOOST_TEST((said + heard).find(secret) == std::string::npos);
  BOOST_TEST((said + heard).find(parx::job_key::view(key).substr(0, sizeof(parx::mac))) ==
             std::string::npos);
  raw_client replay(server.port());
  replay.send(said);
  BOOST_TEST(replay.receive(32).size() == 32U);  // a nonce, but not the recorded one
  BOOST_TEST(replay.hung_up());
  // To be somebody's mirror does not help either: a server's proof is no client's.
  raw_client victim(server.port());
  victim.send(said.substr(0, 40));
  const std::string challenge = victim.receive(32);
  BOOST_TEST_REQUIRE(challenge.size() == 32U);
  victim.send(heard.substr(32, 32));
  BOOST_TEST(victim.hung_up());
}

BOOST_AUTO_TEST_CASE(authentication_does_not_depend_on_how_bytes_are_split) {
  using parx::detail::mutual_authentication;
  const parx::detail::authentication_nonce mine{1, 2, 3};
  const std::string hello =
      std::string(parx::detail::authentication_magic).append(job_key::view(mine));
  for (std::size_t piece = 1; piece <= hello.size(); ++piece) {
    mutual_authentication door(key);
    std::string answer;
    for (std::size_t at = 0; at < hello.size(); at += piece) {
      std::string_view part = std::string_view(hello).substr(at, piece);
      BOOST_TEST((door.feed(part, answer) == mutual_authentication::status::need_more));
      BOOST_TEST(part.empty());
    }
    BOOST_TEST_REQUIRE(answer.size() == 32U);
    parx::detail::authentication_nonce theirs{};
    std::copy(answer.begin(), answer.end(), theirs.begin());
    const auto proof = parx::detail::proof_of(key, "store client", mine, theirs);
    std::string rest(job_key::view(proof));
    rest += "behind";
    answer.clear();
    auto status = mutual_authentication::status::need_more;
    std::string_view left;
    for (std::size_t at = 0; at < rest.size() && status == mutual_authentication::status::need_more;
         at += piece) {
      left = std::string_view(rest).substr(at, piece);
      status = door.feed(left, answer);
    }
    BOOST_TEST((status == mutual_authentication::status::admitted));
    BOOST_TEST((answer == job_key::view(
                              parx::detail::proof_of(key, "store server", mine, theirs))));
    BOOST_TEST(std::string_view("behind").starts_with(left));
  }
}

BOOST_AUTO_TEST_CASE(a_proof_takes_less_than_a_millisecond) {
  const parx::tcp_store_server server({.key = key});
  std::vector<double> times;
  for (int round = 0; round < 101; ++round) {
    const auto begin = deadline::clock::now();
    const parx::tcp_store member({.port = server.port(), .key = key});
    times.push_back(std::chrono::duration<double>(deadline::clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 50, times.end());
  BOOST_TEST_MESSAGE("connecting, proof and greeting: " << times[50] * 1e6 << " us");
  BOOST_TEST(times[50] < 1e-3);
}
