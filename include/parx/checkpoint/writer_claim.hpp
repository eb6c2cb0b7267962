// writer_claim: which start of a run may write checkpoints into a folder. Local.
//
// A claim is a hidden folder, in which its holder builds what it saves; to commit is to rename from
// there. The next claim on the same folder first takes away all that is in the earlier one, then
// that itself. So a process that was stopped or cut off meanwhile, and does not know that others go
// on in its place, finds neither what it was about to rename nor a place for anything new: after a
// claim is made, no earlier one can commit. That needs no clock and no lock, only that a rename is
// atomic, as on NFS.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/atomic_folder.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/random_hex.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::string_view claim_prefix = ".parx-claim-";

class writer_claim {
 public:
  /// None.
  writer_claim() = default;
  /// Makes one on `folder`, which exists, and ends all others. Throws errc::io. Of starts that do
  /// so at once one is the last; the claims of the others have ended when this returns.
  explicit writer_claim(const std::filesystem::path& folder) {
    std::uint64_t number = 0;
    for (const auto& [before, name] : claims_on(folder)) number = std::max(number, before);
    ++number;
    // A name that never comes back, on any host.
    const std::string name = formatted("{}{}-{}", claim_prefix, number, random_hex());
    const std::filesystem::path made = folder / name;
    if (::mkdir(made.c_str(), 0777) != 0) {
      throw_error(errc::io, "cannot write into \"{}\": {}. {}", folder.string(), errno_text(errno),
                  advice_for(errno));
    }
    path_ = made;
    // Every start looks after it has made its own: so the highest claim ends those that are there,
    // and those that come later see it.
    for (const auto& other : claims_on(folder)) {
      if (other > numbered(number, name)) end(made, folder);
      else if (other.second != name) end(folder / other.second, folder);
    }
  }
  writer_claim(writer_claim&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  writer_claim& operator=(writer_claim&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~writer_claim() {
    if (!path_.empty()) remove_all_quietly(path_);
  }

  /// The hidden folder; empty where there is none.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  /// In the order of the starts.
  using numbered = std::pair<std::uint64_t, std::string>;

  [[nodiscard]] static std::vector<numbered> claims_on(const std::filesystem::path& folder) {
    std::vector<numbered> found;
    std::error_code failure;
    for (const auto& each : std::filesystem::directory_iterator(folder, failure)) {
      const std::string name = each.path().filename().string();
      if (!name.starts_with(claim_prefix)) continue;
      const std::string_view behind = std::string_view(name).substr(claim_prefix.size());
      const std::string_view number = behind.substr(0, behind.find('-'));
      found.emplace_back(parse_number<std::uint64_t>(number).value_or(0), name);
    }
    return found;
  }

  /// Its holder may be about to rename something out of it, or to make something new in it.
  static void end(const std::filesystem::path& claim, const std::filesystem::path& folder) {
    static constexpr int most_tries = 1000;
    for (int i = 0; i < most_tries; ++i) {
      std::error_code failure;
      std::vector<std::filesystem::path> inside;
      for (const auto& each : std::filesystem::directory_iterator(claim, failure)) {
        inside.push_back(each.path());
      }
      for (const auto& each : inside) {
        // One rename, so that the holder's comes before it or finds nothing.
        const auto taken = hidden_beside(folder / each.filename());
        std::filesystem::rename(each, taken, failure);
        if (!failure) std::filesystem::remove_all(taken, failure);
      }
      if (::rmdir(claim.c_str()) == 0 || errno == ENOENT) return;
      if (errno != ENOTEMPTY && errno != EEXIST) break;
    }
    throw_error(errc::io,
                "\"{}\", which an earlier start of this run has left, cannot be removed: {}. {}",
                claim.string(), errno_text(errno), advice_for(errno));
  }

  std::filesystem::path path_;
};

}  // namespace parx::detail
