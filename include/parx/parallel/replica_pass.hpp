// replica_pass: what of a model a virtual replica has for itself, so that it computes on any rank
// what it would compute on one of its own.
//
//   begin(replica), before each forward pass, or piece of one -> end()
//   -> a broadcast of the first rank's buffers
//
// Random layers draw by the replica's number. Buffers, such as the running statistics of a batch
// norm, are those of replica 0, as those of a ddp are rank 0's. The forwards of other replicas
// begin with the buffers from before the step, and replica 0 alone updates them. A model in stages
// runs a replica's forward in pieces, between those of others: each piece begins like a forward.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/types/replica_range.hpp>

namespace parx::inline PARX_ABI {

/// The number of micro-batches of a rank's batch, one for each of its replicas. `rows` is nullopt
/// where the rank has no samples. Throws usage_error unless they can have equally many.
[[nodiscard]] inline int parts_of_replicas(std::optional<std::size_t> rows, replica_range own) {
  require(rows.value_or(0) % static_cast<std::size_t>(own.size()) == 0,
          "a batch of {} rows cannot be divided into this rank's {} replicas: each has equally "
          "many rows, so give a rank those of all its replicas, model.replicas()",
          rows.value_or(0), own.size());
  return own.size();
}

template <typename T>
class replica_pass {
 public:
  /// Instead of a number: a forward without samples, which runs because other ranks need it.
  static constexpr int none = -1;

  /// Of one step. The model is borrowed.
  explicit replica_pass(nn::any_module<T>& model) : model_(model), before_(buffers()) {
    model_.begin_replicas();
  }

  void begin(int replica) {
    restore();
    model_.next_replica(replica == none ? 0 : static_cast<std::size_t>(replica));
    if (replica == 0) return;
    of_replica_0_ = buffers();
    write(before_);
  }
  void end() {
    restore();
    model_.end_replicas();
  }

 private:
  using bytes = std::vector<std::byte>;

  /// The buffers are those of replica 0 again.
  void restore() {
    write(of_replica_0_);
    of_replica_0_.clear();
  }

  [[nodiscard]] std::vector<bytes> buffers() {
    std::vector<bytes> all;
    model_.for_each_buffer([&](const std::string&, auto& buffer) {
      const auto values = buffer.value().span();
      const auto* const first = reinterpret_cast<const std::byte*>(values.data());
      all.emplace_back(first, first + values.size_bytes());
    });
    return all;
  }
  void write(const std::vector<bytes>& all) {
    std::size_t next = 0;
    if (all.empty()) return;
    model_.for_each_buffer([&](const std::string&, auto& buffer) {
      const bytes& each = all[next++];
      std::memcpy(buffer.value().data(), each.data(), each.size());
    });
  }

  nn::any_module<T>& model_;
  const std::vector<bytes> before_;
  std::vector<bytes> of_replica_0_;  ///< while another one computes
};

}  // namespace parx
