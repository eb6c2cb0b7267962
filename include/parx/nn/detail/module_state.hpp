// module_state: the state of every module that does not depend on its type.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <parx/autograd/pinnable.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/module_hook.hpp>

namespace parx::inline PARX_ABI::nn {

template <typename Self>
class module_functions;

namespace detail {

class module_state : public pinnable {
 public:
  /// Whether layers that behave differently in training (dropout) do so.
  [[nodiscard]] bool is_training() const noexcept { return training_; }
  /// Runs `hook` around each call of this module from now on; null: none. Borrowed.
  void set_hook(module_hook* hook) noexcept { hook_ = hook; }
  [[nodiscard]] module_hook* hook() const noexcept { return hook_; }
  /// The seed from which this model, as a whole, last got initial values.
  [[nodiscard]] std::uint64_t last_seed() const noexcept { return seed_; }
  /// The seed that it last got, for values or for random layers, from now on, wherever it moves.
  [[nodiscard]] std::shared_ptr<const std::uint64_t> watch_seed() {
    if (!watched_seed_) watched_seed_ = std::make_shared<std::uint64_t>(seed_);
    return watched_seed_;
  }

 protected:
  module_state() = default;
  module_state(module_state&& other)
      : pinnable(std::move(other)),
        training_(other.training_),
        ready_(other.ready_),
        seed_(other.seed_),
        watched_seed_(std::move(other.watched_seed_)) {
    require_unhooked(other);
  }
  module_state& operator=(module_state&& other) {
    pinnable::operator=(std::move(other));
    require_unhooked(*this);
    require_unhooked(other);
    training_ = other.training_;
    ready_ = other.ready_;
    seed_ = other.seed_;
    watched_seed_ = std::move(other.watched_seed_);
    return *this;
  }
  ~module_state() = default;

 private:
  template <typename Self>
  friend class nn::module_functions;
  friend class module_visitor;

  void note_seed(std::uint64_t seed) noexcept {
    seed_ = seed;
    note_noise_seed(seed);
  }
  /// A trainer gives each replica others in every step.
  void note_noise_seed(std::uint64_t seed) noexcept {
    if (watched_seed_) *watched_seed_ = seed;
  }
  /// The owner of a hook knows the module by its address.
  static void require_unhooked(const module_state& moved) {
    require(moved.hook_ == nullptr,
            "a layer is moved whose model an fsdp wraps: build the model before it is wrapped");
  }

  module_hook* hook_ = nullptr;
  bool training_ = true;
  bool ready_ = false;  // the parameters have initial values
  std::uint64_t seed_ = 0;
  std::shared_ptr<std::uint64_t> watched_seed_;
};

}  // namespace detail

}  // namespace parx::nn
