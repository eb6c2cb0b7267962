#include <parx/store/tcp.hpp>

#include <store/store_claims.hpp>
#include <store/wire.hpp>
#include <messages.hpp>

#include <poll.h>

#include <memory>

#include <boost/test/unit_test.hpp>

#include <parx/store/tcp_server.hpp>

namespace {

using namespace std::chrono_literals;
using parx::deadline;
using parx::store_dialect;
using parx_test::captured_log;
using store_claims::message_of;
using store_claims::soon;
using store_wire::u64;

// A server that knows its part by heart: for each connection in turn, how many bytes to read and
// what to answer; then it waits for the client to close, or closes where a step reads nothing.
class scripted_server {
 public:
  struct step {
    std::size_t read;
    std::string answer;
  };
  using script = std::vector<step>;

  explicit scripted_server(std::vector<script> connections)
      : listener_(parx::detail::listen_on("127.0.0.1", 0)),
        thread_([this, connections = std::move(connections)] {
          for (const script& steps : connections) play(steps);
        }) {}
  ~scripted_server() { thread_.join(); }

  [[nodiscard]] std::uint16_t port() const { return parx::detail::bound_port(listener_.get()); }

 private:
  void play(const script& steps) {
    pollfd polled{listener_.get(), POLLIN, 0};
    ::poll(&polled, 1, 5000);
    const parx::descriptor client(::accept(listener_.get(), nullptr, nullptr));
    char bytes[256];
    for (const step& s : steps) {
      if (s.read == 0) return;
      ::recv(client.get(), bytes, s.read, MSG_WAITALL);
      const std::string reply = s.answer == "echo" ? std::string(bytes + 6, 4) : s.answer;
      ::send(client.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
    }
    ::recv(client.get(), bytes, 1, MSG_WAITALL);
  }

  parx::descriptor listener_;
  std::thread thread_;
};
const scripted_server::step hangs_up{0, ""};

}  // namespace

BOOST_AUTO_TEST_CASE(a_client_finds_out_that_the_server_speaks_the_newest_dialect) {
  const parx::tcp_store_server server;
  parx::tcp_store store({.port = server.port()});
  BOOST_TEST((store.dialect() == store_dialect::torch_2_5));
  store.set("k", "v");
  BOOST_TEST(server.clients() == 1U);
}

BOOST_AUTO_TEST_CASE(a_watch_wakes_a_poll_set_when_its_key_is_set) {
  const parx::tcp_store_server server;
  parx::tcp_store a({.port = server.port()});
  parx::tcp_store b({.port = server.port()});
  const auto watch = a.watch("abort", soon());
  pollfd polled{watch->descriptor(), POLLIN, 0};
  BOOST_TEST(::poll(&polled, 1, 50) == 0);
  b.set("abort", "rank 3 ran out of memory", soon());
  BOOST_TEST(::poll(&polled, 1, 5000) == 1);
  BOOST_TEST((watch->ready() == parx::watch_state::set));
  BOOST_TEST(watch->value(soon()) == "rank 3 ran out of memory");
  BOOST_TEST((watch->ready() == parx::watch_state::set));
}

BOOST_AUTO_TEST_CASE(a_watch_wakes_a_poll_set_when_the_server_dies) {
  auto server = std::make_unique<parx::tcp_store_server>();
  parx::tcp_store store({.port = server->port()});
  const auto watch = store.watch("abort", soon());
  server.reset();
  pollfd polled{watch->descriptor(), POLLIN, 0};
  BOOST_TEST(::poll(&polled, 1, 5000) == 1);
  BOOST_TEST((watch->ready() == parx::watch_state::lost));
  const auto told = message_of([&] { (void)watch->value(soon()); }, parx::errc::peer_lost);
  BOOST_TEST(told.find("store watch of \"abort\" at tcp_store 127.0.0.1:") == 0U);
}

BOOST_AUTO_TEST_CASE(a_dead_server_fails_calls_at_once_and_names_itself) {
  auto server = std::make_unique<parx::tcp_store_server>();
  parx::tcp_store store({.port = server->port()});
  std::string waiting;
  std::thread waiter([&] {
    try {
      (void)store.get("never", soon());
    } catch (const parx::error& failure) {
      waiting = failure.what();
    }
  });
  std::this_thread::sleep_for(100ms);
  const auto started = deadline::clock::now();
  server.reset();
  waiter.join();
  BOOST_TEST(waiting.find("the server closed the connection") != std::string::npos);
  for (int i = 0; i < 2; ++i) {
    const auto told = message_of([&] { store.set("k", "v", soon()); }, parx::errc::peer_lost);
    BOOST_TEST(told.find("store set of \"k\" at tcp_store 127.0.0.1:") == 0U);
  }
  BOOST_TEST((deadline::clock::now() - started < 2s));
}

BOOST_AUTO_TEST_CASE(a_connection_that_the_server_closed_while_it_was_idle_is_replaced) {
  auto server = std::make_unique<parx::tcp_store_server>();
  const std::uint16_t port = server->port();
  parx::tcp_store store({.port = port});
  const std::string later[] = {"later"};
  std::thread other([&] { store.wait(later, soon()); });
  while (server->clients() < 2) store.add("n", 1, soon());  // on a second connection
  store.set("later", "v", soon());
  other.join();
  // Another one at the same place: both idle connections are closed.
  server.reset();
  server = std::make_unique<parx::tcp_store_server>(parx::tcp_store_server_options{.port = port});
  for (int i = 1; i <= 3; ++i) BOOST_TEST(store.add("n", 1, soon()) == i);
}

BOOST_AUTO_TEST_CASE(a_client_waits_for_a_server_that_comes_later) {
  std::uint16_t port = 0;
  {
    const parx::tcp_store_server reserve;
    port = reserve.port();
  }
  std::unique_ptr<parx::tcp_store_server> server;
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    server = std::make_unique<parx::tcp_store_server>(parx::tcp_store_server_options{.port = port});
  });
  parx::tcp_store store({.host = "localhost", .port = port});
  later.join();
  BOOST_TEST(store.add("n", 1, soon()) == 1);
}

BOOST_AUTO_TEST_CASE(an_unreachable_server_is_named_with_the_attempts_and_the_last_reason) {
  std::uint16_t port = 0;
  {
    const parx::tcp_store_server reserve;
    port = reserve.port();
  }
  auto told = message_of([&] { parx::tcp_store store({.port = port, .timeout = 200ms}); },
                         parx::errc::timeout);
  BOOST_TEST(told.find(fmt::format("store connect at tcp_store 127.0.0.1:{} failed after 0.2 s",
                                   port)) == 0U);
  BOOST_TEST(told.find("attempts; the last one: 127.0.0.1: Connection refused") !=
             std::string::npos);
  told = message_of(
      [&] {
        parx::tcp_store store({.host = "no-such-host.invalid", .port = port, .timeout = 100ms});
      },
      parx::errc::timeout);
  BOOST_TEST(told.find("the name \"no-such-host.invalid\" cannot be resolved") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_client_that_waits_long_says_once_what_it_waits_for) {
  const captured_log log;
  parx::detail::retry_loop retry("tcp_store n1:29500", soon(), 15ms);
  retry.failed("10.0.0.1: Connection refused");
  BOOST_TEST(log.text() == "");
  retry.failed("10.0.0.1: Connection refused");
  retry.failed("10.0.0.1: Connection refused");
  retry.failed("10.0.0.1: Connection refused");
  const std::string claim = "still waiting for tcp_store n1:29500 after 0 s and";
  const auto first = log.text().find(claim);
  BOOST_TEST(first != std::string::npos);
  BOOST_TEST(log.text().find(claim, first + 1) == std::string::npos);
  BOOST_TEST(log.text().find("10.0.0.1: Connection refused") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(something_else_on_the_port_is_a_protocol_error_at_once) {
  const scripted_server web({{{10, "HTTP/1.1 400 Bad Request\r\n"}}});
  const auto told = message_of([&] { parx::tcp_store store({.port = web.port(), .timeout = 5s}); },
                               parx::errc::protocol);
  BOOST_TEST(told.find("something else than a store answers there") != std::string::npos);
}

// torch 1.13 is probed for real in torch_interop_test.cpp.
BOOST_AUTO_TEST_CASE(the_probe_recognises_a_server_of_torch_2_1) {
  const scripted_server server({{{10, ""}, hangs_up}, {{1, u64(0)}}, {{1, "\x01"}, {1, u64(7)}}});
  parx::tcp_store store({.port = server.port()});
  BOOST_TEST((store.dialect() == store_dialect::torch_2_1));
  BOOST_TEST(store.num_keys(soon()) == 7);
}

BOOST_AUTO_TEST_CASE(the_probe_recognises_a_server_of_torch_2_2) {
  const std::string four_answers = u64(0) + u64(0) + u64(0) + u64(0);
  const scripted_server server(
      {{{10, ""}, hangs_up}, {{1, ""}, hangs_up}, {{9, four_answers}, {1, u64(7)}}});
  parx::tcp_store store({.port = server.port()});
  BOOST_TEST((store.dialect() == store_dialect::torch_2_2));
  BOOST_TEST(store.num_keys(soon()) == 7);
}

BOOST_AUTO_TEST_CASE(a_wait_at_a_silent_server_costs_the_deadline_and_little_more) {
  const std::size_t wait_for_k = 1 + 8 + 8 + 2;
  const scripted_server server({{{10, "echo"}, {wait_for_k, ""}, {1, ""}}});
  parx::tcp_store store({.port = server.port()});
  const auto started = deadline::clock::now();
  const auto told =
      message_of([&] { (void)store.get("k", deadline::after(100ms)); }, parx::errc::timeout);
  BOOST_TEST((deadline::clock::now() - started < 1500ms));
  BOOST_TEST(told.find("the server did not answer in time") != std::string::npos, told);
}

BOOST_AUTO_TEST_CASE(a_silent_server_costs_the_deadline_and_not_more) {
  const scripted_server server({{{10, "echo"}, {1, ""}}});
  parx::tcp_store store({.port = server.port()});
  const auto started = deadline::clock::now();
  const auto told =
      message_of([&] { (void)store.num_keys(deadline::after(100ms)); }, parx::errc::timeout);
  BOOST_TEST((deadline::clock::now() - started < 3s));
  BOOST_TEST(told.find("store num_keys at tcp_store") == 0U);
  BOOST_TEST(told.find("the server did not answer in time") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_program_that_accepts_and_never_answers_is_no_store_after_some_silence) {
  const parx::descriptor program = parx::detail::listen_on("127.0.0.1", 0);
  for (const bool has_key : {false, true}) {
    parx::tcp_store_options options{.port = parx::detail::bound_port(program.get()),
                                    .silence = 300ms};
    if (has_key) options.key = parx::job_key("sixteen letters.", "job");
    const auto started = deadline::clock::now();
    const auto told =
        message_of([&] { parx::tcp_store store(options, soon()); }, parx::errc::protocol);
    BOOST_TEST((deadline::clock::now() - started < 3s));
    BOOST_TEST(told.find("another program has this port") != std::string::npos, told);
  }
}

BOOST_AUTO_TEST_CASE(a_server_that_comes_later_than_the_silence_is_waited_for) {
  const std::uint16_t port = parx::detail::bound_port(parx::detail::listen_on("", 0).get());
  std::thread later([&] {
    std::this_thread::sleep_for(600ms);
    const parx::tcp_store_server server({.port = port});
    std::this_thread::sleep_for(2s);
  });
  parx::tcp_store store({.port = port, .silence = 200ms}, deadline::after(5s));
  store.set("k", "v");
  BOOST_TEST(store.get("k") == "v");
  later.join();
}
