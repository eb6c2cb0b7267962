// kill -9 in the middle of every algorithm, and SIGSTOP in the middle of some, between processes
// that share memory and between processes that talk over TCP.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <parx/comm.hpp>
#include <parx/comm/schedule/catalog.hpp>

#include "comm/matrix.hpp"
#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using processes::job;
using parx_test::mentions;

std::size_t files_in(const char* folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// Repeats a call that is long enough to be killed in, until something happens.
void repeat(parx::world& world, matrix::trial t, int ready) {
  t.count = matrix::has_blocks(t.what) ? 40'000 : 150'000;
  const std::size_t shared_bytes = t.use == parx::algorithm::shared ? std::size_t{8} << 20 : 0;
  auto area = parx::allocate_shared<std::byte>(world, shared_bytes);
  parx::barrier(world);
  const char go = 1;
  if (::write(ready, &go, 1) != 1) throw std::runtime_error("the test has gone");
  for (;;) {
    matrix::run(world, t, std::span(area.data(), area.size()));
    if (shared_bytes > 0) parx::barrier(world);  // the next call writes where others still look
  }
}

/// Where a call can be: one host, or two for the algorithms that want several.
parx::environment place(parx::algorithm use, int rank, std::string_view transport) {
  parx::environment made{{"PARX_TRANSPORT", std::string(transport)}};
  if (use == parx::algorithm::hierarchical) {
    made["PARX_HOST_ID"] = rank % 2 == 0 ? "even" : "odd";
  }
  return made;
}
/// Whether it can be without memory that ranks share.
bool wants_memory(parx::algorithm use) {
  return use == parx::algorithm::shared || use == parx::algorithm::staged;
}

/// Starts a job that repeats one call, and returns once all ranks are in it.
void start(job& all, const parx::catalog_entry& entry, int world, std::string_view transport,
           std::string_view timeout = "") {
  int ready[2];
  BOOST_REQUIRE(::pipe(ready) == 0);
  for (int rank = 0; rank < world; ++rank) {
    const int end = ready[1];
    parx::environment extra = place(entry.name, rank, transport);
    extra["PARX_TIMEOUT"] = timeout;
    all.start(rank, world, [&entry, end](parx::world& group) {
      repeat(group, {.what = entry.what, .use = entry.name}, end);
    }, extra);
  }
  ::close(ready[1]);
  char go[8];
  for (ssize_t heard = 0, got = 1; heard < world && got > 0; heard += got) {
    got = ::read(ready[0], go, sizeof go);
  }
  ::close(ready[0]);
}

void kill_in(const parx::catalog_entry& entry, int world, int victim, std::string_view transport,
             std::chrono::milliseconds when) {
  job all;
  start(all, entry, world, transport);
  std::this_thread::sleep_for(when);
  ::kill(all.pid(static_cast<std::size_t>(victim)), SIGKILL);
  const auto results = all.wait();
  for (int rank = 0; rank < world; ++rank) {
    const auto& each = results[static_cast<std::size_t>(rank)];
    const std::string what = fmt::format("{} by {} ({}), rank {} of {}: {}", name_of(entry.what),
                                         name_of(entry.name), transport, rank, world, each.text);
    if (rank == victim) {
      BOOST_TEST(each.exit_code == 128 + SIGKILL, what);
      continue;
    }
    BOOST_TEST(each.exit_code == 1, what);
    BOOST_TEST(mentions(each.text, "rank " + std::to_string(victim)), what);
    BOOST_TEST(each.seconds < 4.0, what << " after " << each.seconds << " s");
  }
}

/// The others end by their deadline, while it is stopped still.
void stop_in(const parx::catalog_entry& entry, int world, int victim, std::string_view transport) {
  job all;
  start(all, entry, world, transport, "1.5");
  std::this_thread::sleep_for(10ms);
  ::kill(all.pid(static_cast<std::size_t>(victim)), SIGSTOP);
  std::thread end([&] {
    std::this_thread::sleep_for(3500ms);
    ::kill(all.pid(static_cast<std::size_t>(victim)), SIGKILL);
  });
  const auto results = all.wait();
  end.join();
  bool named = false;
  std::string all_texts;
  for (int rank = 0; rank < world; ++rank) {
    if (rank == victim) continue;
    const auto& each = results[static_cast<std::size_t>(rank)];
    const std::string what = fmt::format("{} by {}, rank {} of {}: {}", name_of(entry.what),
                                         name_of(entry.name), rank, world, each.text);
    BOOST_TEST(each.exit_code == 1, what);
    BOOST_TEST(mentions(each.text, "timed out waiting for rank "), what);
    BOOST_TEST(each.seconds < 3.4, what << " after " << each.seconds << " s");
    const std::string name = "rank " + std::to_string(victim);
    // The only one waited for, one of several, or the one behind these.
    named |= mentions(each.text, "for " + name + " (") ||
             mentions(each.text, "behind that is " + name);
    all_texts += each.text;
  }
  BOOST_TEST(named, name_of(entry.what) << " by " << name_of(entry.name) << ", rank " << victim
                                        << " was stopped: " << all_texts);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_process_stopped_in_an_algorithm_costs_the_others_their_deadline) {
  static constexpr int worlds[] = {2, 3, 4, 5, 8};
  std::size_t round = 0;
  for (const parx::catalog_entry& entry : parx::catalog()) {
    if (++round % 4 != 0) continue;
    const int world = entry.name == parx::algorithm::hierarchical ? 4 : worlds[round / 4 % 5];
    if (entry.what == parx::operation::all_gather && entry.name == parx::algorithm::doubling) {
      continue;  // wants a power of two; the ring of it is here
    }
    const bool over_tcp = round % 8 == 0 && !wants_memory(entry.name);
    stop_in(entry, world, 1 + static_cast<int>(round) % (world - 1), over_tcp ? "tcp" : "auto");
  }
}

BOOST_AUTO_TEST_CASE(a_process_killed_in_the_middle_of_any_algorithm_is_named_by_all_the_others) {
  const std::size_t memory_before = files_in("/dev/shm");
  const std::size_t descriptors_before = files_in("/proc/self/fd");
  static constexpr int worlds[] = {2, 4, 3, 8, 5};
  std::size_t round = 0;
  for (const std::string_view transport : {"auto", "tcp"}) {
    for (const parx::catalog_entry& entry : parx::catalog()) {
      if (transport == "tcp" && wants_memory(entry.name)) continue;
      int world = worlds[round % std::size(worlds)];
      if (entry.name == parx::algorithm::hierarchical) world = 4;
      if (entry.what == parx::operation::all_gather && entry.name == parx::algorithm::doubling) {
        world = 8;
      }
      // Never rank 0, whose end takes the job's store along: launch/processes has that.
      const int victim = 1 + static_cast<int>(round) % (world - 1);
      kill_in(entry, world, victim, transport, std::chrono::milliseconds(5 + 7 * (round % 6)));
      ++round;
    }
  }
  BOOST_TEST(files_in("/dev/shm") == memory_before);
  BOOST_TEST(files_in("/proc/self/fd") == descriptors_before);
}

BOOST_AUTO_TEST_CASE(without_single_copies_a_killed_process_is_named_as_well) {
  for (const int world : {2, 8}) {
    job all;
    for (int rank = 0; rank < world; ++rank) {
      all.start(rank, world, [](parx::world& group) {
        std::vector<float> x(1'000'000);
        for (;;) parx::all_reduce(group, x);
      }, {{"PARX_SINGLE_COPY", "0"}});
    }
    std::this_thread::sleep_for(600ms);
    ::kill(all.pid(1), SIGKILL);
    const auto results = all.wait();
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      if (rank == 1) continue;
      BOOST_TEST(results[rank].exit_code == 1, results[rank].text);
      BOOST_TEST(mentions(results[rank].text, "rank 1"), results[rank].text);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_a_rank_has_printed_is_there_when_it_is_killed) {
  processes::job job;
  for (int rank = 0; rank < 2; ++rank) {
    job.start_program(rank, 2, [](parx::init_options options) {
      ::dup2(STDERR_FILENO, STDOUT_FILENO);
      std::setvbuf(stdout, nullptr, _IOFBF, BUFSIZ);  // as where it is a pipe
      parx::world world = parx::init(std::move(options));
      std::printf("rank %d has said this\n", world.rank());
      parx::barrier(world);  // rank 0 does not take the store away while rank 1 still joins
      ::raise(SIGKILL);
      return 0;
    });
  }
  const auto results = job.wait();
  BOOST_TEST(mentions(results[0].text, "rank 0 has said this"), results[0].text);
  BOOST_TEST(mentions(results[1].text, "rank 1 has said this"), results[1].text);
}

BOOST_AUTO_TEST_CASE(small_messages_to_a_rank_that_was_killed_soon_end_in_an_error) {
  for (const std::string_view transport : {"auto", "tcp"}) {
    for (const int victim : {0, 1}) {  // with the job's store, and without
      job all;
      for (int rank = 0; rank < 3; ++rank) {
        all.start(rank, 3, [&](parx::world& world) {
          std::vector<int> x(4);
          if (world.rank() == victim) {
            parx::recv(world, x, 2);
            ::raise(SIGKILL);
          } else if (world.rank() == 2) {
            for (int i = 0; i < 300; ++i) {  // a sixth of what the ring in shared memory holds
              parx::send(world, x, victim);
              std::this_thread::sleep_for(20ms);
            }
          } else {
            parx::recv(world, x, 2);
          }
        }, {{"PARX_TRANSPORT", std::string(transport)}});
      }
      const auto ends = all.wait();
      BOOST_TEST_CONTEXT(transport << ", victim " << victim << ": " << ends[2].text) {
        BOOST_TEST(ends[2].exit_code == 1);
        BOOST_TEST(mentions(ends[2].text, "rank " + std::to_string(victim)));
        BOOST_TEST(ends[2].seconds < 3.0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_death_of_one_sender_ends_a_receive_from_anybody_and_its_leaving_does_not) {
  for (const std::string_view transport : {"auto", "tcp"}) {
    for (const int messages : {0, 1}) {
      for (const bool dies : {true, false}) {
        job all;
        for (int rank = 0; rank < 3; ++rank) {
          all.start(rank, 3, [&](parx::world& world) {
            std::vector<int> x{7};
            if (world.rank() == 0) {
              for (int i = 0; i < messages + 1; ++i) static_cast<void>(parx::recv_any(world, x));
            } else if (world.rank() == 1) {
              for (int i = 0; i < messages; ++i) parx::send(world, x, 0);
              if (dies) ::raise(SIGKILL);
            } else {
              std::this_thread::sleep_for(dies ? 6s : 2500ms);
              parx::send(world, x, 0);
            }
          }, {{"PARX_TRANSPORT", std::string(transport)}});
        }
        const auto ends = all.wait();
        BOOST_TEST_CONTEXT(transport << ", " << messages << " sent: " << ends[0].text) {
          BOOST_TEST(ends[0].exit_code == (dies ? 1 : 0));
          if (!dies) continue;
          BOOST_TEST(mentions(ends[0].text, "lost rank 1"));
          BOOST_TEST(ends[0].seconds < 4.0);
        }
      }
    }
  }
}
