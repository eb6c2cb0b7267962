// copy_failure: what srun and sbcast say of nodes to which they could not copy a file, and what the
// node itself then says of its room. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

struct copy_failure {
  std::string node;
  std::string says;  ///< the line
};

/// Of nodes that have answered: "srun: error: REQUEST_FILE_BCAST(n2): Unspecified error", which is
/// what a full file system has there. Others are cut off or stopped, and not among them.
[[nodiscard]] std::vector<copy_failure> copy_failures(std::string_view errors);

/// The free room in MB by `df -Pk PATH`; nullopt where it says none.
[[nodiscard]] std::optional<std::int64_t> free_mb_of_df(std::string_view output);

}  // namespace parx::slurm
