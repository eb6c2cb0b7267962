// parx_backend: parx itself, through its public interface.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <bench/backend.hpp>
#include <bench/oracle.hpp>
#include <parx/comm.hpp>
#include <parx/core/version.hpp>

namespace bench {

/// Throws parx::usage_error for a name that is no algorithm's.
[[nodiscard]] inline parx::algorithm parse_algorithm(const std::string& text) {
  const auto& names = parx::algorithm_names;
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<parx::algorithm>(found - names.begin());
  parx::throw_usage("--algo {}: parx has no such algorithm; see --help", text);
}

class parx_backend final : public backend {
 public:
  /// Borrows `world`.
  parx_backend(parx::process_group& world, parx::algorithm use)
      : world_(world), use_(use), pairs_(everybody(world)) {}

  [[nodiscard]] std::string name() const override { return "parx " PARX_VERSION; }
  [[nodiscard]] std::string network() const override { return size() > 1 ? "tcp" : "alone"; }
  [[nodiscard]] int rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  [[nodiscard]] bool has(operation op, placement where) const override {
    return is_meaningful(op, where);
  }
  void require_support(parx::dtype, parx::reduce_op) const override {}

  void run(const call& given) override {
    const parx::reduce_options reduction{
        .op = given.reduction, .factor = premul_factor, .use = use_};
    switch (given.op) {
      case operation::all_reduce:
        parx::all_reduce(world_, given.input, given.output, reduction);
        return;
      case operation::reduce_scatter:
        parx::reduce_scatter(world_, given.input, given.output, reduction);
        return;
      case operation::all_gather:
        parx::all_gather(world_, given.input, given.output, {.use = use_});
        return;
      case operation::broadcast:
        parx::broadcast(world_, given.output, {.root = given.root, .use = use_});
        return;
      case operation::reduce:
        parx::reduce(
            world_, given.input, given.output,
            {.root = given.root, .op = given.reduction, .factor = premul_factor, .use = use_});
        return;
      case operation::send_recv: {
        auto incoming = parx::async_recv(pairs_, given.output, (rank() + size() - 1) % size());
        parx::send(pairs_, given.input, (rank() + 1) % size());
        incoming.wait();
        return;
      }
      case operation::barrier: parx::barrier(world_); return;
    }
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

  parx::process_group& world_;
  parx::algorithm use_;
  /// Asynchronous calls start a group's progress thread, which must not weigh on the collectives.
  parx::process_group pairs_;
};

}  // namespace bench
