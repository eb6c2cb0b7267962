// saved: a tensor that an operation keeps for backward, in 16 bits where autocast allows it.
//
// Under autocast the operand of a matrix product is rounded anyway, so its 16-bit copy is all that
// backward needs; an element-wise operation keeps 16 bits when they represent its values exactly,
// as they do for rounded results. Operations that save the same memory share one copy (relu's
// output is the next product's operand), which is found by the memory's id and lives as long as one
// of them. Parameters and constants are kept as they are, because they stay alive anyway.
#pragma once

#include <array>
#include <atomic>
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

/// What passes through a copy on the stack: with its source 32 to 64 KiB of cache, a few
/// microseconds of a thread.
inline constexpr std::size_t converted_at_once = 4096;

/// to = from, rounded to `type`; they may be the same memory.
inline void round_values(const float* from, float* to, std::size_t count, dtype type) {
  with_half(type, [from, to, count]<typename Half>(Half) {
    parallel_for(count, converted_at_once, [=](std::size_t first, std::size_t last) {
      std::array<Half, converted_at_once> rounded;
      convert(from + first, rounded.data(), last - first);
      convert(rounded.data(), to + first, last - first);
    });
  });
}

/// The values as operands of a product: rounded to `type`; the tensor itself for float32.
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

/// Rounds the result of a product, which is contiguous, under autocast.
template <typename T>
void round_result(const tensor<T>& result) {
  if constexpr (std::is_same_v<T, float>) {
    if (autocasting<T>()) {
      round_values(result.data(), result.data(), result.size(), autocast_type());
    }
  }
}

/// A 16-bit copy of a contiguous tensor<float>.
struct packed_values {
  std::variant<tensor<bfloat16>, tensor<float16>> halves;
  bool exact = false;  ///< nothing was rounded

  packed_values(const tensor<float>& source, dtype to) {
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

  /// The values; a new tensor where they were kept in 16 bits.
  [[nodiscard]] tensor<T> values() const {
    if constexpr (std::is_same_v<T, float>) {
      if (packed_) return packed_->unpack().reshape(shape_);
      return rounded(whole_, round_to_);
    } else {
      return whole_;
    }
  }

 private:
  template <typename>
  friend class product_operand;

  parx::shape shape_;
  tensor<T> whole_;
  std::shared_ptr<const packed_values> packed_;
  dtype round_to_ = dtype::float32;  // values() rounds whole_ to it
};

/// The operand of a matrix product: its values now, and the form to keep for backward.
template <typename T>
class product_operand {
 public:
  explicit product_operand(const variable<T>& x) : values_(x.value()) {
    kept_.shape_ = x.shape();
    if constexpr (std::is_same_v<T, float>) {
      if (autocasting<T>()) {
        const tensor<T> source = x.value().contiguous();
        const dtype type = autocast_type();
        if (recording() && x.requires_grad() && !x.is_leaf()) {
          kept_.packed_ = packed_cache::instance().find_or_pack(source, type);
          values_ = kept_.packed_->exact ? source : kept_.packed_->unpack().reshape(kept_.shape_);
        } else {
          kept_.whole_ = x.value();
          kept_.round_to_ = type;
          values_ = rounded(source, type);
        }
        return;
      }
    }
    kept_.whole_ = values_;
  }

  [[nodiscard]] const tensor<T>& values() const noexcept { return values_; }
  [[nodiscard]] const saved<T>& kept() const noexcept { return kept_; }

 private:
  tensor<T> values_;
  saved<T> kept_;
};

}  // namespace parx::detail
