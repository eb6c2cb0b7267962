#include <parx/data/text/byte_bpe.hpp>
#include <parx/data/text/character_tokenizer.hpp>
#include <parx/data/text/llama_tokenizer.hpp>
#include <parx/data/text/vocabulary_builder.hpp>

#include <chrono>
#include <random>

#include <boost/test/unit_test.hpp>

#include <data/support.hpp>
#include <messages.hpp>

using namespace parx;
using data::token_id;
using parx_test::mentions;
using parx_test::message_of;
using ids = std::vector<token_id>;
using list = std::vector<std::string>;

namespace {

list pieces(std::string_view text) {
  list result;
  data::gpt2_words(text, [&](std::string_view piece) { result.emplace_back(piece); });
  return result;
}

/// Joins pairs of strings by counting everything anew each time: slow, and obviously right.
/// Symbols are compared by their number, as the trainers do.
struct naive_joiner {
  std::vector<std::pair<ids, int>> words;
  std::vector<std::pair<token_id, token_id>> joined;

  template <typename Join>
  void run(std::size_t steps, int least, Join join) {
    while (steps-- > 0) {
      std::map<std::pair<token_id, token_id>, int> counts;
      for (const auto& [word, count] : words) {
        for (std::size_t i = 1; i < word.size(); ++i) counts[{word[i - 1], word[i]}] += count;
      }
      auto best = counts.end();
      for (auto it = counts.begin(); it != counts.end(); ++it) {
        if (best == counts.end() || it->second > best->second) best = it;
      }
      if (best == counts.end() || best->second < least) return;
      joined.push_back(best->first);
      const token_id made = join(best->first.first, best->first.second);
      for (auto& [word, count] : words) {
        ids next;
        for (std::size_t i = 0; i < word.size(); ++i) {
          const bool is_pair =
              i + 1 < word.size() && std::pair(word[i], word[i + 1]) == best->first;
          next.push_back(is_pair ? made : word[i]);
          if (is_pair) ++i;
        }
        word = next;
      }
    }
  }
};

std::string random_bytes(std::mt19937& random, std::size_t size) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(gpt2s_pieces_are_those_of_its_regular_expression) {
  BOOST_TEST((pieces("Hello, world! I'll don't") ==
              list{"Hello", ",", " world", "!", " I", "'ll", " don", "'t"}));
  BOOST_TEST((pieces("a  b\n\n c\n") == list{"a", " ", " b", "\n\n", " c", "\n"}));
  BOOST_TEST((pieces("a\nb  ") == list{"a", "\n", "b", "  "}));
  BOOST_TEST((pieces("x12 34ab 'tis''s") == list{"x", "12", " 34", "ab", " '", "tis", "''", "s"}));
  BOOST_TEST((pieces("é世 ½\u00A0\u00A0z\xFF\xFE") ==
              list{"é世", " ½", "\u00A0", "\u00A0", "z", "\xFF\xFE"}));
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_bytes(random, random() % 40);
    std::string joined;
    for (const auto& piece : pieces(text)) joined += piece;
    if (joined != text) BOOST_ERROR("pieces are not the text");
  }
}

BOOST_AUTO_TEST_CASE(joining_pairs_equals_counting_everything_anew) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    naive_joiner naive;
    data::detail::pair_merger merger;
    for (int w = 0; w < 30; ++w) {
      ids word(1 + random() % 9);
      for (auto& symbol : word) symbol = static_cast<token_id>(random() % 3);
      const int count = 1 + static_cast<int>(random() % 5);
      naive.words.emplace_back(word, count);
      merger.add_word(word, std::uint64_t(count));
    }
    token_id next = 3;
    naive.run(25, 2, [&](token_id, token_id) { return next++; });
    std::vector<std::pair<token_id, token_id>> joined;
    next = 3;
    merger.run(
        2, [&] { return joined.size() < 25; },
        [&](token_id a, token_id b) {
          joined.emplace_back(a, b);
          return next++;
        });
    BOOST_TEST((joined == naive.joined), "round " << round);
  }
}

BOOST_AUTO_TEST_CASE(byte_level_bpe_gives_back_any_bytes_and_survives_its_files) {
  const list texts{"the cat sat on the mat, the cat ate the rat",
                   "the theme's café, the café's theme"};
  const auto tokenizer = data::byte_bpe_tokenizer::train(texts, {.vocab_size = 268});
  BOOST_TEST(tokenizer.size() == 268U);
  BOOST_TEST(tokenizer.decode(ids{257}) ==
             "he");  // occurs as often as "th", which has larger numbers
  BOOST_TEST(tokenizer.encode(" the cat").size() <= 3U);
  BOOST_TEST(tokenizer.encode("<|endoftext|>") == ids{0});
  const parx_test::scratch_folder folder;
  tokenizer.write(folder.file("vocab.json"), folder.file("merges.txt"));
  const auto again =
      data::byte_bpe_tokenizer::read(folder.file("vocab.json"), folder.file("merges.txt"));
  BOOST_TEST(again.fingerprint() == tokenizer.fingerprint());
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text = random_bytes(random, random() % 60);
    if (round % 2 == 0) text += texts[1].substr(random() % texts[1].size()) + "<|endoftext|>";
    const ids encoded = tokenizer.encode(text);
    if (tokenizer.decode(encoded) != text) BOOST_ERROR("bytes changed");
    if (again.encode(text) != encoded) BOOST_ERROR("the files changed the tokenizer");
  }
  // A word without end takes n log n, not n^2.
  const std::string long_word(300'000, 't');
  BOOST_TEST(tokenizer.decode(tokenizer.encode(long_word)) == long_word);
}

// The same pieces and merges; but "<pad>" in a text is one token, or another one ends a sequence.
BOOST_AUTO_TEST_CASE(a_tokenizer_with_other_special_tokens_has_another_fingerprint) {
  const list texts{"the cat sat on the mat"};
  const data::byte_bpe_options options{.vocab_size = 262,
                                       .special_tokens = {"<|endoftext|>", "<pad>"}};
  const parx_test::scratch_folder folder;
  data::byte_bpe_tokenizer::train(texts, options)
      .write(folder.file("vocab.json"), folder.file("merges.txt"));
  const auto read = [&](const list& special) {
    return data::byte_bpe_tokenizer::read(folder.file("vocab.json"), folder.file("merges.txt"),
                                          special);
  };
  const auto both = read({"<|endoftext|>", "<pad>"}), other_end = read({"<pad>", "<|endoftext|>"}),
             one = read({"<|endoftext|>"}), other = read({"<pad>"});
  BOOST_TEST(both.fingerprint() == read({"<|endoftext|>", "<pad>"}).fingerprint());
  BOOST_TEST(both.special().separator != other_end.special().separator);
  BOOST_TEST(one.encode("<pad>").size() > other.encode("<pad>").size());
  const std::set<std::uint64_t> all{both.fingerprint(), other_end.fingerprint(), one.fingerprint(),
                                    other.fingerprint()};
  BOOST_TEST(all.size() == 4U);
}

BOOST_AUTO_TEST_CASE(wrong_bpe_files_are_refused_with_the_place) {
  const parx_test::scratch_folder folder;
  const auto good = data::byte_bpe_tokenizer::train(list{"aa bb aa bb"}, {.vocab_size = 259});
  good.write(folder.file("v.json"), folder.file("m.txt"));
  const auto merges = [&](std::string_view text) {
    return message_of([&, path = folder.write("bad.txt", text)] {
      (void)data::byte_bpe_tokenizer::read(folder.file("v.json"), path);
    });
  };
  BOOST_TEST(mentions(merges("#version: 0.2\na a\nb\n"), "bad.txt", "line 3", "two tokens"));
  BOOST_TEST(mentions(merges("a a\nq x\n"), "line 2", "\"q x\"", "v.json"));
  const auto vocab = [&](std::string_view text) {
    return message_of([&, path = folder.write("bad.json", text)] {
      (void)data::byte_bpe_tokenizer::read(path, folder.file("m.txt"));
    });
  };
  BOOST_TEST(mentions(vocab("{\"a\": 0, \"b\": 2}"), "bad.json", "id 1"));
  BOOST_TEST(mentions(vocab("{\"a\": 0, \"b\": 0}"), "bad.json", "id 0 once"));
  BOOST_TEST(mentions(vocab("{\"a\": 99999999999}"), "bad.json", "an id below"));
  BOOST_TEST(mentions(vocab("{\"a b\": 0}"), "bad.json", "printable"));
  BOOST_TEST(mentions(message_of([&, bad = folder.write("bad.json", "{\"a\": 0}"),
                                  none = folder.write("none", "")] {
                        (void)data::byte_bpe_tokenizer::read(bad, none);
                      }),
                      "bad.json", "byte 0"));
  BOOST_TEST(mentions(vocab("[1, 2"), "bad.json", "line 1"));
  // Hostile files: an error or a tokenizer, nothing else.
  std::mt19937 random(11);
  const std::string json = parx_test::read_file(folder.file("v.json"));
  const std::string text = parx_test::read_file(folder.file("m.txt"));
  for (int round = 0; round < 300; ++round) {
    std::string a = json;
    std::string b = text;
    for (unsigned i = 0; i < 3; ++i)
      (round % 2 == 0 ? a : b)[random() % (round % 2 == 0 ? a : b).size()] = char(random());
    const auto va = folder.write("fv", a);
    const auto vb = folder.write("fm", b);
    try {
      (void)data::byte_bpe_tokenizer::read(va, vb).encode("aabb");
    } catch (const error&) {
    }
  }
}

BOOST_AUTO_TEST_CASE(a_wordpiece_vocabulary_is_built_from_words) {
  data::vocabulary_builder builder;
  builder.add_word("hug", 10);
  builder.add_word("pug", 5);
  builder.add_word("pun", 12);
  builder.add_word("bun", 4);
  builder.add_word("hugs", 5);
  const auto tokens = builder.build({.vocab_size = 21, .special_tokens = {"[UNK]"}}).tokens();
  // 7 characters in both forms; u+g occurs 20 times, u+n 16, then h+ug 15, p+un 12, hug+s 5, ...
  BOOST_TEST(tokens == (list{"[UNK]", "b",    "g",    "h",   "n",   "p",   "s",
                             "u",     "##b",  "##g",  "##h", "##n", "##p", "##s",
                             "##u",   "##ug", "##un", "hug", "pun", "pug", "hugs"}),
             boost::test_tools::per_element());
  data::vocabulary_builder from_text;
  from_text.add("Café, café! 世界 THE the the");
  const data::wordpiece_tokenizer tokenizer(from_text.build({.vocab_size = 60}));
  ids encoded;
  tokenizer.encode("the cafe", encoded);
  BOOST_TEST(tokenizer.decode(encoded) == "the cafe");
  BOOST_TEST(encoded.size() == 2U);
  BOOST_CHECK_THROW((void)from_text.build({.vocab_size = 10}), usage_error);
  BOOST_CHECK_THROW((void)data::vocabulary_builder().build(), usage_error);
}

BOOST_AUTO_TEST_CASE(characters_in_the_order_of_their_codes) {
  const auto tokenizer = data::character_tokenizer::from_text("hello 世é\n");
  BOOST_TEST(tokenizer.size() == 8U);
  BOOST_TEST(tokenizer.encode("\n h") == (ids{0, 1, 3}), boost::test_tools::per_element());
  BOOST_TEST(tokenizer.decode(tokenizer.encode("世é lo")) == "世é lo");
  BOOST_TEST(mentions(message_of([&] { (void)tokenizer.encode("hex"); }), "byte 2", "'x'"));
  BOOST_CHECK_THROW((void)data::character_tokenizer::from_text("a\xFF"), error);
  BOOST_TEST(data::count_characters("hello 世é\n") == 9U);
  BOOST_TEST(data::count_characters("a\xFF\xE4") == 3U);
  const json::value file = json::parse(tokenizer.tokenizer_json());
  BOOST_TEST(file.at("model").at("vocab").at("世").as<int>() == 7);
  BOOST_TEST(file.at("model").at("vocab").at("\n").as<int>() == 0);
  BOOST_TEST(file.at("model").at("merges").elements().empty());
}

BOOST_AUTO_TEST_CASE(tiny_shakespeare_trains_a_vocabulary_of_1000_in_seconds) {
  const auto folder = parx_test::real_data("tinyshakespeare");
  if (!folder) return;
  const std::string text = data::read_text(*folder + "/input.txt.gz");
  BOOST_TEST(text.size() == 1'115'394U);
  BOOST_TEST(data::character_tokenizer::from_text(text).size() == 65U);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto start = now();
  const auto tokenizer = data::byte_bpe_tokenizer::train(list{text}, {.vocab_size = 1000});
  const auto trained = now();
  const ids encoded = tokenizer.encode(text);
  const std::chrono::duration<double> training = trained - start;
  const std::chrono::duration<double> encoding = now() - trained;
  fmt::print("trained in {:.2f} s; {} tokens, {:.1f} M tokens/s\n", training.count(),
             encoded.size(), double(encoded.size()) / encoding.count() / 1e6);
  BOOST_TEST(tokenizer.decode(encoded) == text);
  BOOST_TEST(training.count() < 10);
}

BOOST_AUTO_TEST_CASE(llama2cs_tokenizer_reads_and_refuses_damage) {
  const auto folder = parx_test::real_data("tinystories_260k");
  if (!folder) return;
  const auto tokenizer = data::llama_tokenizer::read(*folder + "/tok512.bin");
  BOOST_TEST(tokenizer.size() == 512U);
  for (const std::string text :
       {"Once upon a time, there was a little girl named Lily.", "x", "\n\"Hi\"  é世\xFF"})
    BOOST_TEST(tokenizer.decode(tokenizer.encode(text)) == text);
  BOOST_TEST(tokenizer.encode("").empty());
  // llama2.c's own way: look at all pairs, join the best, begin again.
  const std::string bytes = parx_test::read_file(*folder + "/tok512.bin");
  std::map<std::string, std::pair<token_id, float>> known;
  token_id number = 0;
  for (std::size_t at = 4; at < bytes.size(); ++number) {
    float score = 0;
    std::int32_t length = 0;
    std::memcpy(&score, &bytes[at], 4);
    std::memcpy(&length, &bytes[at + 4], 4);
    known.emplace(bytes.substr(at + 8, std::size_t(length)), std::pair(number, score));
    at += 8 + std::size_t(length);
  }
  std::mt19937 letters(3);
  for (int round = 0; round < 200; ++round) {
    list parts{" "};
    std::string text;
    for (auto i = 1 + letters() % 40; i > 0; --i)
      parts.emplace_back(1, "etaoinshrdlu THL.,\n"[letters() % 19]);
    for (std::size_t i = 1; i < parts.size(); ++i) text += parts[i];
    for (;;) {
      float best = -1e10F;
      std::size_t where = parts.size();
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = known.find(parts[i] + parts[i + 1]);
        if (found == known.end() || found->second.second <= best) continue;
        best = found->second.second;
        where = i;
      }
      if (where == parts.size()) break;
      parts[where] += parts[where + 1];
      parts.erase(parts.begin() + std::ptrdiff_t(where) + 1);
    }
    ids expected;
    for (const auto& part : parts) {
      const auto found = known.find(part);
      expected.push_back(found != known.end() ? found->second.first : 3 + part[0]);
    }
    BOOST_TEST(tokenizer.encode(text) == expected, text);
  }
  const std::string whole = parx_test::read_file(*folder + "/tok512.bin");
  const parx_test::scratch_folder scratch;
  BOOST_TEST(mentions(message_of([&, path = scratch.write("cut", whole.substr(0, 6001))] {
                        (void)data::llama_tokenizer::read(path);
                      }),
                      "cut", "token"));
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::string text = whole;
    for (unsigned i = 0; i < 3; ++i) text[random() % text.size()] = static_cast<char>(random());
    try {
      (void)data::llama_tokenizer::read(scratch.write("mutated", text)).encode("Once upon");
    } catch (const error&) {
    }
  }
}
