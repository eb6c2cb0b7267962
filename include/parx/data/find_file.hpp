// find_file: finds the file or files of a data set in a folder by a part of their names. Local; any
// thread.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::data {

/// The paths of the files in `folder` whose names begin with `prefix` and hold `part`, in
/// alphabetical order. `what` names the wanted files in messages: "the IDX files". Throws errc::io
/// when the folder cannot be listed.
[[nodiscard]] inline std::vector<std::string> find_files(const std::string& folder,
                                                         std::string_view prefix,
                                                         std::string_view part,
                                                         std::string_view what) {
  std::error_code failure;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix) && name.find(part) != std::string::npos)
      found.push_back(it->path().string());
  }
  if (failure) {
    throw_error(errc::io, "cannot list the folder \"{}\": {}. Give the folder that holds {}.",
                folder, failure.message(), what);
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The only such file: "train" and ".csv" find train.csv, train_10k.csv.gz. Throws errc::io when
/// there is none or more than one.
[[nodiscard]] inline std::string find_file(const std::string& folder, std::string_view prefix,
                                           std::string_view part, std::string_view what) {
  const std::vector<std::string> found = find_files(folder, prefix, part, what);
  if (found.size() != 1) {
    throw_error(errc::io, "the folder \"{}\" holds {} files named \"{}*{}*\", expected one{}{}. {}",
                folder, found.size(), prefix, part, found.empty() ? "" : ": ",
                joined_text(found),
                found.empty() ? formatted("Give the folder that holds {}.", what)
                              : "Move the others away.");
  }
  return found.front();
}

}  // namespace parx::data
