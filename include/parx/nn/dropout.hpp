// dropout: in training, elements set to 0 at random and the others scaled; in evaluation, nothing.
//
// What is dropped is a function of (seed, path, number of the call, index of the element).
#pragma once

#include <cstdint>
#include <string_view>

#include <parx/autograd/ops/dropout.hpp>
#include <parx/autograd/recompute.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::nn {

class dropout : public module<dropout> {
 public:
  /// Drops each element with this probability. Throws usage_error unless it is in [0, 1).
  explicit dropout(double probability = 0.5) : probability_(probability) {
    require(probability >= 0 && probability < 1, "dropout: a probability of {} is not in [0, 1)",
            probability);
  }

  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) {
    if (!is_training()) return x;
    return parx::dropout(x, probability_, draw());
  }

  [[nodiscard]] double probability() const noexcept { return probability_; }
  /// The random numbers of the next call, for operations that drop by themselves (attention).
  [[nodiscard]] random_stream draw() {
    return stream_.substream(parx::detail::once([&] { return calls_++; }));
  }

  /// Called by initialize() and reseed() of the model.
  void seed_noise(std::uint64_t seed, std::string_view path) {
    stream_ = random_stream(seed, path);
    calls_ = 0;
  }

 private:
  double probability_;
  random_stream stream_{0, ""};
  std::uint64_t calls_ = 0;
};

}  // namespace parx::nn
