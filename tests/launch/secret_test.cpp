#include <parx/launch/detail/job_secret.hpp>

#include <launch/processes.hpp>
#include <messages.hpp>

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "tools/parxrun/nodes/secret.hpp"
#include <parx/comm.hpp>

using namespace processes;
using parx::environment;
using parx_test::mentions;

namespace {

struct folder {
  std::string path = "/tmp/parx-test-secret." + std::to_string(::getpid());
  folder() { std::filesystem::create_directories(path); }
  ~folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string write(const std::string& name, const std::string& text,
                                  mode_t mode) const {
    const std::string file = path + "/" + name;
    std::ofstream(file) << text;
    ::chmod(file.c_str(), mode);
    return file;
  }
};

std::string refusal_of(const std::string& file) {
  try {
    (void)parx::detail::secret_in(file);
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "";
}

parx::launch_env step(int local_ranks, int ranks) {
  parx::launch_env job;
  job.started_by = parx::launcher::slurm;
  job.world_size = ranks;
  job.local_world_size = local_ranks;
  return job;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_secret_is_taken_from_a_file_that_nobody_else_may_read) {
  const folder here;
  const environment env{{"PARX_SECRET_FILE", here.write("good", "open sesame\n", 0600)}};
  BOOST_TEST(parx::detail::with_secret(env).at("PARX_SECRET") == "open sesame");
  const auto open = here.write("open", "open sesame\n", 0640);
  BOOST_TEST(mentions(refusal_of(open), "chmod 600"), refusal_of(open));
  BOOST_TEST(mentions(refusal_of(open), open));
  BOOST_TEST(!mentions(refusal_of(open), "sesame"));
  BOOST_TEST(mentions(refusal_of(here.write("empty", " \n", 0600)), "is empty"));
  BOOST_TEST(mentions(refusal_of(here.write("long", std::string(5000, 'x'), 0600)), "5000 bytes"));
  BOOST_TEST(mentions(refusal_of(here.write("binary", std::string(20, '\0'), 0600)), "no text"));
  BOOST_TEST(mentions(refusal_of(here.path + "/none"), "No such file"));
  BOOST_TEST(mentions(refusal_of(here.path), "must be a file"));
  const environment both{{"PARX_SECRET", "mine"}, {"PARX_SECRET_FILE", open}};
  BOOST_TEST(parx::detail::with_secret(both).at("PARX_SECRET") == "mine");
}

BOOST_AUTO_TEST_CASE(what_parxrun_hands_over_is_read_by_other_processes_of_the_user) {
  const parx::detail::secret_file file("0123456789abcdef");
  BOOST_TEST_REQUIRE(file.path() != "");
  const pid_t reader = ::fork();
  if (reader == 0) {
    ::_exit(parx::detail::secret_in(file.path()) == "0123456789abcdef" ? 0 : 1);
  }
  int status = -1;
  ::waitpid(reader, &status, 0);
  BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(a_hidden_variable_is_known_to_the_program_and_not_to_its_children) {
  ::setenv("PARX_SECRET", "open-sesame", 1);
  parx::hide_variable("PARX_SECRET");
  BOOST_TEST(parx::process_environment().at("PARX_SECRET") == "open-sesame");
  BOOST_TEST(std::system("test -z \"$PARX_SECRET\"") == 0);
  parx::hide_variable("PARX_SECRET");
  BOOST_TEST(parx::process_environment().at("PARX_SECRET") == "open-sesame");
}

BOOST_AUTO_TEST_CASE(ranks_of_a_step_on_one_host_find_the_same_secret_without_the_user) {
  const folder home;
  const environment env{{"HOME", home.path}};
  std::vector<std::string> found(16);
  std::vector<std::thread> ranks;
  for (auto& mine : found) {
    ranks.emplace_back([&] {
      std::string why_not;
      mine = parx::detail::derived_secret(step(16, 16), env, why_not);
    });
  }
  for (auto& each : ranks) each.join();
  BOOST_TEST((std::set<std::string>(found.begin(), found.end()).size() == 1));
  BOOST_TEST(found[0].size() == 32U);
  const std::string file = home.path + "/.config/parx/secret";
  struct stat about {};
  BOOST_TEST_REQUIRE(::stat(file.c_str(), &about) == 0);
  BOOST_TEST((about.st_mode & 0777) == 0600U);
  BOOST_TEST((std::distance(std::filesystem::directory_iterator(home.path + "/.config/parx"), {}) ==
              1));

  std::string why_not;
  BOOST_TEST(parx::detail::derived_secret(step(2, 4), env, why_not) == "");  // hosts may differ
  BOOST_TEST(mentions(why_not, "shared among hosts"), why_not);
  ::chmod(file.c_str(), 0644);
  BOOST_TEST(parx::detail::derived_secret(step(4, 4), env, why_not) == "");
  BOOST_TEST(mentions(why_not, "chmod 600"), why_not);
  auto by_hand = step(4, 4);
  by_hand.started_by = parx::launcher::variables;
  why_not.clear();
  BOOST_TEST(parx::detail::derived_secret(by_hand, env, why_not) == "");
  BOOST_TEST(why_not == "");
}

BOOST_AUTO_TEST_CASE(a_secret_that_can_be_guessed_is_warned_of) {
  job all;
  for (int rank = 0; rank < 2; ++rank) {
    all.start(rank, 2, [](parx::world&) {}, {{"PARX_SECRET", "sesame"}});
  }
  const auto results = all.wait();
  BOOST_TEST(mentions(results[0].text, "secret has 6 characters"), results[0].text);
  BOOST_TEST(!mentions(results[0].text, "sesame"), results[0].text);
  BOOST_TEST(results[1].text == "");
}

BOOST_AUTO_TEST_CASE(a_job_of_parxrun_without_a_secret_is_not_told_to_start_by_parxrun) {
  parx::launch_env job;
  job.hosted_by = parx::store_host::parxrun;
  BOOST_TEST(!mentions(std::string(parx::detail::way_to_a_secret(job)), "Start it by"));
  BOOST_TEST(mentions(std::string(parx::detail::way_to_a_secret(job)), "PARX_SECRET"));
}

BOOST_AUTO_TEST_CASE(a_job_without_a_secret_says_once_what_that_means) {
  job open;
  for (int rank = 0; rank < 3; ++rank) open.start(rank, 3, [](parx::world&) {});
  const auto warned = open.wait();
  BOOST_TEST(mentions(warned[0].text, "this job has no secret"), warned[0].text);
  BOOST_TEST(mentions(warned[0].text, "PARX_SECRET_FILE"));
  BOOST_TEST(mentions(warned[0].text, "Start it by parxrun"), warned[0].text);
  BOOST_TEST(warned[1].text == "");
  BOOST_TEST(warned[2].text == "");
  const folder here;
  const std::string file = here.write("secret", "open-sesame-0123456789", 0600);
  for (const std::string kind : {"auto", "tcp"}) {
    job closed;
    for (int rank = 0; rank < 3; ++rank) {
      closed.start(rank, 3,
                   [](parx::world& world) {
                     std::vector<float> x(1000, 1.0f);
                     parx::all_reduce(world, x);
                     if (x.front() != 3.0f || x.back() != 3.0f) throw std::logic_error("wrong sum");
                   },
                   {{"PARX_SECRET_FILE", file}, {"PARX_TRANSPORT", kind}});
    }
    for (const auto& each : closed.wait()) {
      BOOST_TEST(each.exit_code == 0);
      BOOST_TEST(each.text == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_store_listens_no_wider_than_where_its_clients_are_told_to_come) {
  using parx::detail::narrowest_address;
  BOOST_TEST(narrowest_address("127.0.0.1") == "127.0.0.1");
  BOOST_TEST(narrowest_address("localhost") == "localhost");
  BOOST_TEST(narrowest_address("192.0.2.1") == "");  // no address of this host (RFC 5737)
  BOOST_TEST(narrowest_address("no.such.name.invalid") == "");
  for (const auto& each : parx::detail::interface_addresses()) {
    if (parx::detail::is_loopback(each.address) || each.address.find(':') != std::string::npos) {
      continue;
    }
    BOOST_TEST(narrowest_address(each.address) == each.address);
  }
}
