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
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/core/json.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The piece of an entry that this rank writes; nullopt if another rank writes it.
[[nodiscard]] std::optional<elements_to_write> piece_of(const state_entry& entry,
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

  /// Adds the parameters of a model, the state of an optimizer, or anything else that save_state
  /// takes. Throws usage_error if the name is taken or not valid as a file name.
  template <typename Source>
  checkpoint_parts& add(std::string_view name, Source& source,
                        call_site site = call_site::current()) {
    return add_entries(name, detail::whole_entries(source, site));
  }
  /// The same for a `source` that is distributed over ranks: adds the pieces that this rank writes,
  /// in the file how.file. The ranks together must write each element once; otherwise saving fails
  /// with the elements that are written twice or never.
  template <typename Source>
  checkpoint_parts& add_shard(std::string_view name, const sharding& how, Source& source) {
    return add_pieces(name, how, detail::state_entries<detail::state_access::read>(source));
  }
  /// Adds any tensors, borrowed.
  checkpoint_parts& add_tensors(std::string_view name, std::vector<tensor_to_store> tensors,
                                checkpoint_metadata metadata = {});
  checkpoint_parts& add_tensor_shard(std::string_view name, shard_place place,
                                     std::vector<tensor_to_store> tensors,
                                     checkpoint_metadata metadata = {});
  checkpoint_parts& add_json(std::string_view name, const json::value& value);
  /// A file of any kind, under its whole name.
  checkpoint_parts& add_text(std::string_view file_name, std::string text);

  /// Keeps `memory`, which some of the tensors refer to, alive as long as these parts.
  void keep(std::shared_ptr<const void> memory) { kept_.push_back(std::move(memory)); }

  [[nodiscard]] const std::vector<tensor_file>& tensor_files() const noexcept { return tensors_; }
  [[nodiscard]] const std::vector<text_file>& text_files() const noexcept { return texts_; }
  /// Bytes of all tensors and texts.
  [[nodiscard]] std::uint64_t bytes() const noexcept;

  [[nodiscard]] bool has_shards() const noexcept {
    return std::any_of(tensors_.begin(), tensors_.end(), is_shard);
  }
  /// The parts that `rank` writes: rank 0 all of these, the other ranks only their shards.
  [[nodiscard]] checkpoint_parts written_by(int rank) const;

  /// The same parts with the tensors copied to `memory`, which grows as needed and can be reused.
  [[nodiscard]] checkpoint_parts copied_to(std::vector<std::byte>& memory) const;

 private:
  /// add() and add_shard() for a source of any type.
  checkpoint_parts& add_entries(std::string_view name, std::vector<detail::state_entry> entries);
  checkpoint_parts& add_pieces(std::string_view name, const sharding& how,
                               std::vector<detail::state_entry> entries);
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
