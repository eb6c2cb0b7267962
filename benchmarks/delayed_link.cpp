// delayed-link: a link with a delay between two network namespaces, for kernels without netem. Each
// namespace gets a TUN device, and this program forwards the packets between them.
//
//   delayed-link DELAY_MS DEVICE NAMESPACE NAMESPACE
//
// prints "ready" once both devices exist (without addresses), and ends with SIGTERM or SIGINT, or
// when the devices are gone. It does not limit the bandwidth: use a queue of the device (tbf) for
// that, whose backlog TCP sees as it sees that of a network card.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace {

using link_clock = std::chrono::steady_clock;
using moment = link_clock::time_point;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// A new TUN device in a network namespace; it lives as long as its descriptor.
int open_device(const std::string& network, const std::string& device) {
  const std::string path = "/run/netns/" + network;
  const int place = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (place < 0) fail("cannot open " + path);
  if (::setns(place, CLONE_NEWNET) != 0) fail("cannot enter " + path);
  ::close(place);
  const int made = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (made < 0) fail("cannot open /dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  if (::ioctl(made, TUNSETIFF, &request) != 0) fail("cannot make " + device + " in " + path);
  return made;
}

class direction {
 public:
  direction(int from, int to, link_clock::duration delay) : from_{from}, to_{to}, delay_{delay} {}

  /// Reads new packets, and delivers those whose delay is over.
  void move() {
    std::array<char, largest_packet> room;
    for (;;) {
      const ssize_t got = ::read(from_, room.data(), room.size());
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (got < 0) fail("cannot read packets");
      flying_.push_back({link_clock::now() + delay_, {room.data(), room.data() + got}});
    }
    const moment now = link_clock::now();
    for (; !flying_.empty() && flying_.front().due <= now; flying_.pop_front()) {
      const std::vector<char>& bytes = flying_.front().bytes;
      // A packet that the other device refuses is lost, as on a wire.
      [[maybe_unused]] const ssize_t put = ::write(to_, bytes.data(), bytes.size());
    }
  }

  [[nodiscard]] moment next() const {
    return flying_.empty() ? moment::max() : flying_.front().due;
  }

 private:
  static constexpr std::size_t largest_packet = 65536;
  struct packet {
    moment due;
    std::vector<char> bytes;
  };

  int from_, to_;
  link_clock::duration delay_;
  std::deque<packet> flying_;
};

void carry(int one, int other, link_clock::duration delay) {
  direction there(one, other, delay);
  direction back(other, one, delay);
  for (;;) {
    there.move();
    back.move();
    const moment next = std::min(there.next(), back.next());
    timespec left{};
    if (next != moment::max()) {
      const auto time = std::max(next - link_clock::now(), link_clock::duration{0});
      const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
      left = {.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
    }
    std::array<pollfd, 2> news{pollfd{one, POLLIN, 0}, pollfd{other, POLLIN, 0}};
    if (::ppoll(news.data(), news.size(), next == moment::max() ? nullptr : &left, nullptr) < 0 &&
        errno != EINTR) {
      fail("cannot wait for packets");
    }
  }
}

double number(std::string_view text) {
  double value = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) return -1;
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  static constexpr int wrong_usage = 2;
  const double milliseconds = argc == 5 ? number(argv[1]) : -1;
  if (!(milliseconds >= 0 && milliseconds < 1e6)) {
    std::fputs("usage: delayed-link DELAY_MS DEVICE NAMESPACE NAMESPACE\n", stderr);
    return wrong_usage;
  }
  try {
    const int one = open_device(argv[3], argv[2]);
    const int other = open_device(argv[4], argv[2]);
    fmt::print("ready\n");
    std::fflush(stdout);
    carry(one, other,
          std::chrono::duration_cast<link_clock::duration>(
              std::chrono::duration<double, std::milli>(milliseconds)));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "delayed-link: %s\n", failure.what());
    return 1;
  }
}
