// state_dict: a copy in memory of the parameters and buffers of a model, or of the state of an
// optimizer, by name.
//
//   const parx::state_dict best(model);
//   ...
//   parx::load_state_dict(model, best);
//
// Belongs to one thread at a time.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/checkpoint/state.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

class state_dict {
 public:
  state_dict() = default;
  /// A copy of everything that save_state would write.
  template <typename Source>
    requires(!std::same_as<std::remove_const_t<Source>, state_dict>)
  explicit state_dict(Source& source, call_site site = call_site::current()) {
    for (const auto& entry : detail::whole_entries(source, site)) {
      put(entry.name, entry.type, entry.shape(), entry.memory());
    }
  }

  /// Adds a copy of `values`, or replaces the entry of this name.
  template <element T>
  void set(const std::string& name, const tensor<T>& values) {
    const tensor<T> source = values.contiguous();
    put(name, dtype_of<T>, std::vector<std::uint64_t>(source.shape().begin(), source.shape().end()),
        std::as_bytes(source.span()));
  }
  /// Returns whether there was one.
  bool erase(std::string_view name) {
    const std::size_t at = place_of(name);
    if (at == names_.size()) return false;
    names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(at));
    values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }
  /// A copy. Throws usage_error if there is none of this name and type.
  template <element T>
  [[nodiscard]] tensor<T> at(std::string_view name) const {
    const stored_tensor* const found = find(name);
    require(found != nullptr && found->type == dtype_of<T>, "the state_dict has no {} \"{}\"",
            name_of(dtype_of<T>), name);
    tensor<T> values = tensor<T>::empty(detail::shape_of(*found));
    read(*found, std::as_writable_bytes(values.span()));
    return values;
  }
  [[nodiscard]] bool contains(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }

  // The interface that load_state needs.

  /// Names, types and shapes, in the model's order.
  [[nodiscard]] const std::vector<stored_tensor>& tensors() const noexcept { return names_; }
  /// Null if there is none; valid until the next set() or erase().
  [[nodiscard]] const stored_tensor* find(std::string_view name) const {
    const std::size_t at = place_of(name);
    return at == names_.size() ? nullptr : &names_[at];
  }
  /// Bytes of a tensor of tensors(), from `offset` on.
  void read(const stored_tensor& from, std::span<std::byte> to, std::uint64_t offset = 0) const {
    const auto& bytes = values_[static_cast<std::size_t>(&from - names_.data())];
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
  }
  /// As safetensors_file::for_each_source.
  template <typename Use>
  void for_each_source(const stored_tensor& tensor, const shard_spec& part, Use&& use) const {
    part.for_each_run([&](const shard_run& run) {
      use(*this, tensor, run.global, run.local, run.length);
    });
  }
  [[nodiscard]] static std::string path() { return {}; }
  static constexpr std::string_view kind = "state_dict";

 private:
  [[nodiscard]] std::size_t place_of(std::string_view name) const {
    const auto found = std::find_if(names_.begin(), names_.end(),
                                    [&](const stored_tensor& each) { return each.name == name; });
    return static_cast<std::size_t>(found - names_.begin());
  }
  void put(const std::string& name, dtype type, std::vector<std::uint64_t> extents,
           std::span<const std::byte> memory) {
    stored_tensor stored = detail::described(name, type, std::move(extents), memory.size());
    const std::size_t at = place_of(name);
    if (at == names_.size()) {
      names_.push_back(std::move(stored));
      values_.emplace_back(memory.begin(), memory.end());
    } else {
      names_[at] = std::move(stored);
      values_[at].assign(memory.begin(), memory.end());
    }
  }

  std::vector<stored_tensor> names_;
  std::vector<std::vector<std::byte>> values_;  // of names_, at the same index
};

/// Copies the values into `target`, converting between floating-point types. If names or shapes
/// differ and `match` is strict, throws errc::bad_data with all differences and changes nothing;
/// otherwise reports them.
template <typename Target>
state_report load_state_dict(Target& target, const state_dict& values,
                             state_match match = state_match::strict) {
  return load_state(target, values, match);
}

}  // namespace parx
