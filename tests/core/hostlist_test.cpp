#include <parx/core/hostlist.hpp>

#include <boost/test/unit_test.hpp>

namespace {

using names = std::vector<std::string>;

struct expansion {
  const char* text;
  names hosts;
};

struct refusal {
  const char* text;
  const char* why;
  int position;
};

BOOST_AUTO_TEST_CASE(lists_expand_as_scontrol_show_hostnames_does) {
  // Each right-hand side was printed by Slurm 22.05's scontrol.
  const expansion table[] = {
      {"", {}},
      {"single", {"single"}},
      {"n[01-03,7],gpu-a", {"n01", "n02", "n03", "n7", "gpu-a"}},
      {"node[1-3]", {"node1", "node2", "node3"}},
      {"node[1-3,5]", {"node1", "node2", "node3", "node5"}},
      {"node[01-03,010-011]", {"node01", "node02", "node03", "node010", "node011"}},
      {"node[08-10]", {"node08", "node09", "node10"}},
      {"node[9-11]", {"node9", "node10", "node11"}},
      {"a1,b2,c[3-4]", {"a1", "b2", "c3", "c4"}},
      {"a[1,3],b7", {"a1", "a3", "b7"}},
      {"n[098-101]", {"n098", "n099", "n100", "n101"}},
      {"rack[1-2]n[1-2]", {"rack1n1", "rack1n2", "rack2n1", "rack2n2"}},
      {"b,a,b", {"b", "a", "b"}},
      {"[1-2]", {"1", "2"}},
      {"n[1,1]", {"n1", "n1"}},
  };
  for (const expansion& row : table) {
    BOOST_TEST(parx::expand_hostlist(row.text) == row.hosts, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(three_brackets_vary_the_last_fastest_and_text_may_follow_a_bracket) {
  const expansion table[] = {
      {"r[0-1]c[08-09]u[3]", {"r0c08u3", "r0c09u3", "r1c08u3", "r1c09u3"}},
      {"gpu-a[100-101].x", {"gpu-a100.x", "gpu-a101.x"}},
  };
  for (const expansion& row : table) {
    BOOST_TEST(parx::expand_hostlist(row.text) == row.hosts, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_damaged_list_is_refused_with_the_position) {
  const refusal table[] = {
      {",", "host name is missing", 1},
      {"a,", "host name is missing", 3},
      {"a,,b", "host name is missing", 3},
      {"n[1-3", "not closed", 2},
      {"n[1-3,", "number is missing", 7},
      {"n[]", "number is missing", 3},
      {"n[a]", "number is missing", 3},
      {"n[1-]", "number is missing", 5},
      {"n[-3]", "number is missing", 3},
      {"n[1-2[3]]", "not closed", 2},
      {"n1]", "never opened", 3},
      {"n[3-1]", "backwards", 3},
      {"n[1 ]", "not closed", 2},
      {"a, b", "blanks", 3},
      {"n[1234567890123456789]", "18 digits", 3},
  };
  for (const refusal& row : table) {
    BOOST_CHECK_EXCEPTION(
        (void)parx::expand_hostlist(row.text), parx::usage_error, [&](const parx::usage_error& e) {
          const std::string_view text = e.what();
          BOOST_TEST_CONTEXT(text) {
            BOOST_TEST((text.find(row.why) != text.npos));
            BOOST_TEST((text.find(fmt::format("character {})", row.position)) != text.npos));
          }
          return true;
        });
  }
}

BOOST_AUTO_TEST_CASE(a_name_that_no_host_can_have_is_refused_before_it_is_multiplied) {
  BOOST_TEST(parx::expand_hostlist(std::string(253, 'n')).size() == 1U);
  for (const std::string& text : {std::string(254, 'n'), std::string(8000, 'n') + "[0-999999]"}) {
    BOOST_CHECK_EXCEPTION((void)parx::expand_hostlist(text), parx::usage_error,
                          [](const parx::usage_error& refused) {
                            return std::string(refused.what()).find("over 253 characters") !=
                                   std::string::npos;
                          });
  }
}

BOOST_AUTO_TEST_CASE(a_hostlist_expands_up_to_its_limit) {
  const names all = parx::expand_hostlist("n[000000-199999]");
  BOOST_TEST(all.size() == 200'000U);
  BOOST_TEST(all.back() == "n199999");
  for (const char* text : {"n[0-200000]", "a,n[000000-199999]", "n[0-99]x[0-1999]y[0-1]",
                           "n[0-999999999999999999]", "n[0-120000,0-120000]"}) {
    BOOST_CHECK_THROW((void)parx::expand_hostlist(text), parx::usage_error);
  }
}

BOOST_AUTO_TEST_CASE(a_name_of_many_brackets_is_refused_before_it_costs_time) {
  std::string text = "n[00000-99999]";
  for (int i = 0; i < 7; ++i) text += "[1]";
  BOOST_TEST(parx::expand_hostlist(text).size() == 100'000U);
  BOOST_CHECK_THROW((void)parx::expand_hostlist(text + "[1]"), parx::usage_error);
}

}  // namespace
