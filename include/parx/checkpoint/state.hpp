// save_state and load_state: the parameters of a model, or the state of an optimizer, as a
// safetensors file.
//
// Works on anything with for_each_parameter(visitor(path, parameter)), as parx::nn modules have
// (their buffers are saved as well), on a list of parameters, or on anything with
// for_each_state(visitor(name, tensor or number)), as optimizers have. If a file does not match,
// nothing is changed. Values are copied directly between the file and the model's memory. Local:
// under data parallelism one rank saves, every rank loads. If a rank holds only a part of a
// parameter, only that part is read; for saving it see sharded.hpp. A matrix that several layers
// share (tied embeddings) is written under its first name and read under any of its names.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/autograd/parameter_list.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// How a file and a model differ; see load_state.
struct state_report {
  std::string source = "file";          ///< where the values come from, for text()
  std::vector<std::string> missing;     ///< in the model, not in the file
  std::vector<std::string> unexpected;  ///< in the file, not in the model
  std::vector<std::string> mismatched;  ///< shape or type differs: "fc.weight: [2, 3] F32 ..."

  [[nodiscard]] bool empty() const noexcept {
    return missing.empty() && unexpected.empty() && mismatched.empty();
  }
  /// One or several lines for each kind of difference; of many names only the first ones.
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] static std::string first_of(const std::vector<std::string>& all, std::size_t most,
                                            const char* between);
};

enum class state_match {
  strict,   ///< any difference is an error
  partial,  ///< loads what matches and reports the rest
};

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

enum class state_access { read, overwrite };

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
  const auto add_parameter = [&]<typename P>(const std::string& name, P& parameter) {
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
  };
  if constexpr (std::derived_from<Source, placed_state>) {
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
    if constexpr (Access == state_access::read && requires { source.materialize(); })
      source.materialize();
    source.for_each_parameter(add_parameter);
    if constexpr (Access == state_access::overwrite &&
                  requires { source.for_each_other_name([](const auto&, const auto&) {}); }) {
      source.for_each_other_name([&](const std::string& other, const std::string& path) {
        for (state_entry& entry : entries)
          if (entry.name == path) entry.other_names.push_back(other);
      });
    }
    if constexpr (requires { source.for_each_buffer([](const std::string&, auto&) {}); }) {
      source.for_each_buffer([&](const std::string& name, auto& buffer) {
        add(name, buffer.value(), std::nullopt);
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

/// The entries, for reading. Throws usage_error if this rank holds only a part of one.
template <typename Source>
[[nodiscard]] std::vector<state_entry> whole_entries(Source& source, call_site site) {
  auto entries = state_entries<state_access::read>(source);
  for (const state_entry& entry : entries) {
    require(entry.part.is_whole(),
            "at {}: of parameter \"{}\" this rank holds {}, not the whole. {}", site, entry.name,
            entry.part.text(), advice_for_parts);
  }
  return entries;
}

[[nodiscard]] inline bool loadable(const stored_tensor& from, dtype to) {
  return from.type == to || (from.type && is_floating(*from.type) && is_floating(to));
}

/// Numbers of any type as doubles; exact for floating-point types.
void widen(dtype type, const std::byte* from, std::span<double> to);
/// The inverse, rounding, for floating-point types only.
void narrow(dtype type, std::span<const double> from, std::byte* to);

/// Reads elements of `from`, from number `first` on, into memory of `type`. Converts between
/// floating-point types piece by piece.
template <typename File>
void read_converted(const File& file, const stored_tensor& from, std::size_t first, dtype type,
                    std::span<std::byte> memory) {
  const std::size_t count = memory.size() / size_of(type), stored_size = size_of(*from.type);
  if (from.type == type) {
    file.read(from, memory, first * stored_size);
    return;
  }
  const std::size_t longest = std::min<std::size_t>(count, 1U << 16U);
  std::vector<std::byte> stored(longest * stored_size);
  std::vector<double> values(longest);
  for (std::size_t at = 0; at < count; at += longest) {
    const std::size_t part = std::min(longest, count - at);
    file.read(from, std::span(stored).first(part * stored_size), (first + at) * stored_size);
    widen(*from.type, stored.data(), std::span(values).first(part));
    narrow(type, std::span<const double>(values).first(part), memory.data() + at * size_of(type));
  }
}

/// Reads only `part` of a tensor of `file` into memory of `type`.
template <typename File>
void read_part(const File& file, const stored_tensor& from, const shard_spec& part, dtype type,
               std::span<std::byte> memory) {
  const std::size_t size = size_of(type);
  file.for_each_source(from, part, [&](const auto& source, const stored_tensor& stored,
                                       std::size_t first, std::size_t local, std::size_t count) {
    read_converted(source, stored, first, type, memory.subspan(local * size, count * size));
  });
}

}  // namespace detail

/// Collective. Copies the state of `root`, of a model, an optimizer or anything else that
/// save_state takes, to all ranks. Names and shapes must be equal on all ranks. If it fails,
/// `target` may be partly overwritten.
template <typename Target>
void broadcast_state(process_group& group, Target& target, int root,
                     call_site site = call_site::current()) {
  for (const auto& entry : detail::whole_entries(target, site))
    broadcast(group, entry.memory(), {.root = root}, site);
}

/// Writes the parameters of `source` to `path`, atomically. `metadata` is for the caller: an epoch,
/// a sampler's state. Throws errc::io; an existing file is unchanged then.
template <typename Source>
void save_state(Source& source, const std::string& path, const checkpoint_metadata& metadata = {},
                call_site site = call_site::current()) {
  std::vector<tensor_to_store> tensors;
  for (const auto& entry : detail::whole_entries(source, site)) {
    try {
      tensors.push_back({entry.name, entry.type, entry.shape(), entry.memory()});
    } catch (const usage_error& absent) {  // no values here, as those of other stages
      throw_usage("at {}: {}. {}", site, absent.what(), detail::advice_for_parts);
    }
  }
  write_safetensors(path, tensors, metadata);
}

namespace detail {

/// The entries of a model that match a file, and the differences. `File` is a safetensors_file,
/// safetensors_shards or state_dict.
struct state_fit {
  state_report report;
  std::vector<std::pair<state_entry, const stored_tensor*>> fitting;
};

/// The first element that differs between two tensors of `entry`'s shape, as it would be loaded.
template <typename File>
[[nodiscard]] std::optional<std::size_t> first_difference(const state_entry& entry,
                                                          const File& file,
                                                          const stored_tensor& one,
                                                          const stored_tensor& other) {
  const shard_spec whole = shard_spec::whole(entry.part.global_shape());
  const std::size_t count = whole.size(), piece = std::min<std::size_t>(count, 1U << 18U);
  const std::size_t size = size_of(entry.type);
  std::vector<std::byte> a(piece * size), b(piece * size);
  for (std::size_t at = 0; at < count; at += piece) {
    const std::size_t length = std::min(piece, count - at);
    const shard_spec part = whole.flat(at, at + length);
    const auto from = std::span(a).first(length * size), to = std::span(b).first(length * size);
    read_part(file, one, part, entry.type, from);
    read_part(file, other, part, entry.type, to);
    const auto differing = std::mismatch(from.begin(), from.end(), to.begin()).first;
    if (differing != from.end())
      return at + static_cast<std::size_t>(differing - from.begin()) / size;
  }
  return std::nullopt;
}

/// Why `found`, the tensors of a file under the names of `entry`, cannot be loaded.
template <typename File>
[[nodiscard]] std::optional<std::string> misfit(const state_entry& entry,
                                                const std::vector<const stored_tensor*>& found,
                                                const File& file, const std::string& source) {
  const std::vector<std::uint64_t> shape = entry.shape();
  for (const stored_tensor* stored : found) {
    if (stored->shape == shape && loadable(*stored, entry.type)) continue;
    return formatted("{}: [{}] {} in the {}, [{}] {} in the model", stored->name,
                     joined_text(stored->shape), stored->dtype_name, source, joined_text(shape),
                     safetensors_name(entry.type));
  }
  for (const stored_tensor* other : std::span(found).subspan(1)) {
    const auto at = first_difference(entry, file, *found.front(), *other);
    if (!at) continue;
    return formatted("{} and {}: one tensor in the model, two in the {} that differ at element {}",
                     found.front()->name, other->name, source, *at);
  }
  return std::nullopt;
}

template <typename File>
[[nodiscard]] state_fit fit_state(std::vector<state_entry> entries, const File& file) {
  state_fit result;
  if constexpr (requires { File::kind; }) result.report.source = File::kind;
  std::set<std::string_view> unexpected;
  for (const stored_tensor& stored : file.tensors()) unexpected.insert(stored.name);
  for (state_entry& entry : entries) {
    std::vector<const stored_tensor*> found;
    const auto look_up = [&](const std::string& name) {
      const stored_tensor* const stored = file.find(name);
      if (stored == nullptr || !unexpected.erase(stored->name)) return;
      found.push_back(stored);
    };
    look_up(entry.name);
    for (const std::string& name : entry.other_names) look_up(name);
    if (found.empty()) {
      result.report.missing.push_back(entry.name);
      continue;
    }
    if (auto fault = misfit(entry, found, file, result.report.source)) {
      result.report.mismatched.push_back(std::move(*fault));
      continue;
    }
    result.fitting.emplace_back(std::move(entry), found.front());
  }
  result.report.unexpected.assign(unexpected.begin(), unexpected.end());
  return result;
}

template <typename Target, typename File>
[[nodiscard]] state_fit fit_target(Target& target, const File& file) {
  state_fit fit = fit_state(state_entries<state_access::overwrite>(target), file);
  if constexpr (std::derived_from<Target, shared_state>) {
    std::erase_if(fit.report.unexpected,
                  [&](const std::string& name) { return target.is_elsewhere(name); });
  }
  return fit;
}

/// load_state for the entries of a model of any type.
template <typename File>
state_report load_entries(state_fit fit, const File& file, state_match match) {
  auto& [report, fitting] = fit;
  if (match != state_match::partial && !report.empty()) {
    throw_error(errc::bad_data,
                "{} does not fit this model, so nothing was loaded:{}\nBuild the model as it was "
                "when the {} was made, or load with state_match::partial.",
                file.path().empty() ? "this " + report.source : formatted("\"{}\"", file.path()),
                report.text(), report.source);
  }
  // Opens all shards that are needed, so that damage is found before anything is overwritten.
  for (const auto& [entry, stored] : fitting)
    file.for_each_source(*stored, entry.part, [](const auto&...) {});
  try {
    for (const auto& [entry, stored] : fitting)
      read_part(file, *stored, entry.part, entry.type, entry.memory());
  } catch (const error& reason) {
    throw_error(reason.code_value(), "{} The model is partly overwritten: load it again.",
                reason.what());
  }
  return std::move(report);
}

}  // namespace detail

/// The differences between `target` and an open file; changes nothing.
template <typename Target, typename File>
[[nodiscard]] state_report compare_state(Target& target, const File& file) {
  return detail::fit_target(target, file).report;
}

/// Reads the parameters of `target` from an open file, a safetensors_file or safetensors_shards;
/// floating-point types are converted. If a model has no values yet, memory is allocated only for
/// those in the file, without initialising it first. If there are differences and `match` is
/// strict, throws errc::bad_data, which lists them, and changes nothing. Throws errc::io if the
/// disk fails during reading; the target is partly overwritten then.
template <typename Target, typename File>
  requires requires(const File& file) { file.tensors(); }
state_report load_state(Target& target, const File& file,
                        state_match match = state_match::strict) {
  return detail::load_entries(detail::fit_target(target, file), file, match);
}
template <typename Target>
state_report load_state(Target& target, const std::string& path,
                        state_match match = state_match::strict) {
  return load_state(target, safetensors_file(path), match);
}
/// For arguments in another order: a compile-time error that names it.
template <typename Target>
state_report load_state(const std::string&, Target&, state_match = state_match::strict) {
  static_assert(std::is_void_v<Target>, "the order is load_state(model, \"model.safetensors\")");
  return {};
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/state_impl.hpp>
#endif
