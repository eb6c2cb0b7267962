// parx_pipeline: draws and validates a pipeline schedule, and predicts its time.
//
//   parx_pipeline --schedule zbv --stages 4 --microbatches 8 --draw --costs f=1,i=1,w=1,hop=0.5
//   parx_pipeline --compare --stages 4 --microbatches 8 --svg schedules.svg
//   parx_pipeline --table mine.csv --draw          # PyTorch's format
//   parx_pipeline --trace t.rank0.json,t.rank1.json --draw --svg run.svg
//
// --trace draws the last step that the ranks of one pipeline ran under PARX_TRACE=t.json, below the
// prediction of its schedule at the mean measured times.
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "common/pipeline/draw.hpp"
#include "tools/parx_pipeline/traces.hpp"
#include <fmt/ranges.h>

#include <parx/pipeline.hpp>

namespace {

cxxopts::Options flags() {
  using examples::text;
  const auto yes = cxxopts::value<bool>();
  cxxopts::Options options("parx_pipeline", "Pipeline schedules, proven and drawn\n"
                           "Guide: examples/guide/pipeline.md\n");
  options.add_options()("h,help", "print this")
      ("schedule", "gpipe, 1f1b, eager_1f1b, interleaved, looped_bfs, zb1p or zbv", text("1f1b"))
      ("table", "a file with a schedule instead: a line a rank, cells such as 2F0", text(""))
      ("trace", "a run's files instead, of each rank of a pipeline: a.json,b.json",
       cxxopts::value<std::vector<std::string>>())
      ("compare", "all schedules", yes)
      ("stages", "ranks of the pipeline", text("4"))
      ("chunks", "stages of each rank: interleaved, looped_bfs, zb1p", text("1"))
      ("microbatches", "of one step", text("8"))
      ("costs", "of a rank: f, i, w, b (i + w if not given), and a message: hop; any unit",
       text("f=1"))
      ("draw", "a diagram, coloured in a terminal", yes)
      ("columns", "of the diagram, at most", text("160"))
      ("csv", "print the table", yes)
      ("svg", "a file for the diagram", text(""));
  return options;
}

/// "f=1,i=1,w=1,hop=0.5"
parx::pipeline_costs costs_of(std::string_view text) {
  parx::pipeline_costs costs{.b = -1};
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const std::size_t mark = std::min(one.find('='), one.size());
    const std::string_view name = one.substr(0, mark);
    const std::string_view digits = one.substr(std::min(mark + 1, one.size()));
    double value = -1;
    const auto [end, code] = std::from_chars(digits.begin(), digits.end(), value);
    double* const place = name == "f"     ? &costs.f
                          : name == "b"   ? &costs.b
                          : name == "i"   ? &costs.i
                          : name == "w"   ? &costs.w
                          : name == "hop" ? &costs.hop
                                          : nullptr;
    parx::require(place != nullptr && code == std::errc{} && end == digits.end() && value >= 0,
                  "--costs \"{}\": give f, b, i, w or hop, each with a number: f=1,hop=0.5", one);
    *place = value;
  }
  if (costs.b < 0) costs.b = costs.i + costs.w;
  return costs;
}

std::vector<parx::pipeline_table> tables_of(const cxxopts::ParseResult& given,
                                            const parx::pipeline_costs& costs) {
  if (const auto file = given["table"].as<std::string>(); !file.empty()) {
    return {parx::from_csv(examples::contents_of("table", file), file)};
  }
  const auto whole = [&](const char* flag) { return examples::number(given, flag, 1, 100'000); };
  parx::pipeline_shape shape;
  shape.ranks = whole("stages");
  shape.microbatches = whole("microbatches");
  shape.chunks = whole("chunks");
  shape.hop = costs.hop / (costs.f + costs.b);
  if (!given["compare"].as<bool>()) {
    return {parx::schedule_named(given["schedule"].as<std::string>())(shape)};
  }
  std::vector<parx::pipeline_table> all;
  for (const parx::named_schedule& each : parx::pipeline_schedules) {
    auto of_it = shape;
    of_it.chunks = each.name == "interleaved" || each.name == "looped_bfs" ? 2 : 1;
    all.push_back(each.make(of_it));
  }
  return all;
}

void print(const cxxopts::ParseResult& given, const parx::pipeline_timeline& drawn) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const auto columns = examples::number<std::size_t>(given, "columns", 20, 10'000);
  const std::string text =
      to_text(drawn, {.colour = terminal ? parx::drawing_colour::ansi : parx::drawing_colour::none,
                      .columns = columns});
  const std::size_t summary = text.rfind('\n', text.size() - 2) + 1;
  fmt::print("{}", given["draw"].as<bool>() ? text : text.substr(summary));
}

void print(const cxxopts::ParseResult& given) {
  const auto costs = costs_of(given["costs"].as<std::string>());
  std::vector<parx::pipeline_timeline> drawn;
  if (given.count("trace") != 0) {
    drawn = examples::timelines_of(given["trace"].as<std::vector<std::string>>());
    for (const parx::pipeline_timeline& each : drawn) print(given, each);
  }
  for (const parx::pipeline_table& table :
       drawn.empty() ? tables_of(given, costs) : std::vector<parx::pipeline_table>{}) {
    const parx::pipeline_proof proof = validate(table);
    drawn.push_back(simulate(table, costs.per_stage(table)));
    print(given, drawn.back());
    fmt::print("  in flight {}, kept until W {}, messages on a link {}\n",
               fmt::join(proof.in_flight, " "), fmt::join(proof.kept, " "), proof.link_messages);
    if (given["csv"].as<bool>()) fmt::print("{}", to_csv(table));
  }
  if (const auto file = given["svg"].as<std::string>(); !file.empty()) {
    std::ofstream out(file);
    out << to_svg(drawn);
    parx::require(out.flush().good(), "--svg {}: cannot be written", file);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::exit_code("parx_pipeline", [&] {
    cxxopts::Options options = flags();
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) {
      fmt::print("{}", options.help());
    } else {
      print(given);
    }
    return 0;
  });
}
