// weighted_loss<T>: a loss as (sum, count), so that one rule averages over ranks, micro-batches and
// padding: add the sums, add the counts, divide once. And the options of cross_entropy.
//
// backward() gives the leaves the gradient of the mean, as in PyTorch, or with
// {.of = gradient_of::sum} that of the sum, for callers that add up batches and divide by the total
// count. A wrapper that sums over ranks asks for the sum and divides itself. A count of 0 (a batch
// of padding only) contributes zeros.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include <fmt/core.h>

#include <parx/autograd/variable.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

struct cross_entropy_options {
  std::int64_t ignore_index = -100;         ///< rows with this label count 0
  std::span<const float> row_weights = {};  ///< one per row; empty: all 1. 0 for padding.
  double label_smoothing = 0;               ///< fraction of each label spread over all classes
};

/// Throws usage_error for a loss that counts nothing, from which nothing would be learned.
inline void require_counted(double sum, double count, call_site site = last_call_site()) {
  if (count != 0 || sum == 0 || !std::isfinite(sum)) [[likely]]
    return;
  throw_usage(
      "a loss of {} at {} has a count of 0, so nothing is learned from it: a loss is {{sum, "
      "count}}, where the count is the number of samples that were summed, 1 for a mean that is to "
      "weigh as one",
      sum, site);
}

template <typename T>
struct weighted_loss {
  variable<T> sum;   ///< scalar
  double count = 0;  ///< the number of elements (tokens, samples), or the sum of their weights

  /// For printing; 0 when the count is 0.
  [[nodiscard]] T mean() const {
    return count == 0 ? T(0) : static_cast<T>(sum.item() / static_cast<T>(count));
  }
  /// For a PyTorch user's loss.item(): a compile-time error that says what to do.
  template <typename Of = T>
  [[nodiscard]] Of item() const {
    static_assert(std::is_void_v<Of>,
                  "a loss is a sum and a count: its number is loss.mean(), that of all ranks "
                  "parx::global_mean(world, loss)");
    return {};
  }
  /// See variable::backward. options.count is set from this loss.
  void backward(backward_options options = {}, call_site site = call_site::current()) const {
    require_counted(static_cast<double>(sum.item()), count, site);
    options.count = count;
    sum.backward(options, site);
  }
  /// See variable::backward_inputs.
  backward_rest backward_inputs(backward_options options = {},
                                call_site site = call_site::current()) const {
    options.count = count;
    return sum.backward_inputs(options, site);
  }
};

/// For fmt, of a loss or a tally: a compile-time error that says what to do.
template <typename Loss>
struct unprinted_loss {
  static_assert(std::is_void_v<Loss>,
                "a loss is a sum and a count: print loss.mean(), or that of all ranks, "
                "parx::global_mean(world, loss)");
  constexpr auto parse(const fmt::format_parse_context& specification) {
    return specification.begin();
  }
  fmt::appender format(const Loss&, fmt::format_context& to) const { return to.out(); }
};

}  // namespace parx

template <typename T>
struct fmt::formatter<parx::weighted_loss<T>> : parx::unprinted_loss<parx::weighted_loss<T>> {};
