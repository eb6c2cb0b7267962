// sleeper: a layer for pipeline_tour that takes its time and computes nothing.
#pragma once

#include <chrono>
#include <thread>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>

namespace examples {

using duration = std::chrono::duration<double, std::milli>;

/// Sleeps; the time by which a sleep is too long is subtracted from this thread's next one.
inline void sleep_exactly(duration asked) {
  thread_local duration debt{};
  const auto from = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(asked - debt);
  debt += std::chrono::steady_clock::now() - from - asked;
}

/// A layer that takes its time and computes nothing.
class sleeper : public parx::nn::module<sleeper> {
 public:
  using value_type = float;
  explicit sleeper(duration each, bool is_first = false)
      : each_(each), is_first_(is_first), weight_("weight", parx::shape{1}) {}

  [[nodiscard]] parx::variable<float> forward(const parx::variable<float>& given) {
    // The first stage needs no input gradient, and would skip its I; a border makes it compute one.
    const auto x = is_first_ ? parx::border<float>(given.value()) : given;
    sleep_exactly(each_);
    return parx::differentiable(
        x.value(),
        [each = each_](const parx::tensor<float>& upstream, parx::grad_sink<float> dx,
                       parx::grad_sink<float> dw) {
          if (dx.needed()) {
            sleep_exactly(each);
            dx.add(upstream);
          }
          if (dw.needed()) {
            sleep_exactly(each);
            dw.add(parx::tensor<float>::ones({1}));
          }
        },
        x, weight_);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, parx::nn::init::constant(1));
  }

 private:
  duration each_;
  bool is_first_;
  parx::parameter<float> weight_;
};

}  // namespace examples
