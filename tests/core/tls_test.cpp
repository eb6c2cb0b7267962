// tls_session: two ends of a socket pair that take turns, whatever the sizes and the room there is.
#include <parx/core/tls.hpp>

#include <boost/test/unit_test.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <parx/core/descriptor.hpp>
#include <parx/store/detail/listen.hpp>
#include <parx/transport/detail/sockets.hpp>

namespace {

using parx::mac;
using parx::tls_session;
using parx::tls_side;

mac key_of(unsigned char first) {
  mac key{};
  key.front() = first;
  return key;
}

struct ends {
  parx::descriptor client, server;

  explicit ends(int buffer_bytes = 0) {
    int made[2];
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, made) == 0);
    client = parx::descriptor(made[0]);
    server = parx::descriptor(made[1]);
    for (const int each : made) {
      if (buffer_bytes == 0) continue;
      ::setsockopt(each, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    }
  }
};

/// One direction: what is to be sent in the pieces that its caller happens to offer.
struct stream {
  tls_session& from;
  tls_session& to;
  std::string text;
  std::size_t sent = 0;
  std::string got = {};

  [[nodiscard]] bool done() const { return got.size() == text.size(); }

  /// Whether anything has moved.
  bool move(std::mt19937& random) {
    bool moved = false;
    if (sent < text.size()) {
      // As links do: a header and a body; the rest of a message is offered again.
      const std::size_t left = text.size() - sent, cut = random() % std::min<std::size_t>(left, 40);
      const iovec parts[2] = {{text.data() + sent, cut}, {text.data() + sent + cut, left - cut}};
      const auto now = from.send(parts);
      BOOST_REQUIRE((now > 0 || (now < 0 && errno == EAGAIN)));
      if (now > 0) sent += static_cast<std::size_t>(now);
      moved |= now > 0;
    }
    char room[2][5000];
    const std::size_t first = random() % 100, second = 1 + random() % 5000;
    const iovec parts[2] = {{room[0], first}, {room[1], second}};
    const auto now = to.receive(parts);
    BOOST_REQUIRE((now > 0 || (now < 0 && errno == EAGAIN)));
    if (now > 0) {
      const auto size = static_cast<std::size_t>(now);
      got.append(room[0], std::min(size, first));
      if (size > first) got.append(room[1], size - first);
    }
    return moved || now > 0;
  }
};

std::string text_of(std::size_t size, std::mt19937& random) {
  std::string text(size, '\0');
  for (char& each : text) each = static_cast<char>(random());
  return text;
}

/// What one end says of the other where they cannot agree.
std::string refusal(tls_session& one, tls_session& other) {
  const char letter = 'x';
  const iovec out{const_cast<char*>(&letter), 1};
  char room = 0;
  const iovec in{&room, 1};
  std::string said;
  for (int turn = 0; turn < 10; ++turn) {
    if (one.send({&out, 1}) < 0 && errno == EPROTO) return one.reason();
    const auto got = other.receive({&in, 1});
    BOOST_TEST(got <= 0);
    if (got < 0 && errno == EPROTO) said = other.reason();
  }
  return said;
}

/// Another implementation's server: the command `openssl s_server` with these arguments.
class openssl_server {
 public:
  explicit openssl_server(const std::string& arguments) {
    port_ = parx::detail::bound_port(parx::detail::listen_on("127.0.0.1", 0).get());
    folder_ = std::filesystem::temp_directory_path() / ("parx_tls_" + std::to_string(port_));
    std::filesystem::create_directory(folder_);
    has_command_ = std::system(("cd " + folder_ + " && openssl req -x509 -newkey rsa:2048 -nodes "
                                "-keyout key.pem -out cert.pem -subj /CN=x >/dev/null 2>&1")
                                   .c_str()) == 0;
    const std::string command = "cd " + folder_ + " && exec timeout 20 openssl s_server -tls1_3 "
                                "-quiet -rev -naccept 1 -accept 127.0.0.1:" +
                                std::to_string(port_) + " " + arguments + " >log 2>&1";
    if (has_command_) {
      thread_ = std::jthread(
          [command] { [[maybe_unused]] const int code = std::system(command.c_str()); });
    }
  }
  ~openssl_server() {
    if (thread_.joinable()) thread_.join();
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] bool is_there() const { return has_command_; }
  [[nodiscard]] parx::descriptor connect() const {
    const auto address = parx::detail::socket_address::tcp("127.0.0.1", port_);
    for (int attempt = 0; attempt < 200; ++attempt) {
      parx::descriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(made.get(), address.data(), address.length) == 0) return made;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return {};
  }

 private:
  std::uint16_t port_ = 0;
  std::string folder_;
  bool has_command_ = false;
  std::jthread thread_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(bytes_of_any_number_come_as_they_were_sent_in_both_directions) {
  std::mt19937 random(7);
  for (const std::size_t size : {1UL, 2UL, 100UL, 16'384UL, 16'385UL, 100'000UL, 3'000'000UL}) {
    for (const int buffer : {0, 4096}) {  // whose sockets take little at a time
      ends pair(buffer);
      tls_session client(pair.client.get(), tls_side::client, key_of(1));
      tls_session server(pair.server.get(), tls_side::server, key_of(1));
      stream there{client, server, text_of(size, random)};
      stream back{server, client, text_of(size, random)};
      for (int turns = 0; turns < 1'000'000 && !(there.done() && back.done()); ++turns) {
        there.move(random);
        back.move(random);
      }
      BOOST_TEST((there.got == there.text));
      BOOST_TEST((back.got == back.text));
    }
  }
}

BOOST_AUTO_TEST_CASE(polling_the_events_of_a_session_always_wakes) {
  std::mt19937 random(11);
  ends pair(4096);
  tls_session client(pair.client.get(), tls_side::client, key_of(1));
  tls_session server(pair.server.get(), tls_side::server, key_of(1));
  stream there{client, server, text_of(500'000, random)};
  while (!there.done()) {
    if (there.move(random) || server.may_hold_bytes()) continue;
    pollfd polled[2] = {
        {pair.client.get(), client.events(there.sent < there.text.size() ? POLLOUT : short{0}), 0},
        {pair.server.get(), server.events(POLLIN), 0}};
    BOOST_REQUIRE(::poll(polled, 2, 1000) > 0);
  }
  BOOST_TEST((there.got == there.text));
}

BOOST_AUTO_TEST_CASE(encrypted_bytes_contain_no_plaintext) {
  ends pair;
  tls_session client(pair.client.get(), tls_side::client, key_of(1));
  // The other end is somebody who listens: there is no answer, so nothing but a greeting leaves.
  const std::string text(1000, 'a');
  const iovec part{const_cast<char*>(text.data()), text.size()};
  BOOST_TEST(client.send({&part, 1}) == -1);
  char seen[4096];
  const auto size = ::recv(pair.server.get(), seen, sizeof seen, 0);
  BOOST_TEST(size > 0);
  BOOST_TEST(std::string_view(seen, static_cast<std::size_t>(size)).find("aaaa") ==
             std::string_view::npos);
}

BOOST_AUTO_TEST_CASE(another_key_is_refused_with_a_reason) {
  ends pair;
  tls_session client(pair.client.get(), tls_side::client, key_of(1));
  tls_session server(pair.server.get(), tls_side::server, key_of(2));
  const auto said = refusal(client, server);
  BOOST_TEST(said.find("TLS ended the connection: ") == 0U, said);
  BOOST_TEST_MESSAGE(said);
}

#ifndef PARX_SEPARATE_COMPILATION
BOOST_AUTO_TEST_CASE(a_session_that_cannot_be_made_is_freed) {
  static int freed = 0;
  auto library = parx::detail::tls_library::instance();
  library.SSL_SESSION_set_cipher = [](void*, const void*) { return 0; };
  library.SSL_SESSION_free = [](void* session) {
    ++freed;
    parx::detail::tls_library::instance().SSL_SESSION_free(session);
  };
  parx::detail::tls_state state(library, -1, key_of(1));
  state.ssl = library.SSL_new(library.context);
  BOOST_TEST(state.session_of_key() == nullptr);
  BOOST_TEST(freed == 1);
}
#endif

BOOST_AUTO_TEST_CASE(bytes_that_are_no_tls_are_refused_with_a_reason) {
  ends pair;
  tls_session server(pair.server.get(), tls_side::server, key_of(1));
  BOOST_TEST(::send(pair.client.get(), "GET / HTTP/1.1\r\n\r\n", 18, 0) == 18);
  char room[10];
  const iovec part{room, sizeof room};
  BOOST_TEST(server.receive({&part, 1}) == -1);
  BOOST_TEST(errno == EPROTO);
  BOOST_TEST(server.reason().find("TLS ended the connection: ") == 0U, server.reason());
}

BOOST_AUTO_TEST_CASE(openssls_own_server_understands_it_and_a_certificate_is_no_key) {
  // With -rev it answers each line reversed.
  for (const bool knows : {true, false}) {
    const openssl_server server(knows ? "-nocert -psk_identity parx -psk 01" + std::string(62, '0')
                                      : std::string("-cert cert.pem -key key.pem"));
    if (!server.is_there()) {
      std::cout << "SKIPPED: there is no openssl command to talk to\n";
      return;
    }
    const auto socket = server.connect();
    tls_session client(socket.get(), tls_side::client, key_of(1));
    std::string line = "collective\n", answer;
    char room[20];
    const iovec out{line.data(), line.size()}, in{room, sizeof room};
    bool sent = false, failed = false;
    for (int turn = 0; turn < 2000 && !failed && answer.size() < line.size(); ++turn) {
      if (!sent) sent = client.send({&out, 1}) > 0;
      failed = !sent && errno == EPROTO;
      const auto got = client.receive({&in, 1});
      if (got > 0) answer.append(room, static_cast<std::size_t>(got));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    BOOST_TEST(failed == !knows);
    if (knows) BOOST_TEST(answer == "evitcelloc\n");
    else BOOST_TEST(client.reason().find("certificate verify failed") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(an_end_is_an_end_and_a_connection_takes_little_time) {
  using clock = std::chrono::steady_clock;
  std::mt19937 random(3);
  auto best = clock::duration::max();
  for (int round = 0; round < 20; ++round) {
    ends pair;
    tls_session client(pair.client.get(), tls_side::client, key_of(1));
    tls_session server(pair.server.get(), tls_side::server, key_of(1));
    stream there{client, server, "hello"};
    const auto from = clock::now();
    while (!there.done()) there.move(random);
    best = std::min(best, clock::now() - from);
    pair.client.close();
    char room = 0;
    const iovec part{&room, 1};
    BOOST_TEST(server.receive({&part, 1}) == 0);
  }
  const std::chrono::duration<double, std::micro> took = best;
  BOOST_TEST_MESSAGE("a handshake of both sides: " << took.count() << " us");
  BOOST_TEST(took.count() < 20'000);
}
