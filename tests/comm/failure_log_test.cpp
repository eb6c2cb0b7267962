// Where a rank leaves the record of its failure, and who reads it.
#include <parx/comm/flight/failure_log.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using parx::failure_log;
using parx::failure_record;

struct folder {
  std::string path = "/tmp/parx-test-failure-log." + std::to_string(::getpid());
  folder() { std::filesystem::create_directory(path); }
  ~folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string error_file() const { return path + "/rank_2.error.json"; }
  [[nodiscard]] std::vector<failure_record> records(std::int64_t since = 0) const {
    return parx::read_failures(parx::find_flight_directory(path), since);
  }
};

failure_record record_of(int rank, std::string text, std::int64_t unix_ns = 5) {
  return {.unix_ns = unix_ns, .rank = rank, .text = std::move(text)};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_first_record_of_a_rank_is_kept_in_both_places) {
  const folder where;
  failure_log log(2, where.error_file());
  log.add_directory(where.path);
  log.write(record_of(2, "no data"));
  log.write(record_of(2, "closed by an earlier failure"));
  BOOST_REQUIRE(where.records().size() == 1u);
  BOOST_TEST(where.records()[0].text == "no data");
  const auto folder = parx::find_flight_directory(where.path);
  BOOST_TEST(parx::read_failure(folder, "rank_2.error.json").value().text == "no data");
}

BOOST_AUTO_TEST_CASE(a_rank_that_goes_on_leaves_no_record_until_it_fails_again) {
  const folder where;
  failure_log log(2, where.error_file());
  log.add_directory(where.path);
  log.write(record_of(2, "lost rank 1"));
  log.survived();
  BOOST_TEST(std::filesystem::is_empty(where.path));
  log.write(record_of(2, "no data"));
  BOOST_REQUIRE(where.records().size() == 1u);
  BOOST_TEST(where.records()[0].text == "no data");
}

BOOST_AUTO_TEST_CASE(what_an_earlier_job_has_left_of_a_rank_is_removed_and_not_read) {
  const folder where;
  {
    failure_log earlier(1);
    earlier.add_directory(where.path);
    earlier.write(record_of(1, "earlier", 5));
    failure_log other(3);
    other.add_directory(where.path);
    other.write(record_of(3, "other", 5));
  }
  failure_log log(1);
  log.add_directory(where.path);
  BOOST_TEST(where.records().size() == 1u);
  log.write(record_of(1, "now", 9));
  BOOST_REQUIRE(where.records(7).size() == 1u);
  BOOST_TEST(where.records(7)[0].text == "now");
}

BOOST_AUTO_TEST_CASE(a_record_that_cannot_be_written_whole_is_not_there) {
  const folder where;
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 64;
  ::setrlimit(RLIMIT_FSIZE, &small);
  failure_log log(2, where.error_file());
  log.add_directory(where.path);
  log.write(record_of(2, "no data"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  BOOST_TEST(std::filesystem::is_empty(where.path));

  failure_log nowhere(2, "/proc/no/such");
  nowhere.add_directory("/proc/no/such directory");
  nowhere.write(record_of(2, "no data"));
  nowhere.survived();
  failure_log without(2);
  without.write(record_of(2, "no data"));
}

BOOST_AUTO_TEST_CASE(files_that_are_no_records_are_passed_over) {
  const folder where;
  std::ofstream(where.path + "/rank_0.failure") << "{\"message\": {\"mess";
  std::ofstream(where.path + "/rank_1.failure") << std::string(2'000'000, ' ');
  std::filesystem::create_symlink("/etc/passwd", where.path + "/rank_2.failure");
  std::filesystem::create_directory(where.path + "/rank_3.failure");
  BOOST_TEST(where.records().empty());
}

BOOST_AUTO_TEST_CASE(of_threads_that_fail_together_one_writes) {
  const folder where;
  failure_log log(0);
  log.add_directory(where.path);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&log, i] { log.write(record_of(0, "thread " + std::to_string(i))); });
  }
  for (std::thread& each : threads) each.join();
  BOOST_REQUIRE(where.records().size() == 1u);
  BOOST_TEST(where.records()[0].text.starts_with("thread "));
}
