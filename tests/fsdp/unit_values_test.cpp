// Storages of a unit's values: whatever is gathered or shared, a rank reads between wait() and
// release() what all ranks have written before, and nobody's later values.
#include <parx/fsdp/unit_values.hpp>

#include <chrono>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "../comm/jobs.hpp"
#include <parx/fsdp/gathered_values.hpp>
#include <parx/fsdp/host_values.hpp>

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
    values->written();
    values->written();  // an optimizer tells of each parameter
    dawdle(random);
    write(step + 1);
  }
}

}  // namespace

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
