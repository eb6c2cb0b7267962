// parallel_model: a model in any layout, without its type: what trainers, evaluations and
// generation work on, so that they are compiled once for all layouts. parallel<Model> makes it
// (parallel.hpp).
//
// Who calls what, and which ranks get results, is said as in any_parallel.hpp, which has the rest.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/loss.hpp>
#include <parx/autograd/loss_watch.hpp>
#include <parx/autograd/ops/full_logits.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/call_context.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/metrics.hpp>
#include <parx/nn/model_input.hpp>
#include <parx/parallel/any_parallel.hpp>
#include <parx/pipeline/batch_parts.hpp>
#include <parx/pipeline/microbatches.hpp>
#include <parx/tensor/batch.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

/// The results of a batch's micro-batches as one tensor: joins `parts`, which rank `last` of
/// `stages` has, along axis 0. Collective over `stages`; null: local. Throws usage_error, on rank
/// `last` alone, for parts that are no rows of one shape.
template <typename T>
[[nodiscard]] tensor<T> joined_rows(std::vector<tensor<T>> parts, process_group* stages, int last,
                                    call_site site) {
  if (stages != nullptr && stages->rank() != last) parts.clear();
  std::vector<std::size_t> extents;
  for (const tensor<T>& each : parts) {
    const std::vector<std::size_t> its(each.shape().begin(), each.shape().end());
    require(!its.empty(), "outputs at {}: the model's result is one number, not rows", site);
    if (extents.empty()) {
      extents = its;
      continue;
    }
    require(std::equal(its.begin() + 1, its.end(), extents.begin() + 1, extents.end()),
            "outputs at {}: micro-batches have results of {} and {}: pad them alike", site,
            to_string(parts.front().shape()), to_string(each.shape()));
    extents.front() += its.front();
  }
  if (stages != nullptr) broadcast_object(*stages, extents, {.root = last}, site);
  tensor<T> all = tensor<T>::empty(shape(extents));
  T* to = all.data();
  for (const tensor<T>& each : parts) to = std::copy_n(each.data(), each.size(), to);
  if (stages != nullptr) broadcast(*stages, all.span(), {.root = last}, site);
  return all;
}

/// T: the type of the parameters. Input: what the model's forward takes (nn/model_input.hpp).
template <typename T, typename Input>
class parallel_model : public any_parallel<T> {
 public:
  using input_type = Input;

  /// Collective: forward and backward of one batch, in layout::microbatches parts. criterion(
  /// logits, part) returns a weighted_loss, and runs on the ranks that have the model's result.
  /// The gradient is that of the mean over the whole batch, of all replicas, whatever the sizes of
  /// the parts. Returns (sum, count) of this replica, not its mean: replicas with other numbers of
  /// rows, of a last batch, say, would make a mean of means wrong. global_mean() divides once.
  template <typename Batch, typename Criterion>
  nn::tally forward_backward(const Batch& batch, Criterion&& criterion,
                             call_site site = call_site::current()) {
    require_forward<Batch>();
    require_call<Criterion, Batch>();
    using made = std::invoke_result_t<Criterion&, const variable<T>&, const Batch&>;
    static_assert(std::is_same_v<made, weighted_loss<T>>,
                  "the criterion of forward_backward returns a loss as (sum, count): [](auto& "
                  "logits, auto& part) { return parx::nn::cross_entropy(logits, part.labels); }");
    return with_call_context("forward_backward", site, [&] {
      require(
          is_grad_enabled(),
          "forward_backward at {}: within a no_grad scope there are no gradients: use evaluate()",
          site);
      const std::vector<Batch> parts = split(batch, batch_use::step, site);
      const detail::loss_is_watched by_this;
      const auto result = [&](std::size_t i, const variable<T>& x) {
        if constexpr (std::is_same_v<made, weighted_loss<T>>) {
          return result_of<T>(criterion(x, parts[i]));
        } else {
          return microbatch_result<T>{};
        }
      };
      const nn::tally loss = with_microbatches<T, Input>(
          std::span<const Batch>(parts), site, result,
          [&](const microbatches<T>& all) { return this->strategy().train(all); });
      this->look_at(loss.sum, site);
      return loss;
    });
  }
  /// Collective: forwards of one batch, without gradients. figures(logits, part) returns a
  /// weighted_loss, an nn::tally, or nn::metrics, several of them by name. Returns the tally, or
  /// the metrics, of this replica.
  template <typename Batch, typename Figures>
  auto evaluate(const Batch& batch, Figures&& figures, call_site site = call_site::current()) {
    return with_call_context("evaluate", site, [&] { return figures_of(batch, figures, site); });
  }
  /// Collective: the model's result for one batch, without gradients, whole and on all ranks of the
  /// replica, in every layout: of a teacher, say. Micro-batches follow each other along axis 0. The
  /// model's mode stays as it is: module().eval() turns dropout off.
  template <typename Batch>
  [[nodiscard]] tensor<T> outputs(const Batch& batch, call_site site = call_site::current()) {
    return with_call_context("outputs", site, [&] {
      std::vector<tensor<T>> made;
      const auto keep = [&](const variable<T>& result, const auto&) {
        made.push_back(full_logits(result).value().contiguous());
        return nn::tally{};
      };
      figures_of(batch, keep, site);
      return joined_rows(made, this->strategy().stages(), this->strategy().last_stage(), site);
    });
  }

 protected:
  using any_parallel<T>::any_parallel;

 private:
  template <typename Batch, typename Figures>
  auto figures_of(const Batch& batch, Figures& figures, call_site site) {
    require_forward<Batch>();
    require_call<Figures, Batch>();
    const std::vector<Batch> parts = split(batch, batch_use::evaluation, site);
    using made = decltype(figures(std::declval<const variable<T>&>(), parts.front()));
    constexpr bool are_named = std::is_convertible_v<made, nn::metrics>;
    nn::metrics sums;
    const auto result = [&sums, &figures, &parts](std::size_t i, const variable<T>& x) {
      static_cast<void>(sums);  // captured in every instance, used by some
      if constexpr (are_named) {
        nn::add(sums, figures(x, parts[i]));
        return microbatch_result<T>{};
      } else {
        return microbatch_result<T>{result_of<T>(figures(x, parts[i])).figure};
      }
    };
    const nn::tally total = with_microbatches<T, Input>(
        std::span<const Batch>(parts), site, result,
        [&](const microbatches<T>& all) { return this->strategy().evaluate(all); });
    if constexpr (are_named) {
      process_group* const stages = this->strategy().stages();
      if (stages != nullptr) broadcast(*stages, sums, this->strategy().last_stage(), site);
      return sums;
    } else {
      return total;
    }
  }

  template <typename Function, typename Batch>
  static consteval void require_call() {
    static_assert(
        std::is_invocable_v<Function&, const variable<T>&, const Batch&>,
        "a criterion, or what makes figures, takes the model's result and the part of the "
        "batch that it is of: [](auto& logits, auto& part) { ... }");
  }
  template <typename Batch>
  static consteval void require_forward() {
    static_assert(!std::is_same_v<Input, no_input> || std::is_void_v<Batch>,
                  "a raw_module has no forward pass that parx knows: compute its gradients between "
                  "begin_backward(count) and end(), see ddp/raw.hpp, and its figures yourself");
  }

  template <typename Batch>
  [[nodiscard]] std::vector<Batch> split(const Batch& batch, batch_use use, call_site site) {
    if constexpr (is_batch_of_tensors<Batch>) {
      with_batch_members(batch, [](const auto&... members) {
        static_assert((... && requires { members.extent(0); }),
                      "the members of a batch are tensors, whose rows are its samples: a "
                      "std::vector goes as parx::tensor<T>::from(values, {n})");
      });
      const int count = this->strategy().parts_of(rows_of(batch), use);
      auto parts = count == 1 ? std::vector<Batch>{batch} : split_rows(batch, count);
      if (use == batch_use::step && this->strategy().pads_first()) {
        parts.insert(parts.begin(), rows_between(batch, 0, 0));
      }
      if constexpr (requires(Batch& part) { part.trim_padding(); }) {
        if (use == batch_use::step && this->layout_.replicas > 0) {
          for (Batch& part : parts) part.trim_padding();
        }
      }
      this->compare(std::span<const Batch>(parts), site);
      return parts;
    } else {
      const int count = this->strategy().parts_of(std::nullopt, use);
      require(count == 1,
              "parallel at {}: a batch that is no aggregate of tensors cannot be split into {} "
              "micro-batches",
              site, count);
      return {batch};
    }
  }
};

}  // namespace parx
