// The template instances of optim in the compiled form (see parx/src.hpp).
#pragma once

#include <parx/optim/adamw.hpp>
#include <parx/optim/clip.hpp>
#include <parx/optim/sgd.hpp>
#include <parx/tensor/instances.hpp>

#define PARX_OPTIM_INSTANCES(form, T)                                                              \
  form template class detail::row_ledger<T, detail::adamw_rule<T>>;                                \
  form template class detail::row_ledger<T, detail::sgd_rule<T>>;                                  \
  form template class target<T>;                                                                   \
  form template class optimizer<adamw<T>, T, adamw_options, detail::adamw_rule<T>>;                \
  form template class optimizer<sgd<T>, T, sgd_options, detail::sgd_rule<T>>;                      \
  form template class adamw<T>;                                                                    \
  form template class sgd<T>;                                                                      \
  form template double clip_grad_norm<T>(const std::vector<target<T>>&, double, nonfinite,         \
                                         call_site);                                               \
  form template double clip_grad_norm<T>(const std::vector<parameter<T>>&, double, nonfinite,      \
                                         call_site);                                               \
  form template double detail::norm_of<T>(const std::vector<target<T>>&,                           \
                                          const std::vector<share_axes>&, const char*, call_site); \
  form template void scale_grad<T>(const std::vector<target<T>>&, double, double);                 \
  form template bool on_any_rank_of<T>(const std::vector<target<T>>&,                              \
                                       const std::vector<share_axes>&, bool, call_site);

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI::optim {
PARX_OPTIM_INSTANCES(extern, float)
PARX_OPTIM_INSTANCES(extern, double)
}  // namespace parx
#endif
