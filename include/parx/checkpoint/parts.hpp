// checkpoint_parts: the contents of a checkpoint, by name.
//
//   checkpoint_parts parts;
//   parts.add("model", model).add("optimizer", optimizer);
//   parts.add_json("trainer_state", state).add_text("vocab.txt", vocabulary);
//
// Tensors are saved as <name>.safetensors, JSON as <name>.json. When all ranks of a job save,
// rank 0 writes the parts, which are equal on all ranks. If a model is distributed over ranks, each
// rank writes its shard as <name>-0000i-of-0000n.safetensors; saved_checkpoint::load(name, ...)
// reads either form. The parts borrow the memory of models and optimizers. Make new ones for each
// save; that only costs a list of names. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/core/check.hpp>
#include <parx/core/json.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The piece of an entry that this rank writes; nullopt if another rank writes it.
[[nodiscard]] inline std::optional<piece_to_write> piece_of(const state_entry& entry,
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
  return piece_of_copy(entry.name, entry.part, size_of(entry.type), copy);
}

}  // namespace detail

class checkpoint_parts {
 public:
  enum class held_by { all_ranks, this_rank };
  struct tensor_file {
    std::string name;
    std::vector<tensor_to_store> tensors = {};
    checkpoint_metadata metadata = {};
    held_by holder = held_by::all_ranks;
  };
  struct text_file {
    std::string name;
    std::string text;
  };

  /// Adds the parameters of a model, the state of an optimizer, or anything else that save_state
  /// takes. Throws usage_error if the name is taken or not valid as a file name.
  template <typename Source>
  checkpoint_parts& add(std::string_view name, Source& source,
                        call_site site = call_site::current()) {
    tensor_file made{.name = checked(std::string(name) + ".safetensors"),
                     .metadata = {{"format", "pt"}}};
    for (auto& entry : detail::whole_entries(source, site))
      made.tensors.push_back({std::move(entry.name), entry.type, entry.shape(), entry.memory()});
    tensors_.push_back(std::move(made));
    return *this;
  }
  /// The same for a `source` that is distributed over ranks: adds the pieces that this rank writes,
  /// in the file how.file. The ranks together must write each element once; otherwise saving fails
  /// with the elements that are written twice or never.
  template <typename Source>
  checkpoint_parts& add_shard(std::string_view name, const sharding& how, Source& source) {
    tensor_file made{.name = checked(shard_name(name, how.file) + ".safetensors"),
                     .metadata = {{"format", "pt"}},
                     .holder = held_by::this_rank};
    json::object specs;
    for (auto& entry : detail::state_entries<detail::state_access::read>(source)) {
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
          {std::move(entry.name), entry.type, {here.begin(), here.end()},
           entry.memory().subspan(piece->first * size, piece->spec.size() * size)});
    }
    made.metadata[std::string(detail::parts_key)] = json::dump(specs);
    tensors_.push_back(std::move(made));
    return *this;
  }
  /// Adds any tensors, borrowed.
  checkpoint_parts& add_tensors(std::string_view name, std::vector<tensor_to_store> tensors,
                                checkpoint_metadata metadata = {}) {
    tensors_.push_back(
        {checked(std::string(name) + ".safetensors"), std::move(tensors), std::move(metadata)});
    return *this;
  }
  checkpoint_parts& add_tensor_shard(std::string_view name, shard_place place,
                                     std::vector<tensor_to_store> tensors,
                                     checkpoint_metadata metadata = {}) {
    add_tensors(shard_name(name, place), std::move(tensors), std::move(metadata));
    tensors_.back().holder = held_by::this_rank;
    return *this;
  }
  checkpoint_parts& add_json(std::string_view name, const json::value& value) {
    return add_text(std::string(name) + ".json", json::dump(value, 2) + "\n");
  }
  /// A file of any kind, under its whole name.
  checkpoint_parts& add_text(std::string_view file_name, std::string text) {
    texts_.push_back({checked(std::string(file_name)), std::move(text)});
    return *this;
  }

  /// Keeps `memory`, which some of the tensors refer to, alive as long as these parts.
  void keep(std::shared_ptr<const void> memory) { kept_.push_back(std::move(memory)); }

  [[nodiscard]] const std::vector<tensor_file>& tensor_files() const noexcept { return tensors_; }
  [[nodiscard]] const std::vector<text_file>& text_files() const noexcept { return texts_; }
  /// Bytes of all tensors and texts.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const tensor_file& file : tensors_) {
      for (const tensor_to_store& tensor : file.tensors) sum += tensor.data.size();
    }
    for (const text_file& file : texts_) sum += file.text.size();
    return sum;
  }

  [[nodiscard]] bool has_shards() const noexcept {
    return std::any_of(tensors_.begin(), tensors_.end(), is_shard);
  }
  /// The parts that `rank` writes: rank 0 all of these, the other ranks only their shards.
  [[nodiscard]] checkpoint_parts written_by(int rank) const {
    checkpoint_parts mine;
    if (rank == 0) {
      mine = *this;
    } else {
      std::copy_if(tensors_.begin(), tensors_.end(), std::back_inserter(mine.tensors_), is_shard);
      mine.kept_ = kept_;
    }
    return mine;
  }

  /// The same parts with the tensors copied to `memory`, which grows as needed and can be reused.
  [[nodiscard]] checkpoint_parts copied_to(std::vector<std::byte>& memory) const;

 private:
  [[nodiscard]] static bool is_shard(const tensor_file& file) noexcept {
    return file.holder == held_by::this_rank;
  }

  [[nodiscard]] std::string checked(std::string name) const;

  std::vector<tensor_file> tensors_;
  std::vector<text_file> texts_;
  std::vector<std::shared_ptr<const void>> kept_;
};

inline checkpoint_parts checkpoint_parts::copied_to(std::vector<std::byte>& memory) const {
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

inline std::string checkpoint_parts::checked(std::string name) const {
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
