// state_entry: the tensors and numbers of a model, an optimizer or other state, by name, as files
// have them; for state.hpp and the writers of checkpoints.
//
// An entry tells what part of the whole tensor this rank has, and gives its memory when it is asked
// for. Local.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/lazy_state.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// A base of a target that is one rank's share of a model, a pipeline's stage: the file has the
/// tensors of other ranks, too. It has is_elsewhere(name), which says whether a tensor is one of
/// theirs; what is nobody's is still unexpected.
struct shared_state {};

namespace detail {

/// A named piece of memory of a model or optimizer.
struct state_entry {
  std::string name;
  dtype type = dtype::float32;
  shard_spec part = {};  ///< the part of the whole tensor that is in the memory
  /// Called only when it is read or overwritten: a parameter may have no memory before it is
  /// loaded.
  std::function<std::span<std::byte>()> memory = {};
  /// This rank's part of the parameter that this is, or belongs to; nullopt if to none.
  std::optional<shard_spec> owner = {};
  /// Under which a file may have it instead: module::for_each_other_name.
  std::vector<std::string> other_names = {};
  /// Each row is that of a word or a position.
  bool is_table = false;
  /// A buffer of a model, which the ranks that run its module have.
  bool is_buffer = false;
  /// Of a lazy_tensor (autograd/lazy_state.hpp), whose memory() makes it.
  struct laziness {
    bool is_made = false;
    std::function<void()> drop = {};
    std::string counter = {};
  };
  std::optional<laziness> lazy = {};

  /// Of the whole tensor.
  [[nodiscard]] std::vector<std::uint64_t> shape() const {
    return {part.global_shape().begin(), part.global_shape().end()};
  }
};

/// The memory of a parameter whose values will all be overwritten.
template <typename T>
[[nodiscard]] const tensor<T>& memory_to_fill(const parameter<T>& p) {
  return p.allocate();
}
template <typename Parameter>
[[nodiscard]] decltype(auto) memory_to_fill(const Parameter& p) {
  return p.value();
}

template <typename Source>
inline constexpr bool is_parameter_list = false;
template <typename T>
inline constexpr bool is_parameter_list<std::vector<parameter<T>>> = true;
template <typename T>
inline constexpr bool is_parameter_list<parameter_list<T>> = true;

enum class state_access {
  read,       ///< what has values
  overwrite,  ///< all, also what has no memory yet
  update,     ///< all, of a model that has values
};

template <state_access Access, typename Source>
[[nodiscard]] std::vector<state_entry> state_entries(Source& source) {
  std::vector<state_entry> entries;
  // Some accessors return const memory; load_state is allowed to write it.
  const auto bytes_of = []<typename T>(const T* data, std::size_t count) {
    return std::span(reinterpret_cast<std::byte*>(const_cast<T*>(data)), count * sizeof(T));
  };
  const auto whole = [](const auto& shape) {
    parx::shape extents;
    for (const auto extent : shape) extents.push_back(static_cast<std::size_t>(extent));
    return shard_spec::whole(extents);
  };
  /// A tensor or a number; `owner` is set if it belongs to a parameter.
  const auto add = [&](const std::string& name, auto& value, std::optional<shard_spec> owner) {
    using V = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_arithmetic_v<V>) {
      entries.push_back({name, dtype_of<V>, shard_spec(),
                         [bytes = bytes_of(&value, 1)] { return bytes; }, std::move(owner)});
    } else {
      using T = std::remove_cvref_t<decltype(*value.data())>;
      entries.push_back({name, dtype_of<T>, owner ? *owner : whole(value.shape()),
                         [bytes = bytes_of(value.data(), static_cast<std::size_t>(value.size()))] {
                           return bytes;
                         },
                         std::move(owner)});
    }
  };
  const auto add_parameter = [&whole, &bytes_of, &entries]<typename P>(const std::string& name,
                                                                       P& parameter) {
    shard_spec part;
    if constexpr (std::derived_from<P, placed_parameter>) part = parameter.spec();
    else part = whole(parameter.shape());
    entries.push_back({name, dtype_of<typename P::value_type>, part,
                       [parameter, bytes_of] {
                         const auto& values = [&]() -> decltype(auto) {
                           if constexpr (Access == state_access::overwrite)
                             return memory_to_fill(parameter);
                           else return parameter.value();
                         }();
                         return bytes_of(values.data(), static_cast<std::size_t>(values.size()));
                       },
                       part});
    if constexpr (requires { parameter.is_table(); })
      entries.back().is_table = parameter.is_table();
  };
  /// A tensor that may have no memory, or a number.
  const auto add_lazy = [&bytes_of, &entries, &add]<typename V>(
                            const std::string& name, V&& value,
                            const std::optional<shard_spec>& owner) {
    if constexpr (is_lazy_tensor<std::remove_cvref_t<V>>) {
      if (Access == state_access::read && !value.is_made) return;
      using T = typename std::remove_cvref_t<V>::value_type;
      entries.push_back({.name = name,
                         .type = dtype_of<T>,
                         .part = owner ? *owner : shard_spec(),
                         .memory =
                             [make = value.make, bytes_of] {
                               const tensor<T>& made = make();
                               return bytes_of(made.data(), made.size());
                             },
                         .owner = owner,
                         .lazy = state_entry::laziness{value.is_made, value.drop, value.counter}});
    } else {
      add(name, value, owner);
    }
  };
  if constexpr (std::derived_from<Source, lazy_state>) {
    source.for_each_lazy_state(add_lazy);
  } else if constexpr (std::derived_from<Source, placed_state>) {
    source.for_each_placed_state(
        [&](const std::string& name, auto& value, const std::optional<shard_spec>& owner) {
          add(name, value, owner);
        });
  } else if constexpr (requires { source.for_each_state([](const std::string&, auto&) {}); }) {
    source.for_each_state(
        [&](const std::string& name, auto& value) { add(name, value, std::nullopt); });
  } else if constexpr (is_parameter_list<std::remove_const_t<Source>>) {
    for (auto& parameter : source) add_parameter(parameter.name(), parameter);
  } else {
    if constexpr (Access != state_access::overwrite && requires { source.materialize(); })
      source.materialize();
    source.for_each_parameter(add_parameter);
    if constexpr (Access != state_access::read &&
                  requires { source.for_each_other_name([](const auto&, const auto&) {}); }) {
      source.for_each_other_name([&](const std::string& other, const std::string& path) {
        for (state_entry& entry : entries)
          if (entry.name == path) entry.other_names.push_back(other);
      });
    }
    if constexpr (requires { source.for_each_buffer([](const std::string&, auto&) {}); }) {
      source.for_each_buffer([&](const std::string& name, auto& buffer) {
        add(name, buffer.value(), std::nullopt);
        entries.back().is_buffer = true;
      });
    }
  }
  return entries;
}

inline constexpr const char* advice_for_parts =
    "All ranks save a model that is cut over them: parx::save(wrapper, path) of "
    "<parx/checkpoint.hpp>, with the fsdp, pipeline or parallel model for a wrapper; or, where "
    "parallelize(model, group, plan) alone has cut it, parx::save(group, tp.sharded(), model, "
    "path) with what that returned for tp";

/// State of the parameters of a share of a model: its optimizer's, or an average.
template <typename Module, typename State>
struct state_of_shard : shared_state {
  state_of_shard(Module& its_module, State& its_state) : module(its_module), state(its_state) {}

  /// `name` is a parameter's path with the name of the state behind it, "0.weight.exp_avg".
  [[nodiscard]] bool is_elsewhere(const std::string& name) const {
    for (std::size_t dot = name.rfind('.'); dot != name.npos && dot > 0;
         dot = name.rfind('.', dot - 1)) {
      if (module.is_elsewhere(name.substr(0, dot))) return true;
    }
    return false;
  }

  Module& module;
  State& state;
};
template <state_access Access, typename Module, typename State>
[[nodiscard]] std::vector<state_entry> state_entries(state_of_shard<Module, State>& share) {
  return state_entries<Access>(share.state);
}

/// Returns the entries. Throws usage_error if this rank holds only a part of one.
[[nodiscard]] inline std::vector<state_entry> checked_whole(std::vector<state_entry> entries,
                                                            call_site site) {
  for (const state_entry& entry : entries) {
    require(entry.part.is_whole(),
            "at {}: of parameter \"{}\" this rank holds {}, not the whole. {}", site, entry.name,
            entry.part.text(), advice_for_parts);
  }
  return entries;
}
template <state_access Access = state_access::read, typename Source>
[[nodiscard]] std::vector<state_entry> whole_entries(Source& source, call_site site) {
  return checked_whole(state_entries<Access>(source), site);
}

}  // namespace detail

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

}  // namespace parx::detail
