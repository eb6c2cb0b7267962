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
#include <system_error>
#include <utility>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// Names of files and their contents.
using text_files = std::map<std::string, std::string>;

/// Whether a tokenizer makes letters small first.
enum class letter_case { lower, kept };

/// The files from which transformers makes a BertTokenizer. `vocabulary` has one token per line.
[[nodiscard]] inline text_files bert_tokenizer_files(std::string vocabulary,
                                                     letter_case letters = letter_case::lower) {
  json::value special = json::object{{"cls_token", "[CLS]"},
                                     {"mask_token", "[MASK]"},
                                     {"pad_token", "[PAD]"},
                                     {"sep_token", "[SEP]"},
                                     {"unk_token", "[UNK]"}};
  json::value config = special;
  config["do_lower_case"] = letters == letter_case::lower;
  config["tokenizer_class"] = "BertTokenizer";
  return {{"vocab.txt", std::move(vocabulary)},
          {"special_tokens_map.json", json::dump(special, 2) + "\n"},
          {"tokenizer_config.json", json::dump(config, 2) + "\n"}};
}

namespace detail {

/// Removes the index and files of a sharded model that a single file has replaced. Errors are
/// ignored: the single file takes precedence over files that remain.
inline void remove_shards(const std::filesystem::path& folder) {
  const auto index = folder / model_index_name;
  std::error_code failure;
  if (!std::filesystem::exists(index, failure)) return;
  try {
    const auto whole = json::parse(input_file(index.string()).whole_text());
    for (const auto& [name, tensors] : files_in_index(whole)) {
      if (name != model_file_name && name.ends_with(".safetensors"))
        std::filesystem::remove(folder / name, failure);
    }
    if (is_shard_index(whole)) std::filesystem::remove(folder / manifest_name, failure);
  } catch (const error& /*an unreadable index names no files*/) {
  } catch (const json::error&) {
  }
  std::filesystem::remove(index, failure);
}

}  // namespace detail

/// Writes the configuration and `files` into `folder`, which is created, but not the model. For a
/// model in a wrapper see save.hpp.
inline void save_pretrained_config(const json::value& config, const std::filesystem::path& folder,
                                   const text_files& files = {}) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    throw_error(errc::io, "cannot create the folder \"{}\": {}. {}", folder.string(),
                errno_text(failure.value()), detail::advice_for(failure.value()));
  }
  for (const auto& [name, text] : files) detail::write_atomically((folder / name).string(), text);
  detail::write_atomically((folder / "config.json").string(), json::dump(config, 2) + "\n");
}

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
[[nodiscard]] inline json::value load_config(const std::filesystem::path& folder) {
  const detail::input_file file((folder / "config.json").string());
  try {
    return json::parse(file.whole_text());
  } catch (const json::error& reason) {
    throw_error(errc::bad_data, "\"{}\" is not JSON: {}.", file.path(), reason.what());
  }
}

/// One line for each member of `expected` that `config` lacks or has with another value.
[[nodiscard]] inline std::string config_differences(const json::value& config,
                                                    const json::value& expected) {
  std::string lines;
  for (const auto& [key, wanted] : expected.members()) {
    const json::value* const found = config.find(key);
    if (found != nullptr && *found == wanted) continue;
    lines += formatted("\n  {}: {} in config.json, {} in the model", key,
                       found == nullptr ? "nothing" : json::dump(*found), json::dump(wanted));
  }
  return lines;
}

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
