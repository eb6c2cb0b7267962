#include <parx/data/formats/jsonl.hpp>
#include <parx/data/formats/lines.hpp>
#include <parx/data/formats/token_shards.hpp>
#include <parx/data/text/records.hpp>

#include <random>

#include <boost/test/unit_test.hpp>

#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using data::token_id;
using parx_test::mentions;
using parx_test::message_of;
using rows = std::vector<std::vector<std::string>>;

namespace {

rows all_records(const std::string& path, std::vector<std::string> columns,
                 data::csv_header header = data::csv_header::absent) {
  data::text_records file(path, std::move(columns), data::text_format::by_name, header);
  rows result;
  for (std::vector<std::string> fields; file.next(fields);) result.push_back(fields);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(lines_end_in_lf_or_crlf_and_may_be_longer_than_the_buffer) {
  const parx_test::scratch_folder folder;
  const std::string longest(200'000, 'x');
  const std::string text =
      "\xEF\xBB\xBF"
      "a\r\n\n" +
      longest + "\nlast";
  for (const auto& path : {folder.write("a.txt", text), folder.write_gzip("a.txt.gz", text)}) {
    data::line_reader file(path);
    std::vector<std::string> lines;
    for (std::string line; file.next(line);) lines.push_back(line);
    BOOST_TEST((lines == std::vector<std::string>{"a", "", longest, "last"}));
    BOOST_TEST(file.number() == 4U);
    BOOST_TEST(data::read_text(path) == text);
  }
  data::line_reader limited(folder.file("a.txt"), 1000);
  BOOST_TEST(mentions(message_of([&] {
                        for (std::string line; limited.next(line);) {
                        }
                      }),
                      "a.txt", "line 3", "1000 bytes"));
}

BOOST_AUTO_TEST_CASE(columns_come_out_of_csv_tsv_and_json_lines_alike) {
  const parx_test::scratch_folder folder;
  const rows expected{{"a b", "1"}, {"c\n\"d\"", "2"}};
  BOOST_TEST((all_records(folder.write("a.csv", "label,text\n1,a b\n2,\"c\n\"\"d\"\"\"\n"),
                          {"text", "label"}, data::csv_header::present) == expected));
  BOOST_TEST(
      (all_records(folder.write("b.csv", "1,a b\n2,\"c\n\"\"d\"\"\"\n"), {"1", "0"}) == expected));
  BOOST_TEST((all_records(folder.write_gzip("a.jsonl.gz",
                                            "{\"label\": 1, \"text\": [\"a\", \"b\"]}\n\n"
                                            "{\"text\": \"c\\n\\\"d\\\"\", \"label\": \"2\"}\n"),
                          {"text", "label"}) == expected));
  BOOST_TEST((all_records(folder.write("a.tsv", "x\ta b\t1\ny\t\"q\t2\n"), {"1", "2"}) ==
              rows{{"a b", "1"}, {"\"q", "2"}}));
  BOOST_TEST((all_records(folder.write("l.jsonl", "{\"t\": [\"one\", \"two\"]}\n"), {"t[0]"}) ==
              rows{{"one"}}));
  // AG News: a backslash is an ordinary character, also before a closing quote.
  BOOST_TEST((all_records(folder.write("n.csv", "\"4\",\"a\\\",\"\\\"\"b\\\"\"\\\"\n"),
                          {"0", "1", "2"}) == rows{{"4", "a\\", "\\\"b\\\"\\"}}));
}

BOOST_AUTO_TEST_CASE(wrong_records_are_named_by_file_and_line) {
  const parx_test::scratch_folder folder;
  const auto read = [&](const char* name, std::string_view text, std::vector<std::string> columns) {
    return message_of([&, path = folder.write(name, text)] { (void)all_records(path, columns); });
  };
  BOOST_TEST(mentions(read("a.jsonl", "{\"a\": 1}\n\n{\"a\": }\n", {"a"}), "a.jsonl", "line 3",
                      "column 7"));
  BOOST_TEST(mentions(read("a.jsonl", "{\"a\": 1}\n{\"b\": 1}\n", {"a"}), "line 2", "no \"a\""));
  BOOST_TEST(mentions(read("a.jsonl", "{\"a\": {}}\n", {"a"}), "line 1", "neither a string"));
  BOOST_TEST(mentions(read("a.jsonl", "{\"a\": []}\n", {"a[0]"}), "line 1", "no \"a[0]\""));
  BOOST_TEST(mentions(read("a.jsonl", "[1]\n", {"a"}), "line 1", "an object like {\"a\""));
  BOOST_TEST(mentions(read("a.jsonl", "{\"a\": \"\xFF\"}\n", {"a"}), "line 1", "UTF-8"));
  BOOST_TEST(mentions(read("a.jsonl", std::string(100'000, '[') + "\n", {"a"}), "line 1", "64"));
  BOOST_TEST(
      mentions(read("a.csv", "1,2\n3\n", {"0"}), "line 2", "1 fields", "first record has 2"));
  BOOST_TEST(mentions(read("a.csv", "1,2\n", {"2"}), "line 1", "2 columns", "number 2"));
  BOOST_TEST(mentions(read("a.csv", "1,2\n", {"text"}), "usage", "no header", "text"));
}

BOOST_AUTO_TEST_CASE(mutated_files_end_in_records_or_in_an_error) {
  const parx_test::scratch_folder folder;
  std::mt19937 random(4);
  const std::vector<std::pair<std::string, std::string>> seeds{
      {"f.csv", "\"1\",\"a, \"\"b\"\"\nc\",x\r\n2,,\"\"\n"},
      {"f.tsv", "a\tb\tc\n\"d\te\tf\n"},
      {"f.jsonl",
       "{\"0\": \"a\\u00e9\\ud83d\\ude00\", \"1\": [\"x\", \"y\"], \"2\": -1.5e3}\n{\"0\": 1, "
       "\"1\": 2, \"2\": []}\n"}};
  for (int round = 0; round < 1500; ++round) {
    auto [name, text] = seeds[static_cast<std::size_t>(round) % seeds.size()];
    for (unsigned i = random() % 4; i > 0; --i)
      text[random() % text.size()] = static_cast<char>(random());
    if (random() % 3 == 0) text.resize(random() % text.size());
    try {
      (void)all_records(folder.write(name, text), {"0", "1", "2"});
    } catch (const error&) {
    }
  }
}

BOOST_AUTO_TEST_CASE(token_files_join_to_one_array_with_two_or_four_bytes_a_token) {
  const parx_test::scratch_folder folder;
  std::vector<token_id> all;
  for (int i = 0; i < 1000; ++i) all.push_back(i * i % 70'000);
  const std::span<const token_id> whole = all;
  data::token_shards::write(folder.file("a.bin"), whole.subspan(0, 200));
  data::token_shards::write(folder.file("b.bin"), whole.subspan(200, 0));
  data::token_shards::write(folder.file("c.bin"), whole.subspan(200));
  BOOST_TEST(parx_test::read_file(folder.file("a.bin")).size() == 1024 + 2 * 200U);
  BOOST_TEST(parx_test::read_file(folder.file("c.bin")).size() == 1024 + 4 * 800U);
  const auto shards =
      data::token_shards::open({folder.file("a.bin"), folder.file("b.bin"), folder.file("c.bin")});
  BOOST_TEST(shards.size() == 1000U);
  for (const std::size_t begin : {0U, 199U, 200U, 150U, 999U, 1000U}) {
    std::vector<token_id> part(std::min<std::size_t>(100, 1000 - begin));
    shards.copy(begin, std::span(part));
    BOOST_TEST(std::equal(part.begin(), part.end(), all.begin() + std::ptrdiff_t(begin)));
  }
  std::vector<token_id> two(2);
  BOOST_CHECK_THROW(shards.copy(999, std::span(two)), usage_error);
  // llm.c's header, byte by byte.
  std::string bytes(1024, '\0');
  bytes.replace(0, 12, std::string("\x88\xD8\x34\x01\x01\x00\x00\x00\x02\x00\x00\x00", 12));
  bytes += std::string("\x05\x00\xFF\xFF", 4);
  data::token_shards::open({folder.write("llm.bin", bytes)}).copy(0, std::span(two));
  BOOST_TEST((two == std::vector<token_id>{5, 65535}));
  data::token_shards::open({folder.write("nano.bin", std::string("\x05\x00\x01\x01", 4))},
                           data::shard_format::nanogpt)
      .copy(0, std::span(two));
  BOOST_TEST((two == std::vector<token_id>{5, 257}));
}

BOOST_AUTO_TEST_CASE(damaged_token_files_are_refused) {
  const parx_test::scratch_folder folder;
  std::vector<token_id> ids{1, 2, 3};
  data::token_shards::write(folder.file("good.bin"), ids);
  const std::string good = parx_test::read_file(folder.file("good.bin"));
  const auto open = [&](std::string_view bytes) {
    return message_of(
        [&, path = folder.write("bad.bin", bytes)] { (void)data::token_shards::open({path}); });
  };
  BOOST_TEST(
      mentions(open(good.substr(0, good.size() - 1)), "bad.bin", "3 tokens", "5 bytes follow"));
  BOOST_TEST(mentions(open(good + "xx"), "3 tokens", "8 bytes follow"));
  BOOST_TEST(mentions(open("hello"), "not a token file", "nanogpt"));
  BOOST_TEST(mentions(open(""), "not a token file"));
  std::string negative = good;
  negative[11] = '\xFF';
  BOOST_TEST(mentions(open(negative), "says that it has"));
  BOOST_TEST(mentions(message_of([] { (void)data::token_shards::open({"/nonexistent.bin"}); }),
                      "No such file"));
  BOOST_TEST(mentions(message_of([] { data::token_shards::write("/nonexistent/x.bin", {}); }),
                      "cannot write"));
  std::mt19937 random(6);
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 3; ++i) bytes[random() % 20] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    (void)open(bytes);
  }
}
