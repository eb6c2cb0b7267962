// The layout check: all ranks have parameters of the same name, shape and dtype, in the same order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/reduction_group.hpp>

namespace parx::inline PARX_ABI::detail {

/// "fc1.weight [128, 784] float32", "fc1.weight rows 0-63 of [128, 784] float32": must be equal on
/// all ranks of the parameter's group.
[[nodiscard]] inline std::string layout_of(const parameter_handle& parameter) {
  const row_gradient_part* const rows = parameter.row_gradient();
  const std::string& group = parameter.reduction_group();
  std::string text =
      formatted("{} {} {}", parameter.name(), parameter.spec().text(), name_of(parameter.type()));
  if (!group.empty()) return text + formatted(", summed over \"{}\"", group);
  // If only some ranks exchanged a gradient by rows, they would deadlock.
  return rows != nullptr && rows->expects_row_grad() ? text + " by rows" : text;
}

/// Collective over all `groups`. Throws errc::mismatch on every rank of a group unless all have the
/// same layout of its parameters.
void check_layout(const reduction_groups& groups,
                  const std::vector<std::unique_ptr<parameter_handle>>& parameters, call_site site);

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/ddp/detail/layout_impl.hpp>
#endif
