// The data of train_tinybert: flags for the files of labelled texts, their columns and tokenizer.
//
// Without --data, --train and --test the texts are generated: short news of four topics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cached_vocabulary.hpp"
#include "common/generated_text.hpp"
#include "common/options.hpp"
#include "prepare.hpp"
#include "token_dropout.hpp"
#include <parx/data.hpp>

namespace examples {

namespace data = parx::data;

/// Declares the flags, in a group of their own; the defaults are AG News.
inline void add_text_flags(cxxopts::Options& options) {
  const auto list = [](const char* value) {
    return cxxopts::value<std::vector<std::string>>()->default_value(value);
  };
  options.add_options("Data")
      ("data", "folder with train*.csv and test*.csv (.gz too); else built-in texts", text(""))
      ("train", "this file instead: .csv, .tsv or .jsonl, .gz too", text(""))
      ("test", "this file instead", text(""))
      ("header", "the files begin with the names of their columns", cxxopts::value<bool>())
      ("label-column", "the class: a name, or a number from 0 without --header", text("0"))
      ("text-columns", "joined by a space", list("1,2"))
      ("classes", "values of the label column, class 0 first", list("1,2,3,4"))
      ("allow-empty-classes", "a class may have no text", cxxopts::value<bool>())
      ("vocab", "vocab.txt of a BERT; else made from the training texts", text(""))
      ("vocab-size", "at most, of a vocabulary that is made", text("30522"))
      ("max-length", "tokens of a text, [CLS] and [SEP] included", text("128"))
      ("too-long", "what happens to longer texts: cut or refuse", text("cut"));
  add_cache_flags(options);
}

/// The files, and how to read them.
struct text_source {
  std::string train, test;  ///< paths; empty: built-in texts
  data::text_classification_options columns;
  std::string vocabulary;  ///< path of a vocab.txt; empty: make one
  std::size_t vocab_size;
};

/// Throws parx::error unless --data has exactly one file for each.
[[nodiscard]] inline text_source text_flags(const cxxopts::ParseResult& given) {
  const auto text = [&](const char* flag) { return given[flag].as<std::string>(); };
  text_source source{text("train"), text("test"), data::ag_news(), text("vocab"),
                     number<std::size_t>(given, "vocab-size", 100, 1 << 24)};
  if (const std::string folder = text("data"); !folder.empty()) {
    const auto what = "train*.csv and test*.csv, or name two files with --train and --test";
    if (source.train.empty()) source.train = data::find_file(folder, "train", ".csv", what);
    if (source.test.empty()) source.test = data::find_file(folder, "test", ".csv", what);
  }
  parx::require(source.train.empty() == source.test.empty(),
                "--train and --test belong together, but only \"{}\" is given",
                source.train.empty() ? source.test : source.train);
  if (source.train.empty()) {
    source.columns = {.class_count = 4};
  } else {
    source.columns.label = text("label-column");
    source.columns.texts = given["text-columns"].as<std::vector<std::string>>();
    source.columns.classes = given["classes"].as<std::vector<std::string>>();
    source.columns.header =
        given["header"].as<bool>() ? data::csv_header::present : data::csv_header::absent;
  }
  source.columns.max_length = number<std::size_t>(given, "max-length", 3, 1 << 20);
  source.columns.cache = cache_flag(given, source.train);
  if (choice(given, "too-long", {"cut", "refuse"}) == "refuse") {
    source.columns.truncation = data::truncation::refuse;
  }
  if (given["allow-empty-classes"].as<bool>()) {
    source.columns.empty_classes = data::empty_classes::allow;
  }
  return source;
}

[[nodiscard]] inline std::vector<topic_text> built_in_texts(std::size_t first,
                                                                  std::size_t count) {
  std::vector<topic_text> texts;
  for (std::size_t i = first; i < first + count; ++i) texts.push_back(generate_topic_text(i));
  return texts;
}

/// A vocabulary from the training texts: the same on every rank.
[[nodiscard]] inline data::vocabulary made_vocabulary(const text_source& source) {
  data::vocabulary_builder words;
  if (source.train.empty()) {
    for (const auto& each : built_in_texts(0, 4000)) words.add(each.text);
  } else {
    data::text_records records(source.train, source.columns.texts, source.columns.format,
                               source.columns.header);
    for (std::vector<std::string> fields; records.next(fields);) {
      for (const std::string& field : fields) words.add(field);
    }
  }
  if (words.words() == 0) {
    parx::throw_error(parx::errc::bad_data, "\"{}\" has no texts to train with", source.train);
  }
  return words.build({.vocab_size = source.vocab_size});
}

struct found_tokenizer {
  data::wordpiece_tokenizer tokenizer;
  data::cache_use cached;
};

/// Uses the vocabulary of --vocab, or the one in --cache, or makes one from the training texts.
[[nodiscard]] inline found_tokenizer make_tokenizer(const text_source& source) {
  if (!source.vocabulary.empty()) {
    return {data::wordpiece_tokenizer::read(source.vocabulary), data::cache_use::found};
  }
  const auto& columns = source.columns;
  const std::uint64_t key =
      columns.cache.empty() || source.train.empty()
          ? 0
          : data::content_hash(source.train) ^
                parx::stable_hash(fmt::format(
                    "vocabulary 1|{}|{}|{}|{}", fmt::join(columns.texts, "|"),
                    static_cast<int>(columns.header),
                    static_cast<int>(data::text_format_of(source.train, columns.format)),
                    source.vocab_size));
  const std::string folder = source.train.empty() ? "" : columns.cache;
  auto [words, cached] = cached_vocabulary(folder, key, [&] { return made_vocabulary(source); });
  return {data::wordpiece_tokenizer(std::move(words)), cached};
}

struct labelled_texts {
  data::text_classification train, test;
};

[[nodiscard]] inline labelled_texts read_texts(const text_source& source,
                                               const data::wordpiece_tokenizer& tokenizer) {
  auto columns = source.columns;
  if (source.train.empty()) {
    return {{built_in_texts(0, 4000), tokenizer, columns},
            {built_in_texts(4000, 1000), tokenizer, columns}};
  }
  data::text_classification train(source.train, tokenizer, columns);
  columns.class_count = train.classes();
  return {std::move(train), {source.test, tokenizer, columns}};
}

/// is_prepared() of prepare.hpp for labelled texts.
[[nodiscard]] inline bool are_prepared(const parx::world& world, const cxxopts::ParseResult& given,
                                       const text_source& source, const found_tokenizer& words,
                                       const labelled_texts& read, int argc,
                                       const char* const* argv) {
  if (source.train.empty()) return false;
  std::vector<cached_part> parts;
  parts.push_back({vocabulary_text(words.tokenizer, read.train), words.cached});
  parts.push_back({"tokens of " + source.train, read.train.cached()});
  parts.push_back({"tokens of " + source.test, read.test.cached()});
  return is_prepared(world, given, source.columns.cache, parts, argc, argv);
}

}  // namespace examples
