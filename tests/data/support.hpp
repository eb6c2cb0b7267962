// What the data tests share: a folder of their own, files plain and gzip, and the real data sets.
#pragma once

#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace parx_test {

/// A folder that is removed with everything in it when the test case ends.
class scratch_folder {
 public:
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "parx-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed for " + name);
    path_ = name;
  }
  ~scratch_folder() { std::filesystem::remove_all(path_); }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  [[nodiscard]] std::string file(std::string_view name) const { return (path_ / name).string(); }

  /// Writes `contents` to a new file and returns its path.
  [[nodiscard]] std::string write(std::string_view name, std::string_view contents) const {
    std::ofstream(file(name), std::ios::binary)
        .write(contents.data(), static_cast<std::streamsize>(contents.size()));
    return file(name);
  }

  [[nodiscard]] std::string write_gzip(std::string_view name, std::string_view contents) const {
    gzFile out = gzopen(file(name).c_str(), "wb");
    gzwrite(out, contents.data(), static_cast<unsigned>(contents.size()));
    gzclose(out);
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

[[nodiscard]] inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// An IDX file: magic, extents, then the values, all but the values as big-endian 32 bits.
[[nodiscard]] inline std::string idx_bytes(std::initializer_list<std::uint32_t> header,
                                           std::string_view values) {
  std::string bytes;
  for (const std::uint32_t number : header) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<char>(number >> shift));
  }
  return bytes.append(values);
}

/// The folder of a real data set: PARX_TEST_DATA/<name>, else Debian's /usr/share/datasets/<name>.
/// Where neither exists, nullopt and a line that cannot be overlooked.
[[nodiscard]] inline std::optional<std::string> real_data(const std::string& name) {
  if (const char* root = std::getenv("PARX_TEST_DATA"); root != nullptr) {
    if (const auto path = std::filesystem::path(root) / name; std::filesystem::exists(path))
      return path.string();
  }
  if (const auto path = "/usr/share/datasets/" + name; std::filesystem::exists(path)) return path;
  fmt::print("SKIPPED: no data set \"{0}\"; set PARX_TEST_DATA to a folder that holds {0}/\n",
             name);
  return std::nullopt;
}

}  // namespace parx_test
