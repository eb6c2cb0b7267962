#include <parx/checkpoint/safetensors.hpp>

#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include <parx/checkpoint/mapped.hpp>

#include <boost/test/unit_test.hpp>

#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using parx_test::mentions;
using parx_test::read_file;
using parx_test::scratch_folder;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// A file with this header and data, as the format's description puts them together.
std::string file_bytes(std::string_view header, std::string_view data) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8)
    bytes += static_cast<char>(header.size() >> shift);
  return bytes.append(header).append(data);
}

std::string load_failure(const scratch_folder& folder, std::string_view contents) {
  const auto path = folder.write("hostile.safetensors", contents);
  try {
    const safetensors_file file(path);
  } catch (const error& failure) {
    BOOST_TEST((failure.code_value() == errc::bad_data));
    return failure.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_file_is_byte_for_byte_what_the_format_says) {
  const scratch_folder folder;
  const std::vector<tensor_to_store> tensors{{"a", dtype::int16, {2}, bytes_of("\x01\x02\x03\x04")},
                                             {"b.\"c\"", dtype::uint8, {1, 3}, bytes_of("xyz")}};
  write_safetensors(folder.file("f"), tensors, {{"epoch", "3"}});
  const std::string header =
      R"({"__metadata__":{"epoch":"3"},"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},)"
      R"("b.\"c\"":{"dtype":"U8","shape":[1,3],"data_offsets":[4,7]}})";
  // Padded with spaces until the data begin at byte 192.
  const std::string padded = header + std::string(192 - 8 - header.size(), ' ');
  BOOST_TEST(read_file(folder.file("f")) == file_bytes(padded, "\x01\x02\x03\x04xyz"));
}

BOOST_AUTO_TEST_CASE(every_type_is_read_back_as_written) {
  const scratch_folder folder;
  std::vector<tensor_to_store> tensors;
  for (int type = 0; type < static_cast<int>(dtype_count); ++type) {
    const auto each = static_cast<dtype>(type);
    tensors.push_back(
        {std::string(name_of(each)),
         each,
         {2, 1},
         bytes_of(std::string_view("0123456789abcdef").substr(0, 2 * size_of(each)))});
  }
  tensors.push_back({"empty", dtype::float32, {0, 5}, {}});
  tensors.push_back({"scalar", dtype::int8, {}, bytes_of("s")});
  tensors.push_back(
      {"Gr\xC3\xB6\xC3\x9F"
       "e\n\t\x01\\",
       dtype::int8,
       {1},
       bytes_of("u")});
  write_safetensors(folder.file("f"), tensors, {{"key \"1\"", "line\nbreak"}});
  const safetensors_file file(folder.file("f"));
  BOOST_TEST(file.metadata().at("key \"1\"") == "line\nbreak");
  BOOST_TEST(file.tensors().size() == tensors.size());
  for (const auto& expected : tensors) {
    const stored_tensor* const found = file.find(expected.name);
    BOOST_REQUIRE(found != nullptr);
    BOOST_TEST((found->type == expected.type));
    BOOST_TEST((found->shape == expected.shape));
    std::vector<std::byte> data(expected.data.size());
    file.read(*found, data);
    BOOST_TEST(std::equal(data.begin(), data.end(), expected.data.begin()));
  }
  BOOST_TEST(file.find("other") == nullptr);
}

BOOST_AUTO_TEST_CASE(a_header_in_other_words_is_understood) {
  const scratch_folder folder;
  const auto path = folder.write(
      "f",
      file_bytes(
          "\n{ \"\\u00e9\\ud83d\\ude00\\n\" :\t{\"data_offsets\": [ 0 ,2 ], \"shape\":[2],"
          "\"dtype\":\"BOOL\"}, \"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]} } ",
          std::string_view("\x01\x00", 2)));
  const safetensors_file file(path);
  const stored_tensor* const found = file.find("\xC3\xA9\xF0\x9F\x98\x80\n");
  BOOST_REQUIRE(found != nullptr);
  BOOST_TEST(!found->type.has_value());
  BOOST_TEST(found->dtype_name == "BOOL");
}

BOOST_AUTO_TEST_CASE(every_damaged_header_is_refused_with_the_reason) {
  const scratch_folder folder;
  const auto tensor = [](std::string_view inner) {
    return file_bytes(fmt::format("{{\"t\":{{{}}}}}", inner), "12345678");
  };
  struct attack {
    std::string contents;
    std::string_view reason;
  };
  const std::vector<attack> attacks{
      {"", "only 0 bytes"},
      {"1234567", "only 7 bytes"},
      {std::string(8, '\xFF') + "{}", "18446744073709551615"},
      {file_bytes("{}", "").substr(0, 9), "its header would take 2 bytes"},
      {file_bytes("", ""), "expected '{' at line 1, column 1"},
      {file_bytes("[]", ""), "expected '{' at line 1, column 1"},
      {file_bytes("{", ""), "expected '\"'"},
      {file_bytes("{}x", ""), "expected the end at line 1, column 3"},
      {file_bytes("{}", "x"), "take 0 bytes, but the file has 1"},
      {file_bytes("{\"a", ""), "the end of a string"},
      {file_bytes("{\"a\\x\":{}}", ""), "escape sequence"},
      {file_bytes("{\"a\\ud800\":{}}", ""), "surrogate"},
      {file_bytes("{\"__metadata__\":{\"a\":1}}", ""), "expected '\"'"},
      {file_bytes("{\"__metadata__\":" + std::string(100'000, '{'), ""), "expected '\"'"},
      {tensor(R"("dtype":"F32","shape":[2])"), "dtype, shape and data_offsets of \"t\""},
      {tensor(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), "once"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"), "expected \"dtype\""},
      {tensor(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), "unknown type \"F33\""},
      {tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "whole number"},
      {tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "whole number"},
      {tensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8])"),
       "whole number"},
      {tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "need 12 bytes"},
      {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
       "2^64 bits"},
      {tensor(R"("dtype":"F4","shape":[15],"data_offsets":[0,8])"), "a whole byte"},
      {tensor(R"("dtype":"U8","shape":[8],"data_offsets":[8,0])"), "offsets 8 to 0"},
      {tensor(R"("dtype":"U8","shape":[7],"data_offsets":[1,8])"),
       "begins at byte 1 of the data, expected 0"},
      {tensor(R"("dtype":"U8","shape":[7],"data_offsets":[0,7])"),
       "take 7 bytes, but the file has 8"},
      {tensor(R"("dtype":"U8","shape":[1000000000000],"data_offsets":[0,1000000000000])"),
       "cut short"},
      {tensor(R"("dtype":"U8","shape":[8],"data_offsets":[0,8,9])"), "two offsets"},
      {file_bytes(
           R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           "12345678"),
       "without holes or overlaps"},
      {file_bytes(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           "12345678"),
       "\"a\" appears twice"},
  };
  for (const auto& [contents, reason] : attacks) {
    const std::string message = load_failure(folder, contents);
    BOOST_TEST(mentions(message, reason),
               "\"" << message << "\" does not mention \"" << reason << "\"");
  }
}

BOOST_AUTO_TEST_CASE(every_cut_and_every_flipped_bit_of_the_header_is_an_error_or_a_valid_file) {
  const scratch_folder folder;
  write_safetensors(folder.file("good"),
                    std::vector<tensor_to_store>{{"w", dtype::uint8, {2, 2}, bytes_of("abcd")}});
  const std::string good = read_file(folder.file("good"));
  for (std::size_t length = 0; length < good.size(); ++length) {
    BOOST_TEST(load_failure(folder, std::string_view(good).substr(0, length)) != "no error");
  }
  for (std::size_t bit = 0; bit < 8 * (good.size() - 4); ++bit) {
    std::string damaged = good;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    (void)load_failure(folder, damaged);  // must return, whatever it returns
  }
}

BOOST_AUTO_TEST_CASE(random_damage_is_an_error_or_another_valid_file) {
  const scratch_folder folder;
  std::string many = R"({"__metadata__":{"format":"pt"})";
  for (int i = 0; i < 40; ++i)
    many += fmt::format(R"(,"layer.{}.w":{{"dtype":"F32","shape":[2,1],"data_offsets":[{},{}]}})",
                        i, 8 * i, 8 * i + 8);
  const std::string good = file_bytes(many + "}", std::string(320, 'd'));
  BOOST_TEST(load_failure(folder, good) == "no error");
  const std::vector<std::string> words{"{", "}", "[", "]", "\"", ",", ":", "-1", "9", "1e9", "null",
                                       "18446744073709551615", "\\u0000", "\xFF", "\"shape\":[0],"};
  std::minstd_rand random(1);
  int valid = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = good;
    for (auto edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = 8 + random() % many.size();
      switch (random() % 4) {
        case 0: damaged[at] = static_cast<char>(random()); break;
        case 1: damaged.erase(at, 1 + random() % 20); break;
        case 2: damaged.insert(at, words[random() % words.size()]); break;
        default: damaged.insert(at, damaged.substr(8 + random() % many.size(), 30)); break;
      }
    }
    if (random() % 8 != 0) {  // else the length does not fit, which is found at once
      const std::uint64_t length = damaged.size() - 320 - 8;
      std::memcpy(damaged.data(), &length, sizeof length);
    }
    const auto path = folder.write("fuzzed", damaged);
    try {
      const mapped_safetensors file(path);
      for (const stored_tensor& tensor : file.file().tensors()) {
        for (const std::byte one : file.bytes(tensor)) BOOST_REQUIRE((one == std::byte{'d'}));
      }
      ++valid;
    } catch (const error& failure) {
      BOOST_TEST((failure.code_value() == errc::bad_data), failure.what());
    }
  }
  BOOST_TEST(valid < 1000);
  BOOST_TEST(valid > 10);  // some only change a name
}

BOOST_AUTO_TEST_CASE(nothing_is_read_beyond_the_end_of_a_tensor) {
  const scratch_folder folder;
  write_safetensors(folder.file("f"),
                    std::vector<tensor_to_store>{{"a", dtype::uint8, {3}, bytes_of("abc")},
                                                 {"b", dtype::uint8, {3}, bytes_of("def")}});
  const safetensors_file file(folder.file("f"));
  const stored_tensor& a = *file.find("a");
  std::array<std::byte, 4> memory{};
  const auto read = [&](std::uint64_t first, std::size_t count) {
    memory.fill(std::byte{'.'});
    file.read(a, std::span(memory).first(count), first);
    return std::string(reinterpret_cast<const char*>(memory.data()), count);
  };
  BOOST_TEST(read(0, 3) == "abc");
  BOOST_TEST(read(2, 1) == "c");
  BOOST_TEST(read(3, 0) == "");
  // Every one of these would have ended in the neighbour's bytes.
  for (const auto& [first, count] :
       {std::pair<std::uint64_t, std::size_t>{0, 4}, {1, 3}, {3, 1}, {4, 0}, {~0ULL, 2}}) {
    BOOST_CHECK_THROW((void)read(first, count), usage_error);
    BOOST_TEST((memory.front() == std::byte{'.'}));
  }
  BOOST_CHECK_THROW(file.read(a, std::span(memory).first(2)), usage_error);
  BOOST_CHECK_THROW(file.read(a, memory), usage_error);
}

// 100 million bytes, as in the reference implementation; a sparse file takes none of them.
BOOST_AUTO_TEST_CASE(a_header_is_read_up_to_the_limit_and_no_longer_one) {
  constexpr std::uint64_t limit = 100'000'000;
  const scratch_folder folder;
  const auto sparse = [&](std::uint64_t length) {
    std::string path = folder.write("sparse.safetensors", "");
    std::filesystem::resize_file(path, 8 + length + 2);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.write(reinterpret_cast<const char*>(&length), 8);
    return path;
  };
  const std::string longer = parx_test::message_of([&] { safetensors_file(sparse(limit + 1)); });
  BOOST_TEST(parx_test::mentions(longer, "its header would take 100000001 bytes"), longer);
  // It has been read: zeros are no JSON.
  const std::string zeros = parx_test::message_of([&] { safetensors_file(sparse(limit)); });
  BOOST_TEST(parx_test::mentions(zeros, "its header is damaged", "line 1, column 1"), zeros);
}

BOOST_AUTO_TEST_CASE(types_that_parx_has_not_are_readable_as_bytes) {
  const scratch_folder folder;
  const auto path = folder.write(
      "f", file_bytes(R"({"a":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
                      R"("b":{"dtype":"BOOL","shape":[2],"data_offsets":[3,5]},)"
                      R"("c":{"dtype":"F4","shape":[6],"data_offsets":[5,8]},)"
                      R"("d":{"dtype":"C64","shape":[],"data_offsets":[8,16]}})",
                      "abcdefgh12345678"));
  const mapped_safetensors file(path);
  const auto text = [&](std::string_view name) {
    const auto bytes = file.bytes(*file.file().find(name));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  BOOST_TEST(text("a") + "|" + text("b") + "|" + text("c") + "|" + text("d") ==
             "abc|de|fgh|12345678");
  BOOST_CHECK_THROW((void)file.view<std::uint8_t>("b"), error);
}

BOOST_AUTO_TEST_CASE(a_view_is_the_file_itself_and_keeps_it_alive) {
  const scratch_folder folder;
  const std::array<float, 6> weights{1, 2, 3, 4, 5, 6};
  write_safetensors(folder.file("f"),
                    std::vector<tensor_to_store>{
                        {"flags", dtype::uint8, {3}, bytes_of("xyz")},
                        {"w", dtype::float32, {2, 3}, std::as_bytes(std::span(weights))},
                        {"none", dtype::float32, {0, 3}, {}}});
  tensor<float> view;
  {
    const mapped_safetensors file(folder.file("f"));
    view = file.view<float>("w");
    BOOST_TEST(static_cast<void*>(view.data()) ==
               static_cast<void*>(file.bytes(*file.file().find("w")).data()));
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(view.data()) % 64 == 0U);  // wide types come first
    BOOST_TEST(file.view<float>("none").size() == 0U);
    BOOST_CHECK_THROW((void)file.view<double>("w"), error);
    BOOST_CHECK_THROW((void)file.view<float>("other"), error);
  }
  BOOST_TEST((view.shape() == shape{2, 3}));
  BOOST_TEST(view.span() == weights, boost::test_tools::per_element());
  view.data()[0] = 9;  // ours alone
  BOOST_TEST(mapped_safetensors(folder.file("f")).view<float>("w").data()[0] == 1.0F);
  // Another writer need not have aligned anything: then it is a copy.
  const auto path = folder.write(
      "odd", file_bytes(R"({"w":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})",
                        std::string_view("\x01\0\0\0", 4)));
  BOOST_TEST(mapped_safetensors(path).view<std::int32_t>("w").data()[0] == 1);
}

BOOST_AUTO_TEST_CASE(a_file_that_shrinks_while_it_is_read_is_an_error_at_every_length) {
  const scratch_folder scratch;
  const std::vector<float> values(5000, 1.5F);
  const auto bytes = std::as_bytes(std::span(values));
  const std::string path = scratch.file("shrinking");
  const auto write = [&] {
    write_safetensors(path, std::vector<tensor_to_store>{{"w", dtype::float32, {5000}, bytes}});
    return std::filesystem::file_size(path);
  };
  const std::uint64_t whole = write(), data = whole - bytes.size();
  for (const std::uint64_t left :
       std::vector<std::uint64_t>{0, 8, data, data + 3, data + 4096, whole - 1}) {
    (void)write();
    const safetensors_file file(path);
    std::filesystem::resize_file(path, left);
    std::vector<float> read(5000);
    const std::string said = parx_test::message_of(
        [&] { file.read(*file.find("w"), std::as_writable_bytes(std::span(read))); });
    BOOST_TEST(mentions(said, formatted("\"{}\" became shorter while it was read: it had {} bytes",
                                        path, whole)),
               said);
    if (left < data + 4000) continue;  // what is still there is read
    file.read(*file.find("w"), std::as_writable_bytes(std::span(read).first(1000)), 0);
    BOOST_TEST(read[999] == 1.5F);
  }
}

BOOST_AUTO_TEST_CASE(a_missing_file_and_a_folder_are_named) {
  const scratch_folder folder;
  BOOST_CHECK_EXCEPTION(safetensors_file("/nonexistent/model"), error, [](const error& failure) {
    return failure.code_value() == errc::io && mentions(failure.what(), "No such file");
  });
  BOOST_CHECK_EXCEPTION(safetensors_file(folder.file("")), error, [](const error& failure) {
    return mentions(failure.what(), "not a regular file");
  });
}

BOOST_AUTO_TEST_CASE(wrong_calls_write_nothing) {
  const scratch_folder folder;
  const std::vector<tensor_to_store> twice{{"a", dtype::uint8, {1}, bytes_of("x")},
                                           {"a", dtype::uint8, {1}, bytes_of("x")}};
  BOOST_CHECK_THROW(write_safetensors(folder.file("f"), twice), usage_error);
  const std::vector<tensor_to_store> size{{"a", dtype::float32, {1}, bytes_of("x")}};
  BOOST_CHECK_THROW(write_safetensors(folder.file("f"), size), usage_error);
  BOOST_CHECK_EXCEPTION(
      write_safetensors(folder.file("no/f"), {}), error,
      [](const error& failure) { return mentions(failure.what(), "Create the folder first"); });
  BOOST_TEST(std::filesystem::is_empty(folder.file("")));
}

BOOST_AUTO_TEST_CASE(a_write_that_fails_half_way_leaves_the_old_file_and_no_other) {
  const scratch_folder folder;
  const std::vector<tensor_to_store> small{{"a", dtype::uint8, {3}, bytes_of("old")}};
  write_safetensors(folder.file("f"), small);
  const std::string before = read_file(folder.file("f"));
  // A limit on file sizes stands for the full disk. In a child, because it cannot be taken back.
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string large(1'000'000, 'n');
    const std::vector<tensor_to_store> tensors{
        {"a", dtype::uint8, {large.size()}, bytes_of(large)}};
    try {
      write_safetensors(folder.file("f"), tensors);
    } catch (const error& failure) {
      ::_exit(failure.code_value() == errc::io && mentions(failure.what(), "after 100000 bytes")
                  ? 0
                  : 2);
    }
    ::_exit(1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(WEXITSTATUS(status) == 0);
  BOOST_TEST(read_file(folder.file("f")) == before);
  BOOST_TEST(std::distance(std::filesystem::directory_iterator(folder.file("")), {}) == 1);
}

BOOST_AUTO_TEST_CASE(saving_follows_a_link_and_never_replaces_what_is_no_file) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("parx-target." + std::to_string(::getpid()));
  fs::create_directory(folder);
  std::ofstream(folder / "real") << "old";
  fs::create_symlink(folder / "real", folder / "link");
  BOOST_TEST(parx::detail::file_target((folder / "link").string()) ==
             fs::canonical(folder).string() + "/real");
  BOOST_CHECK_THROW(static_cast<void>(parx::detail::file_target(folder.string())), parx::error);
  BOOST_CHECK_THROW(static_cast<void>(parx::detail::file_target("/dev/null")), parx::error);
  fs::remove_all(folder);
}
