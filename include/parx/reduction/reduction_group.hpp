// reduction_group: the ranks over which the gradient of a parameter is summed.
//
//   norm.weight().reduce_over("dp+tp");
//   parx::ddp ddp{model, dp, {.reduction_groups = {{"dp+tp", all}}}};
//
// A parameter has the name of a group, and ddp_options::reduction_groups maps names to groups; a
// parameter without a name is summed over the ddp's own group. Whatever the group, the sum is
// divided by the samples of the ddp's own group, whose ranks share the data, so that each sample
// counts once:
//   sequence-parallel norms: own group dp, reduction group dp x tp, since each of its ranks has a
//     part of the gradient;
//   an embedding that the first and the last pipeline stage share: own group the stage's dp,
//     reduction group the dp of both stages. The last stage sends the gradient of its inputs before
//     it waits for these sums: backward_inputs(), send, weights();
//   hybrid sharding, experts: own group all data ranks, reduction group the ranks that hold the
//     same part.
// All ranks of a group have the parameters with its name, with equal names and shapes and in the
// same order; other ranks need not have them. The ranks of a group must count the same samples.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI {

struct reduction_group {
  std::string name;
  process_group& group;  ///< borrowed; this rank is one of its ranks
};

/// The groups of a wrapper by index: 0 is its own, the others follow in the order of their names.
///
/// Blocking operations on several groups are issued in this order. It is the same on all ranks,
/// except that a rank may lack some of the groups, so there is no deadlock.
class reduction_groups {
 public:
  /// `who` begins the errors: "ddp at train.cpp:12".
  reduction_groups(process_group& own, std::vector<reduction_group> others, std::string who);

  [[nodiscard]] const std::string& who() const noexcept { return who_; }
  [[nodiscard]] std::size_t size() const noexcept { return groups_.size(); }
  [[nodiscard]] process_group& operator[](std::size_t number) const noexcept {
    return *groups_[number].group;
  }
  [[nodiscard]] const std::string& name(std::size_t number) const noexcept {
    return groups_[number].name;
  }

  /// Throws usage_error if the parameter's group name is unknown.
  [[nodiscard]] std::size_t number_of(const parameter_handle& parameter) const;

  /// Whether every group has one rank: there is nothing to sum.
  [[nodiscard]] bool is_alone() const noexcept {
    return std::all_of(groups_.begin(), groups_.end(),
                       [](const named& each) { return each.group->size() == 1; });
  }
  [[nodiscard]] double async_seconds() const noexcept {
    double sum = 0;
    for (const named& each : groups_) sum += each.group->async_seconds();
    return sum;
  }
  /// Closes all groups in which other ranks may wait for this one.
  void abort(std::string_view reason) const {
    for (const named& each : groups_) {
      if (each.group->size() > 1 && !each.group->closed()) each.group->abort(reason);
    }
  }
  /// The same in a destructor, see process_group::abort_for_now.
  void abort_for_now(std::string_view place) const noexcept {
    for (const named& each : groups_) {
      if (each.group->size() > 1 && !each.group->closed()) each.group->abort_for_now(place);
    }
  }

 private:
  struct named {
    std::string name;
    process_group* group;
  };

  std::string who_;
  std::vector<named> groups_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/reduction/detail/reduction_group_impl.hpp>
#endif
