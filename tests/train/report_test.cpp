#include "common/report/report.hpp"
#include "tools/parx_report/job_section.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <messages.hpp>

namespace train = parx::train;

namespace {

// A run of `world` ranks: losses fall, rank 1 waits least.
train::run_report made_up(const std::string& name, std::size_t world, double rate) {
  train::run_report run{.name = name, .world = world};
  for (int step = 10; step <= 100; step += 10) {
    const double s = step;
    run.lines.push_back({{"step", s},
                         {"seconds", s / 4},
                         {"loss", 1.4 * std::exp(-s / 40) + 0.3},
                         {"grad_norm", 1 + std::sin(s)},
                         {"learning_rate", 5e-5 * (1 - s / 100)},
                         {"epoch", s / 50},
                         {"samples_per_second", step == 10 ? rate / 4 : rate},
                         {"step_ms", 79},
                         {"communication_hidden_percent", 80}});
    if (step % 50 == 0)
      run.lines.push_back(
          {{"step", s}, {"seconds", s / 4}, {"eval_loss", 0.5}, {"eval_accuracy", 0.8}});
    parx::json::value line;
    line["step"] = step;
    line["seconds"] = s / 4;
    for (const char* column :
         {"cpu_percent", "resident_mib", "compute_percent", "communication_wait_percent",
          "data_wait_percent", "samples_per_second"}) {
      parx::json::array values;
      for (std::size_t rank = 0; rank < world; ++rank) {
        const bool waits = std::string_view(column) == "communication_wait_percent";
        values.push_back(waits ? (rank == 1 ? 2.0 : 22.0)
                               : 70.0 + static_cast<double>(rank) + s / 20);
      }
      line[column] = std::move(values);
    }
    run.ranks.push_back(std::move(line));
  }
  return run;
}

}  // namespace

BOOST_AUTO_TEST_CASE(axes_have_round_marks_that_span_the_data) {
  using train::detail::ticks;
  BOOST_TEST((ticks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10}));
  BOOST_TEST((ticks(3, 97, 5) == std::vector<double>{0, 20, 40, 60, 80, 100}));
  BOOST_TEST(ticks(5, 5, 5).size() >= 2u);
  BOOST_TEST(ticks(0, 0, 5).size() >= 2u);
  const double next = std::nextafter(1e-3, 1.0);  // an axis of one rounding error
  BOOST_TEST(ticks(1e-3, next, 5).size() <= 8u);
  BOOST_TEST(ticks(1e-3, next, 5).back() >= next);
  for (const double high : {1e-7, 0.3, 7.0, 12345.0, 1e12}) {
    const auto marks = ticks(0, high, 5);
    BOOST_TEST(marks.front() <= 0);
    BOOST_TEST(marks.back() >= high * 0.999999);
    BOOST_TEST(marks.size() <= 8u);
  }
  BOOST_TEST(train::detail::tick_text(1'500'000) == "1.5M");
  BOOST_TEST(train::detail::tick_text(2e-5) == "2e-05");
}

BOOST_AUTO_TEST_CASE(a_point_lies_where_the_axes_say) {
  // Both axes from 0 to 10, so the middle of the curve is the middle of the frame.
  const auto drawing = train::detail::line_chart(
      {"t", "x (s)", "y (MiB)"}, {{.name = "c", .points = {{0, 0}, {5, 5}, {10, 10}}}});
  BOOST_TEST(drawing.find("M72.0 228.0L268.0 130.0L464.0 32.0") != std::string::npos, drawing);
  BOOST_TEST(drawing.find("x (s)") != std::string::npos);
  BOOST_TEST(drawing.find("y (MiB)") != std::string::npos);
  BOOST_TEST(train::detail::line_chart({"t", "x", "y"}, {}).empty());
  const auto broken = train::detail::line_chart(
      {"t", "x", "y"}, {{.name = "c", .points = {{0, 0}, {1, NAN}, {2, 1}}}});
  BOOST_TEST(broken.find("nan") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_pointer_reads_values_and_many_noisy_curves_are_means) {
  using train::detail::curve;
  const auto count_of = [](const std::string& text, std::string_view what) {
    std::size_t count = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
  };
  std::vector<curve> curves;
  for (const char* name : {"a", "b&", "c"}) {
    curve noise{.name = name};
    for (int x = 0; x < 600; ++x) noise.points.emplace_back(x, x % 10);
    curves.push_back(std::move(noise));
    const auto drawing = train::detail::line_chart({"t", "step", "y"}, curves);
    const bool is_crowded = curves.size() > 2;
    BOOST_TEST((drawing.find("t (means of 10 values)") != std::string::npos) == is_crowded);
    // Of each ten values the mean is 4.5, at 4.5, 14.5 and so on.
    BOOST_TEST(count_of(drawing, "<title>a, step 14.5: 4.5</title>") == (is_crowded ? 1U : 0U));
    BOOST_TEST(count_of(drawing, "<title>a, step 10: 0</title>") == (is_crowded ? 0U : 1U));
    BOOST_TEST(count_of(drawing, "<title>") <= 60 * curves.size());
    BOOST_TEST(count_of(drawing, "b&,") == 0U);
  }
}

BOOST_AUTO_TEST_CASE(the_rate_is_all_samples_over_all_time_and_leaves_the_first_line_out) {
  train::run_report run{.name = "out", .world = 1};
  for (const double rate : {1.0, 100.0, 300.0}) run.lines.push_back({{"samples_per_second", rate}});
  run.lines.push_back({{"eval_loss", 0.5}});
  BOOST_TEST(run.rate() == 600 / (300 / 100. + 300 / 300.), boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(a_rate_of_many_digits_is_grouped) {
  BOOST_TEST(train::detail::rate_text(97.25) == "97.2");
  BOOST_TEST(train::detail::rate_text(1298607.9) == "1,298,608");
  const std::string page =
      train::report_html({made_up("one", 1, 1298608), made_up("two", 2, 2.5e6)});
  BOOST_TEST(page.find("<td>1,298,608</td>") != std::string::npos);
  BOOST_TEST(page.find("<td>2,500,000</td><td>1.93</td>") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_page_names_the_slow_rank_and_the_efficiency) {
  const std::string page =
      train::report_html({made_up("one", 1, 100), made_up("two", 2, 180), made_up("four", 4, 300)});
  for (const char* text : {"Rank 1 is slower than the others: it waits 2 %",
                           "<td>two</td><td>2</td><td>180.0</td><td>1.80</td><td>90 %</td>",
                           "<td>four</td><td>4</td><td>300.0</td><td>3.00</td><td>75 %</td>",
                           "eval_accuracy", "CPU (%)", "resident (MiB)", "time (s)",
                           "80 % of the communication was", "A rank held up to 78 MiB in memory",
                           "<td>-</td><td>73.0 %</td></tr>", "waiting for data",
                           "<th>samples/s in all</th>", "Hidden is the part"}) {
    BOOST_TEST(page.find(text) != std::string::npos, text);
  }
  // Self-contained: nothing is fetched, nothing runs.
  BOOST_TEST(page.find("<script") == std::string::npos);
  BOOST_TEST(page.find("src=") == std::string::npos);
  BOOST_TEST(page.find("href=") == std::string::npos);
  BOOST_TEST(train::report_html({made_up("<b>&", 2, 1)}).find("<b>&") == std::string::npos);
  BOOST_TEST(train::report_html({made_up("big", 64, 1)}).find("the 32 of 64 ranks") !=
             std::string::npos);
  if (const char* keep = std::getenv("PARX_KEEP_REPORT")) std::ofstream(keep) << page;
}

BOOST_AUTO_TEST_CASE(table_chart_and_findings_have_the_same_shares_of_the_same_time) {
  // The first line warms up; of the others the second takes three times as long as the first.
  train::run_report run{.name = "run", .world = 2};
  run.lines = {{{"step", 1.0}, {"samples_per_second", 2.0}, {"step_ms", 1e3}},
               {{"step", 2.0}, {"samples_per_second", 300.0}, {"step_ms", 10.0}},
               {{"step", 3.0}, {"samples_per_second", 100.0}, {"step_ms", 30.0}},
               {{"step", 3.0}, {"train_samples_per_second", 5.5}}};
  const auto line = [&](double wait, double data, double rate) {
    parx::json::value made;
    made["seconds"] = 1.0;
    for (const char* column : {"cpu_percent", "resident_mib", "compute_percent"}) {
      made[column] = parx::json::array{60.0, 60.0};
    }
    made["communication_wait_percent"] = parx::json::array{wait, wait};
    made["communication_percent"] = parx::json::array{65.0, 65.0};
    made["data_wait_percent"] = parx::json::array{data, data};
    made["samples_per_second"] = parx::json::array{rate / 2, rate / 2};
    run.ranks.push_back(std::move(made));
  };
  line(90, 50, 2);
  line(10, 8, 300);
  line(40, 4, 100);
  const std::string page = train::report_html({run});
  for (const char* text :
       {"<title>rank 0: waiting for communication 32.5 %</title>",
        "32.5 % of the time went into waiting for communication; 50 % of the communication was",
        "<td>150.0</td><td>5.5</td><td>20.00</td>", "<td>50 %</td><td>5.0 %</td></tr>",
        "<title>rank 1: waiting for data 5.0 %</title>"}) {
    BOOST_TEST(page.find(text) != std::string::npos, text << " is not in\n" << page);
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_computed_without_a_processor_are_said_to_lack_cores) {
  auto starved = made_up("starved", 2, 100);
  BOOST_TEST(train::report_html({starved}).find("lack cores") == std::string::npos);
  for (auto& line : starved.ranks) {
    line["compute_percent"] = parx::json::array{96.0, 96.0};
    line["cpu_percent"] = parx::json::array{13.0, 15.0};
  }
  const std::string page = train::report_html({starved});
  BOOST_TEST(page.find("The ranks lack cores: they computed for 96 % of the time, and had a "
                       "processor for 14 % of it") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_page_has_the_settings_and_the_last_figures_of_evaluations) {
  auto one = made_up("one", 1, 100), two = made_up("two", 2, 180);
  one.settings = {{"batch", "16"}, {"learning rate", "0.001"}, {"seed", "42"}};
  two.settings = {{"batch", "32"}, {"learning rate", "0.001"}};
  two.lines.push_back({{"step", 100.0}, {"seconds", 25.0}, {"eval_loss", 0.25}});
  const std::string page = train::report_html({one, two});
  for (const char* text :
       {"<th>last loss</th><th>eval_loss</th><th>eval_accuracy</th>",
        "<td>0.2500</td><td>0.8000</td>", "<tr><th>run</th><th>batch</th><th>seed</th></tr>",
        "<tr><td>one</td><td>16</td><td>42</td></tr>", "<tr><td>two</td><td>32</td><td>-</td></tr>",
        "<p>The same in all runs: learning rate 0.001.</p>"}) {
    BOOST_TEST(page.find(text) != std::string::npos, text << " is not in\n" << page);
  }
  BOOST_TEST(train::report_html({one}).find("<tr><td>seed</td><td>42</td></tr>") !=
             std::string::npos);
  BOOST_TEST(train::report_html({made_up("old", 1, 1)}).find("Settings") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_run_has_one_colour_and_a_figure_its_dashes) {
  const std::string page = train::report_html({made_up("one", 1, 100), made_up("two", 1, 180)});
  const auto begin = page.find("aria-label=\"Loss\""), end = page.find("</svg>", begin);
  const std::string losses = page.substr(begin, end - begin);
  const auto count_of = [&](std::string_view colour, const char* dashes) {
    const std::string stroke =
        fmt::format("stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"{}\"", colour, dashes);
    std::size_t count = 0;
    for (auto at = losses.find(stroke); at != losses.npos; at = losses.find(stroke, at + 1))
      ++count;
    return count;
  };
  for (const std::size_t run : {0U, 1U}) {
    BOOST_TEST(count_of(train::detail::colour(run), "none") ==
               2U);  // the curve, and the run's name
    BOOST_TEST(count_of(train::detail::colour(run), "9 5") == 1U);
  }
  // What the dashes are stands in the legend once.
  BOOST_TEST(count_of("currentColor", "9 5") == 1U);
  BOOST_TEST(losses.find(">eval_loss</text>") != std::string::npos);
  BOOST_TEST(losses.find(">one</text>") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(long_names_are_shortened_in_the_middle) {
  using train::detail::shortened;
  BOOST_TEST(shortened("checkpoint", 10) == "checkpoint");
  BOOST_TEST(shortened("a-very-long-name", 10) == "a-v...name");
}

// What is damaged is left out and named, for each kind of damage.
BOOST_AUTO_TEST_CASE(a_page_is_made_of_what_is_whole_and_the_damaged_line_is_named) {
  const std::string folder =
      std::filesystem::temp_directory_path() / fmt::format("parx_damaged_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const train::run_report run = made_up("run", 2, 50);
  const std::string good = parx::json::dump(run.ranks[0]);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const auto& [damage, reason] : std::vector<std::pair<std::string, std::string>>{
           {"garbage", "line 2 is damaged"},
           {std::string(40, '\0'), "line 2 is damaged"},
           {"[1]", "expected an object, found an array"},
           {replaced("cpu_percent", "cpu"), "there is no \"cpu_percent\""},
           {replaced("\"seconds\": 2.5", "\"seconds\": null"), "expected a number, found null"},
           {replaced("\"resident_mib\": [", "\"resident_mib\": [1, "), "\"resident_mib\" of 3"}}) {
    {
      std::ofstream lines(folder + "/train.jsonl"), ranks(folder + "/ranks.jsonl");
      lines << parx::json::dump(train::to_json(run.lines[0])) << "\n{\"loss\": 3}\n[]\n";
      ranks << good << "\n" << damage << "\n" << good << "\n" << good.substr(0, 50);
    }
    const parx_test::captured_log warnings;
    const train::run_report read = train::read_run(folder);
    BOOST_TEST(read.lines.size() == 1u);
    BOOST_TEST(read.ranks.size() == 2u);
    BOOST_REQUIRE(warnings.lines().size() == 2u);
    BOOST_TEST(parx_test::mentions(warnings.lines()[0], "train.jsonl\", line 2 is damaged",
                                   "there is no \"step\"", "like 1 more"),
               warnings.lines()[0]);
    BOOST_TEST(parx_test::mentions(warnings.lines()[1], "ranks.jsonl\", line 2", reason),
               warnings.lines()[1]);
  }
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(a_page_is_made_from_the_files_of_a_run_even_of_one_that_was_killed) {
  const std::string folder =
      std::filesystem::temp_directory_path() / fmt::format("parx_report_{}", ::getpid());
  std::filesystem::create_directories(folder + "/run7");
  const train::run_report run = made_up("run7", 2, 50);
  {
    std::ofstream lines(folder + "/run7/train.jsonl"), ranks(folder + "/run7/ranks.jsonl");
    for (const auto& line : run.lines) lines << parx::json::dump(train::to_json(line)) << "\n";
    for (const auto& line : run.ranks) ranks << parx::json::dump(line) << "\n";
    lines << "{\"step\": 110, \"lo";
  }
  train::write_report(folder + "/report.html", {folder + "/run7/"});
  std::ifstream file(folder + "/report.html");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  BOOST_TEST(page == train::report_html({run}));
  BOOST_CHECK_EXCEPTION(
      train::write_report(folder + "/x.html", {folder}), parx::error, [](const auto& refused) {
        return std::string(refused.what()).find("output_dir") != std::string::npos;
      });
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(the_page_tells_how_the_ranks_of_a_job_ended) {
  const parx::detail::rank_end killed{.rank = 1, .status = {.signal = 9}, .seconds = 30};
  const parx::detail::rank_end ended_by_parxrun{.rank = 0, .status = {.signal = 15},
                                                .was_signalled = true};
  const parx::job_outcome lost{.restarts = 1, .goes_on = true, .has_failed = true, .rank = 1,
                               .why = "rank 1 was killed <by SIGKILL>"};
  parx::job_report job{.id = "run<7>"};
  job.generations = {{.generation = 1, .start = 100, .end = 131, .members = {{"n1", 1}, {"n2", 1}},
                      .outcome = lost, .nodes = {{"n1", {ended_by_parxrun}}, {"n2", {killed}}}},
                     {.generation = 2, .restarts = 1, .start = 132, .members = {{"n1", 2}}}};
  const std::string read_again =
      parx::job_section(parx::json::from_json<parx::job_report>(
          parx::json::parse(parx::json::dump(parx::json::to_json(job)))));
  BOOST_TEST(parx_test::mentions(
                 read_again, "<h2>Job run&lt;7&gt;</h2>",
                 "<tr><td>1</td><td>n1, n2</td><td>2</td><td>0</td><td>31</td>"
                 "<td>rank 1 was killed &lt;by SIGKILL&gt;</td></tr>",
                 "<td>n2</td><td>rank 1</td><td></td><td>30</td>"
                 "<td>killed by SIGKILL (signal 9)</td>",
                 "<tr><td>2</td><td>n1</td><td>2</td><td>32</td><td>-</td><td>not known</td></tr>"),
             read_again);
  BOOST_TEST(read_again.find("rank 0") == std::string::npos, read_again);
  BOOST_TEST(train::report_html({made_up("one", 1, 1)}, read_again).find(read_again) !=
             std::string::npos);
  const std::string path = std::filesystem::temp_directory_path() / "parx_no_report.json";
  std::ofstream(path) << "{}[";
  BOOST_CHECK_THROW((void)parx::read_job(path), parx::error);
  std::filesystem::remove(path);
  BOOST_CHECK_THROW((void)parx::read_job(path), parx::error);
}
