// Makes one HTML page of the output_dirs of training runs.
//   parx_report out -o report.html
//   parx_report out1 out2 out4 -o scaling.html
//   parx_report out --job logs/report.json     # how the ranks of parxrun --log-dir logs ended, too
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "common/report/report.hpp"
#include "tools/parx_report/job_section.hpp"
#include <parx/core/printable.hpp>

int main(int argc, char** argv) {
  return examples::exit_code("parx_report", [&] {
    cxxopts::Options options("parx_report",
                             "Makes one HTML page of the output_dirs of training "
                             "runs\nGuide: examples/guide/trainer.md");
    options.positional_help("OUTPUT_DIR...");
    options.add_options()("o,output", "the page to write", examples::text("report.html"))(
        "job", "report.json of parxrun's --log-dir: how the job's ranks ended", examples::text(""))(
        "runs", "output_dirs", cxxopts::value<std::vector<std::string>>())("h,help", "print this");
    options.parse_positional("runs");
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) {
      std::cout << options.help();
      return 0;
    }
    const auto runs = examples::list(given, "runs");
    parx::require(!runs.empty(), "give the output_dir of at least one training run");
    for (const std::string& run : runs) {
      parx::require(std::filesystem::exists(run + "/train.jsonl"),
                    "\"{}\" is not the output_dir of a training run: it has no train.jsonl",
                    parx::printable(run));
    }
    const auto path = given["output"].as<std::string>();
    const auto job = given["job"].as<std::string>();
    parx::train::write_report(path, runs,
                              job.empty() ? "" : parx::job_section(parx::read_job(job)));
    fmt::print("{}\n", path);
    return 0;
  });
}
