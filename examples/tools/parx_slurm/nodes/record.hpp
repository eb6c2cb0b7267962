// record: scontrol's one-line records, "PartitionName=long AllowGroups=ALL MaxTime=1:00:00". Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// The fields of one line of `scontrol show ... -o`. A value may contain spaces (Reason=bad disk):
/// it goes on to the next word that is a name with an equals sign behind it, and only names begin
/// with a capital letter. What comes before the first name is ignored.
[[nodiscard]] std::map<std::string, std::string, std::less<>> parse_record(std::string_view line);

}  // namespace parx::slurm
