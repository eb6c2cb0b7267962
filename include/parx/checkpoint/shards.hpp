// safetensors_shards: the tensors of a model directory, whether they are in one file or in many.
//
// model.safetensors, or where it is not there the files that model.safetensors.index.json names, as
// Hugging Face's libraries write large models and look for them. Any number of threads may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/core/error.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

inline constexpr std::string_view model_file_name = "model.safetensors";
inline constexpr std::string_view shard_index_name = "model.safetensors.index.json";

/// The files that an index names, each with the tensors that are in it. Throws errc::io,
/// errc::bad_data.
[[nodiscard]] inline std::map<std::string, std::vector<std::string>> read_shard_index(
    const std::filesystem::path& index) {
  std::map<std::string, std::vector<std::string>> files;
  try {
    const json::value whole = json::parse(input_file(index.string()).whole_text());
    for (const auto& [tensor, file] : whole.at("weight_map").members()) {
      const std::string& name = file.text();
      if (name.find('/') != std::string::npos)
        throw json::error(fmt::format("\"{}\" is not the name of a file beside it", name));
      files[name].push_back(tensor);
    }
  } catch (const json::error& reason) {
    throw_error(errc::bad_data, "\"{}\" is damaged: {}.", index.string(), reason.what());
  }
  return files;
}

}  // namespace detail

class safetensors_shards {
 public:
  /// Throws errc::io or errc::bad_data: no model there, a shard missing or damaged, a tensor that
  /// the index promises and its file has not.
  explicit safetensors_shards(const std::filesystem::path& folder) : path_(folder.string()) {
    const auto whole = folder / detail::model_file_name;
    const auto index = folder / detail::shard_index_name;
    std::error_code failure;
    if (std::filesystem::exists(whole, failure) || !std::filesystem::exists(index, failure)) {
      add(safetensors_file(whole.string()), {});
    } else {
      for (const auto& [file, names] : detail::read_shard_index(index))
        add(safetensors_file((folder / file).string()), names);
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
    if (by_name_.size() != tensors_.size())
      throw_error(errc::bad_data, "\"{}\": two of its files have a tensor of one name.", path_);
  }

  /// All tensors; begin and end count within the file that a tensor is in.
  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const stored_tensor* find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// As safetensors_file::read; `tensor` is one of tensors().
  void read(const stored_tensor& tensor, std::span<std::byte> target) const {
    file_of(tensor).read(tensor, target);
  }
  void read(const stored_tensor& tensor, std::span<std::byte> target, std::uint64_t first) const {
    file_of(tensor).read(tensor, target, first);
  }

 private:
  void add(safetensors_file file, const std::vector<std::string>& promised) {
    for (const std::string& name : promised) {
      if (file.find(name) == nullptr) {
        throw_error(errc::bad_data, "\"{}\" has no tensor \"{}\", which the index says is there.",
                    file.path(), name);
      }
    }
    for (const stored_tensor& tensor : file.tensors()) {
      tensors_.push_back(tensor);
      owner_.push_back(files_.size());
    }
    files_.push_back(std::move(file));
  }

  [[nodiscard]] const safetensors_file& file_of(const stored_tensor& tensor) const noexcept {
    return files_[owner_[static_cast<std::size_t>(&tensor - tensors_.data())]];
  }

  std::string path_;
  std::vector<safetensors_file> files_;
  std::vector<stored_tensor> tensors_;
  std::vector<std::size_t> owner_;  // the file of each tensor
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace parx
