#include <parx/store/tcp_server.hpp>

#include <store/raw_client.hpp>
#include <store/store_claims.hpp>
#include <store/wire.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <random>

#include <boost/test/unit_test.hpp>

#include <parx/store/tcp.hpp>

namespace {

using namespace std::chrono_literals;
using parx::deadline;
using parx::store_dialect;
using store_claims::message_of;
using store_claims::soon;
using store_wire::text;
using store_wire::u64;

bool becomes(const std::function<bool()>& condition) {
  const auto limit = deadline::after(10s);
  while (!condition()) {
    if (limit.passed()) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

}  // namespace

BOOST_AUTO_TEST_CASE(clients_of_all_dialects_meet_in_one_server) {
  const parx::tcp_store_server server;
  std::vector<std::unique_ptr<parx::tcp_store>> stores;
  for (const auto dialect :
       {store_dialect::torch_1_13, store_dialect::torch_2_2, store_dialect::torch_2_5}) {
    stores.push_back(std::make_unique<parx::tcp_store>(
        parx::tcp_store_options{.port = server.port(), .dialect = dialect}));
  }
  for (auto& store : stores) store->add("met", 1, soon());
  for (auto& store : stores) BOOST_TEST(store->get("met", soon()) == "3");
}

// Golden bytes captured from torch 1.13.1, answers included.
BOOST_AUTO_TEST_CASE(the_server_answers_byte_for_byte_as_pytorch_does) {
  const parx::tcp_store_server server;
  raw_client c(server.port());
  const std::string zero(1, '\0');
  c.send("\x03" + text("init/") + u64(1));
  BOOST_TEST((c.receive(8) == u64(1)));
  c.send(zero + text("/k") + text("hello") + "\x05" + u64(1) + text("/k"));
  BOOST_TEST((c.receive(1) == zero));
  c.send("\x02" + text("/k"));
  BOOST_TEST((c.receive(13) == text("hello")));
  c.send("\x01" + text("/k") + text("hello") + text("x"));
  BOOST_TEST((c.receive(9) == text("x")));
  c.send("\x01" + text("/missing") + text("q") + text("y"));
  BOOST_TEST((c.receive(9) == text("q")));
  c.send("\x06");
  BOOST_TEST((c.receive(8) == u64(2)));
  c.send("\x08" + text("/k") + "\x08" + text("/k"));
  BOOST_TEST((c.receive(16) == u64(1) + u64(0)));
  c.send("\x04" + u64(1) + text("/k") + "\x04" + u64(0));
  BOOST_TEST((c.receive(2) == std::string("\x01\x00", 2)));
  // A watch of torch 1.13: registered, created, updated, removed.
  raw_client watcher(server.port());
  watcher.send("\x07" + text("/w"));
  BOOST_TEST(watcher.receive(1) == "\x03");
  c.send(zero + text("/w") + text("a") + zero + text("/w") + text("b") + "\x08" + text("/w"));
  const std::string expected = "\x01" + text("/w") + text("") + text("a") + zero + text("/w") +
                               text("a") + text("b") + "\x02" + text("/w") + text("b") + text("");
  BOOST_TEST((watcher.receive(expected.size()) == expected));
}

BOOST_AUTO_TEST_CASE(the_server_answers_the_newest_requests_too) {
  const parx::tcp_store_server server;
  raw_client c(server.port());
  raw_client other(server.port());
  const std::string hello("\x00\xce\xf7\x85\x3c", 5);
  c.send(hello +
         "\x0d"
         "abcd");
  BOOST_TEST(c.receive(4) == "abcd");
  other.send(hello + "\x06" + u64(1) + text("/q"));
  // A queue: push twice, length, pop three times; a waiter for it is woken.
  c.send("\x0e" + text("/q") + text("one") + "\x0e" + text("/q") + text("two") + "\x10" +
         text("/q"));
  BOOST_TEST((c.receive(8) == u64(2)));
  BOOST_TEST((other.receive(1) == std::string(1, '\0')));
  c.send("\x0f" + text("/q"));
  BOOST_TEST((c.receive(8 + 11) == u64(2) + text("one")));
  c.send("\x0f" + text("/q") + "\x0f" + text("/q"));
  BOOST_TEST((c.receive(8 + 11 + 8) == u64(1) + text("two") + u64(0)));
  c.send("\x01" + text("/a") + text("v") + "\x11");
  BOOST_TEST((c.receive(18) == u64(1) + text("/a")));
  c.send("\x03" + text("/nothing"));
  BOOST_TEST((c.receive(8) == u64(0)));
  // A cancellation is always answered, and after it the wait never is.
  c.send("\x0c");
  BOOST_TEST(c.receive(1) == "\x01");
  c.send("\x06" + u64(1) + text("/later") + "\x0c");
  BOOST_TEST(c.receive(1) == "\x01");
  other.send("\x01" + text("/later") + text("") + "\x07");
  BOOST_TEST((other.receive(8) == u64(2)));
  c.send("\x07");
  BOOST_TEST((c.receive(8) == u64(2)));
}

BOOST_AUTO_TEST_CASE(strangers_are_hung_up_on_and_others_do_not_notice) {
  const parx::tcp_store_server server;
  parx::tcp_store store({.port = server.port()});
  for (const std::string& greeting :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
        std::string("SSH-2.0-nmap\r\n"), std::string(100, '\xff')}) {
    raw_client stranger(server.port());
    stranger.send(greeting);
    BOOST_TEST(stranger.hung_up());
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    raw_client stranger(server.port());
    std::string noise(1 + random() % 500, '\0');
    for (char& c : noise) c = static_cast<char>(random() % 256);
    stranger.send(noise);  // and gone again
  }
  BOOST_TEST(store.add("still", 1, soon()) == 1);
  BOOST_TEST(store.num_keys(soon()) <= 2);
}

BOOST_AUTO_TEST_CASE(half_a_request_freezes_nobody_and_costs_no_memory) {
  const parx::tcp_store_server server;
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  std::vector<std::unique_ptr<raw_client>> halves;
  for (int i = 0; i < 50; ++i) {
    halves.push_back(std::make_unique<raw_client>(server.port()));
    // Announces 8 MiB, sends three bytes of it.
    halves.back()->send(std::string(1, '\0') + text("/k") + u64(8 << 20) + "abc");
    halves.push_back(std::make_unique<raw_client>(server.port()));
    halves.back()->send(std::string("\x00\xce", 2));
  }
  parx::tcp_store store({.port = server.port()});
  const auto started = deadline::clock::now();
  for (int i = 0; i < 50; ++i) store.add("n", 1, soon());
  BOOST_TEST((deadline::clock::now() - started < 2s));
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  BOOST_TEST(after.ru_maxrss - before.ru_maxrss <
             64 * 1024);  // KiB; 50 values of 8 MiB would be 400
}

BOOST_AUTO_TEST_CASE(a_client_that_takes_no_answers_is_not_read_from_and_harms_nobody) {
  const parx::tcp_store_server server;
  parx::tcp_store store({.port = server.port()});
  store.set("big", std::string(4 << 20, 'b'), soon());
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  raw_client greedy(server.port());
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += "\x02" + text("/big");
  greedy.send(requests);  // 400 MiB of answers
  for (int i = 0; i < 20; ++i) BOOST_TEST_REQUIRE(store.add("n", 1, soon()) == i + 1);
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  BOOST_TEST(after.ru_maxrss - before.ru_maxrss < 100 * 1024);
  // It gets all of them once it reads.
  const std::size_t all = 100 * (8 + (std::size_t{4} << 20));
  std::size_t got = 0;
  while (got < all) {
    const auto piece = greedy.receive(std::min<std::size_t>(all - got, 1 << 20));
    if (piece.empty() || piece == "closed") break;
    got += piece.size();
  }
  BOOST_TEST(got == all);
}

BOOST_AUTO_TEST_CASE(waiters_of_closed_connections_are_forgotten) {
  const parx::tcp_store_server server;
  parx::tcp_store store({.port = server.port()});
  {
    raw_client waiter(server.port());
    waiter.send("\x05" + u64(2) + text("/a") + text("/b"));
    BOOST_TEST(becomes([&] { return server.clients() == 2; }));
  }
  BOOST_TEST(becomes([&] { return server.clients() == 1; }));
  store.set("a", "", soon());
  store.set("b", "", soon());
  BOOST_TEST(store.num_keys(soon()) == 2);
}

BOOST_AUTO_TEST_CASE(two_hundred_clients_meet_at_once) {
  constexpr int ranks = 200;
  parx::tcp_store_server server;
  std::atomic<int> arrived = 0;
  std::mutex mutex;
  std::string failures;
  std::vector<std::thread> crowd;
  for (int rank = 0; rank < ranks; ++rank) {
    crowd.emplace_back([&, rank] {
      try {
        parx::tcp_store store({.port = server.port()});
        store.set("rank/" + std::to_string(rank), std::to_string(rank * rank), soon());
        if (store.add("arrived", 1, soon()) == ranks) store.set("all", "here", soon());
        if (store.get("all", soon()) != "here") throw std::runtime_error("wrong value");
        const int next = (rank + 1) % ranks;
        if (store.get("rank/" + std::to_string(next), soon()) != std::to_string(next * next)) {
          throw std::runtime_error("wrong neighbour");
        }
        ++arrived;
      } catch (const std::exception& failure) {
        const std::lock_guard lock(mutex);
        failures += failure.what();
      }
    });
  }
  for (std::thread& t : crowd) t.join();
  BOOST_TEST(failures == "");
  BOOST_TEST(arrived == ranks);
  BOOST_TEST(server.wait_for_leavers(0, soon()));
}

BOOST_AUTO_TEST_CASE(a_port_in_use_is_blamed_on_the_process_that_has_it) {
  std::array<int, 2> ports{};
  std::array<int, 2> end{};
  BOOST_TEST_REQUIRE((::pipe(ports.data()) == 0 && ::pipe(end.data()) == 0));
  const pid_t other = ::fork();
  if (other == 0) {
    ::close(end[1]);
    char byte = 0;
    try {
      const auto listening = parx::detail::listen_on("", 0);
      const std::uint16_t port = parx::detail::bound_port(listening.get());
      if (::write(ports[1], &port, sizeof port) == sizeof port) (void)!::read(end[0], &byte, 1);
    } catch (...) {
    }
    ::_exit(0);
  }
  std::uint16_t port = 0;
  BOOST_TEST_REQUIRE(::read(ports[0], &port, sizeof port) == ssize_t{sizeof port});
  const auto told =
      message_of([&] { const parx::tcp_store_server second({.port = port}); }, parx::errc::io);
  for (const int each : {ports[0], ports[1], end[0], end[1]}) ::close(each);
  ::waitpid(other, nullptr, 0);
  BOOST_TEST(told.find(fmt::format("port {}: it is in use by process {} (", port, other)) !=
             std::string::npos, told);
}

BOOST_AUTO_TEST_CASE(a_process_that_has_a_port_cannot_forge_lines_of_the_message) {
  const std::string said = parx::detail::in_use_text(
      {.pid = 7, .command = "sh\n[parx rank 3] error: forged\x1b[2J", .socket = {}});
  BOOST_TEST(said.find("process 7 (sh\\x0a[parx rank 3] error: forged\\x1b[2J)") !=
                 std::string::npos,
             said);
}

BOOST_AUTO_TEST_CASE(a_port_that_this_process_has_itself_is_not_blamed_on_a_process_to_end) {
  const parx::tcp_store_server first;
  BOOST_CHECK_EXCEPTION(parx::tcp_store_server({.port = first.port()}), parx::usage_error,
                        [](const parx::usage_error& refused) {
                          const std::string_view text = refused.what();
                          return text.find(
                                     "listens there already. Has it called parx::init() or "
                                     "run()") != text.npos;
                        });
}

BOOST_AUTO_TEST_CASE(the_owner_of_a_port_is_found_in_the_kernels_table) {
  const std::string_view table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:7339 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 "
      "111 1\n"
      "   1: 00000000:7339 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 "
      "222 1\n";
  const auto listening = parx::detail::socket_at(table, 29497);
  BOOST_TEST(listening.inode == 222U);
  BOOST_TEST(listening.user == 1000U);
  BOOST_TEST(listening.listens);
  const auto connected = parx::detail::socket_at(table.substr(0, table.find("   1:")), 29497);
  BOOST_TEST(connected.inode == 111U);
  BOOST_TEST(!connected.listens);
  BOOST_TEST(parx::detail::socket_at(table, 40000).inode == 0U);
}

BOOST_AUTO_TEST_CASE(a_port_whose_process_is_not_found_is_told_so_and_no_process_is_to_be_ended) {
  const parx::descriptor bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  BOOST_TEST_REQUIRE(
      ::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const std::uint16_t port = parx::detail::bound_port(bound.get());
  BOOST_TEST(message_of([&] { (void)parx::detail::listen_on("", port); }, parx::errc::io) ==
             fmt::format("a store cannot listen on port {}: it is in use, but /proc does not show "
                         "by which process: it may have the port without listening. Choose another "
                         "port.",
                         port));
  BOOST_TEST(parx::detail::in_use_text({0, {}, {.inode = 5, .user = 1001}}) ==
             "it is in use by a process of user 1001 that cannot be seen from here: that of "
             "another user, or in another container. Choose another port.");
}

BOOST_AUTO_TEST_CASE(a_socket_that_listens_already_can_be_handed_over) {
  parx::descriptor listener = parx::detail::listen_on("127.0.0.1", 0);
  const auto port = parx::detail::bound_port(listener.get());
  const parx::tcp_store_server server({.listening_descriptor = listener.release()});
  BOOST_TEST(server.port() == port);
  parx::tcp_store store({.port = port});
  BOOST_TEST(store.add("n", 1, soon()) == 1);
  parx::descriptor no_listener(::socket(AF_INET, SOCK_STREAM, 0));
  BOOST_CHECK_THROW(parx::tcp_store_server({.listening_descriptor = no_listener.release()}),
                    parx::usage_error);
}

BOOST_AUTO_TEST_CASE(the_server_takes_ipv6_and_ipv4_on_one_port) {
  const parx::tcp_store_server server;
  parx::tcp_store four({.host = "127.0.0.1", .port = server.port()});
  four.set("k", "v", soon());
  try {
    for (const char* host : {"::1", "[::1]"}) {
      parx::tcp_store six({.host = host, .port = server.port(), .timeout = 2s});
      BOOST_TEST(six.get("k", soon()) == "v");
      BOOST_TEST(six.describe() == fmt::format("tcp_store [::1]:{}", server.port()));
    }
    const parx::tcp_store_server bound({.address = "[::1]"});
    parx::tcp_store to_bound({.host = "::1", .port = bound.port(), .timeout = 2s});
    BOOST_CHECK_THROW(
        parx::tcp_store({.host = "127.0.0.1", .port = bound.port(), .timeout = 50ms}), parx::error);
  } catch (const parx::error& failure) {
    BOOST_TEST_MESSAGE("no IPv6 on this host: " << failure.what());
  }
}

BOOST_AUTO_TEST_CASE(the_host_can_wait_for_the_last_to_leave) {
  parx::tcp_store_server server;
  parx::tcp_store own({.port = server.port()});
  own.add("n", 1, soon());
  auto guest = std::make_unique<parx::tcp_store>(parx::tcp_store_options{.port = server.port()});
  guest->add("n", 1, soon());
  BOOST_TEST(server.clients() == 2U);
  BOOST_TEST(!server.wait_for_leavers(1, deadline::after(30ms)));
  std::thread leaver([&] {
    std::this_thread::sleep_for(50ms);
    guest.reset();
  });
  BOOST_TEST(server.wait_for_leavers(1, soon()));
  leaver.join();
}

BOOST_AUTO_TEST_CASE(connections_that_say_nothing_are_no_clients_and_hold_up_nobody) {
  const auto key = parx::job_key("open-sesame-0123456789", "a job");
  for (const bool is_secret : {false, true}) {
    const auto known = is_secret ? std::optional(key) : std::nullopt;
    auto server =
        std::make_unique<parx::tcp_store_server>(parx::tcp_store_server_options{.key = known});
    std::vector<std::unique_ptr<raw_client>> silent;
    for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<raw_client>(server->port()));
    parx::tcp_store own({.port = server->port(), .key = known});
    BOOST_TEST(own.add("n", 1, soon()) == 1);
    BOOST_TEST(server->clients() == 1U);
    BOOST_TEST(server->wait_for_leavers(1, soon()));    // nobody else has come
    BOOST_TEST(silent.front()->receive(1, 1ms) == "");  // nor been hung up on
    server.reset();
    for (auto& each : silent) BOOST_TEST(each->hung_up());
  }
}

BOOST_AUTO_TEST_CASE(a_pytorch_host_can_count_this_worker) {
  const parx::tcp_store_server server;
  const parx::tcp_store first({.port = server.port(), .workers = parx::worker_count::increment});
  const parx::tcp_store second({.port = server.port(), .workers = parx::worker_count::increment});
  raw_client c(server.port());
  c.send("\x02" + text("init/"));
  BOOST_TEST((c.receive(9) == text("2")));
}

BOOST_AUTO_TEST_CASE(no_descriptor_survives_an_exec) {
  const auto survivors = [] {
    std::vector<int> files;
    for (int file = 3; file < 512; ++file) {
      const int flags = ::fcntl(file, F_GETFD);
      if (flags >= 0 && (flags & FD_CLOEXEC) == 0) files.push_back(file);
    }
    return files;
  };
  const auto inherited = survivors();
  const parx::tcp_store_server server;
  parx::tcp_store store({.port = server.port()});
  const auto watch = store.watch("k", soon());
  BOOST_TEST(survivors() == inherited, boost::test_tools::per_element());
}
