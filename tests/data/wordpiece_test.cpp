#include <parx/data/text/wordpiece.hpp>

#include <algorithm>
#include <chrono>
#include <random>

#include <boost/test/unit_test.hpp>

#include <parx/core/json.hpp>
#include <parx/data/formats/csv.hpp>

#include <data/support.hpp>
#include <messages.hpp>
#include <sanitizers.hpp>

using namespace parx;
using data::token_id;
using parx_test::mentions;
using parx_test::message_of;
using ids = std::vector<token_id>;

namespace {

data::wordpiece_tokenizer small(data::letter_case letters = data::letter_case::uncased) {
  return data::wordpiece_tokenizer(
      data::vocabulary({"[PAD]",  "[UNK]", "[CLS]",  "[SEP]", "[MASK]", "un",  "##aff",
                        "##able", "the",   "runner", "##s",   ",",      "世",  "cafe",
                        "##e",    "caf",   "The",    "Café",  "<",      "##界"}),
      letters);
}

ids plain(const data::wordpiece_tokenizer& tokenizer, std::string_view text) {
  ids result;
  tokenizer.encode(text, result);
  return result;
}

ids as_ids(const json::value& list) {
  ids result;
  for (const auto& one : list.elements()) result.push_back(one.as<token_id>());
  return result;
}

std::vector<std::string> words(std::string_view text,
                               data::letter_case letters = data::letter_case::uncased) {
  std::vector<std::string> result;
  data::bert_words(text, letters, [&](std::string_view word, bool) { result.emplace_back(word); });
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_longest_piece_wins_and_a_word_without_pieces_is_unknown) {
  const auto tokenizer = small();
  BOOST_TEST(plain(tokenizer, "Unaffable, the runners") == (ids{5, 6, 7, 11, 8, 9, 10}),
             boost::test_tools::per_element());
  BOOST_TEST(plain(tokenizer, "unaffablex THE") == (ids{1, 8}), boost::test_tools::per_element());
  BOOST_TEST(plain(tokenizer, "Café cafee") == (ids{13, 13, 14}), boost::test_tools::per_element());
  BOOST_TEST(plain(small(data::letter_case::cased), "The Café the") == (ids{16, 17, 8}),
             boost::test_tools::per_element());
  BOOST_TEST(plain(tokenizer, "the [MASK]the [mask]") == (ids{8, 4, 8, 1, 1, 1}),
             boost::test_tools::per_element());
  // 100 characters are a word, 101 are not; characters, not bytes.
  BOOST_TEST(plain(tokenizer, "un" + std::string(98, 's')).size() == 99U);
  BOOST_TEST(plain(tokenizer, "un" + std::string(99, 's')) == (ids{1}));
}

BOOST_AUTO_TEST_CASE(words_are_split_folded_and_cleaned_as_bert_does) {
  using list = std::vector<std::string>;
  BOOST_TEST((words("Hello, World!") == list{"hello", ",", "world", "!"}));
  BOOST_TEST((words("a\x01"
                    "b\x7F c\td\ne\x0B"
                    "f") == list{"ab", "c", "d", "ef"}));
  BOOST_TEST((words("ÉÈ ΑΣ İI ẞ") == list{"ee", "ασ", "ii", "ß"}));
  BOOST_TEST((words("e\u0301\u0323x") == list{"ex"}));
  BOOST_TEST((words("한") == list{"\u1112\u1161\u11AB"}));
  BOOST_TEST((words("你好a，b") == list{"你", "好", "a", "，", "b"}));
  BOOST_TEST((words("a\u226Eb") == list{"a", "<", "b"}));  // NFD makes punctuation of it
  BOOST_TEST((words("a\u200Bb\u00ADc\u00A0d\u2028e\uFFFDf\u0085g") == list{"abc", "d", "efg"}));
  BOOST_TEST((words("a\u0378b") == list{"a\u0378b"}));  // not assigned to a character
  BOOST_TEST((words("ÉÈ你A.", data::letter_case::cased) == list{"ÉÈ", "你", "A", "."}));
}

BOOST_AUTO_TEST_CASE(ill_formed_utf8_is_dropped_and_counted_by_maximal_parts) {
  const auto tokenizer = small();
  const auto count = [&](std::string_view text) {
    return tokenizer.encode(text, data::encode_options{}).invalid;
  };
  BOOST_TEST(count("the\xFFthe") == 1U);
  BOOST_TEST(count("\xE4\xB8") == 1U);          // cut short: one piece
  BOOST_TEST(count("\xED\xA0\x80") == 3U);      // a surrogate: three
  BOOST_TEST(count("\xC0\xAF") == 2U);          // overlong
  BOOST_TEST(count("\xF4\x90\x80\x80") == 4U);  // beyond U+10FFFF
  BOOST_TEST(count("the 世界 \xF0\x9F\x98\x80") == 0U);
  BOOST_TEST(plain(tokenizer, "the\xE4\xB8runner") == (ids{1}));
}

BOOST_AUTO_TEST_CASE(special_tokens_types_mask_and_padding) {
  const auto tokenizer = small();
  const auto one =
      tokenizer.encode("the runners", {.max_length = 8, .padding = data::padding::max_length});
  BOOST_TEST(one.input_ids == (ids{2, 8, 9, 10, 3, 0, 0, 0}), boost::test_tools::per_element());
  BOOST_TEST((one.attention_mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 0, 0}));
  const auto two = tokenizer.encode("the", "runner", {});
  BOOST_TEST(two.input_ids == (ids{2, 8, 3, 9, 3}), boost::test_tools::per_element());
  BOOST_TEST((two.token_type_ids == std::vector<std::uint8_t>{0, 0, 0, 1, 1}));
  const auto cut = tokenizer.encode("the the the the the", {.max_length = 4});
  BOOST_TEST(cut.input_ids == (ids{2, 8, 8, 3}), boost::test_tools::per_element());
  BOOST_TEST(cut.truncated == 3U);
  BOOST_TEST(tokenizer.encode("the", {.special_tokens = data::special_tokens::leave_out}).size() ==
             1U);
  BOOST_TEST(tokenizer.encode("").input_ids == (ids{2, 3}));
  BOOST_TEST(tokenizer.decode(one.input_ids) == "the runners");
  BOOST_TEST(mentions(message_of([&] {
                        (void)tokenizer.encode(
                            "the the the",
                            {.max_length = 4, .truncation = data::truncation::refuse});
                      }),
                      "3 tokens", "2 that max_length leaves"));
  BOOST_CHECK_THROW((void)tokenizer.encode("the", {.max_length = 1}), usage_error);
  BOOST_CHECK_THROW((void)tokenizer.decode(ids{99}), usage_error);
}

BOOST_AUTO_TEST_CASE(pairs_are_cut_from_the_longer_side) {
  using data::truncated_lengths;
  using data::truncation;
  using lengths = std::pair<std::size_t, std::size_t>;
  // Expected values: the Rust library's.
  const std::vector<std::array<std::size_t, 5>> table{
      {5, 5, 7, 3, 4}, {5, 9, 7, 3, 4}, {9, 5, 7, 4, 3}, {2, 9, 7, 2, 5}, {9, 2, 7, 5, 2},
      {3, 3, 6, 3, 3}, {8, 8, 6, 3, 3}, {0, 9, 4, 0, 4}, {20, 9, 4, 2, 2}};
  for (const auto& [a, b, limit, first, second] : table) {
    BOOST_TEST(
        (truncated_lengths(a, b, limit, truncation::longest_first) == lengths{first, second}),
        a << " + " << b << " into " << limit);
  }
  BOOST_TEST((truncated_lengths(9, 2, 7, truncation::only_first) == lengths{5, 2}));
  BOOST_TEST((truncated_lengths(2, 9, 7, truncation::only_second) == lengths{2, 5}));
  BOOST_CHECK_THROW((void)truncated_lengths(9, 2, 7, truncation::only_second), error);
}

namespace {

/// FNV-1a of 32 bits, for results of another program.
struct short_hash {
  std::uint32_t value = 2166136261U;
  void add(unsigned char byte) { value = (value ^ byte) * 16777619U; }
};

/// A text of `words` words of `pieces` tokens each.
std::string words_of(std::size_t words, std::size_t pieces) {
  std::string text;
  for (std::size_t i = 0; i < words; ++i) text += " a" + std::string(pieces - 1, 'b');
  return text;
}

}  // namespace

// The rule by hand, token by token, and the results of the Rust library (0.23.2, from npm).
BOOST_AUTO_TEST_CASE(pairs_of_all_lengths_are_cut_as_hugging_faces_tokenizers_cuts_them) {
  const data::wordpiece_tokenizer tokenizer(
      data::vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b"}));
  short_hash all;
  for (const auto& [p, q] : {std::pair<std::size_t, std::size_t>{1, 1}, {3, 1}, {2, 3}}) {
    for (std::size_t limit = 4; limit <= 16; ++limit) {
      for (std::size_t i = 0; i <= 12; ++i) {
        for (std::size_t j = 0; j <= 12; ++j) {
          // What is read of each: whole words, until they fill the limit.
          std::size_t x = 0, y = 0;
          for (std::size_t word = 0; word < i && x < limit; ++word) x += p;
          for (std::size_t word = 0; word < j && y < limit; ++word) y += q;
          const bool odd_is_first = x > y;
          while (x + y > limit - 3) {
            if (x == y) (odd_is_first ? y : x) -= 1;
            else (x > y ? x : y) -= 1;
          }
          const auto made = tokenizer.encode(words_of(i, p), words_of(j, q), {.max_length = limit});
          const auto seconds = static_cast<std::size_t>(
              std::count(made.token_type_ids.begin(), made.token_type_ids.end(), 1));
          if (made.size() != x + y + 3 || seconds != y + 1 ||
              made.truncated != i * p + j * q - x - y) {
            BOOST_ERROR(i << " x " << p << " and " << j << " x " << q << " into " << limit << ": "
                          << made.size() - seconds - 2 << " + " << seconds - 1 << ", not " << x
                          << " + " << y);
          }
          all.add(static_cast<unsigned char>(made.size() - seconds));
          all.add(static_cast<unsigned char>(seconds));
        }
      }
    }
  }
  BOOST_TEST(all.value == 4162121368U);
}

// The hashes are those of what the Rust library's BertNormalizer and BertPreTokenizer make of "a",
// the character and "b". It has each property of characters from another version of Unicode.
BOOST_AUTO_TEST_CASE(every_character_is_treated_as_hugging_faces_tokenizers_treats_it) {
  using list = std::vector<std::string>;
  BOOST_TEST((words("a\u166Db") == list{"a", "\u166D", "b"}));  // punctuation in Unicode 8.0 only
  BOOST_TEST((words("a\u061Db") == list{"a\u061Db"}));          // punctuation since Unicode 14.0
  BOOST_TEST((words("a\u0898b") == list{"a\u0898b"}));          // a mark since Unicode 14.0
  BOOST_TEST((words("a\u1C89b") == list{"a\u1C8Ab"}));          // a letter since Unicode 16.0
  BOOST_TEST((words("a\U0002B820b") == list{"a\U0002B820b"}));  // an ideograph, but not there
  for (const auto& [letters, expected] : {std::pair{data::letter_case::uncased, 3857518596U},
                                          {data::letter_case::cased, 2796755983U}}) {
    short_hash all;
    for (std::uint32_t code = 1; code < 0x32400; ++code) {
      // Ideographs, Hangul, surrogates and scripts without anything special, for the time it takes.
      if ((code >= 0x3500 && code < 0x9FF0) || (code >= 0xAD00 && code < 0xF900) ||
          (code >= 0x12600 && code < 0x16800) || (code >= 0x17000 && code < 0x1B000) ||
          (code >= 0x20100 && code < 0x2B700))
        continue;
      std::string text = "a";
      data::append_character(text, code);
      text += 'b';
      data::bert_words(text, letters, [&](std::string_view word, bool) {
        for (const char byte : word) all.add(static_cast<unsigned char>(byte));
        all.add('\n');
      });
    }
    BOOST_TEST(all.value == expected);
  }
}

BOOST_AUTO_TEST_CASE(a_vocabulary_is_checked_line_by_line) {
  const parx_test::scratch_folder folder;
  const auto message = [&](std::string_view text) {
    return message_of([&, path = folder.write("vocab.txt", text)] {
      (void)data::wordpiece_tokenizer::read(path);
    });
  };
  BOOST_TEST(
      mentions(message("[PAD]\n[UNK]\na\n[CLS]\na\n"), "vocab.txt", "line 5", "\"a\"", "line 3"));
  BOOST_TEST(mentions(message("[PAD]\n[CLS]\n[SEP]\na\n"), "vocab.txt", "4 tokens", "[UNK]"));
  BOOST_TEST(mentions(message("[PAD]\n\n[UNK]\n"), "line 2", "empty"));
  BOOST_TEST(mentions(message("[PAD]\n[UNK]\nx\xFF\n"), "line 3", "byte 2", "UTF-8"));
  BOOST_TEST(mentions(message(""), "no tokens"));
  BOOST_TEST(mentions(message_of([] { (void)data::vocabulary::read("/nonexistent/vocab.txt"); }),
                      "/nonexistent/vocab.txt", "No such file"));
  const auto read = data::vocabulary::read(folder.write("v.txt", "[PAD]\r\nb\r\n\n\n"));
  BOOST_TEST(read.text() == "[PAD]\nb\n");
}

BOOST_AUTO_TEST_CASE(hostile_bytes_end_in_ids_of_the_vocabulary) {
  const auto tokenizer = small();
  std::mt19937 random(1);
  const std::string seed = "Unaffable, the [MASK] café 世界 \xF0\x9F\x98\x80 한국 e\u0301";
  for (int round = 0; round < 20'000; ++round) {
    std::string text = seed;
    for (unsigned i = random() % 8; i > 0; --i)
      text[random() % text.size()] = static_cast<char>(random());
    text.resize(random() % text.size());
    const auto result = tokenizer.encode(text, {.max_length = 12});
    if (result.size() > 12) BOOST_ERROR("longer than max_length");
    for (const token_id id : result.input_ids) {
      if (id < 0 || std::size_t(id) >= tokenizer.size()) BOOST_ERROR("no token: " << id);
    }
  }
}

BOOST_AUTO_TEST_CASE(same_ids_as_the_original_on_the_golden_files) {
  const auto folder = parx_test::real_data("bert");
  if (!folder) return;
  const auto tokenizer = data::wordpiece_tokenizer::read(*folder + "/vocab.txt");
  std::size_t checked = 0;
  std::string line;
  for (data::line_reader file(*folder + "/golden_ids.jsonl"); file.next(line); ++checked) {
    const auto row = json::parse(line);
    BOOST_TEST(tokenizer.encode(row.at("text").text()).input_ids == as_ids(row.at("ids")),
               "line " << file.number() << ": " << row.at("text").text());
  }
  BOOST_TEST(checked == 215U);
  for (data::line_reader file(*folder + "/golden_pairs.jsonl"); file.next(line); ++checked) {
    const auto row = json::parse(line);
    const auto made = tokenizer.encode(row.at("a").text(), row.at("b").text());
    BOOST_TEST(made.input_ids == as_ids(row.at("ids")), "pair " << file.number());
    BOOST_TEST(
        (ids(made.token_type_ids.begin(), made.token_type_ids.end()) == as_ids(row.at("types"))));
  }
  BOOST_TEST(checked == 235U);
}

BOOST_AUTO_TEST_CASE(ag_news_is_tokenised_at_more_than_a_million_tokens_a_second) {
  const auto vocab = parx_test::real_data("bert");
  const auto news = parx_test::real_data("ag_news");
  if (!vocab || !news) return;
  const auto tokenizer = data::wordpiece_tokenizer::read(*vocab + "/vocab.txt");
  std::vector<std::string> texts;
  data::csv_reader file(*news + "/train_10k.csv.gz", {.header = data::csv_header::absent});
  for (std::vector<std::string> row; file.next(row);) texts.push_back(row[1] + " " + row[2]);
  BOOST_TEST(texts.size() == 9999U);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    ids all;
    const auto start = std::chrono::steady_clock::now();
    for (const auto& text : texts) tokenizer.encode(text, all);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, double(all.size()) / seconds.count());
  }
  fmt::print("{:.1f} M tokens/s\n", best / 1e6);
#ifdef __OPTIMIZE__
  if (!parx_test::address_sanitizer) BOOST_TEST(best > 1e6);
#endif
}
