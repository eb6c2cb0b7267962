#include <parx/store/detail/server_core.hpp>

#include <map>
#include <string>

#include <boost/test/unit_test.hpp>

namespace {

using namespace parx::detail::store_protocol;
using parx::store_dialect;

// A server's core with numbered clients and what each was sent.
struct fixture {
  std::map<std::uint64_t, std::string> sent;
  server_core core{[this](std::uint64_t client, std::string_view bytes) { sent[client] += bytes; }};

  verdict run(std::uint64_t client, const request& r,
              store_dialect dialect = store_dialect::torch_2_5) {
    return core.execute(client, dialect, r);
  }
  void set(const std::string& key) {
    run(99, {.op = operation::set, .keys = {key}, .values = {"v"}});
  }
};

const std::string stop_waiting(1, '\0');

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_wait_ends_once_when_its_last_key_appears, fixture) {
  run(1, {.op = operation::wait, .keys = {"a", "b", "a"}});
  set("a");
  set("a");
  BOOST_TEST(sent[1] == "");
  set("b");
  BOOST_TEST((sent[1] == stop_waiting));
  set("b");
  BOOST_TEST((sent[1] == stop_waiting));
}

BOOST_FIXTURE_TEST_CASE(a_client_that_has_gone_is_sent_nothing_more, fixture) {
  run(1, {.op = operation::wait, .keys = {"a"}});
  run(2, {.op = operation::wait, .keys = {"a"}});
  run(3, {.op = operation::watch_key, .keys = {"a"}}, store_dialect::torch_1_13);
  sent.clear();
  core.forget(1);
  core.forget(3);
  set("a");
  BOOST_TEST(sent.count(1) == 0U);
  BOOST_TEST((sent[2] == stop_waiting));
  BOOST_TEST(sent.count(3) == 0U);
}

BOOST_FIXTURE_TEST_CASE(a_cancelled_or_abandoned_wait_is_never_answered, fixture) {
  run(1, {.op = operation::wait, .keys = {"a"}});
  run(1, {.op = operation::cancel_wait});
  run(2, {.op = operation::wait, .keys = {"a"}}, store_dialect::torch_1_13);
  run(2, {.op = operation::add, .keys = {"n"}, .number = 5}, store_dialect::torch_1_13);
  set("a");
  BOOST_TEST(sent[1] == "\x01");
  BOOST_TEST((sent[2] == std::string("\x05\0\0\0\0\0\0\0", 8)));
}

BOOST_FIXTURE_TEST_CASE(a_missing_get_is_answered_as_the_dialects_server_does, fixture) {
  const request get{.op = operation::get, .keys = {"missing"}};
  const request many{.op = operation::multi_get, .keys = {"missing"}};
  BOOST_TEST((run(1, get, store_dialect::torch_1_13) == verdict::hang_up));
  BOOST_TEST((run(1, many, store_dialect::torch_2_1) == verdict::hang_up));
  BOOST_TEST(sent[1] == "");
  BOOST_TEST((run(2, get) == verdict::keep));
  BOOST_TEST((sent[2] == std::string(8, '\0')));
}

BOOST_FIXTURE_TEST_CASE(a_counter_neither_overflows_nor_counts_words, fixture) {
  const auto add = [&](std::int64_t delta) {
    return run(1, {.op = operation::add, .keys = {"n"}, .number = delta});
  };
  BOOST_TEST((add(INT64_MAX) == verdict::keep));
  BOOST_TEST((add(1) == verdict::hang_up));
  BOOST_TEST((add(-1) == verdict::keep));
  set("n");
  BOOST_TEST((add(1) == verdict::hang_up));
}

BOOST_FIXTURE_TEST_CASE(an_answer_without_bounds_is_not_made, fixture) {
  run(1, {.op = operation::set, .keys = {"big"}, .values = {std::string(max_value_bytes, 'v')}});
  const request many{.op = operation::multi_get, .keys = std::vector<std::string>(1000, "big")};
  BOOST_TEST((run(1, many) == verdict::hang_up));
  const request more{
      .op = operation::append, .keys = {"big"}, .values = {std::string(max_value_bytes, 'v')}};
  int appended = 0;
  while (run(1, more) == verdict::keep) ++appended;
  BOOST_TEST(appended == 7);
  BOOST_TEST(sent[1] == "");
}
