// The layout check: all ranks have parameters of the same name, shape and dtype, in the same order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/reduction_group.hpp>

namespace parx::inline PARX_ABI::detail {

/// "fc1.weight [128, 784] float32", "fc1.weight rows 0-63 of [128, 784] float32": must be equal on
/// all ranks of the parameter's group.
[[nodiscard]] std::string layout_of(const parameter_handle& parameter);

/// Collective over all `groups`. Throws errc::mismatch on every rank of a group unless all have the
/// same layout of its parameters.
void check_layout(const reduction_groups& groups,
                         const std::vector<std::unique_ptr<parameter_handle>>& parameters,
                         call_site site);

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/ddp/detail/layout_impl.hpp>
#endif
