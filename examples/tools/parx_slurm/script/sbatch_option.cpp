#include "tools/parx_slurm/script/sbatch_option.hpp"

#include <parx/core/check.hpp>
#include <parx/core/printable.hpp>

namespace parx::inline PARX_ABI::slurm {

std::string sbatch_option(std::string_view name, std::string_view value) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%[]|&*()";
  constexpr std::size_t longest =
      4096;  // it copies a word into a buffer of 8 KiB, and does not look
  require(printable(value) == value,
          "--{} \"{}\" has a line break, another control character, or bytes that are no UTF-8, "
          "which a line of #SBATCH cannot have",
          name, printable(value));
  require(value.size() <= longest, "--{} \"{}...\" has {} bytes: a line of #SBATCH has room for {}",
          name, value.substr(0, 40), value.size(), longest);
  std::string line = "#SBATCH --" + std::string(name) + "=";
  if (!value.empty() && value.find_first_not_of(plain) == value.npos) {
    line += value;
  } else {
    line += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') line += '\\';
      line += c;
    }
    line += '"';
  }
  return line + "\n";
}

std::string job_name_of(std::string_view text) {
  const bool is_printable = printable(text) == text;
  std::string name;
  for (const char c : text) {
    const bool is_ascii = (static_cast<unsigned char>(c) & 0x80U) == 0;
    const bool fits =
        is_ascii ? c > ' ' && c != '%' && c != '\\' && c != '/' && c != 0x7f : is_printable;
    name += fits ? c : '_';
  }
  return name.empty() ? "job" : name;
}

}  // namespace parx::slurm
