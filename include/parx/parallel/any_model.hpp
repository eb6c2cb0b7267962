// any_model: a model as the strategies of a parallel model see it, without its type: its parameters
// and modes (nn::any_module), its forward pass, whole or in blocks, and its caches for a text.
//
// typed_model<Model> is the one class of the layouts that is compiled for each model.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include <parx/autograd/variable.hpp>
#include <parx/core/check.hpp>
#include <parx/models/decoding_cache.hpp>
#include <parx/nn/any_module.hpp>
#include <parx/nn/blocks.hpp>
#include <parx/nn/cut.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/tensor_parallel/plans.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class any_model : public nn::any_module<T> {
 public:
  any_model(const any_model&) = delete;
  any_model& operator=(const any_model&) = delete;
  virtual ~any_model() = default;

  /// Of a model without a forward pass (no_input) nothing: its passes are the program's.
  [[nodiscard]] virtual variable<T> forward(const any_input& input) = 0;
  [[nodiscard]] virtual bool has_forward() const = 0;
  /// The forward pass in pieces; none if the model has no blocks().
  [[nodiscard]] virtual nn::model_blocks<any_input, T> blocks() = 0;
  [[nodiscard]] virtual bool has_blocks() const = 0;
  /// How its layers are cut, if parx knows that; else empty.
  [[nodiscard]] virtual tp::plan ready_plan(nn::between_cuts activations) const = 0;
  [[nodiscard]] virtual bool has_ready_plan() const = 0;

  // A language model.

  /// 0 where it has no limit to tell.
  [[nodiscard]] virtual std::size_t max_positions() const = 0;
  /// Makes caches for so many positions of one text; 0: frees them. Does nothing for a model that
  /// has none.
  virtual void begin_text(std::size_t positions) = 0;
  /// The forward pass of `ids`, which follow those before. Throws usage_error for a model without
  /// caches.
  [[nodiscard]] virtual variable<T> continue_text(const any_input& ids) = 0;
  /// The same for blocks(): the caches that they use.
  virtual void begin_text_of_blocks(std::size_t positions) = 0;
  /// Throws usage_error if they use none.
  [[nodiscard]] virtual models::decoded_text<T>& text_of_blocks() = 0;

 protected:
  using nn::any_module<T>::any_module;
};

template <nn::module_type Model>
class typed_model final : public any_model<typename nn::value_type_or_float<Model>::type> {
 public:
  using value_type = typename nn::value_type_or_float<Model>::type;
  using input_type = nn::model_input<Model>;

  /// Borrowed; it must not move.
  explicit typed_model(Model& model) : any_model<value_type>(model), model_(model) {}

  variable<value_type> forward(const any_input& input) override {
    if constexpr (is_raw) return {};
    else return model_(input.as<input_type>());
  }
  bool has_forward() const override { return !is_raw; }
  nn::model_blocks<any_input, value_type> blocks() override {
    if constexpr (has_cached_blocks) return nn::without_type(model_.blocks(&text_));
    else if constexpr (is_in_blocks) return nn::without_type(model_.blocks());
    else return {};
  }
  bool has_blocks() const override { return is_in_blocks; }
  tp::plan ready_plan(nn::between_cuts activations) const override {
    if constexpr (tp::has_ready_plan<Model>) return tp::ready_plan(model_, activations);
    else return {};
  }
  bool has_ready_plan() const override { return tp::has_ready_plan<Model>; }

  std::size_t max_positions() const override {
    if constexpr (requires { model_.max_positions(); }) return model_.max_positions();
    else return 0;
  }
  void begin_text(std::size_t positions) override {
    if constexpr (has_cache) {
      cache_.reset();
      if (positions > 0) cache_.emplace(model_.make_cache(1, positions));
    }
  }
  variable<value_type> continue_text(const any_input& ids) override {
    if constexpr (has_cache) {
      return model_(ids.as<input_type>(), &*cache_);
    } else {
      throw_usage("this model generates no text: it has no make_cache(batch, positions)");
    }
  }
  void begin_text_of_blocks(std::size_t positions) override {
    if constexpr (has_cached_blocks) {
      text_ = {};
      if (positions > 0) text_.cache.emplace(model_.make_cache(1, positions));
    }
  }
  models::decoded_text<value_type>& text_of_blocks() override {
    require(has_cached_blocks,
            "this model generates no text by stages: its blocks() take no caches");
    return text_;
  }

 private:
  static constexpr bool is_raw = std::is_same_v<input_type, no_input>;
  static constexpr bool is_in_blocks = requires(Model & m) { m.blocks(); };
  static constexpr bool has_cache = requires(Model & m, std::size_t n) { m.make_cache(n, n); };
  static constexpr bool has_cached_blocks =
      requires(Model & m, models::decoded_text<value_type>* text) {
        m.make_cache(1, 1), m.blocks(text);
      };
  template <typename M>
  struct cache_of {
    using type = bool;
  };
  template <typename M>
    requires requires(M& m, std::size_t n) { m.make_cache(n, n); }
  struct cache_of<M> {
    using type = decltype(std::declval<M&>().make_cache(1, 1));
  };

  Model& model_;
  std::optional<typename cache_of<Model>::type> cache_;
  models::decoded_text<value_type> text_;
};

}  // namespace parx
