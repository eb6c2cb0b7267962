// How a job's processes come to do an operation as they do it: by the environment's rules, else by
// what links were measured to cost; and what memory that takes.
#include <parx/launch.hpp>

#include <boost/test/unit_test.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm.hpp>
#include <parx/comm/explain.hpp>

#include "launch/processes.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx::algorithm;
using parx::operation;
using processes::clock_type;
using processes::job;
using parx_test::mentions;

using environment_of = std::function<parx::environment(int rank)>;

std::vector<processes::outcome> run(int world, const environment_of& extra,
                                    const std::function<void(parx::world&)>& body) {
  job all;
  for (int rank = 0; rank < world; ++rank) all.start(rank, world, body, extra(rank));
  return all.wait(60s);
}

void expect_success(int world, const environment_of& extra,
                    const std::function<void(parx::world&)>& body) {
  for (const auto& each : run(world, extra, body)) BOOST_TEST(each.exit_code == 0, each.text);
}

/// What is chosen for so many bytes, and why.
parx::explanation chosen(parx::world& group, operation what, std::size_t bytes) {
  for (const auto& row : parx::explain(group, what, bytes)) {
    if (row.chosen) return row;
  }
  throw std::runtime_error("nothing is chosen");
}

std::size_t peak_kib() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word != "VmHWM:") continue;
    std::size_t kib = 0;
    file >> kib;
    return kib;
  }
  throw std::runtime_error("/proc/self/status has no VmHWM");
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_environments_rules_choose_the_algorithm_that_runs) {
  const std::string file = "/tmp/parx-rules." + std::to_string(::getpid());
  std::ofstream(file) << "broadcast 0 * 2 16 chain  # of the site\n";
  const auto rules = [&](int) -> parx::environment {
    return {{"PARX_TRANSPORT", "tcp"}, {"PARX_ALGO", "all_reduce:tree"}, {"PARX_ALGO_FILE", file}};
  };
  expect_success(4, rules, [&](parx::world& group) {
    std::vector<float> x(1000);
    const std::size_t before = group.bytes_sent();
    parx::all_reduce(group, x);
    const std::size_t sent = group.bytes_sent() - before;
    // A leaf of the tree sends its vector once; by doubling it would be twice.
    parx::require(group.rank() != 3 || sent == 4000 + 64, "rank 3 sent {} bytes", sent);
    const auto sum = chosen(group, operation::all_reduce, 4000);
    parx::require(sum.name == algorithm::tree && sum.why == "PARX_ALGO:1 says so", "{}", sum.why);
    const auto cast = chosen(group, operation::broadcast, 4);
    parx::require(cast.name == algorithm::chain && cast.why == file + ":1 says so", "{}", cast.why);
    parx::broadcast(group, x);
  });
  ::unlink(file.c_str());
}

BOOST_AUTO_TEST_CASE(wrong_rules_in_the_environment_are_told_on_every_rank) {
  const std::pair<const char*, const char*> wrong[] = {{"PARX_ALGO", "all_reduce:rung"},
                                                       {"PARX_ALGO_FILE", "/nonexistent/rules"},
                                                       {"PARX_DEADLOCK", "ignore"}};
  for (const auto& [name, value] : wrong) {
    const auto on_rank_1 = [name = name, value = value](int rank) -> parx::environment {
      return rank == 1 ? parx::environment{{name, value}} : parx::environment{};
    };
    for (const auto& each : run(2, on_rank_1, [](parx::world&) {})) {
      BOOST_TEST(each.exit_code != 0);
      BOOST_TEST(mentions(each.text, name), each.text);
      BOOST_TEST(each.seconds < 10.0);
    }
  }
  // Rules that differ are found out by the first call.
  const auto on_rank_0 = [](int rank) -> parx::environment {
    return {{"PARX_ALGO", rank == 0 ? "all_reduce:tree" : "all_reduce:ring"}};
  };
  const auto add = [](parx::world& group) {
    std::vector<float> x(10);
    parx::all_reduce(group, x);
  };
  for (const auto& each : run(3, on_rank_0, add)) {
    BOOST_TEST(mentions(each.text, "by tree"), each.text);
    BOOST_TEST(mentions(each.text, "by ring"), each.text);
  }
}

BOOST_AUTO_TEST_CASE(what_links_cost_is_measured_once_and_quickly_between_hosts) {
  const auto two_hosts = [](int rank) -> parx::environment {
    return {{"PARX_HOST_ID", rank < 2 ? "a" : "b"}};
  };
  expect_success(4, two_hosts, [](parx::world& group) {
    const auto start = clock_type::now();
    (void)parx::explain(group, operation::all_reduce, 4);
    const std::chrono::duration<double> took = clock_type::now() - start;
    parx::require(took.count() < 0.6, "measuring took {} s", took.count());  // 0.1 on a quiet host
    const auto& costs = parx::detail::core_of(group)->issuer().choice().costs();
    const parx::link_costs assumed;
    parx::require(costs.alpha != assumed.alpha && costs.beta != assumed.beta, "nothing measured");
    parx::require(costs.alpha > 1e-7 && costs.alpha < 1e-2 && costs.beta > 1e-12 &&
                      costs.beta < 1e-7 && costs.gamma > 1e-12 && costs.gamma < 1e-8,
                  "alpha {}, beta {}, gamma {}", costs.alpha, costs.beta, costs.gamma);
    std::vector<double> all(4);
    parx::all_gather(group, std::vector<double>{costs.alpha}, all);
    for (const double each : all) parx::require(each == costs.alpha, "ranks choose differently");
    // Who spans the hosts again starts from it, who does not has other links.
    const int other = (group.rank() + 2) % 4;
    const std::vector<int> across{std::min(group.rank(), other), std::max(group.rank(), other)};
    const auto pair = group.subgroup(across);
    parx::require(parx::detail::core_of(pair)->options().choice.costs->alpha == costs.alpha,
                  "measured again");
    const auto inside = parx::split(group, group.rank() / 2);
    parx::require(!parx::detail::core_of(*inside)->options().choice.costs, "links of another kind");
  });
}

BOOST_AUTO_TEST_CASE(an_all_reduce_of_64_mib_takes_less_than_8_mib_beside_the_users) {
  const std::pair<const char*, environment_of> places[] = {
      {"TCP", [](int) { return parx::environment{{"PARX_TRANSPORT", "tcp"}}; }},
      {"shared memory", [](int) { return parx::environment{}; }},
      {"the shared ring", [](int) { return parx::environment{{"PARX_SINGLE_COPY", "0"}}; }},
      {"two hosts", [](int rank) {
         return parx::environment{{"PARX_HOST_ID", rank % 2 == 0 ? "even" : "odd"}};
       }},
  };
  for (const auto& [name, place] : places) {
    for (const int world : {2, 4}) {
      expect_success(world, place, [name = name](parx::world& group) {
        std::vector<float> x(std::size_t{16} << 20, 1.0F);
        parx::barrier(group);
        const std::size_t before = peak_kib();
        parx::all_reduce(group, x);
        const std::size_t grown = peak_kib() - before;
        parx::require(grown <= 8192, "{}, {} ranks: {} KiB", name, group.size(), grown);
        parx::require(x.back() == static_cast<float>(group.size()), "wrong sum");
      });
    }
  }
}
