#include <parx/checkpoint/manager.hpp>

#include <sys/file.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <parx/checkpoint/sharded.hpp>
#include <parx/comm/threads.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

#include <boost/test/unit_test.hpp>

#include <checkpoint/filled.hpp>
#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using parx_test::captured_log;
using parx_test::filled;
using parx_test::mentions;
using parx_test::names_in;
using parx_test::read_file;
using parx_test::says;
using parx_test::scratch_folder;
namespace fs = std::filesystem;

namespace {

auto make_model(std::uint64_t seed) {
  nn::sequential model{nn::linear{3, 4}, nn::relu{}, nn::linear{4, 2}};
  model.initialize(seed);
  return model;
}

template <typename Model>
std::vector<float> values_of(Model& model) {
  std::vector<float> values;
  model.for_each_parameter([&](const std::string&, auto& p) {
    values.insert(values.end(), p.value().begin(), p.value().end());
  });
  return values;
}

}  // namespace

BOOST_AUTO_TEST_CASE(checksums_are_those_of_xxhash) {
  const auto of = [](std::string_view text) {
    return parx::detail::xxh64::of(std::as_bytes(std::span(text)));
  };
  BOOST_TEST(of("") == 0xEF46DB3751D8E999U);
  BOOST_TEST(of("a") == 0xD24EC4F1A98C6E5BU);
  BOOST_TEST(of("abc") == 0x44BC2CF5AD770999U);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i);
  for (const std::size_t cut : {0U, 1U, 31U, 32U, 33U, 500U, 999U, 1000U}) {
    parx::detail::xxh64 hash;
    hash.update(std::as_bytes(std::span(text).first(cut)));
    hash.update(std::as_bytes(std::span(text).subspan(cut)));
    BOOST_TEST(hash.value() == of(text));
  }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_from_its_last_checkpoint_as_if_it_had_not_stopped) {
  const scratch_folder folder;
  const auto x = tensor<float>::from({1, 2, 3, -1, 0, 2}, {2, 3});
  const auto y = tensor<std::int64_t>::from({0, 1}, {2});
  const auto train = [&](auto& model, auto& opt, int steps) {
    for (int i = 0; i < steps; ++i) {
      nn::cross_entropy(model(x), y).backward();
      opt.step();
    }
  };
  auto whole = make_model(1);
  optim::adamw whole_opt{whole.parameters(), {.lr = 0.1}};
  {
    checkpoint_manager checkpoints(folder.file("out"));
    checkpoints.probe();
    BOOST_TEST(!checkpoints.latest().has_value());
    train(whole, whole_opt, 4);
    json::value state = json::object{{"global_step", 4}, {"seed", 18446744073709551615U}};
    checkpoint_parts parts;
    parts.add("model", whole).add("optimizer", whole_opt).add_json("trainer_state", state);
    parts.add_text("vocab.txt", "[UNK]\n");
    checkpoints.save(4, parts);
    train(whole, whole_opt, 3);  // while the writer writes what was before
  }
  checkpoint_manager checkpoints(folder.file("out"));
  const auto last = checkpoints.latest();
  BOOST_REQUIRE(last.has_value());
  BOOST_TEST(last->step() == 4U);
  BOOST_TEST(last->path() == folder.file("out/checkpoint-4"));
  BOOST_TEST(last->json("trainer_state").at("seed").as<std::uint64_t>() == 18446744073709551615U);
  BOOST_TEST(last->text("vocab.txt") == "[UNK]\n");
  BOOST_CHECK_EXCEPTION((void)last->tensors("scaler"), error, says("has no scaler.safetensors"));
  auto second = make_model(77);
  optim::adamw second_opt{second.parameters(), {.lr = 0.1}};
  last->load("model", second);
  last->load("optimizer", second_opt);
  train(second, second_opt, 3);
  BOOST_TEST((values_of(second) == values_of(whole)));
  BOOST_TEST(names_in(folder.file("out")) == (std::set<std::string>{"checkpoint-4"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_oldest_go_but_never_the_best_and_never_the_newest) {
  const scratch_folder folder;
  checkpoint_manager checkpoints(folder.file("out"), {.save_total_limit = 2,
                                                      .goal = metric_goal::minimize,
                                                      .mode = save_mode::blocking});
  checkpoints.probe();
  const std::array<double, 5> losses{3.0, 1.0, 2.0, 2.5, std::nan("")};
  for (std::uint64_t i = 0; i < losses.size(); ++i)
    checkpoints.save(100 * (i + 1), filled(1).parts(), losses[i]);
  BOOST_TEST(names_in(folder.file("out")) ==
                 (std::set<std::string>{"checkpoint-200", "checkpoint-500"}),
             boost::test_tools::per_element());
  BOOST_TEST(checkpoints.best()->step() == 200U);
  BOOST_TEST(checkpoints.latest()->step() == 500U);
  checkpoints.save(200, filled(2).parts(), 4.0);  // the same step once more replaces the folder
  BOOST_TEST(checkpoints.best()->metric().value() == 4.0);
}

// A caller that compares by something else than the metric says which one is the best.
BOOST_AUTO_TEST_CASE(a_step_that_is_named_the_best_stays_in_the_place_of_the_best_metric) {
  const scratch_folder folder;
  checkpoint_manager checkpoints(folder.file("out"),
                                 {.save_total_limit = 2, .mode = save_mode::blocking});
  checkpoints.probe();
  for (std::uint64_t step = 1; step <= 4; ++step) {
    const auto named = step >= 2 ? std::optional<std::uint64_t>(2) : std::nullopt;
    checkpoints.save(step, filled(1).parts(), 10.0 / static_cast<double>(step), named);
  }
  BOOST_TEST(names_in(folder.file("out")) ==
                 (std::set<std::string>{"checkpoint-2", "checkpoint-4"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_oldest_checkpoint_wins_among_equal_metrics) {
  for (const auto goal : {metric_goal::minimize, metric_goal::maximize}) {
    const scratch_folder folder;
    checkpoint_manager checkpoints(
        folder.file("out"), {.save_total_limit = 2, .goal = goal, .mode = save_mode::blocking});
    checkpoints.probe();
    for (std::uint64_t step = 1; step <= 5; ++step) {
      checkpoints.save(step, filled(1).parts(), 0.5);
      BOOST_TEST(checkpoints.best()->step() == 1U);
    }
    BOOST_TEST(
        names_in(folder.file("out")) == (std::set<std::string>{"checkpoint-1", "checkpoint-5"}),
        boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_second_writer_waits_for_the_lock_whose_file_stays) {
  const scratch_folder folder;
  const std::string out = folder.file("out"), lock = out + "/.parx-lock";
  checkpoint_manager checkpoints(out, {.mode = save_mode::blocking});
  checkpoints.probe();
  const auto number_of_lock = [&] {
    struct stat status {};
    return ::stat(lock.c_str(), &status) == 0 ? status.st_ino : 0;
  };
  const auto number = number_of_lock();
  BOOST_TEST(number != 0U);
  const int other = ::open(lock.c_str(), O_RDWR | O_CLOEXEC);
  BOOST_TEST(::flock(other, LOCK_EX) == 0);
  std::atomic<bool> saved{false};
  std::thread second([&] {
    checkpoints.save(1, filled(7).parts());
    saved = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  BOOST_TEST(!saved);
  BOOST_TEST(names_in(out).empty());  // not even a hidden folder
  ::close(other);
  second.join();
  BOOST_TEST(checkpoints.latest()->step() == 1U);
  // A file of another inode would be another lock to who still waits on the old one.
  BOOST_TEST(number_of_lock() == number);
}

BOOST_AUTO_TEST_CASE(a_folder_with_the_manifest_of_another_step_is_passed_over) {
  const scratch_folder folder;
  const std::string out = folder.file("out");
  checkpoint_manager checkpoints(out, {.mode = save_mode::blocking});
  checkpoints.probe();
  checkpoints.save(3, filled(7).parts(), 1.0);
  checkpoints.save(5, filled(8).parts(), 2.0);
  fs::rename(out + "/checkpoint-5", out + "/checkpoint-9");
  const captured_log log;
  BOOST_TEST(checkpoints.latest()->step() == 3U);
  BOOST_TEST(checkpoints.best()->step() == 3U);
  BOOST_TEST(mentions(log.text(), "checkpoint-9", "its manifest is that of another step"));
}

// Each rank reads a share of the files; together they are all bytes.
BOOST_AUTO_TEST_CASE(each_flipped_byte_of_a_checkpoint_that_two_ranks_check_is_noticed_by_both) {
  const scratch_folder folder;
  const std::string out = folder.file("out");
  {
    checkpoint_manager checkpoints(out, {.mode = save_mode::blocking});
    checkpoints.probe();
    const filled values(7, 3);
    auto parts = values.parts();
    parts.add_tensors("optimizer", {}).add_text("vocab.txt", "[UNK]\nthe\n");
    parts.add_json("trainer_state", json::object{{"global_step", 4}});
    checkpoints.save(4, parts);
  }
  const fs::path saved = out + "/checkpoint-4";
  const auto noticed_by = [&](std::size_t rank) {
    return parx_test::message_of([&] {
             (void)saved_checkpoint::open(saved, checkpoint_check::contents, {rank, 2});
           }) != "nothing was thrown";
  };
  std::size_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(saved)) {
    const std::string good = read_file(entry.path().string());
    for (std::size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] ^= 4;
      std::ofstream(entry.path(), std::ios::binary) << bad;
      ++bytes;
      if (!noticed_by(0) && !noticed_by(1))
        BOOST_ERROR("byte " << at << " of " << entry.path() << " is not noticed");
    }
    // What one of them notices ends the call on both.
    std::array<std::string, 2> told;
    run_threads(2, [&](process_group& world) {
      told[static_cast<std::size_t>(world.rank())] =
          parx_test::message_of([&] { (void)saved_checkpoint::open_together(&world, saved); });
    });
    for (const std::string& each : told) BOOST_TEST(mentions(each, "is damaged"), each);
    std::ofstream(entry.path(), std::ios::binary) << good;
  }
  BOOST_TEST(bytes > 600U);
  BOOST_TEST((!noticed_by(0) && !noticed_by(1)));
}

BOOST_AUTO_TEST_CASE(clearing_removes_whole_and_damaged_checkpoints_and_nothing_else) {
  const scratch_folder folder;
  const std::string out = folder.file("out");
  checkpoint_manager checkpoints(out);
  BOOST_CHECK_THROW(checkpoints.clear(), error);
  checkpoints.probe();
  checkpoints.save(1, filled(7).parts());
  checkpoints.save(2, filled(7).parts());  // still being written when clear() is called
  fs::create_directory(out + "/checkpoint-3");
  fs::create_directory(out + "/checkpoint-9x");
  std::ofstream(out + "/train.jsonl") << "{}\n";
  checkpoints.clear();
  BOOST_TEST(names_in(out) == (std::set<std::string>{"checkpoint-9x", "train.jsonl"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(damaged_checkpoints_are_passed_over_and_the_damage_is_named) {
  const scratch_folder folder;
  const std::string out = folder.file("out");
  checkpoint_manager checkpoints(out, {.mode = save_mode::blocking});
  checkpoints.probe();
  for (std::uint64_t step = 1; step <= 6; ++step) checkpoints.save(step, filled(7).parts());
  const auto change = [&](const std::string& name, auto&& edit) {
    std::string bytes = read_file(out + name);
    edit(bytes);
    std::ofstream(out + name, std::ios::binary) << bytes;
  };
  fs::remove(out + "/checkpoint-6/manifest.json");
  fs::remove(out + "/checkpoint-5/model.safetensors");
  fs::resize_file(out + "/checkpoint-4/model.safetensors", 1000);
  change("/checkpoint-3/model.safetensors", [](std::string& bytes) { bytes[3000] ^= 1; });
  change("/checkpoint-2/manifest.json", [](std::string& bytes) { bytes[bytes.find('2')] = '3'; });
  fs::create_directory(out + "/checkpoint-9x");
  const captured_log log;
  const auto last = checkpoints.latest();
  BOOST_REQUIRE(last.has_value());
  BOOST_TEST(last->step() == 1U);
  for (const std::string_view part :
       {"checkpoint-6\" is not a whole checkpoint: it has no manifest.json",
        "checkpoint-5\" is damaged: model.safetensors: it is missing",
        "model.safetensors: it has 1000 bytes, expected 4",
        "checkpoint-3\" is damaged: model.safetensors: its checksum is",
        "checkpoint-2\" is damaged: manifest.json: its checksum does not fit"}) {
    BOOST_TEST(mentions(log.text(), part), log.text() << " does not mention " << part);
  }
}

// A run that began anew would overwrite what is left of hours of training.
BOOST_AUTO_TEST_CASE(where_all_checkpoints_are_damaged_nothing_goes_on_as_if_there_were_none) {
  const scratch_folder folder;
  const std::string out = folder.file("out");
  std::array<std::string, 2> told;
  const captured_log log;
  run_threads(2, [&](process_group& world) {
    checkpoint_manager checkpoints(world, out, {.mode = save_mode::blocking});
    checkpoints.probe();
    checkpoints.save(1, filled(7).parts(), 0.5);
    checkpoints.save(2, filled(7).parts());
    if (world.rank() == 0) {
      fs::resize_file(out + "/checkpoint-1/model.safetensors", 1000);
      fs::remove(out + "/checkpoint-2/manifest.json");
    }
    try {
      (void)checkpoints.latest();
    } catch (const error& reason) {
      told[static_cast<std::size_t>(world.rank())] = reason.what();
    }
    checkpoints.save(3, filled(7).parts());  // whole, but of unknown worth
    if (checkpoints.best()) told[static_cast<std::size_t>(world.rank())] += " but took one as best";
  });
  for (const std::string& each : told) {
    BOOST_TEST(mentions(each, "out\" are damaged, see the warnings above"), each);
    BOOST_TEST(!mentions(each, "took one"), each);
  }
  BOOST_TEST(mentions(log.text(), "it has 1000 bytes, expected 4"));
}

BOOST_AUTO_TEST_CASE(all_ranks_agree_on_success_and_on_failure) {
  const scratch_folder folder;
  const std::string out = folder.file("out");
  for (const auto mode : {save_mode::blocking, save_mode::background}) {
    std::array<std::string, 3> told;
    std::array<std::uint64_t, 3> steps{};
    fs::remove_all(out);
    run_threads(3, [&](process_group& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      checkpoint_manager checkpoints(world, out, {.mode = mode});
      checkpoints.probe();
      (void)checkpoints.latest();
      checkpoints.save(1, filled(1).parts());
      steps[rank] = checkpoints.latest()->step();
      if (rank == 0) fs::rename(out, out + ".away");
      try {
        checkpoints.save(2, filled(2).parts());
        checkpoints.wait();
      } catch (const error& reason) {
        told[rank] = reason.what();
      }
      if (rank == 0) fs::rename(out + ".away", out);
      checkpoints.save(3, filled(3).parts());  // the group is as good as before
      checkpoints.wait();
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
      BOOST_TEST(steps[rank] == 1U);
      BOOST_TEST(mentions(told[rank], "No such file"), told[rank]);
      BOOST_TEST(mentions(told[rank], "rank 0: "));
    }
    BOOST_TEST(checkpoint_manager(out).latest()->step() == 3U);
  }
}

BOOST_AUTO_TEST_CASE(names_that_cannot_be_parts_are_refused) {
  auto model = make_model(1);
  checkpoint_parts parts;
  parts.add("model", model);
  BOOST_CHECK_THROW(parts.add("model", model), usage_error);
  BOOST_CHECK_THROW(parts.add_text("../x", ""), usage_error);
  BOOST_CHECK_THROW(parts.add_json("manifest", nullptr), usage_error);
}

BOOST_AUTO_TEST_CASE(
    what_is_in_the_way_of_a_checkpoint_is_named_at_the_start_and_when_it_is_saved) {
  for (const bool is_link : {false, true}) {
    const scratch_folder scratch;
    const fs::path out = scratch.file("out"), in_the_way = out / "checkpoint-10";
    fs::create_directories(out);
    auto model = make_model(1);
    checkpoint_manager checkpoints(out.string(), {.mode = save_mode::blocking});
    checkpoints.save(5, checkpoint_parts{}.add("model", model));
    if (is_link) fs::create_symlink("nowhere", in_the_way);
    else std::ofstream(in_the_way) << "notes";
    const std::string wanted = formatted(
        "\"{}\" is a {}, and a checkpoint would be a folder of this "
        "name. Move it away.",
        in_the_way.string(), is_link ? "link" : "file");
    const std::string said = parx_test::message_of([&] { checkpoints.probe(); });
    BOOST_TEST(mentions(said, wanted), said);
    const std::string late = parx_test::message_of(
        [&] { checkpoints.save(10, checkpoint_parts{}.add("model", model)); });
    BOOST_TEST(mentions(late, wanted, "The earlier checkpoints are as they were."), late);
    BOOST_TEST(checkpoints.latest()->step() == 5U);
    fs::remove(in_the_way);
    checkpoints.save(10, checkpoint_parts{}.add("model", model));
    checkpoints.probe();
    BOOST_TEST(checkpoints.latest()->step() == 10U);
  }
}

// A link to a folder, from which a run goes on, is in nobody's way before that step.
BOOST_AUTO_TEST_CASE(a_link_to_an_earlier_checkpoint_is_loaded_from) {
  const scratch_folder scratch;
  auto model = make_model(1);
  checkpoint_manager earlier(scratch.file("earlier"), {.mode = save_mode::blocking});
  earlier.probe();
  earlier.save(10, checkpoint_parts{}.add("model", model));
  fs::create_directories(scratch.file("out"));
  fs::create_directory_symlink(scratch.file("earlier") + "/checkpoint-10",
                               scratch.file("out") + "/checkpoint-10");
  checkpoint_manager checkpoints(scratch.file("out"), {.mode = save_mode::blocking});
  checkpoints.probe();
  BOOST_TEST(checkpoints.latest()->step() == 10U);
  checkpoints.save(20, checkpoint_parts{}.add("model", model));
  BOOST_TEST(checkpoints.latest()->step() == 20U);
}

BOOST_AUTO_TEST_CASE(of_starts_at_once_in_one_folder_the_last_to_claim_it_saves_and_no_other) {
  constexpr std::size_t starts = 6;
  const scratch_folder scratch;
  const std::string out = scratch.file("out");
  std::vector<std::string> said(starts);
  std::atomic<std::size_t> claimed{0};
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < starts; ++i) {
    all.emplace_back([&, i] {
      auto model = make_model(i);
      checkpoint_manager checkpoints(out, {.mode = save_mode::blocking});
      const std::string failed = parx_test::message_of([&] { checkpoints.claim(); });
      ++claimed;
      while (claimed < starts) std::this_thread::yield();
      said[i] = parx_test::message_of(
          [&] { checkpoints.save(i + 1, checkpoint_parts{}.add("model", model)); });
      if (failed != "nothing was thrown") said[i] = failed;
    });
  }
  for (auto& each : all) each.join();
  std::size_t saved = 0;
  for (std::size_t i = 0; i < starts; ++i) {
    if (said[i] == "nothing was thrown") {
      ++saved;
      BOOST_TEST((names_in(out) == std::set<std::string>{formatted("checkpoint-{}", i + 1)}));
      auto model = make_model(99), expected = make_model(i);
      saved_checkpoint::open(fs::path(out) / formatted("checkpoint-{}", i + 1))
          .load("model", model);
      BOOST_TEST(values_of(model) == values_of(expected), boost::test_tools::per_element());
    } else {
      BOOST_TEST(mentions(said[i], "another start of this run has begun meanwhile"), said[i]);
    }
  }
  BOOST_TEST(saved == 1U);
}
