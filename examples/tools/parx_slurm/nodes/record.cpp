#include "tools/parx_slurm/nodes/record.hpp"

namespace parx::inline PARX_ABI::slurm {

std::map<std::string, std::string, std::less<>> parse_record(std::string_view line) {
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
