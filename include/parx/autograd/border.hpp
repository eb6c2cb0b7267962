// border: the input of a pipeline stage, in place of the output of the previous stage.
//
//   const parx::border<float> x(received);                      // from the previous stage
//   const auto y = stage(x);
//   y.backward_from(next.sum, {.count = next.count});           // the gradient of the next stage
//   const auto [sum, count] = x.gradient();                     // for the previous stage
//
// A graph that ends at a border is part of a longer one. Its backward computes gradients of the sum
// of the loss, and the border keeps the count of the loss beside its gradient, so that the previous
// stage continues with exactly the numbers that one graph of both stages would have there. Any
// number of borders and graphs (micro-batches) may be alive, and backward may run over them in any
// order: gradients add up in that order.
#pragma once

#include <memory>
#include <utility>

#include <parx/autograd/observer.hpp>
#include <parx/autograd/variable.hpp>

namespace parx::inline PARX_ABI {

/// What a stage of a pipeline sends back to the one before it.
template <typename T>
struct border_gradient {
  tensor<T> sum;     ///< of the sum of the loss with respect to the values of the border
  double count = 0;  ///< the weight of the loss
};

/// A leaf; a handle, like variable.
template <typename T>
class border : public variable<T> {
 public:
  explicit border(tensor<T> received)
      : variable<T>(std::move(received), parx::gradient::wanted),
        observer_(new gradient_observer(&this->leaf("border"))) {}

  [[nodiscard]] bool has_gradient() const noexcept { return observer_->of->has_gradient(); }
  /// The sum over all backward passes that reached the border: several where the stage has several
  /// losses. The tensor may outlive the border. The next pass that reaches the border adds to it,
  /// so finish sending it before. Throws usage_error when no pass has reached it.
  [[nodiscard]] border_gradient<T> gradient() const {
    require(observer_->of->has_gradient(),
            "a border of shape {} has no gradient: no backward has reached it",
            to_string(this->shape()));
    return {observer_->of->open_gradient(), observer_->count};
  }

 private:
  struct gradient_observer final : backward_observer {
    explicit gradient_observer(detail::leaf<T>* watched) : of(watched) {
      of->observer = this;
      of->leads_to_border = true;
    }
    ~gradient_observer() override { of->observer = nullptr; }

    [[nodiscard]] gradient_of wanted() const override { return gradient_of::sum; }
    void begin_backward(const backward_start& start) override {
      count = start.count + (of->has_gradient() ? count : 0);
    }
    void leaf_ready(std::size_t /*only*/) override {}
    void end_backward() override {}
    void abandon_backward() noexcept override { of->zero(); }

    const detail::counted<detail::leaf<T>> of;
    double count = 0;
  };

  std::shared_ptr<gradient_observer> observer_;
};

}  // namespace parx
