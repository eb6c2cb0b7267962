// What every store must do, as one table that the tests run over each kind of store and each
// server.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/store/store.hpp>

namespace store_claims {

using namespace std::chrono_literals;
using parx::deadline;

inline deadline soon() { return deadline::after(20s); }
inline deadline shortly() { return deadline::after(120ms); }

inline std::string message_of(const std::function<void()>& call, parx::errc expected) {
  try {
    call();
  } catch (const parx::error& failure) {
    BOOST_TEST(failure.code() == parx::make_error_code(expected));
    return failure.what();
  }
  BOOST_ERROR("nothing was thrown");
  return {};
}

/// `a` and `b` are two views of one store (possibly the same object).
struct stores {
  parx::store& a;
  parx::store& b;
  bool compare_set_wakes = true;  ///< PyTorch's older server does not
};

inline void values_are_opaque_bytes(stores s) {
  std::string bytes("\x00\xff\r\n/\"", 6);
  for (const std::string& value :
       {std::string("hello"), std::string{}, bytes, std::string(200'000, 'x')}) {
    s.a.set("bytes", value, soon());
    BOOST_TEST((s.b.get("bytes", soon()) == value));
  }
  for (const std::string& key : {bytes, std::string{}, std::string("//a//")}) {
    s.a.set(key, "strange key", soon());
    BOOST_TEST(s.b.get(key, soon()) == "strange key");
  }
}

inline void add_counts_in_decimal_text(stores s) {
  BOOST_TEST(s.a.add("counter", 5, soon()) == 5);
  BOOST_TEST(s.b.get("counter", soon()) == "5");
  BOOST_TEST(s.b.add("counter", -7, soon()) == -2);
  BOOST_TEST(s.a.get("counter", soon()) == "-2");
  s.a.set("counter", "40", soon());
  BOOST_TEST(s.b.add("counter", 2, soon()) == 42);
  BOOST_TEST(s.b.add("counter", 0, soon()) == 42);
}

inline void add_to_text_fails_and_leaves_the_store_usable(stores s) {
  s.a.set("words", "not a number", soon());
  BOOST_CHECK_THROW(s.a.add("words", 1, soon()), parx::error);
  BOOST_TEST(s.a.get("words", soon()) == "not a number");
}

inline void compare_set_has_four_cases(stores s) {
  BOOST_TEST(s.a.compare_set("swap", "wrong", "new", soon()) == "wrong");
  const std::string swap[] = {"swap"};
  BOOST_TEST(!s.a.check(swap, soon()));
  BOOST_TEST(s.a.compare_set("swap", "", "first", soon()) == "first");
  BOOST_TEST(s.b.compare_set("swap", "other", "new", soon()) == "first");
  BOOST_TEST(s.b.compare_set("swap", "first", "second", soon()) == "second");
  BOOST_TEST(s.a.get("swap", soon()) == "second");
}

inline void check_does_not_wait(stores s) {
  const std::vector<std::string> keys{"check/1", "check/2"};
  BOOST_TEST(s.a.check({}, soon()));
  BOOST_TEST(!s.a.check(keys, soon()));
  s.b.set("check/1", "", soon());
  BOOST_TEST(!s.a.check(keys, soon()));
  s.b.set("check/2", "", soon());
  BOOST_TEST(s.a.check(keys, soon()));
  s.a.wait(keys, soon());
  s.a.wait({}, soon());
}

inline void a_late_wait_names_what_is_missing(stores s) {
  s.a.set("there", "", soon());
  const std::vector<std::string> keys{"there", "absent\n1", "absent2"};
  const auto started = deadline::clock::now();
  const std::string text = message_of([&] { s.a.wait(keys, shortly()); }, parx::errc::timeout);
  const auto took = deadline::clock::now() - started;
  BOOST_TEST((took >= 100ms && took < 5s));
  const std::string missing = text.substr(text.find("nobody set"));
  BOOST_TEST(missing.find("absent\\x0a1\", \"") != std::string::npos);
  BOOST_TEST(missing.find("absent2\".") != std::string::npos);
  BOOST_TEST(missing.find("there") == std::string::npos);
  BOOST_TEST(text.find("store wait of \"") == 0U);
  // The late answer of the abandoned wait must not be taken for that of a later request.
  s.b.set("absent\n1", "x", soon());
  s.b.set("absent2", "y", soon());
  BOOST_TEST(s.a.add("after late wait", 5, soon()) == 5);
  BOOST_TEST(s.a.get("absent2", soon()) == "y");
  message_of([&] { (void)s.a.get("never", shortly()); }, parx::errc::timeout);
  BOOST_TEST(s.a.get("there", soon()) == "");
}

inline void every_change_wakes_those_who_wait(stores s) {
  const auto wakes = [&](const std::string& key, const std::string& expected, auto change) {
    std::string got;
    std::thread waiter([&] {
      try {
        got = s.a.get(key, soon());
      } catch (const std::exception& failure) {
        got = failure.what();
      }
    });
    std::this_thread::sleep_for(20ms);
    change(key);
    waiter.join();
    BOOST_TEST(got == expected);
  };
  wakes("wake/set", "v", [&](auto& key) { s.b.set(key, "v", soon()); });
  wakes("wake/add", "3", [&](auto& key) { s.b.add(key, 3, soon()); });
  wakes("wake/append", "v", [&](auto& key) { s.b.append(key, "v", soon()); });
  wakes("wake/multi", "v", [&](auto& key) {
    s.b.multi_set(std::vector<std::string>{"wake/other", key}, std::vector<std::string>{"o", "v"},
                  soon());
  });
  if (s.compare_set_wakes) {
    wakes("wake/swap", "v", [&](auto& key) { s.b.compare_set(key, "", "v", soon()); });
  }
  // Also through one object: a thread that waits must not lock out the thread that would wake it.
  wakes("wake/same", "v", [&](auto& key) { s.a.set(key, "v", soon()); });
}

inline void delete_key_says_whether_it_was_there(stores s) {
  s.a.set("doomed", "1", soon());
  const auto before = s.b.num_keys(soon());
  BOOST_TEST(s.b.delete_key("doomed", soon()));
  BOOST_TEST(!s.b.delete_key("doomed", soon()));
  BOOST_TEST(s.a.num_keys(soon()) == before - 1);
  const std::string doomed[] = {"doomed"};
  BOOST_TEST(!s.a.check(doomed, soon()));
  s.a.set("doomed", "2", soon());
  BOOST_TEST(s.b.get("doomed", soon()) == "2");
}

inline void append_creates_and_extends(stores s) {
  s.a.append("log", "one", soon());
  s.b.append("log", ",two", soon());
  s.a.append("log", "", soon());
  BOOST_TEST(s.a.get("log", soon()) == "one,two");
}

inline void multi_get_keeps_the_order_of_keys(stores s) {
  const std::vector<std::string> keys{"m/c", "m/a", "m/b"};
  const std::vector<std::string> values{"3", "", "2"};
  s.a.multi_set(keys, values, soon());
  BOOST_TEST((s.b.multi_get(keys, soon()) == values));
  BOOST_TEST(s.b.multi_get({}, soon()).empty());
  BOOST_CHECK_THROW(s.a.multi_set(keys, {}, soon()), parx::usage_error);
  const std::vector<std::string> more{"m/a", "m/z"};
  const auto text = message_of([&] { (void)s.b.multi_get(more, shortly()); }, parx::errc::timeout);
  BOOST_TEST(text.substr(text.find("nobody set")).find("m/z\"") != std::string::npos);
}

inline void a_watch_turns_from_pending_to_set(stores s) {
  const auto watch = s.a.watch("watched", soon());
  BOOST_TEST((watch->ready() == parx::watch_state::pending));
  message_of([&] { (void)watch->value(shortly()); }, parx::errc::timeout);
  s.b.set("watched", "now", soon());
  const auto limit = soon();
  while (watch->ready() == parx::watch_state::pending && !limit.passed())
    std::this_thread::sleep_for(1ms);
  BOOST_TEST((watch->ready() == parx::watch_state::set));
  BOOST_TEST(watch->value(soon()) == "now");
  BOOST_TEST(s.a.watch("watched", soon())->value(soon()) == "now");
}

inline void counters_lose_nothing_under_contention(stores s) {
  constexpr int threads = 4;
  constexpr int each = 25;
  std::atomic<int> failures = 0;
  std::vector<std::thread> crowd;
  for (int t = 0; t < threads; ++t) {
    crowd.emplace_back([&, t] {
      parx::store& mine = t % 2 == 0 ? s.a : s.b;
      try {
        for (int i = 0; i < each; ++i) mine.add("crowded", 1, soon());
        mine.append("crowded text", "xy", soon());
      } catch (const std::exception&) {
        ++failures;
      }
    });
  }
  for (std::thread& t : crowd) t.join();
  BOOST_TEST(failures == 0);
  BOOST_TEST(s.a.get("crowded", soon()) == std::to_string(threads * each));
  BOOST_TEST(s.b.get("crowded text", soon()) == "xyxyxyxy");
}

/// A request has at most 4 096 keys: a call of as many is one, a call of more is several.
inline void a_call_may_have_thousands_of_keys(stores s) {
  for (const std::size_t count : {std::size_t{4096}, std::size_t{4097}}) {
    const std::string name = "of " + std::to_string(count) + "/";
    std::vector<std::string> keys, values;
    for (std::size_t i = 0; i < count; ++i) {
      keys.push_back(name + std::to_string(i));
      values.push_back(std::to_string(i * i));
    }
    s.a.multi_set(std::span(keys).first(count - 1), std::span(values).first(count - 1), soon());
    BOOST_TEST(!s.b.check(keys, soon()));
    const std::string text = message_of([&] { s.b.wait(keys, shortly()); }, parx::errc::timeout);
    BOOST_TEST(text.find("store wait of \"") == 0U);
    s.a.set(keys.back(), values.back(), soon());
    BOOST_TEST(s.b.check(keys, soon()));
    s.b.wait(keys, soon());
    BOOST_TEST((s.b.multi_get(keys, soon()) == values));
  }
}

inline void hold_for(stores s) {
  values_are_opaque_bytes(s);
  add_counts_in_decimal_text(s);
  add_to_text_fails_and_leaves_the_store_usable(s);
  compare_set_has_four_cases(s);
  check_does_not_wait(s);
  a_late_wait_names_what_is_missing(s);
  every_change_wakes_those_who_wait(s);
  delete_key_says_whether_it_was_there(s);
  append_creates_and_extends(s);
  multi_get_keeps_the_order_of_keys(s);
  a_watch_turns_from_pending_to_set(s);
  counters_lose_nothing_under_contention(s);
  a_call_may_have_thousands_of_keys(s);
}

}  // namespace store_claims
