// Flight recorders: what is written is read back, damaged files are refused by name, and the first
// operation at which ranks diverged is found. The logs in the tables are written by hand.
#include <parx/comm/flight/recorder.hpp>

#include <boost/test/unit_test.hpp>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "messages.hpp"

#include "tools/common/flight/divergence.hpp"
#include "tools/common/flight/reader.hpp"

namespace {

using parx::flight_log;
using parx::flight_part;
using parx::flight_record;
using parx::flight_state;
using parx::operation;
using parx_test::mentions;

struct folder {
  std::string path = "/tmp/parx-test-flight." + std::to_string(::getpid());
  ~folder() { std::filesystem::remove_all(path); }
};

parx::detail::call_header header(operation what, std::uint64_t number, std::uint64_t count = 8) {
  parx::detail::call_header call;
  call.operation = static_cast<std::uint8_t>(what);
  call.group = 7;
  call.sequence = 2 * number;
  call.count = count;
  call.line = 88;
  call.set_file("train.cpp");
  return call;
}

flight_record record(operation what, std::uint64_t number, flight_state state,
                     std::int64_t entered = 0, std::uint64_t group = 7) {
  flight_record made;
  made.call = header(what, number);
  made.call.group = group;
  made.state = state;
  made.entered_ns = entered == 0 ? static_cast<std::int64_t>(number) * 100 : entered;
  made.finished_ns = state == flight_state::entered ? 0 : made.entered_ns + 50;
  return made;
}

flight_log log_of(int rank, std::vector<flight_record> records, std::string boot = "one") {
  flight_log log;
  log.rank = rank;
  log.world_size = 4;
  log.boot_id = std::move(boot);
  log.groups = {{7, 4, "world"}, {9, 2, "tp"}};
  log.records = std::move(records);
  for (std::size_t i = 0; i < log.records.size(); ++i) log.records[i].ticket = i + 1;
  return log;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string recorded(const folder& where, int operations) {
  parx::flight_recorder recorder({.directory = where.path, .rank = 1, .world_size = 4, .job = 5});
  recorder.add_group(7, "world", 4, 1);
  for (int i = 1; i <= operations; ++i) {
    const auto ticket =
        recorder.enter(header(operation::barrier, static_cast<std::uint64_t>(i)), 0, -1);
    if (i < operations) recorder.finish(ticket, flight_state::finished);
  }
  return bytes_of(where.path + "/rank_1.flight");
}

std::string refusal_of(std::string_view bytes) {
  try {
    static_cast<void>(parx::parse_flight_log(bytes, "rank_1.flight"));
  } catch (const parx::error& refused) {
    BOOST_TEST((refused.code_value() == parx::errc::bad_data));
    return refused.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_last_4096_operations_are_read_back_and_nobody_else_may_read_them) {
  const folder where;
  const auto log = parx::parse_flight_log(recorded(where, 5000), "it");
  BOOST_TEST(log.rank == 1);
  BOOST_TEST(log.world_size == 4);
  BOOST_TEST(log.job == 5u);
  BOOST_TEST(log.pid == ::getpid());
  BOOST_TEST(log.groups.size() == 1u);
  BOOST_TEST(log.groups.front().name == "world");
  BOOST_TEST(log.records.size() == 4096u);
  BOOST_TEST(log.forgot);
  BOOST_TEST(log.records.front().call.number() == 905u);
  BOOST_TEST((log.records.back().state == flight_state::entered));
  BOOST_TEST((log.records[4094].state == flight_state::finished));
  BOOST_TEST(log.records[4094].finished_ns >= log.records[4094].entered_ns);
  struct stat found {};
  BOOST_TEST(::stat(where.path.c_str(), &found) == 0);
  BOOST_TEST((found.st_mode & 0777) == 0700u);
  BOOST_TEST(::stat((where.path + "/rank_1.flight").c_str(), &found) == 0);
  BOOST_TEST((found.st_mode & 0777) == 0600u);
}

BOOST_AUTO_TEST_CASE(an_operation_that_outlives_4096_others_ends_none_of_them) {
  const folder where;
  parx::flight_recorder recorder({.directory = where.path, .rank = 1, .world_size = 4, .job = 5});
  const auto oldest = recorder.enter(header(operation::barrier, 1), 0, -1);
  for (std::uint64_t i = 2; i <= 4097; ++i) {
    static_cast<void>(recorder.enter(header(operation::barrier, i), 0, -1));
  }
  const auto before = bytes_of(where.path + "/rank_1.flight");
  recorder.begin_time(oldest, {});
  recorder.finish(oldest, flight_state::failed);
  BOOST_TEST(bytes_of(where.path + "/rank_1.flight") == before);
  const auto log = parx::parse_flight_log(before, "it");
  BOOST_TEST(log.records.size() == 4096u);
  BOOST_TEST(log.records.back().call.number() == 4097u);
}

BOOST_AUTO_TEST_CASE(a_directory_that_others_may_write_to_is_refused) {
  const folder where;
  std::filesystem::create_directory(where.path);
  BOOST_TEST(::chmod(where.path.c_str(), 0777) == 0);
  const auto refusal = [](const std::string& directory) -> std::string {
    try {
      const parx::flight_recorder made({.directory = directory});
    } catch (const parx::error& refused) {
      return refused.what();
    }
    return "";
  };
  BOOST_TEST(mentions(refusal(where.path), "its directory belongs to user " +
                                               std::to_string(::geteuid()) + " and has mode 0777"));
  const std::string link = where.path + "/link";
  std::filesystem::create_directory_symlink(where.path, link);
  BOOST_TEST(mentions(refusal(link), "its directory is a symbolic link"));
}

BOOST_AUTO_TEST_CASE(a_job_does_not_clear_the_directory_behind_a_symbolic_link) {
  const folder where;
  static_cast<void>(recorded(where, 10));
  const std::string link = where.path + ".link";
  std::filesystem::create_directory_symlink(where.path, link);
  parx::clear_flight_directory(link);
  BOOST_TEST(!parx::find_flight_directory(link).valid());
  BOOST_TEST(parx::read_flight_logs(link).ranks.size() == 1u);
  std::filesystem::remove(link);
  parx::clear_flight_directory(where.path);
  BOOST_TEST(!std::filesystem::exists(where.path));
}

BOOST_AUTO_TEST_CASE(files_go_once_all_have_left_and_stay_where_one_has_not) {
  const folder where;
  const auto options = [&](int rank) {
    return parx::flight_options{.directory = where.path, .rank = rank, .world_size = 2, .job = 5,
                                .files = parx::flight_files::removed_after_success};
  };
  for (const bool fails : {true, false}) {
    parx::flight_recorder first(options(0));
    parx::flight_recorder second(options(1));
    first.leave();
    BOOST_TEST(std::filesystem::exists(where.path + "/rank_0.flight"));
    if (fails) second.fail("out of memory");
    second.leave();
    BOOST_TEST(std::filesystem::exists(where.path) == fails);
    if (fails) BOOST_TEST(parx::read_flight_logs(where.path).ranks[1].reason == "out of memory");
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_before_another_has_joined_does_not_take_its_place_away) {
  const folder where;
  std::vector<std::string> failures(2);
  const auto join_and_leave = [&](int rank) {
    const std::string file = where.path + "/" + parx::flight_file_name(rank);
    try {
      for (int i = 0; i < 300; ++i) {
        parx::flight_recorder recorder({.directory = where.path,
                                        .rank = rank,
                                        .world_size = 2,
                                        .job = 5,
                                        .files = parx::flight_files::removed_after_success});
        if (::access(file.c_str(), F_OK) != 0) throw std::runtime_error("its file has gone");
        recorder.leave();
      }
    } catch (const std::exception& thrown) {
      failures[static_cast<std::size_t>(rank)] = thrown.what();
    }
  };
  std::thread other(join_and_leave, 1);
  join_and_leave(0);
  other.join();
  BOOST_TEST(failures[0] == "");
  BOOST_TEST(failures[1] == "");
  BOOST_TEST(!std::filesystem::exists(where.path));
}

BOOST_AUTO_TEST_CASE(a_job_removes_what_failed_jobs_left_long_ago_or_too_often) {
  namespace fs = std::filesystem;
  const folder base;
  fs::create_directory(base.path);
  const auto place = [&](const std::string& start) {
    return parx::find_flight_place({{"PARX_RECORDER", ""}, {"XDG_RUNTIME_DIR", base.path}}, start);
  };
  // Left by a process that is gone, `hours` ago.
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const auto leave = [&](const std::string& start, int hours, std::int64_t pid) {
    const std::string path = place(start).directory;
    parx::flight_header header;
    header.pid = pid;
    fs::create_directory(path);
    std::ofstream(path + "/rank_0.flight", std::ios::binary)
        .write(reinterpret_cast<const char*>(&header), sizeof header);
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    return path;
  };
  const auto make = [&](const std::string& start, parx::flight_files files) {
    const parx::flight_recorder made({.directory = place(start).directory, .files = files});
  };
  const std::string old = leave("old", 73, gone), running = leave("running", 73, ::getpid());
  const std::string recent = leave("recent", 71, gone), own_work = old + ".txt";
  const std::string mine = base.path + "/parx-flight-notes";
  fs::create_directory(mine);
  fs::last_write_time(mine, fs::file_time_type::clock::now() - std::chrono::hours(100));
  fs::create_directory(own_work);
  const std::string target = base.path + "/target";
  fs::create_directory(target);
  std::ofstream(target + "/rank_0.flight") << "somebody's";
  const std::string link = place("link").directory;
  fs::create_directory_symlink(target, link);

  make("kept", parx::flight_files::kept);
  BOOST_TEST(fs::exists(old));
  make("new", parx::flight_files::removed_after_success);
  BOOST_TEST(!fs::exists(old));
  for (const auto& each : {running, recent, mine, own_work, link, target + "/rank_0.flight",
                           place("new").directory}) {
    BOOST_TEST(fs::exists(each), each);
  }

  for (int i = 0; i < 25; ++i) leave("failed " + std::to_string(i), 1 + i, gone);
  make("another", parx::flight_files::removed_after_success);
  // The newest 20 stay, "kept", "new" and the 18 that failed last, and that of the running job.
  for (int i = 0; i < 25; ++i) {
    BOOST_TEST(fs::exists(place("failed " + std::to_string(i)).directory) == (i < 18), i);
  }
  BOOST_TEST(!fs::exists(recent));
  BOOST_TEST(fs::exists(running));
  BOOST_TEST(fs::exists(place("new").directory));
}

BOOST_AUTO_TEST_CASE(damaged_files_are_refused_by_name) {
  const folder where;
  const std::string good = recorded(where, 10);
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{8191}}) {
    BOOST_TEST(mentions(refusal_of(good.substr(0, size)), "in its header"));
  }
  for (const std::size_t size : {std::size_t{8192}, std::size_t{9000}, good.size() - 1}) {
    BOOST_TEST(mentions(refusal_of(good.substr(0, size)), "bytes instead of 532480"));
  }
  BOOST_TEST(mentions(refusal_of(good + "x"), "532481 bytes instead of 532480"));
  const auto with = [&](std::size_t at, char value) {
    std::string bad = good;
    bad[at] = value;
    return refusal_of(bad);
  };
  BOOST_TEST(mentions(with(0, 'Q'), "does not begin with PXFLIGHT"));
  BOOST_TEST(mentions(with(8, 2), "has version 2 of the layout"));
  BOOST_TEST(mentions(with(16, 64), "records of 64 bytes"));
  BOOST_TEST(mentions(with(35, 1), "it is of rank 16777217 of 4"));
  BOOST_TEST(mentions(with(0, 'Q'), "rank_1.flight is no flight recorder"));
}

BOOST_AUTO_TEST_CASE(random_bytes_give_errors_or_damaged_records_and_never_harm) {
  const folder where;
  const std::string good = recorded(where, 10);
  std::mt19937 random(1);
  std::size_t refused = 0;
  std::size_t damaged = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::string bad = good;
    const std::size_t reach = trial % 2 == 0 ? 1024 : 12'000;  // the header, or records too
    for (int change = 0; change < 40; ++change) {
      const std::size_t at = trial % 3 == 0 ? 200 + random() % reach : random() % reach;
      bad[at] = static_cast<char>(random());
    }
    try {
      std::vector<flight_log> logs{parx::parse_flight_log(bad, "it")};
      damaged += logs.front().damaged;
      for (const auto& each : parx::find_divergences(logs)) {
        BOOST_TEST(!to_text(each, logs).empty());
      }
    } catch (const parx::error&) {
      ++refused;
    }
  }
  std::string noise(parx::flight_file_bytes, '\0');
  for (char& each : noise) each = static_cast<char>(random());
  BOOST_TEST(mentions(refusal_of(noise), "does not begin"));
  std::memcpy(noise.data(), good.data(), parx::flight_header_bytes);
  BOOST_TEST(parx::parse_flight_log(noise, "it").records.size() == 0u);
  BOOST_TEST(parx::parse_flight_log(noise, "it").damaged == 4096u);
  BOOST_TEST(refused > 50u);
  BOOST_TEST(damaged > 50u);
}

BOOST_AUTO_TEST_CASE(the_first_divergence_tells_who_never_entered_who_differs_and_who_is_in_it) {
  const auto done = flight_state::finished;
  const auto in = flight_state::entered;
  const std::vector<flight_log> logs{
      log_of(0, {record(operation::barrier, 1, done), record(operation::all_reduce, 2, done)}),
      log_of(1, {record(operation::barrier, 1, done), record(operation::all_reduce, 2, in)}),
      log_of(2, {record(operation::barrier, 1, done)}),
      log_of(3, {record(operation::barrier, 1, done), record(operation::broadcast, 2, in)})};
  const auto found = parx::find_divergences(logs);
  BOOST_REQUIRE(found.size() == 1u);
  BOOST_TEST(found[0].call.call.number() == 2u);
  BOOST_TEST((found[0].ranks[0].part == flight_part::finished));
  BOOST_TEST((found[0].ranks[1].part == flight_part::in_it));
  BOOST_TEST((found[0].ranks[2].part == flight_part::never_entered));
  BOOST_TEST((found[0].ranks[3].part == flight_part::called_other));
  const std::string text = to_text(found[0], logs);
  BOOST_TEST(mentions(text, "#2, all_reduce of 8 float32"));
  BOOST_TEST(mentions(text, "never entered it; its last call here was #1, barrier"));
}

BOOST_AUTO_TEST_CASE(calls_that_differ_come_before_one_that_a_slow_rank_did_not_finish) {
  const auto done = flight_state::finished, failed = flight_state::failed;
  const std::vector<flight_log> logs{
      log_of(0, {record(operation::all_reduce, 1, done), record(operation::broadcast, 2, done)}),
      log_of(1, {record(operation::all_reduce, 1, done), record(operation::all_gather, 2, failed)}),
      log_of(2, {record(operation::all_reduce, 1, failed)})};
  const auto found = parx::find_divergences(logs);
  BOOST_REQUIRE(found.size() == 1U);
  BOOST_TEST(found[0].call.call.number() == 2U);
  BOOST_TEST((found[0].ranks[1].part == flight_part::called_other));
}

BOOST_AUTO_TEST_CASE(equal_logs_diverge_nowhere_and_dropped_records_count_neither_way) {
  const auto done = flight_state::finished;
  std::vector<flight_log> logs;
  for (int rank = 0; rank < 3; ++rank) {
    logs.push_back(log_of(rank, {record(operation::barrier, 1, done),
                                 record(operation::barrier, 2, done)}));
  }
  BOOST_TEST(parx::find_divergences(logs).empty());
  logs[1].records.erase(logs[1].records.begin());
  BOOST_TEST(parx::find_divergences(logs).size() == 1u);
  logs[1].forgot = true;
  BOOST_TEST(parx::find_divergences(logs).empty());
}

BOOST_AUTO_TEST_CASE(a_rank_that_waits_in_a_message_is_shown_with_the_rank_that_it_waits_for) {
  const auto done = flight_state::finished, in = flight_state::failed;
  flight_record message = record(operation::send, 0, in, 150);
  message.peer = 2;
  message.call.root = 7;  // the tag
  flight_record received = message;
  received.state = done;
  const std::vector<flight_log> logs{
      log_of(0, {record(operation::barrier, 1, done), record(operation::all_reduce, 2, in)}),
      log_of(1, {record(operation::barrier, 1, done), received, message}),
      log_of(2, {record(operation::barrier, 1, done), record(operation::all_reduce, 2, in)})};
  const auto found = parx::find_divergences(logs);
  BOOST_REQUIRE(found.size() == 1u);
  BOOST_TEST((found[0].ranks[1].part == flight_part::never_entered));
  const std::string text = to_text(found[0], logs);
  BOOST_TEST(mentions(text, "never entered it; it is in a message with rank 2 and tag 7 at "
                            "train.cpp:88; its last call here was #1, barrier"),
             text);
}

BOOST_AUTO_TEST_CASE(a_group_whose_missing_rank_is_stuck_in_another_one_comes_after_that) {
  const auto in = flight_state::entered;
  std::vector<flight_log> logs{
      log_of(0, {record(operation::all_reduce, 1, in, 100)}),
      log_of(1, {record(operation::barrier, 1, in, 200, 9)}),
      log_of(2, {record(operation::all_reduce, 1, in, 120),
                 record(operation::all_reduce, 1, in, 300, 9)})};
  logs[0].groups.pop_back();  // rank 0 is not in "tp"
  const auto found = parx::find_divergences(logs);
  BOOST_REQUIRE(found.size() == 2u);
  BOOST_TEST(found[0].name == "tp");
  BOOST_TEST(found[1].name == "world");
}

BOOST_AUTO_TEST_CASE(clocks_of_two_hosts_are_moved_into_what_their_barriers_allow) {
  // Rank 1's clock is 1000 ahead; the wall clocks say 0. It entered last, at 190 true time, and
  // all finished by 210: the difference is within [1000 - 20, 1000 + 110].
  flight_record mine = record(operation::barrier, 1, flight_state::finished, 100);
  mine.finished_ns = 210;
  flight_record theirs = record(operation::barrier, 1, flight_state::finished, 1190);
  theirs.finished_ns = 1210;
  const std::vector<flight_log> logs{log_of(0, {mine}), log_of(1, {theirs}, "two"),
                                     log_of(2, {mine})};
  const auto ahead = parx::align_clocks(logs);
  BOOST_TEST(ahead[0] == 0);
  BOOST_TEST(ahead[1] == 980);
  BOOST_TEST(ahead[2] == 0);
}
