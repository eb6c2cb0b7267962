// source_cache: the state of an encoder_decoder while it generates texts from one source: keys and
// values of the source, computed once, and those of the tokens so far. Every further token costs
// one position.
//
// The texts (beams) share the source's part without a copy. For inference, without gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/nn/transformer.hpp>

namespace parx::inline PARX_ABI::models {

template <typename T = float>
class source_cache {
 public:
  /// For one text: `layers` are the decoder's, pointer_keys (1, width, keys) a pointer's or not
  /// defined, ids and mask (1, keys) the source's.
  source_cache(std::vector<nn::decoder_layer_cache<T>> layers, variable<T> pointer_keys,
               tensor<std::int64_t> ids, tensor<std::uint8_t> mask)
      : layers_(std::move(layers)),
        pointer_keys_(std::move(pointer_keys)),
        ids_(std::move(ids)),
        mask_(std::move(mask)) {}

  /// The number of tokens so far.
  [[nodiscard]] std::size_t length() const noexcept {
    return layers_.empty() ? 0 : layers_.front().self.length();
  }
  /// Text b now continues the former text rows[b]; there are rows.size() texts afterwards.
  void select(std::span<const std::size_t> rows) {
    for (nn::decoder_layer_cache<T>& each : layers_) {
      each.self.select(rows);
      each.memory.keys = shared_by(rows.size(), each.memory.keys);
      each.memory.values = shared_by(rows.size(), each.memory.values);
    }
    if (pointer_keys_.defined()) pointer_keys_ = shared_by(rows.size(), pointer_keys_);
    ids_ = ids_.slice(0, 0, 1).expand({rows.size(), ids_.extent(1)});
    mask_ = mask_.slice(0, 0, 1).expand({rows.size(), mask_.extent(1)});
  }

  [[nodiscard]] std::vector<nn::decoder_layer_cache<T>>& layers() noexcept { return layers_; }
  [[nodiscard]] const variable<T>& pointer_keys() const noexcept { return pointer_keys_; }
  [[nodiscard]] const tensor<std::int64_t>& ids() const noexcept { return ids_; }
  [[nodiscard]] const tensor<std::uint8_t>& mask() const noexcept { return mask_; }

 private:
  /// The first text's x, for all texts: they have the same source.
  [[nodiscard]] static variable<T> shared_by(std::size_t texts, const variable<T>& x) {
    return x.value().slice(0, 0, 1).expand({texts, x.extent(1), x.extent(2)});
  }

  std::vector<nn::decoder_layer_cache<T>> layers_;
  variable<T> pointer_keys_;
  tensor<std::int64_t> ids_;
  tensor<std::uint8_t> mask_;
};

}  // namespace parx::models
