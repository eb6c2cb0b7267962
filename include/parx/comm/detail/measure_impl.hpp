// Definitions of measure.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm/measure.hpp>
#include <parx/comm/schedule/tree.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

class cost_meter {
 public:
  /// Collective. `peer` is equal on all ranks and not 0.
  cost_meter(group_core& core, int peer, call_site site) : core_(core), peer_(peer), site_(site) {}

  [[nodiscard]] link_costs run() {
    if (core_.rank() == 0) lead();
    if (core_.rank() == peer_) follow();
    agree();
    return costs_;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t most_bytes = std::size_t{4} << 20;
  static constexpr double enough_seconds = 0.05;  ///< for the latency; as much for the bandwidth

  [[nodiscard]] static double seconds_since(clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
  }

  void pass(operation what, int peer, void* data, std::size_t bytes) {
    call request;
    request.what = what;
    request.site = site_;
    request.peer = peer;
    request.memory = static_cast<std::byte*>(data);
    request.bytes = bytes;
    request.header.type = static_cast<std::uint8_t>(dtype::uint8);
    request.header.count = bytes;
    request.header.root = tag;
    core_.progress().run(request);
  }

  /// Seconds to send `bytes` bytes and receive the peer's acknowledgement.
  [[nodiscard]] double round_trip(std::uint64_t bytes) {
    const auto start = clock::now();
    pass(operation::send, peer_, &bytes, sizeof bytes);
    pass(operation::send, peer_, payload_.data(), bytes);
    pass(operation::recv, peer_, &bytes, sizeof bytes);
    return seconds_since(start);
  }

  [[gnu::cold]] void lead() {
    payload_.resize(most_bytes);
    static_cast<void>(round_trip(1));  // opens the link
    const auto start = clock::now();
    double least = round_trip(1);
    for (int i = 0; i < 50 && seconds_since(start) < enough_seconds; ++i) {
      least = std::min(least, round_trip(1));
    }
    costs_.alpha = least / 2;
    costs_.per_peer = std::min(costs_.per_peer, costs_.alpha / 4);
    double took = 0;
    std::size_t size = std::size_t{64} << 10;
    for (;; size *= 4) {
      took = round_trip(size);
      if (took > enough_seconds / 4 || size == most_bytes) break;
    }
    costs_.beta = std::max(1e-12, (took - least) / static_cast<double>(size));
    costs_.gamma = time_of_reduction();
    std::uint64_t end = 0;
    pass(operation::send, peer_, &end, sizeof end);
  }

  void follow() {
    payload_.resize(most_bytes);
    for (;;) {
      std::uint64_t bytes = 0;
      pass(operation::recv, 0, &bytes, sizeof bytes);
      if (bytes == 0) return;
      pass(operation::recv, 0, payload_.data(), bytes);
      pass(operation::send, 0, &bytes, sizeof bytes);
    }
  }

  [[nodiscard]] double time_of_reduction() {
    const std::size_t bytes = std::size_t{1} << 20;
    const auto add = reduce_kernel_for<float>(reduce_op::sum);
    std::fill(payload_.begin(), payload_.end(), std::byte{0});
    double least = 1;
    for (int i = 0; i < 4; ++i) {
      const auto start = clock::now();
      add(payload_.data(), payload_.data(), payload_.data() + bytes, bytes / sizeof(float));
      least = std::min(least, seconds_since(start));
    }
    return least / static_cast<double>(bytes);
  }

  [[gnu::cold]] void agree() {
    call request;
    request.what = operation::broadcast;
    request.site = site_;
    const execution_plan plan =
        make_plan(algorithms::tree_broadcast(core_.rank(), core_.size(), sizeof costs_, 0));
    request.plan = &plan;
    request.data.input = reinterpret_cast<const std::byte*>(&costs_);
    request.data.output = reinterpret_cast<std::byte*>(&costs_);
    request.header.type = static_cast<std::uint8_t>(dtype::uint8);
    request.header.count = sizeof costs_;
    request.header.root = 0;
    request.header.algorithm = static_cast<std::uint8_t>(algorithm::tree);
    name_call(request);
    core_.progress().run(request);
  }

  static constexpr std::int32_t tag = -1;  // users' tags are not negative

  group_core& core_;
  int peer_;
  call_site site_;
  link_costs costs_;
  std::vector<std::byte> payload_;
};

}  // namespace detail

[[gnu::cold]] PARX_INLINE void ready_choice(const process_group& group, call_site site) {
  detail::group_core& core = *detail::core_of(group);
  detail::algorithm_choice& choice = core.issuer().choice();
  if (choice.ready()) return;
  choice.find_hosts(core.network());
  if (const int peer = choice.first_on_another_host(); peer > 0 && !choice.ready()) {
    choice.set_costs(detail::cost_meter(core, peer, site).run());
  }
}

}  // namespace parx
