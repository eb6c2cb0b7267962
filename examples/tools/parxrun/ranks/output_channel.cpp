#include "tools/parxrun/ranks/output_channel.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

pipe_ends make_terminal(int model, std::size_t columns_taken) {
  descriptor reader(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[64];
  if (!reader.valid() || ::grantpt(reader.get()) != 0 || ::unlockpt(reader.get()) != 0 ||
      ::ptsname_r(reader.get(), name, sizeof name) != 0) {
    return make_pipe();
  }
  descriptor writer(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!writer.valid() || ::tcgetattr(writer.get(), &settings) != 0) return make_pipe();
  ::cfmakeraw(&settings);  // else line feeds become \r\n
  ::tcsetattr(writer.get(), TCSANOW, &settings);
  winsize size{};
  if (::ioctl(model, TIOCGWINSZ, &size) == 0) {
    // One more column stays free, because some terminals wrap after a full line.
    const auto taken = static_cast<unsigned short>(columns_taken + 1);
    size.ws_col =
        size.ws_col > taken + 20 ? static_cast<unsigned short>(size.ws_col - taken) : size.ws_col;
    ::ioctl(writer.get(), TIOCSWINSZ, &size);
  }
  return {std::move(reader), std::move(writer)};
}

void make_log_folder(const std::string& path) {
  std::error_code why;
  std::filesystem::create_directories(path, why);
  if (why) {
    throw_error(errc::io, "cannot make the log folder {}: {}. Name another one with --log-dir",
                path, why.message());
  }
}

descriptor create_log(const std::string& path, earlier_log earlier) {
  const int truncates = earlier == earlier_log::replace ? O_TRUNC : 0;
  descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | truncates | O_APPEND | O_CLOEXEC, 0666));
  if (!file.valid()) {
    throw_error(errc::io, "cannot create the log file {}: {}. Name another folder with --log-dir",
                path, errno_text(errno));
  }
  return file;
}

std::deque<std::string> tail_of(const std::string& path, std::size_t count) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  constexpr std::streamoff window = 1 << 14;
  const std::streamoff size = file.tellg();
  file.seekg(size > window ? size - window : 0);
  std::deque<std::string> lines;
  std::string line;
  if (size > window) std::getline(file, line);  // an incomplete line
  while (std::getline(file, line)) {
    lines.push_back(line);
    if (lines.size() > count) lines.pop_front();
  }
  return lines;
}

}  // namespace parx::detail
