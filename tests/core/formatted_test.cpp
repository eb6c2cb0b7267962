// formatted(): what fmt would have said, for each kind of argument, and what the compiler refuses.
// joined_text(): lists of what it takes.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>

BOOST_AUTO_TEST_CASE(says_every_kind_of_argument) {
  const char* pointer = "pointer";
  BOOST_TEST(parx::formatted("nothing") == "nothing");
  BOOST_TEST(parx::formatted("{} {} {} {}", "array", pointer, std::string("s"),
                             std::string_view("v")) == "array pointer s v");
  BOOST_TEST(parx::formatted("{} {} {} {}", -1, 'c', true, 2.5f) == "-1 c true 2.5");
  BOOST_TEST(parx::formatted("{}", std::numeric_limits<unsigned long>::max()) ==
             "18446744073709551615");
  BOOST_TEST(parx::formatted("{:.2f}|{:>4}|{:04x}", 1.0 / 3, 7, 255) == "0.33|   7|00ff");
  BOOST_TEST(parx::formatted("{{{}}} {:>{}}", 1, 2, 3) == "{1}   2");
  BOOST_TEST(parx::formatted("{0}{1}{0}", '"', "x") == "\"x\"");
  BOOST_TEST(parx::formatted("{}", fmt::join(std::vector<int>{1, 2, 3}, ", ")) == "1, 2, 3");
}

BOOST_AUTO_TEST_CASE(counts_arguments_when_compiled) {
  using parx::detail::arguments_of;
  static_assert(arguments_of("") == 0);
  static_assert(arguments_of("{} of {{}}, {:>{}}") == 3);
  static_assert(arguments_of("{0}{1}{0}") == 2);
  static_assert(arguments_of("{") > 999 && arguments_of("}") > 999 && arguments_of("{}}") > 999);
}

/// As a tensor's: its size() counts elements.
struct shape_of_two {
  std::array<std::size_t, 2> extents{2, 3};
  [[nodiscard]] const std::size_t* begin() const { return extents.data(); }
  [[nodiscard]] const std::size_t* end() const { return extents.data() + 2; }
  [[nodiscard]] static std::size_t size() { return 6; }
  [[nodiscard]] const std::size_t* data() const { return extents.data(); }
};

BOOST_AUTO_TEST_CASE(joins_numbers_and_texts) {
  using parx::joined_text;
  const std::vector<int> ranks{0, -1, 12};
  BOOST_TEST(joined_text(ranks) == "0, -1, 12");
  BOOST_TEST(joined_text(std::span(ranks).first(1)) == "0");
  BOOST_TEST(joined_text(std::vector<int>{}) == "");
  BOOST_TEST(joined_text(shape_of_two{}) == "2, 3");
  BOOST_TEST(joined_text(std::array<std::size_t, 2>{18'446'744'073'709'551'615u, 0}, " x ") ==
             "18446744073709551615 x 0");
  BOOST_TEST(joined_text(std::vector<std::string>{"", "a", ""}, "+") == "+a+");
}

namespace {
struct made_somewhere {
  explicit made_somewhere(int, parx::call_site its = parx::call_site::current()) : site(its) {}
  parx::call_site site;
};
}  // namespace

BOOST_AUTO_TEST_CASE(the_place_of_a_call_is_never_a_line_of_the_standard_library) {
  const auto text_of = [](const made_somewhere& made) { return parx::formatted("{}", made.site); };
  BOOST_TEST(text_of(made_somewhere(1)).starts_with("formatted_test.cpp:"));
  BOOST_TEST(text_of(*std::make_unique<made_somewhere>(1)) == "an unknown line");
  std::optional<made_somewhere> kept;
  BOOST_TEST(text_of(kept.emplace(1)) == "an unknown line");
  BOOST_TEST(text_of(*std::make_shared<made_somewhere>(1, parx::call_site::current()))
                 .starts_with("formatted_test.cpp:"));
}
