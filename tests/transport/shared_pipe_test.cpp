// One direction of a link through shared memory, in one process: what arrives, and by which way.
#include <parx/transport/detail/shared_pipe.hpp>

#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace {

using parx::prefix_bytes;

/// A layer's own: a pipe knows no more of it than its size and where its number lies.
struct opaque_prefix {
  std::uint64_t shape = 0;
  std::uint64_t other = 0;
  std::uint64_t number = 0;
  std::uint64_t rest[5] = {};
};
static_assert(sizeof(opaque_prefix) == prefix_bytes &&
              offsetof(opaque_prefix, number) == parx::prefix_number_at);

struct message {
  opaque_prefix prefix;
  std::vector<std::byte> body;
};

/// Deterministic: both ends can say what message `number` is. Every seventh or so has another
/// shape.
message message_of(std::uint64_t number) {
  const std::uint64_t shape = number / 7;
  message made;
  made.prefix.number = number;
  made.prefix.shape = shape;
  made.body.resize((shape * 0x9e3779b97f4a7c15u >> 58) % 40);
  std::fill(made.body.begin(), made.body.end(), static_cast<std::byte>(number));
  return made;
}

struct test_pipe {
  static constexpr std::size_t capacity = 4096;
  parx::detail::pipe_state state;
  std::vector<std::byte> ring = std::vector<std::byte>(capacity);
  parx::detail::pipe_sender sender{state, ring.data(), capacity};
  parx::detail::write_guard guard = parx::detail::write_guard::create();
  parx::detail::pipe_receiver receiver{state, ring.data(), capacity};

  /// What send() has left of a message is in `done`, which begins and ends at 0.
  bool send(const message& what, std::size_t& done) {
    const auto head = std::bit_cast<std::array<std::byte, prefix_bytes>>(what.prefix);
    const std::size_t of_head = std::min(done, prefix_bytes);
    const std::size_t of_body = done - of_head;
    done += sender.send({.data = head.data() + of_head, .size = prefix_bytes - of_head},
                        {.data = what.body.data() + of_body, .size = what.body.size() - of_body});
    return done == prefix_bytes + what.body.size();
  }
  bool receive(message& to, std::size_t& done) {
    auto* head = reinterpret_cast<std::byte*>(&to.prefix);
    const std::size_t of_head = std::min(done, prefix_bytes);
    const std::size_t of_body = done - of_head;
    done += receiver.receive({head + of_head, prefix_bytes - of_head},
                             {to.body.data() + of_body, to.body.size() - of_body}, 0, 0);
    return done == prefix_bytes + to.body.size();
  }
  void send(const message& what) {
    std::size_t done = 0;
    BOOST_REQUIRE(send(what, done));
  }
  message receive(std::size_t body) {
    message got{{}, std::vector<std::byte>(body)};
    std::size_t done = 0;
    BOOST_REQUIRE(receive(got, done));
    return got;
  }
};

bool same(const message& a, const message& b) {
  return std::memcmp(&a.prefix, &b.prefix, sizeof a.prefix) == 0 && a.body == b.body;
}
message like(std::uint64_t sequence, std::size_t body) {
  message made;
  made.prefix.number = sequence;
  made.body.assign(body, static_cast<std::byte>(sequence));
  return made;
}

/// A pipe whose ends may read and write each other's memory, and one large message.
struct offering_pipe : test_pipe {
  std::vector<std::byte> source;
  std::vector<std::byte> target;
  std::size_t sent = 0;
  std::size_t received = 0;

  explicit offering_pipe(std::size_t size, pid_t writes_to = ::getpid())
      : source(size), target(size) {
    for (std::size_t i = 0; i < size; ++i)
      source[i] = static_cast<std::byte>(i * 0x9e3779b97f4a7c15u >> 56);
    receiver.permit_offers(guard);
    sender.permit_writes(writes_to);
  }
  void send_some() {
    sent += sender.send(
        {}, {.data = source.data() + sent, .size = source.size() - sent, .send_only = true});
  }
  std::size_t receive_some() {
    const std::size_t rest = target.size() - received;
    const std::size_t got = receiver.receive(
        {}, {target.data() + received, std::min<std::size_t>(rest, 4096), rest}, ::getpid(), 0);
    received += got;
    return got;
  }
  /// Once more, with what was received forgotten.
  void pass_on_two_threads() {
    sent = received = 0;
    std::fill(target.begin(), target.end(), std::byte{});
    std::thread other([&] {
      while (sent < source.size()) {
        send_some();
        std::this_thread::yield();
      }
    });
    while (received < target.size()) {
      if (receive_some() == 0) std::this_thread::yield();
    }
    other.join();
  }
  [[nodiscard]] std::uint32_t stage() const {
    return state.request.load() % parx::detail::pipe_state::request_stages;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_small_message_with_the_last_ones_prefix_lies_on_the_line_that_announces_it) {
  for (std::size_t body = 0; body <= 24; ++body) {
    test_pipe between;
    between.send(like(1, body));
    BOOST_TEST(same(between.receive(body), like(1, body)));
    for (std::uint64_t sequence = 2; sequence < 40; ++sequence) {  // up to the ring's end
      between.send(like(sequence, body));
      std::fill(between.ring.begin(), between.ring.end(),
                std::byte{0xee});  // the ring is not needed
      BOOST_TEST(same(between.receive(body), like(sequence, body)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_receiver_that_comes_late_finds_every_message_in_the_ring) {
  test_pipe between;
  for (std::uint64_t sequence = 1; sequence < 30; ++sequence) between.send(like(sequence, 4));
  for (std::uint64_t sequence = 1; sequence < 30; ++sequence) {
    BOOST_TEST(same(between.receive(4), like(sequence, 4)));
  }
}

BOOST_AUTO_TEST_CASE(small_messages_pass_the_rings_end_however_far_the_receiver_is_behind) {
  // Of 65 to 124 bytes, so that they reach the end of the ring at every distance from it.
  for (const std::uint64_t behind : {1u, 2u, 3u, 7u, 25u}) {
    test_pipe between;
    const auto body = [](std::uint64_t number) { return 1 + number * number % 60; };
    std::uint64_t wrong = 0;
    for (std::uint64_t number = 1; number < 1500; ++number) {
      between.send(like(number, body(number)));
      if (number <= behind) continue;
      const std::uint64_t first = number - behind;
      if (!same(between.receive(body(first)), like(first, body(first)))) ++wrong;
    }
    BOOST_TEST(wrong == 0u, behind);
  }
}

BOOST_AUTO_TEST_CASE(another_prefix_or_a_larger_body_is_taken_from_the_ring) {
  test_pipe between;
  const auto passes = [&](const message& what) {
    between.send(what);
    return same(between.receive(what.body.size()), what);
  };
  BOOST_TEST(passes(like(1, 8)));
  BOOST_TEST(passes(like(2, 8)));
  BOOST_TEST(passes(like(3, 25)));
  BOOST_TEST(passes(like(4, 200)));
  message other = like(5, 8);
  other.prefix.other = 3;
  BOOST_TEST(passes(other));
  other.prefix.number = 6;
  BOOST_TEST(passes(other));
  BOOST_TEST(passes(like(7, 8)));
  BOOST_TEST(passes(like(8, 8)));
}

BOOST_AUTO_TEST_CASE(a_prefix_that_had_to_be_cut_is_not_taken_for_a_known_one) {
  test_pipe between;
  static constexpr std::size_t most = test_pipe::capacity - prefix_bytes - 24;
  between.send(like(1, most));
  std::size_t sent = 0;
  message cut = like(2, 4);
  cut.prefix.other = 9;
  BOOST_TEST(!between.send(cut, sent));  // 24 bytes of its prefix find room
  BOOST_TEST(sent == 24u);
  BOOST_TEST(same(between.receive(most), like(1, most)));
  BOOST_REQUIRE(between.send(cut, sent));
  BOOST_TEST(same(between.receive(4), cut));
  for (std::uint64_t sequence = 3; sequence < 6; ++sequence) {
    between.send(like(sequence, 4));
    BOOST_TEST(same(between.receive(4), like(sequence, 4)));
  }
}

BOOST_AUTO_TEST_CASE(a_stream_of_small_messages_arrives_whole_while_both_sides_race) {
  static constexpr std::uint64_t messages = 300'000;
  test_pipe between;
  std::thread sender([&] {
    for (std::uint64_t number = 0; number < messages; ++number) {
      const message next = message_of(number);
      for (std::size_t done = 0; !between.send(next, done);) std::this_thread::yield();
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t number = 0; number < messages; ++number) {
    const message wanted = message_of(number);
    message got{{}, std::vector<std::byte>(wanted.body.size())};
    for (std::size_t done = 0; !between.receive(got, done);) std::this_thread::yield();
    if (!same(got, wanted)) ++wrong;
  }
  sender.join();
  BOOST_TEST(wrong == 0u);
}

BOOST_AUTO_TEST_CASE(
    a_sender_that_receives_nothing_writes_half_of_a_large_message_while_the_receiver_reads_half) {
  offering_pipe between(std::size_t{3} << 20 | 12345);
  bool helped = false;
  for (int i = 0; i < 500 && (!helped || i < 20); ++i) {
    between.pass_on_two_threads();
    BOOST_REQUIRE((between.target == between.source));
    if (between.stage() != parx::detail::pipe_state::request_written) continue;
    helped = true;
    BOOST_TEST(between.state.completed + parx::detail::pipe_state::request_written ==
               between.state.request);
  }
  BOOST_TEST(helped);
}

BOOST_AUTO_TEST_CASE(an_offer_that_its_sender_withdraws_is_a_lost_link_and_not_other_bytes) {
  for (const bool has_begun : {false, true}) {
    offering_pipe between(std::size_t{6} << 20);
    between.send_some();
    if (has_begun) BOOST_TEST(between.receive_some() > 0u);
    const std::size_t before = between.received;
    BOOST_TEST(before < between.source.size());
    between.sender.withdraw();
    BOOST_CHECK_THROW(between.receive_some(), parx::link_lost);
    BOOST_TEST(between.received == before);
  }
}

BOOST_AUTO_TEST_CASE(a_half_that_the_sender_cannot_write_is_read_by_the_receiver) {
  offering_pipe between(std::size_t{1} << 20, 0x3fffffff);  // no process has this number
  for (int i = 0; i < 50; ++i) {
    between.pass_on_two_threads();
    BOOST_REQUIRE((between.target == between.source));
    BOOST_TEST(between.stage() == parx::detail::pipe_state::request_refused);
  }
}

BOOST_AUTO_TEST_CASE(
    while_the_sender_writes_its_half_the_receiver_waits_and_says_that_its_memory_is_in_use) {
  using state = parx::detail::pipe_state;
  offering_pipe between(std::size_t{1} << 20);
  bool taken = false;
  std::size_t own = 0;
  for (int i = 0; i < 500 && !taken;
       ++i) {  // until the other thread runs in the 50 us of the receiver's half
    between.sent = between.received = 0;
    between.send_some();
    std::atomic<bool> runs{false};
    const std::uint32_t before = between.state.request.load();
    std::thread stopped_sender([&] {  // accepts the request and then stands still
      runs = true;
      std::uint32_t request = before;
      while (request == before) request = between.state.request.load();
      taken = request % state::request_stages == state::request_open &&
              between.state.request.compare_exchange_strong(request,
                                                            request + state::request_accepted);
    });
    while (!runs) std::this_thread::yield();
    own = between.receive_some();
    stopped_sender.join();
    if (!taken) between.send_some();  // sees that all was taken
  }
  BOOST_REQUIRE(taken);
  BOOST_TEST(own > between.source.size() / 2);
  BOOST_TEST(own < between.source.size());
  BOOST_TEST(between.receive_some() == 0u);
  BOOST_TEST(!between.receiver.ready());
  BOOST_TEST(!between.receiver.reclaim());
  std::copy(between.source.begin() + static_cast<std::ptrdiff_t>(own), between.source.end(),
            between.target.begin() + static_cast<std::ptrdiff_t>(own));
  between.state.completed =
      between.state.request - state::request_accepted;  // stopped after its system call
  BOOST_TEST(between.receiver.reclaim());
  BOOST_TEST(!between.receiver.ready());
  between.state.request.fetch_add(state::request_written - state::request_accepted);
  BOOST_TEST(between.receiver.reclaim());
  BOOST_TEST(between.receiver.ready());
  BOOST_TEST(between.receive_some() == between.source.size() - own);
  BOOST_TEST((between.target == between.source));
}

BOOST_AUTO_TEST_CASE(
    a_sender_that_comes_as_a_request_is_refused_accepts_neither_it_nor_the_next_one) {
  using state = parx::detail::pipe_state;
  offering_pipe between(std::size_t{1} << 20);
  between.send_some();
  between.state.request_size = 1;
  between.state.request_to = reinterpret_cast<std::uintptr_t>(between.target.data());
  std::atomic<std::uint32_t>& request = between.state.request;
  std::atomic<bool> ends{false};
  std::thread sender([&] {
    while (!ends) between.send_some();
  });
  std::uint64_t wrong = 0;
  std::uint32_t number = 0;
  for (int i = 0; i < 3'000'000 && wrong == 0; ++i) {
    request = number += state::request_stages;
    for (int wait = i % 512; wait > 0 && !ends.load(); --wait) continue;  // some 100 ns
    std::uint32_t stage = number;
    if (request.compare_exchange_strong(stage, number + state::request_refused)) {
      for (int look = 0; look < 16; ++look) wrong += request != number + state::request_refused;
    } else {
      while (request == number + state::request_accepted) std::this_thread::yield();
      wrong += request / state::request_stages != number / state::request_stages;
    }
  }
  ends = true;
  sender.join();
  BOOST_TEST(wrong == 0u);
}
