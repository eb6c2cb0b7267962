// call_site: where in the user's code a call was made.
//
// std::source_location is missing from clang 14, so this is the one shim: a defaulted argument
// `call_site site = call_site::current()` is evaluated at the caller. Where that is the standard
// library (std::make_unique<parx::ddp<model>>(net, world)), the user's line is not known, and
// naming the library's would mislead.
#pragma once

#include <cstring>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

struct call_site {
  const char* file = "";
  int line = 0;  ///< 0: not known

  [[nodiscard]] static call_site current(const char* file = __builtin_FILE(),
                                         int line = __builtin_LINE()) noexcept {
    // libstdc++'s folder and libc++'s. Of a literal, compilers search it themselves.
    if (std::strstr(file, "/include/c++/") != nullptr) return {};
    return {file, line};
  }

  /// The file's name without its folders: messages quote `train.cpp:88`, not a build path.
  [[nodiscard]] constexpr std::string_view file_name() const noexcept {
    std::string_view path = file;
    const auto slash = path.find_last_of('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
  }
};

}  // namespace parx
