// Refuses rows of which this rank has only a part: where a layer is cut by columns over ranks
// (tensor parallelism), its result is a part of each row, and a function of whole rows (a largest
// class, a softmax, a loss) would silently be one of the part.
//
// tensor::note_cut_axis() notes it, where such a layer makes its result.
#pragma once

#include <cstddef>
#include <string_view>

#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

[[noreturn, gnu::noinline]] inline void refuse_cut_rows(std::string_view call, call_site site,
                                                        const shape& s, std::size_t whole) {
  throw_usage(
      "{} at {}: this rank has {} of the {} values of each row (shape {}), because a layer that is "
      "cut by columns has computed them; each rank would go on with a result of its own. Give it "
      "tp.whole_logits(logits), with what parallelize() returned as tp; the plan's line for that "
      "layer is parx::tp::head",
      call, site, s.back(), whole, to_string(s));
}

}  // namespace detail

/// Throws usage_error, which begins with `call`, where the rows of `x` (along its last axis) are
/// parts.
template <typename T>
void require_whole_rows(const tensor<T>& x, std::string_view call, call_site site) {
  if (const std::size_t whole = x.whole_row(); whole != 0) [[unlikely]]
    detail::refuse_cut_rows(call, site, x.shape(), whole);
}

}  // namespace parx
