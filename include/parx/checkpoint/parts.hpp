// checkpoint_parts: what goes into a checkpoint, by name.
//
//   checkpoint_parts parts;
//   parts.add("model", model).add("optimizer", optimizer);
//   parts.add_json("trainer_state", state).add_text("vocab.txt", vocabulary);
//
// Tensors become <name>.safetensors, JSON <name>.json. Where all ranks of a job save, their parts
// are equal, and rank 0 writes them. What lies on several ranks in parts is a shard on each, which
// that rank writes as <name>-0000i-of-0000n.safetensors; saved_checkpoint::load(name, ...) reads
// either form. The parts borrow the memory of models and optimizers: build them anew for each save,
// which costs a list of names. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

namespace parx::inline PARX_ABI {

namespace detail {

/// What this rank writes of something that is spread over ranks.
[[nodiscard]] std::optional<piece_to_write> piece_of(const state_entry& entry,
                                                            const sharding& how);

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

  /// The parameters of a model or the state of an optimizer: whatever save_state takes. Throws
  /// usage_error for a name that is taken or that is not a file's.
  template <typename Source>
  checkpoint_parts& add(std::string_view name, Source& source) {
    tensor_file made{.name = checked(std::string(name) + ".safetensors"),
                     .metadata = {{"format", "pt"}}};
    for (auto& entry : detail::whole_entries(source))
      made.tensors.push_back({std::move(entry.name), entry.type, entry.shape(), entry.memory()});
    tensors_.push_back(std::move(made));
    return *this;
  }
  /// The same where `source` lies on several ranks in parts: what this rank writes of it, in the
  /// file how.file. Ranks together write each element once, or saving fails and says which one is
  /// written twice or never.
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
  /// Tensors of one's own, borrowed.
  checkpoint_parts& add_tensors(std::string_view name, std::vector<tensor_to_store> tensors,
                                checkpoint_metadata metadata = {});
  checkpoint_parts& add_tensor_shard(std::string_view name, shard_place place,
                                     std::vector<tensor_to_store> tensors,
                                     checkpoint_metadata metadata = {});
  checkpoint_parts& add_json(std::string_view name, const json::value& value);
  /// A file of any kind, under its whole name.
  checkpoint_parts& add_text(std::string_view file_name, std::string text);

  /// Shares `memory`, which some of the tensors lie in, for as long as they are borrowed.
  void keep(std::shared_ptr<const void> memory);

  [[nodiscard]] const std::vector<tensor_file>& tensor_files() const noexcept { return tensors_; }
  [[nodiscard]] const std::vector<text_file>& text_files() const noexcept { return texts_; }
  /// Bytes of all tensors and texts.
  [[nodiscard]] std::uint64_t bytes() const noexcept;

  [[nodiscard]] bool has_shards() const noexcept {
    return std::any_of(tensors_.begin(), tensors_.end(), is_shard);
  }
  /// What rank `rank` writes: rank 0 all that are here, another one its shards.
  [[nodiscard]] checkpoint_parts written_by(int rank) const;

  /// The same parts with the tensors in memory of their own, which grows to hold them and is kept
  /// for the next time.
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

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/parts_impl.hpp>
#endif
