// What a save leaves on the disk when the power, the process or the disk itself fails.
#include <parx/checkpoint/manager.hpp>

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <parx/checkpoint/sharded.hpp>
#include <parx/comm/threads.hpp>

#include <boost/test/unit_test.hpp>

#include <checkpoint/file_events.hpp>
#include <checkpoint/filled.hpp>
#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using parx_test::captured_log;
using parx_test::filled;
using parx_test::mentions;
using parx_test::names_in;
using parx_test::says;
using parx_test::scratch_folder;
namespace fs = std::filesystem;

namespace {

using event = parx_test::file_events::event;

/// Requires that every file of the checkpoint `folder` was flushed when it was whole, the manifest
/// last, then the folder, which got its name after that, and then the folder around it.
void require_lasting(const parx_test::file_events& events, const fs::path& folder) {
  const std::size_t named =
      events.find([&](const event& e) { return e.is_rename() && e.to == folder; });
  BOOST_REQUIRE(named < events.all().size());
  const fs::path hidden = events.all()[named].from;
  const auto flush_of = [&](const fs::path& path) {
    return events.find([&](const event& e) { return !e.is_rename() && e.to == path; });
  };
  const std::size_t manifest = flush_of(hidden / "manifest.json");
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::size_t at = flush_of(hidden / entry.path().filename());
    BOOST_TEST_REQUIRE(at <= manifest, entry.path());
    BOOST_TEST(events.all()[at].bytes == entry.file_size(), entry.path());
    ++files;
  }
  BOOST_TEST(files >= 2U);
  BOOST_TEST(manifest < flush_of(hidden));
  BOOST_TEST(flush_of(hidden) < named);
  const auto around = events.find([&, at = std::size_t{0}](const event& e) mutable {
    return at++ > named && !e.is_rename() && e.to == folder.parent_path();
  });
  BOOST_TEST(around < events.all().size());
}

/// The exit code of a child process that runs `body`.
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Kills `child` once `come(names in folder)`. The child is stopped while the folder is looked at,
/// so that what was seen there is still so when it dies. False where it has ended by itself.
template <typename Come>
bool kill_when(pid_t child, const std::string& folder, std::minstd_rand& random, Come&& come) {
  int status = 0;
  for (;;) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3'000));
    ::kill(child, SIGSTOP);
    ::waitpid(child, &status, WUNTRACED);
    if (!WIFSTOPPED(status)) return false;
    if (come(names_in(folder))) break;
    ::kill(child, SIGCONT);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return true;
}

}  // namespace

// A name that is on the disk before the bytes behind it is a damaged file after a power failure.
BOOST_AUTO_TEST_CASE(bytes_are_on_the_disk_before_the_name_and_the_name_before_save_returns) {
  const scratch_folder folder;
  const std::string file = folder.file("model.safetensors");
  const filled values(7);
  for (int round = 0; round < 2; ++round) {  // a new file, then one in another's place
    const parx_test::file_events events;
    write_safetensors(file,
                      std::vector<tensor_to_store>{
                          {"w", dtype::uint32, {1000}, std::as_bytes(std::span(values.values))}});
    const auto& all = events.all();
    BOOST_TEST_REQUIRE(all.size() == 3U);
    BOOST_TEST(!all[0].is_rename());
    BOOST_TEST(all[0].to == all[1].from);
    BOOST_TEST(all[0].bytes == fs::file_size(file));
    BOOST_TEST(all[1].to == file);
    BOOST_TEST(all[1].from != file);
    BOOST_TEST(fs::path(all[2].to) == fs::path(file).parent_path());
    BOOST_TEST(!all[2].is_rename());
  }
  const std::string out = folder.file("out");
  for (const auto mode : {save_mode::blocking, save_mode::background}) {
    checkpoint_manager checkpoints(out, {.mode = mode});
    checkpoints.probe();
    const parx_test::file_events events;
    const std::uint64_t step = mode == save_mode::blocking ? 1 : 2;
    checkpoints.save(step, values.parts());
    checkpoints.wait();
    require_lasting(events, fs::path(out) / fmt::format("checkpoint-{}", step));
  }
  // Both ranks write a part.
  const parx_test::file_events events;
  run_threads(2, [&](process_group& world) {
    std::vector<parameter<float>> parts{{"w", parx::shape{64, 8}}};
    parts[0].keep_part(parts[0].spec().chunk(0, world.rank(), 2));
    parts[0].allocate().fill(1);
    checkpoint_manager checkpoints(world, out, {.mode = save_mode::blocking});
    checkpoint_parts shards;
    shards.add_shard("model", sharded_over(world), parts);
    checkpoints.save(3, shards);
  });
  BOOST_TEST(fs::exists(out + "/checkpoint-3/model-00002-of-00002.safetensors"));
  require_lasting(events, fs::path(out) / "checkpoint-3");
}

BOOST_AUTO_TEST_CASE(whenever_the_process_is_killed_the_last_checkpoint_loads) {
  const scratch_folder folder;
  const std::string out = folder.file("out");
  checkpoint_manager(out).probe();
  std::minstd_rand random(7);
  std::uint64_t before = 0;
  int in_the_middle = 0;
  for (int round = 0; round < 30; ++round) {
    const auto mode = round % 2 == 0 ? save_mode::blocking : save_mode::background;
    const pid_t child = ::fork();
    if (child == 0) {
      checkpoint_manager checkpoints(out, {.save_total_limit = 2, .mode = mode});
      for (std::uint64_t step = before + 1;; ++step) {
        // Now and then the same step again, which exchanges two folders.
        const filled contents(static_cast<std::uint32_t>(step), 300'000);
        checkpoints.save(step, contents.parts());
        if (step % 3 == 0) checkpoints.save(step, contents.parts());
      }
    }
    // After a save of this round; in every other pair of rounds in the middle of one.
    const bool within = round % 4 < 2;
    BOOST_REQUIRE(kill_when(child, out, random, [&](const auto& names) {
      bool saved = false, unfinished = false;
      for (const std::string& name : names) {
        const auto step = parx::detail::step_in_name(name);
        saved |= step && *step > before;
        unfinished |= name.starts_with(".parx-");
      }
      return saved && (unfinished || !within);
    }));
    for (const std::string& name : names_in(out)) {
      in_the_middle += name.starts_with(".parx-") ? 1 : 0;
    }
    const captured_log log;
    const auto last = checkpoint_manager(out).latest();
    BOOST_TEST(log.text() == "");  // nothing half-written under a checkpoint's name
    BOOST_REQUIRE(last);
    BOOST_TEST(last->step() > before);
    before = last->step();
    const auto file = last->tensors("model");
    std::vector<std::uint32_t> values(300'000);
    file.read(*file.find("w"), std::as_writable_bytes(std::span(values)));
    BOOST_TEST((values == filled(static_cast<std::uint32_t>(before), 300'000).values));
  }
  BOOST_TEST(in_the_middle >= 16);
  checkpoint_manager(out, {.mode = save_mode::blocking}).save(before + 1, filled(1).parts());
  for (const std::string& name : names_in(out)) BOOST_TEST(name.starts_with("checkpoint-"));
}

BOOST_AUTO_TEST_CASE(a_limit_reached_while_saving_leaves_the_old_checkpoint_and_nothing_else) {
  for (const auto mode : {save_mode::blocking, save_mode::background}) {
    const scratch_folder folder;
    const std::string out = folder.file("out");
    checkpoint_manager(out).probe();
    // In a child, because the limit cannot be taken back.
    const int code = in_child([&] {
      checkpoint_manager checkpoints(out, {.mode = mode});
      checkpoints.save(1, filled(1).parts());
      checkpoints.wait();
      const rlimit limit{100'000, 100'000};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      try {
        checkpoints.save(2, filled(2, 100'000).parts());
        checkpoints.wait();
      } catch (const error& failure) {
        const std::string_view text = failure.what();
        return failure.code_value() == errc::io && mentions(text, "model.safetensors") &&
                       mentions(text, "File too large") && mentions(text, "ulimit -f") &&
                       mentions(text, "earlier checkpoints are as they were")
                   ? 0
                   : 2;
      }
      return 1;
    });
    BOOST_TEST(code == 0);
    BOOST_TEST(names_in(out) == (std::set<std::string>{"checkpoint-1"}),
               boost::test_tools::per_element());
    BOOST_TEST(checkpoint_manager(out).latest()->step() == 1U);
  }
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_found_while_probing_or_saving) {
  const scratch_folder folder;
  const std::string disk = folder.file("disk");
  fs::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=400k") != 0) {
    fmt::print("SKIPPED: a full disk needs the right to mount a small tmpfs\n");
    return;
  }
  {
    checkpoint_manager checkpoints(disk + "/out", {.mode = save_mode::background});
    // The folder and the claim take some of it.
    BOOST_CHECK_EXCEPTION(checkpoints.probe(1'000'000), error, [&](const error& failure) {
      return says(fmt::format("{} left. Free some space", fs::space(disk).available))(failure);
    });
    checkpoints.probe(100'000);
    checkpoints.save(1, filled(1, 50'000).parts());
    checkpoints.save(2, filled(2, 100'000).parts());
    BOOST_CHECK_EXCEPTION(checkpoints.save(3, filled(3).parts()), error, says("The disk is full"));
    checkpoints.save(3, filled(3).parts());  // the failure was told; a smaller one fits
    BOOST_TEST(checkpoints.latest()->step() == 3U);
    BOOST_TEST(names_in(disk + "/out") ==
                   (std::set<std::string>{"checkpoint-1", "checkpoint-3"}),
               boost::test_tools::per_element());
    const captured_log log;
    {
      checkpoint_manager other(disk + "/out");
      other.save(4, filled(4, 100'000).parts());
    }
    BOOST_TEST(mentions(log.text(), "the last checkpoint was not saved"));
  }
  ::umount(disk.c_str());
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_written_is_found_by_probing) {
  const scratch_folder folder;
  const auto file = folder.write("file", "x");
  BOOST_CHECK_EXCEPTION(checkpoint_manager(file).probe(), error, says("cannot create the folder"));
  BOOST_CHECK_EXCEPTION(checkpoint_manager("/proc/out").probe(), error, says("/proc/out"));
  fs::create_directory(folder.file("locked"));
  fs::permissions(folder.file("locked"), fs::perms::owner_read | fs::perms::owner_exec);
  // Root may write anywhere: become nobody, in a child.
  const int code = in_child([&] {
    if (::getuid() == 0) {
      fs::permissions(folder.file(""), fs::perms::all);
      fs::permissions(folder.file("locked"), fs::perms::owner_read | fs::perms::owner_exec |
                                                 fs::perms::others_read | fs::perms::others_exec);
      if (::setuid(65534) != 0) return 3;
    }
    try {
      checkpoint_manager(folder.file("locked")).probe();
    } catch (const error& reason) {
      return mentions(reason.what(), "locked\": Permission denied") ? 0 : 2;
    }
    return 1;
  });
  BOOST_TEST(code == 0);
  fs::permissions(folder.file("locked"), fs::perms::owner_all);
}
