// diloco: local SGD whose averages are steps of an outer optimizer.
//
//   parx::diloco outer{model.parameters(), world, {.sync_every = 100}};   // rank 0's values
//   optim::adamw inner{model.parameters(), {.lr = 4e-4}};
//   ... loss.backward(); inner.step(); outer.step();
//
// Every sync_every steps, with w the parameters at the last synchronisation and w_r those of rank
// r:
//
//   g = mean over the ranks of (w - w_r);   v = momentum * v + g;   w -= lr * (g + momentum * v)
//
// and all ranks go on from w: SGD with Nesterov's momentum on the outer gradient g. lr = 1 without
// momentum is local_sgd. Source: Douillard et al., DiLoCo: Distributed Low-Communication Training
// of Language Models, 2023, algorithm 1; its best lr is 0.7, its momentum 0.9.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/comm.hpp>
#include <parx/core/check.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/local_sgd.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

struct diloco_options {
  std::uint64_t sync_every = 100;  ///< inner steps from one outer step to the next
  double lr = 0.7;                 ///< of the outer optimizer
  double momentum = 0.9;           ///< of the outer optimizer
};

template <typename T>
class diloco {
 public:
  /// Collective. All ranks get rank 0's values. `group` must outlive this. Takes twice the memory
  /// of the parameters (in float for 16-bit ones). Throws usage_error for sync_every = 0, a
  /// negative lr or momentum, or no parameters.
  diloco(std::vector<parameter<T>> parameters, process_group& group, diloco_options options = {},
         call_site site = call_site::current())
      : parameters_(std::move(parameters)),
        group_(group),
        options_(options),
        schedule_(options.sync_every, 0, "diloco", site) {
    require(!parameters_.empty(), "diloco at {}: there are no parameters to train", site);
    require(options.lr >= 0 && options.momentum >= 0,
            "diloco at {}: lr {} and momentum {} must not be negative", site, options.lr,
            options.momentum);
    broadcast_coalesced(group_, detail::value_views(parameters_), {.root = 0}, site);
    for (const parameter<T>& each : parameters_) {
      outer_.push_back(each.value().template cast<number>().clone());
      momentum_.push_back(tensor<number>::zeros(each.value().shape()));
    }
  }

  /// Collective, after each step of the inner optimizer. Returns whether the outer one has made a
  /// step. The values are then the same bits on all ranks. Throws parx::error when communication
  /// fails.
  bool step(call_site site = call_site::current()) {
    return schedule_.step([&] { outer_step(site); });
  }

  /// Collective. Makes an outer step now, unless no inner step has been made since the last one:
  /// before saving.
  void synchronize(call_site site = call_site::current()) {
    schedule_.finish([&] { outer_step(site); });
  }

  /// For save_state and load_state: "0.weight.outer" and "0.weight.outer_momentum".
  template <typename Visitor>
  void for_each_state(Visitor&& visitor) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      visitor(parameters_[i].name() + ".outer", outer_[i]);
      visitor(parameters_[i].name() + ".outer_momentum", momentum_[i]);
    }
  }

 private:
  using number = arithmetic_type<T>;

  void outer_step(call_site site) {
    detail::prepare_values(parameters_);
    std::vector<tensor<number>> gradients;
    std::vector<buffer_view> views;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      gradients.push_back(tensor<number>::empty(outer_[i].shape()));
      const T* const value = parameters_[i].value().data();
      const number* const outer = outer_[i].data();
      number* const g = gradients.back().data();
      for_each_element(gradients.back().size(),
                       [=](std::size_t k) { g[k] = outer[k] - static_cast<number>(value[k]); });
      views.push_back(view_of(gradients.back()));
    }
    all_reduce_coalesced(group_, views, {.op = reduce_op::avg, .order = reduction_order::serial},
                         site);
    const auto lr = static_cast<number>(options_.lr);
    const auto keep = static_cast<number>(options_.momentum);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      T* const value = parameters_[i].value().data();
      number* const outer = outer_[i].data();
      number* const v = momentum_[i].data();
      const number* const g = gradients[i].data();
      for_each_element(gradients[i].size(), [=](std::size_t k) {
        v[k] = keep * v[k] + g[k];
        outer[k] -= lr * (g[k] + keep * v[k]);
        value[k] = static_cast<T>(outer[k]);
      });
    }
  }

  std::vector<parameter<T>> parameters_;
  process_group& group_;
  diloco_options options_;
  detail::sync_schedule schedule_;
  std::vector<tensor<number>> outer_;     // w at the last synchronisation
  std::vector<tensor<number>> momentum_;  // v
};

template <typename T>
diloco(parameter_list<T>, process_group&, diloco_options = {}) -> diloco<T>;

}  // namespace parx
