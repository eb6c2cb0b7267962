// generating: adapts a model that is cut over ranks for models::generate and models::beam_search.
//
//   parx::tp::generating text{tp, model};
//   parx::models::generate(text, prompt, options);          // collective: the same on all ranks
//
// Each rank caches the keys and values of its heads. Besides the layers' own collectives, the
// logits of one position are gathered for each token. Activations stay whole, even if the plan cuts
// them by positions. All ranks pass the same prompt, options and seed.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <parx/autograd/ops/whole.hpp>
#include <parx/core/check.hpp>
#include <parx/tensor_parallel/parallelize.hpp>

namespace parx::inline PARX_ABI::tp {

template <typename Model>
class generating {
 public:
  using value_type = typename nn::value_type_or_float<Model>::type;

  /// `parts` and `model` are borrowed.
  generating(const parallelized& parts, Model& model) noexcept : parts_(parts), model_(model) {}

  void eval() { model_.eval(); }
  [[nodiscard]] std::vector<bool> training_modes() { return model_.training_modes(); }
  void set_training_modes(const std::vector<bool>& modes) { model_.set_training_modes(modes); }
  [[nodiscard]] std::size_t max_positions() const { return model_.max_positions(); }

  /// The model's cache.
  [[nodiscard]] auto make_cache(std::size_t batch, std::size_t capacity) {
    return model_.make_cache(batch, capacity);
  }
  template <std::integral Id, std::integral Mask>
  [[nodiscard]] auto make_cache(const tensor<Id>& source, const tensor<Mask>& source_mask,
                                std::size_t capacity) {
    const whole_positions guard(parts_.axis());
    return model_.make_cache(source, source_mask, capacity);
  }
  /// The logits of all classes at the last position, (batch, 1, classes). Throws usage_error if the
  /// ranks have different ids.
  template <std::integral Id, typename Cache>
  [[nodiscard]] variable<value_type> operator()(const tensor<Id>& ids, Cache* cache) {
    return last(ids, [&] { return model_(ids, cache); });
  }
  /// The same for an encoder_decoder.
  template <std::integral Id, typename Cache>
  [[nodiscard]] variable<value_type> decode(const tensor<Id>& next, Cache* cache) {
    return last(next, [&] { return model_.decode(next, cache); });
  }

 private:
  template <typename Id, typename Forward>
  [[nodiscard]] variable<value_type> last(const tensor<Id>& ids, Forward forward) {
    const tensor<Id> all = ids.contiguous();
    std::uint64_t digest = all.size();
    for (const Id id : all) digest = digest * 0x100000001b3 + static_cast<std::uint64_t>(id);
    const auto own = static_cast<std::int64_t>(digest >> 1);
    std::int64_t range[] = {own, -own};
    all_reduce(parts_.axis().group(), range, {.op = reduce_op::max});
    require(range[0] == -range[1],
            "generating: the ranks of {} go on from different texts: give all of them the same "
            "prompt, options and seed",
            parts_.axis().group().name());
    const whole_positions guard(parts_.axis());
    const variable<value_type> logits = forward();
    const std::size_t positions = logits.extent(1);
    return whole(slice(logits, 1, positions - 1, positions));
  }

  const parallelized& parts_;
  Model& model_;
};

}  // namespace parx::tp
