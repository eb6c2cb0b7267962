// Storages of a unit's values: whatever is gathered or shared, a rank reads between wait() and
// release() what all ranks have written before, and nobody's later values.
#include <parx/fsdp/unit_values.hpp>

#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "../comm/jobs.hpp"
#include <parx/fsdp/gathered_values.hpp>
#include <parx/fsdp/host_values.hpp>
#include <parx/fsdp/unit_prefetcher.hpp>

using namespace parx;

namespace {

enum class storage_kind { kept, pooled, host };

std::string name_of(storage_kind kind) {
  return kind == storage_kind::kept ? "kept" : kind == storage_kind::pooled ? "pooled" : "host";
}

/// A root and two units, of which one is odd in size and one has two element types.
unit_plan plan_for(int ranks) {
  return {{{.name = "head", .other_paths = {}, .extents = {5}},
           {.name = "a.weight", .other_paths = {}, .extents = {37, 3}},
           {.name = "a.bias", .other_paths = {}, .extents = {37}},
           {.name = "b.weight", .other_paths = {}, .extents = {64}},
           {.name = "b.scale", .other_paths = {}, .type = dtype::float64, .extents = {3}}},
          {"a", "b"},
          static_cast<std::size_t>(ranks)};
}

std::unique_ptr<unit_values> make(storage_kind kind, const unit_plan& plan, process_group& group) {
  const call_site site = call_site::current();
  if (kind == storage_kind::host) return std::make_unique<detail::host_values>(plan, group, site);
  const bool kept = kind == storage_kind::kept;
  return std::make_unique<detail::gathered_values>(
      plan, group, std::vector<bool>(plan.units().size(), kept), 2, std::nullopt, site);
}

/// Byte `i` of a flat after `step` steps.
std::byte value_at(std::size_t flat, std::size_t i, int step) {
  return static_cast<std::byte>(i * 7 + flat * 31 + static_cast<std::size_t>(step) * 101);
}

/// Ranks are late by up to 2 ms, so that a missing barrier shows.
void dawdle(std::mt19937& random) {
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 4 == 0 ? random() % 2000 : 0));
}

void steps_of(process_group& group, storage_kind kind) {
  const unit_plan plan = plan_for(group.size());
  const auto values = make(kind, plan, group);
  const auto rank = static_cast<std::size_t>(group.rank());
  std::mt19937 random(static_cast<unsigned>(rank));
  const auto write = [&](int step) {
    for (std::size_t flat = 0; flat < plan.flats().size(); ++flat) {
      const std::size_t bytes = plan.flats()[flat].part_bytes();
      for (std::size_t i = 0; i < bytes; ++i) {
        values->part(flat)[i] = value_at(flat, rank * bytes + i, step);
      }
    }
  };
  const auto read = [&](std::size_t unit, int step) {
    values->wait(unit);
    dawdle(random);
    for (const std::size_t flat : plan.units()[unit].flats) {
      for (std::size_t i = 0; i < plan.flats()[flat].whole_bytes(); ++i) {
        if (values->whole(flat)[i] != value_at(flat, i, step)) {
          throw std::runtime_error("a rank reads what is not there at that step");
        }
      }
    }
    values->release(unit);
  };
  write(0);
  for (int step = 0; step < 12; ++step) {
    if (step % 3 == 1) values->start(1);  // ahead
    for (const std::size_t unit : {0U, 1U, 2U, 1U, 0U}) read(unit, step);
    values->about_to_write();
    values->about_to_write();  // an optimizer tells of each parameter
    dawdle(random);
    write(step + 1);
  }
}

/// Writes down what it is called for. It has room for so many units besides the root.
class recorded_values final : public unit_values {
 public:
  explicit recorded_values(std::size_t room) : room_(room) {}

  [[nodiscard]] std::byte* whole(std::size_t /*flat*/) const override { return nullptr; }
  [[nodiscard]] std::byte* part(std::size_t /*flat*/) const override { return nullptr; }
  [[nodiscard]] bool has_room(std::size_t unit) const override {
    return unit == 0 || started_.count(unit) > 0 || started_.size() < room_;
  }
  bool start(std::size_t unit) override {
    if (unit == 0 || !started_.insert(unit).second) return false;
    calls_ += " start " + std::to_string(unit);
    return true;
  }
  void wait(std::size_t unit) override {
    if (unit != 0) calls_ += " wait " + std::to_string(unit);
  }
  void release(std::size_t unit) noexcept override {
    if (started_.erase(unit) > 0) calls_ += " release " + std::to_string(unit);
  }
  void about_to_write() override {}

  /// The calls since the last take().
  [[nodiscard]] std::string take() { return std::exchange(calls_, {}); }

 private:
  const std::size_t room_;
  std::set<std::size_t> started_;
  std::string calls_;
};

/// A root and three units.
unit_plan three_units() {
  return {{{.name = "a.weight", .other_paths = {}, .extents = {4}},
           {.name = "b.weight", .other_paths = {}, .extents = {4}},
           {.name = "c.weight", .other_paths = {}, .extents = {4}}},
          {"a", "b", "c"},
          2};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_next_units_gather_starts_before_the_wait_for_the_one_that_is_needed) {
  const unit_plan plan = three_units();
  recorded_values values(2);
  detail::unit_prefetcher uses(plan, values, 1);
  const auto forward = [&] {
    uses.enter_forward(0);
    for (const std::size_t unit : {1U, 2U, 3U}) {
      uses.enter_forward(unit);
      uses.leave_forward(unit, false);
    }
    uses.leave_forward(0, true);
    return values.take();
  };
  // The first pass does not know what comes next.
  BOOST_TEST(forward() == " start 1 wait 1 release 1 start 2 wait 2 release 2"
                          " start 3 wait 3 release 3");
  BOOST_TEST(forward() == " start 1 start 2 wait 1 release 1 start 3 wait 2 release 2"
                          " wait 3 release 3");
  const auto backward = [&] {
    for (const std::size_t unit : {3U, 2U, 1U}) {
      const std::size_t next = unit - 1;
      uses.enter_backward({&unit, 1});
      uses.leave_backward({&unit, 1}, {&next, 1});
    }
    const std::size_t root = 0;
    uses.leave_backward({&root, 1}, {});
    return values.take();
  };
  BOOST_TEST(backward() == " start 3 wait 3 release 3 start 2 wait 2 release 2"
                           " start 1 wait 1 release 1");
  BOOST_TEST(backward() == " start 3 start 2 wait 3 release 3 start 1 wait 2 release 2"
                           " wait 1 release 1");
}

BOOST_AUTO_TEST_CASE(units_that_are_needed_at_once_are_never_released_for_each_other) {
  const unit_plan plan = three_units();
  recorded_values values(1);
  detail::unit_prefetcher uses(plan, values, 1);
  const std::vector<std::size_t> two{1, 3}, other{2, 3};
  uses.enter_backward(two);
  BOOST_TEST(values.take() == " start 1 start 3 wait 1 wait 3");
  uses.leave_backward(two, other);
  BOOST_TEST(values.take() == " release 1");
  uses.enter_backward(other);
  BOOST_TEST(values.take() == " start 2 wait 2 wait 3");
  // A unit that a module of it uses meanwhile stays.
  uses.enter_forward(3);
  uses.leave_backward(other, {});
  BOOST_TEST(values.take() == " wait 3 release 2");
  uses.leave_forward(3, false);
  BOOST_TEST(values.take() == " release 3");
}

BOOST_AUTO_TEST_CASE(every_rank_reads_what_all_have_written_and_nothing_later) {
  for (const storage_kind kind : {storage_kind::kept, storage_kind::pooled, storage_kind::host}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const jobs::kind network : {jobs::kind::inproc, jobs::kind::tcp}) {
        if (kind == storage_kind::host && network == jobs::kind::tcp && world > 1) continue;
        const auto failures = jobs::run_collecting(
            network, world, [&](process_group& group) { steps_of(group, kind); });
        for (const auto& each : failures) {
          BOOST_TEST(each == "", name_of(kind) << ", " << world << " ranks");
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(on_one_host_all_parts_are_in_the_same_memory) {
  const auto failures = jobs::run_collecting(jobs::kind::inproc, 3, [](process_group& group) {
    const unit_plan plan = plan_for(3);
    const auto values = make(storage_kind::host, plan, group);
    for (std::size_t flat = 0; flat < plan.flats().size(); ++flat) {
      const std::size_t own =
          plan.flats()[flat].part_bytes() * static_cast<std::size_t>(group.rank());
      if (values->part(flat) != values->whole(flat) + own) throw std::runtime_error("elsewhere");
    }
    const std::size_t before = group.bytes_sent();
    for (const std::size_t unit : {0U, 1U, 2U}) values->wait(unit);
    const std::size_t sent = group.bytes_sent() - before;  // a barrier's headers
    if (sent > 150) throw std::runtime_error(std::to_string(sent) + " bytes were sent");
  });
  for (const auto& each : failures) BOOST_TEST(each == "");
}
