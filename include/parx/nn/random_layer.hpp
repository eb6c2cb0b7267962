// random_layer: the base class, beside module, of layers that draw random numbers in training
// (dropout).
//
// The numbers are a function of (seed, path of the layer, replica, number of the call). The model's
// initialize() and reseed() set the seed, its set_replica() the replica.
#pragma once

#include <cstdint>
#include <string_view>

#include <parx/autograd/recompute.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI::nn {

class random_layer {
 public:
  /// The random numbers of the next call. A recomputation (autograd/checkpoint.hpp) gets those of
  /// the first run.
  [[nodiscard]] random_stream draw() {
    return parx::detail::once([&] { return stream_of_replica().substream(calls_++); });
  }

  /// Called by the model that contains it.
  void seed_noise(std::uint64_t seed, std::string_view path) noexcept {
    stream_ = random_stream(seed, path);
    calls_ = 0;
  }
  void set_noise_replica(std::uint64_t replica) noexcept { replica_ = replica; }
  /// For replicas that one rank computes one after the other: each continues at the call at which
  /// the first one has begun.
  void mark_noise() noexcept { marked_ = calls_; }
  void rewind_noise() noexcept { calls_ = marked_; }

 private:
  [[nodiscard]] random_stream stream_of_replica() const noexcept {
    return replica_ == 0 ? stream_ : stream_.substream(replica_);
  }

  random_stream stream_{0, ""};
  std::uint64_t replica_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t marked_ = 0;
};

}  // namespace parx::nn
