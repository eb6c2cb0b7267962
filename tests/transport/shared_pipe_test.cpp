// One direction of a link through shared memory, in one process: what arrives, and by which way.
#include <parx/transport/detail/shared_pipe.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace {

using parx::detail::call_header;
using parx::detail::frame_bytes;
using parx::detail::frame_size;

struct message {
  call_header header;
  std::vector<std::byte> body;
};

/// Deterministic: both ends can say what message `number` is. Every seventh or so has another shape.
message message_of(std::uint64_t number) {
  const std::uint64_t shape = number / 7;
  message made;
  made.header.sequence = number;
  made.header.count = shape;
  made.body.resize((shape * 0x9e3779b97f4a7c15u >> 58) % 40);
  std::fill(made.body.begin(), made.body.end(), static_cast<std::byte>(number));
  return made;
}

struct test_pipe {
  static constexpr std::size_t capacity = 4096;
  parx::detail::pipe_state state;
  std::vector<std::byte> ring = std::vector<std::byte>(capacity);
  parx::detail::pipe_sender sender{state, ring.data(), capacity};
  parx::detail::pipe_receiver receiver{state, ring.data(), capacity};

  /// What send() has left of a message is in `done`, which begins and ends at 0.
  bool send(const message& what, std::size_t& done) {
    const auto head = std::bit_cast<frame_bytes>(what.header);
    const std::size_t of_head = std::min(done, frame_size);
    const std::size_t of_body = done - of_head;
    done += sender.send({.data = head.data() + of_head, .size = frame_size - of_head},
                        {.data = what.body.data() + of_body, .size = what.body.size() - of_body});
    return done == frame_size + what.body.size();
  }
  bool receive(message& to, std::size_t& done) {
    auto* head = reinterpret_cast<std::byte*>(&to.header);
    const std::size_t of_head = std::min(done, frame_size);
    const std::size_t of_body = done - of_head;
    done += receiver.receive({head + of_head, frame_size - of_head},
                             {to.body.data() + of_body, to.body.size() - of_body}, 0, 0);
    return done == frame_size + to.body.size();
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
  return std::memcmp(&a.header, &b.header, sizeof a.header) == 0 && a.body == b.body;
}
message like(std::uint64_t sequence, std::size_t body) {
  message made;
  made.header.sequence = sequence;
  made.body.assign(body, static_cast<std::byte>(sequence));
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_small_message_with_the_last_ones_header_lies_on_the_line_that_announces_it) {
  for (const std::size_t body : std::initializer_list<std::size_t>{0, 1, 4, 7, 8, 12, 24}) {
    test_pipe between;
    between.send(like(1, body));
    BOOST_TEST(same(between.receive(body), like(1, body)));
    for (std::uint64_t sequence = 2; sequence < 40; ++sequence) {  // up to the ring's end
      between.send(like(sequence, body));
      std::fill(between.ring.begin(), between.ring.end(), std::byte{0xee});  // the ring is not needed
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

BOOST_AUTO_TEST_CASE(another_header_or_a_larger_body_is_taken_from_the_ring) {
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
  other.header.root = 3;
  BOOST_TEST(passes(other));
  other.header.sequence = 6;
  BOOST_TEST(passes(other));
  BOOST_TEST(passes(like(7, 8)));
  BOOST_TEST(passes(like(8, 8)));
}

BOOST_AUTO_TEST_CASE(a_header_that_had_to_be_cut_is_not_taken_for_a_known_one) {
  test_pipe between;
  static constexpr std::size_t most = test_pipe::capacity - frame_size - 24;
  between.send(like(1, most));
  std::size_t sent = 0;
  message cut = like(2, 4);
  cut.header.root = 9;
  BOOST_TEST(!between.send(cut, sent));  // 24 bytes of its header find room
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
