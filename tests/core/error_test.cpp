// Errors and what caused them: what() tells the chain, advice comes last and only once.
#include <parx/core/error.hpp>

#include <parx/core/call_context.hpp>

#include <boost/test/unit_test.hpp>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using parx::errc;
using parx::error;

/// The exception that `act` throws.
template <typename Act>
std::exception_ptr thrown_by(Act act) {
  try {
    act();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_error_tells_all_its_causes_and_then_what_to_do) {
  const auto disk = std::make_exception_ptr(std::runtime_error("the disk is full."));
  const auto file = std::make_exception_ptr(
      error(errc::io, "cannot write a.bin.", {.advice = "Make room"}, disk));
  const error whole(errc::aborted, "all_reduce failed", {.rank = 3, .advice = "Restart"}, file);
  BOOST_TEST(whole.what() ==
             "all_reduce failed; caused by: cannot write a.bin; caused by: the disk is full. "
             "Restart");
  BOOST_TEST(whole.message() == "all_reduce failed");
  BOOST_TEST(parx::text_of(whole) ==
             "all_reduce failed; caused by: cannot write a.bin; caused by: the disk is full");
  BOOST_TEST((whole.cause() == file));
  BOOST_TEST((parx::cause_of(whole) == file));
}

BOOST_AUTO_TEST_CASE(an_error_without_a_cause_says_what_it_was_given) {
  const error alone(errc::io, "the file is gone.");
  BOOST_TEST(alone.what() == "the file is gone.");
  BOOST_TEST(alone.message() == "the file is gone.");
  BOOST_TEST(parx::text_of(alone) == "the file is gone");
  BOOST_TEST((alone.cause() == nullptr));
  const error advised(errc::io, "The group is closed..", {.advice = "Restart the job"});
  BOOST_TEST(advised.what() == "The group is closed. Restart the job");
  BOOST_TEST(advised.message() == "The group is closed");
}

BOOST_AUTO_TEST_CASE(exceptions_that_a_program_has_nested_are_told_with_their_causes) {
  const auto nested = thrown_by([] {
    try {
      try {
        throw error(errc::bad_data, "line 7 is no number");
      } catch (...) {
        std::throw_with_nested(std::runtime_error("cannot read train.csv"));
      }
    } catch (...) {
      std::throw_with_nested(error(errc::io, "no batch", {.advice = "Look at the data"}));
    }
  });
  BOOST_TEST(parx::text_of(nested) ==
             "no batch; caused by: cannot read train.csv; caused by: line 7 is no number");
  BOOST_TEST(error(errc::aborted, "the step failed", {}, nested).what() ==
             "the step failed; caused by: no batch; caused by: cannot read train.csv; caused by: "
             "line 7 is no number");
}

BOOST_AUTO_TEST_CASE(an_exception_outside_of_std_is_reported_as_such) {
  BOOST_TEST(parx::text_of(thrown_by([] { throw 7; })) ==
             "an exception that is not a std::exception");
  BOOST_TEST(parx::text_of(thrown_by([] { throw std::bad_alloc(); })) == "std::bad_alloc");
}

BOOST_AUTO_TEST_CASE(a_mistake_without_a_line_is_told_with_the_threads_last_call_that_has_one) {
  const parx::call_site here = parx::call_site::current();
  BOOST_TEST(parx::with_last_call("+: shapes (2) and (3)") ==
             parx::formatted("+: shapes (2) and (3) (at or after {})", here));
  BOOST_TEST(parx::with_last_call("sum at a.cpp:3: no axis 7") == "sum at a.cpp:3: no axis 7");
  // Calls between parx's own headers do not count, and other threads have their own.
  static_cast<void>(parx::call_site::current("/usr/include/parx/nn/linear.hpp", 7));
  BOOST_TEST(parx::last_call_site().line == here.line);
  int line_of_other = -1;
  std::thread([&] { line_of_other = parx::last_call_site().line; }).join();
  BOOST_TEST(line_of_other == 0);
}

BOOST_AUTO_TEST_CASE(a_mistake_within_a_call_is_told_with_the_line_of_the_program) {
  const parx::call_site here = parx::call_site::current();
  const auto said = [&](auto act) {
    return parx::text_of(
        thrown_by([&] { parx::with_call_context("forward_backward", here, act); }));
  };
  const std::string call = parx::formatted("forward_backward at {}", here);
  BOOST_TEST(said([] { parx::throw_usage("linear \"0.weight\": shapes (4, 9) and (16, 8)"); }) ==
             call + ": linear \"0.weight\": shapes (4, 9) and (16, 8)");
  BOOST_TEST(said([] { parx::throw_usage("mse_loss at train.cpp:12: shapes"); }) ==
             "mse_loss at train.cpp:12: shapes");
  BOOST_TEST(said([] { parx::throw_error(errc::io, "cannot open \"a.b\" at 12:30"); }) ==
             call + ": cannot open \"a.b\" at 12:30");
  BOOST_TEST(said([] { parx::throw_error(errc::timeout, "timed out at train.cpp:12"); }) ==
             call + ", which all ranks call: timed out at train.cpp:12");
  BOOST_TEST(said([] { throw std::runtime_error("my own"); }) == "my own");
  const auto usage =
      thrown_by([&] { parx::with_call_context("save", here, [] { parx::throw_usage("no"); }); });
  BOOST_CHECK_THROW(std::rethrow_exception(usage), parx::usage_error);
  for (const char* text : {"load at a.cpp:1", "of \"x\" (at no place) at lib/b.hpp:20, in"}) {
    BOOST_TEST(parx::names_a_line(text), text);
  }
  for (const char* text : {"", " at ", "at a.cpp:1", "look at a:1", " at a.cpp:", " at 1.5 at x"}) {
    BOOST_TEST(!parx::names_a_line(text), text);
  }
}
