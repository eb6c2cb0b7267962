// dropout: sets random elements to 0 and scales the others, so that the expectation is the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/autograd/function.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI {

/// Keeps each element with probability 1 - `probability` and multiplies it by 1 / (1 -
/// probability). x is `part` of a whole; number i of `stream` (take a substream per step) decides
/// about element i of the whole, so that the result does not depend on how the whole is cut. With
/// probability 0 this is x itself. Throws usage_error when x has another shape than the part.
template <typename T>
[[nodiscard]] variable<T> dropout(const variable<T>& x, double probability,
                                  const random_stream& stream, const shard_spec& part,
                                  call_site = call_site::current()) {
  require(probability >= 0 && probability < 1, "dropout: a probability of {} is not in [0, 1)",
          probability);
  require(part.shape() == x.shape(), "dropout: an input of shape {} is not {}",
          to_string(x.shape()), part.text());
  if (probability == 0) return x;
  const T scale = static_cast<T>(1 / (1 - probability));
  const auto threshold = static_cast<std::uint32_t>(probability * 0x1p32);
  const tensor<T> input = x.value().contiguous();
  const tensor<std::uint8_t> kept = tensor<std::uint8_t>::empty(x.shape());
  tensor<T> y = tensor<T>::empty(x.shape());
  const T* const in = input.data();
  T* const out = y.data();
  part.for_each_run([&](const shard_run& run) {
    parallel_for(
        run.length, elements_of_a_block / 2, [&](std::size_t first, std::size_t last) {
          stream.words(run.global + first, last - first,
                       [&](const std::uint32_t* word, std::uint64_t at, std::size_t count) {
                         const std::size_t offset =
                             run.local + static_cast<std::size_t>(at - run.global);
                         std::uint8_t* const keep = kept.data() + offset;
                         for (std::size_t i = 0; i < count; ++i) {
                           const bool keeps = word[i] >= threshold;
                           keep[i] = keeps ? 1 : 0;
                           out[offset + i] = keeps ? in[offset + i] * scale : T(0);
                         }
                       });
        });
  });
  return differentiable(
      std::move(y),
      [kept, scale](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.map([=](T u, std::uint8_t keep) { return keep != 0 ? u * scale : T(0); }, upstream,
               kept);
      },
      x);
}
/// The same where x is the whole.
template <typename T>
[[nodiscard]] variable<T> dropout(const variable<T>& x, double probability,
                                  const random_stream& stream, call_site = call_site::current()) {
  return dropout(x, probability, stream, shard_spec::whole(x.shape()));
}

}  // namespace parx
