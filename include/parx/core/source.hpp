// call_site: where in the user's code a call was made.
//
// std::source_location is missing from clang 14, so this is the one shim: a defaulted argument
// `call_site site = call_site::current()` is evaluated at the caller. Where that is the standard
// library (std::make_unique<parx::ddp<model>>(net, world)), the user's line is not known, and
// naming the library's would mislead.
//
// An operator, and a layer that is called with several inputs, cannot take such an argument. Where
// they refuse what they are given, the thread's latest call that could says where to search:
// last_call_site(). A function whose messages do not name it takes one without a name, to be that.
#pragma once

#include <cstring>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

// Two words rather than a call_site, which has current() write them.
inline constinit thread_local const char* last_call_file = "";
inline constinit thread_local int last_call_line = 0;

}  // namespace detail

struct call_site {
  const char* file = "";
  int line = 0;  ///< 0: not known

  [[nodiscard]] static call_site current(const char* file = __builtin_FILE(),
                                         int line = __builtin_LINE()) noexcept {
    // libstdc++'s folder and libc++'s. Of a literal, compilers search it themselves.
    if (std::strstr(file, "/include/c++/") != nullptr) return {};
    if (std::strstr(file, "include/parx/") == nullptr) {
      detail::last_call_file = file;
      detail::last_call_line = line;
    }
    return {file, line};
  }

  /// The file's name without its folders: messages quote `train.cpp:88`, not a build path.
  [[nodiscard]] constexpr std::string_view file_name() const noexcept {
    std::string_view path = file;
    const auto slash = path.find_last_of('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
  }
};

/// Where this thread has called something with a call_site last, from outside of parx's headers.
[[nodiscard]] inline call_site last_call_site() noexcept {
  return {detail::last_call_file, detail::last_call_line};
}

}  // namespace parx
