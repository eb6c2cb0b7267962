// parx_backend: parx itself, through its public interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <bench/backend.hpp>
#include <bench/oracle.hpp>
#include <fmt/ranges.h>

#include <parx/comm.hpp>
#include <parx/comm/schedule/catalog.hpp>
#include <parx/core/env.hpp>
#include <parx/core/version.hpp>

namespace bench {

/// The memory of the measured buffers.
enum class buffers : std::uint8_t {
  ordinary,
  shared,  ///< in parx::allocate_shared
};

class parx_backend final : public backend, public nonblocking {
 public:
  /// Borrows `world`. Throws parx::usage_error for shared buffers if the ranks do not share memory.
  parx_backend(parx::process_group& world, buffers where)
      : world_(world), where_(where), messages_(everybody(world)) {
    parx::require(where == buffers::ordinary || world.shares_memory(),
                  "--shared: these ranks do not see each other's memory; they must be on one host, "
                  "without PARX_TRANSPORT=tcp");
  }

  [[nodiscard]] std::string name() const override { return "parx " PARX_VERSION; }
  [[nodiscard]] std::string network() const override {
    if (size() == 1) return "alone";
    if (where_ == buffers::shared) return "shm";
    return parx::env_string(parx::process_environment(), "PARX_TRANSPORT").value_or("auto");
  }
  [[nodiscard]] int rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  [[nodiscard]] bool has(operation op, placement where) const override {
    return is_meaningful(op, where) && (use_ == parx::algorithm::automatic || offers(op, use_));
  }
  void require_support(parx::dtype, parx::reduce_op) const override {}
  void use(const std::string& algorithm) override {
    for (std::size_t i = 0; i < parx::algorithm_names.size(); ++i) {
      if (algorithm != parx::algorithm_names[i]) continue;
      use_ = static_cast<parx::algorithm>(i);
      return;
    }
    parx::throw_usage("--algo {}: parx's algorithms are {}", algorithm,
                      fmt::join(parx::algorithm_names, ", "));
  }
  [[nodiscard]] memory allocate(std::size_t bytes) override {
    if (where_ == buffers::ordinary) return ordinary_memory(bytes);
    auto area = std::make_shared<parx::shared_buffer<std::byte>>(
        parx::allocate_shared<std::byte>(world_, std::max<std::size_t>(bytes, 1)));
    std::memset(area->data(), 0, area->size());
    std::byte* data = area->data();
    return {std::move(area), data};
  }

  void run(const call& given) override {
    switch (given.op) {
      case operation::all_reduce:
        parx::all_reduce(world_, given.input, given.output, reduction_of(given));
        return;
      case operation::reduce_scatter:
        parx::reduce_scatter(world_, given.input, given.output, reduction_of(given));
        return;
      case operation::all_gather:
        parx::all_gather(world_, given.input, given.output, {.use = use_});
        return;
      case operation::broadcast:
        parx::broadcast(world_, given.output, {.root = given.root, .use = use_});
        return;
      case operation::reduce:
        parx::reduce(world_, given.input, given.output, rooted_reduction_of(given));
        return;
      case operation::gather:
        parx::gather(world_, given.input, given.output, {.root = given.root, .use = use_});
        return;
      case operation::scatter:
        parx::scatter(world_, given.input, given.output, {.root = given.root, .use = use_});
        return;
      case operation::all_to_all:
        parx::all_to_all(world_, given.input, given.output, {.use = use_});
        return;
      case operation::scan: parx::scan(world_, given.input, given.output, scan_of(given)); return;
      case operation::exscan:
        parx::exscan(world_, given.input, given.output, scan_of(given));
        return;
      case operation::send_recv: {
        auto incoming = parx::async_recv(messages_, given.output, previous());
        parx::send(messages_, given.input, next());
        incoming.wait();
        return;
      }
      case operation::barrier: parx::barrier(world_); return;
    }
  }

  [[nodiscard]] nonblocking* without_blocking() override { return this; }
  void start(const call& given) override {
    pending_.clear();
    switch (given.op) {
      case operation::all_reduce:
        pending_.push_back(
            parx::async_all_reduce(world_, given.input, given.output, reduction_of(given)));
        return;
      case operation::reduce_scatter:
        pending_.push_back(
            parx::async_reduce_scatter(world_, given.input, given.output, reduction_of(given)));
        return;
      case operation::all_gather:
        pending_.push_back(
            parx::async_all_gather(world_, given.input, given.output, {.use = use_}));
        return;
      case operation::broadcast:
        pending_.push_back(
            parx::async_broadcast(world_, given.output, {.root = given.root, .use = use_}));
        return;
      case operation::reduce:
        pending_.push_back(
            parx::async_reduce(world_, given.input, given.output, rooted_reduction_of(given)));
        return;
      case operation::gather:
        pending_.push_back(parx::async_gather(world_, given.input, given.output,
                                              {.root = given.root, .use = use_}));
        return;
      case operation::scatter:
        pending_.push_back(parx::async_scatter(world_, given.input, given.output,
                                               {.root = given.root, .use = use_}));
        return;
      case operation::all_to_all:
        pending_.push_back(
            parx::async_all_to_all(world_, given.input, given.output, {.use = use_}));
        return;
      case operation::scan:
        pending_.push_back(parx::async_scan(world_, given.input, given.output, scan_of(given)));
        return;
      case operation::exscan:
        pending_.push_back(parx::async_exscan(world_, given.input, given.output, scan_of(given)));
        return;
      case operation::send_recv:
        pending_.push_back(parx::async_recv(messages_, given.output, previous()));
        pending_.push_back(parx::async_send(messages_, given.input, next()));
        return;
      case operation::barrier: pending_.push_back(parx::async_barrier(world_)); return;
    }
  }
  void finish() override {
    for (parx::work& each : pending_) each.wait();
  }

  void send_burst(parx::const_buffer_view message, int to, int count) override {
    parx::batch burst(messages_);
    for (int i = 0; i < count; ++i) burst.send(message, to);
    burst.run();
  }
  void receive_burst(parx::buffer_view message, int from, int count) override {
    parx::batch burst(messages_);
    for (int i = 0; i < count; ++i) burst.recv(message, from);
    burst.run();
  }

  void max_over_ranks(std::span<double> values) override {
    parx::all_reduce(world_, values, {.op = parx::reduce_op::max});
  }
  void sum_over_ranks(std::span<double> values) override { parx::all_reduce(world_, values); }
  void gather(std::span<const char> mine, std::span<char> all) override {
    parx::all_gather(world_, mine, all);
  }

 private:
  [[nodiscard]] static parx::process_group everybody(const parx::process_group& world) {
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return world.subgroup(ranks);
  }
  /// Whether the catalog has the algorithm for the operation; names of operations are the same.
  [[nodiscard]] static bool offers(operation op, parx::algorithm use) {
    for (const auto& each : parx::catalog()) {
      if (parx::name_of(each.what) == name_of(op) && each.name == use) return true;
    }
    return false;
  }

  [[nodiscard]] int next() const { return (rank() + 1) % size(); }
  [[nodiscard]] int previous() const { return (rank() + size() - 1) % size(); }
  [[nodiscard]] parx::reduce_options reduction_of(const call& given) const {
    return {.op = given.reduction, .factor = premul_factor, .use = use_};
  }
  [[nodiscard]] parx::scan_options scan_of(const call& given) const {
    return {.op = given.reduction, .use = use_};
  }
  [[nodiscard]] parx::rooted_reduce_options rooted_reduction_of(const call& given) const {
    return {.root = given.root, .op = given.reduction, .factor = premul_factor, .use = use_};
  }

  parx::process_group& world_;
  buffers where_;
  parx::algorithm use_ = parx::algorithm::automatic;
  /// A group for messages: asynchronous calls start a group's progress thread, which must not slow
  /// down the collectives.
  parx::process_group messages_;
  std::vector<parx::work> pending_;
};

}  // namespace bench
