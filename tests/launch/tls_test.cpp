// Jobs that encrypt: PARX_TLS=1.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <sys/socket.h>

#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <comm/matrix.hpp>
#include <launch/processes.hpp>
#include <messages.hpp>

#include <parx/comm.hpp>
#include <parx/core/descriptor.hpp>

using namespace processes;
using parx_test::mentions;

namespace {

const std::string secret = "open-sesame-0123456789";
const std::string message = "what nobody else may read, ";

parx::environment over_tcp(const std::string& tls, const std::string& streams = "1") {
  return {{"PARX_SECRET", secret},
          {"PARX_TRANSPORT", "tcp"},
          {"PARX_STREAMS", streams},
          {"PARX_TLS", tls}};
}

/// All that passes over the loopback interface from now on.
class sniffer {
 public:
  sniffer() : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL))) {
    const int bytes = 64 << 20;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  }
  [[nodiscard]] bool works() const { return socket_.valid(); }
  /// What has passed so far.
  [[nodiscard]] std::string heard() const {
    std::string all;
    std::vector<char> packet(1 << 17);
    for (;;) {
      const auto got = ::recv(socket_.get(), packet.data(), packet.size(), 0);
      if (got < 0) return all;
      all.append(packet.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  parx::descriptor socket_;
};

void check(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_ranks_tell_each_other_and_the_store_is_nowhere_on_the_network) {
  for (const std::string tls : {"0", "1"}) {
    const sniffer network;
    if (!network.works()) {
      std::cout << "SKIPPED: no packets can be captured here, so nobody has looked into them\n";
      return;
    }
    job all;
    for (int rank = 0; rank < 2; ++rank) {
      all.start(rank, 2,
                [](parx::world& world) {
                  std::string text;
                  while (text.size() < 1000) text += message;
                  if (world.rank() == 0) {
                    world.job_store()->set("told", text, parx::deadline::after(10s));
                    parx::send(world, text, 1);
                  } else {
                    std::string got(text.size(), ' ');
                    parx::recv(world, got, 0);
                    check(got == text, "another text");
                    check(world.job_store()->get("told", parx::deadline::after(10s)) == text,
                          "another value");
                  }
                },
                over_tcp(tls));
    }
    for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
    const std::string heard = network.heard();
    BOOST_TEST(heard.size() > 2000U);
    BOOST_TEST((heard.find(message) == std::string::npos) == (tls == "1"), "PARX_TLS=" << tls);
    BOOST_TEST((heard.find(secret) == std::string::npos));
  }
}

BOOST_AUTO_TEST_CASE(collectives_and_messages_of_all_sizes_are_right) {
  for (const std::string streams : {"1", "3"}) {
    job all;
    constexpr int world_size = 3;
    for (int rank = 0; rank < world_size; ++rank) {
      all.start(rank, world_size,
                [](parx::world& world) {
                  std::mt19937 random(5);
                  for (int i = 0; i < 150; ++i) {
                    matrix::trial call;
                    call.what = static_cast<parx::operation>(random() % 11);
                    call.count = random() % (2U << (random() % 16));
                    call.root = static_cast<int>(random() % world_size);
                    call.in_place = random() % 2 == 0;
                    matrix::run(world, call);
                  }
                  // More than sockets hold, in both directions at once.
                  const int next = (world.rank() + 1) % world_size;
                  const int previous = (world.rank() + world_size - 1) % world_size;
                  for (const std::size_t count : {1UL, 4096UL, 10'000'000UL}) {
                    std::vector<int> mine(count, world.rank()), got(count);
                    auto sent = parx::async_send(world, mine, next);
                    parx::recv(world, got, previous);
                    sent.wait();
                    check(got == std::vector<int>(count, previous), "another message");
                  }
                },
                over_tcp("1", streams));
    }
    for (const auto& each : all.wait(60s)) BOOST_TEST(each.exit_code == 0, each.text);
  }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_is_named_with_encryption_as_without) {
  job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start(rank, 3,
              [](parx::world& world) {
                std::vector<float> data(100'000);
                for (;;) parx::all_reduce(world, data);
              },
              over_tcp("1"));
  }
  std::this_thread::sleep_for(500ms);
  ::kill(all.pid(1), SIGKILL);
  const auto results = all.wait();
  for (const std::size_t rank : {0U, 2U}) {
    BOOST_TEST(results[rank].exit_code == 1, results[rank].text);
    BOOST_TEST(mentions(results[rank].text, "rank 1"), results[rank].text);
    BOOST_TEST(results[rank].seconds < 3);
  }
}

BOOST_AUTO_TEST_CASE(a_job_that_cannot_encrypt_does_not_start) {
  job half;
  half.start(0, 2, [](parx::world& world) { parx::barrier(world); }, over_tcp("1"));
  half.start(1, 2, [](parx::world& world) { parx::barrier(world); }, over_tcp("0"));
  std::this_thread::sleep_for(1s);
  ::kill(half.pid(0), SIGTERM);
  const auto halves = half.wait();
  BOOST_TEST(mentions(halves[1].text, "the same PARX_TLS"), halves[1].text);

  job open;
  parx::environment without = over_tcp("1");
  without.erase("PARX_SECRET");
  for (int rank = 0; rank < 2; ++rank) open.start(rank, 2, [](parx::world&) {}, without);
  for (const auto& each : open.wait()) {
    BOOST_TEST(mentions(each.text, "PARX_TLS=1: a job without a secret has no key"), each.text);
  }
}
