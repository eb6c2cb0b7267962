// Which rank parxrun's headline names where some ranks have not entered a collective.
#include "tools/parxrun/failures/divergence_text.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using parx::flight_log;
using parx::flight_record;
using parx::flight_state;
using parx::operation;
using parx::detail::divergence_text;

constexpr std::uint64_t world = 7, reversed = 9;
constexpr int anybody = -1;

flight_record unfinished(operation what, std::uint64_t group, int line) {
  flight_record made;
  made.state = flight_state::failed;
  made.call.operation = static_cast<std::uint8_t>(what);
  made.call.group = group;
  made.call.line = static_cast<decltype(made.call.line)>(line);
  made.call.set_file("train.cpp");
  return made;
}
flight_record barrier() {
  flight_record made = unfinished(operation::barrier, world, 88);
  made.call.sequence = 2 * 11;
  return made;
}
flight_record message_with(int peer, std::uint64_t group = world) {
  flight_record made = unfinished(operation::send, group, 40);
  made.peer = peer;
  made.call.root = 0;  // the tag
  return made;
}

/// Of a job whose rank r was in `calls[r]` when it failed.
std::vector<flight_log> logs_of(const std::vector<std::vector<flight_record>>& calls) {
  const int size = static_cast<int>(calls.size());
  std::vector<flight_log> logs;
  for (int rank = 0; rank < size; ++rank) {
    flight_log log;
    log.rank = rank;
    log.world_size = size;
    log.groups = {{world, size, "world", rank}, {reversed, size, "reversed", size - 1 - rank}};
    log.records = calls[static_cast<std::size_t>(rank)];
    logs.push_back(std::move(log));
  }
  return logs;
}

const std::string not_entered =
    " did not enter barrier at train.cpp:88 (call #11), on group "
    "\"world\"";

}  // namespace

BOOST_AUTO_TEST_CASE(of_a_message_that_never_came_both_ends_are_named) {
  // Rank 1 waits for anybody, so for rank 3 as well.
  BOOST_TEST(
      divergence_text(
          logs_of({{barrier()}, {message_with(anybody)}, {barrier()}, {message_with(2)}}), {}) ==
      "rank 3 was in a message with rank 2 and tag 0 at train.cpp:40 while rank 2, that "
      "message's other end, had gone on to barrier at train.cpp:88 (call #11), on group "
      "\"world\"; rank 1, 3 did not enter that");
  // Rank 1 waits for rank 3, which waits for rank 0: the fourth of the group that counts backwards.
  const std::string chain = divergence_text(
      logs_of({{barrier()}, {message_with(3)}, {barrier()}, {message_with(3, reversed)}}), {});
  BOOST_TEST(chain.starts_with("rank 3 was in a message with rank 3 and tag 0 at train.cpp:40 "
                               "while rank 0, that message's other end, had gone on"),
             chain);
}

BOOST_AUTO_TEST_CASE(a_rank_in_a_message_is_not_named_beside_one_that_no_message_keeps_away) {
  BOOST_TEST(divergence_text(logs_of({{barrier()}, {message_with(3)}, {barrier()}, {}}), {}) ==
             "rank 3" + not_entered);
  BOOST_TEST(divergence_text(logs_of({{barrier()}, {message_with(0)}, {barrier()}, {}}), {}) ==
             "rank 3" + not_entered);
  BOOST_TEST(divergence_text(
                 logs_of({{barrier()}, {message_with(3)}, {barrier()}, {message_with(0)}}), {3}) ==
             "rank 3" + not_entered + "; its process was stopped (SIGSTOP, a debugger)");
}

BOOST_AUTO_TEST_CASE(in_a_circle_of_messages_all_are_named) {
  BOOST_TEST(divergence_text(
                 logs_of({{barrier()}, {message_with(3)}, {barrier()}, {message_with(1)}}), {}) ==
             "rank 1, 3" + not_entered +
                 "; it was in a message with rank 3 and tag 0 at train.cpp:40");
}
