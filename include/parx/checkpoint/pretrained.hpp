// save_pretrained and load_pretrained: a model as a directory in Hugging Face's layout.
//
//   config.json  model.safetensors  vocab.txt  tokenizer_config.json  special_tokens_map.json
//
// Transformers' from_pretrained() can load it if the tensors have the names of its architecture.
// The configuration is a JSON value, interpreted only by the model. Local. Source:
// huggingface/transformers, modeling_utils.py and configuration_utils.py.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/core/error.hpp>
#include <parx/core/json.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// Names of files and their contents.
using text_files = std::map<std::string, std::string>;

/// Whether a tokenizer makes letters small first.
enum class letter_case { lower, kept };

/// The files from which transformers makes a BertTokenizer. `vocabulary` has one token per line.
[[nodiscard]] text_files bert_tokenizer_files(std::string vocabulary,
                                              letter_case letters = letter_case::lower);

namespace detail {

/// Removes the index and files of a sharded model that a single file has replaced. Errors are
/// ignored: the single file takes precedence over files that remain.
void remove_shards(const std::filesystem::path& folder);

}  // namespace detail

/// Writes the configuration and `files` into `folder`, which is created, but not the model. For a
/// model in a wrapper see save.hpp.
void save_pretrained_config(const json::value& config, const std::filesystem::path& folder,
                            const text_files& files = {});

/// Writes the model, its configuration and `files` (a tokenizer's) into `folder`, which is created.
/// Each file is replaced atomically, the model last; then the files of an earlier sharded model are
/// removed. Throws errc::io.
template <typename Model>
void save_pretrained(Model& model, const json::value& config, const std::filesystem::path& folder,
                     const text_files& files = {}, call_site site = call_site::current()) {
  save_pretrained_config(config, folder, files);
  save_state(model, (folder / detail::model_file_name).string(), {{"format", "pt"}}, site);
  detail::remove_shards(folder);
}

/// The config.json of a model directory. Throws errc::io, errc::bad_data.
[[nodiscard]] json::value load_config(const std::filesystem::path& folder);

/// One line for each member of `expected` that `config` lacks or has with another value.
[[nodiscard]] std::string config_differences(const json::value& config,
                                             const json::value& expected);

/// Fills `model` from one file or many. `expected` has the members of config.json that this model
/// depends on (hidden_size, num_hidden_layers, ...). Throws errc::bad_data with the differences of
/// the configuration first, then those of the tensors; nothing is changed then. With
/// state_match::partial, differences of the tensors are only reported: for a new head.
template <typename Model>
state_report load_pretrained(Model& model, const json::value& expected,
                             const std::filesystem::path& folder,
                             state_match match = state_match::strict) {
  const safetensors_shards file(folder);
  const std::string other = config_differences(load_config(folder), expected);
  if (!other.empty()) {
    throw_error(errc::bad_data,
                "\"{}\" holds a model of another configuration, so nothing was loaded:{}{}\nBuild "
                "the model with load_config().",
                folder.string(), other, compare_state(model, file).text());
  }
  return load_state(model, file, match);
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/pretrained_impl.hpp>
#endif
