// replica_pass: what of a model a virtual replica has for itself, so that it computes on any rank
// what it would compute on one of its own.
//
//   begin(replica) -> forward and backward -> end(replica), for each replica of this rank
//   restore_buffers(), then a broadcast of the first rank's
//
// A pass without samples, which runs because the forwards of other ranks need it, leaves nothing:
// idle(pass) comes before the first replica.
// Random layers draw by the replica's number. Buffers, such as the running statistics of a batch
// norm, are those of replica 0, as those of a ddp are rank 0's: what other replicas have written to
// them is dropped.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

template <typename Model>
class replica_pass {
 public:
  /// Of one step. The model is borrowed.
  explicit replica_pass(Model& model) noexcept : model_(model) {}

  void begin(std::size_t replica) {
    if (!has_begun_) model_.begin_replicas();
    has_begun_ = true;
    model_.next_replica(replica);
  }
  template <typename Pass>
  void idle(std::size_t next, Pass pass) {
    keep_buffers();
    begin(next);
    pass();
    restore_buffers();
    kept_.clear();
  }
  void end(std::size_t replica) {
    if (replica == 0) keep_buffers();
  }
  /// To what they were when they were kept, if they were.
  void restore_buffers() {
    std::size_t next = 0;
    if (kept_.empty()) return;
    model_.for_each_buffer([&](const std::string&, auto& buffer) {
      const std::vector<std::byte>& kept = kept_[next++];
      std::memcpy(buffer.value().data(), kept.data(), kept.size());
    });
  }

 private:
  void keep_buffers() {
    kept_.clear();
    model_.for_each_buffer([&](const std::string&, auto& buffer) {
      const auto values = buffer.value().span();
      const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
      kept_.emplace_back(bytes, bytes + values.size_bytes());
    });
  }

  Model& model_;
  std::vector<std::vector<std::byte>> kept_;
  bool has_begun_ = false;
};

}  // namespace parx
