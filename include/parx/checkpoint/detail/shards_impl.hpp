// Definitions of shards.hpp.
#pragma once

#include <system_error>
#include <utility>

#include <parx/checkpoint/shards.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::map<std::string, std::vector<std::string>> files_in_index(
    const json::value& index) {
  std::map<std::string, std::vector<std::string>> files;
  const auto checked = [](const std::string& name) -> const std::string& {
    if (name.find('/') != std::string::npos)
      throw json::error(formatted("\"{}\" is not the name of a file beside it", name));
    return name;
  };
  if (is_shard_index(index)) {
    for (const json::value& file : index.at("files").elements()) files[checked(file.text())];
  } else {
    for (const auto& [tensor, file] : index.at("weight_map").members())
      files[checked(file.text())].push_back(tensor);
  }
  return files;
}

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE safetensors_shards::safetensors_shards(const std::filesystem::path& folder,
                                                   std::string_view name)
    : path_(folder.string()) {
  const auto whole = folder / (std::string(name) + ".safetensors");
  const auto index = folder / (std::string(name) + std::string(detail::shard_index_suffix));
  std::error_code failure;
  if (std::filesystem::exists(whole, failure) || !std::filesystem::exists(index, failure)) {
    add_file(whole.filename().string(), {});
  } else {
    read_index(index);
  }
  index_names();
}

PARX_INLINE safetensors_shards safetensors_shards::of_file(const std::filesystem::path& file) {
  safetensors_shards made;
  made.path_ = file.parent_path().string();
  made.add_file(file.filename().string(), {});
  made.index_names();
  return made;
}

PARX_INLINE void safetensors_shards::index_names() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  if (by_name_.size() != tensors_.size())
    throw_error(errc::bad_data, "\"{}\": two of its files have a tensor of one name.", path_);
}

PARX_INLINE std::vector<std::string> safetensors_shards::files() const {
  std::vector<std::string> names;
  for (const auto& each : files_) names.push_back(each->name);
  return names;
}

PARX_INLINE void safetensors_shards::read_index(const std::filesystem::path& path) {
  try {
    const json::value whole = json::parse(detail::input_file(path.string()).whole_text());
    const auto files = detail::files_in_index(whole);
    if (detail::is_shard_index(whole)) {
      read_parts(detail::parse_index(whole), path);
    } else {
      shares_descriptors_ = files.size() > most_open;
      for (const auto& [file, names] : files) add_file(file, names);
    }
  } catch (const json::error& reason) {
    throw_error(errc::bad_data, "\"{}\" is damaged: {}.", path.string(), reason.what());
  } catch (const usage_error& reason) {
    throw_error(errc::bad_data, "\"{}\" is damaged: {}.", path.string(), reason.what());
  }
}

PARX_INLINE void safetensors_shards::read_parts(detail::shard_index index,
                                                const std::filesystem::path& path) {
  shares_descriptors_ = index.files.size() > most_open;
  require_room(index);
  detail::require_whole(index, path.string());
  step_ = index.step;
  for (auto& each : index.tensors) {
    stored_tensor made{.name = std::move(each.name), .dtype_name = std::move(each.dtype_name)};
    made.type = detail::find_type(made.dtype_name)->type;  // parse_index has checked it
    made.shape.assign(each.shape.begin(), each.shape.end());
    made.end = each.shape.size() * size_of(*made.type);
    tensors_.push_back(std::move(made));
    parts_.push_back(std::move(each.parts));
  }
  for (std::string& name : index.files) {
    files_.push_back(std::make_unique<member>());
    files_.back()->name = std::move(name);
  }
}

PARX_INLINE void safetensors_shards::require_room(const detail::shard_index& index) const {
  std::vector<std::uint64_t> needed(index.files.size(), 0);
  for (const auto& tensor : index.tensors) {
    for (const detail::placed_shard& part : tensor.parts)
      needed[part.file] += part.spec.size() * detail::element_bytes(tensor.dtype_name);
  }
  for (std::size_t i = 0; i < needed.size(); ++i) {
    std::error_code failure;
    const auto path = std::filesystem::path(path_) / index.files[i];
    const std::uint64_t bytes = std::filesystem::file_size(path, failure);
    if (failure) {
      throw_error(errc::bad_data,
                  "\"{}\": the shard {} is missing, and with it parts of the tensors. Copy it "
                  "there from where the others come from.",
                  path_, index.files[i]);
    }
    if (bytes < needed[i]) {
      throw_error(errc::bad_data, "\"{}\" has {} bytes, but its index speaks of {}.", path.string(),
                  bytes, needed[i]);
    }
  }
}

PARX_INLINE void safetensors_shards::add_file(const std::string& name,
                                              const std::vector<std::string>& promised) {
  files_.push_back(std::make_unique<member>());
  files_.back()->name = name;
  const safetensors_file& file = opened(files_.size() - 1);
  for (const std::string& each : promised) {
    if (file.find(each) == nullptr) {
      throw_error(errc::bad_data, "\"{}\" has no tensor \"{}\", which the index says is there.",
                  file.path(), each);
    }
  }
  for (const stored_tensor& tensor : file.tensors()) {
    const bool has_spec = tensor.shape.size() <= max_rank;  // no model has others
    tensors_.push_back(tensor);
    parts_.push_back({{files_.size() - 1, has_spec ? detail::whole_spec(tensor) : shard_spec()}});
  }
}

PARX_INLINE const safetensors_file& safetensors_shards::opened(std::size_t number) const {
  member& one = *files_[number];
  std::call_once(one.once, [&] {
    safetensors_file file((std::filesystem::path(path_) / one.name).string());
    if (step_) require_step(file);
    if (shares_descriptors_) file.share_descriptors();
    one.file.emplace(std::move(file));
  });
  return *one.file;
}

PARX_INLINE void safetensors_shards::require_step(const safetensors_file& file) const {
  const auto found = file.metadata().find(std::string(detail::step_key));
  const std::string there = found == file.metadata().end() ? "no step" : "step " + found->second;
  if (there != formatted("step {}", *step_)) {
    throw_error(errc::bad_data,
                "\"{}\" is of {}, but the other shards are of step {}: they do not belong to one "
                "checkpoint.",
                file.path(), there, *step_);
  }
}

PARX_INLINE const stored_tensor& safetensors_shards::stored_in(const safetensors_file& file,
                                                               const stored_tensor& tensor,
                                                               const shard_spec& part) {
  const stored_tensor* const stored = file.find(tensor.name);
  const bool fits = stored != nullptr && stored->dtype_name == tensor.dtype_name &&
                    (stored->end - stored->begin) / size_of(*tensor.type) == part.size();
  if (!fits) {
    throw_error(errc::bad_data,
                "\"{}\" should have {} of \"{}\", and has not: it is a shard of another model.",
                file.path(), part.text(), tensor.name);
  }
  return *stored;
}

}  // namespace parx
