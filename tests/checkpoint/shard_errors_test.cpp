// Shards that do not fit, and saves that fail or are killed on one rank: all ranks say why, and the
// checkpoint from before stays whole.
#include <parx/checkpoint/save.hpp>

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/checkpoint/manager.hpp>
#include <parx/optim.hpp>

#include <checkpoint/shards.hpp>
#include <data/support.hpp>
#include <ddp/ranks.hpp>
#include <launch/processes.hpp>
#include <messages.hpp>

using parx_test::mentions;
using parx_test::scratch_folder;

namespace fs = std::filesystem;

namespace {

using namespace shards;

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const parx::error& failure) {
    return failure.what();
  }
  return "no error";
}

std::string read_text(const fs::path& path) { return parx_test::read_file(path.string()); }

void replace(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = read_text(path);
  text.replace(text.find(from), from.size(), to);
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_wrong_word_about_copies_is_an_error_when_it_is_saved) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  for (const auto& failure : save(folder, 2, cut::rows)) BOOST_TEST(failure == "");
  const auto saved_as = [&](const std::string& to, bool alike) {
    return on_ranks(2, [&](parx::process_group& group) {
      model mine(cut::rows, alike ? 0 : group.rank(), alike ? 1 : 2, {{"w", {64, 512}}});
      auto how = alike ? parx::sharded_over(group) : parx::replicated_over(group);
      return message_of([&] { parx::save(group, how, mine.list, to); });
    });
  };
  for (const auto& said : saved_as(folder, true)) {
    BOOST_TEST(mentions(said, "the parts of \"w\" are not the whole: elements 0-32767 are in "
                              "model-00001-of-00002.safetensors and again in "
                              "model-00002-of-00002.safetensors"), said);
  }
  for (const auto& said : saved_as(folder, false)) {
    BOOST_TEST(mentions(said, "elements 8192-20479 are in none of the files"), said);
  }
  model first(cut::flat, 0, 1);
  first.load(parx::saved_checkpoint::open(folder));  // the one that was there
  BOOST_TEST(first.wrong() == "");
}

BOOST_AUTO_TEST_CASE(a_shard_that_nobody_wrote_is_not_committed) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out"), file = scratch.file("out.safetensors");
  const auto saved_to = [&](const std::string& path, std::size_t files) {
    return on_ranks(2, [&](parx::process_group& group) {
      const bool is_absent = files == 3;  // as if a third rank had a third of the rows
      model mine(cut::rows, group.rank(), is_absent ? 3 : 2, {{"w", {64, 512}}});
      mine.fill();
      parx::sharding how = parx::sharded_over(group);
      how.file.count = files;
      return message_of([&] { parx::save(group, how, mine.list, path); });
    });
  };
  for (const bool is_there : {false, true}) {
    for (const auto& said : saved_to(folder, 3)) {
      BOOST_TEST(mentions(said, "no rank has written model-00003-of-00003.safetensors"), said);
    }
    for (const auto& said : saved_to(file, 3))
      BOOST_TEST(mentions(said, "some elements are on none of them"), said);
    BOOST_TEST(fs::exists(folder) == is_there);
    BOOST_TEST(fs::exists(file) == is_there);
    for (const std::string& path : {folder, file}) {
      if (!is_there) {
        for (const auto& said : saved_to(path, 2)) BOOST_TEST(said == "no error");
      }
      model first(cut::flat, 0, 1, {{"w", {64, 512}}});
      parx::load(first.list, path);
      BOOST_TEST(first.list[0].value().data()[64 * 512 - 1] == element("w", 64 * 512 - 1));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_mismatched_folder_is_reported_and_nothing_is_loaded) {
  const scratch_folder scratch;
  const fs::path folder = scratch.file("out"), other = scratch.file("other");
  for (const auto& failure : save(folder.string(), 3, cut::flat, 10)) BOOST_TEST(failure == "");
  for (const auto& failure : save(other.string(), 3, cut::flat, 20)) BOOST_TEST(failure == "");
  model mine(cut::rows, 0, 2);
  mine.fill(1);
  const std::string shard = "model-00002-of-00003.safetensors";
  const auto said = [&] { return message_of([&] { parx::load(mine.list, folder); }); };

  // Another model, by name; a list without a tensor, too.
  model fewer(cut::rows, 0, 2, {{"embed.weight", {37, 24}}, {"fc.weight", {24, 90}}, {"new", {3}}});
  const std::string differences = message_of([&] { parx::load(fewer.list, folder); });
  BOOST_TEST(mentions(differences, "missing from the file: new"), differences);
  BOOST_TEST(mentions(differences, "unknown to the model: fc.bias, nothing, scale"), differences);
  BOOST_TEST(mentions(differences, "fc.weight: [24, 18, 5] F32 in the file, [24, 90]"),
             differences);
  // Moments are never left out in silence.
  parx::optim::sgd<float> sgd(mine.list, {.momentum = 0.9});
  const std::string moments = message_of([&] {
    parx::saved_checkpoint::open(folder).load("optimizer", sgd);
  });
  BOOST_TEST(mentions(moments, "unknown to the model: embed.weight.exp_avg"), moments);

  fs::copy_file(other / shard, folder / shard, fs::copy_options::overwrite_existing);
  BOOST_TEST(mentions(said(), shard + "\" is of step 20, but the other shards are of step 10"),
             said());
  BOOST_TEST(mentions(message_of([&] { (void)parx::saved_checkpoint::open(folder); }),
                      shard + ": its checksum is"));
  fs::remove(folder / shard);
  BOOST_TEST(mentions(said(), shard + ": it is missing"), said());
  fs::remove(folder / "manifest.json");
  BOOST_TEST(mentions(said(), "the shard " + shard + " is missing"), said());
  replace(folder / "model.safetensors.index.json", "\"elements\":", "\"cut\":");
  BOOST_TEST(mentions(said(), "but its index speaks of"), said());
  BOOST_TEST(mine.wrong(1) == "");
}

BOOST_AUTO_TEST_CASE(a_collective_load_that_fails_on_one_rank_fails_on_all) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  for (const auto& failure : save(folder, 2, cut::rows)) BOOST_TEST(failure == "");
  const auto said = on_ranks(3, [&](parx::process_group& group) {
    model mine(cut::rows, group.rank(), 3);
    if (group.rank() == 1) mine.list[1].rename("other");
    return message_of([&] { parx::load(group, mine.list, folder); });
  });
  for (const auto& each : said) BOOST_TEST(mentions(each, "missing from the file: other"), each);
}

BOOST_AUTO_TEST_CASE(a_folder_that_holds_other_things_is_not_replaced) {
  const scratch_folder scratch;
  const fs::path folder = scratch.file("out");
  for (const auto& failure : save(folder.string(), 2, cut::flat)) BOOST_TEST(failure == "");
  for (const auto& failure : save(folder.string(), 2, cut::flat)) BOOST_TEST(failure == "");
  std::ofstream(folder / "thesis.tex") << "years";
  for (const auto& failure : save(folder.string(), 2, cut::flat)) {
    BOOST_TEST(mentions(failure, "parx::save did not write"), failure);
  }
  BOOST_TEST(read_text(folder / "thesis.tex") == "years");
}

BOOST_AUTO_TEST_CASE(where_a_disk_is_full_all_ranks_say_whose_and_the_old_one_stays) {
  const scratch_folder scratch;
  const std::string folder = scratch.file("out");
  processes::job all;
  for (int rank = 0; rank < 3; ++rank) {
    all.start(rank, 3, [&](parx::world& group) {
      model mine(cut::flat, group.rank(), 3, {{"w", {3000, 1000}}});
      mine.fill(1);
      parx::save(group, parx::sharded_over(group), mine.list, folder);
      mine.fill(2);
      if (group.rank() == 2) {
        const rlimit a_megabyte{1 << 20, RLIM_INFINITY};
        ::setrlimit(RLIMIT_FSIZE, &a_megabyte);
      }
      const std::string said = message_of(
          [&] { parx::save(group, parx::sharded_over(group), mine.list, folder); });
      parx::require(mentions(said, "model-00003-of-00003") && mentions(said, "ulimit -f") &&
                        (group.rank() == 2 || mentions(said, "rank 2: ")),
                    "it said: {}", said);
      parx::load(group, mine.list, folder);
      parx::require(model::right("w", 1, mine.list[0].value().span(), mine.shares[0].indices),
                    "the old one is not there");
    });
  }
  for (const auto& each : all.wait()) BOOST_TEST(each.exit_code == 0, each.text);
}

BOOST_AUTO_TEST_CASE(kill_any_rank_at_any_moment_and_the_last_checkpoint_is_whole) {
  std::mt19937 random(std::random_device{}());
  const std::vector<named_shape> some{{"w", {600, 1000}}, {"v", {300, 100}}};
  for (int round = 0; round < 6; ++round) {
    const scratch_folder scratch;
    const std::string folder = scratch.file("out");
    processes::job all;
    for (int rank = 0; rank < 3; ++rank) {
      all.start(rank, 3, [&](parx::world& group) {
        parx::checkpoint_manager checkpoints(group, folder, {.save_total_limit = 2});
        model mine(cut::flat, group.rank(), 3, some);
        for (std::uint64_t step = 1;; ++step) {
          mine.fill(step);
          parx::checkpoint_parts parts;
          mine.add_to(parts, parx::sharded_over(group));
          if (step == 1) checkpoints.probe(parts);
          checkpoints.save(step, parts);
        }
      });
    }
    const auto first = fs::path(folder) / "checkpoint-1";
    const auto begin = std::chrono::steady_clock::now();
    while (!fs::exists(first) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(9))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    const auto victim = static_cast<unsigned>(random() % 3);
    ::kill(all.pid(victim), SIGKILL);
    const auto ends = all.wait();
    for (unsigned rank = 0; rank < 3; ++rank)
      BOOST_TEST(ends[rank].exit_code == (rank == victim ? 128 + SIGKILL : 1), ends[rank].text);
    std::vector<std::string> passed_over;
    const auto found = parx::detail::list_checkpoints(
        folder, [&](const parx::error& reason) { passed_over.emplace_back(reason.what()); });
    BOOST_TEST(passed_over.empty());
    BOOST_TEST_REQUIRE(!found.empty());
    for (const auto& one : found) {
      const auto saved = parx::saved_checkpoint::open(one.path());
      for (int rank = 0; rank < 2; ++rank) {
        model mine(cut::rows, rank, 2, some);
        mine.load(saved);
        BOOST_TEST(mine.wrong(saved.step()) == "");
      }
    }
  }
}
