// scan_arguments: the argument checks of scan and exscan.
#pragma once

#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI::detail {

template <typename In, typename Out, typename Options>
[[nodiscard]] collective_arguments scan_arguments(const process_group& group,
                                                  const collective_operation& called,
                                                  const In& input, Out& output,
                                                  const Options& options, call_site site) {
  const call_check check(group, called, site);
  collective_arguments given = check.arguments<scan_options>(input, output, options);
  check.same_count(given.input, given.output);
  given.count = given.input.count;
  check.require(
      given.combine.op != reduce_op::avg && given.combine.op != reduce_op::premul_sum,
      "{} is not defined for it, since each rank's result is an input of the next ranks'; use sum "
      "and scale the result",
      name_of(given.combine.op));
  return given;
}

}  // namespace parx::detail
