#include <parx/data/formats/csv.hpp>
#include <parx/data/formats/gzip.hpp>
#include <parx/data/formats/idx.hpp>
#include <parx/data/formats/lines.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using parx_test::expect_error;
using parx_test::idx_bytes;
using parx_test::scratch_folder;

namespace {

std::vector<std::vector<std::string>> all_records(const std::string& path,
                                                  data::csv_options options = {}) {
  data::csv_reader reader(path, options);
  std::vector<std::vector<std::string>> records;
  for (std::vector<std::string> fields; reader.next(fields);) records.push_back(fields);
  return records;
}

using records = std::vector<std::vector<std::string>>;

}  // namespace

BOOST_AUTO_TEST_CASE(plain_and_gzip_files_read_the_same) {
  const scratch_folder folder;
  const std::string bytes = idx_bytes({2051, 2, 2, 3}, "abcdefghijkl");
  for (const auto& path : {folder.write("plain", bytes), folder.write_gzip("packed.gz", bytes)}) {
    const auto images = data::read_idx_images(path);
    BOOST_TEST(images.count == 2U);
    BOOST_TEST(images.rows == 2U);
    BOOST_TEST(images.columns == 3U);
    BOOST_TEST(std::string(images.pixels.begin(), images.pixels.end()) == "abcdefghijkl");
  }
  const auto labels =
      data::read_idx_labels(folder.write("labels", idx_bytes({2049, 3}, "\x01\x02\x09")));
  BOOST_TEST(labels == (std::vector<std::uint8_t>{1, 2, 9}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_missing_file_is_named_with_the_systems_reason) {
  expect_error(errc::io, {"/nonexistent/file.gz", "No such file"},
               [] { (void)data::read_idx_images("/nonexistent/file.gz"); });
  const scratch_folder folder;
  expect_error(errc::io, {"directory"}, [&] { (void)data::read_idx_images(folder.file("")); });
}

BOOST_AUTO_TEST_CASE(every_way_to_cut_a_gzip_file_short_is_an_error) {
  const scratch_folder folder;
  std::string values(5000, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i * i * 31 >> 3U);
  const std::string whole =
      parx_test::read_file(folder.write_gzip("whole.gz", idx_bytes({2049, 5000}, values)));
  for (std::size_t length = 0; length < whole.size();
       length += std::max<std::size_t>(1, length / 20)) {
    const auto path = folder.write("cut.gz", std::string_view(whole).substr(0, length));
    expect_error(errc::bad_data, {"cut.gz"}, [&] { (void)data::read_idx_labels(path); });
  }
  // Also where only the checksum after the last value is missing.
  for (const std::size_t missing : {1U, 4U, 8U, 9U, 100U}) {
    const auto path =
        folder.write("cut.gz", std::string_view(whole).substr(0, whole.size() - missing));
    expect_error(errc::bad_data, {"cut short", "gzip"}, [&] { (void)data::read_idx_labels(path); });
  }
  std::string damaged = whole;
  damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 0x55);
  const auto path = folder.write("damaged.gz", damaged);
  expect_error(errc::bad_data, {"damaged.gz"}, [&] { (void)data::read_idx_labels(path); });
}

BOOST_AUTO_TEST_CASE(idx_errors_say_what_was_found_and_what_was_expected) {
  const scratch_folder folder;
  const auto labels = folder.write("labels", idx_bytes({2049, 1}, "\x07"));
  expect_error(errc::bad_data, {"2049", "2051", "swapped"},
               [&] { (void)data::read_idx_images(labels); });
  const auto text = folder.write("text", "hello, world, this is no image");
  expect_error(errc::bad_data, {"2051", "text"}, [&] { (void)data::read_idx_images(text); });
  const auto page = folder.write("page.gz", "<!DOCTYPE html><title>404</title>");
  expect_error(errc::bad_data, {"page.gz", "neither a gzip file nor an IDX file of images"},
               [&] { (void)data::read_idx_images(page); });
  // Some downloaders unpack a file and keep its name.
  const auto unpacked = folder.write("unpacked.gz", idx_bytes({2049, 1}, "\x07"));
  BOOST_TEST(data::read_idx_labels(unpacked).size() == 1U);
  const auto cut = folder.write("cut", idx_bytes({2051, 2, 2, 2}, "abcdef"));
  expect_error(errc::bad_data, {"at byte 16", "8 bytes", "6"},
               [&] { (void)data::read_idx_images(cut); });
  const auto header = folder.write("header", idx_bytes({2051, 2}, ""));
  expect_error(errc::bad_data, {"number of rows", "byte 8"},
               [&] { (void)data::read_idx_images(header); });
  const auto more = folder.write("more", idx_bytes({2051, 1, 1, 1}, "ab"));
  expect_error(errc::bad_data, {"after byte 17"}, [&] { (void)data::read_idx_images(more); });
  const auto longer = folder.write("longer", idx_bytes({2049, 2}, "abc"));
  expect_error(errc::bad_data, {"after byte 10"}, [&] { (void)data::read_idx_labels(longer); });
}

BOOST_AUTO_TEST_CASE(a_header_that_promises_terabytes_ends_in_an_error_not_in_an_allocation) {
  const scratch_folder folder;
  const auto path = folder.write("hostile", idx_bytes({2051, 0xFFFFFFFF, 0x4000, 0x4000}, "abc"));
  expect_error(errc::bad_data, {"only 3 are there"}, [&] { (void)data::read_idx_images(path); });
  const auto sides = folder.write("sides", idx_bytes({2051, 1, 0xFFFFFFFF, 2}, "abc"));
  expect_error(errc::bad_data, {"4294967295"}, [&] { (void)data::read_idx_images(sides); });
}

BOOST_AUTO_TEST_CASE(csv_fields_follow_rfc_4180) {
  const scratch_folder folder;
  const auto path = folder.write("a.csv",
                                 "\xEF\xBB\xBFname,text,number\r\n"
                                 "plain,\"with, comma\",1\r\n"
                                 "\r\n"
                                 "\"two\nlines\",\"say \"\"hi\"\"\",2\n"
                                 ",\"\",3");
  const records expected{
      {"plain", "with, comma", "1"}, {"two\nlines", "say \"hi\"", "2"}, {"", "", "3"}};
  BOOST_TEST((all_records(path) == expected));
  data::csv_reader reader(path);
  BOOST_TEST((reader.header() == std::vector<std::string>{"name", "text", "number"}));
  BOOST_TEST(reader.column("number") == 2U);
  BOOST_CHECK_EXCEPTION((void)reader.column("age"), usage_error, [](const usage_error& failure) {
    return std::string_view(failure.what()).find("name, text, number") != std::string_view::npos;
  });
}

BOOST_AUTO_TEST_CASE(tsv_without_quoting_and_spaces_around_fields) {
  const scratch_folder folder;
  const auto tabs = folder.write("a.tsv", "5\" disk\ta\tb\nx\t\"y\tz\n");
  BOOST_TEST((all_records(tabs, data::tsv(data::csv_header::absent)) ==
              records{{"5\" disk", "a", "b"}, {"x", "\"y", "z"}}));
  const auto spaced = folder.write("b.csv", "39, State-gov ,  \"a, b\" ,\n");
  BOOST_TEST((all_records(spaced, {.header = data::csv_header::absent,
                                   .spaces = data::csv_spaces::strip}) ==
              records{{"39", "State-gov", "a, b", ""}}));
  BOOST_TEST((
      all_records(spaced, {.header = data::csv_header::absent, .quotes = data::csv_quotes::none})[0]
          .size() == 5U));
}

BOOST_AUTO_TEST_CASE(records_that_span_the_readers_buffer_are_whole) {
  const scratch_folder folder;
  std::string text = "a,b\n";
  records expected;
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string field(i * 997, static_cast<char>('a' + i % 26));
    text += fmt::format("\"{}\n\",{}\r\n", field, i);
    expected.push_back({field + "\n", std::to_string(i)});
  }
  BOOST_TEST((all_records(folder.write("long.csv", text)) == expected));
  BOOST_TEST((all_records(folder.write_gzip("long.csv.gz", text)) == expected));
}

BOOST_AUTO_TEST_CASE(csv_errors_say_line_and_column) {
  const scratch_folder folder;
  const auto read = [&](std::string_view text) {
    return [path = folder.write("bad.csv", text)] { (void)all_records(path); };
  };
  expect_error(errc::bad_data, {"bad.csv", "line 4", "3 fields", "first record has 2"},
               read("a,b\n\"1\n\",2\n3,4,5\n"));
  expect_error(errc::bad_data, {"line 3", "column 2 (b)", "never closed"},
               read("a,b\n1,2\n3,\"4\n5,6\n"));
  expect_error(errc::bad_data, {"line 2", "column 1 (a)", "'x' follows a closing quote"},
               read("a,b\n\"1\"x,2\n"));
  expect_error(errc::bad_data, {"is empty"}, read(""));
  data::csv_reader reader(folder.write("n.csv", "age,name\n\n31,x\n"));
  std::vector<std::string> fields;
  BOOST_TEST(reader.next(fields));
  BOOST_TEST(reader.number(" +1.5e1 ", 0) == 15.0F);
  BOOST_TEST(reader.number("-2", 0) == -2.0F);
  BOOST_TEST(reader.number("1e-400", 0) == 0.0F);
  BOOST_TEST(reader.number("16777217.000000001", 0) == 16777218.0F);  // not by way of a double
  for (const char* text :
       {"", "x", "1x", "nan", "inf", "1 2", "1e400", "1e39", "-1e39", "+-1", "++1"}) {
    expect_error(errc::bad_data, {"line 3", "column 1 (age)", "not a finite number"},
                 [&] { (void)reader.number(text, 0); });
  }
}

BOOST_AUTO_TEST_CASE(text_in_another_encoding_than_utf_8_is_named) {
  using namespace std::string_literals;
  const scratch_folder folder;
  const auto wide = [](std::string_view text, std::size_t width, std::size_t at) {
    std::string bytes;
    for (const char c : text) {
      std::string one(width, '\0');
      one[at] = c;
      bytes += one;
    }
    return bytes;
  };
  const std::string_view table = "a,b\n1,2\n";
  const std::vector<std::pair<std::string, std::string>> all{
      {"\xFF\xFE" + wide(table, 2, 0), "is UTF-16, little-endian, by its byte order mark"},
      {"\xFE\xFF" + wide(table, 2, 1), "is UTF-16, big-endian, by its byte order mark"},
      {"\xFF\xFE\0\0"s + wide(table, 4, 0), "is UTF-32, little-endian, by its byte order mark"},
      {"\0\0\xFE\xFF"s + wide(table, 4, 3), "is UTF-32, big-endian, by its byte order mark"},
      {wide(table, 2, 0),
       "line 1: a NUL byte; expected text in UTF-8. Every second byte is one, as "
       "in UTF-16 without a byte order mark"},
      {wide(table, 2, 1), "line 1: a NUL byte; expected text in UTF-8. Every second byte is one"},
      {"a,b\n1,2\n3,\0\n"s, "line 3: a NUL byte; expected text in UTF-8."},
      {"a,b\n" + std::string(100'000, '1') + "\n\0"s, "line 3: a NUL byte"}};
  for (const auto& [bytes, said] : all) {
    for (const bool is_packed : {false, true}) {
      const auto path =
          is_packed ? folder.write_gzip("w.csv.gz", bytes) : folder.write("w.csv", bytes);
      expect_error(errc::bad_data, {path, said}, [&] { (void)all_records(path); });
      expect_error(errc::bad_data, {path, said}, [&] {
        data::line_reader lines(path);
        for (std::string line; lines.next(line);) {
        }
      });
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    expect_error(errc::bad_data, {all[i].second},
                 [&] { (void)data::read_text(folder.write("w.txt", all[i].first)); });
  }
  BOOST_TEST(data::read_text(folder.write("binary", "\x0A\0x"s)).size() ==
             3U);  // a sentencepiece file
}

BOOST_AUTO_TEST_CASE(what_is_quoted_of_a_table_is_printable) {
  const scratch_folder folder;
  const auto path = folder.write("c.csv",
                                 "gr\xF6\xDF"
                                 "e,\x1B[31mred\n1,\x1B[0mx\n");
  data::csv_reader reader(path);
  std::vector<std::string> fields;
  BOOST_TEST(reader.next(fields));
  expect_error(errc::bad_data, {"column 2 (\\x1b[31mred)", "\"\\x1b[0mx\" is not a finite number"},
               [&] { (void)reader.number(fields[1], 1); });
  BOOST_CHECK_EXCEPTION((void)reader.column("age"), usage_error, [](const usage_error& failure) {
    return std::string_view(failure.what()).find("names gr\\xf6\\xdfe, \\x1b[31mred") !=
           std::string_view::npos;
  });
}

BOOST_AUTO_TEST_CASE(fashion_mnist_reads_as_published) {
  const auto folder = parx_test::real_data("fashion-mnist");
  if (!folder) return;
  const auto images = data::read_idx_images(*folder + "/t10k-images-idx3-ubyte.gz");
  const auto labels = data::read_idx_labels(*folder + "/t10k-labels-idx1-ubyte.gz");
  BOOST_TEST(images.count == 10'000U);
  BOOST_TEST(images.rows == 28U);
  BOOST_TEST(images.columns == 28U);
  // Every class has 1000 test images; the first ten labels are those of the published sample.
  for (int label = 0; label < 10; ++label)
    BOOST_TEST(std::count(labels.begin(), labels.end(), label) == 1000);
  BOOST_TEST((std::vector<int>(labels.begin(), labels.begin() + 10) ==
              std::vector<int>{9, 2, 1, 1, 6, 1, 4, 6, 5, 7}));
  // The data set's published mean intensity is 0.286 over the training images; the test images' is
  // close.
  const double mean = std::accumulate(images.pixels.begin(), images.pixels.end(), 0.0) /
                      (255.0 * double(images.pixels.size()));
  BOOST_TEST(mean == 0.286, boost::test_tools::tolerance(0.01));
}
