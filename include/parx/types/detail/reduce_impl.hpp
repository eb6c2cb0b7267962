// Definitions of reduce.hpp: the kernels of all element types.
#pragma once

#include <type_traits>

#include <parx/types/dtype.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE reduce_function reduce_kernel(dtype type, reduce_op op) {
  return visit_dtype(type,
                     [op]<typename T>(std::type_identity<T>) { return reduce_kernel_for<T>(op); });
}

PARX_INLINE scale_function scale_kernel(dtype type) {
  return visit_dtype(type, []<typename T>(std::type_identity<T>) {
    return detail::scale_kernel_for<T>();
  });
}

}  // namespace parx
