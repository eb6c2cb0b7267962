// decoding_cache: a language model's keys and values of the positions so far, one kv_cache for each
// layer, so that every further token costs one position.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/nn/attention.hpp>

namespace parx::inline PARX_ABI::models {

template <typename T = float>
class decoding_cache {
 public:
  /// See nn::kv_cache.
  decoding_cache(std::size_t layers, std::size_t batch, std::size_t capacity) {
    layers_.reserve(layers);
    for (std::size_t i = 0; i < layers; ++i) layers_.emplace_back(batch, capacity);
  }

  /// The number of positions so far.
  [[nodiscard]] std::size_t length() const noexcept {
    return layers_.empty() ? 0 : layers_.front().length();
  }
  [[nodiscard]] nn::kv_cache<T>& layer(std::size_t i) { return layers_.at(i); }

 private:
  std::vector<nn::kv_cache<T>> layers_;
};

}  // namespace parx::models
