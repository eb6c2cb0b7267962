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
[[nodiscard]] inline std::map<std::string, std::string, std::less<>> parse_record(
    std::string_view line) {
  std::map<std::string, std::string, std::less<>> fields;
  std::string* value = nullptr;
  while (!line.empty()) {
    const auto end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const bool is_name =
        equals != word.npos && !name.empty() && name[0] >= 'A' && name[0] <= 'Z' &&
        name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_:/") ==
            name.npos;
    if (is_name) {
      value = &(fields[std::string(name)] = word.substr(equals + 1));
    } else if (value != nullptr && !word.empty()) {
      *value += ' ';
      *value += word;
    }
  }
  return fields;
}

}  // namespace parx::slurm
