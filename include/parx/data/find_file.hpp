// find_file: finds the file or files of a data set in a folder by a part of their names. Local; any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::data {

/// The paths of the files in `folder` whose names begin with `prefix` and hold `part`, in
/// alphabetical order. `what` names the wanted files in messages: "the IDX files". Throws errc::io
/// when the folder cannot be listed.
[[nodiscard]] std::vector<std::string> find_files(const std::string& folder,
                                                  std::string_view prefix, std::string_view part,
                                                  std::string_view what);

/// The only such file: "train" and ".csv" find train.csv, train_10k.csv.gz. Throws errc::io when
/// there is none or more than one.
[[nodiscard]] std::string find_file(const std::string& folder, std::string_view prefix,
                                    std::string_view part, std::string_view what);

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/detail/find_file_impl.hpp>
#endif
