// interpreter: the other file that the kernel opens to execute a program, and why it cannot.
//
// A script's first line names one, "#!/usr/bin/python3", and so does a dynamically linked program
// (its loader, PT_INTERP). Where it is missing, execve says of the program itself that there is no
// such file. Linux: fs/binfmt_script.c, fs/binfmt_elf.c.
#pragma once

#include <elf.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include <parx/core/error.hpp>
#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI::detail {

/// The path that the kernel takes from the first line of a script; empty where there is none. The
/// kernel knows no CR LF: the CR is a part of the path.
[[nodiscard]] inline std::string interpreter_of_script(std::string_view file) {
  if (!file.starts_with("#!")) return {};
  const std::string_view line = file.substr(2, file.find('\n') - 2);
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  const std::size_t end = line.find_first_of(" \t", begin);
  return std::string(line.substr(begin, end - begin));
}

/// The loader that a 64-bit program names; empty where there is none.
[[nodiscard]] inline std::string loader_of_program(std::string_view file) {
  const auto read = [&](auto& into, std::size_t at) {
    if (at > file.size() || file.size() - at < sizeof into) return false;
    std::memcpy(&into, file.data() + at, sizeof into);
    return true;
  };
  Elf64_Ehdr header{};
  if (!file.starts_with(ELFMAG) || !read(header, 0) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return {};
  }
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (header.e_phoff > file.size() || !read(part, header.e_phoff + i * sizeof part)) return {};
    if (part.p_type != PT_INTERP) continue;
    if (part.p_offset > file.size()) return {};
    const std::string_view path = file.substr(part.p_offset, part.p_filesz);
    return std::string(path.substr(0, path.find('\0')));
  }
  return {};
}

/// Why `file`, which is there and executable, cannot be executed: the text of `why`, execve's
/// errno, or what is wrong with the interpreter that it names.
[[nodiscard]] inline std::string why_not_executed(const std::string& file, int why) {
  const std::string bytes = file_text(file).value_or("");
  const std::string script = interpreter_of_script(bytes);
  const std::string other = script.empty() ? loader_of_program(bytes) : script;
  if (other.empty() || ::access(other.c_str(), X_OK) == 0) return errno_text(why);
  const std::string text = errno_text(errno);
  if (script.empty()) return formatted("its loader \"{}\": {}", printable(other), text);
  return formatted(
      "its first line names the interpreter \"{}\": {}{}", printable(other), text,
      other.ends_with('\r') ? ". The lines end in CR LF; write them as LF: sed -i 's/\\r$//'" : "");
}

}  // namespace parx::detail
