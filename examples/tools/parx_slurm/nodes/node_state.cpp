#include "tools/parx_slurm/nodes/node_state.hpp"

#include <algorithm>
#include <array>

namespace parx::inline PARX_ABI::slurm {

node_state parse_node_state(std::string_view word) {
  constexpr std::string_view marks = "*~#!%$@^-+";
  const auto end = word.find_first_of(marks);
  const std::string_view suffix = end == word.npos ? std::string_view() : word.substr(end);
  std::string name(word.substr(0, end));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  struct row {
    std::string_view name;
    availability is;
  };
  static constexpr std::array<row, 21> table{
      {{"idle", availability::free},         {"mix", availability::free},
       {"mixed", availability::free},        {"alloc", availability::busy},
       {"allocated", availability::busy},    {"comp", availability::busy},
       {"completing", availability::busy},   {"plnd", availability::planned},
       {"planned", availability::planned},   {"maint", availability::maintenance},
       {"resv", availability::reserved},     {"reserved", availability::reserved},
       {"drain", availability::drained},     {"drained", availability::drained},
       {"drng", availability::drained},      {"draining", availability::drained},
       {"pow_dn", availability::free},       {"powered_down", availability::free},
       {"pow_up", availability::free},       {"powering_up", availability::free},
       {"powering_down", availability::down}}};
  const auto* const found =
      std::find_if(table.begin(), table.end(), [&](const row& each) { return each.name == name; });
  if (found == table.end()) return {};
  node_state state{.is = found->is, .powered_off = name.starts_with("pow")};
  if (state.is == availability::drained) return state;
  for (const char mark : suffix) {
    if (mark == '*' || mark == '!' || mark == '%' || mark == '@' || mark == '^') {
      return {.is = availability::down};
    }
    if (mark == '$') state.is = availability::maintenance;
    if (mark == '-' && state.is == availability::free) state.is = availability::planned;
    if (mark == '~' || mark == '#') state.powered_off = true;
  }
  return state;
}

std::string to_string(availability is) {
  switch (is) {
    case availability::free:
      return "free";
    case availability::busy:
      return "busy";
    case availability::planned:
      return "kept for a job that waits";
    case availability::maintenance:
      return "in maintenance";
    case availability::reserved:
      return "reserved";
    case availability::drained:
      return "drained";
    case availability::down:
      return "down";
  }
  return "unknown";
}

}  // namespace parx::slurm
