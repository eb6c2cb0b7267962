// Commands that parx_slurm runs: their output within a limit, and the exit code of parx_slurm run,
// which is that of the job, whatever srun has made of it. faults.sh kills real parxruns.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "tools/common/run_command.hpp"
#include "tools/parx_slurm/logs/job_code.hpp"


namespace {

using namespace parx::slurm;

int code_of(std::string_view text, int of_srun, std::size_t piece = 1000) {
  job_code job;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    job.read(text.substr(0, piece));
  }
  return job.value(of_srun);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_killed_parxrun_does_not_hide_the_code_of_the_report) {
  const std::string text = "srun: error: node2: task 1: Killed\n" +
                           parx::line_of({.restarts = 1, .goes_on = true}) +
                           parx::line_of({.code = 1, .has_failed = true, .node = "node2"}) +
                           "srun: error: node[1,3]: tasks 0,2: Exited with exit code 1\n";
  for (const std::size_t piece : {1u, 7u, 1000u}) BOOST_TEST(code_of(text, 137, piece) == 1);
}

BOOST_AUTO_TEST_CASE(without_a_report_the_parxruns_that_ended_by_themselves_have_the_code) {
  BOOST_TEST(code_of("srun: error: node1: task 0: Killed\n"
                     "srun: error: node2: task 1: Exited with exit code 75\n"
                     "srun: error: node3: task 2: Exited with exit code 75\n",
                     137) == 75);
  BOOST_TEST(code_of("srun: error: node[1-3]: tasks 0-2: Exited with exit code 5\n", 5) == 5);
}

BOOST_AUTO_TEST_CASE(a_job_that_went_on_without_a_killed_parxrun_has_ended_well) {
  BOOST_TEST(code_of("srun: error: node2: task 1: Killed\n", 137) == 0);
  BOOST_TEST(code_of("srun: error: node[2-3]: tasks 1-2: Killed\n", 137) == 0);
  BOOST_TEST(code_of("srun: error: node1: task 0: Killed\n", 137) == 137);
}

BOOST_AUTO_TEST_CASE(where_nothing_is_known_of_the_job_the_code_is_sruns) {
  BOOST_TEST(code_of("", 0) == 0);
  BOOST_TEST(code_of("", 75) == 75);
  BOOST_TEST(code_of("srun: error: node[1-3]: tasks 0-2: Killed\n", 137) == 137);
  // Parxruns that do not agree.
  BOOST_TEST(code_of("srun: error: node1: task 0: Exited with exit code 1\n"
                     "srun: error: node2: task 1: Exited with exit code 127\n",
                     127) == 127);
}

BOOST_AUTO_TEST_CASE(lines_of_ranks_and_unfinished_ones_do_not_count) {
  const std::string record = parx::line_of({.code = 9});
  BOOST_TEST(code_of("[rank 3 on n2] " + record +
                         "[rank 3 on n2] srun: error: n2: task 1: Exited with exit code 9\n",
                     0) == 0);
  BOOST_TEST(code_of(record.substr(0, record.size() - 1), 0) == 0);
  BOOST_TEST(code_of(record.substr(0, record.size() / 2) + "\n", 0) == 0);
  BOOST_TEST(code_of(std::string(100'000, 'x') + "\n" + record, 137) == 9);
}

BOOST_AUTO_TEST_CASE(what_a_command_in_the_foreground_writes_to_standard_error_can_be_watched) {
  std::string seen;
  const auto run = [&](const char* script) {
    seen.clear();
    return run_in_foreground({"sh", "-c", script}, passed_on::to_command,
                             [&](std::string_view text) { seen += text; });
  };
  BOOST_TEST(run("echo one >&2; sleep 0.1; echo two >&2; exit 7") == 7);
  BOOST_TEST(seen == "one\ntwo\n");
  BOOST_TEST(run("kill -9 $$") == 137);
  BOOST_TEST(seen.empty());
  // Nobody waits for what the command has left behind, though it has the pipe open.
  const auto start = std::chrono::steady_clock::now();
  BOOST_TEST(run("sleep 5 & echo $! >&2; exit 3") == 3);
  BOOST_TEST((std::chrono::steady_clock::now() - start < std::chrono::seconds(4)));
  BOOST_TEST(run_in_foreground({"kill", seen.substr(0, seen.find('\n'))}) == 0);
  BOOST_TEST(run("head -c 70000 /dev/zero | tr '\\0' ' ' >&2") == 0);
  BOOST_TEST(seen.size() == 70'000u);
  BOOST_TEST(run_in_foreground({"true"}) == 0);
  BOOST_TEST(run_in_foreground({"/nowhere/at all"}) == 127);
}

BOOST_AUTO_TEST_CASE(a_command_is_run_to_its_end_or_its_limit) {
  using std::chrono::milliseconds;
  const auto both = run_command({"sh", "-c", "echo out; echo err >&2; exit 3"}, milliseconds(5000));
  BOOST_TEST(both.out == "out\n");
  BOOST_TEST(both.err == "err\n");
  BOOST_TEST(both.code == 3);
  BOOST_TEST(!both.success());
  BOOST_TEST(run_command({"cat"}, milliseconds(5000), "a\nb").out == "a\nb");
  BOOST_TEST(run_command({"cat"}, milliseconds(5000)).out == "");
  BOOST_TEST(run_command({"/no/such/program"}, milliseconds(5000)).code == 127);
  BOOST_TEST(run_command({"sh", "-c", "head -c 300000 /dev/zero"}, milliseconds(5000)).out.size() ==
             300000u);
  const auto start = std::chrono::steady_clock::now();
  const auto late = run_command({"sh", "-c", "sleep 30 & sleep 30"}, milliseconds(200));
  BOOST_TEST(late.timed_out);
  BOOST_TEST((std::chrono::steady_clock::now() - start < std::chrono::seconds(5)));
}
