// save_state and load_state: the parameters of a model, or the state of an optimizer, as a
// safetensors file.
//
// Works on anything with for_each_parameter(visitor(path, parameter)), as parx::nn modules have
// (their buffers are saved as well), on a list of parameters, or on anything with
// for_each_state(visitor(name, tensor or number)), as averages have. Of an optimizer it saves what
// has been made: no moments of a frozen parameter. If a file does not match, nothing is changed.
// Values are copied directly between the file and the model's memory. Local: under data parallelism
// one rank saves, every rank loads. If a rank holds only a part of a parameter, only that part is
// read; for saving it see sharded.hpp. A matrix that several layers share (tied embeddings) is
// written under its first name and read under any of its names, or those that the model says files
// have for it (module::for_each_other_name); constants in a file are skipped.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/state_entries.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
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
  std::vector<std::string> resized{};   ///< loaded by state_match::common_rows, the same text

  [[nodiscard]] bool empty() const noexcept {
    return missing.empty() && unexpected.empty() && mismatched.empty();
  }
  /// One or several lines for each kind of difference; of many names only the first ones.
  [[nodiscard]] std::string text() const;
  /// The first of `mismatched`, on one line.
  [[nodiscard]] std::string first_mismatched() const { return first_of(mismatched, 4, "; "); }

 private:
  [[nodiscard]] static std::string first_of(const std::vector<std::string>& all, std::size_t most,
                                            const char* between);
};

enum class state_match {
  strict,   ///< any difference is an error
  partial,  ///< loads what matches, and warns of other shapes; nothing at all is an error
  /// As strict, but tables (nn::embedding, the heads of language models, what calls
  /// parameter::mark_table) may have more or fewer rows than in the file, as of a grown vocabulary.
  /// The first rows, which both have, are loaded; the others keep their values.
  common_rows,
};

namespace detail {

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

namespace detail {

/// broadcast_state and save_state for the entries of a target of any type.
void broadcast_entries(process_group& group, const std::vector<state_entry>& entries, int root,
                       call_site site);
void save_entries(const std::vector<state_entry>& entries, const std::string& path,
                  const checkpoint_metadata& metadata, call_site site);

}  // namespace detail

/// Collective. Copies the state of `root`, of a model, an optimizer or anything else that
/// save_state takes, to all ranks. Names and shapes must be equal on all ranks. If it fails,
/// `target` may be partly overwritten.
template <typename Target>
void broadcast_state(process_group& group, Target& target, int root,
                     call_site site = call_site::current()) {
  detail::broadcast_entries(
      group, detail::whole_entries<detail::state_access::update>(target, site), root, site);
}

/// Writes the parameters of `source` to `path`, atomically. `metadata` is for the caller: an epoch,
/// a sampler's state. Throws errc::io; an existing file is unchanged then.
template <typename Source>
void save_state(Source& source, const std::string& path, const checkpoint_metadata& metadata = {},
                call_site site = call_site::current()) {
  detail::save_entries(detail::whole_entries(source, site), path, metadata, site);
}

namespace detail {

/// The elements of `part` that a tensor of shape `other`, which has other rows, has too. They are
/// the first ones of the part.
[[nodiscard]] shard_spec part_in_common(const shard_spec& part, const shape& other);

/// The entries of a model that match a file, and the differences. `File` is a safetensors_file,
/// safetensors_shards or state_dict.
struct state_fit {
  state_report report;
  std::vector<std::pair<state_entry, const stored_tensor*>> fitting;
  std::vector<state_entry> dropped;  // lazy ones that the file rightly lacks
  bool has_others = false;           // the file has tensors of other ranks
  bool has_other_rows = false;       // a table does not fit for its number of rows
};

/// Whether a file without this lazy tensor is as it should be.
template <typename File>
[[nodiscard]] bool may_lack(const File& file, const state_entry::laziness& lazy) {
  if (lazy.counter.empty()) return true;
  const stored_tensor* const stored = file.find(lazy.counter);
  if (stored == nullptr || stored->type != dtype::uint64 || !stored->shape.empty()) return false;
  std::uint64_t count = 0;
  read_part(file, *stored, shard_spec(), dtype::uint64,
            std::as_writable_bytes(std::span(&count, 1)));
  return count == 0;
}

/// The first element that differs between two tensors of `entry`'s shape, as it would be loaded.
template <typename File>
[[nodiscard]] std::optional<std::size_t> first_difference(const state_entry& entry,
                                                          const File& file,
                                                          const stored_tensor& one,
                                                          const stored_tensor& other) {
  const shard_spec whole = whole_spec(one);
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

/// Whether they differ in the number of rows alone.
[[nodiscard]] inline bool differ_in_rows(std::span<const std::uint64_t> a,
                                         std::span<const std::uint64_t> b) {
  return !a.empty() && a.size() == b.size() && a[0] != b[0] &&
         std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

/// Both shapes and types.
[[nodiscard]] inline std::string difference_of(const stored_tensor& stored,
                                               const state_entry& entry,
                                               const std::string& source) {
  return formatted("{}: [{}] {} in the {}, [{}] {} in the model", stored.name,
                   joined_text(stored.shape), stored.dtype_name, source, joined_text(entry.shape()),
                   safetensors_name(entry.type));
}

/// Why `found`, the tensors of a file under the names of `entry`, cannot be loaded.
template <typename File>
[[nodiscard]] std::optional<std::string> misfit(const state_entry& entry,
                                                const std::vector<const stored_tensor*>& found,
                                                const File& file, const std::string& source,
                                                state_match match) {
  const std::vector<std::uint64_t> shape = entry.shape();
  for (const stored_tensor* stored : found) {
    const bool is_resized = match == state_match::common_rows && entry.is_table &&
                            differ_in_rows(stored->shape, shape) &&
                            stored->shape == found.front()->shape;
    if ((stored->shape == shape || is_resized) && loadable(*stored, entry.type)) continue;
    return difference_of(*stored, entry, source);
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
[[nodiscard]] state_fit fit_state(std::vector<state_entry> entries, const File& file,
                                  state_match match) {
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
      if (entry.lazy && may_lack(file, *entry.lazy)) result.dropped.push_back(std::move(entry));
      else result.report.missing.push_back(entry.name);
      continue;
    }
    if (auto fault = misfit(entry, found, file, result.report.source, match)) {
      result.has_other_rows |=
          entry.is_table && differ_in_rows(found.front()->shape, entry.shape());
      result.report.mismatched.push_back(std::move(*fault));
      continue;
    }
    if (found.front()->shape != entry.shape()) {
      result.report.resized.push_back(difference_of(*found.front(), entry, result.report.source));
    }
    result.fitting.emplace_back(std::move(entry), found.front());
  }
  result.report.unexpected.assign(unexpected.begin(), unexpected.end());
  return result;
}

template <typename Target, typename File>
[[nodiscard]] state_fit fit_target(Target& target, const File& file, state_match match) {
  // Rows that a file lacks keep their values.
  state_fit fit =
      fit_state(match == state_match::common_rows ? state_entries<state_access::update>(target)
                                                  : state_entries<state_access::overwrite>(target),
                file, match);
  if constexpr (requires { target.for_each_constant_name([](const std::string&) {}); }) {
    target.for_each_constant_name(
        [&fit](const std::string& name) { std::erase(fit.report.unexpected, name); });
  }
  if constexpr (std::derived_from<Target, shared_state>) {
    fit.has_others = std::erase_if(fit.report.unexpected, [&](const std::string& name) {
                       return target.is_elsewhere(name);
                     }) > 0;
  }
  return fit;
}

/// The part of `stored` to read for `entry`.
[[nodiscard]] inline shard_spec part_to_read(const state_entry& entry,
                                             const stored_tensor& stored) {
  return stored.shape == entry.shape()
             ? entry.part
             : part_in_common(entry.part, whole_spec(stored).global_shape());
}

/// load_state for the entries of a model of any type.
template <typename File>
state_report load_entries(state_fit fit, const File& file, state_match match) {
  state_report& report = fit.report;
  const auto name = [&] {
    return file.path().empty() ? "this " + report.source : formatted("\"{}\"", file.path());
  };
  if (match != state_match::partial && !report.empty()) {
    throw_error(errc::bad_data,
                "{} does not fit this model, so nothing was loaded:{}\nBuild the model as it was "
                "when the {} was made, or load with state_match::partial{}.",
                name(), report.text(), report.source,
                fit.has_other_rows ? " (with common_rows if its vocabulary has grown)" : "");
  }
  const bool misses_all = !report.missing.empty() || !report.mismatched.empty();
  if (fit.fitting.empty() && misses_all && !fit.has_others) {
    throw_error(errc::bad_data,
                "{} has no tensor that fits this model, so nothing was loaded:{}\nIs it of another "
                "model, or does it name its tensors in another way?",
                name(), report.text());
  }
  if (match == state_match::partial && !report.mismatched.empty()) {
    // A new head, perhaps, or a model of another size, whose layers would stay random in silence.
    log0(log_level::warn,
         "{} differs from this model in shapes or types, and what differs keeps its values: {}",
         name(), report.first_mismatched());
  }
  // Opens all shards that are needed, so that damage is found before anything is overwritten.
  for (const auto& [entry, stored] : fit.fitting)
    file.for_each_source(*stored, part_to_read(entry, *stored), [](const auto&...) {});
  try {
    for (const auto& [entry, stored] : fit.fitting) {
      const shard_spec part = part_to_read(entry, *stored);
      read_part(file, *stored, part, entry.type,
                entry.memory().first(part.size() * size_of(entry.type)));
    }
    for (const state_entry& entry : fit.dropped) entry.lazy->drop();
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
  return detail::fit_target(target, file, state_match::strict).report;
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
  return detail::load_entries(detail::fit_target(target, file, match), file, match);
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
