#include <parx/trace/event.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/wait.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <count_allocations.hpp>
#include <messages.hpp>
#include <trace/json.hpp>

namespace {

namespace fs = std::filesystem;
namespace trace = parx::trace;

/// A folder of its own for each test, and a recording that is off again afterwards.
struct scratch {
  scratch() {
    char name[] = "/tmp/parx_trace_XXXXXX";
    folder = ::mkdtemp(name);
  }
  ~scratch() {
    trace::stop();
    parx::logger::instance().set_rank(-1);
    parx::logger::instance().set_sink({});
    fs::remove_all(folder);
  }
  fs::path folder;
};

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The trace in `file`, which must be JSON to the last byte.
json::value read_trace(const fs::path& file) {
  const auto text = text_of(file);
  BOOST_REQUIRE_MESSAGE(!text.empty(), "no trace in " << file);
  return json::parse(text);
}

/// The events of one phase ("X", "C", "M"), in the order of the file.
std::vector<json::value> events(const json::value& file, const std::string& phase) {
  std::vector<json::value> found;
  for (const auto& each : file["traceEvents"].array) {
    if (each["ph"].text == phase) found.push_back(each);
  }
  return found;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  return {fs::directory_iterator(folder), fs::directory_iterator()};
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(recording, scratch)

BOOST_AUTO_TEST_CASE(while_nothing_records_no_call_allocates_or_leaves_an_event) {
  trace::start({.path = folder / "t.json"});
  trace::stop();
  const std::size_t before = parx_test::allocations_of_all_threads;
  for (int i = 0; i < 1000; ++i) {
    trace::span s{"step", "train"};
    s.arg("i", i);
    trace::counter("loss", 1.0);
    trace::name_thread("compute");
  }
  BOOST_TEST(parx_test::allocations_of_all_threads == before);
  BOOST_TEST(trace::flush());
  BOOST_TEST(events(read_trace(folder / "t.json"), "X").empty());
}

BOOST_AUTO_TEST_CASE(spans_of_a_thread_nest) {
  trace::start({.path = folder / "t.json"});
  {
    trace::span outer{"step", "train"};
    {
      trace::span inner{"forward"};
      trace::span innermost{"linear"};
    }
    trace::span second{"backward"};
  }
  BOOST_REQUIRE(trace::flush());
  const auto spans = events(read_trace(folder / "t.json"), "X");
  BOOST_REQUIRE(spans.size() == 4u);
  const auto start = [&](std::size_t i) { return spans[i]["ts"].number; };
  const auto end = [&](std::size_t i) { return spans[i]["ts"].number + spans[i]["dur"].number; };
  constexpr double rounding_us = 1e-3;
  const std::vector<std::string> names{"step", "forward", "linear", "backward"};
  for (std::size_t i = 0; i < names.size(); ++i) BOOST_TEST(spans[i]["name"].text == names[i]);
  for (const std::size_t i : {1u, 2u, 3u}) {
    BOOST_TEST(start(0) <= start(i));
    BOOST_TEST(end(i) <= end(0) + rounding_us);
  }
  BOOST_TEST(end(2) <= end(1) + rounding_us);
  BOOST_TEST(end(1) <= start(3) + rounding_us);
  BOOST_TEST(spans[0]["cat"].text == "train");
  BOOST_TEST(spans[1]["cat"].text == "parx");
}

BOOST_AUTO_TEST_CASE(arguments_keep_their_exact_values_and_four_is_the_most) {
  trace::start({.path = folder / "t.json"});
  {
    trace::span s{"all_reduce", "comm"};
    s.arg("bytes", std::numeric_limits<std::uint64_t>::max());
    s.arg("least", std::numeric_limits<std::int64_t>::min());
    s.arg("loss", 0.1);
    s.arg("bad", std::numeric_limits<double>::quiet_NaN());
    s.arg("fifth", 5);
  }
  trace::counter("in flight MiB", 1.5f);
  BOOST_REQUIRE(trace::flush());
  const auto text = text_of(folder / "t.json");
  BOOST_TEST(text.find(R"("args":{"bytes":18446744073709551615,"least":-9223372036854775808,)"
                       R"("loss":0.1,"bad":"nan"})") != std::string::npos,
             text);
  const auto counters = events(read_trace(folder / "t.json"), "C");
  BOOST_REQUIRE(counters.size() == 1u);
  BOOST_TEST(counters[0]["name"].text == "in flight MiB");
  BOOST_TEST(counters[0]["args"]["value"].number == 1.5);
}

BOOST_AUTO_TEST_CASE(any_name_survives_as_json) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"quote \" and \\ back", "quote \" and \\ back"},
      {"line\nbreak\ttab \x01", "line\nbreak\ttab \x01"},
      {"損失 🚀", "損失 🚀"},
      {"broken \xff\xc3 utf-8", "broken \xEF\xBF\xBD\xEF\xBF\xBD utf-8"},
      {"", ""},
      {std::string(60, 'x'), std::string(48, 'x')},
      {std::string(47, 'x') + "é", std::string(47, 'x')},  // no character is cut in two
  };
  trace::start({.path = folder / "t.json"});
  for (const auto& [name, unused] : table) trace::span{name};
  BOOST_REQUIRE(trace::flush());
  const auto spans = events(read_trace(folder / "t.json"), "X");
  BOOST_REQUIRE(spans.size() == table.size());
  for (std::size_t i = 0; i < table.size(); ++i)
    BOOST_TEST(spans[i]["name"].text == table[i].second);
}

BOOST_AUTO_TEST_CASE(a_full_ring_keeps_the_newest_events_and_counts_the_others) {
  trace::start({.path = folder / "t.json", .events_per_thread = 10});
  for (int i = 0; i < 25; ++i) trace::counter("i", i);
  BOOST_REQUIRE(trace::flush());
  const auto file = read_trace(folder / "t.json");
  const auto counters = events(file, "C");
  BOOST_REQUIRE(counters.size() == 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    BOOST_TEST(counters[i]["args"]["value"].number == static_cast<double>(15 + i));
  }
  BOOST_TEST(file["otherData"]["dropped_events"].number == 15.0);
}

BOOST_AUTO_TEST_CASE(threads_record_and_a_writer_writes_at_the_same_time) {
  constexpr int threads = 4;
  constexpr int spans_each = 2000;
  trace::start({.path = folder / "t.json"});
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([t] {
      trace::name_thread(fmt::format("worker {}", t));
      for (int i = 0; i < spans_each; ++i) {
        trace::span s{"work"};
        s.arg("i", i);
      }
    });
  }
  std::size_t written = 0;
  for (int i = 0; i < 5; ++i) written += trace::flush() ? 1u : 0u;
  for (auto& each : running) each.join();
  BOOST_TEST(written == 5u);
  BOOST_REQUIRE(trace::flush());

  const auto file = read_trace(folder / "t.json");
  std::map<double, std::string> name_of;
  for (const auto& each : events(file, "M")) {
    if (each["name"].text == "thread_name") name_of[each["tid"].number] = each["args"]["name"].text;
  }
  std::map<std::string, std::vector<double>> seen;
  for (const auto& each : events(file, "X")) {
    seen[name_of.at(each["tid"].number)].push_back(each["args"]["i"].number);
  }
  for (int t = 0; t < threads; ++t) {
    const auto& values = seen[fmt::format("worker {}", t)];
    BOOST_REQUIRE(values.size() == static_cast<std::size_t>(spans_each));
    bool in_order = true;
    for (std::size_t i = 0; i < values.size(); ++i) in_order &= values[i] == static_cast<double>(i);
    BOOST_TEST(in_order, "every span of worker " << t << " once and in order");
  }
}

BOOST_AUTO_TEST_CASE(threads_started_again_and_again_share_one_track) {
  trace::start({.path = folder / "t.json"});
  for (int i = 0; i < 20; ++i) {
    std::thread([i] {
      trace::name_thread("loader");
      trace::counter("round", i);
    }).join();
  }
  BOOST_REQUIRE(trace::flush());
  const auto file = read_trace(folder / "t.json");
  std::size_t tracks = 0;
  for (const auto& each : events(file, "M"))
    tracks += each["args"]["name"].text == "loader" ? 1u : 0u;
  BOOST_TEST(tracks == 1u);
  BOOST_TEST(events(file, "C").size() == 20u);
}

BOOST_AUTO_TEST_CASE(a_span_in_a_destructor_at_the_end_of_its_thread_is_harmless) {
  struct late {
    ~late() { trace::span s{"late"}; }
  };
  trace::start({.path = folder / "t.json"});
  std::thread([] {
    static thread_local const late at_end;  // made before the ring, so destroyed after it
    (void)&at_end;
    trace::span s{"early"};
  }).join();
  BOOST_REQUIRE(trace::flush());
  const auto spans = events(read_trace(folder / "t.json"), "X");
  BOOST_REQUIRE(spans.size() == 1u);
  BOOST_TEST(spans[0]["name"].text == "early");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(files, scratch)

BOOST_AUTO_TEST_CASE(the_rank_is_in_the_name_of_the_file) {
  BOOST_TEST(trace::trace_file("t.json", -1, 0) == "t.json");
  BOOST_TEST(trace::trace_file("t.json", 0, 1) == "t.json");
  BOOST_TEST(trace::trace_file("t.json", 3, 0) == "t.rank3.json");
  BOOST_TEST(trace::trace_file("t.json", 0, 4) == "t.rank0.json");
  BOOST_TEST(trace::trace_file("out.d/t.json", 12, 16) == "out.d/t.rank12.json");
  BOOST_TEST(trace::trace_file("out.d/trace", 3, 4) == "out.d/trace.rank3");
  BOOST_TEST(trace::trace_file("out/.trace", 3, 4) == "out/.trace.rank3");
  BOOST_TEST(trace::trace_file("%r/t-%r.json", 3, 4) == "3/t-3.json");
  BOOST_TEST(trace::trace_file("t-%r.json", 0, 1) == "t-0.json");
  BOOST_TEST(trace::trace_file("t-%r.json", -1, 0) == "t-0.json");
}

BOOST_AUTO_TEST_CASE(a_rank_writes_its_own_file_with_the_rank_as_process) {
  parx::logger::instance().set_rank(3, 4);
  trace::start({.path = folder / "t.json"});
  { trace::span s{"step"}; }
  BOOST_REQUIRE(trace::flush());
  const auto file = read_trace(folder / "t.rank3.json");
  for (const auto& each : file["traceEvents"].array) BOOST_TEST(each["pid"].number == 3.0);
  const auto names = events(file, "M");
  BOOST_REQUIRE(!names.empty());
  BOOST_TEST(names[0]["name"].text == "process_name");
  BOOST_TEST(names[0]["args"]["name"].text.starts_with("rank 3 ("));
  BOOST_TEST(files_in(folder).size() == 1u, "no temporary file is left");
}

BOOST_AUTO_TEST_CASE(the_clock_offset_turns_times_into_unix_time) {
  trace::start({.path = folder / "t.json"});
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  { trace::span s{"step"}; }
  BOOST_REQUIRE(trace::flush());
  const auto file = read_trace(folder / "t.json");
  const double unix_us =
      events(file, "X").at(0)["ts"].number + file["otherData"]["clock_offset_us"].number;
  const double expected = std::chrono::duration<double, std::micro>(before).count();
  BOOST_TEST(std::abs(unix_us - expected) < 1e6);
}

BOOST_AUTO_TEST_CASE(each_flush_writes_everything_recorded_so_far) {
  trace::start({.path = folder / "t.json"});
  trace::counter("i", 0);
  BOOST_REQUIRE(trace::flush());
  trace::counter("i", 1);
  BOOST_REQUIRE(trace::flush());
  BOOST_TEST(events(read_trace(folder / "t.json"), "C").size() == 2u);
  trace::start({.path = folder / "u.json"});
  BOOST_REQUIRE(trace::flush());
  BOOST_TEST(events(read_trace(folder / "u.json"), "C").empty(), "a new start forgets");
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_written_is_one_warning) {
  const parx_test::captured_log log;
  fs::create_directories(folder / "removed");
  const auto failing = (folder / "removed" / "t.json").string();
  trace::start({.path = failing});
  trace::counter("i", 0);
  fs::remove(folder / "removed");
  BOOST_TEST(!trace::flush());
  BOOST_REQUIRE(log.lines().size() == 1u);
  BOOST_TEST(parx_test::mentions(log.text(), failing, "No such file or directory"), log.text());
  // a folder stands where the file should: the rename fails, and the temporary file goes
  fs::create_directories(folder / "taken" / "inside");
  trace::start({.path = folder / "taken"});
  BOOST_TEST(!trace::flush());
  BOOST_TEST(log.lines().size() == 2u);
  BOOST_TEST(files_in(folder).size() == 1u);
  // a disk with too little room
  trace::start({.path = folder / "t.json"});
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{16, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  BOOST_TEST(!trace::flush());
  ::setrlimit(RLIMIT_FSIZE, &before);
  BOOST_TEST(parx_test::mentions(log.lines().back(), "File too large"), log.lines().back());
  BOOST_TEST(files_in(folder).size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_missing_is_reported_at_the_start) {
  const auto failing = (folder / "missing" / "t.json").string();
  BOOST_CHECK_EXCEPTION(trace::start({.path = failing}), parx::error, [&](const auto& reported) {
    return std::string(reported.what()).find(failing) != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(a_wrong_start_is_refused) {
  BOOST_CHECK_THROW(trace::start({}), parx::usage_error);
  BOOST_CHECK_THROW(trace::start({.path = "t.json", .events_per_thread = 0}), parx::usage_error);
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

/// Runs this executable again as a program that consists of one of the test cases below.
void run_program(const std::string& name, const std::vector<std::string>& variables) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    for (const auto& each : variables) ::putenv(const_cast<char*>(each.c_str()));
    const std::string only = "--run_test=programs/" + name;
    ::execl("/proc/self/exe", "program", only.c_str(), "--log_level=nothing", "--report_level=no",
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(programs, *boost::unit_test::disabled())

BOOST_AUTO_TEST_CASE(with_spans) {
  parx::logger::instance().set_rank(1, 2);
  trace::name_thread("compute");
  for (int i = 0; i < 5; ++i) trace::span s{"step"};
  static const struct late {
    ~late() { trace::span s{"static destructor"}; }
  } at_exit;
  BOOST_TEST(&at_exit != nullptr);
}

BOOST_AUTO_TEST_CASE(without_spans) { BOOST_TEST(true); }

BOOST_AUTO_TEST_CASE(a_program_whose_forked_process_alone_exits) {
  { trace::span s{"step"}; }
  const ::pid_t child = ::fork();
  if (child == 0) std::exit(0);
  ::_exit(::waitpid(child, nullptr, 0) == child ? 0 : 1);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(environment, scratch)

BOOST_AUTO_TEST_CASE(a_program_run_with_PARX_TRACE_leaves_its_trace_when_it_exits) {
  run_program("with_spans", {"PARX_TRACE=" + (folder / "t.json").string()});
  const auto file = read_trace(folder / "t.rank1.json");
  BOOST_TEST(events(file, "X").size() >= 5u);
  BOOST_TEST(events(file, "X").at(0)["name"].text == "step");
  BOOST_TEST(events(file, "M").at(1)["args"]["name"].text == "compute");
}

BOOST_AUTO_TEST_CASE(PARX_TRACE_EVENTS_bounds_the_events_of_a_thread) {
  run_program("with_spans", {"PARX_TRACE=" + (folder / "t.json").string(), "PARX_TRACE_EVENTS=2"});
  BOOST_TEST(events(read_trace(folder / "t.rank1.json"), "X").size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_program_that_records_nothing_leaves_no_file) {
  run_program("without_spans", {"PARX_TRACE=" + (folder / "t.json").string()});
  BOOST_TEST(files_in(folder).empty());
}

BOOST_AUTO_TEST_CASE(a_forked_process_leaves_the_trace_to_the_program) {
  run_program("a_program_whose_forked_process_alone_exits",
              {"PARX_TRACE=" + (folder / "t.json").string()});
  BOOST_TEST(files_in(folder).empty());
}

BOOST_AUTO_TEST_CASE(a_wrong_variable_does_not_stop_the_program) {
  run_program("with_spans", {"PARX_TRACE=" + (folder / "t.json").string(), "PARX_TRACE_EVENTS=many",
                             "PARX_LOG_LEVEL=error"});
  run_program("with_spans", {"PARX_TRACE=" + (folder / "missing" / "t.json").string()});
  BOOST_TEST(files_in(folder).empty());
}

BOOST_AUTO_TEST_SUITE_END()
