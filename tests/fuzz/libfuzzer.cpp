// One target of fuzz/targets.hpp for libFuzzer: PARX_FUZZ_TARGET names it. See fuzz/run.sh.
#include <fuzz/targets.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

const fuzz::target& chosen() {
  static const fuzz::target found = [] {
    const char* const name = std::getenv("PARX_FUZZ_TARGET");
    for (const fuzz::target& each : fuzz::targets()) {
      if (name != nullptr && std::string_view(name) == each.name) return each;
    }
    std::fprintf(stderr, "PARX_FUZZ_TARGET names no target of fuzz/targets.hpp\n");
    std::exit(2);
  }();
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  // What is thrown past here is a find: libFuzzer reports it with the input.
  chosen().run({reinterpret_cast<const char*>(data), size});
  return 0;
}
