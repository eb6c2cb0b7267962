// saved: a tensor that an operation keeps for backward, in 16 bits where autocast allows it.
//
// Under autocast the operand of a matrix product is rounded anyway, so its 16-bit copy is all that
// the product needs, in backward, too; products of bfloat16 read it as it is, and round other
// operands by themselves. An element-wise operation keeps 16 bits when they represent its values
// exactly, as they do for rounded results. Operations that save the same memory share one copy
// (relu's output is the next product's operand), which is found by the memory's id and lives as
// long as one of them. Parameters and constants are kept as they are, because they stay alive
// anyway.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>

#include <parx/autograd/autocast.hpp>
#include <parx/autograd/variable.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/matmul.hpp>
#include <parx/tensor/packet.hpp>

namespace parx::inline PARX_ABI::detail {

/// Calls f with a value of the 16-bit type.
template <typename Function>
decltype(auto) with_half(dtype type, Function&& f) {
  return type == dtype::bfloat16 ? f(bfloat16{}) : f(float16{});
}

/// Whether products of T are rounded now.
template <typename T>
[[nodiscard]] bool autocasting() noexcept {
  return std::is_same_v<T, float> && autocast_type() != dtype::float32;
}

/// Elements that are converted in one buffer on the stack: with their source 32 to 64 KiB of cache,
/// a few microseconds of a thread.
inline constexpr std::size_t converted_at_once = 4096;

/// to = from, rounded to `type`; they may be the same memory.
inline void round_values(const float* from, float* to, std::size_t count, dtype type) {
  with_half(type, [from, to, count]<typename Half>(Half) {
    parallel_for(count, converted_at_once, [=](std::size_t first, std::size_t last) {
      if constexpr (std::is_same_v<Half, bfloat16>) {
        for_each_packet<float>(last - first, [=](std::size_t i, auto... left) PARX_PACKET_BODY {
          using bits = simd::vector_like<std::uint32_t, packet<float>>;
          const auto half = simd::narrow_bfloat16<bits>(load_packet(from + first + i, left...));
          store_packet(to + first + i, std::bit_cast<packet<float>>(half << 16U), left...);
        });
      } else {
        std::array<Half, converted_at_once> rounded;
        convert(from + first, rounded.data(), last - first);
        convert(rounded.data(), to + first, last - first);
      }
    });
  });
}

/// The values as operands of a product of floats: rounded to `type`; the tensor itself for float32.
template <typename T>
[[nodiscard]] tensor<T> rounded(const tensor<T>& values, dtype type) {
  if constexpr (std::is_same_v<T, float>) {
    if (type != dtype::float32) {
      const tensor<T> source = values.contiguous();
      tensor<T> result = tensor<T>::empty(source.shape());
      round_values(source.data(), result.data(), source.size(), type);
      return result;
    }
  }
  return values;
}

/// The values as an operand of gemm(type, ...), which rounds to bfloat16 by itself.
template <typename T>
[[nodiscard]] tensor<T> rounded_for_gemm(const tensor<T>& values, dtype type) {
  return rounded(values, type == dtype::bfloat16 ? dtype::float32 : type);
}

/// Rounds the result of a product, which is contiguous, under autocast.
template <typename T>
void round_result(const tensor<T>& result) {
  if constexpr (std::is_same_v<T, float>) {
    if (autocasting<T>()) {
      round_values(result.data(), result.data(), result.size(), autocast_type());
    }
  }
}

/// to = from as operands of products of bfloat16. Returns whether that changed a value.
inline bool round_operands(const float* from, bfloat16* to, std::size_t count) noexcept {
  using bits = simd::vector_like<std::uint32_t, simd::vector_of<float>>;
  using halves = simd::vector_type<std::uint16_t, sizeof(bits) / 2>::type;
  constexpr std::size_t lanes = sizeof(bits) / sizeof(float);
  bits lost{};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    bits x;
    std::memcpy(&x, from + i, sizeof x);
    const bits rounded = product::rounded_operand(x);
    const auto narrow = __builtin_convertvector(rounded, halves);
    std::memcpy(to + i, &narrow, sizeof narrow);
    lost |= x ^ rounded << 16U;
  }
  std::uint32_t any = 0;
  for (; i < count; ++i) {
    to[i].bits = product::bits_of_operand(from[i]);
    any |= std::bit_cast<std::uint32_t>(from[i]) ^ std::uint32_t{to[i].bits} << 16U;
  }
  for (std::size_t lane = 0; lane < lanes; ++lane) any |= lost[lane];
  return any != 0;
}

/// Rounds `values`, and keeps them in `halves`.
inline void round_and_keep(float* values, bfloat16* halves, std::size_t count) noexcept {
  using bits = simd::vector_like<std::uint32_t, simd::vector_of<float>>;
  using narrow = simd::vector_type<std::uint16_t, sizeof(bits) / 2>::type;
  constexpr std::size_t lanes = sizeof(bits) / sizeof(float);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    simd::vector_of<float> x;
    std::memcpy(&x, values + i, sizeof x);
    const bits rounded = simd::narrow_bfloat16<bits>(x), widened = rounded << 16U;
    const auto kept = __builtin_convertvector(rounded, narrow);
    std::memcpy(halves + i, &kept, sizeof kept);
    std::memcpy(values + i, &widened, sizeof widened);
  }
  for (; i < count; ++i) values[i] = halves[i] = values[i];
}
inline void round_and_keep(float* values, float16* halves, std::size_t count) noexcept {
  convert(values, halves, count);
  convert(halves, values, count);
}

using half_tensor = std::variant<tensor<bfloat16>, tensor<float16>>;

/// A 16-bit copy of a contiguous tensor<float>.
struct packed_values {
  half_tensor halves;
  bool exact = false;  ///< nothing was rounded

  /// Values that are rounded already.
  explicit packed_values(half_tensor rounded) : halves(std::move(rounded)), exact(true) {}
  packed_values(const tensor<float>& source, dtype to) {
    if (to == dtype::bfloat16) {
      pack_bfloat16(source);
      return;
    }
    with_half(to, [&]<typename Half>(Half) {
      const auto rounded = tensor<Half>::empty(source.shape());
      std::atomic<bool> rounds{false};
      parallel_for(source.size(), converted_at_once, [&](std::size_t first, std::size_t last) {
        const float* const from = source.data() + first;
        const std::size_t count = last - first;
        convert(from, rounded.data() + first, count);
        if (rounds.load(std::memory_order_relaxed)) return;
        std::array<float, converted_at_once> back;
        convert(rounded.data() + first, back.data(), count);
        if (std::memcmp(from, back.data(), count * sizeof(float)) != 0) rounds = true;
      });
      halves = rounded;
      exact = !rounds;
    });
  }
  [[nodiscard]] tensor<float> unpack() const {
    return std::visit(
        [](const auto& from) {
          const tensor<float> values = tensor<float>::empty(from.shape());
          parallel_for(from.size(), converted_at_once, [&](std::size_t first, std::size_t last) {
            convert(from.data() + first, values.data() + first, last - first);
          });
          return values;
        },
        halves);
  }

 private:
  /// As an operand, whose denormals are zeros.
  void pack_bfloat16(const tensor<float>& source) {
    const auto rounded = tensor<bfloat16>::empty(source.shape());
    std::atomic<bool> rounds{false};
    parallel_for(source.size(), converted_at_once, [&](std::size_t first, std::size_t last) {
      if (round_operands(source.data() + first, rounded.data() + first, last - first)) {
        rounds.store(true, std::memory_order_relaxed);
      }
    });
    halves = rounded;
    exact = !rounds;
  }
};

/// An operand as a product reads it: values of T, or of bfloat16 in place of floats.
template <typename T>
class product_tensor {
 public:
  product_tensor() = default;
  explicit product_tensor(const tensor<T>& values) : whole_(values.contiguous()) {}
  explicit product_tensor(const tensor<bfloat16>& values) : halves_(values) {}

  [[nodiscard]] operand_values<T> data() const noexcept {
    if constexpr (std::is_same_v<T, float>) {
      if (halves_.defined()) return halves_.data();
    }
    return whole_.data();
  }

 private:
  tensor<T> whole_;
  tensor<bfloat16> halves_;
};

/// The living copies of this thread, by the memory that they are copies of.
class packed_cache {
 public:
  [[nodiscard]] static packed_cache& instance() {
    thread_local packed_cache cache;
    return cache;
  }

  [[nodiscard]] std::shared_ptr<const packed_values> find_or_pack(const tensor<float>& source,
                                                                  dtype type) {
    const key at{source.memory_id(), source.data(), source.size(), type};
    std::weak_ptr<const packed_values>& known = copies_[at];
    std::shared_ptr<const packed_values> copy = known.lock();
    if (!copy) {
      copy =
          std::allocate_shared<const packed_values>(pool_allocator<packed_values>(), source, type);
      known = copy;
      if (copies_.size() >= sweep_at_) sweep();
    }
    return copy;
  }

 private:
  struct key {
    std::uint64_t memory;
    const float* first;
    std::size_t size;
    dtype type;
    bool operator==(const key&) const = default;
  };
  struct hash {
    std::size_t operator()(const key& k) const noexcept {
      return std::hash<std::uint64_t>()(k.memory * 0x9E3779B97F4A7C15U ^ k.size);
    }
  };

  void sweep() {
    std::erase_if(copies_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<std::size_t>(256, 2 * copies_.size());
  }

  std::unordered_map<key, std::weak_ptr<const packed_values>, hash, std::equal_to<>,
                     pool_allocator<std::pair<const key, std::weak_ptr<const packed_values>>>>
      copies_;
  std::size_t sweep_at_ = 256;
};

template <typename T>
class saved {
 public:
  saved() noexcept = default;
  /// Keeps exactly these values, in 16 bits where those represent them.
  explicit saved(const tensor<T>& values) : shape_(values.shape()) {
    if constexpr (std::is_same_v<T, float>) {
      if (autocasting<T>() && recording() && values.is_contiguous()) {
        auto copy = packed_cache::instance().find_or_pack(values, autocast_type());
        if (copy->exact) {
          packed_ = std::move(copy);
          return;
        }
      }
    }
    whole_ = values;
  }
  /// Keeps values that were rounded to 16 bits where they were made.
  explicit saved(half_tensor values)
    requires std::is_same_v<T, float>
      : packed_(std::allocate_shared<const packed_values>(pool_allocator<packed_values>(),
                                                          std::move(values))) {
    std::visit([this](const auto& halves) { shape_ = halves.shape(); }, packed_->halves);
  }

  /// The values; a new tensor where they were kept in 16 bits.
  [[nodiscard]] tensor<T> values() const {
    if constexpr (std::is_same_v<T, float>) {
      if (packed_) return packed_->unpack().reshape(shape_);
      return rounded(whole_, round_to_);
    } else {
      return whole_;
    }
  }
  /// `count` of the values, which are contiguous and kept exactly, from `at` on: where they lie, or
  /// in `made`, which has room for them.
  [[nodiscard]] const T* read(std::size_t at, std::size_t count, T* made) const {
    if constexpr (std::is_same_v<T, float>) {
      if (packed_) {
        std::visit([=](const auto& halves) { convert(halves.data() + at, made, count); },
                   packed_->halves);
        return made;
      }
    }
    return whole_.data() + at;
  }
  /// Of a product's operand: as the product reads it.
  [[nodiscard]] product_tensor<T> operand() const {
    if constexpr (std::is_same_v<T, float>) {
      if (packed_ && std::holds_alternative<tensor<bfloat16>>(packed_->halves)) {
        return product_tensor<T>(std::get<tensor<bfloat16>>(packed_->halves));
      }
    }
    return product_tensor<T>(unrounded());
  }
  /// The operand as T; not rounded where the product rounds by itself.
  [[nodiscard]] tensor<T> unrounded() const {
    return round_to_ == dtype::bfloat16 ? whole_ : values();
  }

 private:
  template <typename>
  friend class product_operand;

  parx::shape shape_;
  tensor<T> whole_;
  std::shared_ptr<const packed_values> packed_;
  dtype round_to_ = dtype::float32;  // values() rounds whole_ to it
};

/// Whether a product of bfloat16 is computed by gemm, which rounds its operands, or by floats.
enum class products_by { gemm, floats };

/// The operand of a matrix product: its values now, and the form to keep for backward.
template <typename T>
class product_operand {
 public:
  explicit product_operand(const variable<T>& x, products_by how) : values_(x.value()) {
    kept_.shape_ = x.shape();
    if constexpr (std::is_same_v<T, float>) {
      if (autocasting<T>()) {
        const tensor<T> source = x.value().contiguous();
        const dtype type = autocast_type();
        const bool is_rounded_by_gemm = how == products_by::gemm && type == dtype::bfloat16;
        if (recording() && x.requires_grad() && !x.is_leaf()) {
          kept_.packed_ = packed_cache::instance().find_or_pack(source, type);
          if (!is_rounded_by_gemm && !kept_.packed_->exact) {
            values_ = kept_.packed_->unpack().reshape(kept_.shape_);
          }
        } else {
          kept_.whole_ = x.value();
          kept_.round_to_ = type;
          if (!is_rounded_by_gemm) values_ = rounded(source, type);
        }
        return;
      }
    }
    kept_.whole_ = values_;
  }

  /// Not yet rounded where gemm does that.
  [[nodiscard]] const tensor<T>& values() const noexcept { return values_; }
  /// values(), or bfloat16, which are faster to read.
  [[nodiscard]] product_tensor<T> operand() const {
    return kept_.packed_ ? kept_.operand() : product_tensor<T>(values_);
  }
  [[nodiscard]] const saved<T>& kept() const noexcept { return kept_; }

 private:
  tensor<T> values_;
  saved<T> kept_;
};

}  // namespace parx::detail
