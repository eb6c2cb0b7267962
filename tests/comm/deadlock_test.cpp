// A deadlock that is proven is an error on all its ranks, and nothing else is taken for one.
#include <parx/comm/detail/progress/deadlock.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm.hpp>
#include <parx/core/blocked_threads.hpp>

#include "comm/jobs.hpp"
#include "messages.hpp"
#include "sanitizers.hpp"

namespace {

using namespace std::chrono_literals;
using parx::detail::deadlock;
using parx::detail::deadlock_search;
using parx::detail::message_wait;
using parx::detail::wait_report;

// --- What ranks have published -----------------------------------------------------------------

constexpr std::uint64_t world = 1, shards = 2;

/// A rank that is in call `number` of a group and waits for `awaited`. In its groups it has issued
/// as many calls as `calls` says.
wait_report in_collective(std::uint64_t group, std::uint64_t number, std::vector<int> awaited,
                     std::map<std::uint64_t, std::uint64_t> calls) {
  wait_report made{.awaited = std::move(awaited), .blocks = true, .all_blocked = true, .look = 1};
  made.call.group = group;
  made.call.sequence = 2 * number;
  made.call.operation = static_cast<std::uint8_t>(parx::operation::barrier);
  for (const auto& [each, issued] : calls) made.calls.push_back({each, issued, 1});
  return made;
}
wait_report in_message(std::uint64_t group, std::vector<message_wait> waits) {
  wait_report made = in_collective(group, 0, {}, {{group, 0}});
  made.call.operation = static_cast<std::uint8_t>(parx::operation::recv);
  for (const auto& each : waits) made.awaited.push_back(each.peer);
  made.messages = std::move(waits);
  return made;
}
message_wait from(int peer, std::uint32_t received = 0) {
  return {peer, message_wait::receive, received};
}
message_wait to(int peer) { return {peer, message_wait::send, 0}; }

using published = std::map<int, std::vector<wait_report>>;

deadlock found_by(int rank, const published& all) {
  return deadlock_search::find(rank, [&](int asked) {
    const auto found = all.find(asked);
    return found == all.end() ? std::vector<wait_report>{} : found->second;
  });
}

// --- Jobs -------------------------------------------------------------------------------------

constexpr auto inproc = jobs::kind::inproc, tcp = jobs::kind::tcp, shm = jobs::kind::shm;
const parx::group_options soon{.timeout = 20s, .deadlock_after = 400ms};

parx::process_group pair(parx::process_group& group, int a, int b) {
  return group.subgroup(std::vector<int>{std::min(a, b), std::max(a, b)});
}
void receive(parx::process_group& group, int from) {
  std::vector<int> x(3);
  parx::recv(group, x, from);
}

struct trial {
  const char* what;
  jobs::kind kind;
  int ranks;
  jobs::body run;
};
/// Runs all at once, since they only wait, and returns the failures of each one's ranks.
std::vector<std::vector<std::string>> run_all(const std::vector<trial>& trials) {
  std::vector<std::future<std::vector<std::string>>> running;
  for (const trial& each : trials) {
    running.push_back(std::async(std::launch::async, [&] {
      return jobs::run_collecting(each.kind, each.ranks, each.run, soon);
    }));
  }
  std::vector<std::vector<std::string>> failures;
  for (auto& each : running) failures.push_back(each.get());
  return failures;
}
/// Whether the jobs end soon, with the deadlock as the error of all their ranks.
void expect_deadlocks(const std::vector<trial>& trials) {
  if (parx_test::thread_sanitizer) return;  // it has a thread of its own, which is never blocked
  const auto since = std::chrono::steady_clock::now();
  const auto failures = run_all(trials);
  BOOST_TEST((std::chrono::steady_clock::now() - since < 15s));
  for (std::size_t i = 0; i < trials.size(); ++i) {
    for (const auto& each : failures[i]) {
      BOOST_TEST(parx_test::mentions(each, "wait for each other for good"),
                 trials[i].what << ": " << each);
    }
  }
}
/// One after the other: a thread of another job would be one that is not blocked.
void expect_success(const std::vector<trial>& trials) {
  for (const trial& each : trials) {
    BOOST_TEST(jobs::run(each.kind, each.ranks, each.run, soon) == "", each.what);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_in_collectives_of_two_groups_that_the_other_has_not_entered_are_stuck) {
  published all{{0, {in_collective(shards, 4, {1}, {{world, 7}, {shards, 4}})}},
                {1, {in_collective(world, 8, {0}, {{world, 8}, {shards, 3}})}}};
  BOOST_TEST((found_by(0, all).circle == std::vector{0, 1}));
  BOOST_TEST((found_by(1, all).circle == std::vector{1, 0}));

  auto otherwise = all;
  otherwise[1][0].all_blocked = false;  // another thread of it may enter the call
  BOOST_TEST(!found_by(0, otherwise));
  otherwise = all;
  otherwise[1][0].calls[1].calls = 4;  // it has been in that call: its data are under way
  BOOST_TEST(!found_by(0, otherwise));
  otherwise = all;
  otherwise[1][0].calls[1].known = 0;  // another thread drives that group
  BOOST_TEST(!found_by(0, otherwise));
  otherwise[1][0].calls.pop_back();  // it had the group, or has never made it
  BOOST_TEST(!found_by(0, otherwise));
  otherwise[1][0].has_all_groups = true;
  BOOST_TEST(bool(found_by(0, otherwise)));
  otherwise = all;
  otherwise[1][0].awaited.clear();  // it has gone on since
  BOOST_TEST(!found_by(0, otherwise));
  otherwise = all;  // a call of another group is waited for as well, and may end
  otherwise[1].push_back(in_collective(3, 1, {2}, {{3, 1}}));
  BOOST_TEST(!found_by(0, otherwise));
}

BOOST_AUTO_TEST_CASE(ranks_that_are_all_in_one_collective_only_wait_for_its_data) {
  published ring;
  for (int rank = 0; rank < 4; ++rank) {
    ring[rank] = {in_collective(world, 5, {(rank + 3) % 4}, {{world, 5}})};
  }
  BOOST_TEST(!found_by(0, ring));
  // But if one is elsewhere, all of them wait for it, whomever they await themselves.
  ring[2] = {in_collective(shards, 1, {0}, {{world, 4}, {shards, 1}})};
  for (const int rank : {0, 1, 3}) ring[rank][0].calls.push_back({shards, 0, 1});
  for (int rank = 0; rank < 4; ++rank) BOOST_TEST(bool(found_by(rank, ring)), rank);
}

BOOST_AUTO_TEST_CASE(a_message_that_was_sent_or_that_its_receiver_buffers_is_no_deadlock) {
  published all{{0, {in_message(world, {from(1)})}}, {1, {in_message(world, {from(0)})}}};
  BOOST_TEST(bool(found_by(0, all)));
  all[1][0].sent.push_back({world, 0, 1});  // and has not come yet
  BOOST_TEST(!found_by(0, all));
  all[0][0].messages[0].received = 1;  // it was another one
  BOOST_TEST(bool(found_by(0, all)));

  published both{{0, {in_message(world, {to(1)})}}, {1, {in_message(world, {to(0)})}}};
  BOOST_TEST(!found_by(0, both));
  both[0][0].refused = {1};
  BOOST_TEST(!found_by(0, both));
  both[1][0].refused = {0};
  BOOST_TEST(bool(found_by(0, both)));

  // A group that the receiver is not in takes nothing.
  published elsewhere{{0, {in_message(shards, {to(1)})}},
                      {1, {in_collective(world, 1, {0}, {{world, 1}, {shards, 0}})}}};
  elsewhere[0][0].calls.push_back({world, 0, 1});
  BOOST_TEST(bool(found_by(0, elsewhere)));
}

BOOST_AUTO_TEST_CASE(a_receive_from_any_rank_is_stuck_only_if_all_that_may_send_are) {
  published all{{0, {in_message(world, {from(1), from(2)})}},
                {1, {in_message(world, {from(0)})}},
                {2, {in_message(world, {from(0)})}}};
  BOOST_TEST(bool(found_by(0, all)));
  all[2].clear();  // computes
  BOOST_TEST(!found_by(0, all));
  BOOST_TEST(!found_by(1, all));
}

BOOST_AUTO_TEST_CASE(a_deadlock_is_proven_only_if_every_rank_publishes_the_same_state_again) {
  published all{{0, {in_message(world, {from(1)})}}, {1, {in_message(world, {from(0)})}}};
  const auto first = found_by(0, all);
  BOOST_TEST(!found_by(0, all).stands_since(first));
  all[0][0].look = 2;
  BOOST_TEST(!found_by(0, all).stands_since(first));  // rank 1 may have been stopped
  all[1][0].look = 2;
  BOOST_TEST(found_by(0, all).stands_since(first));
  all[1][0].moves = 1;  // it went on, and is stuck again
  BOOST_TEST(!found_by(0, all).is_state_of(first));
}

BOOST_AUTO_TEST_CASE(every_group_that_a_rank_waits_in_must_have_published_its_state_again) {
  published all{{0, {in_message(world, {from(1)})}},
                {1, {in_message(world, {from(0)}), in_message(shards, {from(0)})}}};
  all[0][0].calls.push_back({shards, 0, 1});
  all[1][1].look = 9;
  const auto first = found_by(0, all);
  BOOST_TEST(bool(first));
  all[0][0].look = all[1][0].look = 2;
  BOOST_TEST(!found_by(0, all).stands_since(first));  // no thread may look after the second group
  all[1][1].look = 10;
  BOOST_TEST(found_by(0, all).stands_since(first));
}

BOOST_AUTO_TEST_CASE(a_thread_that_has_left_its_call_is_not_blocked_at_once) {
  if (parx_test::thread_sanitizer) return;
  using parx::detail::blocked_threads;
  auto& threads = blocked_threads::of_this_process();
  std::optional<blocked_threads::mark> outer(std::in_place), inner(std::in_place);
  const auto all_blocked_soon = [&] {
    for (int look = 0; look < 4; ++look) {
      if (threads.all()) return true;
      std::this_thread::sleep_for(220ms);
    }
    return false;
  };
  BOOST_TEST(all_blocked_soon());
  inner.reset();
  BOOST_TEST(threads.all());  // still in the outer call
  outer.reset();
  BOOST_TEST(!threads.all());
}

BOOST_AUTO_TEST_CASE(a_thread_that_has_run_between_two_looks_is_not_blocked) {
  if (parx_test::thread_sanitizer) return;
  using parx::detail::blocked_threads;
  auto& threads = blocked_threads::of_this_process();
  std::mutex mutex;
  std::condition_variable changed;
  int wanted = 0, rounds = 0;
  std::thread worker([&] {  // blocked in a futex without a limit, between its rounds
    std::unique_lock lock(mutex);
    while (rounds < 2) {
      changed.wait(lock, [&] { return wanted > rounds; });
      ++rounds;
    }
  });
  const auto run_once = [&] {
    {
      const std::lock_guard lock(mutex);
      ++wanted;
    }
    changed.notify_all();
  };
  {
    const blocked_threads::mark own;
    const auto look = [&] {
      std::this_thread::sleep_for(220ms);
      return threads.all();
    };
    bool blocked = false;
    for (int i = 0; i < 50 && !blocked; ++i) blocked = look();
    BOOST_TEST(blocked);
    run_once();
    BOOST_TEST(!look());
    blocked = false;
    for (int i = 0; i < 50 && !blocked; ++i) blocked = look();
    BOOST_TEST(blocked);
  }
  run_once();
  worker.join();
}

BOOST_AUTO_TEST_CASE(a_thread_is_blocked_for_good_only_in_a_futex_of_its_process_without_a_limit) {
  using parx::detail::sleeps_for_good;
  const std::vector<long> threads{11, 14605};
  BOOST_TEST(sleeps_for_good("202 0x7ffc 0x189 0x0 0x0 0x0 0xffffffff 0x7fd6 0x7fd6", threads) ==
             (SYS_futex == 202));
  const auto futex = [&](const std::string& rest) {
    return sleeps_for_good(std::to_string(SYS_futex) + " 0x7ffc " + rest, threads);
  };
  BOOST_TEST(futex("0x189 0x0 0x0 0x0 0xffffffff 0x7fd6 0x7fd6"));
  BOOST_TEST(futex("0x80 0x2 0x0 0x0 0x0 0x7fd6 0x7fd6"));
  BOOST_TEST(!futex("0x89 0x0 0x7fd64fa1bcc0 0x0 0xffffffff 0x7fd6 0x7fd6"));  // with a limit
  BOOST_TEST(futex("0x109 0x390d 0x0 0x0 0xffffffff 0x7fd6 0x7fd6"));          // joins thread 14605
  BOOST_TEST(!futex("0x109 0x390e 0x0 0x0 0xffffffff 0x7fd6 0x7fd6"));  // another process wakes it
  BOOST_TEST(!futex("0x81 0x1 0x0 0x0 0x0 0x7fd6 0x7fd6"));             // wakes others
  BOOST_TEST(!sleeps_for_good("230 0x0 0x0 0x7fd6 0x0 0x0 0x7ffc 0x7fd6 0x7fd6", threads));
  BOOST_TEST(!sleeps_for_good("running", threads));
  BOOST_TEST(!sleeps_for_good("", threads));
}

BOOST_AUTO_TEST_CASE(a_deadlock_ends_all_its_ranks_whatever_they_wait_in) {
  expect_deadlocks({{"receives in a circle", tcp, 3,
                     [](auto& group) { receive(group, (group.rank() + 1) % 3); }},
                    {"a collective of a group and a barrier of all", shm, 2,
                     [](auto& group) {
                       auto part = pair(group, 0, 1);
                       std::vector<float> x(4), all(8);
                       parx::barrier(group);
                       parx::all_gather(part, x, all);
                       if (group.rank() == 0) parx::all_gather(part, x, all);  // evaluates alone
                       else parx::barrier(group);
                     }},
                    {"groups in a circle", tcp, 3,
                     [](auto& group) {
                       const int rank = group.rank();
                       auto next = pair(group, rank, (rank + 1) % 3);
                       auto last = pair(group, rank, (rank + 2) % 3);
                       parx::barrier(next);
                       parx::barrier(last);
                     }},
                    {"a receive and a collective that was issued ahead", shm, 2,
                     [](auto& group) {
                       std::vector<float> x(4);
                       if (group.rank() == 0) return receive(group, 1);
                       auto other = parx::async_all_reduce(group, x);
                       other.wait();
                     }},
                    {"one of four is elsewhere", inproc, 4,
                     [](auto& group) {
                       if (group.rank() != 3) return parx::barrier(group);
                       auto part = pair(group, 1, 3);
                       parx::barrier(part);
                     }},
                    {"a send that no rank takes", shm, 2,
                     [](auto& group) {
                       auto part = pair(group, 0, 1);
                       if (group.rank() == 1) return parx::barrier(group);
                       for (;;) parx::send(part, std::vector<float>(1 << 20), 1);
                     }},
                    {"a first message that its receiver does not look for", inproc, 2,
                     [](auto& group) {
                       if (group.rank() == 0) parx::send(group, std::vector<float>(1 << 22), 1);
                       parx::barrier(group);
                     }},
                    {"a group that its other rank has left", tcp, 2,
                     [](auto& group) {
                       auto part = std::optional(pair(group, 0, 1));
                       if (group.rank() == 0) return parx::barrier(*part);
                       part.reset();
                       parx::barrier(group);
                     }},
                    {"a receive from any rank", inproc, 3, [](auto& group) {
                       std::vector<int> x(3);
                       if (group.rank() == 0) static_cast<void>(parx::recv_any(group, x));
                       else parx::barrier(group);
                     }}});
}

BOOST_AUTO_TEST_CASE(two_ranks_that_both_send_more_than_is_buffered_are_a_deadlock) {
  if (parx_test::sanitized) return;
  const auto failures = jobs::run_collecting(
      shm, 2,
      [](parx::process_group& group) {
        const std::vector<float> most(17u << 20, 1.0f);  // 68 MiB, of which the first is buffered
        parx::send(group, std::span(most).first(most.size() - (1u << 20)), 1 - group.rank());
        parx::send(group, most, 1 - group.rank());
      },
      soon);
  for (const auto& each : failures) {
    BOOST_TEST(parx_test::mentions(each, "wait for each other for good"), each);
    BOOST_TEST(parx_test::mentions(each, "in send of 17825792 float32"), each);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_with_another_thread_that_may_still_call_is_not_accused) {
  expect_success({{"a thread that sleeps, then enters the missing call", shm, 2,
                   [](auto& group) {
                     auto part = pair(group, 0, 1);
                     parx::barrier(part);  // used by this thread so far
                     if (group.rank() == 0) {
                       parx::barrier(part);
                       return parx::barrier(group);
                     }
                     auto second = std::async(std::launch::async, [&] {
                       std::this_thread::sleep_for(1200ms);
                       parx::barrier(part);
                     });
                     parx::barrier(group);
                     second.get();
                   }},
                  {"a thread that computes, then enters the missing call", tcp, 2,
                   [](auto& group) {
                     auto part = pair(group, 0, 1);
                     if (group.rank() == 0) {
                       parx::barrier(part);
                       return parx::barrier(group);
                     }
                     auto second = std::async(std::launch::async, [&] {
                       const auto until = std::chrono::steady_clock::now() + 1200ms;
                       while (std::chrono::steady_clock::now() < until) {
                       }
                       parx::barrier(part);
                     });
                     parx::barrier(group);
                     second.get();
                   }},
                  {"threads on two groups, each of which waits for the other rank's", inproc, 2,
                   [](auto& group) {
                     auto other = pair(group, 0, 1);
                     const auto use = [](parx::process_group& mine, bool late) {
                       if (late) std::this_thread::sleep_for(1200ms);
                       parx::barrier(mine);
                       if (!late) std::this_thread::sleep_for(1200ms);
                       parx::barrier(mine);
                     };
                     auto second =
                         std::async(std::launch::async, [&] { use(other, group.rank() == 0); });
                     use(group, group.rank() == 1);
                     second.get();
                   }}});
}

BOOST_AUTO_TEST_CASE(threads_on_different_groups_that_are_all_stuck_are_a_deadlock) {
  expect_deadlocks({{"two threads of each rank", shm, 2, [](auto& group) {
                       auto first = pair(group, 0, 1), second = pair(group, 0, 1),
                            third = pair(group, 0, 1);
                       const auto other = std::async(std::launch::async, [&] {
                         if (group.rank() == 0) parx::barrier(second);
                         else parx::barrier(third);
                       });  // whose failure is that of the main thread
                       if (group.rank() == 0) parx::barrier(first);
                       else receive(group, 0);
                     }}});
}

BOOST_AUTO_TEST_CASE(a_rank_that_computes_or_that_another_one_waits_for_in_time_is_not_accused) {
  expect_success({{"a chain of receives", tcp, 3, [](auto& group) {
                     if (group.rank() == 2) std::this_thread::sleep_for(1200ms);
                     else receive(group, group.rank() + 1);
                     if (group.rank() > 0) parx::send(group, std::vector<int>(3), group.rank() - 1);
                   }}});
}

BOOST_AUTO_TEST_CASE(a_deadlock_is_only_warned_of_where_that_is_asked_for) {
  const auto failures = jobs::run_collecting(
      jobs::kind::shm, 2, [](parx::process_group& group) { receive(group, 1 - group.rank()); },
      {.timeout = 2s, .deadlock_after = parx::group_options::never});
  for (const auto& each : failures) BOOST_TEST(parx_test::mentions(each, "timed out"), each);
}
