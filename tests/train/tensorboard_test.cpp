#include <parx/train/tensorboard.hpp>

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace {

struct temporary_folder {
  std::string path =
      std::filesystem::temp_directory_path() / fmt::format("parx_events_{}", ::getpid());
  ~temporary_folder() { std::filesystem::remove_all(path); }
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
T read_as(const std::string& bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Bit by bit and from the other end, unlike the writer: long division by x^32 + ... = 0x1EDC6F41.
std::uint32_t masked_checksum(const std::string& bytes) {
  const auto reflected = [](std::uint32_t value, int bits) {
    std::uint32_t result = 0;
    for (int i = 0; i < bits; ++i) result |= (value >> i & 1U) << (bits - 1 - i);
    return result;
  };
  std::uint32_t rest = 0xFFFFFFFF;
  for (const char c : bytes) {
    rest ^= reflected(static_cast<unsigned char>(c), 8) << 24;
    for (int bit = 0; bit < 8; ++bit) {
      const bool carry = (rest & 0x80000000U) != 0;
      rest <<= 1;
      if (carry) rest ^= 0x1EDC6F41U;
    }
  }
  const std::uint32_t crc = ~reflected(rest, 32);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

// The payloads of a TFRecord file; an empty result where a frame is wrong.
std::vector<std::string> records_of(const std::string& bytes) {
  std::vector<std::string> payloads;
  for (std::size_t at = 0; at < bytes.size();) {
    if (at + 12 > bytes.size()) return {};
    const auto length = read_as<std::uint64_t>(bytes, at);
    if (read_as<std::uint32_t>(bytes, at + 8) != masked_checksum(bytes.substr(at, 8))) return {};
    if (at + 16 + length > bytes.size()) return {};
    payloads.push_back(bytes.substr(at + 12, length));
    if (read_as<std::uint32_t>(bytes, at + 12 + length) != masked_checksum(payloads.back()))
      return {};
    at += 16 + length;
  }
  return payloads;
}

// The fields of a Protocol Buffers message, by number.
std::map<unsigned, std::string> fields_of(const std::string& message) {
  std::map<unsigned, std::string> fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    const auto number = static_cast<unsigned>(key >> 3);
    switch (key & 7) {
      case 0:
        fields[number] = std::to_string(varint());
        break;
      case 1:
        fields[number] = message.substr(at, 8);
        at += 8;
        break;
      case 5:
        fields[number] = message.substr(at, 4);
        at += 4;
        break;
      default: {
        const std::size_t size = varint();
        fields[number] = message.substr(at, size);
        at += size;
      }
    }
  }
  return fields;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_independent_reader_finds_the_scalars_and_all_checksums_right) {
  const temporary_folder folder;
  parx::train::event_writer events(folder.path + "/deep/er");
  events.scalar("train/loss", 1.25, 10);
  events.scalar("train/loss", 0.5, 1'000'000'000'000);
  BOOST_TEST(events.path().find("/deep/er/events.out.tfevents.") != std::string::npos);

  const auto records = records_of(contents(events.path()));
  BOOST_REQUIRE(records.size() == 3u);
  BOOST_TEST(fields_of(records[0])[3] == "brain.Event:2");
  const auto check = [&](const std::string& record, const std::string& step, float value) {
    auto event = fields_of(record);
    BOOST_TEST(read_as<double>(event[1], 0) > 1.6e9);  // seconds since 1970
    BOOST_TEST(event[2] == step);
    auto point = fields_of(fields_of(event[5])[1]);
    BOOST_TEST(point[1] == "train/loss");
    BOOST_TEST(read_as<float>(point[2], 0) == value);
  };
  check(records[1], "10", 1.25F);
  check(records[2], "1000000000000", 0.5F);
}

BOOST_AUTO_TEST_CASE(text_is_a_string_tensor_of_the_text_plugin) {
  const temporary_folder folder;
  parx::train::event_writer events(folder.path);
  events.text("options", "| lr | 0.1 |", 0);
  const auto records = records_of(contents(events.path()));
  BOOST_REQUIRE(records.size() == 2u);
  auto point = fields_of(fields_of(fields_of(records[1])[5])[1]);
  BOOST_TEST(point[1] == "options");
  auto tensor = fields_of(point[8]);
  BOOST_TEST(tensor[1] == "7");
  BOOST_TEST(tensor[8] == "| lr | 0.1 |");
  BOOST_TEST(fields_of(fields_of(point[9])[1])[1] == "text");
}

BOOST_AUTO_TEST_CASE(two_writers_in_one_folder_use_two_files) {
  const temporary_folder folder;
  const parx::train::event_writer one(folder.path), other(folder.path);
  BOOST_TEST(one.path() != other.path());
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_made_is_an_error_that_names_it) {
  BOOST_CHECK_EXCEPTION(
      parx::train::event_writer("/dev/null/runs"), parx::error, [](const auto& refused) {
        return std::string(refused.what()).find("/dev/null/runs") != std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(tensorboard_itself_reads_the_curve) {
  if (std::system("python3 -c 'import tensorboard' 2>/dev/null") != 0) {
    std::cout << "SKIPPED: tensorboard is not installed, so only this test's own reader has read "
                 "event files\n";
    return;
  }
  const temporary_folder folder;
  parx::train::event_writer events(folder.path);
  events.scalar("train/loss", 1.25, 10);
  const std::string program =
      "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as E; "
      "e = E('" +
      folder.path +
      "'); e.Reload(); s = e.Scalars('train/loss'); "
      "assert [(p.step, p.value) for p in s] == [(10, 1.25)], s";
  BOOST_TEST(std::system(("python3 -c \"" + program + "\"").c_str()) == 0);
}
