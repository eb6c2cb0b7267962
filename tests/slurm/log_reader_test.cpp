// Logs of any length, and of several jobs or tasks of an array: how they are read, and whose they
// are.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tools/parx_slurm/logs/job_records.hpp"
#include "tools/parx_slurm/logs/log_reader.hpp"
#include "tools/parx_slurm/logs/log_summary.hpp"
#include "tools/parx_slurm/logs/log_text.hpp"
#include "tools/parx_slurm/logs/text_marks.hpp"


using namespace parx::slurm;

namespace {

log_summary summary_of(const std::string& text) {
  log_summary summary;
  read_log(text, "x.log", summary);
  return summary;
}

}  // namespace

BOOST_AUTO_TEST_CASE(marks_are_found_wherever_they_are) {
  std::mt19937 draw(3);
  const auto word = [&](std::size_t least, std::size_t most) {
    std::string text(least + draw() % (most - least + 1), ' ');
    for (char& c : text) c = static_cast<char>('a' + draw() % 3);
    return text;
  };
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> words(1 + draw() % 6);
    for (std::string& each : words) each = word(2, 7);
    const text_marks marks({words.begin(), words.end()});
    for (int i = 0; i < 20; ++i) {
      const std::string text = word(0, 24);
      const bool any = std::any_of(words.begin(), words.end(), [&](const std::string& each) {
        return text.find(each) != text.npos;
      });
      BOOST_TEST(marks.any_in(text) == any, text);
      found += any ? 1 : 0;
    }
  }
  BOOST_TEST(found > 1000);
  BOOST_TEST(found < 5000);
  BOOST_CHECK_THROW(text_marks({"a"}), parx::usage_error);
  BOOST_CHECK_THROW(text_marks({}), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(what_a_long_log_tells_is_found_in_its_midst_with_its_line) {
  const std::string filling = "[rank 0 on n1] step " + std::string(1000, '.') + "\n";
  const auto mebibytes = [&](std::size_t count) {
    std::string text;
    while (text.size() < count << 20) text += filling;
    return text;
  };
  std::string text = "[rank 0 on n1] begins\n" + mebibytes(12) + "[rank 3 on n2] step 9\n";
  const auto before = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  text += "[rank 3 on n2] ValueError: Error: no\n" + mebibytes(14) + "[rank 3 on n2] ends\n";
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  const auto summary = summary_of(text);
  BOOST_TEST(summary.lines == lines);
  BOOST_TEST(culprit_lines(summary) ==
             (std::vector<std::string>{
                 parx::formatted("first error, rank 3 on n2, x.log line {}:", before + 1),
                 "    [rank 3 on n2] step 9", "  > [rank 3 on n2] ValueError: Error: no",
                 "    [rank 3 on n2] ends"}));
  // A later turn forgets it, as in a short log.
  BOOST_TEST(end_text(summary_of(text + "turn 1 of job 7 on n[1-2] at x\n" + mebibytes(10)), "")
                 .starts_with("no line of "));
  // One line without an end.
  BOOST_TEST(summary_of(std::string(std::size_t{40} << 20, '.') + " Error: no").lines < 10u);
}

BOOST_AUTO_TEST_CASE(a_log_may_come_in_pieces_of_any_size) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += parx::formatted("[rank {} on n1] step {}\n", i % 4, i);
  text +=
      "[rank 0 on n1] [parx rank 0, after rank 4 on n3] error: any words\n"
      "parxrun: any words\n  command   ./train\n" +
      parx::line_of({.code = 1, .world_size = 6, .has_failed = true, .rank = 4, .node = "n3"}) +
      "[rank 2 on n1] Error: late\nno end";
  const auto whole = summary_of(text);
  std::mt19937 draw(5);
  for (int round = 0; round < 20; ++round) {
    log_summary summary;
    log_reader reader("x.log", summary);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + draw() % 300;
      reader.read(std::string_view(text).substr(at, size));
      at += size;
    }
    reader.end();
    BOOST_TEST(culprit_lines(summary) == culprit_lines(whole));
    BOOST_TEST(summary.lines == whole.lines);
    BOOST_TEST(summary.launcher_lines == whole.launcher_lines);
  }
}

BOOST_AUTO_TEST_CASE(an_empty_log_is_called_so) {
  BOOST_TEST(end_text(log_summary{}, "FAILED") == "the log is empty");
  BOOST_TEST(end_text(log_summary{}, "COMPLETED") ==
             "no line of 0 tells of an error: the job ended well");
}

BOOST_AUTO_TEST_CASE(each_task_of_an_array_has_its_own_record) {
  // As Slurm 22.05 prints them, shortened.
  const std::string shown =
      "JobId=10 ArrayJobId=7 ArrayTaskId=2 JobName=a JobState=RUNNING Reason=None Restarts=0 "
      "ExitCode=0:0 NodeList=n1 StdOut=/w/a-7_2.log\n"
      "JobId=9 ArrayJobId=7 ArrayTaskId=1 JobName=a JobState=FAILED Reason=NonZeroExitCode "
      "Restarts=1 ExitCode=3:0 NodeList=n2 StdOut=/w/a-7_1.log\n"
      "JobId=7 ArrayJobId=7 ArrayTaskId=10-12%2 JobName=a JobState=PENDING Reason=Resources "
      "Restarts=0 ExitCode=0:0 NodeList= StdOut=/w/a-7_4294967294.log\n";
  const auto tasks = [](const std::vector<job_record>& records) {
    std::vector<std::string> all;
    for (const auto& each : records)
      all.push_back(each.task + " " + each.state + " " + each.exit_code);
    return all;
  };
  BOOST_TEST(
      tasks(job_records(shown, "")) ==
      (std::vector<std::string>{"7_1 FAILED 3:0", "7_2 RUNNING 0:0", "7_[10-12%2] PENDING 0:0"}));
  // Accounts know tasks that scontrol has forgotten, and count.
  const auto both = job_records(shown, "7_0|COMPLETED|0:0|n3\n7_1|TIMEOUT|0:15|n2\n");
  BOOST_TEST(tasks(both) ==
             (std::vector<std::string>{"7_0 COMPLETED 0:0", "7_1 TIMEOUT 0:15", "7_2 RUNNING 0:0",
                                       "7_[10-12%2] PENDING 0:0"}));
  BOOST_TEST(both[1].log == "/w/a-7_1.log");
  const auto one = job_records("JobId=4 JobName=a JobState=COMPLETED ExitCode=0:0 NodeList=n1\n",
                               "4|COMPLETED|0:0|n1\n");
  BOOST_TEST(tasks(one) == std::vector<std::string>{" COMPLETED 0:0"});
  BOOST_TEST(job_records("slurm_load_jobs error: Invalid job id specified\n", "").empty());
  BOOST_TEST(states_text({"FAILED", "COMPLETED", "COMPLETED"}) == "2 COMPLETED, 1 FAILED");
}

BOOST_AUTO_TEST_CASE(a_task_that_failed_is_worse_than_one_that_was_cancelled_or_goes_on) {
  BOOST_TEST(severity("OUT_OF_MEMORY") > severity("FAILED"));
  BOOST_TEST(severity("FAILED") > severity("TIMEOUT"));
  BOOST_TEST(severity("TIMEOUT") > severity("CANCELLED by 1000"));
  for (const char* const state : {"COMPLETED", "RUNNING", "PENDING", "COMPLETING", ""}) {
    BOOST_TEST(severity(state) == 0, state);
  }
}

BOOST_AUTO_TEST_CASE(a_log_says_whose_it_is_by_its_name_or_its_first_turn) {
  BOOST_TEST(job_of_log("train-7_3.log", "") == "7_3");
  BOOST_TEST(job_of_log("slurm-12_10.out", "turn 0 of job 40 on n1 at x\n") == "12_10");
  BOOST_TEST(job_of_log("lab.7_2.n1.0.out", "") == "7_2");
  BOOST_TEST(job_of_log("7_2.log", "") == "7_2");
  BOOST_TEST(job_of_log("train-7.log", "hello\nturn 0 of job 7 on n1 at x\n") == "7");
  for (const char* const other :
       {"train.log", "n1.r3.err", "my_run_3.log", "v2_1x.log", "7_.log", ""}) {
    BOOST_TEST(job_of_log(other, "step 1 of job 3\n") == "", other);
  }
}
