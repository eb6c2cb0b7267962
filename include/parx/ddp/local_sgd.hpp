// local_sgd: each rank trains by itself, and the ranks average their parameters every few steps.
//
//   parx::local_sgd average{model.parameters(), world, {.sync_every = 32}};  // rank 0's values
//   ... loss.backward(); opt.step(); average.step();
//
// For slow links: an average every H steps sends 1/H of what ddp sends. The model is not wrapped;
// its gradients and the optimizer's state stay each rank's own, and so do its buffers. Source:
// Stich, Local SGD Converges Fast and Communicates Little, 2019; the names are torchft's.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

struct local_sgd_options {
  std::uint64_t sync_every = 32;   ///< steps of the optimizer from one average to the next
  std::uint64_t warmup_steps = 0;  ///< the first steps, each followed by an average
};

namespace detail {

/// To be called before values are read and written: what a wrapper still owes to them is applied.
template <typename T>
void prepare_values(const std::vector<parameter<T>>& parameters) {
  for (const parameter<T>& each : parameters) {
    if (each.observer() != nullptr) each.observer()->before_write();
  }
}

/// The values of all parameters, prepared, as buffers of one collective.
template <typename T>
[[nodiscard]] std::vector<buffer_view> value_views(const std::vector<parameter<T>>& parameters) {
  prepare_values(parameters);
  std::vector<buffer_view> views;
  for (const parameter<T>& each : parameters) views.push_back(view_of(each.value()));
  return views;
}

/// Counts the steps from one synchronisation to the next.
class sync_schedule {
 public:
  sync_schedule(std::uint64_t every, std::uint64_t warmup, const char* what, call_site site)
      : every_(every), warmup_(warmup) {
    require(every >= 1,
            "{} at {}: sync_every is 0; give the steps from one synchronisation to the "
            "next",
            what, site);
  }
  /// After a step: calls `synchronize` where it is time, and returns whether it was.
  template <typename Synchronize>
  bool step(Synchronize synchronize) {
    ++since_;
    if (steps_ < warmup_) ++steps_;
    else if (since_ < every_) return false;
    since_ = 0;
    synchronize();
    return true;
  }
  /// Calls it now, unless no step has been made since the last time.
  template <typename Synchronize>
  void finish(Synchronize synchronize) {
    if (since_ == 0) return;
    synchronize();
    since_ = 0;
  }

 private:
  std::uint64_t every_, warmup_;
  std::uint64_t steps_ = 0;  // of the warm-up
  std::uint64_t since_ = 0;
};

}  // namespace detail

template <typename T>
class local_sgd {
 public:
  /// Collective. All ranks get rank 0's values. `group` must outlive this. Throws usage_error for
  /// sync_every = 0 or no parameters.
  local_sgd(std::vector<parameter<T>> parameters, process_group& group,
            local_sgd_options options = {}, call_site site = call_site::current())
      : parameters_(std::move(parameters)),
        group_(group),
        schedule_(options.sync_every, options.warmup_steps, "local_sgd", site) {
    require(!parameters_.empty(), "local_sgd at {}: there are no parameters to average", site);
    broadcast_coalesced(group_, detail::value_views(parameters_), {.root = 0}, site);
  }

  /// Collective, after each step of the optimizer: every sync_every steps all parameters become
  /// their mean over the ranks, in rank order, with the same bits on all of them. Returns whether
  /// they did. Throws parx::error when communication fails.
  bool step(call_site site = call_site::current()) {
    return schedule_.step([&] { average(site); });
  }

  /// Collective. Averages now, unless no step has been made since the last time: before saving.
  void synchronize(call_site site = call_site::current()) {
    schedule_.finish([&] { average(site); });
  }

 private:
  void average(call_site site) {
    all_reduce_coalesced(group_, detail::value_views(parameters_),
                         {.op = reduce_op::avg, .order = reduction_order::serial}, site);
  }

  std::vector<parameter<T>> parameters_;
  process_group& group_;
  detail::sync_schedule schedule_;
};

template <typename T>
local_sgd(parameter_list<T>, process_group&, local_sgd_options = {}) -> local_sgd<T>;

}  // namespace parx
