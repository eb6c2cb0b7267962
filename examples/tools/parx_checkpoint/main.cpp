// parx_checkpoint: lists, verifies and compares checkpoints, model folders and safetensors files,
// and merges the shards of many ranks into one file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/parx_checkpoint/paths.hpp"
#include <parx/checkpoint.hpp>
#include <parx/core/did_you_mean.hpp>
#include <parx/core/printable.hpp>

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> commands{"info", "verify", "merge", "diff"};
constexpr std::string_view usage =
    "Looks at checkpoints, model folders and safetensors files\nUsage:\n"
    "  parx_checkpoint info PATH          the tensors, their types, shapes and sizes\n"
    "  parx_checkpoint verify PATH        checksums; shards that are missing, of several steps,\n"
    "                                     with holes or overlaps. Exits with 1 where it finds one\n"
    "  parx_checkpoint merge FOLDER FILE.safetensors [PART]   one file of all shards of PART "
    "(model)\n"
    "  parx_checkpoint diff PATH PATH     the tensors that differ, and by how much. Exits with 1\n"
    "                                     where they do\n"
    "Guide: examples/guide/shard.md\n";

/// Prints a line. Names come from untrusted files, so terminal control characters are escaped.
template <typename... Args>
void print_line(fmt::format_string<Args...> text, Args&&... args) {
  fmt::print("{}\n", parx::printable(fmt::vformat(text, fmt::make_format_args(args...))));
}

std::string readable(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

int info(const fs::path& path) {
  if (fs::exists(path / "manifest.json")) {
    const auto saved = parx::saved_checkpoint::open(path, parx::checkpoint_check::sizes);
    print_line("checkpoint of step {}{}", saved.step(),
               saved.metric() ? fmt::format(", metric {}", *saved.metric()) : "");
    for (const auto& file : saved.manifest().files)
      print_line("  {}  {}", file.name, readable(file.bytes));
  }
  if (fs::exists(path / "config.json"))
    fmt::print("config.json\n{}\n", parx::json::dump(parx::load_config(path), 2));
  for (const auto& [name, part] : examples::tensors_at(path)) {
    print_line("{}, {} file{}", name, part.files().size(), part.files().size() == 1 ? "" : "s");
    std::size_t widest = 0;
    std::uint64_t bytes = 0;
    for (const auto& tensor : part.tensors()) widest = std::max(widest, tensor.name.size());
    for (const auto& tensor : part.tensors()) {
      print_line("  {:<{}}  {:<8} {:>12}  [{}]", tensor.name, widest, tensor.dtype_name,
                 readable(tensor.end - tensor.begin), fmt::join(tensor.shape, ", "));
      bytes += tensor.end - tensor.begin;
    }
    print_line("  {} tensors, {}", part.tensors().size(), readable(bytes));
  }
  return 0;
}

int verify(const fs::path& path) {
  const auto faults = parx::faults_of(examples::with_tensors(path));
  for (const std::string& fault : faults) print_line("{}", fault);
  if (faults.empty()) print_line("\"{}\" is whole", path.string());
  return faults.empty() ? 0 : 1;
}

int merge(const fs::path& from, const std::string& to, const std::string& part) {
  parx::merge_shards(examples::tensors_of(examples::with_tensors(from), part), to);
  return 0;
}

int diff(const fs::path& a, const fs::path& b) {
  const auto first = examples::tensors_at(a), second = examples::tensors_at(b);
  bool same = true;
  const auto only = [&](const auto& parts, const auto& others, const fs::path& path) {
    for (const auto& [name, part] : parts) {
      if (others.contains(name)) continue;
      same = false;
      print_line("{}: only in {}", name, path.string());
    }
  };
  only(first, second, a);
  only(second, first, b);
  for (const auto& [name, part] : first) {
    if (!second.contains(name)) continue;
    const auto report = parx::differences_of(part, second.at(name));
    same = same && report.empty();
    for (const auto& each : report.names.missing) print_line("{}: only in {}", each, a.string());
    for (const auto& each : report.names.unexpected) print_line("{}: only in {}", each, b.string());
    for (const auto& each : report.names.mismatched) print_line("{}", each);
    for (const auto& each : report.values) {
      print_line("{}: {} elements differ, most by {:.3g}: element {} is {} and {}", each.name,
                 each.elements, each.largest, each.where, each.first, each.second);
    }
  }
  if (same) print_line("no differences");
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string command = words.empty() ? "" : words[0];
  const bool is_known = std::count(commands.begin(), commands.end(), command) > 0;
  try {
    if (command == "info" && words.size() == 2) return info(words[1]);
    if (command == "verify" && words.size() == 2) return verify(words[1]);
    if (command == "merge" && (words.size() == 3 || words.size() == 4))
      return merge(words[1], words[2], words.size() == 4 ? words[3] : "model");
    if (command == "diff" && words.size() == 3) return diff(words[1], words[2]);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "parx_checkpoint: %s\n", parx::printable(failure.what()).c_str());
    return 2;
  }
  const bool wants_help = command == "-h" || command == "--help";
  if (!wants_help && !command.empty() && !is_known)
    fmt::print(stderr, "parx_checkpoint: there is no command \"{}\"{}\n", parx::printable(command),
               parx::meant_question(parx::did_you_mean(command, commands)));
  fmt::print(wants_help ? stdout : stderr, usage);
  return wants_help ? 0 : 2;
}
