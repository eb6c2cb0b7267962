// The parts of parxrun that need no process; parxrun.sh tries the whole.
#include <boost/test/unit_test.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tools/common/child_process.hpp"
#include "tools/common/find_program.hpp"
#include "tools/common/instructions.hpp"
#include "tools/common/rank_list.hpp"
#include "tools/parxrun/failures/job_end.hpp"
#include "tools/parxrun/failures/repeated_errors.hpp"
#include "tools/parxrun/ranks/job_guard.hpp"
#include "tools/parxrun/ranks/line_cutter.hpp"
#include "tools/parxrun/ranks/missing_instructions.hpp"
#include "tools/parxrun/ranks/orphans.hpp"
#include "tools/parxrun/ranks/rank_variables.hpp"
#include "tools/parxrun/ranks/stop_requests.hpp"
#include <parx/core/compiled_for.hpp>
#include <parx/core/failure_record.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/process_table.hpp>

namespace {

using parx::environment;
using parx::detail::carriage_return;
using parx::detail::exit_status;
using parx::detail::line_cutter;
using parx::rank_list;

std::vector<std::string> lines_of(line_cutter& cutter, std::string_view bytes) {
  std::vector<std::string> lines;
  cutter.feed(bytes, [&](std::string_view line) { lines.emplace_back(line); });
  return lines;
}

using texts = std::vector<std::string>;

/// From here on this process and its children are on a kernel from before Linux 5.9, which has no
/// close_range(2), as far as a container's C library sees.
void forget_close_range() {
  std::array<sock_filter, 4> filter{{{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
                                     {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_close_range},
                                     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
                                     {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}}};
  const sock_fprog program{filter.size(), filter.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

BOOST_AUTO_TEST_CASE(a_request_to_end_that_comes_again_at_once_is_the_same_one) {
  using parx::detail::stop_request;
  using std::chrono::milliseconds;
  const parx::detail::stop_requests::time_point start{};
  const auto second = [&](int signal, milliseconds later) {
    parx::detail::stop_requests requests;
    BOOST_TEST((requests.take(SIGTERM, start) == stop_request::first));
    const stop_request now = requests.take(signal, start + later);
    BOOST_TEST(requests.was_asked_twice() == (now == stop_request::second));
    return now;
  };
  BOOST_TEST((second(SIGTERM, milliseconds(900)) == stop_request::same));
  BOOST_TEST((second(SIGTERM, milliseconds(1100)) == stop_request::second));
  BOOST_TEST((second(SIGINT, milliseconds(50)) == stop_request::same));
  BOOST_TEST((second(SIGINT, milliseconds(200)) == stop_request::second));
  BOOST_TEST((second(SIGPIPE, milliseconds(60'000)) == stop_request::same));
  BOOST_TEST(!parx::detail::stop_requests().was_asked());
}

BOOST_AUTO_TEST_CASE(lines_come_out_whole_however_the_bytes_arrive) {
  const std::string bytes = "one\n\ntwo words\r\nthree";
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    line_cutter cutter;
    texts lines = lines_of(cutter, bytes.substr(0, cut));
    for (const auto& line : lines_of(cutter, bytes.substr(cut))) lines.push_back(line);
    BOOST_TEST(lines == (texts{"one", "", "two words\r"}), boost::test_tools::per_element());
    BOOST_TEST(cutter.partial() == "three");
  }
}

BOOST_AUTO_TEST_CASE(on_a_terminal_a_carriage_return_begins_the_line_again) {
  line_cutter cutter(carriage_return::rewrites);
  BOOST_TEST(lines_of(cutter, "\r10%").empty());
  BOOST_TEST(cutter.live());
  BOOST_TEST(cutter.partial() == "10%");
  BOOST_TEST(lines_of(cutter, "\r20%").empty());
  BOOST_TEST(cutter.partial() == "20%");
  BOOST_TEST(lines_of(cutter, "\r").empty());
  BOOST_TEST(cutter.partial() == "20%");
  BOOST_TEST(lines_of(cutter, "done\nnext") == texts{"done"}, boost::test_tools::per_element());
  BOOST_TEST(!cutter.live());
  BOOST_TEST(cutter.partial() == "next");
  BOOST_TEST(lines_of(cutter, " line\r\n") == texts{"next line"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_line_without_end_is_cut_before_it_fills_the_memory) {
  line_cutter cutter;
  std::size_t passed = 0;
  const std::string piece(100'000, 'x');
  for (int i = 0; i < 50; ++i) {
    cutter.feed(piece, [&](std::string_view line) { passed += line.size(); });
  }
  BOOST_TEST(passed + cutter.partial().size() == 5'000'000U);
  BOOST_TEST(cutter.partial().size() <= 1U << 20);
}

BOOST_AUTO_TEST_CASE(ranks_are_listed_in_ranges) {
  BOOST_TEST(rank_list({}) == "");
  BOOST_TEST(rank_list({3}) == "3");
  BOOST_TEST(rank_list({0, 1}) == "0,1");
  BOOST_TEST(rank_list({0, 1, 2, 5, 7, 8, 10, 11, 12, 13}) == "0-2,5,7,8,10-13");
}

BOOST_AUTO_TEST_CASE(the_shells_code_tells_a_signal_from_an_exit) {
  BOOST_TEST((exit_status{0, 0}.shell_code()) == 0);
  BOOST_TEST((exit_status{7, 0}.shell_code()) == 7);
  BOOST_TEST((exit_status{0, 9}.shell_code()) == 137);
  BOOST_TEST(to_string(exit_status{0, 11}) == "killed by SIGSEGV (signal 11)");
}

BOOST_AUTO_TEST_CASE(a_family_is_what_descends_from_its_marked_processes_and_runs) {
  using parx::detail::process_entry;
  const std::vector<process_entry> table{
      {.pid = 9, .name = "grandchild", .state = 'S', .parent = 7},
      {.pid = 1, .name = "init", .state = 'S'},
      {.pid = 5, .name = "marked", .state = 'R', .parent = 1},
      {.pid = 6, .name = "other", .state = 'R', .parent = 1},
      {.pid = 7, .name = "zombie", .state = 'Z', .parent = 5},
      {.pid = 8, .name = "child", .state = 'T', .parent = 5},
  };
  const auto family = parx::detail::family_of(
      table, [](const process_entry& each) { return each.name == "marked"; });
  texts names;
  for (const process_entry& each : family) names.push_back(each.name);
  BOOST_TEST(names == (texts{"marked", "child", "grandchild"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_guard_notices_the_end_of_parxrun_also_on_an_old_kernel) {
  int ends[2];
  BOOST_REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const pid_t parxrun = ::fork();
  if (parxrun == 0) {
    forget_close_range();
    const parx::detail::job_guard guard("of no job");
    const pid_t number = guard.pid();
    [[maybe_unused]] const auto written = ::write(ends[1], &number, sizeof number);
    ::kill(::getpid(), SIGKILL);
  }
  pid_t guard = 0;
  BOOST_REQUIRE(::read(ends[0], &guard, sizeof guard) == sizeof guard);
  parx::detail::reap(parxrun);
  const auto runs = [&] {
    const auto entry = parx::detail::find_process(guard);
    return entry && entry->is_running();
  };
  for (int i = 0; i < 300 && runs(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  BOOST_TEST(!runs());
  if (runs()) ::kill(guard, SIGKILL);
  for (const int end : ends) ::close(end);
}

BOOST_AUTO_TEST_CASE(a_rank_learns_its_own_place_and_not_that_of_parxrun) {
  const environment outer{{"OMPI_COMM_WORLD_RANK", "9"},
                          {"PMIX_RANK", "9"},
                          {"SLURM_PROCID", "9"},
                          {"SLURM_STEP_ID", "9"},
                          {"TORCHELASTIC_RUN_ID", "x"},
                          {"GROUP_RANK", "9"},
                          {"RANK", "9"},
                          {"PARX_RANK", "9"},
                          {"PARX_SECRET", "that of another job"},
                          {"SLURM_JOB_ID", "77"},
                          {"HOME", "/root"}};
  const parx::detail::local_job job{.host = "127.0.0.1",
                                    .port = 4711,
                                    .other_host = "127.0.0.1",
                                    .other_port = 4711,
                                    .ranks = 4,
                                    .run_id = "run",
                                    .job_id = "run",
                                    .secret_file = "/proc/1/fd/5",
                                    .secret = {},
                                    .threads_per_rank = 2,
                                    .place = {.generation = 1, .world_size = 4, .nodes = 1}};
  const environment rank = parx::detail::rank_variables(outer, job, 3);
  const environment expected{{"GROUP_RANK", "0"},
                             {"GROUP_WORLD_SIZE", "1"},
                             {"HOME", "/root"},
                             {"LOCAL_RANK", "3"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "4711"},
                             {"OMP_NUM_THREADS", "2"},
                             {"PARX_ATTEMPT", "0"},
                             {"PARX_GENERATION", "1"},
                             {"PARX_LOCAL_RANK", "3"},
                             {"PARX_LOCAL_WORLD_SIZE", "4"},
                             {"PARX_MASTER_ADDR", "127.0.0.1"},
                             {"PARX_MASTER_PORT", "4711"},
                             {"PARX_NODE_RANK", "0"},
                             {"PARX_RANK", "3"},
                             {"PARX_RUN_ID", "run"},
                             {"PARX_SECRET_FILE", "/proc/1/fd/5"},
                             {"PARX_WORLD_SIZE", "4"},
                             {"RANK", "3"},
                             {"ROLE_NAME", "default"},
                             {"ROLE_RANK", "3"},
                             {"ROLE_WORLD_SIZE", "4"},
                             {"SLURM_JOB_ID", "77"},
                             {"TORCHELASTIC_MAX_RESTARTS", "0"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"},
                             {"TORCHELASTIC_RUN_ID", "run"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                             {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                             {"WORLD_SIZE", "4"}};
  BOOST_TEST((rank == expected));
}

BOOST_AUTO_TEST_CASE(the_report_names_the_first_failure_and_groups_the_others) {
  parx::detail::rank_end first{2, 400, {0, 9}, false, 1.25};
  first.log_file = "logs/rank_2.err";
  first.last_lines = {"out of memory"};
  const parx::detail::job_end end{.reports = {{.node = "n",
                                               .ranks = {{0, 1, {1, 0}, false, 1.3},
                                                         {1, 2, {0, 15}, true, 1.5},
                                                         first,
                                                         {3, 4, {1, 0}, false, 1.4}}}},
                                  .command = "./train",
                                  .code = 137};
  const std::string report = parx::detail::report_text(end);
  for (const char* part :
       {"rank 2 of 4 failed: killed by SIGKILL (signal 9), 1.2 s", "./train", "logs/rank_2.err",
        "    | out of memory\n", "; ranks 0,3: exit code 1",
        "; rank 1: killed by SIGTERM (signal 15), after parxrun ended the job"}) {
    BOOST_TEST((report.find(part) != report.npos), part);
  }
}

BOOST_AUTO_TEST_CASE(the_report_of_a_mistake_of_all_ranks_that_is_in_sight_has_two_lines) {
  parx::detail::rank_end first{1, 400, {2, 0}, false, 0.25};
  first.last_lines = {"[parx rank 1] error: no data"};
  first.is_in_sight = true;
  first.record = parx::failure_record{.text = "no data"};
  const parx::detail::rank_end other{0, 1, {2, 0}, false, 0.3};
  parx::detail::job_end end{
      .reports = {{.node = "n1", .ranks = {other, first}, .recorder = "/dev/shm/x"}},
      .command = "./train",
      .code = 2};
  BOOST_TEST(parx::detail::report_text(end) ==
             "parxrun: rank 1 of 2 failed: exit code 2, 0.2 s after the start; rank 0: exit code "
             "2\n  command   ./train\n");
  // On another node they are not, and what only others have told is found by the recorders.
  first.record = std::nullopt;
  end.reports = {{.node = "n1", .ranks = {other}},
                 {.node = "n2", .ranks = {first}, .recorder = "/dev/shm/x"}};
  const std::string report = parx::detail::report_text(end);
  BOOST_TEST((report.find("    | [parx rank 1] error: no data\n") != report.npos), report);
  BOOST_TEST((report.find("  recorder  /dev/shm/x") != report.npos), report);
}

BOOST_AUTO_TEST_CASE(the_same_exit_code_of_all_ranks_is_not_a_failure) {
  const auto verdict = [](std::vector<parx::detail::rank_end> ends, bool are_silent = true) {
    for (auto& each : ends) each.is_silent = are_silent;
    return parx::detail::common_answer(ends, "./check");
  };
  BOOST_TEST(verdict({{0, 1, {3, 0}}, {1, 2, {3, 0}}}) ==
             "parxrun: all 2 ranks ended with exit code 3: ./check\n");
  BOOST_TEST(verdict({{0, 1, {3, 0}}}) == "parxrun: the rank ended with exit code 3: ./check\n");
  BOOST_TEST(verdict({{0, 1, {3, 0}}, {1, 2, {3, 0}}}, false) == "");
  BOOST_TEST(verdict({{0, 1, {3, 0}}, {1, 2, {4, 0}}}) == "");
  BOOST_TEST(verdict({{0, 1, {3, 0}}, {1, 2, {0, 0}}}) == "");
  BOOST_TEST(verdict({{0, 1, {0, 9}}, {1, 2, {0, 9}}}) == "");
  BOOST_TEST(verdict({{0, 1, {3, 0}}, {1, 2, {3, 0}, true}}) == "");  // parxrun had signalled it
  parx::detail::rank_end recorded{1, 2, {3, 0}};
  recorded.record = parx::failure_record{.text = "no data"};
  BOOST_TEST(verdict({{0, 1, {3, 0}}, recorded}) == "");
}

BOOST_AUTO_TEST_CASE(a_rank_that_uses_what_its_processor_does_not_have_is_explained) {
  using parx::instructions_of;
  using parx::detail::missing_instructions;
  const std::string file = "ELF..parx compiled for: avx avx2;..parx compiled for: avx fma;..";
  BOOST_TEST(instructions_of(file) == (texts{"avx", "avx2", "fma"}),
             boost::test_tools::per_element());
  BOOST_TEST(instructions_of("parx compiled for:;").empty());
  BOOST_TEST(instructions_of("parx compiled for: avx") == texts{"avx"},
             boost::test_tools::per_element());

  const std::string program = "/tmp/parx-test." + std::to_string(::getpid()) + ".train";
  std::ofstream(program, std::ios::binary) << file;
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const auto has_avx_alone = [](std::string_view name) { return name == "avx"; };
  const texts command{"env", "A=1", program, "-n"};
  BOOST_TEST(missing_instructions(command, {{"PATH", "/bin"}}, has_avx_alone) ==
             program + " was compiled for avx2, fma, which this processor does not have: compile "
                       "it here, or without -march=native");
  const auto has_all = [](std::string_view) { return true; };
  BOOST_TEST(missing_instructions({program}, {}, has_all) == "");
  std::filesystem::remove(program);

  // This program runs here, so it has what it was compiled for.
  const texts own = instructions_of(parx::detail::compiled_for);
  const texts in_file = instructions_of(parx::detail::file_text("/proc/self/exe").value());
  for (const std::string& each : own) {
    BOOST_TEST(parx::has_instructions(each), each);
    BOOST_TEST((std::find(in_file.begin(), in_file.end(), each) != in_file.end()), each);
  }
}

/// What is shown of a text that a failed rank prints `seconds` after the start.
std::vector<std::string> shown(parx::detail::repeated_errors& errors, int rank,
                               const std::vector<std::string>& lines, int seconds = 0) {
  for (const std::string& line : lines) errors.take(rank, line);
  const parx::detail::repeated_errors::clock::time_point start{};
  return errors.end_of_error(rank, start + std::chrono::seconds(seconds));
}

BOOST_AUTO_TEST_CASE(an_error_of_all_ranks_is_one_whatever_their_own_numbers) {
  parx::detail::repeated_errors errors;
  const auto prints = [&](int rank, const std::string& text, int seconds = 0) {
    return !shown(errors, rank, {text}, seconds).empty();
  };
  BOOST_TEST(prints(1, "rank 1 says: scan (1 of 4, a.cpp:31): 40, not 7"));
  BOOST_TEST(!prints(3, "rank 3 says: scan (3 of 4, a.cpp:31): 40, not 7"));
  BOOST_TEST(!prints(0, "rank 0 says: scan (0 of 4, a.cpp:31): 40, not 7"));
  BOOST_TEST(prints(2, "rank 2 says: scan (2 of 4, a.cpp:31): 40, not 8"));
  BOOST_TEST(prints(2, "rank 2 says: scan (2 of 4, a.cpp:32): 40, not 7"));
  // What a rank prints again or later is shown, and so is another rank that is spoken of.
  BOOST_TEST(prints(1, "rank 1 says: scan (1 of 4, a.cpp:31): 40, not 7"));
  BOOST_TEST(prints(3, "rank 3 says: scan (3 of 4, a.cpp:31): 40, not 7"));
  BOOST_TEST(prints(2, "rank 2 says: scan (2 of 4, a.cpp:31): 40, not 7", 60));
  // Other numbers may be those of ranks by chance.
  BOOST_TEST(prints(1, "rank 1: the label of row 0 is 3, but there are 1, from 0"));
  BOOST_TEST(!prints(0, "rank 0: the label of row 0 is 3, but there are 1, from 0"));
  BOOST_TEST(prints(2, "rank 2: the label of row 0 is 2, but there are 1, from 0"));
  BOOST_TEST(prints(1, "1: 2 is lost"));
  BOOST_TEST(prints(0, "0: 1 is lost"));
  const std::string summary = errors.summary();
  BOOST_TEST(summary.find("[ranks 0,3] the same error as rank 1: rank 1 says: scan "
                          "(1 of 4, a.cpp:31): 40, not 7\n") != summary.npos,
             summary);
  BOOST_TEST(std::count(summary.begin(), summary.end(), '\n') == 2, summary);
}

BOOST_AUTO_TEST_CASE(an_error_is_hidden_only_where_all_of_its_lines_are_the_same) {
  parx::detail::repeated_errors errors;
  BOOST_TEST(shown(errors, 0, {"the models differ:", "weight", "bias"}).size() == 3U);
  BOOST_TEST(shown(errors, 1, {"the models differ:", "weight", "scale"}).size() == 3U);
  BOOST_TEST(shown(errors, 2, {"the models differ:", "weight", "bias"}).empty());
  BOOST_TEST(errors.summary().starts_with("[rank 2] the same error as rank 0: the models differ:"));
}

BOOST_AUTO_TEST_CASE(what_ranks_say_of_the_failure_of_another_is_one_line) {
  const texts own{"[parx rank 1] error: no data"};
  const auto told = [](int rank) {
    return texts{
        parx::formatted("[parx rank {}, after another rank] error: rank 1: no data", rank)};
  };
  const auto accuses = [](int rank, int other) {
    return texts{parx::formatted("[parx rank {}, after rank {} on n1] error: lost", rank, other)};
  };
  {
    parx::detail::repeated_errors errors;
    BOOST_TEST(shown(errors, 3, told(3)).empty());  // whether it comes before or after
    BOOST_TEST(shown(errors, 1, own) == own);
    BOOST_TEST(shown(errors, 0, accuses(0, 1)).empty());
    BOOST_TEST(shown(errors, 2, own).empty());
    BOOST_TEST(errors.summary() ==
               "[rank 2] the same error as rank 1\n[ranks 0,3] ended because of another rank\n");
  }
  {  // A killed rank has no error of its own, and ranks may accuse several.
    parx::detail::repeated_errors errors;
    BOOST_TEST(shown(errors, 0, accuses(0, 1)) == accuses(0, 1));
    BOOST_TEST(shown(errors, 2, accuses(2, 1)).empty());
    BOOST_TEST(shown(errors, 3, accuses(3, 2)) == accuses(3, 2));
    BOOST_TEST(errors.summary() == "[rank 2] ended because of another rank\n");
  }
  {  // The other rank is of another node.
    parx::detail::repeated_errors errors;
    BOOST_TEST(shown(errors, 2, told(2)).empty());
    BOOST_TEST(errors.summary() == told(2).front() + "\n");
    BOOST_TEST(shown(errors, 3, told(3)).empty());
    BOOST_TEST(errors.summary() ==
               told(2).front() + "\n[ranks 2,3] ended because of another rank\n");
  }
}

}  // namespace
