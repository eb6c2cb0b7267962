// The observer of backward over an implementation of gradient_sums that only writes down its calls.
#include <parx/reduction/gradient_reducer.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ddp/ranks.hpp>

using namespace parx;

namespace {

struct named {
  [[nodiscard]] std::string name() const { return "a parameter"; }
  [[nodiscard]] bool is_frozen() const { return false; }
};

/// Two parameters in a bucket each.
class written_down final : public gradient_sums {
 public:
  explicit written_down(process_group& group)
      : gradient_sums({{group, {}, "here"}, {0, 0}, reduction_order::any, call_site::current()}) {
    for (int i = 0; i < 2; ++i) parameters_.push_back(std::make_unique<named>());
  }
  std::size_t bucket_count() const noexcept override { return 2; }
  std::size_t bucket_bytes(std::size_t) const noexcept override { return 0; }
  std::size_t held() const override { return has_gradient ? 0 : reduction_state::nothing; }
  void start(const reduction_state& state, const reduction_pass& pass) override {
    calls += fmt::format("start{}{} ", pass.is_last ? " last" : "", pass.adds ? " adds" : "");
    if (fails) throw std::runtime_error("no memory");
    if (pass.is_last) headers().send(state, parameters_);
    is_last_ = pass.is_last;
  }
  void launch(std::size_t first, std::size_t last) override {
    for (; first < last; ++first) calls += fmt::format("{} ", first);
  }
  void finish() override {
    if (is_last_) headers().receive(parameters_);
    calls += "finish ";
  }
  void abandon() noexcept override { calls += "abandon "; }

  std::string calls;
  bool has_gradient = false, fails = false;

 private:
  std::vector<std::unique_ptr<named>> parameters_;
  bool is_last_ = false;
};

struct wrapper {
  explicit wrapper(process_group& group, pass_kind without_sync = pass_kind::local,
                   reduction_finish finish = reduction_finish::with_backward)
      : sums(group), reducer({group, {}, "here"}, sums, {"here", {{"a", 1}, {"b", 0}}, 2},
                             without_sync, finish) {}

  void backward(gradient_of of = gradient_of::sum) {
    constexpr std::array<std::size_t, 2> both{0, 1};
    reducer.begin_backward({.count = 3, .reached = both, .of = of});
    reducer.leaf_ready(0);  // its bucket is the second one
    reducer.leaf_ready(1);
    reducer.end_backward();
    sums.has_gradient = true;
  }

  written_down sums;
  gradient_reducer reducer;
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_pass_starts_launches_in_order_and_finishes) {
  for (const std::string& calls : on_ranks(2, [](process_group& group) {
         wrapper all(group);
         all.backward();
         return all.sums.calls;
       })) {
    BOOST_TEST(calls == "start last 0 1 finish ");
  }
}

BOOST_AUTO_TEST_CASE(sums_that_the_program_asks_for_finish_then_and_once) {
  for (const std::string& calls : on_ranks(2, [](process_group& group) {
         wrapper all(group, pass_kind::local, reduction_finish::when_asked);
         all.backward();
         all.sums.calls += "| ";
         all.reducer.finish();
         all.reducer.finish();
         return all.sums.calls;
       })) {
    BOOST_TEST(calls == "start last 0 1 | finish ");
  }
}

BOOST_AUTO_TEST_CASE(passes_without_sums_call_nothing_and_those_in_parts_finish_at_once) {
  for (const auto kind : {pass_kind::local, pass_kind::parts}) {
    for (const std::string& calls : on_ranks(2, [&](process_group& group) {
           wrapper all(group, kind, reduction_finish::when_asked);
           {
             const no_sync_scope adding(all.reducer.synchronising());
             all.backward();
             all.sums.calls += "| ";
           }
           all.reducer.add_pass(1);
           all.reducer.finish();
           return all.sums.calls + fmt::format("{} {}", all.reducer.state().passes(),
                                               all.sums.headers().own().count());
         })) {
      const bool in_parts = kind == pass_kind::parts;
      BOOST_TEST(calls == (in_parts ? "start 0 1 finish | start last adds 0 1 finish 2 8"
                                    : "| start last adds 0 1 finish 2 8"));
    }
  }
}

BOOST_AUTO_TEST_CASE(one_rank_adds_up_sums_and_divides_them_once_as_several_do) {
  for (const int ranks : {1, 2}) {
    for (const int is_so : on_ranks(ranks, [](process_group& group) -> int {
           wrapper all(group);
           const gradient_of wanted = all.reducer.wanted();
           all.backward(wanted);
           return wanted == gradient_of::sum && all.sums.calls == "start last 0 1 finish ";
         })) {
      BOOST_TEST(is_so == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_flag_is_sent_with_the_next_sums_and_is_gone_after_them) {
  for (const std::string& seen : on_ranks(2, [](process_group& group) {
         wrapper all(group);
         std::string flags;
         for (int step = 0; step < 3; ++step) {
           if (step == 1 && group.rank() == 1) all.reducer.raise_flag();
           all.sums.has_gradient = false;
           all.backward();
           flags += all.reducer.flag_raised() ? '1' : '0';
         }
         return flags;
       })) {
    BOOST_TEST(seen == "010");
  }
}

BOOST_AUTO_TEST_CASE(a_pass_that_fails_closes_the_group_only_while_other_ranks_wait) {
  for (const auto kind : {pass_kind::local, pass_kind::parts}) {
    for (const std::string& seen : on_ranks(2, [&](process_group& group) {
           wrapper all(group, kind);
           const no_sync_scope adding(all.reducer.synchronising());
           all.reducer.begin_backward({});
           all.reducer.abandon_backward();
           return all.sums.calls + (group.closed() ? "closed" : "open");
         })) {
      BOOST_TEST(seen == (kind == pass_kind::local ? "abandon open" : "start 0 1 abandon closed"));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_pass_that_cannot_start_its_sums_is_abandoned) {
  for (const std::string& seen : on_ranks(2, [](process_group& group) {
         wrapper all(group);
         all.sums.fails = true;
         try {
           all.reducer.begin_backward({});
         } catch (const std::runtime_error& error) {
           all.sums.calls += error.what();
         }
         return all.sums.calls + (group.closed() ? ", closed" : ", open");
       })) {
    BOOST_TEST(seen == "start last abandon no memory, closed");
  }
}
