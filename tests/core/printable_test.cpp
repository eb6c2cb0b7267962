#include <parx/core/printable.hpp>

#include <random>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <parx/core/log.hpp>

using parx::printable;

BOOST_AUTO_TEST_CASE(text_of_people_passes) {
  for (const std::string text : {"", "plain", "größer, 大きい, 🙂", "a\\b \"c\""}) {
    BOOST_TEST(printable(text) == text);
  }
}

BOOST_AUTO_TEST_CASE(control_characters_are_escaped) {
  BOOST_TEST(printable("a\033[2Jb") == "a\\x1b[2Jb");
  BOOST_TEST(printable("a\nb\rc\td") == "a\\x0ab\\x0dc\\x09d");
  BOOST_TEST(printable("\x7f") == "\\x7f");
  BOOST_TEST(printable("\xc2\x9b" "31m") == "\\xc2\\x9b31m");           // CSI of the second set
  BOOST_TEST(printable("\x9b" "31m") == "\\x9b31m");                    // the same in 8 bits
  BOOST_TEST(printable("\xe2\x80\xa8") == "\\xe2\\x80\\xa8");           // line separator
  BOOST_TEST(printable("\xe2\x80\xae") == "\\xe2\\x80\\xae");           // right to left from here
  BOOST_TEST(printable("\xc0\x8a") == "\\xc0\\x8a");                    // an overlong line feed
  BOOST_TEST(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // half of a surrogate pair
  BOOST_TEST(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // after the last character
  BOOST_TEST(printable("\xe2\x82") == "\\xe2\\x82");                    // cut off
  BOOST_TEST(printable(std::string_view("\0", 1)) == "\\x00");
}

BOOST_AUTO_TEST_CASE(no_bytes_bring_a_control_character_through) {
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string noise(random() % 12, '\0');
    for (char& c : noise) c = static_cast<char>(random() % 256);
    for (const char c : printable(noise)) BOOST_REQUIRE(static_cast<unsigned char>(c) >= 0x20);
  }
}

BOOST_AUTO_TEST_CASE(nobody_forges_a_line_of_the_log) {
  std::vector<std::string> lines;
  parx::logger::instance().set_sink(
      [&](parx::log_level, std::string_view line) { lines.emplace_back(line); });
  parx::log(parx::log_level::error, "rank 3 said: {}", "lost\n[parx rank 0] error: \033[31mbye");
  parx::logger::instance().set_sink(nullptr);
  BOOST_REQUIRE(lines.size() == 1U);
  BOOST_TEST(lines[0].find("\n[parx") == std::string::npos);
  BOOST_TEST(lines[0].find('\033') == std::string::npos);
  BOOST_TEST(lines[0].ends_with("lost\n    [parx rank 0] error: \\x1b[31mbye\n"));
}
