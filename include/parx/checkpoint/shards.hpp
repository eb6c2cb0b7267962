// safetensors_shards: the tensors of a folder, whether they are in one file or in many.
//
// <name>.safetensors, or where it is not there the files that <name>.safetensors.index.json names:
// each with tensors of its own, as Hugging Face's libraries write large models, or each with the
// parts of tensors that a rank had (shard_index.hpp). Of parts only those files are opened that
// something is read from, and of very many each only while it is read, so that their number is not
// bounded by that of the files that a process may have open. Any number of threads may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/core/error.hpp>
#include <parx/core/json.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

inline constexpr std::string_view model_file_name = "model.safetensors";
inline constexpr std::string_view model_index_name = "model.safetensors.index.json";

/// Of an index: each file, with the whole tensors that it promises to be there. Throws json::error.
[[nodiscard]] std::map<std::string, std::vector<std::string>> files_in_index(
    const json::value& index);

}  // namespace detail

class safetensors_shards {
 public:
  /// Throws errc::io or errc::bad_data: no such tensors there, a shard missing or damaged, a tensor
  /// that the index promises and its file has not, parts that are not the whole of their tensor.
  explicit safetensors_shards(const std::filesystem::path& folder, std::string_view name = "model");

  /// All tensors, with their global shapes; begin and end count within the file that a whole tensor
  /// is in, and of parts they say how many bytes the tensor has.
  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const stored_tensor* find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  /// The folder.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Names of the files beside the index, which may not be there.
  [[nodiscard]] std::vector<std::string> files() const;
  /// Whether tensors are in parts, and the step that they were saved at.
  [[nodiscard]] std::optional<std::uint64_t> step() const noexcept { return step_; }

  /// As safetensors_file::for_each_source; `tensor` is one of tensors(). Throws errc::io,
  /// errc::bad_data for a file that is missing, damaged, or of another step than the index.
  template <typename Use>
  void for_each_source(const stored_tensor& tensor, const shard_spec& part, Use&& use) const {
    for (const detail::placed_part& piece : parts_[static_cast<std::size_t>(
             &tensor - tensors_.data())]) {
      const safetensors_file* file = nullptr;
      const stored_tensor* stored = nullptr;
      std::optional<detail::input_file::reading> reading;
      for_each_common_run(piece.spec, part, [&](std::size_t first, std::size_t local,
                                                std::size_t count) {
        if (file == nullptr) {
          file = &opened(piece.file);
          reading.emplace(file->input());
          stored = &stored_in(*file, tensor, piece.spec);
        }
        use(*file, *stored, first, local, count);
      });
    }
  }

 private:
  struct member {
    std::string name;
    std::once_flag once = {};
    std::optional<safetensors_file> file = {};
  };

  void read_index(const std::filesystem::path& path);

  void read_parts(detail::shard_index index, const std::filesystem::path& path);

  /// Whether the files are there, on all ranks alike, and large enough for the parts: what comes
  /// next takes time and memory that grow with these.
  void require_room(const detail::shard_index& index) const;

  /// A file of whole tensors.
  void add_file(const std::string& name, const std::vector<std::string>& promised);

  [[nodiscard]] const safetensors_file& opened(std::size_t number) const;

  void require_step(const safetensors_file& file) const;

  /// The tensor in `file` that `part` of `tensor` is.
  [[nodiscard]] static const stored_tensor& stored_in(const safetensors_file& file,
                                                      const stored_tensor& tensor,
                                                      const shard_spec& part);

  /// Far below the 1024 that processes are usually allowed, of which sockets take many.
  static constexpr std::size_t most_open = 64;

  std::string path_;
  bool shares_descriptors_ = false;
  std::optional<std::uint64_t> step_;
  std::vector<std::unique_ptr<member>> files_;
  std::vector<stored_tensor> tensors_;
  std::vector<std::vector<detail::placed_part>> parts_;  // of tensors_, at the same index
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/shards_impl.hpp>
#endif
