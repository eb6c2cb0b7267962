#include <parx/reduction/reduction_state.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/error.hpp>

namespace {

using parx::pass_kind;
using parx::reduction_actions;
using parx::reduction_phase;
using parx::reduction_state;

constexpr std::size_t nothing = reduction_state::nothing;

/// Five parameters: the last two make bucket 0, the next two bucket 1, the first one bucket 2.
reduction_state machine() {
  return {"ddp at here:1", {{"a", 2}, {"b", 1}, {"c", 1}, {"d", 0}, {"e", 0}}, 3};
}

struct event {
  std::function<reduction_actions(reduction_state&)> happens;
  reduction_actions expected = {};
  reduction_phase then;
  const char* refused = "";  ///< words of the error
};
using std::size_t;

event begin(pass_kind kind, std::vector<size_t> reached, size_t held, reduction_actions expected,
            reduction_phase then) {
  return {[=](reduction_state& s) { return s.begin(kind, 2, reached, held); }, expected, then};
}
event ready(size_t i, reduction_actions expected, reduction_phase then) {
  return {[=](reduction_state& s) { return s.ready(i); }, expected, then};
}
event end(reduction_actions expected, reduction_phase then) {
  return {[](reduction_state& s) {
            const reduction_actions next = s.end();
            s.reduced();
            return next;
          },
          expected, then};
}
event abandon(reduction_actions expected) {
  return {[](reduction_state& s) { return s.abandon(); }, expected, reduction_phase::reduced};
}
event step(reduction_phase then) {
  return {[](reduction_state& s) {
            s.before_step();
            return reduction_actions{};
          },
          {}, then};
}
event but(event wrong, const char* words) {
  wrong.refused = words;
  return wrong;
}

constexpr reduction_actions none{};
constexpr reduction_actions launch(size_t first, size_t last) {
  return {.first = first, .last = last};
}
constexpr reduction_actions start(size_t last) { return {.start_sums = true, .last = last}; }
constexpr reduction_actions finish{.finish_sums = true, .end_step = true};

const std::vector<size_t> all{0, 1, 2, 3, 4};

struct sequence {
  const char* name;
  std::vector<event> events;
};

std::vector<sequence> table() {
  using enum reduction_phase;
  const auto sums = pass_kind::sums, local = pass_kind::local;
  return {
      {"buckets leave by index when gradients come in order",
       {begin(sums, all, nothing, start(0), summing), ready(4, launch(0, 0), summing),
        ready(3, launch(0, 1), summing), ready(2, launch(1, 1), summing),
        ready(1, launch(1, 2), summing), ready(0, launch(2, 3), summing), end(finish, reduced)}},
      {"and when the last bucket is full first",
       {begin(sums, all, nothing, start(0), summing), ready(0, launch(0, 0), summing),
        ready(1, launch(0, 0), summing), ready(2, launch(0, 0), summing),
        ready(3, launch(0, 0), summing), ready(4, launch(0, 3), summing), end(finish, reduced)}},
      {"what a pass does not reach is not waited for",
       {begin(sums, {1}, nothing, start(1), summing), ready(1, launch(1, 3), summing),
        end(finish, reduced)}},
      {"a pass that reaches nothing launches all",
       {begin(sums, {}, nothing, start(3), summing), end(finish, reduced)}},
      {"micro-batches are added up before the sums",
       {begin(local, all, nothing, none, adding), ready(3, none, adding), end(none, added),
        begin(local, {0}, 4, none, adding), end(none, added),
        begin(sums, {3, 4}, 0, start(0), summing), ready(3, launch(0, 0), summing),
        ready(4, launch(0, 3), summing), end(finish, reduced)}},
      {"a step of gradients that have not left the rank is refused",
       {step(empty), begin(local, all, nothing, none, adding),
        but(step(adding), "under no_sync()"), end(none, added),
        but(step(added), "under no_sync()")}},
      {"a step in the middle of a pass is refused",
       {begin(sums, all, nothing, start(0), summing),
        but(step(summing), "while a backward pass runs")}},
      {"a mean is not added to, but may be cleared",
       {begin(sums, {}, nothing, start(3), summing), end(finish, reduced),
        but(begin(sums, all, 2, none, reduced), "the gradient of \"c\" from the last step"),
        but(begin(local, all, 2, none, reduced), "zero_grad()"),
        begin(local, all, nothing, none, adding)}},
      {"a failed pass whose sums are under way ends all ranks, others do not",
       {begin(sums, all, nothing, start(0), summing), abandon({.abort = true}),
        but(begin(sums, all, 0, none, reduced), "a backward pass that failed"),
        begin(local, all, nothing, none, adding), abandon(none), abandon(none)}},
      {"events in a wrong order are refused and change nothing",
       {but(ready(2, none, empty), "\"c\" is ready outside"),
        but(end(none, empty), "has not begun"), begin(sums, {1, 3}, nothing, start(0), summing),
        but(begin(sums, all, nothing, none, summing), "while another one runs"),
        but(ready(0, none, summing), "\"a\" is ready twice"), ready(3, launch(0, 1), summing),
        but(ready(3, none, summing), "\"d\" is ready twice"),
        but(end(none, summing), "before the gradient of \"b\" was ready"),
        ready(1, launch(1, 3), summing), end(finish, reduced),
        but(end(none, reduced), "has not begun")}},
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_event_has_its_actions_and_its_next_phase) {
  for (const sequence& each : table()) {
    reduction_state state = machine();
    for (size_t i = 0; i < each.events.size(); ++i) {
      const event& now = each.events[i];
      BOOST_TEST_CONTEXT(each.name << ", event " << i) {
        std::string refused;
        reduction_actions found;
        try {
          found = now.happens(state);
        } catch (const parx::usage_error& error) {
          refused = error.what();
        }
        BOOST_TEST(refused.empty() == std::string_view(now.refused).empty(), refused);
        BOOST_TEST(refused.find(now.refused) != std::string::npos, refused);
        if (!refused.empty()) BOOST_TEST(refused.starts_with("ddp at here:1: "), refused);
        BOOST_TEST((found == now.expected), "buckets " << found.first << " to " << found.last);
        BOOST_TEST((state.phase() == now.then));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(samples_and_uses_count_since_the_last_reduced_step) {
  reduction_state state = machine();
  const std::vector<size_t> first{1}, second{4};
  const auto uses = [&] {
    std::string names;
    for (size_t i = 0; i < 5; ++i) names += state.is_used(i) ? "abcde"[i] : '.';
    return names;
  };
  (void)state.begin(pass_kind::local, 3, first, nothing);
  state.reduced();
  (void)state.begin(pass_kind::sums, 4, second, 1);
  BOOST_TEST(state.count() == 7);
  BOOST_TEST(uses() == ".b..e");
  BOOST_TEST(state.is_awaited(4));
  BOOST_TEST(!state.is_awaited(1));
  (void)state.ready(4);
  (void)state.end();
  state.reduced();
  BOOST_TEST(uses() == ".....");
  // zero_grad() between two passes discards what the first one counted.
  (void)state.begin(pass_kind::local, 3, first, nothing);
  state.reduced();
  (void)state.begin(pass_kind::sums, 4, second, nothing);
  BOOST_TEST(state.count() == 4);
  BOOST_TEST(uses() == "....e");
  state.reduced();
  // A pass that reached nothing had nothing to discard: its samples count.
  (void)state.begin(pass_kind::local, 3, {}, nothing);
  state.reduced();
  (void)state.begin(pass_kind::sums, 4, second, nothing);
  BOOST_TEST(state.count() == 7);
  BOOST_TEST(state.passes() == 6U);
}
