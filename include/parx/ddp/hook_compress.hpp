// bf16_compress_hook and fp16_compress_hook: gradients are sent in 16 bits.
//
// Gradients are scaled to about the mean over samples before they are rounded (hook_bucket::scale,
// a power of two), so float16 overflows only if the mean gradient itself is near 65504. It becomes
// infinite then, and a gradient scaler skips the step. Gradients on the rank stay in full
// precision; each element is rounded once before it is sent and once by every addition on its way.
// Source: PyTorch's default_hooks.py.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/types/dtype.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename Wire>
class compress_hook {
 public:
  static constexpr int rounds = 1;

  compress_hook() = default;
  /// Operations in flight stay with the original.
  compress_hook(const compress_hook&) {}
  compress_hook(compress_hook&&) noexcept = default;
  compress_hook& operator=(const compress_hook& other) { return *this = compress_hook(other); }
  compress_hook& operator=(compress_hook&&) noexcept = default;
  ~compress_hook() = default;

  void start(hook_bucket& bucket) {
    if (sent_.size() <= bucket.index) sent_.resize(bucket.index + 1);
    traffic& out = sent_[bucket.index];
    out.elements.resize(bucket.gradients.count);
    visit(bucket, [&](auto* gradients) {
      const auto scale = static_cast<float>(bucket.scale);
      for (std::size_t i = 0; i < out.elements.size(); ++i) {
        out.elements[i] = Wire(static_cast<float>(gradients[i]) * scale);
      }
    });
    out.sum = async_all_reduce(bucket.group, out.elements, {.order = bucket.order}, bucket.site);
  }
  void proceed(hook_bucket& bucket, int /*round*/) {
    traffic& in = sent_[bucket.index];
    in.sum.wait();
    visit(bucket, [&]<typename T>(T* gradients) {
      const auto unscale = static_cast<float>(bucket.unscale());
      for (std::size_t i = 0; i < in.elements.size(); ++i) {
        gradients[i] = static_cast<T>(static_cast<float>(in.elements[i]) * unscale);
      }
    });
  }

 private:
  struct traffic {
    std::vector<Wire> elements;
    work sum;  // destroyed, and so waited for, before the elements
  };

  template <typename F>
  static void visit(const hook_bucket& bucket, F&& f) {
    visit_dtype(bucket.gradients.type, [&]<typename T>(std::type_identity<T>) {
      if constexpr (is_floating(dtype_of<T>)) f(static_cast<T*>(bucket.gradients.data));
    });
  }

  std::vector<traffic> sent_;  // by bucket
};

}  // namespace detail

class bf16_compress_hook : public detail::compress_hook<bfloat16> {};
/// Gradients travel as float16.
class fp16_compress_hook : public detail::compress_hook<float16> {};

}  // namespace parx
