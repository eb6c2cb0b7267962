// formatted(): what fmt would have said, for each kind of argument, and what the compiler refuses.
#include <boost/test/unit_test.hpp>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include <parx/core/formatted.hpp>
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
