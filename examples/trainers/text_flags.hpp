// The data of train_tinybert: flags for the files of labelled texts, their columns and tokenizer.
//
// Without --data, --train and --test the texts are generated: short news of four topics.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/options.hpp"
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
      ("too-long", "what happens to longer texts: cut or refuse", text("cut"))
      ("cache", "folder for tokenised texts", text(""));
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
  source.columns.cache = text("cache");
  if (choice(given, "too-long", {"cut", "refuse"}) == "refuse") {
    source.columns.truncation = data::truncation::refuse;
  }
  if (given["allow-empty-classes"].as<bool>()) {
    source.columns.empty_classes = data::empty_classes::allow;
  }
  return source;
}

[[nodiscard]] inline std::vector<data::topic_text> built_in_texts(std::size_t first,
                                                                  std::size_t count) {
  std::vector<data::topic_text> texts;
  for (std::size_t i = first; i < first + count; ++i) texts.push_back(data::generate_topic_text(i));
  return texts;
}

/// Uses the vocabulary of --vocab, or makes one from the training texts: the same on every rank.
[[nodiscard]] inline data::wordpiece_tokenizer make_tokenizer(const text_source& source) {
  if (!source.vocabulary.empty()) return data::wordpiece_tokenizer::read(source.vocabulary);
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
  return data::wordpiece_tokenizer(words.build({.vocab_size = source.vocab_size}));
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

}  // namespace examples
