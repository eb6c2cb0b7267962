// model_file: forests as XGBoost's JSON model, both ways.
//
// A file that save_model writes is read by XGBoost from 1.7 on, and the other way round. Floats are
// the shortest text that reads as the same bits, so a model that goes through a file predicts the
// same bits. What a forest cannot hold is refused by name: gblinear and dart, vector leaves, other
// objectives, the binary form (UBJ). XGBoost's files have a bare NaN, which no JSON has, for the
// condition of a split by category; so this reader takes it, and the writer writes it.
//
// The texts of categories, which XGBoost's model has no place for, are attributes of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <parx/trees/tree.hpp>

namespace parx::inline PARX_ABI::trees {

/// The model as a text of one line.
[[nodiscard]] std::string model_text(const forest& model);

/// The forest that `text` is; `path` names it in messages. Throws errc::bad_data for what is not
/// such a model, or is damaged: each tree is checked to be one.
[[nodiscard]] forest model_of(std::string_view text, const std::string& path = "the model");

/// Texts by column, such as table::categories, as JSON, and back. Throws json::error.
[[nodiscard]] std::string words_text(const std::vector<std::vector<std::string>>& words);
[[nodiscard]] std::vector<std::vector<std::string>> words_of(std::string_view text);

/// Local; of many ranks let one call it. Writes the file anew as a whole, or leaves the old one as
/// it is. Throws errc::io.
void save_model(const forest& model, const std::string& path);

/// Local. Throws errc::io or errc::bad_data.
[[nodiscard]] forest load_model(const std::string& path);

}  // namespace parx::trees

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/trees/detail/model_file_impl.hpp>
#endif
