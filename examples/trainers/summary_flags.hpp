// The data and model of train_summarizer: flags for files with pairs of a text and its summary, the
// lengths of both, the model, and the search for summaries.
//
// Without --train and --test the pairs are generated: notes and their headlines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cached_vocabulary.hpp"
#include "common/generated_text.hpp"
#include "common/options.hpp"
#include "prepare.hpp"
#include <parx/data.hpp>
#include <parx/models.hpp>

namespace examples {

namespace data = parx::data;
namespace models = parx::models;
using pair_list = std::vector<data::source_target>;

inline constexpr std::size_t built_in_pairs = 8'000;  ///< to train with; the next ones are held out

/// Declares the flags, in groups of their own.
inline void add_summary_flags(cxxopts::Options& options) {
  options.add_options("Data")
      ("train", "pairs to train on: .jsonl, .tsv or .csv, .gz too; else built-in notes", text(""))
      ("test", "held-out pairs; else built-in notes", text(""))
      ("source", "the text: a field, a column, or its number from 0 without --header",
       text("document"))
      ("target", "the summary, likewise", text("summary"))
      ("header", "CSV and TSV begin with the names of their columns", cxxopts::value<bool>())
      ("vocab", "vocab.txt of a WordPiece vocabulary; else made from the training pairs", text(""))
      ("vocab-size", "at most, of a vocabulary that is made", text("6000"))
      ("max-source-length", "tokens of a text; longer texts are cut off", text("160"))
      ("max-target-length", "tokens of a summary", text("48"));
  add_cache_flags(options);
  options.add_options("Model")
      ("d-model", "width", text("128"))
      ("encoder-layers", "layers of the encoder", text("2"))
      ("decoder-layers", "layers of the decoder", text("2"))
      ("heads", "of attention, in each layer", text("4"))
      ("ffn-dim", "width of the feed-forward parts", text("512"))
      ("dropout", "probability", text("0.2"))
      ("copying", "pointer: the decoder can copy tokens of the text; none: it cannot",
       text("pointer"))
      ("label-smoothing", "fraction of a label spread over all tokens", text("0.1"));
  options.add_options("Summaries")
      ("beams", "of the search for a summary; 1: always the likeliest token", text("4"))
      ("length-penalty", "above 0 favours long summaries, below 0 short ones", text("1"))
      ("no-repeat-ngram-size", "no sequence of this many tokens occurs twice in a summary; 0: off",
       text("3"))
      ("samples", "summaries to show", text("3"))
      ("eval-only", "do not train: summarize --test with the model in this folder", text(""));
}

struct summary_settings {
  std::string train = {}, test = {};  ///< files; empty: built-in notes
  std::string trained = {};           ///< the folder of --eval-only, "" for none
  data::source_target_options columns = {};
  std::string vocabulary = {};  ///< path of a vocab.txt; empty: make one
  std::size_t vocab_size = 0;
  data::sequence_pair_options lengths = {};
  models::encoder_decoder_config model = {};  ///< without vocab_size, which follows from the data
  models::beam_options search = {};           ///< without start and end token, likewise
  double label_smoothing = 0;
  std::size_t samples = 0;
};

/// Throws parx::usage_error for flags that are wrong or do not fit together.
[[nodiscard]] inline summary_settings summary_flags(const cxxopts::ParseResult& given) {
  const auto text = [&](const char* flag) { return given[flag].as<std::string>(); };
  const auto count = [&](const char* flag, std::size_t least = 1) {
    return number<std::size_t>(given, flag, least, 1 << 20);
  };
  summary_settings s{.train = text("train"), .test = text("test"), .trained = text("eval-only")};
  parx::require(s.trained.empty() || s.train.empty(), "--eval-only and --train exclude each other");
  parx::require(s.trained.empty() ? s.train.empty() == s.test.empty() : true,
                "--train and --test belong together, but only \"{}\" is given",
                s.train.empty() ? s.test : s.train);
  s.columns = {.source = text("source"),
               .target = text("target"),
               .header = given["header"].as<bool>() ? data::csv_header::present
                                                    : data::csv_header::absent};
  s.vocabulary = text("vocab");
  s.vocab_size = count("vocab-size", 100);
  s.lengths.source = s.columns.source;
  s.lengths.target = s.columns.target;
  s.lengths.header = s.columns.header;
  s.lengths.max_source_length = count("max-source-length", 3);
  s.lengths.max_target_length = count("max-target-length", 2);
  s.lengths.cache = cache_flag(given, s.train);
  s.model.d_model = count("d-model");
  s.model.encoder_layers = count("encoder-layers");
  s.model.decoder_layers = count("decoder-layers");
  s.model.attention_heads = count("heads");
  s.model.ffn_dim = count("ffn-dim");
  s.model.dropout = number(given, "dropout", 0.0, 0.99);
  parx::require(s.model.d_model % s.model.attention_heads == 0 && s.model.d_model % 2 == 0,
                "--d-model {}: give an even number that --heads {} divides", s.model.d_model,
                s.model.attention_heads);
  if (choice(given, "copying", {"pointer", "none"}) == "pointer")
    s.model.copying = models::copying::pointer;
  s.search.max_new_tokens = s.lengths.max_target_length;
  s.search.beams = number<std::size_t>(given, "beams", 1, 1000);
  s.search.length_penalty = number(given, "length-penalty", -10.0, 10.0);
  s.search.no_repeat_ngram_size = count("no-repeat-ngram-size", 0);
  s.label_smoothing = number(given, "label-smoothing", 0.0, 0.99);
  s.samples = count("samples", 0);
  return s;
}

/// The pairs of a file, or `count` built-in ones from number `first` on.
[[nodiscard]] inline pair_list read_pairs(const std::string& file,
                                          const data::source_target_options& columns,
                                          std::size_t first, std::size_t count) {
  if (!file.empty()) return data::read_source_targets(file, columns);
  pair_list notes;
  for (std::size_t i = first; i < first + count; ++i) notes.push_back(generate_note(i));
  return notes;
}

struct found_tokenizer {
  data::wordpiece_tokenizer tokenizer;
  data::cache_use cached;
};

/// Uses the vocabulary of --eval-only's folder or of --vocab, or the one in --cache, or makes one
/// from the training pairs: the same on every rank.
[[nodiscard]] inline found_tokenizer make_tokenizer(const summary_settings& s) {
  using words = data::wordpiece_tokenizer;
  if (!s.trained.empty()) return {words::read(s.trained + "/vocab.txt"), data::cache_use::found};
  if (!s.vocabulary.empty()) return {words::read(s.vocabulary), data::cache_use::found};
  const std::string folder = s.train.empty() ? "" : s.lengths.cache;
  const std::uint64_t key =
      folder.empty() ? 0
                     : data::content_hash(s.train) ^
                           parx::stable_hash(fmt::format(
                               "pair vocabulary 1|{}|{}|{}|{}|{}", s.columns.source,
                               s.columns.target, static_cast<int>(s.columns.header),
                               static_cast<int>(data::text_format_of(s.train, s.lengths.format)),
                               s.vocab_size));
  auto [found, cached] = cached_vocabulary(folder, key, [&] {
    data::vocabulary_builder builder;
    for (const auto& pair : read_pairs(s.train, s.columns, 0, built_in_pairs)) {
      builder.add(pair.source), builder.add(pair.target);
    }
    return builder.build({.vocab_size = s.vocab_size});
  });
  return {words(std::move(found)), cached};
}

/// The tokens of a file, which --cache may have, or of built-in notes from number `first` on.
[[nodiscard]] inline data::sequence_pairs read_tokens(const std::string& file,
                                                      const summary_settings& s,
                                                      const data::wordpiece_tokenizer& tokenizer,
                                                      std::size_t first, std::size_t count) {
  if (!file.empty()) return {file, tokenizer, s.lengths};
  return {read_pairs(file, s.columns, first, count), tokenizer, s.lengths};
}

}  // namespace examples
