// When ranks wait for each other: which ranks the errors name.
#include <parx/comm/detail/progress/wait_report.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <parx/comm.hpp>
#include <parx/store/hash.hpp>
#include <parx/transport/job.hpp>

#include "comm/jobs.hpp"
#include "messages.hpp"

namespace {

using namespace std::chrono_literals;
using parx::detail::find_culprit;
using parx::detail::wait_report;

constexpr jobs::kind kinds[] = {jobs::kind::inproc, jobs::kind::tcp, jobs::kind::shm};

/// Receives a number, with so short a deadline that a test may wait for it.
void receive(parx::process_group& group, int from) {
  std::vector<int> x(3);
  parx::recv(group, x, from, {.timeout = 1500ms});
}
/// Holds the latest value that was set, after a call of `before_set` with it.
class store_of_one_key final : public parx::store {
 public:
  explicit store_of_one_key(std::function<void(const std::string&)> before_set)
      : before_set_(std::move(before_set)) {}
  [[nodiscard]] std::string describe() const override { return "store_of_one_key"; }

 private:
  using text = std::string_view;
  using texts = std::span<const std::string>;
  void do_set(text, text value, parx::deadline) override {
    before_set_(std::string(value));
    all_.set("key", value);
  }
  std::string do_get(text, parx::deadline) override { return all_.get("key"); }
  bool do_check(texts, parx::deadline) override { return true; }
  std::unique_ptr<parx::store_watch> do_watch(text key, parx::deadline) override {
    return all_.watch(key);
  }
  std::int64_t do_add(text, std::int64_t, parx::deadline) override { return 0; }
  void do_wait(texts, parx::deadline) override {}
  std::string do_compare_set(text, text, text, parx::deadline) override { return {}; }
  bool do_delete_key(text, parx::deadline) override { return false; }
  std::int64_t do_num_keys(parx::deadline) override { return 1; }
  void do_append(text, text, parx::deadline) override {}
  std::vector<std::string> do_multi_get(texts, parx::deadline) override { return {}; }
  void do_multi_set(texts, texts, parx::deadline) override {}

  std::function<void(const std::string&)> before_set_;
  parx::hash_store all_;
};

void deliver(parx::process_group& group, int to) { parx::send(group, std::vector<int>(3), to); }

}  // namespace

BOOST_AUTO_TEST_CASE(a_report_comes_back_as_it_was_written_and_nothing_else_is_taken_for_one) {
  wait_report written;
  written.call.sequence = 7;
  written.call.set_file("train.cpp");
  written.group = "dp at pp=1";
  written.blocks = true;
  for (const auto& awaited : {std::vector<int>{}, std::vector<int>{3, 0, 99'999}}) {
    written.awaited = awaited;
    written.recent.resize(awaited.size() / 2, written.call);
    const auto all = wait_report::all_in(written.to_text() + written.to_text());
    BOOST_TEST_REQUIRE(all.size() == 2U);
    for (const wait_report& read : all) {
      BOOST_TEST(read.call.matches(written.call));
      BOOST_TEST(read.call.file_name() == "train.cpp");
      BOOST_TEST(read.awaited == awaited);
      BOOST_TEST_REQUIRE(read.recent.size() == awaited.size() / 2);
      for (const auto& each : read.recent) BOOST_TEST(each.matches(written.call));
      BOOST_TEST(read.group == "dp at pp=1");
      BOOST_TEST(static_cast<bool>(read.blocks));
    }
  }
  const std::string text = written.to_text();
  BOOST_TEST(wait_report::all_in("").empty());
  BOOST_TEST(wait_report::all_in(text.substr(1)).empty());
  BOOST_TEST(wait_report::all_in(std::string(text.size(), 'x')).empty());
  for (std::size_t size = 0; size < text.size(); ++size) {
    BOOST_TEST(wait_report::all_in(text.substr(0, size)).empty());
    BOOST_TEST(wait_report::all_in(text + text.substr(0, size)).size() == 1U);
  }
}

BOOST_AUTO_TEST_CASE(the_culprit_is_the_rank_that_waits_for_nobody_or_else_the_circle) {
  struct waiting {
    const char* what;
    std::map<int, std::vector<int>> for_ranks;  // rank 0 asks
    std::vector<int> chain;
    bool circle;
  };
  const waiting all[] = {
      {"the awaited rank itself", {{0, {1}}}, {1}, false},
      {"two ranks on", {{0, {1}}, {1, {2}}, {2, {3}}}, {1, 2, 3}, false},
      {"the nearest of two", {{0, {1, 4}}, {1, {2}}, {2, {3}}, {4, {5}}}, {4, 5}, false},
      {"a circle", {{0, {1}}, {1, {2}}, {2, {0}}}, {0, 1, 2}, true},
      {"a circle of others", {{0, {1}}, {1, {2}}, {2, {1}}}, {1, 2}, true},
      {"a way out of the circle", {{0, {1}}, {1, {0, 2}}}, {1, 2}, false},
      {"nobody", {}, {}, false}};
  for (const waiting& each : all) {
    const auto awaited_by = [&](int rank) {
      const auto found = each.for_ranks.find(rank);
      return found == each.for_ranks.end() ? std::vector<int>{} : found->second;
    };
    const auto chain = find_culprit(0, awaited_by(0), awaited_by);
    BOOST_TEST(chain.ranks == each.chain, each.what);
    BOOST_TEST(chain.circle == each.circle, each.what);
  }
  int asked = 0;
  const auto chain = find_culprit(0, {1}, [&](int rank) {
    ++asked;
    return std::vector<int>{rank + 1};
  }, 10);
  BOOST_TEST(chain.ranks.empty());
  BOOST_TEST(asked == 9);
}

BOOST_AUTO_TEST_CASE(ranks_that_receive_from_each_other_in_a_circle_are_told_so) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 3, [](parx::process_group& group) {
      receive(group, (group.rank() + 1) % 3);
    });
    for (const auto& each : failures) {
      BOOST_TEST(parx_test::mentions(each, "which waits in recv of 3 int32 with tag 0"), each);
      BOOST_TEST(parx_test::mentions(each, "wait_report_test.cpp"), each);
      BOOST_TEST(parx_test::mentions(each, "These wait for each other in a circle: rank "), each);
    }
  }
}

BOOST_AUTO_TEST_CASE(behind_a_chain_of_receives_the_rank_in_no_call_is_named) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 4, [](parx::process_group& group) {
      if (group.rank() == 3) std::this_thread::sleep_for(2s);
      else receive(group, group.rank() + 1);
    });
    for (int rank = 0; rank < 3; ++rank) {
      const auto& each = failures[static_cast<std::size_t>(rank)];
      // Unless the last one of the chain was the first to give up.
      BOOST_TEST((parx_test::mentions(each, "behind that is rank 3") ||
                  parx_test::mentions(each, "timed out waiting for rank 3")),
                 each);
      BOOST_TEST(parx_test::mentions(each, "which waits in no call ("), each);
      BOOST_TEST(!parx_test::mentions(each, "circle"), each);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_collective_names_the_receive_that_a_missing_rank_is_in) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 3, [](parx::process_group& group) {
      std::vector<float> x(10);
      if (group.rank() == 2) receive(group, 0);
      else parx::all_reduce(group, x, {.timeout = 1500ms});
    });
    for (const auto& each : failures) {
      BOOST_TEST(parx_test::mentions(each, "in a circle: rank "), each);
    }
    BOOST_TEST((parx_test::mentions(failures[0], "it waits in recv of 3 int32") ||
                parx_test::mentions(failures[0], "which waits in all_reduce") ||
                parx_test::mentions(failures[0], "which waits in #1, all_reduce")),
               failures[0]);
  }
}

BOOST_AUTO_TEST_CASE(calls_are_counted_as_the_program_counts_them_whatever_joins_the_ranks) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 2, [](parx::process_group& group) {
      std::vector<float> x(10);
      parx::all_reduce(group, x);  // where memory is shared, something goes ahead of it
      parx::all_reduce(group, x);
      if (group.rank() == 0) parx::barrier(group, {.timeout = 500ms});
      else std::this_thread::sleep_for(1s);
    });
    BOOST_TEST(parx_test::mentions(failures[0], "barrier #3 on group"), failures[0]);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_has_gone_on_is_not_said_to_wait_any_more) {
  for (const auto kind : kinds) {
    const auto failures = jobs::run_collecting(kind, 3, [](parx::process_group& group) {
      if (group.rank() == 0) return receive(group, 1);
      if (group.rank() == 2) {
        std::this_thread::sleep_for(700ms);  // rank 1 is stuck for a while
        deliver(group, 1);
      } else {
        receive(group, 2);
      }
      std::this_thread::sleep_for(1500ms);
    });
    BOOST_TEST(parx_test::mentions(failures[0], "timed out waiting for rank 1"), failures[0]);
    BOOST_TEST(parx_test::mentions(failures[0], "which waits in no call ("),
               failures[0]);
  }
}

BOOST_AUTO_TEST_CASE(reports_that_two_groups_post_at_a_time_are_both_published) {
  std::thread second;
  std::atomic<parx::job*> told{nullptr};
  const auto store = std::make_shared<store_of_one_key>([&](const std::string& value) {
    if (value != "first ") return;
    second = std::thread([&] { told.load()->post_wait_report(2, "second "); });
    std::this_thread::sleep_for(50ms);  // it is published slowly
  });
  parx::job own({.store = store});
  told = &own;
  own.post_wait_report(1, "first ");
  second.join();
  BOOST_TEST(own.wait_reports_of(0) == "first second ");
}
