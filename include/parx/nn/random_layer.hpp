// random_layer: the base class, beside module, of layers that draw random numbers in training
// (dropout).
//
// The numbers are a function of (seed, path of the layer, replica, number of the call). The model's
// initialize() and reseed() set the seed, its set_replica() the replica. Calls without samples are
// not counted: of a short batch one layout makes fewer micro-batches, another one empty ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <parx/autograd/recompute.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI::nn {

class random_layer {
 public:
  /// The random numbers of the next call, whose input has so many samples, or elements: of all
  /// ranks that split it. A recomputation (autograd/checkpoint.hpp) gets those of the first run.
  [[nodiscard]] random_stream draw(std::size_t samples) {
    if (samples == 0) return stream_;  // of which nothing is read
    return parx::detail::once([&] { return stream_of_replica().substream(calls_++); });
  }

  /// Called by the model that contains it.
  void seed_noise(std::uint64_t seed, std::string_view path) noexcept {
    stream_ = random_stream(seed, path);
    calls_ = 0;
  }
  void set_noise_replica(std::uint64_t replica) noexcept { replica_ = replica; }
  // For replicas that one rank computes in turns: each continues at the call at which the first one
  // has begun, and the rank then where the last of them has ended. A replica may begin again before
  // this layer has drawn for it: another stage of the rank has computed.
  void begin_noise_replicas() noexcept {
    first_call_ = last_call_ = calls_;
    own_replica_ = replica_;
  }
  void next_noise_replica(std::uint64_t replica) noexcept {
    last_call_ = std::max(last_call_, calls_);
    calls_ = first_call_;
    replica_ = replica;
  }
  void end_noise_replicas() noexcept {
    calls_ = std::max(last_call_, calls_);
    replica_ = own_replica_;
  }

  /// Whether draw() is ever called: not by a dropout of probability 0.
  [[nodiscard]] bool draws() const noexcept { return draws_; }

 protected:
  void never_draws() noexcept { draws_ = false; }

 private:
  [[nodiscard]] random_stream stream_of_replica() const noexcept {
    return replica_ == 0 ? stream_ : stream_.substream(replica_);
  }

  random_stream stream_{0, ""};
  bool draws_ = true;
  std::uint64_t replica_ = 0, calls_ = 0;
  std::uint64_t own_replica_ = 0, first_call_ = 0, last_call_ = 0;  ///< of replicas in turns
};

}  // namespace parx::nn
