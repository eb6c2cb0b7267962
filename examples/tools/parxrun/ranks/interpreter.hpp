// interpreter: the other file that the kernel opens to execute a program, and why it cannot.
//
// A script's first line names one, "#!/usr/bin/python3", and so does a dynamically linked program
// (its loader, PT_INTERP). Where it is missing, execve says of the program itself that there is no
// such file. Linux: fs/binfmt_script.c, fs/binfmt_elf.c.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// Why `file`, which is there and executable, cannot be executed: the text of `why`, execve's
/// errno, or what is wrong with the interpreter that it names.
[[nodiscard]] std::string why_not_executed(const std::string& file, int why);

}  // namespace parx::detail
