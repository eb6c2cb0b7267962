// unit_choice: which modules of a model are the units of an fsdp. The parameters of a unit are
// gathered, released and reduced together.
//
//   {.units = parx::by_type<parx::models::llama_layer<>>}      // modules of these types
//   {.units = parx::by_path({"transformer.h.*", "head"})}      // modules with these paths
//   {.units = parx::by_size(64 << 20)}                         // of about this many bytes
//
// Units may be nested. Parameters in none of them form a unit of their own, the root. In a path, *
// stands for any one part between dots.
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/nn/module_view.hpp>
#include <parx/plan/shapes.hpp>

namespace parx::inline PARX_ABI {

struct unit_choice {
  std::vector<std::type_index> types;
  std::vector<std::string> paths;
  std::size_t bytes = 0;  ///< 0: not by size
};

/// Whether `path`, of a module or parameter, is `module` or within it. All is within "".
[[nodiscard]] inline bool is_in_module(std::string_view path, std::string_view module) {
  return module.empty() ||
         (path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.'));
}

namespace detail {

template <typename... Modules>
struct units_of_types {
  operator unit_choice() const {  // NOLINT(google-explicit-constructor)
    return {{typeid(Modules)...}, {}, 0};
  }
};

/// Whether `path` is `pattern`, in which * stands for any part between dots.
[[nodiscard]] inline bool matches_path(std::string_view pattern, std::string_view path) {
  return matched_prefix(path, pattern) == path;
}

[[nodiscard]] inline std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

/// A module of a model. Lists of them have outer modules before those within them.
struct unit_candidate {
  std::string path;
  std::vector<std::type_index> types = {};
  /// Its parameters are all that have its path. Other modules may have such names, too: Hugging
  /// Face's "attn.c_proj" in a model whose "attn" has no parameters.
  bool has_all_of_path = true;
};

/// The number of elements of the parameters within a path, each counted once.
class path_sizes {
 public:
  template <typename Model>
  explicit path_sizes(Model& model) {
    model.for_each_parameter_path([&](const std::string& path, auto& each, const auto&) {
      all_.push_back({path, each.node().get(), each.global_shape().size()});
    });
  }
  [[nodiscard]] std::size_t within(std::string_view module) const {
    std::size_t sum = 0;
    std::set<const void*> counted;
    for (const named& each : all_) {
      if (is_in_module(each.path, module) && counted.insert(each.node).second) sum += each.size;
    }
    return sum;
  }

 private:
  struct named {
    std::string path;
    const void* node;
    std::size_t size;
  };
  std::vector<named> all_;
};

template <typename Model>
[[nodiscard]] std::vector<unit_candidate> unit_candidates(Model& model) {
  std::vector<unit_candidate> found;
  const path_sizes sizes(model);
  model.for_each_module([&](const std::string& path, const nn::module_view& part) {
    unit_candidate& each = found.emplace_back(unit_candidate{path, {part.type}});
    each.has_all_of_path = sizes.within(path) <= part.parameter_count();
    if (part.recomputed != nullptr) each.types.push_back(*part.recomputed);
  });
  return found;
}

[[nodiscard]] inline bool names(std::type_index type, const unit_candidate& module) {
  return std::find(module.types.begin(), module.types.end(), type) != module.types.end();
}
[[nodiscard]] inline bool names(const std::string& pattern, const unit_candidate& module) {
  return matches_path(pattern, module.path);
}
/// Whether a type or a pattern names any of the modules.
[[nodiscard]] bool names_any(const auto& what, const std::vector<unit_candidate>& modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const unit_candidate& each) { return names(what, each); });
}

/// Throws usage_error for a type or path that names none of the modules.
inline void require_modules(const unit_choice& choice, const std::vector<unit_candidate>& modules,
                            std::string_view who) {
  for (const std::type_index& type : choice.types) {
    require(names_any(type, modules), "{}: the model has no module of type {}, which .units names",
            who, demangled(type.name()));
  }
  for (const std::string& pattern : choice.paths) {
    require(names_any(pattern, modules), "{}: the model has no module \"{}\", which .units names",
            who, pattern);
  }
}
/// The choice without types and paths that name none of these modules, which are a part of a model.
[[nodiscard]] inline unit_choice narrowed(unit_choice choice,
                                          const std::vector<unit_candidate>& part) {
  const auto is_elsewhere = [&](const auto& what) { return !names_any(what, part); };
  std::erase_if(choice.types, is_elsewhere);
  std::erase_if(choice.paths, is_elsewhere);
  return choice;
}

/// The paths of the modules that are units. `bytes_of(path)` is the size of the parameters within
/// the module of this path.
template <typename BytesOf>
[[nodiscard]] std::vector<std::string> chosen_units(const unit_choice& choice,
                                                    const std::vector<unit_candidate>& modules,
                                                    BytesOf&& bytes_of) {
  std::vector<bool> is_unit(modules.size());
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const auto names_it = [&](const auto& what) { return names(what, modules[i]); };
    is_unit[i] = std::any_of(choice.types.begin(), choice.types.end(), names_it) ||
                 std::any_of(choice.paths.begin(), choice.paths.end(), names_it);
  }
  if (choice.bytes > 0) {
    std::vector<std::size_t> in_units(modules.size());  // bytes of each that are in units already
    for (std::size_t i = modules.size(); i-- > 0;) {
      const std::size_t all = bytes_of(modules[i].path);
      is_unit[i] = is_unit[i] || (modules[i].has_all_of_path && all - in_units[i] >= choice.bytes);
      const std::size_t taken = is_unit[i] ? all : in_units[i];
      for (std::size_t outer = i; outer-- > 0 && taken > 0;) {
        if (!is_in_module(modules[i].path, modules[outer].path)) continue;
        in_units[outer] += taken;
        break;
      }
    }
  }
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (is_unit[i] && !modules[i].path.empty()) paths.push_back(modules[i].path);
  }
  return paths;
}

}  // namespace detail

/// The modules of these types are units. A type that no module has is an error.
template <typename... Modules>
inline constexpr detail::units_of_types<Modules...> by_type{};

/// The modules with these paths are units. A path that no module has is an error.
[[nodiscard]] inline unit_choice by_path(std::initializer_list<std::string> paths) {
  return {{}, paths, 0};
}
/// A module becomes a unit if its parameters that are in no inner unit take at least `bytes`. A
/// parameter that several units share is in the innermost unit around them.
/// Source: PyTorch's size_based_auto_wrap_policy.
[[nodiscard]] inline unit_choice by_size(std::size_t bytes) { return {{}, {}, bytes}; }

}  // namespace parx
