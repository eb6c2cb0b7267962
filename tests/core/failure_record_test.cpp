// The record of a rank's failure, and its text.
#include <parx/core/failure_record.hpp>

#include <boost/test/unit_test.hpp>

#include <stdexcept>
#include <string>

#include <parx/core/json.hpp>

namespace {

using parx::errc;
using parx::failure_from_text;
using parx::failure_kind;
using parx::failure_record;

const failure_record full{.unix_ns = 1'700'000'000'123'456'789,
                          .code = errc::peer_lost,
                          .rank = 3,
                          .blamed = 5,
                          .host = "n3",
                          .operation = "all_reduce",
                          .group = "dp \"at\" pp=1",
                          .sequence = 812,
                          .site = "train.cpp:88",
                          .text = "lost rank 5 \\ it said: \"no\""};

}  // namespace

BOOST_AUTO_TEST_CASE(a_record_is_read_as_it_was_written) {
  BOOST_TEST((failure_from_text(to_text(full)) == full));
  failure_record record = full;
  for (const auto code : {errc::timeout, errc::peer_lost, errc::aborted, errc::mismatch,
                          errc::rendezvous_failed, errc::protocol, errc::closed, errc::io,
                          errc::bad_data}) {
    record.code = code;
    BOOST_TEST((failure_from_text(to_text(record)) == record));
  }
  record.code.reset();
  record.is_for_now = true;
  BOOST_TEST((failure_from_text(to_text(record)) == record));
  BOOST_TEST((failure_from_text(to_text(failure_record{})) == failure_record{}));
}

BOOST_AUTO_TEST_CASE(a_failure_record_has_the_form_that_pytorch_reads) {
  const auto written = parx::json::parse(to_text(full));
  const auto& message = written.at("message");
  BOOST_TEST(message.as<std::string>("message") == full.text);
  BOOST_TEST(message.at("extraInfo").as<std::string>("timestamp") == "1700000000");
  BOOST_TEST(message.at("extraInfo").at("py_callstack").is_string());
}

BOOST_AUTO_TEST_CASE(what_pytorch_writes_is_a_failure_of_the_rank_itself) {
  const auto read = failure_from_text(
      R"({"message": {"message": "ValueError: no", "errorCode": 1, "extraInfo":
          {"py_callstack": "Traceback\n  File", "timestamp": "1700000000"}}})");
  BOOST_REQUIRE(read.has_value());
  BOOST_TEST(read->text == "ValueError: no");
  BOOST_TEST(read->unix_ns == 1'700'000'000'000'000'000);
  BOOST_TEST((read->kind() == failure_kind::own));
  BOOST_TEST(failure_from_text(R"({"message": "it broke"})").value().text == "it broke");
}

BOOST_AUTO_TEST_CASE(prefixes_of_a_failure_record_and_other_text_are_refused) {
  const std::string text = to_text(full);
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    BOOST_TEST(!failure_from_text(text.substr(0, size)).has_value());
  }
  for (const char* other : {"", "{}", "[]", "null", "{\"message\": 3}", "{\"other\": \"x\"}",
                            "{\"message\": {\"extraInfo\": []}}", "lost rank 3"}) {
    BOOST_TEST(!failure_from_text(other).has_value(), other);
  }
  // Numbers that do not fit are as good as none.
  const auto large = failure_from_text(
      R"({"message": {"extraInfo": {"timestamp": "99999999999999999999",
          "parx": {"rank": 1e99, "blamed": "x"}}}})");
  BOOST_TEST(!large.has_value());
  BOOST_TEST(failure_from_text(R"({"message": {"extraInfo": {"parx": {"rank": 99999999999}}}})")
                 .value()
                 .rank == 0);
}

BOOST_AUTO_TEST_CASE(a_text_from_another_process_cannot_act_on_a_terminal) {
  failure_record record{.host = "a\x1b[31m", .text = "one\x1b[2J\nrank 0: two"};
  const auto read = failure_from_text(to_text(record)).value();
  BOOST_TEST(read.host.find('\x1b') == std::string::npos);
  BOOST_TEST(read.text.find('\x1b') == std::string::npos);
  record.text = std::string(100'000, 'x');
  BOOST_TEST(to_text(record).size() < 10'000U);
}

BOOST_AUTO_TEST_CASE(an_exceptions_code_and_context_make_its_record) {
  const parx::error lost(errc::peer_lost, "store get: gone",
                         {.operation = "rendezvous", .group = "world", .peer = 0, .host = "n0"});
  const auto record = parx::record_of(std::make_exception_ptr(lost), 4);
  BOOST_TEST((record.code == errc::peer_lost));
  BOOST_TEST(record.rank == 4);
  BOOST_TEST(record.culprit() == 0);
  BOOST_TEST(record.operation == "rendezvous");
  BOOST_TEST(record.text == "store get: gone");
  BOOST_TEST(record.unix_ns > 1'700'000'000'000'000'000);
  const auto own = parx::record_of(std::make_exception_ptr(std::runtime_error("no data")), 2);
  BOOST_TEST((own.kind() == failure_kind::own));
  BOOST_TEST(own.culprit() == 2);
  BOOST_TEST(own.text == "no data");
}

BOOST_AUTO_TEST_CASE(a_deadline_or_comparison_outside_of_a_group_accuses_no_rank) {
  const auto kind = [](errc code, std::string group) {
    return failure_record{.code = code, .group = std::move(group)}.kind();
  };
  BOOST_TEST((kind(errc::timeout, "world") == failure_kind::accuses));
  BOOST_TEST((kind(errc::mismatch, "world") == failure_kind::accuses));
  BOOST_TEST((kind(errc::rendezvous_failed, "world") == failure_kind::accuses));
  BOOST_TEST((kind(errc::timeout, "") == failure_kind::own));
  BOOST_TEST((kind(errc::mismatch, "") == failure_kind::own));
  BOOST_TEST((kind(errc::peer_lost, "") == failure_kind::lost_peer));
  BOOST_TEST((kind(errc::aborted, "dp") == failure_kind::told));
  BOOST_TEST((kind(errc::closed, "dp") == failure_kind::told));
  for (const errc own : {errc::io, errc::bad_data, errc::protocol}) {
    BOOST_TEST((kind(own, "dp") == failure_kind::own));
  }
}
