// What tests of checkpoints save, and what they find in the folder afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <messages.hpp>

#include <parx/checkpoint/manager.hpp>

namespace parx_test {

/// Whether an error mentions `part`, for BOOST_CHECK_EXCEPTION.
inline auto says(std::string_view part) {
  return [part](const parx::error& reason) {
    BOOST_TEST_MESSAGE(reason.what());
    return mentions(reason.what(), part);
  };
}

/// Parts with one tensor, all of whose elements are `fill`. They only refer to the elements.
struct filled {
  explicit filled(std::uint32_t fill, std::size_t count = 1000) : values(count, fill) {}
  [[nodiscard]] parx::checkpoint_parts parts() const {
    parx::checkpoint_parts result;
    result.add_tensors(
        "model", {{"w", parx::dtype::uint32, {values.size()}, std::as_bytes(std::span(values))}});
    return result;
  }
  std::vector<std::uint32_t> values;
};

inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename() != ".parx-lock") names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace parx_test
