#include <parx/trace/progress.hpp>

#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <parx/core/descriptor.hpp>

namespace {

using namespace std::chrono_literals;
using parx::detail::columns;
using parx::detail::progress_look;
using parx::detail::progress_state;
using parx::detail::progress_text;

constexpr auto any_width = parx::detail::unlimited_columns;

/// Everything that can be read from `source` without waiting.
std::string drain(int source) {
  ::fcntl(source, F_SETFL, ::fcntl(source, F_GETFL) | O_NONBLOCK);
  std::string text;
  char block[4096];
  for (;;) {
    const auto got = ::read(source, block, sizeof block);
    if (got <= 0) return text;
    text.append(block, static_cast<std::size_t>(got));
  }
}

struct pipe_pair {
  pipe_pair() {
    int ends[2];
    BOOST_REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reader = parx::descriptor(ends[0]);
    writer = parx::descriptor(ends[1]);
  }
  parx::descriptor reader, writer;
};

/// A pseudo terminal that passes bytes on as they are.
struct terminal {
  explicit terminal(unsigned short width) {
    int master = -1;
    int slave = -1;
    winsize size{};
    size.ws_col = width;
    size.ws_row = 24;
    BOOST_REQUIRE(::openpty(&master, &slave, nullptr, nullptr, &size) == 0);
    screen = parx::descriptor(master);
    device = parx::descriptor(slave);
    termios modes{};
    ::tcgetattr(slave, &modes);
    ::cfmakeraw(&modes);
    ::tcsetattr(slave, TCSANOW, &modes);
  }
  parx::descriptor screen, device;
};

/// What a person sees: the lines of a terminal that knows newline, carriage return and
/// erase-to-end. A draw always rewrites its line from the left and erases the rest, so a line is
/// what follows its last carriage return.
std::vector<std::string> seen(const std::string& bytes) {
  std::vector<std::string> lines(1);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\n') {
      lines.emplace_back();
    } else if (bytes[i] == '\r') {
      lines.back().clear();
    } else if (bytes.compare(i, 3, "\x1b[K") == 0) {
      i += 2;
    } else {
      lines.back() += bytes[i];
    }
  }
  return lines;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// What is written to `stream` (STDOUT_FILENO, STDERR_FILENO) goes to `target` while this lives.
class redirect {
 public:
  redirect(int stream, int target) : stream_(stream) {
    std::fflush(stdout);
    saved_ = parx::descriptor(::dup(stream));
    ::dup2(target, stream);
  }
  redirect(const redirect&) = delete;
  redirect& operator=(const redirect&) = delete;
  ~redirect() {
    std::fflush(stdout);
    ::dup2(saved_.get(), stream_);
  }

 private:
  int stream_;
  parx::descriptor saved_;
};

/// TERM and PARX_PROGRESS_BAR as a terminal of every day has them, whatever runs these tests.
struct plain_environment {
  plain_environment() {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("PARX_PROGRESS_BAR");
  }
  ~plain_environment() { ::unsetenv("PARX_PROGRESS_BAR"); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(progress, plain_environment)

BOOST_AUTO_TEST_CASE(a_line_shows_percent_bar_counts_times_rate_and_note) {
  struct row {
    progress_state state;
    std::string expected;
  };
  const std::vector<row> table{
      {{.done = 100, .total = 237, .seconds = 39.06, .note = "loss 0.312"},
       " 42%|████████▍           | 100/237 [00:39<00:53,  2.56it/s] loss 0.312"},
      {{.done = 0, .total = 237}, "  0%|                    | 0/237 [00:00<?, ?it/s]"},
      {{.done = 237, .total = 237, .seconds = 100},
       "100%|████████████████████| 237/237 [01:40<00:00,  2.37it/s]"},
      // 100 % means done: rounding down, exactly
      {{.done = 999, .total = 1000, .seconds = 999},
       " 99%|███████████████████▉| 999/1000 [16:39<00:01,  1.00it/s]"},
      {{.done = 29, .total = 100, .seconds = 29},
       " 29%|█████▊              | 29/100 [00:29<01:11,  1.00it/s]"},
      // an hour and more, seconds a step
      {{.done = 1000, .total = 4000, .seconds = 5040},
       " 25%|█████               | 1000/4000 [1:24:00<4:12:00,  5.04s/it]"},
      // more than announced
      {{.done = 12, .total = 10, .seconds = 6},
       "100%|████████████████████| 12/10 [00:06<00:00,  2.00it/s]"},
      // nobody knows the total
      {{.done = 12, .seconds = 6, .note = "loss 1"}, "12it [00:06,  2.00it/s] loss 1"},
      // resumed at 900: neither rate nor time left counts what an earlier run did
      {{.done = 950, .total = 1000, .initial = 900, .seconds = 100, .label = "epoch 3"},
       "epoch 3:  95%|███████████████████ | 950/1000 [01:40<01:40,  2.00s/it]"},
  };
  for (const auto& [state, expected] : table) {
    BOOST_TEST(progress_text(state, progress_look::bar, any_width) == expected);
  }
}

BOOST_AUTO_TEST_CASE(a_plain_line_is_the_same_without_the_bar) {
  const progress_state state{
      .done = 100, .total = 237, .seconds = 39.06, .label = "train", .note = "loss 0.312"};
  BOOST_TEST(progress_text(state, progress_look::plain, any_width) ==
             "train:  42% 100/237 [00:39<00:53,  2.56it/s] loss 0.312");
}

BOOST_AUTO_TEST_CASE(a_narrow_terminal_loses_the_bar_first_and_the_percentage_last) {
  const progress_state state{
      .done = 100, .total = 237, .seconds = 39.06, .label = "train", .note = "loss 0.312"};
  struct row {
    std::size_t width;
    std::string expected;
  };
  const std::vector<row> table{
      {77, "train:  42%|████████▍           | 100/237 [00:39<00:53,  2.56it/s] loss 0.312"},
      {76, "train:  42%|████████           | 100/237 [00:39<00:53,  2.56it/s] loss 0.312"},
      {61, "train:  42%|█▋  | 100/237 [00:39<00:53,  2.56it/s] loss 0.312"},
      {60, "train:  42% 100/237 [00:39<00:53,  2.56it/s] loss 0.312"},
      {55, "train:  42% 100/237 [00:39<00:53,  2.56it/s] loss 0.312"},
      {52, "train:  42% 100/237 [00:39<00:53,  2.56it/s] loss 0."},
      {51, "train:  42% 100/237 [00:39<00:53,  2.56it/s]"},
      {44, "train:  42% 100/237 [00:39<00:53,  2.56it/s]"},
      {43, " 42% 100/237 [00:39<00:53,  2.56it/s]"},
      {36, " 42% 100/237"},
      {12, " 42% 100/237"},
      {11, " 42%"},
      {4, " 42%"},
      {3, " 42"},
      {0, ""},
  };
  for (const auto& [width, expected] : table) {
    BOOST_TEST(progress_text(state, progress_look::bar, width) == expected, "width " << width);
  }
}

BOOST_AUTO_TEST_CASE(no_line_is_wider_than_the_terminal) {
  for (std::size_t width = 0; width <= 120; ++width) {
    for (const std::size_t total : {0u, 7u, 1000000u}) {
      for (const std::string_view note : {"", "loss 0.3", "損失 0.3 🚀", "\xff\xfe broken"}) {
        const progress_state state{
            .done = 5, .total = total, .seconds = 1e5, .label = "é", .note = note};
        const auto text = progress_text(state, progress_look::bar, width);
        BOOST_TEST(columns(text) <= width, text);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(columns_are_what_a_terminal_uses_not_bytes) {
  BOOST_TEST(columns("loss") == 4u);
  BOOST_TEST(columns("é") == 1u);
  BOOST_TEST(columns("e\u0301") == 1u);
  BOOST_TEST(columns("損失") == 4u);
  BOOST_TEST(columns("🚀") == 2u);
  BOOST_TEST(columns("█▍") == 2u);
  BOOST_TEST(columns("\xff\xc3") == 2u, "a byte that is not UTF-8 takes a column");
  BOOST_TEST(columns("\xed\xa0\x80") == 3u, "a surrogate is not UTF-8");
  BOOST_TEST(columns("\xc0\xaf") == 2u, "an overlong form is not UTF-8");
  BOOST_TEST(parx::detail::cut_to_columns("a損失", 2) == "a");
  BOOST_TEST(parx::detail::cut_to_columns("a損失", 3) == "a損");
  BOOST_TEST(parx::detail::cut_to_columns("abc", 9) == "abc");
}

BOOST_AUTO_TEST_CASE(times_are_minutes_then_hours_then_unknown) {
  BOOST_TEST(parx::detail::clock_text(0) == "00:00");
  BOOST_TEST(parx::detail::clock_text(59.9) == "00:59");
  BOOST_TEST(parx::detail::clock_text(3599) == "59:59");
  BOOST_TEST(parx::detail::clock_text(3600) == "1:00:00");
  BOOST_TEST(parx::detail::clock_text(360000) == "100:00:00");
  BOOST_TEST(parx::detail::clock_text(-1) == "?");
  BOOST_TEST(parx::detail::clock_text(1e300) == "?");
  BOOST_TEST(parx::detail::clock_text(std::numeric_limits<double>::quiet_NaN()) == "?");
}

BOOST_AUTO_TEST_CASE(a_file_gets_only_the_last_line_of_a_short_loop) {
  pipe_pair pipe;
  {
    parx::progress bar{{.total = 3, .descriptor = pipe.writer.get()}};
    for (std::size_t step = 1; step <= 3; ++step) bar.update(step, fmt::format("loss {}", step));
    bar.finish();
    bar.finish();
    bar.update(1);
  }
  const auto text = drain(pipe.reader.get());
  BOOST_TEST(text.starts_with("100% 3/3 [00:00<00:00, "), text);
  BOOST_TEST(text.ends_with("it/s] loss 3\n"), text);
  BOOST_TEST(count(text, "\n") == 1u, text);
  BOOST_TEST(count(text, "\r") == 0u);
}

BOOST_AUTO_TEST_CASE(a_file_gets_a_plain_line_every_interval) {
  pipe_pair pipe;
  parx::progress bar{
      {.total = 100, .label = "train", .plain_interval = 50ms, .descriptor = pipe.writer.get()}};
  bar.update(1, "early");
  BOOST_TEST(drain(pipe.reader.get()) == "");
  std::this_thread::sleep_for(60ms);
  bar.update(2);
  bar.update(3);
  const auto text = drain(pipe.reader.get());
  BOOST_TEST(text.starts_with("train:   2% 2/100 ["), text);
  BOOST_TEST(text.ends_with("] early\n"), "an empty note keeps the note before: " << text);
  BOOST_TEST(count(text, "\n") == 1u, text);
}

BOOST_AUTO_TEST_CASE(a_terminal_gets_one_bar_that_is_redrawn_in_place_and_left_once) {
  terminal tty(80);
  {
    parx::progress bar{{.total = 2000, .descriptor = tty.device.get()}};
    BOOST_TEST(seen(drain(tty.screen.get())).back() ==
               "  0%|                    | 0/2000 [00:00<?, ?it/s]");
    for (std::size_t step = 1; step <= 1000; ++step) bar.update(step, "loss 0.5\n");
  }
  const auto bytes = drain(tty.screen.get());
  const auto lines = seen(bytes);
  BOOST_REQUIRE(lines.size() == 2u);
  BOOST_TEST(lines[0].starts_with(" 50%|██████████          | 1000/2000 ["), lines[0]);
  BOOST_TEST(lines[0].ends_with("] loss 0.5 "), "a newline in a note would tear the bar");
  BOOST_TEST(lines[1] == "");
  BOOST_TEST(count(bytes, "\r") < 50u, "a thousand updates in a moment are not a thousand draws");
}

BOOST_AUTO_TEST_CASE(the_last_step_is_shown_at_once) {
  terminal tty(80);
  parx::progress bar{{.total = 10, .descriptor = tty.device.get()}};
  for (std::size_t step = 1; step <= 10; ++step) bar.update(step);
  const auto lines = seen(drain(tty.screen.get()));
  BOOST_TEST(lines.back().starts_with("100%|████████████████████| 10/10 "), lines.back());
}

BOOST_AUTO_TEST_CASE(a_resized_terminal_gets_a_bar_of_its_new_width) {
  terminal tty(80);
  parx::progress bar{{.total = 10, .descriptor = tty.device.get()}};
  drain(tty.screen.get());
  winsize narrow{};
  narrow.ws_col = 20;
  BOOST_REQUIRE(::ioctl(tty.device.get(), TIOCSWINSZ, &narrow) == 0);
  bar.update(10);
  BOOST_TEST(seen(drain(tty.screen.get())).back() == "100% 10/10");
}

BOOST_AUTO_TEST_CASE(a_printed_line_stands_above_an_intact_bar) {
  terminal tty(80);
  std::vector<std::string> lines;
  {
    const redirect to_terminal(STDOUT_FILENO, tty.device.get());
    parx::progress bar{{.total = 4, .descriptor = tty.device.get()}};
    bar.update(2, "loss 0.5");
    bar.print("epoch 1: loss 0.5");
    lines = seen(drain(tty.screen.get()));
    bar.finish();
    bar.print("after the end");
  }
  BOOST_REQUIRE(lines.size() == 2u);
  BOOST_TEST(lines[0] == "epoch 1: loss 0.5");
  BOOST_TEST(lines[1].starts_with(" 50%|██████████          | 2/4 ["), lines[1]);
  const auto rest = seen(drain(tty.screen.get()));
  BOOST_REQUIRE(rest.size() == 3u);
  BOOST_TEST(rest[0].starts_with(" 50%|"), rest[0]);
  BOOST_TEST(rest[1] == "after the end");
}

BOOST_AUTO_TEST_CASE(a_log_line_stands_above_an_intact_bar) {
  terminal tty(80);
  const redirect to_terminal(STDERR_FILENO, tty.device.get());
  {
    parx::progress bar{{.total = 4, .descriptor = tty.device.get()}};
    parx::log(parx::log_level::error, "loss is {}", "nan");
    const auto lines = seen(drain(tty.screen.get()));
    BOOST_REQUIRE(lines.size() == 2u);
    BOOST_TEST(lines[0].ends_with("] error: loss is nan"), lines[0]);
    BOOST_TEST(lines[1].starts_with("  0%|                    | 0/4 ["), lines[1]);
    bar.finish();
    drain(tty.screen.get());
    parx::log(parx::log_level::error, "after the end");
  }
  parx::log(parx::log_level::error, "after the bar");
  const auto lines = seen(drain(tty.screen.get()));
  BOOST_REQUIRE(lines.size() == 3u);
  BOOST_TEST(lines[0].ends_with("error: after the end"), lines[0]);
  BOOST_TEST(lines[1].ends_with("error: after the bar"), lines[1]);
}

BOOST_AUTO_TEST_CASE(log_lines_of_another_thread_and_the_bar_do_not_tear_each_other) {
  terminal tty(80);
  constexpr int wanted = 20;
  {
    const redirect errors_to_terminal(STDERR_FILENO, tty.device.get());
    const redirect to_terminal(STDOUT_FILENO, tty.device.get());
    parx::progress bar{{.total = 1000, .descriptor = tty.device.get()}};
    std::thread other([] {
      for (int i = 0; i < wanted; ++i) parx::log(parx::log_level::error, "line {}", i);
    });
    for (int i = 0; i < wanted; ++i) bar.print("printed");
    other.join();
  }
  int logged = 0;
  int printed = 0;
  for (const auto& line : seen(drain(tty.screen.get()))) {
    logged += line.starts_with("[parx ") && count(line, "line ") == 1;
    printed += line == "printed";
  }
  BOOST_TEST(logged == wanted);
  BOOST_TEST(printed == wanted);
}

BOOST_AUTO_TEST_CASE(a_bar_that_went_by_an_exception_is_out_of_the_way_of_log_lines) {
  terminal tty(80);
  const redirect to_terminal(STDERR_FILENO, tty.device.get());
  try {
    parx::progress bar{{.total = 4, .descriptor = tty.device.get()}};
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  parx::log(parx::log_level::error, "stopped");
  const auto lines = seen(drain(tty.screen.get()));
  BOOST_REQUIRE(lines.size() == 3u);
  BOOST_TEST(lines[0].starts_with("  0%|"), lines[0]);
  BOOST_TEST(lines[1].ends_with("error: stopped"), lines[1]);
}

BOOST_AUTO_TEST_CASE(printed_lines_go_to_standard_output_and_progress_does_not) {
  pipe_pair output;
  pipe_pair pipe;
  {
    const redirect to_pipe(STDOUT_FILENO, output.writer.get());
    parx::progress bar{{.total = 4, .descriptor = pipe.writer.get()}};
    bar.print("epoch 1");
    BOOST_TEST(drain(output.reader.get()) == "epoch 1\n", "a printed line is flushed");
  }
  BOOST_TEST(count(drain(pipe.reader.get()), "epoch") == 0u);
  BOOST_TEST(drain(output.reader.get()) == "");
}

BOOST_AUTO_TEST_CASE(a_disabled_bar_is_silent) {
  terminal tty(80);
  {
    const redirect to_terminal(STDOUT_FILENO, tty.device.get());
    parx::progress bar{{.total = 4, .enabled = false, .descriptor = tty.device.get()}};
    bar.update(4, "loss");
    bar.print("epoch 1");
    bar.finish();
  }
  BOOST_TEST(drain(tty.screen.get()) == "");
}

BOOST_AUTO_TEST_CASE(an_exception_leaves_no_final_line_and_a_fresh_line_for_its_message) {
  terminal tty(80);
  pipe_pair pipe;
  try {
    parx::progress live{{.total = 4, .descriptor = tty.device.get()}};
    parx::progress plain{{.total = 4, .descriptor = pipe.writer.get()}};
    live.update(2);
    plain.update(2);
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  BOOST_TEST(drain(pipe.reader.get()) == "");
  const auto lines = seen(drain(tty.screen.get()));
  BOOST_REQUIRE(lines.size() == 2u);
  BOOST_TEST(lines[0].starts_with("  0%|"), "the bar as it stood: " << lines[0]);
}

BOOST_AUTO_TEST_CASE(the_environment_can_ask_a_terminal_for_plain_lines) {
  for (const auto& [name, value] :
       {std::pair{"PARX_PROGRESS_BAR", "0"}, std::pair{"TERM", "dumb"}}) {
    const plain_environment fresh;
    ::setenv(name, value, 1);
    terminal tty(80);
    parx::progress{{.total = 4, .descriptor = tty.device.get()}}.update(4);
    const auto bytes = drain(tty.screen.get());
    BOOST_TEST(bytes.starts_with("100% 4/4 ["), bytes);
    BOOST_TEST(count(bytes, "\r") == 0u, bytes);
  }
  ::setenv("PARX_PROGRESS_BAR", "perhaps", 1);
  terminal tty(80);
  BOOST_CHECK_THROW(parx::progress({.total = 4, .descriptor = tty.device.get()}),
                    parx::usage_error);
}

BOOST_AUTO_TEST_SUITE_END()
