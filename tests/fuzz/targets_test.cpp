// Thousands of damaged inputs for everything that reads what others made: none crashes, is read
// beyond its end, takes long, or breaks a promise of fuzz/targets.hpp.
#include <fuzz/targets.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <exception>
#include <random>
#include <string>

namespace {

/// One of the changes that programs like libFuzzer make: bits, bytes, lengths, cuts, repeats, and
/// parts of other seeds.
std::string mutated(std::string bytes, const std::vector<std::string>& seeds,
                    std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  static constexpr std::string_view telling[] = {
      "\xff\xff\xff\xff\xff\xff\xff\x7f", "\xff\xff\xff\xff\xff\xff\xff\xff", "-", "0", "99999999",
      "[", "]", "{", "}", "\"", ",", "\n", "\\u", "e", "F", "W0", "\xf0\x9f"};
  const std::size_t changes = 1 + below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = below(bytes.size() + 1);
    switch (below(7)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.insert(at, telling[below(std::size(telling))]);
        break;
      case 3: {
        const std::string_view put = telling[below(std::size(telling))];
        bytes.replace(at, put.size(), put);
        break;
      }
      case 4:
        bytes.resize(at);
        break;
      case 5:
        bytes.insert(at, bytes.substr(below(bytes.size() + 1), below(64)));
        break;
      default: {
        const std::string& other = seeds[below(seeds.size())];
        bytes.insert(at, other.substr(below(other.size() + 1)));
        break;
      }
    }
  }
  return bytes;
}

std::string shown(std::string_view bytes) {
  std::string text;
  for (const char each : bytes.substr(0, 200))
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(each));
  return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(damaged_inputs_are_refused_by_name_or_read_right) {
  using clock = std::chrono::steady_clock;
  for (const fuzz::target& target : fuzz::targets()) {
    std::mt19937 random(20261123);
    const auto until = clock::now() + std::chrono::milliseconds(600);
    std::size_t count = 0;
    std::vector<std::string> pool = target.seeds;
    for (; count < 20000 && clock::now() < until; ++count) {
      const bool is_seed = count < target.seeds.size();
      const std::string input = is_seed
                                    ? target.seeds[count]
                                    : mutated(pool[random() % pool.size()], target.seeds, random);
      const auto start = clock::now();
      try {
        target.run(input);
      } catch (const std::exception& found) {
        BOOST_TEST_ERROR(target.name << ": " << found.what() << " by " << shown(input));
        break;
      }
      const std::chrono::duration<double> took = clock::now() - start;
      BOOST_TEST_REQUIRE(took.count() < 1, target.name << " takes " << took.count() << " s by "
                                                       << shown(input));
      if (input.size() < 2000 && random() % 16 == 0) {
        if (pool.size() < 64) pool.push_back(input);
        else pool[target.seeds.size() + random() % (64 - target.seeds.size())] = input;
      }
    }
    BOOST_TEST(count >= 100, target.name << ": only " << count << " inputs");
    BOOST_TEST_MESSAGE(target.name << ": " << count << " inputs");
  }
}
