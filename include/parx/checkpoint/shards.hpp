// safetensors_shards: the tensors of a folder, in one file or in many.
//
// Reads <name>.safetensors or, if that does not exist, the files that <name>.safetensors.index.json
// names. Each of these has different tensors, as Hugging Face's libraries write large models, or
// one rank's parts of the tensors (shard_index.hpp). Files of parts are opened only when something
// is read from them. If there are very many files, each is open only while it is read, so their
// number is not limited by RLIMIT_NOFILE. Any number of threads may read.
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
#include <parx/checkpoint/shard_files.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/core/json.hpp>
#include <parx/tensor/shard_spec.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

inline constexpr std::string_view model_file_name = "model.safetensors";
inline constexpr std::string_view model_index_name = "model.safetensors.index.json";

/// The files of an index, each with the names of the whole tensors that the index places there.
/// Throws json::error.
[[nodiscard]] std::map<std::string, std::vector<std::string>> files_in_index(
    const json::value& index);

}  // namespace detail

class safetensors_shards {
 public:
  /// Throws errc::io or errc::bad_data if there is no file of that name, a shard is missing or
  /// damaged, a file lacks a tensor of the index, or parts do not cover their tensor.
  explicit safetensors_shards(const std::filesystem::path& folder, std::string_view name = "model");
  /// A single file, of any name. Throws as safetensors_file does.
  [[nodiscard]] static safetensors_shards of_file(const std::filesystem::path& file);

  /// All tensors, with their global shapes. For a whole tensor begin and end are offsets in its
  /// file; for a tensor in parts begin is 0 and end is the number of bytes of the whole tensor.
  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const stored_tensor* find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  /// The folder.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The names of the files, without the index.
  [[nodiscard]] std::vector<std::string> files() const;
  /// The step at which parts were saved; nullopt if the tensors are not in parts.
  [[nodiscard]] std::optional<std::uint64_t> step() const noexcept { return step_; }

  /// As safetensors_file::for_each_source; `tensor` is one of tensors(). Throws errc::io,
  /// errc::bad_data for a file that is missing, damaged, or of another step than the index.
  template <typename Use>
  void for_each_source(const stored_tensor& tensor, const shard_spec& part, Use&& use) const {
    for (const detail::placed_shard& piece : parts_[static_cast<std::size_t>(
             &tensor - tensors_.data())]) {
      const safetensors_file* file = nullptr;
      const stored_tensor* stored = nullptr;
      std::optional<detail::input_file::reading> reading;
      for_each_common_run(piece.spec, part, [&, this](std::size_t first, std::size_t local,
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

  safetensors_shards() = default;

  void index_names();
  void read_index(const std::filesystem::path& path);

  void read_parts(detail::shard_index index, const std::filesystem::path& path);

  /// Throws errc::bad_data unless all files exist and are large enough for their parts: the checks
  /// that follow take time and memory in proportion to the parts that a (damaged) index claims.
  void require_room(const detail::shard_index& index) const;

  /// Adds a file of whole tensors; `promised` are the names that the index places there.
  void add_file(const std::string& name, const std::vector<std::string>& promised);

  [[nodiscard]] const safetensors_file& opened(std::size_t number) const;

  void require_step(const safetensors_file& file) const;

  /// The tensor in `file` that holds `part` of `tensor`.
  [[nodiscard]] static const stored_tensor& stored_in(const safetensors_file& file,
                                                      const stored_tensor& tensor,
                                                      const shard_spec& part);

  /// Far below 1024, the usual limit of a process, since sockets also need many descriptors.
  static constexpr std::size_t most_open = 64;

  std::string path_;
  bool shares_descriptors_ = false;
  std::optional<std::uint64_t> step_;
  std::vector<std::unique_ptr<member>> files_;
  std::vector<stored_tensor> tensors_;
  std::vector<std::vector<detail::placed_shard>> parts_;  // of tensors_, at the same index
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/shards_impl.hpp>
#endif
