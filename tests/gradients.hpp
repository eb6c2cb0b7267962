// All gradients of a model in one vector, for comparisons to the bit.
#pragma once

#include <string>
#include <vector>

namespace parx_test {

/// One after the other, in the order of the parameters; 12345 for one that has none.
template <typename Model>
[[nodiscard]] std::vector<float> gradients_of(Model& m) {
  std::vector<float> all;
  m.for_each_parameter([&](const std::string&, auto& p) {
    if (!p.has_grad()) {
      all.push_back(12345);
      return;
    }
    const auto grad = p.grad();
    all.insert(all.end(), grad.begin(), grad.end());
  });
  return all;
}

}  // namespace parx_test
