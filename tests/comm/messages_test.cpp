// Messages from any rank, in batches, and from ranks that end.
#include <parx/comm.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/jobs.hpp"

namespace {

using jobs::check;
using jobs::expect_success;

using namespace std::chrono_literals;
using parx::process_group;

}  // namespace

BOOST_AUTO_TEST_CASE(a_message_from_anybody_is_taken_once_and_its_sender_is_known) {
  expect_success(4, [](process_group& group) {
    constexpr int each_sends = 5;
    if (group.rank() == 0) {
      std::map<int, int> next;
      std::vector<int> x(300);
      for (int i = 0; i < 3 * each_sends; ++i) {
        const int from = parx::recv_any(group, x, {.tag = 4});
        check(x[0] == from && x[299] == next[from]++, "a sender's messages are out of order");
      }
      check(next.size() == 3 && next[2] == each_sends, "senders");
      std::vector<int> other(1);
      for (const int from : {3, 1, 2}) {  // their tag was not taken by the others' receives
        parx::recv(group, other, from, {.tag = 9});
        check(other[0] == -from, "another tag");
      }
      auto self = parx::async_send(group, other, 0);
      check(parx::recv_any(group, other) == 0, "from itself");
      // Issued ahead, they take one message each.
      std::vector<std::vector<int>> boxes(3, std::vector<int>(1));
      std::vector<parx::work> receives;
      for (auto& box : boxes) receives.push_back(parx::async_recv_any(group, box, {.tag = 6}));
      parx::barrier(group);
      std::vector<int> senders;
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        receives[i].wait();
        check(boxes[i][0] == 10 * receives[i].source_rank(), "another sender's message");
        senders.push_back(receives[i].source_rank());
      }
      std::sort(senders.begin(), senders.end());
      check(senders == std::vector<int>{1, 2, 3}, "a sender was missed");
    } else {
      std::vector<int> x(300, group.rank()), other{-group.rank()};
      auto beside = parx::async_send(group, other, 0, {.tag = 9});
      for (int i = 0; i < each_sends; ++i) {
        x[299] = i;
        parx::send(group, x, 0, {.tag = 4});
      }
      parx::barrier(group);
      parx::send(group, std::vector<int>{10 * group.rank()}, 0, {.tag = 6});
    }
    parx::barrier(group);
  });
}

BOOST_AUTO_TEST_CASE(a_receive_from_anybody_outlives_ranks_that_have_ended_but_not_all_of_them) {
  for (const auto kind : jobs::common_kinds) {
    const auto failures = jobs::run_collecting(kind, 3, [](process_group& group) {
      std::vector<int> x{7};
      if (group.rank() == 2) {
        std::this_thread::sleep_for(800ms);  // rank 1 has long ended
        parx::send(group, x, 0);
      } else if (group.rank() == 0) {
        check(parx::recv_any(group, x) == 2, "sender");
        static_cast<void>(parx::recv_any(group, x, {.timeout = 20s}));
      }
    });
    BOOST_TEST(failures[0].find("recv on group") != std::string::npos, failures[0]);
    BOOST_TEST(failures[0].find("timed out") == std::string::npos, failures[0]);
    BOOST_TEST(failures[1] == "");
    BOOST_TEST(failures[2] == "");
  }
}

BOOST_AUTO_TEST_CASE(a_receive_from_anybody_may_begin_when_some_have_left) {
  jobs::expect_success(5, [](process_group& group) {
    std::vector<int> x{group.rank()};
    if (group.rank() == 4) {
      std::this_thread::sleep_for(300ms);
      check(parx::recv_any(group, x) == 2, "sender");
    } else if (group.rank() == 2) {
      std::this_thread::sleep_for(600ms);
      parx::send(group, x, 4);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_receive_with_another_tag_than_the_message_that_is_there_is_told_of_it) {
  const auto wrong_tag = [](process_group& group, bool stays) {
    std::vector<float> x(4);
    if (group.rank() == 1) {
      auto taken = parx::async_send(group, x, 0, {.tag = 3});
      if (stays) std::this_thread::sleep_for(2s);
      else taken.wait();
    } else {
      parx::recv(group, x, 1, {.tag = 2, .timeout = stays ? 700ms : 20s});
    }
  };
  for (const auto kind : jobs::common_kinds) {
    for (const bool stays : {true, false}) {
      const auto failures = jobs::run_collecting(
          kind, 2, [&](process_group& group) { wrong_tag(group, stays); });
      BOOST_TEST(failures[0].find(stays ? "timed out waiting for rank 1" : "lost rank 1") !=
                     std::string::npos,
                 failures[0]);
      BOOST_TEST(failures[0].find("; rank 1 has sent 4 float32 with tag 3 at essages_test.cpp:") !=
                     std::string::npos,
                 failures[0]);
      BOOST_TEST(failures[0].find(", which no receive has taken") != std::string::npos);
    }
  }
  // A message that the receives after it take is not among them.
  const auto failures = jobs::run_collecting(jobs::kind::shm, 2, [](process_group& group) {
    std::vector<float> x(4);
    if (group.rank() == 1) parx::send(group, x, 0, {.tag = 3});
    else parx::recv(group, x, 1, {.tag = 3});
    if (group.rank() == 1) std::this_thread::sleep_for(1s);
    else parx::recv(group, x, 1, {.tag = 3, .timeout = 300ms});
  });
  BOOST_TEST(failures[0].find("timed out") != std::string::npos, failures[0]);
  BOOST_TEST(failures[0].find("no receive") == std::string::npos, failures[0]);
}

BOOST_AUTO_TEST_CASE(any_amount_of_unexpected_messages_passes_where_each_is_taken) {
  constexpr std::size_t count = 5u << 20;  // 20 MiB; more than three are not buffered at a time
  for (const auto kind : {jobs::kind::shm, jobs::kind::inproc}) {
    const auto failure = jobs::run(kind, 2, [](process_group& group) {
      std::vector<float> x(count);
      int open = 0;  // rank 1 looks for messages from here on
      if (group.rank() == 0) parx::send(group, open, 1);
      else parx::recv(group, open, 0);
      for (int i = 0; i < 5; ++i) {
        if (group.rank() == 0) {
          x.front() = x.back() = static_cast<float>(i);
          parx::send(group, x, 1);  // ends once rank 1, in its barrier, has buffered it
          parx::barrier(group);
        } else {
          parx::barrier(group);
          parx::recv(group, x, 0);
          check(x.front() == static_cast<float>(i) && x.back() == x.front(), "a message");
        }
      }
    }, {.timeout = 20s});
    BOOST_TEST(failure == "", jobs::name_of(kind) << ": " << failure);
  }
}

BOOST_AUTO_TEST_CASE(unexpected_messages_that_nobody_takes_are_buffered_up_to_64_MiB) {
  static constexpr int messages = 9;
  const auto failure = jobs::run(jobs::kind::shm, 2, [](process_group& group) {
    const std::vector<float> x(5u << 19, 2.5f);  // 10 MiB
    std::vector<float> got(x.size());
    int open = 0;  // rank 1 looks for messages from here on
    if (group.rank() == 0) parx::send(group, open, 1);
    else parx::recv(group, open, 0);
    if (group.rank() == 1) {
      parx::barrier(group);
      for (int i = 0; i < messages; ++i) {
        got.assign(got.size(), 0);
        parx::recv(group, got, 0);
        check(got == x, "a message that had to wait");
      }
      return;
    }
    std::vector<parx::work> sends;
    for (int i = 0; i < messages; ++i) sends.push_back(parx::async_send(group, x, 1));
    const auto left = [&] {
      int done = 0;
      for (auto& each : sends) done += each.test() ? 1 : 0;
      return done;
    };
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (left() < 6 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(200ms);
    const int buffered = left();
    parx::barrier(group);
    for (auto& each : sends) each.wait();
    check(buffered == 6, std::to_string(buffered) + " of 10 MiB each were buffered");
  });
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(messages_ahead_of_the_awaited_one_are_buffered_beyond_64_MiB) {
  static constexpr int ahead = 8;
  const auto failure =
      jobs::run(jobs::kind::shm, 2,
                [](process_group& group) {
                  std::vector<float> x(5u << 19);  // 10 MiB
                  int last = 0;
                  if (group.rank() == 0) {
                    for (int i = 0; i < ahead; ++i) {
                      x.front() = x.back() = static_cast<float>(i);
                      parx::send(group, x, 1, {.tag = 1});
                    }
                    return parx::send(group, last = 42, 1, {.tag = 2});
                  }
                  parx::recv(group, last, 0, {.tag = 2});  // takes all 80 MiB out of its way
                  check(last == 42, "the awaited message");
                  for (int i = 0; i < ahead; ++i) {
                    parx::recv(group, x, 0, {.tag = 1});
                    check(x.front() == static_cast<float>(i) && x.back() == x.front(),
                          "a message ahead of it");
                  }
                },
                {.timeout = 20s});
  BOOST_TEST(failure == "");
}

BOOST_AUTO_TEST_CASE(a_batch_of_messages_may_stand_in_any_order) {
  expect_success(3, [](process_group& group) {
    const int rank = group.rank(), next = (rank + 1) % 3, previous = (rank + 2) % 3;
    const std::size_t n = 2'000'000;
    std::vector<std::uint8_t> right(n, static_cast<std::uint8_t>(rank)), from_left(n);
    std::vector<int> small{rank}, from_right(1), self(1);
    parx::batch halo(group);
    // One after the other, everybody would receive before anybody sends.
    halo.recv(from_left, previous).send(right, next);
    halo.recv(from_right, next, {.tag = 2}).send(small, previous, {.tag = 2});
    halo.recv(self, rank, {.tag = 3}).send(small, rank, {.tag = 3});
    halo.run();
    check(from_left[n - 1] == previous && from_right[0] == next && self[0] == rank, "batch");
    auto pending = halo.send(small, previous).recv(from_right, next).start();
    pending.wait();
    halo.run();  // empty now
    check(from_right[0] == next, "asynchronous batch");
  });
}
