// For parx_doctor host: its command line, and the facts as JSON, a second time after the
// exchange with the other nodes of the step.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/options.hpp"
#include "tools/parx_doctor/exchange.hpp"
#include "tools/parx_doctor/host.hpp"
#include "tools/parx_doctor/remove_stale.hpp"
#include <parx/core/hostlist.hpp>
#include <parx/transport/detail/interfaces.hpp>

namespace examples {

namespace detail {

inline void print_facts(const parx::slurm::host_facts& facts, int serial) {
  fmt::print("{}", parx::slurm::to_lines(facts, serial));
  std::fflush(stdout);
}

}  // namespace detail

/// Returns 0, whatever the facts are: they are for parx_slurm check to judge.
inline int print_host_facts(int argc, const char* const* argv) {
  cxxopts::Options options("parx_doctor host", "This node's facts, as JSON\n"
                           "Guide: examples/guide/slurm.md\n");
  const auto several = cxxopts::value<std::vector<std::string>>();
  options.add_options()("h,help", "print this")
      ("program", "whose libraries and instructions to look for", text(""))
      ("image", "of the container in which it runs", text(""))
      ("runtime", "that starts the container", text("apptainer"))
      ("folder", "in which the program starts there", text("/"))
      ("bind", "a path that is seen there; may be given several times", several)
      ("needs", "a path that can be read; may be given several times", several)
      ("argument", "of the program, a path; may be given several times", several)
      ("output", "a folder to write into", text(""))
      ("imports", "a Python module; may be given several times", several)
      ("python", "the interpreter of --imports", text("python3"))
      ("port", "of the first node of the Slurm step; 0: no exchange with other nodes", text("0"))
      ("jobs", "this user's; what parx_slurm has sent here for others that are over is removed",
       text(""))
      ("seconds", "to wait for the other nodes", text("8"));
  try {
    const auto given = parse(options, argc, argv);
    if (given.count("help") != 0) {
      fmt::print("{}", options.help());
      return 0;
    }
    const auto env = parx::process_environment();
    std::vector<std::int64_t> live;
    const std::string jobs = given["jobs"].as<std::string>();
    for (const std::string_view each : parx::detail::split_at(jobs, ',')) {
      live.push_back(parx::detail::parse_number<std::int64_t>(each).value_or(0));
    }
    const auto own = parx::env_number<std::int64_t>(env, "SLURM_JOB_ID");
    if (own && !live.empty()) remove_stale(*own, live);
    const host_questions questions{.program = given["program"].as<std::string>(),
                                   .box = {.runtime = given["runtime"].as<std::string>(),
                                           .image = given["image"].as<std::string>(),
                                           .folder = given["folder"].as<std::string>(),
                                           .paths = list(given, "bind")},
                                   .needs = list(given, "needs"),
                                   .arguments = list(given, "argument"),
                                   .output = given["output"].as<std::string>(),
                                   .imports = list(given, "imports"),
                                   .python = given["python"].as<std::string>()};
    auto facts = look_at_host(questions, env);
    exchange_place place;
    place.port = number<std::uint16_t>(given, "port", 0, 65535);
    place.nodes = parx::expand_hostlist(parx::env_string(env, "SLURM_STEP_NODELIST").value_or(""));
    const auto here = std::find(place.nodes.begin(), place.nodes.end(), facts.node);
    const bool has_others = place.nodes.size() > 1 && here != place.nodes.end();
    if (has_others) {
      place.index = static_cast<std::size_t>(here - place.nodes.begin());
      place.first_host = place.nodes.front();
    }
    facts.address = parx::detail::choose_address(
        env, has_others ? place.first_host : parx::detail::loopback_address(), has_others);
    detail::print_facts(facts, 0);
    if (has_others && place.port != 0) {
      exchange(place, facts,
               std::chrono::milliseconds(number<int>(given, "seconds", 1, 600) * 1000));
    }
    // The others are not kept waiting for it.
    if (questions.box.is_used() || !questions.imports.empty()) {
      detail::print_facts(facts, 1);
      try_on_host(questions, env, facts);
    }
    facts.complete = true;
    detail::print_facts(facts, 2);
    return 0;
  } catch (const parx::usage_error& wrong) {
    fmt::print(stderr, "parx_doctor host: {}\n", wrong.what());
    return 2;
  }
}

}  // namespace examples
