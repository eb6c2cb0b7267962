#include "tools/parxrun/ranks/job_guard.hpp"

#include <cstddef>

#include <parx/core/file_text.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

bool has_variable(pid_t pid, const std::string& entry) {
  const auto environ = file_text(formatted("/proc/{}/environ", pid));
  if (!environ) return false;
  const std::string all = '\0' + *environ + '\0';
  return all.find('\0' + entry + '\0') != std::string::npos;
}

void rename_this_process(const std::string& name) {
  ::prctl(PR_SET_NAME, name.c_str());
  // The 48th and 49th fields, where the state is the third.
  const std::string stat = file_text("/proc/self/stat").value_or("");
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < 48 && at < stat.size(); ++field) at = stat.find(' ', at) + 1;
  unsigned long begin = 0;
  unsigned long end = 0;
  if (at >= stat.size() || std::sscanf(stat.c_str() + at, "%lu %lu", &begin, &end) != 2) return;
  if (begin == 0 || end <= begin) return;
  char* const text = reinterpret_cast<char*>(begin);
  std::memset(text, 0, end - begin);
  std::memcpy(text, name.data(), std::min(name.size(), end - begin - 1));
}

}  // namespace parx::detail
