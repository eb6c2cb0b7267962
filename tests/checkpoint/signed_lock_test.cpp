// A lock says at every moment who holds it, so that the next generation can take it from a process
// that is stopped, wherever that stands.
#include <parx/checkpoint/signed_lock.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <parx/core/env.hpp>
#include <parx/core/random_hex.hpp>

namespace {

using parx::detail::lock_holder;
using parx::detail::signed_lock;
using namespace std::chrono_literals;

const parx::environment of_first{{"PARX_COORDINATOR", "k"}, {"PARX_GENERATION", "9"}};
const parx::environment of_next{{"PARX_COORDINATOR", "k"}, {"PARX_GENERATION", "10"}};
const parx::environment of_other{{"PARX_COORDINATOR", "x"}, {"PARX_GENERATION", "10"}};

struct lock_file {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("parx_lock." + parx::detail::random_hex()))
          .string();
  ~lock_file() { std::filesystem::remove(path); }
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_later_generation_takes_the_lock_away_and_another_run_does_not) {
  const lock_file file;
  const signed_lock first(file.path, lock_holder::may_be_another_run, 0s, of_first);
  BOOST_TEST(first.is_held());
  const signed_lock other(file.path, lock_holder::may_be_another_run, 0s, of_other);
  BOOST_TEST(!other.is_held());
  BOOST_TEST(other.holder().starts_with("process "));
  const signed_lock next(file.path, lock_holder::may_be_another_run, 0s, of_next);
  BOOST_TEST(next.is_held());
  BOOST_TEST(!signed_lock(file.path, lock_holder::may_be_another_run, 0s, of_first).is_held());
}

BOOST_AUTO_TEST_CASE(a_lock_that_is_signed_again_is_unsigned_at_no_moment) {
  const lock_file file;
  { const signed_lock first(file.path, lock_holder::may_be_another_run, 0s, of_next); }
  std::atomic<bool> over = false;
  int looks = 0, unsigned_looks = 0;
  std::thread reader([&] {
    while (!over) {
      ++looks;
      if (text_of(file.path).find("\nk ") == std::string::npos) ++unsigned_looks;
    }
  });
  for (int i = 0; i < 3000; ++i) {
    const auto& env = i % 2 == 0 ? of_first : of_next;
    const signed_lock again(file.path, lock_holder::may_be_another_run, 1s, env);
    if (!again.is_held()) ++unsigned_looks;
  }
  over = true;
  reader.join();
  BOOST_TEST(looks > 100);
  BOOST_TEST(unsigned_looks == 0);
  BOOST_TEST(text_of(file.path).ends_with("\nk 10\n"));
}
