// parxrun names the rank at fault by the records of the ranks alone: here nothing that they print
// reaches it, and every sentence in their records is replaced.
//
// This program is also the job's: with PARX_TEST_FAULT it is a rank.
#include "tools/parxrun/run_ranks.hpp"

#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <parx/launch.hpp>

namespace {

const char* const words = "zzz";

/// One rank: after some calls the victim does what the fault is.
int work(const std::string& fault, int victim) {
  return parx::run([&](parx::world& world) {
    std::vector<float> data(8, 1.0f);
    for (int call = 0; call < 400; ++call) {
      const bool now = call == 20 && world.rank() == victim;
      if (now && fault == "killed") ::kill(::getpid(), SIGKILL);
      if (now && fault == "throws") throw std::runtime_error("rank 2 has lost rank 1");
      if (now && fault == "throws beside a request") {
        float answer = 0;
        const auto pending =
            parx::async_recv(world, std::span(&answer, 1), (victim + 1) % world.size());
        throw std::runtime_error("the matrix is singular");
      }
      if (now && fault == "exits") ::_exit(3);
      if (now && fault == "aborts") std::abort();
      if (now && fault == "leaves") return;
      if (now && fault == "stops") ::kill(0, SIGSTOP);
      if (now && fault == "calls another") parx::barrier(world);
      parx::all_reduce(world, data);
    }
  });
}

/// Writes a record again with another sentence; nothing where there is no record.
void replace_sentence(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  auto record = parx::failure_from_text(text.str());
  if (!record) return;
  record->text = words;
  std::ofstream(path) << to_text(*record);
}

/// Runs the rank in a process of its own whose output goes nowhere, and ends as it did.
int garbled_rank(const std::string& fault, int victim) {
  const pid_t rank = ::fork();
  if (rank == 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, STDERR_FILENO);
    ::_exit(work(fault, victim));
  }
  int status = 0;
  ::waitpid(rank, &status, 0);
  const char* const error_file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (error_file != nullptr) {
    const std::string path = error_file;
    replace_sentence(path);
    replace_sentence(path.substr(0, path.rfind(".error.json")) + ".failure");
  }
  const std::string line = std::string(words) + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  if (WIFSIGNALED(status)) {
    ::signal(WTERMSIG(status), SIG_DFL);
    ::kill(::getpid(), WTERMSIG(status));
  }
  return WEXITSTATUS(status);
}

/// Before main(), in the processes that are ranks.
const struct rank_of_a_job {
  rank_of_a_job() {
    const char* const fault = std::getenv("PARX_TEST_FAULT");
    if (fault != nullptr) ::_exit(garbled_rank(fault, std::atoi(std::getenv("PARX_TEST_VICTIM"))));
  }
} rank_of_this_process;

struct outcome {
  int code = 0;
  std::string report;
};

outcome run_job(const std::string& fault, int victim, const std::string& recorder,
                const std::string& folder) {
  const std::string log = folder + "/log";
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, STDERR_FILENO);
    int code = 99;
    try {
      code = parx::run_ranks(
          {.ranks = 3,
           .command = {std::filesystem::read_symlink("/proc/self/exe").string()},
           .variables = {{"PARX_TEST_FAULT", fault},
                         {"PARX_TEST_VICTIM", std::to_string(victim)},
                         {"PARX_TIMEOUT", "2"},
                         {"PARX_RECORDER", recorder},
                         {"XDG_RUNTIME_DIR", folder}}});
    } catch (const std::exception& failure) {
      [[maybe_unused]] const auto written =
          ::write(STDERR_FILENO, failure.what(), std::string_view(failure.what()).size());
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text.str()};
}

struct temporary_folder {
  std::string path = "/tmp/parx-test-failures." + std::to_string(::getpid());
  temporary_folder() { std::filesystem::create_directory(path); }
  ~temporary_folder() { std::filesystem::remove_all(path); }
};

/// The line that says what has happened.
std::string headline_of(const std::string& report) {
  std::smatch found;
  return std::regex_search(report, found, std::regex("\nparxrun: (.*)\n")) ? found[1].str() : "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_rank_at_fault_is_named_whatever_the_sentences_are) {
  const temporary_folder folder;
  for (const std::string fault : {"killed", "throws", "throws beside a request", "exits", "aborts",
                                  "leaves", "stops", "calls another"}) {
    for (int victim = 0; victim < 3; ++victim) {
      const auto end = run_job(fault, victim, "", folder.path);
      const std::string headline = headline_of(end.report);
      BOOST_TEST(headline.starts_with("rank " + std::to_string(victim)),
                 fault << " by rank " << victim << ": " << end.report);
      BOOST_TEST(end.report.find("lost rank") == std::string::npos);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_rank_at_fault_is_named_without_flight_recorders_too) {
  const temporary_folder folder;
  for (const std::string fault :
       {"killed", "throws", "exits", "aborts", "leaves", "stops", "calls another"}) {
    const auto end = run_job(fault, 1, "off", folder.path);
    BOOST_TEST(headline_of(end.report).find("rank 1 ") != std::string::npos,
               fault << ": " << end.report);
    std::filesystem::remove(folder.path + "/log");
    BOOST_TEST(std::filesystem::is_empty(folder.path), fault);
  }
}
