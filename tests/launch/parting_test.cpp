// Whom parxrun's report names when ranks call different operations, or one stands still: not the
// first that gives up, but the one that took another way. The ranks are this program once more.
#include "tools/parxrun/run_ranks.hpp"

#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm.hpp>
#include <parx/launch.hpp>

namespace {

constexpr const char* variable = "PARX_TEST_PARTING";

/// Four calls, of which rank 1 makes the third one in another way.
void program(parx::world& world, const std::string& way) {
  std::vector<float> x(10);
  std::vector<float> all(10 * static_cast<std::size_t>(world.size()));
  parx::barrier(world);
  parx::all_reduce(world, x);
  const bool is_odd = world.rank() == 1;
  if (is_odd && way == "stops") ::raise(SIGSTOP);
  if (is_odd && way == "throws") throw std::runtime_error("cannot open data.bin");
  if (is_odd && way == "is killed") ::raise(SIGKILL);
  // The others are in their calls, so that it is plain which rank is the exception.
  if (is_odd) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (way == "ends early") return is_odd ? void() : parx::recv(world, x, 1);
  if (!(is_odd && way == "skips")) {
    parx::broadcast(world, x, {.root = is_odd && way == "takes another root" ? 1 : 0});
  }
  parx::all_gather(world, x, all);
  parx::barrier(world);
  if (!way.starts_with("ends ")) return;
  parx::broadcast(world, x, {.root = world.rank()});
  if (way == "ends with a root each") return;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // both messages arrive
}

/// Rank 1 stops for good; the others go on without it.
void shrinking_program(parx::world& world) {
  if (world.rank() == 1) ::raise(SIGSTOP);
  std::vector<float> x(10, 1.0F);
  try {
    parx::all_reduce(world, x);
  } catch (const parx::error&) {
    auto others = world.shrink(std::chrono::seconds(1));
    x.assign(10, 1.0F);
    parx::all_reduce(others, x, {.op = parx::reduce_op::sum});
  }
  parx::require(x[3] == 2, "wrong sum {}", x[3]);
}

struct end_of_job {
  int code;
  std::string report;
  double seconds;
};

/// How parxrun ends such a job of `ranks`, and what it says on standard error.
end_of_job run_job(const std::string& way, int ranks,
                   parx::on_loss on_loss = parx::on_loss::end) {
  const std::string place = "/tmp/parx-test-parting." + std::to_string(::getpid());
  const std::string file = place + ".err";
  ::setenv("PARX_RECORDER", place.c_str(), 1);
  ::setenv(variable, way.c_str(), 1);
  ::setenv("PARX_TIMEOUT", "2", 1);
  std::fflush(stderr);
  const int kept = ::dup(STDERR_FILENO);
  const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ::dup2(log, STDERR_FILENO);
  parx::agent_options options{
      .ranks = ranks, .command = {"/proc/self/exe"}, .nodes = {.losses = on_loss}};
  options.command[0] = std::filesystem::read_symlink("/proc/self/exe");
  options.command.insert(options.command.end(), {"--run_test=a_rank", "--log_level=nothing"});
  const auto start = std::chrono::steady_clock::now();
  const int code = parx::run_ranks(options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  ::close(log);
  ::unsetenv(variable);
  std::ifstream said(file);
  const std::string all{std::istreambuf_iterator<char>(said), {}};
  std::filesystem::remove(file);
  std::filesystem::remove_all(place);
  const std::size_t report = all.find("parxrun: ");
  return {code, report == std::string::npos ? all : all.substr(report), taken.count()};
}

std::string report_of(const std::string& way, int ranks) {
  end_of_job end = run_job(way, ranks);
  BOOST_TEST(end.code != 0);
  return std::move(end.report);
}

void expect_headline(const std::string& way, int ranks, const std::string& wanted) {
  const std::string report = report_of(way, ranks);
  const std::string headline = report.substr(0, report.find('\n'));
  BOOST_TEST((headline.find(wanted) != headline.npos), way << ": " << report);
}

}  // namespace

/// What a rank of the jobs below runs; without such a job, nothing.
BOOST_AUTO_TEST_CASE(a_rank) {
  const char* const way = std::getenv(variable);
  if (way == nullptr || std::getenv("PARX_RANK") == nullptr) return;
  const std::string kind = way;
  if (kind == "never joins" && std::getenv("PARX_RANK") == std::string("1")) std::exit(7);
  std::exit(parx::run([&](parx::world& world) {
    kind == "is left out" ? shrinking_program(world) : program(world, kind);
  }));
}

BOOST_AUTO_TEST_CASE(a_rank_that_called_another_operation_is_named) {
  expect_headline("skips", 3,
                  "rank 1 called all_gather of 30 float32 by ");
  expect_headline("skips", 3, "where the others called broadcast of 10 float32 with root 0");
  expect_headline("takes another root", 4, "rank 1 called broadcast of 10 float32 with root 1");
  expect_headline("takes another root", 2, "the ranks called different operations on group "
                                           "\"world\": call #3 was broadcast of 10 float32 with "
                                           "root 0");
}

BOOST_AUTO_TEST_CASE(a_job_whose_last_call_had_two_roots_fails) {
  // report_of checks the exit code.
  BOOST_TEST(report_of("ends as two roots", 2).find("failed: exit code 1") != std::string::npos);
  // One of them has sent all that it thinks it owes, and is said to have ended early. A slow rank
  // may hear of that before its call.
  const std::string report = report_of("ends with a root each", 4);
  const std::string headline = report.substr(0, report.find('\n'));
  BOOST_TEST(headline.starts_with("parxrun: the ranks called different operations on group "
                                  "\"world\": call #6 was broadcast of 10 float32 with root 0"),
             report);
  int named = 0;
  for (const std::string rank : {"0", "1", "2", "3"}) {
    const auto at = headline.find("root " + rank + " by");
    if (at == std::string::npos) continue;
    ++named;
    const auto on = headline.find(" on rank ", at);
    BOOST_TEST(headline.substr(on + 9, 1) == rank, headline);
    BOOST_TEST((on + 10 == headline.size() || headline[on + 10] == ','), headline);
  }
  BOOST_TEST(named >= 2, headline);
}

BOOST_AUTO_TEST_CASE(a_rank_that_makes_no_progress_is_named) {
  expect_headline("stops", 3, "rank 1 did not enter broadcast of 10 float32 with root 0");
  expect_headline("stops", 3, "its process was stopped (SIGSTOP, a debugger)");
}

BOOST_AUTO_TEST_CASE(a_rank_that_ended_while_others_waited_is_named) {
  expect_headline("ends early", 3,
                  "rank 1 ended with exit code 0 while others still waited for it");
}

BOOST_AUTO_TEST_CASE(who_has_failed_by_himself_is_named_as_before) {
  expect_headline("throws", 3, "rank 1 of 3 failed: exit code 1");
  expect_headline("is killed", 3, "rank 1 of 3 failed: killed by SIGKILL");
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_a_rank_that_ended_before_it_had_joined) {
  const end_of_job end = run_job("never joins", 3, parx::on_loss::go_on);
  BOOST_TEST(end.code == 7);
  BOOST_TEST(end.report.starts_with("parxrun: rank 1 of 3 failed: exit code 7"), end.report);
  BOOST_TEST(end.seconds < 5);
}

BOOST_AUTO_TEST_CASE(a_rank_that_the_others_left_out_does_not_outlive_them) {
  const end_of_job end = run_job("is left out", 3, parx::on_loss::go_on);
  BOOST_TEST(end.code == 0);
  BOOST_TEST(end.report.starts_with("parxrun: rank 1 was lost (killed by SIGTERM"), end.report);
  BOOST_TEST(end.seconds < 15);
}
