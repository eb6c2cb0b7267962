// Makes one HTML page of the output_dirs of training runs.
//   parx_report out -o report.html
//   parx_report out1 out2 out4 -o scaling.html
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "common/options.hpp"
#include <parx/train/report.hpp>

int main(int argc, char** argv) try {
  cxxopts::Options options("parx_report", "Makes one HTML page of the output_dirs of training "
                                          "runs");
  options.positional_help("OUTPUT_DIR...");
  options.add_options()
      ("o,output", "the page to write", examples::text("report.html"))
      ("runs", "output_dirs", cxxopts::value<std::vector<std::string>>())
      ("h,help", "print this");
  options.parse_positional("runs");
  const auto given = examples::parse(options, argc, argv);
  if (given.count("help") != 0) {
    std::cout << options.help();
    return 0;
  }
  parx::require(given.count("runs") != 0, "give the output_dir of at least one training run");
  const auto path = given["output"].as<std::string>();
  parx::train::write_report(path, given["runs"].as<std::vector<std::string>>());
  fmt::print("{}\n", path);
  return 0;
} catch (const parx::usage_error& wrong) {
  std::fprintf(stderr, "parx_report: %s\n", wrong.what());
  return 2;
} catch (const std::exception& failed) {
  std::fprintf(stderr, "parx_report: %s\n", failed.what());
  return 1;
}
