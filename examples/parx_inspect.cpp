// parx_inspect: what is in a safetensors file, a model directory or a checkpoint, and whether it is
// whole.
//
//   parx_inspect model.safetensors
//   parx_inspect out/checkpoint-500      # verifies checksums as well
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/ranges.h>

#include <parx/checkpoint.hpp>

namespace {

namespace fs = std::filesystem;

std::string readable(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

template <typename File>
void print_tensors(const File& file) {
  std::size_t widest = 0;
  std::uint64_t bytes = 0;
  for (const auto& tensor : file.tensors()) widest = std::max(widest, tensor.name.size());
  for (const auto& tensor : file.tensors()) {
    fmt::print("  {:<{}}  {:<8} {:>12}  [{}]\n", tensor.name, widest, tensor.dtype_name,
               readable(tensor.end - tensor.begin), fmt::join(tensor.shape, ", "));
    bytes += tensor.end - tensor.begin;
  }
  fmt::print("  {} tensors, {}\n", file.tensors().size(), readable(bytes));
}

void print_file(const fs::path& path) {
  const parx::safetensors_file file(path.string());
  fmt::print("{}\n", path.filename().string());
  for (const auto& [key, value] : file.metadata()) fmt::print("  metadata {}: {}\n", key, value);
  print_tensors(file);
}

void print_checkpoint(const fs::path& path) {
  const auto checkpoint = parx::saved_checkpoint::open(path);
  fmt::print("checkpoint of step {}", checkpoint.step());
  if (checkpoint.metric()) fmt::print(", metric {}", *checkpoint.metric());
  fmt::print(", {} files, all checksums right\n", checkpoint.manifest().files.size());
  for (const auto& file : checkpoint.manifest().files) {
    if (file.name.ends_with(".safetensors")) {
      print_file(path / file.name);
    } else {
      fmt::print("{}\n  {}\n", file.name, readable(file.bytes));
    }
  }
}

void print_model(const fs::path& path) {
  if (fs::exists(path / "config.json"))
    fmt::print("config.json\n{}\n", parx::json::dump(parx::load_config(path), 2));
  const parx::safetensors_shards files(path);
  fmt::print("model\n");
  print_tensors(files);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  const bool wants_help = first == "-h" || first == "--help";
  if (argc != 2 || first.empty() || first.front() == '-') {
    fmt::print(wants_help ? stdout : stderr,
               "Shows the tensors of a file, and of a checkpoint whether it is whole\nUsage:\n"
               "  parx_inspect FILE.safetensors | MODEL_FOLDER | CHECKPOINT_FOLDER\n");
    return wants_help ? 0 : 2;
  }
  try {
    const fs::path path = argv[1];
    if (!fs::is_directory(path)) {
      print_file(path);
    } else if (fs::exists(path / "manifest.json")) {
      print_checkpoint(path);
    } else {
      print_model(path);
    }
    return 0;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    return 1;
  }
}
