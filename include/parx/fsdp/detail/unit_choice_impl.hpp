// Definitions of unit_choice.hpp.
#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include <parx/fsdp/unit_choice.hpp>
#include <parx/plan/shapes.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE bool matches_path(std::string_view pattern, std::string_view path) {
  return matched_prefix(path, pattern) == path;
}

PARX_INLINE std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

PARX_INLINE void require_modules(const unit_choice& choice,
                                 const std::vector<unit_candidate>& modules,
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

PARX_INLINE unit_choice narrowed(unit_choice choice, const std::vector<unit_candidate>& part) {
  const auto is_elsewhere = [&](const auto& what) { return !names_any(what, part); };
  std::erase_if(choice.types, is_elsewhere);
  std::erase_if(choice.paths, is_elsewhere);
  return choice;
}

}  // namespace parx::detail
