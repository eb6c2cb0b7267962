// Those who connect to a rank without being of its job.
#include <parx/transport/detail/incoming_connections.hpp>

#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/store/hash.hpp>
#include <parx/transport/hybrid.hpp>

namespace {

using namespace std::chrono_literals;
using namespace parx::detail;
using parx::descriptor;
using parx::job_key;
using parx::mac;

const job_key key("open-sesame-0123456789", "run");
const std::string challenge = "0123456789abcdef0123456789abcdef";
const std::string token = "fedcba9876543210fedcba9876543210";

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

descriptor connected(const socket_address& address) {
  descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BOOST_TEST_REQUIRE(::connect(socket.get(), address.data(), address.length) == 0);
  return socket;
}

// Sends bytes with as many descriptors.
void send_with(const descriptor& socket, const void* bytes, std::size_t size, int passed) {
  const descriptor memory(::memfd_create("test", MFD_CLOEXEC));
  const std::vector<int> numbers(static_cast<std::size_t>(passed), memory.get());
  std::vector<char> control(CMSG_SPACE(sizeof(int) * numbers.size()));
  iovec part{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int) * numbers.size());
  std::memcpy(CMSG_DATA(head), numbers.data(), sizeof(int) * numbers.size());
  BOOST_TEST_REQUIRE(::sendmsg(socket.get(), &message, MSG_NOSIGNAL) ==
                     static_cast<ssize_t>(size));
}

link_hello hello_of(int rank, std::uint64_t count) {
  link_hello greeting;
  greeting.group = 7;
  greeting.from = rank;
  greeting.to = 0;
  greeting.rank = rank;
  greeting.count = count;
  return greeting;
}
link_hello proven(link_hello greeting) {
  greeting.proof = proof_of_hello(key, greeting, challenge);
  return greeting;
}

// Sends a hello and looks whether it is taken for what it says.
struct claimed {
  bool taken = false;
  parx::mac proof{};         // for the link to send
  bool is_answered = false;  // before the link sends anything
};
claimed claim_after(incoming_connections& incoming, const link_hello& greeting) {
  const descriptor socket = connected(socket_address::tcp("127.0.0.1", incoming.port()));
  ::send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL);
  claimed result;
  arrival mine;
  const auto until = std::chrono::steady_clock::now() + 60ms;
  while (!mine && std::chrono::steady_clock::now() < until) {
    mine = incoming.claim({greeting.group, greeting.from, greeting.what_for, greeting.stream});
    std::this_thread::sleep_for(1ms);
  }
  result.taken = static_cast<bool>(mine);
  result.proof = mine.proof;
  char byte = 0;
  result.is_answered = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) > 0;
  return result;
}

std::unique_ptr<parx::hybrid_links> transport_of(const std::shared_ptr<parx::hash_store>& store,
                                                     int rank, const char* kind,
                                                     std::optional<job_key> of) {
  endpoint_options given{.job_store = store,
                         .store_host = "127.0.0.1",
                         .rank = rank,
                         .world_size = 2,
                         .local_world_size = 2,
                         .may_spin = false,
                         .env = {{"PARX_TRANSPORT", kind}},
                         .key = std::move(of)};
  return std::make_unique<parx::hybrid_links>(std::make_shared<endpoint>(std::move(given)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(descriptors_that_strangers_pass_do_no_harm_and_do_not_stay) {
  const std::string name = "parx-test-" + random_hex();
  incoming_connections incoming("127.0.0.1", name);
  incoming.accept_with(token, std::nullopt, "");
  const auto before = open_descriptors();
  for (const int passed : {1, 2, 3, 200}) {
    for (const std::size_t size : {std::size_t{1}, sizeof(link_hello)}) {
      const std::string noise(size, 'x');
      const descriptor stranger = connected(socket_address::abstract(name));
      send_with(stranger, noise.data(), noise.size(), passed);
      if (size == 1) send_with(stranger, noise.data(), 1, 1);  // and one more
      BOOST_CHECK_NO_THROW(static_cast<void>(incoming.claim({7, 1})));
    }
  }
  BOOST_CHECK_NO_THROW(static_cast<void>(incoming.claim({7, 1})));
  BOOST_TEST(open_descriptors() == before);
}

BOOST_AUTO_TEST_CASE(a_later_hello_does_not_take_the_place_of_the_first) {
  incoming_connections incoming("127.0.0.1", "");
  incoming.accept_with(token, std::nullopt, "");
  link_hello greeting = hello_of(1, 0);
  std::copy(token.begin(), token.end(), greeting.proof.begin());
  const auto address = socket_address::tcp("127.0.0.1", incoming.port());
  const descriptor first = connected(address);
  ::send(first.get(), &greeting, sizeof greeting, 0);
  static_cast<void>(incoming.claim({8, 1}));  // hears it
  const descriptor second = connected(address);
  ::send(second.get(), &greeting, sizeof greeting, 0);
  static_cast<void>(incoming.claim({8, 1}));
  const arrival mine = incoming.claim({7, 1});
  BOOST_TEST_REQUIRE(static_cast<bool>(mine));
  BOOST_TEST(::send(mine.socket.get(), "1", 1, MSG_NOSIGNAL) == 1);
  char byte = 0;
  BOOST_TEST(::recv(first.get(), &byte, 1, 0) == 1);
  BOOST_TEST(::recv(second.get(), &byte, 1, 0) <= 0);  // closed
}

BOOST_AUTO_TEST_CASE(only_a_hello_that_is_proven_for_this_rank_and_fresh_is_taken) {
  incoming_connections incoming("127.0.0.1", "");
  incoming.accept_with(token, key, challenge);
  const link_hello genuine = proven(hello_of(1, 0));
  const claimed first = claim_after(incoming, genuine);
  BOOST_TEST(first.taken);
  BOOST_TEST((first.proof == proof_of_welcome(key, genuine)));
  BOOST_TEST(!first.is_answered);  // the caller may have left: an answer would reset the connection
  BOOST_TEST(!claim_after(incoming, genuine).taken);  // a recorded one

  link_hello with_token = hello_of(1, 1);
  std::copy(token.begin(), token.end(), with_token.proof.begin());
  BOOST_TEST(!claim_after(incoming, with_token).taken);
  link_hello of_earlier_start = hello_of(1, 1);
  of_earlier_start.proof = proof_of_hello(key, of_earlier_start, "another challenge");
  BOOST_TEST(!claim_after(incoming, of_earlier_start).taken);
  link_hello of_another_job = hello_of(1, 1);
  of_another_job.proof =
      proof_of_hello(job_key("open-sesame-0123456789", "other run"), of_another_job, challenge);
  BOOST_TEST(!claim_after(incoming, of_another_job).taken);
  for (int change = 0; change < 5; ++change) {
    link_hello changed = proven(hello_of(1, 1));
    if (change == 0) changed.group = 8;
    if (change == 1) changed.from = 2;
    if (change == 2) changed.what_for = purpose::message;
    if (change == 3) changed.rank = 3;
    if (change == 4) changed.count = 2;
    const claimed result = claim_after(incoming, changed);
    BOOST_TEST(!result.taken, "change " << change);
    BOOST_TEST(!result.is_answered);
  }
  // Out of order, as connections come.
  for (const std::uint64_t count : {5U, 2U, 1U, 3U}) {
    BOOST_TEST(claim_after(incoming, proven(hello_of(1, count))).taken);
    BOOST_TEST(!claim_after(incoming, proven(hello_of(1, count))).taken);
  }
  BOOST_TEST(claim_after(incoming, proven(hello_of(2, 5))).taken);  // of another rank
}

BOOST_AUTO_TEST_CASE(ranks_that_know_the_secret_are_linked_and_others_are_not_believed) {
  for (const char* kind : {"tcp", "auto"}) {
    const auto store = std::make_shared<parx::hash_store>();
    const auto first = transport_of(store, 0, kind, key);
    const auto second = transport_of(store, 1, kind, key);
    auto& from = second->link_to(0, parx::channel::collective);
    auto& to = first->link_to(1, parx::channel::collective);
    const auto exchange = [](parx::link& out, parx::link& in, char sent) {
      const auto until = std::chrono::steady_clock::now() + 5s;
      const std::byte byte{static_cast<std::byte>(sent)};
      std::byte got{};
      bool gone = false;
      bool come = false;
      while (!come && std::chrono::steady_clock::now() < until) {
        gone = gone || out.try_send({&byte, 1}, {}) > 0;
        come = in.try_receive({&got, 1}, {}) > 0;
      }
      return static_cast<char>(got);
    };
    BOOST_TEST(exchange(from, to, 'a') == 'a');
    BOOST_TEST(exchange(to, from, 'b') == 'b');
    for (int i = 0; i < 100; ++i) BOOST_TEST_REQUIRE(exchange(from, to, 'c') == 'c');
  }
}

BOOST_AUTO_TEST_CASE(an_impostor_at_a_ranks_address_is_found_out) {
  const auto store = std::make_shared<parx::hash_store>();
  const auto first = transport_of(store, 0, "tcp", key);
  const auto second = transport_of(store, 1, "tcp", key);
  // Who listens there now takes whatever comes, and answers as if it were the rank.
  const descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto address = socket_address::tcp("127.0.0.1", 0);
  BOOST_TEST_REQUIRE(::bind(listener.get(), address.data(), address.length) == 0);
  BOOST_TEST_REQUIRE(::listen(listener.get(), 4) == 0);
  ::getsockname(listener.get(), address.data(), &address.length);
  auto record = peer_record::from_text(store->get(endpoint::record_key(0)));
  record.port = address.port();
  store->set(endpoint::record_key(0), record.to_text());
  auto& from = second->link_to(0, parx::channel::collective);
  std::byte byte{};
  std::string why;
  try {
    static_cast<void>(from.try_send({&byte, 1}, {}));
    const descriptor caller(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string lies(100, 'l');
    ::send(caller.get(), lies.data(), lies.size(), MSG_NOSIGNAL);
    const auto until = std::chrono::steady_clock::now() + 5s;
    while (std::chrono::steady_clock::now() < until) {
      if (from.try_receive({&byte, 1}, {}) > 0) break;
    }
    BOOST_TEST(static_cast<char>(byte) != 'l');
  } catch (const std::exception& lost) {
    why = lost.what();
  }
  BOOST_TEST(why.find("does not know this job's secret") != std::string::npos, why);
}

BOOST_AUTO_TEST_CASE(proofs_of_a_link_take_much_less_than_a_millisecond) {
  constexpr int rounds = 1000;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const link_hello greeting = proven(hello_of(1, i));  // the connecting side makes one proof
    BOOST_TEST_REQUIRE((proof_of_hello(key, greeting, challenge) == greeting.proof));
    const mac answer = proof_of_welcome(key, greeting);  // and both compute the other
    BOOST_TEST_REQUIRE((proof_of_welcome(key, greeting) == answer));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  BOOST_TEST_MESSAGE("all proofs of a link: " << took.count() / rounds * 1e6 << " us");
  BOOST_TEST(took.count() / rounds < 1e-3);
}
