#include <parx/core/temporary_file.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;
using parx::detail::make_temporary;

namespace {

struct folder {
  fs::path path = fs::temp_directory_path() / fmt::format("parx_temporary_{}", ::getpid());
  folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() { fs::remove_all(path); }

  [[nodiscard]] std::string file(const std::string& name) const { return path / name; }
  void make(const std::string& name) const { std::ofstream(file(name)) << "half"; }
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(path))
      found.insert(entry.path().filename().string());
    return found;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_new_writer_removes_files_of_a_killed_one) {
  const folder place;
  const pid_t writer = ::fork();
  if (writer == 0) {
    const auto made = make_temporary(place.file("eval.csv"));
    ::raise(SIGKILL);
    ::_exit(made.reason);
  }
  ::waitpid(writer, nullptr, 0);
  place.make("eval.csv.tmp.4711.0");
  BOOST_TEST(place.names().size() == 2u);
  {
    const auto made = make_temporary(place.file("eval.csv"));
    BOOST_TEST(place.names() == std::set<std::string>{fs::path(made.name).filename().string()});
  }
}

BOOST_AUTO_TEST_CASE(files_being_written_and_other_names_are_not_removed) {
  const folder place;
  const std::set<std::string> others{"eval.csv", "eval.csv.tmp", "eval.csv.tmp.copy",
                                     "eval.csv.gz.tmp.1.0", "my.eval.csv.tmp.1.0"};
  for (const std::string& each : others) place.make(each);
  const auto mine = make_temporary(place.file("eval.csv"));
  auto written = make_temporary(place.file("eval.csv"));
  written.file.close();  // flushed, and about to be renamed
  parx::detail::remove_abandoned(place.file("eval.csv"));
  auto expected = others;
  for (const std::string& each : {mine.name, written.name}) {
    expected.insert(fs::path(each).filename());
  }
  BOOST_TEST(place.names() == expected);
}

BOOST_AUTO_TEST_CASE(writers_of_one_path_do_not_take_each_others_files) {
  const folder place;
  const std::string path = place.file("model.safetensors");
  std::atomic<int> failures{0};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        auto made = make_temporary(path);
        made.file.close();
        if (::rename(made.name.c_str(), path.c_str()) != 0) ++failures;
      }
    });
  }
  for (std::thread& each : writers) each.join();
  BOOST_TEST(failures == 0);
  BOOST_TEST(place.names() == std::set<std::string>{"model.safetensors"});
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_not_there_is_a_reason) {
  BOOST_TEST(make_temporary("/nonexistent/eval.csv").reason == ENOENT);
}
