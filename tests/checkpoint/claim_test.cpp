// Which start of a run may commit checkpoints: one that was stopped (SIGSTOP) while another has
// begun can commit none any more.
#include <parx/checkpoint/manager.hpp>
#include <parx/train/detail/run_folder.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace {

namespace fs = std::filesystem;
using parx::checkpoint_manager;
using parx::checkpoint_parts;
using parx::environment;
using parx::detail::atomic_folder;
using parx::detail::unfinished_checkpoint;
using parx::detail::writer_claim;
using parx::train::detail::lock_holder;
using parx::train::detail::locked_folder;

struct folder {
  fs::path path = fs::temp_directory_path() / fmt::format("parx_claim_{}", ::getpid());
  folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~folder() { fs::remove_all(path); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;

  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(path / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] int hidden() const {
    int count = 0;
    for (const auto& each : fs::directory_iterator(path)) {
      const std::string name = each.path().filename().string();
      count += name.starts_with(".parx-") && !name.ends_with("lock") ? 1 : 0;
    }
    return count;
  }
};

/// Another process, which stops itself where `act` says stop().
class stopped_process {
 public:
  explicit stopped_process(const std::function<void()>& act) : pid_(::fork()) {
    if (pid_ == 0) {
      try {
        act();
      } catch (const parx::error& refused) {
        const bool told = std::string_view(refused.what()).find("another start of this run") !=
                          std::string_view::npos;
        ::_exit(told ? 3 : 4);
      } catch (...) {
        ::_exit(5);
      }
      ::_exit(0);
    }
    int status = 0;
    stopped_ = ::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  }
  ~stopped_process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  stopped_process(const stopped_process&) = delete;
  stopped_process& operator=(const stopped_process&) = delete;

  [[nodiscard]] bool is_stopped() const noexcept { return stopped_; }
  /// Lets it go on, and returns its exit code.
  [[nodiscard]] int go_on() {
    ::kill(pid_, SIGCONT);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
  bool stopped_ = false;
};
void stop() { ::raise(SIGSTOP); }

void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

checkpoint_parts parts(const std::string& text) {
  checkpoint_parts made;
  made.add_json("who", parx::json::value(text));
  return made;
}

BOOST_AUTO_TEST_CASE(a_claim_ends_the_earlier_ones) {
  const folder out;
  const writer_claim first(out.path);
  atomic_folder begun(out.path / "checkpoint-1", first.path());
  write(begun.path() / "file", "first");
  const writer_claim second(out.path);
  BOOST_TEST(!fs::exists(first.path()));
  BOOST_CHECK_THROW(begun.commit(), parx::error);
  BOOST_CHECK_THROW(atomic_folder(out.path / "checkpoint-2", first.path()), parx::error);
  atomic_folder other(out.path / "checkpoint-1", second.path());
  write(other.path() / "file", "second");
  other.commit();
  BOOST_TEST(out.text("checkpoint-1/file") == "second");
}

BOOST_AUTO_TEST_CASE(a_stopped_process_can_commit_no_more_wherever_it_was) {
  for (int at = 0; at < 3; ++at) {
    const folder out;
    stopped_process old([&] {
      const writer_claim claim(out.path);
      if (at == 0) stop();
      unfinished_checkpoint made(out.path / "checkpoint-7", claim.path());
      if (at == 1) stop();
      auto files = parx::detail::write_parts(made.path(), 7, parts("old"));
      if (at == 2) stop();  // it holds the folder's lock
      made.commit({.step = 7, .metric = {}, .files = std::move(files)});
    });
    BOOST_TEST_REQUIRE(old.is_stopped());
    checkpoint_manager fresh(out.path.string(), {.mode = parx::save_mode::blocking});
    fresh.claim();
    fresh.save(7, parts("new"));
    const int code = old.go_on();
    // The first file that it then writes has no folder.
    BOOST_TEST((code == 3 || (at == 1 && code == 4)), "stopped at " << at << ": code " << code);
    BOOST_TEST(out.text("checkpoint-7/who.json").find("new") != std::string::npos);
    BOOST_TEST(fresh.latest()->step() == 7U);
    fresh.save(8, parts("new"));
    BOOST_TEST(fresh.latest()->step() == 8U);
  }
}

BOOST_AUTO_TEST_CASE(a_commit_that_comes_first_stays) {
  const folder out;
  stopped_process old([&] {
    checkpoint_manager mine(out.path.string(), {.mode = parx::save_mode::blocking});
    mine.claim();
    mine.save(3, parts("old"));
    stop();
    mine.save(4, parts("old"));
  });
  BOOST_TEST_REQUIRE(old.is_stopped());
  checkpoint_manager fresh(out.path.string(), {.mode = parx::save_mode::blocking});
  fresh.claim();
  BOOST_TEST(fresh.latest()->step() == 3U);
  BOOST_TEST(old.go_on() == 3);
  BOOST_TEST(fresh.latest()->step() == 3U);
}

BOOST_AUTO_TEST_CASE(a_run_that_ends_leaves_no_claim_behind) {
  const folder out;
  {
    checkpoint_manager one(out.path.string());
    one.claim();
    one.save(1, parts("x"));
    one.wait();
    BOOST_TEST(out.hidden() == 1);
    one.claim();  // again
    one.save(2, parts("x"));
    one.wait();
    BOOST_TEST(out.hidden() == 1);
  }
  BOOST_TEST(out.hidden() == 0);
}

BOOST_AUTO_TEST_CASE(a_later_generation_takes_the_lock_of_a_stopped_one_and_no_other_run_does) {
  const folder out;
  const auto start = [](const std::string& coordinator, const std::string& generation) {
    return environment{{"PARX_COORDINATOR", coordinator}, {"PARX_GENERATION", generation}};
  };
  const std::string path = out.path.string();
  constexpr auto unknown = lock_holder::may_be_another_run;
  stopped_process old([&] {
    const auto held = locked_folder(path, unknown, start("k", "2"));
    stop();
  });
  BOOST_TEST_REQUIRE(old.is_stopped());
  for (const environment& other :
       {environment{}, start("j", "3"), start("k", "1"), start("k", "2")}) {
    BOOST_CHECK_THROW((void)locked_folder(path, unknown, other), parx::error);
  }
  const auto taken = locked_folder(path, unknown, start("k", "3"));
  BOOST_CHECK_THROW((void)locked_folder(path, unknown, start("k", "2")), parx::error);
  const auto after_shrink = locked_folder(path, lock_holder::is_superseded, start("k", "3"));
  BOOST_CHECK_THROW((void)locked_folder(path, unknown, start("k", "3")), parx::error);
}

}  // namespace
