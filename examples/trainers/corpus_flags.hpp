// The data of train_gpt: flags for one long text, its tokenizer, the length of samples, and the
// text that the model generates at the end.
//
// Without --data the text is a generated one. The last tenth of it is for validation.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/generated_text.hpp"
#include "common/options.hpp"
#include <parx/checkpoint/pretrained.hpp>
#include <parx/data.hpp>
#include <parx/models/generate.hpp>

namespace examples {

namespace data = parx::data;
using ids = std::vector<data::token_id>;

/// Declares the flags, in groups of their own.
inline void add_corpus_flags(cxxopts::Options& options) {
  options.add_options("Data")
      ("data", "a text file, .gz too; else a generated text", text(""))
      ("tokenizer", "char, bpe, or a folder with vocab.json and merges.txt", text("char"))
      ("vocab-size", "tokens that bpe learns", text("1000"))
      ("block-size", "tokens of a sample", text("64"))
      ("prepare", "say what there is to prepare before a job, and end", cxxopts::value<bool>());
  options.add_options("Text generated at the end")
      ("sample", "tokens to generate", text("500"))
      ("temperature", "0: always the likeliest token", text("0.8"))
      ("top-k", "choose among this many likeliest tokens; 0: all", text("0"))
      ("prompt", "beginning of the text; without it, the first held-out token", text(""));
}

/// The two parts of a text in tokens, and what the program needs of their tokenizer.
struct corpus {
  data::language_model train, held_out;
  double tokens_per_character;  // in the held-out part
  std::size_t vocab_size;
  ids prompt;
  parx::models::sampling_options sampling;
  std::function<std::string(const ids&)> decode;
  parx::text_files files;
};

/// Throws parx::usage_error for flags that are wrong, errc::io, errc::bad_data.
[[nodiscard]] inline corpus read_corpus(const cxxopts::ParseResult& given) {
  const auto word = [&](const char* flag) { return given[flag].as<std::string>(); };
  const auto whole = [&](const char* flag, std::size_t least) {
    return number<std::size_t>(given, flag, least, 1 << 24);
  };
  const std::string path = word("data"), kind = word("tokenizer"), prompt = word("prompt");
  const std::size_t block = whole("block-size", 1), size = whole("vocab-size", 257);
  const parx::models::sampling_options sampling{
      whole("sample", 0), number(given, "temperature", 0.0, 1e6), whole("top-k", 0)};
  const std::string text = path.empty() ? generate_corpus(1'000'000) : data::read_text(path);
  std::size_t cut = text.size() / 10 * 9;
  while (cut < text.size() && (text[cut] & 0xC0) == 0x80) ++cut;  // not within a UTF-8 character
  const auto first = std::string_view(text).substr(0, cut),
             last = std::string_view(text).substr(cut);
  // Training samples begin at every token; validation samples do not overlap.
  const auto samples = [&](const ids& tokens, std::size_t stride) {
    return data::language_model(data::token_shards::from(tokens),
                                {.context_length = block, .stride = stride});
  };
  const auto made = [&](const auto& tokenizer, parx::text_files files) {
    const ids validation = tokenizer.encode(last);
    return corpus{
        samples(tokenizer.encode(first), 1),
        samples(validation, block),
        static_cast<double>(validation.size()) / static_cast<double>(data::count_characters(last)),
        tokenizer.size(),
        prompt.empty() ? ids{validation.front()} : tokenizer.encode(prompt),
        sampling,
        [tokenizer](const ids& tokens) { return tokenizer.decode(tokens); },
        std::move(files)};
  };
  if (kind == "char") {
    const auto tokenizer = data::character_tokenizer::from_text(text);
    return made(tokenizer, {{"tokenizer.json", tokenizer.tokenizer_json()}});
  }
  using data::byte_bpe_tokenizer;
  const auto tokenizer = kind == "bpe"
                             ? byte_bpe_tokenizer::train(std::array{first}, {.vocab_size = size})
                             : byte_bpe_tokenizer::read(kind + "/vocab.json", kind + "/merges.txt");
  return made(tokenizer,
              {{"vocab.json", tokenizer.vocab_json()}, {"merges.txt", tokenizer.merges_txt()}});
}

}  // namespace examples
