#include <parx/core/json.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <boost/test/unit_test.hpp>

#include <messages.hpp>

namespace json = parx::json;
using parx_test::mentions;

namespace {

std::string failure(std::string_view text) {
  try {
    (void)json::parse(text);
  } catch (const json::error& reason) {
    return reason.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_value_is_read_looked_at_changed_and_written) {
  auto config =
      json::parse(R"({"hidden": 64, "rate": 1e-3, "deep": {"list": [1, -2, true, null]}})");
  BOOST_TEST(config.at("hidden").as<int>() == 64);
  BOOST_TEST(config.at("rate").as<double>() == 1e-3);
  BOOST_TEST(config.at("deep").at("list").elements()[1].as<int>() == -2);
  BOOST_TEST(config.get_or("layers", 2) == 2);
  config["hidden"] = 128;
  config["name"] = "a \"b\"\n\x01";
  config["labels"].push_back("x");
  BOOST_TEST(json::dump(config) ==
             R"({"hidden": 128, "rate": 0.001, "deep": {"list": [1, -2, true, null]}, )"
             R"("name": "a \"b\"\n\u0001", "labels": ["x"]})");
  BOOST_TEST(json::dump(json::object{{"a", json::array{1, 2}}, {"b", json::object{}}}, 2) ==
             "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
}

BOOST_AUTO_TEST_CASE(numbers_come_back_as_they_were) {
  for (const double number : {0.1, -0.0, 1.0, 1e300, 5e-324, 123456789.125, -2.5}) {
    const auto back = json::parse(json::dump(number)).as<double>();
    BOOST_TEST(back == number);
    BOOST_TEST(std::signbit(back) == std::signbit(number));
  }
  constexpr auto largest = std::numeric_limits<std::uint64_t>::max();
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min();
  BOOST_TEST(json::parse(json::dump(largest)).as<std::uint64_t>() == largest);
  BOOST_TEST(json::parse(json::dump(lowest)).as<std::int64_t>() == lowest);
  BOOST_TEST(json::parse("18446744073709551616").as<double>() == 18446744073709551616.0);
  BOOST_TEST(json::dump(std::nan("")) == "null");
}

BOOST_AUTO_TEST_CASE(a_value_of_another_type_is_named) {
  const auto config = json::parse(R"({"a": "text", "b": 300, "c": -1, "d": 1.5})");
  const auto says = [](std::string_view part) {
    return [part](const json::error& reason) { return mentions(reason.what(), part); };
  };
  BOOST_CHECK_EXCEPTION((void)config.at("x"), json::error, says("there is no \"x\""));
  BOOST_CHECK_EXCEPTION((void)config.get_or("a", 1), json::error, says("found \"text\""));
  BOOST_CHECK_EXCEPTION((void)config.as<int>("a"), json::error, says("\"a\": expected a whole"));
  BOOST_CHECK_EXCEPTION((void)config.as<int>("x"), json::error, says("there is no \"x\""));
  BOOST_CHECK_EXCEPTION((void)config.at("b").as<std::uint8_t>(), json::error, says("0 to 255"));
  BOOST_CHECK_EXCEPTION((void)config.at("c").as<unsigned>(), json::error, says("found -1"));
  BOOST_CHECK_EXCEPTION((void)config.at("d").as<int>(), json::error, says("found 1.5"));
  BOOST_CHECK_EXCEPTION((void)config.at("a").elements(), json::error, says("expected an array"));
}

BOOST_AUTO_TEST_CASE(invalid_json_is_refused_with_line_and_column) {
  struct wrong {
    std::string text;
    std::string_view reason;
  };
  const std::vector<wrong> all{
      {"", "a digit at line 1, column 1"},
      {"{\n  \"a\": 1,\n  \"a\": 2\n}", "\"a\" once at line 3, column 7"},
      {"{\"a\": 1,}", "'\"' at line 1, column 9"},
      {"[1, 2", "']' at line 1, column 6"},
      {"[1] 2", "the end at line 1, column 5"},
      {"[01]", "']' at line 1, column 3"},
      {"[1.]", "a digit"},
      {"[.5]", "a digit"},
      {"[+1]", "a digit"},
      {"[1e]", "a digit"},
      {"[1e999]", "a double"},
      {"[NaN]", "a digit"},
      {"[tru]", "a digit"},
      {"['a']", "a digit"},
      {"[\"a\tb\"]", "control character"},
      {"[\"a", "the end of a string"},
      {"[\"\\x\"]", "escape sequence"},
      {"[\"\\ud800\"]", "surrogate"},
      {"[\"\\udc00\"]", "surrogate"},
      {"[\"\\u12g4\"]", "hexadecimal"},
      {"[\"\xC0\x80\"]", "UTF-8 at line 1, column 3"},
      {"[\"\xED\xA0\x80\"]", "UTF-8"},
      {"[\"\xF4\x90\x80\x80\"]", "UTF-8"},
      {"[\"\xE2\x82", "UTF-8"},
      {std::string(65, '['), "no more than 64"},
      {std::string(1'000'000, '['), "no more than 64"},
  };
  for (const auto& [text, reason] : all) {
    const std::string message = failure(text);
    BOOST_TEST(mentions(message, reason), text.substr(0, 20)
                                              << ": \"" << message << "\" does not mention \""
                                              << reason << '"');
  }
  BOOST_TEST(mentions(failure(std::string(64, '[') + std::string(64, ']')), "no error"));
  BOOST_CHECK_THROW((void)json::parse("[1, 2]", {.max_bytes = 5}), json::error);
}

BOOST_AUTO_TEST_CASE(text_in_any_script_is_kept) {
  const std::string text = "Gr\xC3\xB6\xC3\x9F""e \xE4\xBD\xA0 \xF0\x9F\x98\x80";
  BOOST_TEST(json::parse(json::quote(text)).text() == text);
  BOOST_TEST(json::parse(R"("\u00e9\u4f60\ud83d\ude00\/")").text() ==
             "\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80/");
}

BOOST_AUTO_TEST_CASE(bytes_that_are_not_utf8_are_replaced_so_that_what_is_written_can_be_read) {
  const std::string replaced = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> table[]{
      {"a\xFF\xC3z", "a" + replaced + replaced + "z"},
      {"\xE2\x82", replaced},                                     // one character, cut off
      {"\xF0\x9F\x98\"", replaced + "\""},                        // the same, before a quote
      {"\xED\xA0\x80", replaced + replaced + replaced},           // half of a surrogate pair
      {"\xC0\x80", replaced + replaced},                          // overlong
      {"\xF4\x90\x80\x80", replaced + replaced + replaced + replaced},  // after the last one
      {std::string("\0\t\x7F", 3), std::string("\0\t\x7F", 3)},
  };
  for (const auto& [text, read] : table) BOOST_TEST(json::parse(json::quote(text)).text() == read);
}

BOOST_AUTO_TEST_CASE(a_reader_takes_what_it_wants_and_skips_the_rest) {
  json::reader line(R"({"id": 7, "extra": {"deep": [1.5e3, {"x": null}]}, "text": "hello"})");
  std::string text;
  std::uint64_t id = 0;
  line.object([&](const std::string& key) {
    if (key == "text") {
      text = line.string();
    } else if (key == "id") {
      id = line.number();
    } else {
      line.skip();
    }
  });
  line.end();
  BOOST_TEST(id == 7U);
  BOOST_TEST(text == "hello");
}
