// store_error: what a store's operations throw, for callers that must tell it from other errors.
#pragma once

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI {

class store_error final : public error {
 public:
  using error::error;
};

}  // namespace parx
