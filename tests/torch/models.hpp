// What the tests of LibTorch's modules share: values by formula, and messages of ranks.
#pragma once

#include <parx/torch.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <comm/jobs.hpp>

namespace nn = torch::nn;
using torch::Tensor;

// Ranks as threads share the generator of random numbers: values are by formula.
inline void fill(nn::Module& model) {
  const torch::NoGradGuard guard;
  double phase = 0;
  for (auto& p : model.parameters()) {
    const Tensor ramp = torch::arange(p.numel(), torch::kDouble) * 0.37 + (phase += 1);
    p.copy_((torch::sin(ramp) * 0.3).view(p.sizes()));
  }
}

inline Tensor samples(std::int64_t first, std::int64_t count, torch::Dtype type) {
  const Tensor index = torch::arange(first * 6, (first + count) * 6, torch::kDouble);
  return torch::cos(index * 0.71).view({count, 6}).to(type);
}

/// All values of a model.
inline std::vector<double> values_of(const nn::Module& model) {
  std::vector<double> values;
  for (auto& p : model.parameters()) {
    const Tensor flat = p.detach().to(torch::kDouble).contiguous();
    values.insert(values.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  return values;
}

inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

inline std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no exception";
}

inline void says(const std::vector<std::string>& messages, const std::string& words) {
  for (const auto& each : messages) {
    BOOST_TEST(each.find(words) != std::string::npos, "\"" << words << "\" is not in: " << each);
  }
}

// On a rank's thread, where Boost's checks may not be used.
inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("not so: " + what);
}

/// What body(group) found on each of `world` ranks, which are threads, joined by `network`.
template <typename Body>
auto on_ranks_over(jobs::kind network, int world, Body body) {
  std::vector<std::invoke_result_t<Body&, parx::process_group&>> found(
      static_cast<std::size_t>(world));
  const std::string failure = jobs::run(network, world, [&](parx::process_group& group) {
    found[static_cast<std::size_t>(group.rank())] = body(group);
  });
  BOOST_TEST(failure == "", failure);
  return found;
}
