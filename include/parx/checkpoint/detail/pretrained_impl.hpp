// Definitions of pretrained.hpp.
#pragma once

#include <system_error>
#include <utility>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/pretrained.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE text_files bert_tokenizer_files(std::string vocabulary, letter_case letters) {
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

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void remove_shards(const std::filesystem::path& folder) {
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

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE void save_pretrained_config(const json::value& config,
                                        const std::filesystem::path& folder,
                                        const text_files& files) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    throw_error(errc::io, "cannot create the folder \"{}\": {}. {}", folder.string(),
                errno_text(failure.value()), detail::advice_for(failure.value()));
  }
  for (const auto& [name, text] : files) detail::write_atomically((folder / name).string(), text);
  detail::write_atomically((folder / "config.json").string(), json::dump(config, 2) + "\n");
}

PARX_INLINE json::value load_config(const std::filesystem::path& folder) {
  const detail::input_file file((folder / "config.json").string());
  try {
    return json::parse(file.whole_text());
  } catch (const json::error& reason) {
    throw_error(errc::bad_data, "\"{}\" is not JSON: {}.", file.path(), reason.what());
  }
}

PARX_INLINE std::string config_differences(const json::value& config, const json::value& expected) {
  std::string lines;
  for (const auto& [key, wanted] : expected.members()) {
    const json::value* const found = config.find(key);
    if (found != nullptr && *found == wanted) continue;
    lines += formatted("\n  {}: {} in config.json, {} in the model", key,
                       found == nullptr ? "nothing" : json::dump(*found), json::dump(wanted));
  }
  return lines;
}

}  // namespace parx
