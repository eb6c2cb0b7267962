// PyTorch's numbers for the operations, as torch_ops.py has written them, and its inputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <parx/tensor/tensor.hpp>

namespace parx_test {

/// The numbers of torch_ops.txt, by name.
[[nodiscard]] inline const std::map<std::string, std::vector<double>>& torch_numbers() {
  static const auto all = [] {
    std::map<std::string, std::vector<double>> numbers;
    std::ifstream file(std::filesystem::path(__FILE__).parent_path() / "torch_ops.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      std::string name, value;
      fields >> name;
      auto& list = numbers[name];
      while (fields >> value) list.push_back(std::strtod(value.c_str(), nullptr));
    }
    return numbers;
  }();
  return all;
}

/// The same exact numbers as in torch_ops.py: none is 0, the first 17 differ.
[[nodiscard]] inline parx::tensor<double> grid(std::size_t k, const parx::shape& s) {
  auto values = parx::tensor<double>::empty(s);
  for (std::size_t i = 0; i < s.size(); ++i) {
    values.data()[i] = (static_cast<double>((i * 37 + k * 11) % 17) - 8.0) / 16.0 + 1.0 / 64.0;
  }
  return values;
}

/// The largest difference from PyTorch's numbers, relative above 1; infinite where one is NaN.
template <typename T>
[[nodiscard]] double difference(const std::string& name, const parx::tensor<T>& found) {
  const auto known = torch_numbers().find(name);
  if (known == torch_numbers().end() || known->second.size() != found.size()) return 1e300;
  const auto values = found.contiguous();
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double a = known->second[i], b = static_cast<double>(values.data()[i]);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double error = std::abs(a - b) / std::max(1.0, std::abs(a));
    worst = std::isnan(error) ? 1e300 : std::max(worst, error);
  }
  return worst;
}

}  // namespace parx_test
