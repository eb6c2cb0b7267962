// The flight recorders of real jobs: of one whose rank was killed with -9, of one that ended well.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tools/common/flight/divergence.hpp"

#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using parx_test::mentions;


struct folder {
  std::string path = "/tmp/parx-test-recorder." + std::to_string(::getpid());
  folder() { std::filesystem::create_directory(path); }
  ~folder() { std::filesystem::remove_all(path); }
};

void train(parx::world& world, int killed_in) {
  std::vector<float> data(4, 1.0f);
  for (int step = 1; step <= 6; ++step) {
    if (step == killed_in && world.rank() == 1) ::kill(::getpid(), SIGKILL);
    parx::all_reduce(world, data);
  }
  parx::barrier(world);
}

std::vector<processes::outcome> run_job(int ranks, int killed_in, const parx::environment& env) {
  processes::job job;
  for (int rank = 0; rank < ranks; ++rank) {
    job.start(rank, ranks, [killed_in](parx::world& world) { train(world, killed_in); }, env);
  }
  return job.wait();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_killed_with_9_is_the_one_that_never_entered) {
  for (const char* transport : {"auto", "tcp"}) {
    const folder where;
    const auto ends = run_job(3, 4, {{"PARX_RECORDER", where.path}, {"PARX_TRANSPORT", transport}});
    BOOST_TEST(ends[1].exit_code == 137);
    BOOST_TEST(mentions(ends[0].text, "parx_doctor recorder " + where.path));
    const auto logs = parx::read_flight_logs(where.path);
    BOOST_REQUIRE(logs.ranks.size() == 3u);
    BOOST_TEST(logs.left_out.empty());
    BOOST_TEST((logs.ranks[1].ending == parx::flight_ending::running));
    BOOST_TEST((logs.ranks[2].ending == parx::flight_ending::failed));
    const auto found = parx::find_divergences(logs.ranks);
    BOOST_REQUIRE(found.size() == 1u);
    BOOST_TEST(found[0].name == "world");
    BOOST_TEST(found[0].call.call.number() == 4u);
    BOOST_TEST(found[0].call.bytes == 16u);
    BOOST_TEST((found[0].ranks[0].part == parx::flight_part::failed));
    BOOST_TEST((found[0].ranks[1].part == parx::flight_part::never_entered));
    BOOST_TEST((found[0].ranks[2].part == parx::flight_part::failed));
  }
}

BOOST_AUTO_TEST_CASE(a_job_that_ends_well_leaves_nothing_and_one_that_fails_its_directory) {
  const folder where;
  const parx::environment env{{"PARX_RECORDER", ""}, {"XDG_RUNTIME_DIR", where.path}};
  for (const auto& end : run_job(3, 0, env)) BOOST_TEST(end.exit_code == 0);
  BOOST_TEST(std::filesystem::is_empty(where.path));
  const auto ends = run_job(3, 2, env);
  BOOST_REQUIRE(!std::filesystem::is_empty(where.path));
  const std::string kept = std::filesystem::directory_iterator(where.path)->path();
  BOOST_TEST(mentions(ends[2].text, kept));
  BOOST_TEST(parx::read_flight_logs(kept).ranks.size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_job_whose_recorder_has_no_place_runs_without_and_says_so) {
  const auto ends = run_job(2, 0, {{"PARX_RECORDER", "/proc/no/such"}});
  for (const auto& end : ends) {
    BOOST_TEST(end.exit_code == 0);
    BOOST_TEST(
        mentions(end.text, "operations are not recorded: the flight recorder /proc/no/such"));
  }
}

BOOST_AUTO_TEST_CASE(a_limit_on_file_sizes_leaves_a_job_without_recorder_and_nothing_worse) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  ::setrlimit(RLIMIT_FSIZE, &small);  // which the ranks inherit
  const folder where;
  const auto ends = run_job(2, 0, {{"PARX_RECORDER", where.path}, {"PARX_TRANSPORT", "tcp"}});
  ::setrlimit(RLIMIT_FSIZE, &before);
  for (const auto& each : ends) BOOST_TEST(each.exit_code == 0, each.text);
}
