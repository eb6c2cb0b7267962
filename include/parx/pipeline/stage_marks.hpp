// stage_marks: what a pipeline notes on a model's parameters while it lives. Afterwards the model
// can be wrapped again.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/gradient_axis.hpp>
#include <parx/autograd/parameter.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
class stage_marks {
 public:
  stage_marks() = default;
  /// To be destroyed after the wrappers of the stages.
  ~stage_marks() {
    for (auto& [each, before] : placed_) each.set_places(std::move(before));
    for (const parameter<T>& each : tied_) {
      if (each.observer() == nullptr) each.reduce_over({});
    }
  }
  stage_marks(const stage_marks&) = delete;
  stage_marks& operator=(const stage_marks&) = delete;

  /// The parameter's gradient is summed over the stages that share it.
  void tie(const parameter<T>& each, std::string group) {
    each.reduce_over(std::move(group));
    tied_.push_back(each);
  }
  /// The parameter's gradient is on these axes.
  void place(const parameter<T>& each, gradient_places places) {
    placed_.emplace_back(each, each.places());
    each.set_places(std::move(places));
  }

 private:
  std::vector<parameter<T>> tied_;
  std::vector<std::pair<parameter<T>, gradient_places>> placed_;  // and their places before
};

}  // namespace parx
