// Definitions of anomaly.hpp.
#pragma once

#include <cxxabi.h>

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <parx/autograd/anomaly.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

PARX_INLINE std::string operation_name(const char* mangled) {
  const std::unique_ptr<char, void (*)(void*)> memory(
      abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr), std::free);
  static constexpr std::string_view ours = "parx::", inner = "detail::";
  static constexpr std::string_view hidden[] = {"(anonymous namespace)::", PARX_ABI_TEXT "::"};
  std::string demangled = memory ? memory.get() : mangled;
  for (const std::string_view part : hidden) {
    for (std::size_t at = 0; (at = demangled.find(part)) != std::string::npos;) {
      demangled.erase(at, part.size());
    }
  }
  const std::string_view text = demangled;
  // Activations share one operation; its template argument names them: gelu_function<float>.
  if (const std::size_t end = text.find("_function<"); end != std::string_view::npos) {
    const std::size_t begin = text.find_last_of(":<", end) + 1;
    return std::string(text.substr(begin, end - begin));
  }
  for (std::size_t at = text.find(ours); at < text.size(); at = text.find(ours, at + 1)) {
    std::string_view rest = text.substr(at + ours.size());
    if (rest.substr(0, inner.size()) == inner) rest.remove_prefix(inner.size());
    const std::string_view name = rest.substr(0, rest.find_first_of("<(: "));
    rest.remove_prefix(name.size());
    if (rest.substr(0, 1) == "<") {
      std::size_t end = 0, depth = 0;
      do {
        depth += rest[end] == '<';
        depth -= rest[end] == '>';
        const bool of_a_type = std::isalnum(static_cast<unsigned char>(rest[end])) != 0 ||
                               std::string_view("_ ,:<>").find(rest[end]) != std::string_view::npos;
        if (!of_a_type) break;
        ++end;
      } while (depth > 0 && end < rest.size());
      if (depth > 0) continue;
      rest.remove_prefix(end);
    }
    if (rest.substr(0, 1) == "(" && !name.empty()) return std::string(name);
  }
  return std::string(text.substr(0, text.find('(')));
}

}  // namespace detail

PARX_INLINE anomaly_watch*& anomaly_watch::current() noexcept {
  thread_local anomaly_watch* watch = nullptr;
  return watch;
}

PARX_INLINE void anomaly_watch::ran(const detail::node_base& node) {
  if (!node.gradient_is_finite()) return;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    if (node.input(i) == nullptr || node.input(i)->gradient_is_finite()) continue;
    const auto origin = origins_.find(node.sequence);
    const bool known = origin != origins_.end();
    report(formatted("gradient for its input {}", i),
           known ? detail::operation_name(origin->second.backward->name()) : "an operation",
           known ? origin->second.module : std::string());
  }
}

PARX_INLINE void anomaly_watch::enter(const void* address) {
  const auto known = paths_.find(address);
  running_.push_back(known != paths_.end() ? known->second : module());
}

PARX_INLINE void anomaly_watch::enter_path(std::string path) {
  running_.push_back(std::move(path));
}

PARX_INLINE void anomaly_watch::report(const std::string& what, std::string operation,
                                       std::string module) const {
  const std::string text =
      formatted("detect_anomaly: {}{} has made Inf or NaN out of finite numbers: its {}{}",
                operation, module.empty() ? "" : formatted(" of module \"{}\"", module), what,
                where_.empty() ? "" : formatted(" ({})", where_));
  throw anomaly_error(text, std::move(operation), std::move(module));
}

}  // namespace parx
