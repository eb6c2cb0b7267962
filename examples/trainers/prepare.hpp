// --cache and --prepare of the trainers of texts: token caches and vocabularies are made before a
// run, where there is internet and a fast file system, so that the ranks only read them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "common/shell_text.hpp"
#include <parx/core/log.hpp>
#include <parx/data.hpp>
#include <parx/launch.hpp>

namespace examples {

inline void add_cache_flags(cxxopts::Options& options) {
  options.add_options("Data")
      ("cache", "folder for tokenised texts and vocabularies", text(""))
      ("prepare", "fill --cache, check what is in it, and end", cxxopts::value<bool>());
}

/// The folder of --cache. Throws parx::usage_error for --prepare with nothing to prepare. `texts`:
/// a file of the texts, empty for built-in ones.
[[nodiscard]] inline std::string cache_flag(const cxxopts::ParseResult& given,
                                            const std::string& texts) {
  const auto folder = given["cache"].as<std::string>();
  if (given["prepare"].as<bool>()) {
    parx::require(!folder.empty(), "--prepare fills the folder of --cache, which is not given");
    parx::require(!texts.empty(), "--prepare: built-in texts need no cache; name files of texts");
  }
  return folder;
}

/// A vocabulary in words, with the share of the tokens of `texts` that it does not have: a large
/// one says that it belongs to other texts.
template <typename Texts>
[[nodiscard]] std::string vocabulary_text(const parx::data::wordpiece_tokenizer& tokenizer,
                                          const Texts& texts) {
  std::size_t unknown = 0, all = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (const auto id : texts.tokens(i)) unknown += id == tokenizer.unknown_id() ? 1U : 0U;
    all += texts.tokens(i).size();
  }
  return fmt::format("vocabulary of {} words, {:.2f} % of the tokens unknown", tokenizer.size(),
                     100.0 * static_cast<double>(unknown) / static_cast<double>(all));
}

/// What a run needs of the cache, in words, and where it came from.
struct cached_part {
  std::string what;
  parx::data::cache_use use;
};

/// Says what was in the cache. Returns whether that was all that was asked for (--prepare);
/// otherwise ranks that had to make something name the command that makes it before. Throws
/// errc::io where --prepare could not write.
[[nodiscard]] inline bool is_prepared(const parx::world& world, const cxxopts::ParseResult& given,
                                      const std::string& folder,
                                      const std::vector<cached_part>& parts, int argc,
                                      const char* const* argv) {
  using parx::data::cache_use;
  if (folder.empty()) return false;
  bool all_found = true, all_kept = true;
  for (const cached_part& each : parts) {
    all_found = all_found && each.use == cache_use::found;
    all_kept = all_kept && each.use != cache_use::none;
  }
  if (given["prepare"].as<bool>()) {
    for (const cached_part& each : parts) {
      const char* const state = each.use == cache_use::found  ? "was there, and is whole"
                                : each.use == cache_use::made ? "made"
                                : each.use == cache_use::none ? "not kept"
                                                              : "was damaged; made again";
      parx::print0(world, "{}: {}\n", each.what, state);
    }
    if (!all_kept) parx::throw_error(parx::errc::io, "--cache {} cannot be written", folder);
    parx::print0(world, "{} is prepared{}\n", folder,
                 all_found ? ": there was nothing to do" : "");
    return true;
  }
  // One process of a host makes what is missing; where none can write, rank 0 speaks for all.
  if (!all_found && (all_kept || world.rank() == 0)) {
    std::vector<std::string> command_line;
    for (int i = 0; i < argc; ++i) command_line.emplace_back(argv[i]);
    command_line.emplace_back("--prepare");
    parx::log(parx::log_level::warn,
              "--cache {} did not have what this run needs, so it was made now. Where all nodes "
              "see the folder, make it before: {}",
              folder, parx::slurm::shell_text(command_line));
  }
  return false;
}

}  // namespace examples
