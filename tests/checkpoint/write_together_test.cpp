// Checkpoints whose files several ranks write: threads as ranks for what they agree on, processes
// where a rank dies or its disk is full.
#include <parx/checkpoint/write_together.hpp>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/checkpoint/manager.hpp>
#include <parx/comm/threads.hpp>

#include <checkpoint/filled.hpp>
#include <data/support.hpp>
#include <launch/processes.hpp>
#include <messages.hpp>

using parx_test::mentions;
using parx_test::names_in;
using parx_test::scratch_folder;

namespace {

constexpr std::size_t count = 1 << 20;  // elements of a shard: 4 MiB

std::uint32_t element(int rank, std::uint64_t step, std::size_t i) {
  return static_cast<std::uint32_t>(rank) * 1'000'003U + static_cast<std::uint32_t>(step) * 7919U +
         static_cast<std::uint32_t>(i);
}

// A tensor that the ranks hold in pieces, of other lengths.
struct piece {
  piece(int its_rank, int world, std::uint64_t step)
      : rank(its_rank),
        place{static_cast<std::size_t>(its_rank), static_cast<std::size_t>(world)},
        values(count + 10 * place.index) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(rank, step, i);
  }
  [[nodiscard]] parx::tensor_to_store stored(std::size_t used) const {
    return {"w", parx::dtype::uint32, {used}, std::as_bytes(std::span(values).first(used))};
  }
  [[nodiscard]] parx::checkpoint_parts parts() const {
    parx::checkpoint_parts made;
    made.add_json("state", parx::json::object{{"rank", rank}});  // not equal, to see whose it is
    made.add_tensor_shard("model", place, {stored(values.size())});
    return made;
  }
  // What a checkpoint has for this rank, against the formula.
  [[nodiscard]] bool is_in(const parx::saved_checkpoint& saved) const {
    const auto file = saved.tensors(parx::shard_name("model", place));
    std::vector<std::uint32_t> read(values.size());
    file.read(*file.find("w"), std::as_writable_bytes(std::span(read)));
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (read[i] != element(rank, saved.step(), i)) return false;
    }
    return true;
  }

  int rank;
  parx::shard_place place;
  std::vector<std::uint32_t> values;
};

}  // namespace

BOOST_AUTO_TEST_CASE(every_rank_writes_its_shards_once_while_training_goes_on) {
  for (const auto mode : {parx::save_mode::blocking, parx::save_mode::background}) {
    const scratch_folder scratch;
    const std::string folder = scratch.file("out");
    std::atomic<int> right{0};
    parx::run_threads(4, [&](parx::process_group& group) {
      parx::checkpoint_manager checkpoints(group, folder, {.save_total_limit = 2, .mode = mode});
      const piece first(group.rank(), 4, 10);
      checkpoints.probe(first.parts());
      for (const std::uint64_t step : {10U, 20U, 30U}) {
        piece mine(group.rank(), 4, step);
        checkpoints.save(step, mine.parts());
        std::fill(mine.values.begin(), mine.values.end(), 0U);  // they may change again
        std::vector<int> sums(100, 1);
        for (int i = 0; i < 200; ++i) {  // training's collectives, while the writers have theirs
          parx::all_reduce(group, sums);
          for (int& each : sums) each /= 4;
        }
        if (sums == std::vector<int>(100, 1)) ++right;
      }
      const auto last = checkpoints.latest();
      if (last && last->step() == 30 && first.is_in(*last)) ++right;
      if (last->json("state").as<int>("rank") == 0) ++right;
    });
    BOOST_TEST(right == 4 * 5);
    BOOST_TEST((names_in(folder) == std::set<std::string>{"checkpoint-20", "checkpoint-30"}));
    BOOST_TEST((names_in(folder + "/checkpoint-30") ==
                std::set<std::string>{"manifest.json", "state.json",
                                      "model-00001-of-00004.safetensors",
                                      "model-00002-of-00004.safetensors",
                                      "model-00003-of-00004.safetensors",
                                      "model-00004-of-00004.safetensors"}));
  }
}

BOOST_AUTO_TEST_CASE(only_some_ranks_may_have_a_shard_but_no_two_the_same) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  std::vector<std::string> said(3);
  std::atomic<int> right{0};
  parx::run_threads(3, [&](parx::process_group& group) {
    parx::checkpoint_manager checkpoints(group, folder);
    checkpoints.probe();
    const piece only(2, 3, 1), same(0, 3, 2);
    parx::checkpoint_parts parts;
    if (group.rank() == 2) parts = only.parts();
    checkpoints.save(1, parts);
    if (only.is_in(*checkpoints.latest())) ++right;
    checkpoints.save(2, group.rank() == 1 ? parx::checkpoint_parts{} : same.parts());
    try {
      checkpoints.wait();
    } catch (const parx::error& refused) {
      said[static_cast<std::size_t>(group.rank())] = refused.what();
    }
    if (checkpoints.latest()->step() == 1) ++right;  // the group works on
  });
  BOOST_TEST(right == 6);
  for (const auto& each : said) {
    BOOST_TEST(mentions(each, "ranks 0 and 2 would both write model-00001-of-00003"),
               each);
  }
  BOOST_TEST((names_in(folder) == std::set<std::string>{"checkpoint-1"}));
}

BOOST_AUTO_TEST_CASE(where_the_disk_of_one_rank_is_full_nothing_is_committed_and_all_say_whose) {
  for (const auto mode : {parx::save_mode::blocking, parx::save_mode::background}) {
    const scratch_folder scratch;
    const std::string folder = scratch.file("out");
    processes::job all;
    for (int rank = 0; rank < 3; ++rank) {
      all.start(rank, 3, [&](parx::world& group) {
        parx::checkpoint_manager checkpoints(group, folder, {.mode = mode});
        checkpoints.probe();
        const piece before(group.rank(), 3, 1), after(group.rank(), 3, 2);
        checkpoints.save(1, before.parts());
        checkpoints.wait();
        if (group.rank() == 2) {
          const rlimit a_megabyte{1 << 20, RLIM_INFINITY};
          ::setrlimit(RLIMIT_FSIZE, &a_megabyte);
        }
        std::string said;
        try {
          checkpoints.save(2, after.parts());
          checkpoints.wait();
        } catch (const parx::error& failed) {
          said = failed.what();
        }
        parx::require(mentions(said, "model-00003-of-00003") &&
                          mentions(said, "ulimit -f") &&
                          (group.rank() == 2 || mentions(said, "rank 2: ")),
                      "it said: {}", said);
        parx::require(before.is_in(*checkpoints.latest()), "the earlier one is not there");
      });
    }
    for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
    BOOST_TEST((names_in(folder) == std::set<std::string>{"checkpoint-1"}));
  }
}

BOOST_AUTO_TEST_CASE(where_one_rank_can_start_no_writer_none_writes_and_all_say_so_at_once) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  processes::job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start(rank, 3, [&](parx::world& group) {
      parx::checkpoint_manager checkpoints(group, folder);
      checkpoints.probe();
      const std::vector<std::uint32_t> values(10, static_cast<std::uint32_t>(group.rank()));
      parx::checkpoint_parts parts;
      parts.add_tensor_shard("model", {static_cast<std::size_t>(group.rank()), 3},
                             {{"w", parx::dtype::uint32, {10}, std::as_bytes(std::span(values))}});
      rlimit before{};
      ::getrlimit(RLIMIT_AS, &before);
      if (group.rank() == 2) {  // no room for a thread's stack, which none that was used before has
        pthread_attr_t stacks;
        ::pthread_attr_init(&stacks);
        ::pthread_attr_setstacksize(&stacks, 256U << 20U);
        ::pthread_setattr_default_np(&stacks);
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        const rlimit little{pages * 4096 + (64U << 20U), before.rlim_max};
        ::setrlimit(RLIMIT_AS, &little);
      }
      std::string said;
      try {
        checkpoints.save(1, parts);
      } catch (const parx::error& failed) {
        said = failed.what();
      }
      ::setrlimit(RLIMIT_AS, &before);
      parx::require(mentions(said, "Resource temporarily unavailable") &&
                        (group.rank() == 2 || mentions(said, "rank 2: ")),
                    "it said: {}", said);
      checkpoints.save(2, parts);
      checkpoints.wait();
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
  BOOST_TEST((names_in(folder) == std::set<std::string>{"checkpoint-2"}));
}

BOOST_AUTO_TEST_CASE(where_a_rank_dies_while_it_writes_the_last_checkpoint_stays_the_last) {
  for (const int victim : {0, 2}) {
    const scratch_folder scratch;
    const std::string folder = scratch.file("out");
    processes::job all;
    for (int rank = 0; rank < 3; ++rank) {
      all.start(rank, 3, [&](parx::world& group) {
        parx::checkpoint_manager checkpoints(group, folder, {.mode = parx::save_mode::blocking});
        checkpoints.probe();
        checkpoints.save(1, piece(group.rank(), 3, 1).parts());
        const piece mine(group.rank(), 3, 2);
        auto parts = mine.parts();
        // Readable for 2 MiB, of which one is written by then.
        constexpr std::size_t whole = 4U << 20U;
        void* const memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (group.rank() == victim) {
          ::mprotect(static_cast<std::byte*>(memory) + whole / 2, whole / 2, PROT_NONE);
          std::signal(SIGSEGV, SIG_DFL);
          parts.add_tensor_shard("trap", {},
                                 {{"w", parx::dtype::uint8, {whole},
                                   {static_cast<const std::byte*>(memory), whole}}});
        }
        checkpoints.save(2, parts);
      });
    }
    const auto ends = all.wait();
    for (int rank = 0; rank < 3; ++rank) {
      const auto& end = ends[static_cast<std::size_t>(rank)];
      BOOST_TEST(end.exit_code == (rank == victim ? 128 + SIGSEGV : 1), end.text);
    }
    const auto left = names_in(folder);
    BOOST_TEST(left.contains("checkpoint-1"));
    BOOST_TEST(!left.contains("checkpoint-2"));
    parx::checkpoint_manager checkpoints(folder);
    const auto last = checkpoints.latest();
    for (int rank = 0; rank < 3; ++rank) BOOST_TEST(piece(rank, 3, 1).is_in(*last));
    checkpoints.save(3, piece(0, 1, 3).parts());  // and takes what the dead left away
    checkpoints.wait();
    BOOST_TEST((names_in(folder) == std::set<std::string>{"checkpoint-1", "checkpoint-3"}));
  }
}

BOOST_AUTO_TEST_CASE(whenever_a_rank_is_killed_behind_a_save_what_is_there_is_whole) {
  using namespace std::chrono_literals;
  for (const int victim : {0, 2}) {
    for (const auto delay : {0us, 2500us}) {
      const scratch_folder scratch;
      const std::string folder = scratch.file("out");
      processes::job all;
      for (int rank = 0; rank < 3; ++rank) {
        all.start(rank, 3, [&](parx::world& group) {
          parx::checkpoint_manager checkpoints(group, folder);
          checkpoints.probe();
          checkpoints.save(1, piece(group.rank(), 3, 1).parts());
          checkpoints.wait();
          checkpoints.save(2, piece(group.rank(), 3, 2).parts());
          if (group.rank() == victim) {
            std::this_thread::sleep_for(delay);
            ::raise(SIGKILL);
          }
          for (std::vector<int> sums(100, 0);;) parx::all_reduce(group, sums);
        });
      }
      const auto ends = all.wait();
      for (int rank = 0; rank < 3; ++rank) {
        const auto& end = ends[static_cast<std::size_t>(rank)];
        BOOST_TEST(end.exit_code == (rank == victim ? 128 + SIGKILL : 1), end.text);
      }
      const auto last = parx::checkpoint_manager(folder).latest();
      BOOST_TEST(names_in(folder).contains("checkpoint-2") == (last->step() == 2));
      for (int rank = 0; rank < 3; ++rank) {
        BOOST_TEST(piece(rank, 3, last->step()).is_in(*last));
      }
    }
  }
}
