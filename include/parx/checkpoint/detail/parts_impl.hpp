// Definitions of parts.hpp.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::optional<elements_to_write> piece_of(const state_entry& entry,
                                                      const sharding& how) {
  const shard_spec* const part = entry.owner ? &*entry.owner : nullptr;
  const bool is_placed = part != nullptr && part->global_shape().size() > 0;
  // A number that belongs to a parameter is on all ranks. A rank with the parameter's first element
  // writes it.
  const bool is_number = entry.part.global_shape().rank() == 0;
  if (is_placed && is_number && (part->size() == 0 || part->run_at(0).global != 0))
    return std::nullopt;
  const shard_place others = entry.is_buffer && how.buffers ? *how.buffers : how.others;
  const shard_place copy = !is_placed   ? others
                           : how.copies ? how.copies(entry.name, *part)
                                        : shard_place{};
  return elements_of_copy(entry.name, entry.part, size_of(entry.type), copy);
}

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE checkpoint_parts& checkpoint_parts::add_tensors(std::string_view name,
                                                            std::vector<tensor_to_store> tensors,
                                                            checkpoint_metadata metadata) {
  tensors_.push_back(
      {checked(std::string(name) + ".safetensors"), std::move(tensors), std::move(metadata)});
  return *this;
}

PARX_INLINE checkpoint_parts& checkpoint_parts::add_tensor_shard(
    std::string_view name, shard_place place, std::vector<tensor_to_store> tensors,
    checkpoint_metadata metadata) {
  add_tensors(shard_name(name, place), std::move(tensors), std::move(metadata));
  tensors_.back().holder = held_by::this_rank;
  return *this;
}

PARX_INLINE checkpoint_parts& checkpoint_parts::add_json(std::string_view name,
                                                         const json::value& value) {
  return add_text(std::string(name) + ".json", json::dump(value, 2) + "\n");
}

PARX_INLINE checkpoint_parts& checkpoint_parts::add_text(std::string_view file_name,
                                                         std::string text) {
  texts_.push_back({checked(std::string(file_name)), std::move(text)});
  return *this;
}

PARX_INLINE std::uint64_t checkpoint_parts::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const tensor_file& file : tensors_) {
    for (const tensor_to_store& tensor : file.tensors) sum += tensor.data.size();
  }
  for (const text_file& file : texts_) sum += file.text.size();
  return sum;
}

PARX_INLINE checkpoint_parts checkpoint_parts::written_by(int rank) const {
  checkpoint_parts mine;
  if (rank == 0) {
    mine = *this;
  } else {
    std::copy_if(tensors_.begin(), tensors_.end(), std::back_inserter(mine.tensors_), is_shard);
    mine.kept_ = kept_;
  }
  return mine;
}

PARX_INLINE checkpoint_parts& checkpoint_parts::add_entries(
    std::string_view name, std::vector<detail::state_entry> entries) {
  tensor_file made{.name = checked(std::string(name) + ".safetensors"),
                   .metadata = {{"format", "pt"}}};
  for (detail::state_entry& entry : entries)
    made.tensors.push_back({std::move(entry.name), entry.type, entry.shape(), entry.memory()});
  tensors_.push_back(std::move(made));
  return *this;
}

PARX_INLINE checkpoint_parts& checkpoint_parts::add_pieces(
    std::string_view name, const sharding& how, std::vector<detail::state_entry> entries) {
  tensor_file made{.name = checked(shard_name(name, how.file) + ".safetensors"),
                   .metadata = {{"format", "pt"}},
                   .holder = held_by::this_rank};
  json::object specs;
  for (detail::state_entry& entry : entries) {
    const auto piece = detail::piece_of(entry, how);
    if (!piece) continue;
    const std::size_t size = size_of(entry.type);
    const bool is_whole = piece->spec.is_whole();
    const parx::shape here = is_whole ? piece->spec.global_shape() : piece->spec.shape();
    if (!is_whole) {
      json::object spec = detail::cuts_to_json(piece->spec);
      spec["shape"] = detail::shape_to_json(piece->spec.global_shape());
      specs[entry.name] = std::move(spec);
    }
    made.tensors.push_back(
        {std::move(entry.name),
         entry.type,
         {here.begin(), here.end()},
         entry.memory().subspan(piece->first * size, piece->spec.size() * size)});
  }
  made.metadata[std::string(detail::parts_key)] = json::dump(specs);
  tensors_.push_back(std::move(made));
  return *this;
}

PARX_INLINE checkpoint_parts checkpoint_parts::copied_to(std::vector<std::byte>& memory) const {
  checkpoint_parts copy = *this;
  copy.kept_.clear();
  const std::uint64_t needed = bytes();
  if (memory.size() < needed) memory.resize(static_cast<std::size_t>(needed));
  std::size_t at = 0;
  for (tensor_file& file : copy.tensors_) {
    for (tensor_to_store& tensor : file.tensors) {
      const std::span<std::byte> target = std::span(memory).subspan(at, tensor.data.size());
      std::copy(tensor.data.begin(), tensor.data.end(), target.begin());
      tensor.data = target;
      at += target.size();
    }
  }
  return copy;
}

PARX_INLINE std::string checkpoint_parts::checked(std::string name) const {
  require(!name.empty() && name.find('/') == std::string::npos && name.front() != '.' &&
              name != "manifest.json",
          "checkpoint_parts: \"{}\" cannot be the name of a part: take a file name without "
          "slashes, other than manifest.json",
          name);
  const auto same = [&](const auto& file) { return file.name == name; };
  require(std::none_of(tensors_.begin(), tensors_.end(), same) &&
              std::none_of(texts_.begin(), texts_.end(), same),
          "checkpoint_parts: two parts are called \"{}\"", name);
  return name;
}

}  // namespace parx
