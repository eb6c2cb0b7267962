// table_builder: rows of text, line by line, as a table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/trees/detail/file_layout.hpp>
#include <parx/trees/detail/rows_of_file.hpp>
#include <parx/trees/read.hpp>

namespace parx::inline PARX_ABI::trees::detail {

/// Fills a table from files of one layout.
class table_builder {
 public:
  table_builder(const file_layout& layout, const read_options& options)
      : layout_(layout), options_(options), splitter_(layout.delimiter) {
    if (layout.is_libsvm) {
      made_.row_begin.push_back(0);
      if (options.like != nullptr) made_.columns = options.like->columns;
      return;
    }
    made_.columns = static_cast<std::int64_t>(layout.features.size());
    made_.kinds = options.like != nullptr ? options.like->kinds : layout.kinds;
    made_.kinds.resize(layout.features.size(), column_kind::numeric);
    for (const std::size_t field : layout.features) {
      if (layout.has_header) made_.names.push_back(layout.names[field]);
    }
    codes_.resize(layout.features.size());
    for (std::size_t c = 0; c < options.classes.size(); ++c) {
      classes_.emplace(class_text(options.classes[c]), static_cast<float>(c));
    }
  }

  void add(const std::string& path, const rows_of_file& part) {
    path_ = &path, first_byte_ = part.first_byte;
    made_.origins.push_back({path, made_.rows, part.first_row});
    for_each_line(path, layout_, part, [this](std::string_view text, std::uint64_t line) {
      line_ = line;
      layout_.is_libsvm ? add_libsvm(text) : add_csv(text);
      ++made_.rows;
    });
  }

  /// The texts of each categorical column.
  [[nodiscard]] std::vector<std::set<std::string>> texts() const {
    std::vector<std::set<std::string>> all(codes_.size());
    for (std::size_t c = 0; c < codes_.size(); ++c) {
      for (const auto& [text, code] : codes_[c]) all[c].insert(text);
    }
    return all;
  }

  /// `categories` are those of all ranks, in the order of their codes; `query_begins` those of all
  /// rows, or empty.
  [[nodiscard]] table finish(const std::vector<std::vector<std::string>>& categories) {
    if (std::any_of(codes_.begin(), codes_.end(), [](const auto& of) { return !of.empty(); })) {
      recode(categories);
    }
    if (std::any_of(categories.begin(), categories.end(), [](const auto& c) { return !c.empty(); }))
      made_.categories = categories;
    if (!made_.group.empty()) made_.group.push_back(made_.rows);
    return std::move(made_);
  }

 private:
  static constexpr float nan = std::numeric_limits<float>::quiet_NaN();

  /// Without a full stop at its end, which the Adult data have in one of their two files.
  [[nodiscard]] static std::string class_text(std::string_view text) {
    if (text.ends_with('.')) text.remove_suffix(1);
    return std::string(text);
  }
  [[nodiscard]] bool is_missing(std::string_view text) const {
    return std::find(options_.missing.begin(), options_.missing.end(), text) !=
           options_.missing.end();
  }

  /// "file", line 7: of a part that begins within a file, the lines before it are counted now.
  [[nodiscard]] std::string place() const {
    std::uint64_t line = line_;
    if (first_byte_ > 0) {
      data::line_reader before(*path_);
      for (std::string text; before.offset() < first_byte_ && before.next(text);) ++line;
    }
    return formatted("\"{}\", line {}", *path_, line);
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw_error(errc::bad_data, "{}: {}", place(), why);
  }
  [[noreturn]] void fail(std::size_t field, std::string_view text, const std::string& why) const {
    throw_error(errc::bad_data, "{}, {}: \"{}\" {}", place(), layout_.name_of(field),
                printable(text.substr(0, 80)), why);
  }

  void add_csv(std::string_view text) {
    if (!splitter_.split(text, fields_)) fail("a quote is not closed on its line");
    if (fields_.size() != layout_.fields) {
      fail(formatted("the row has {} fields, the first line of the data {}", fields_.size(),
                     layout_.fields));
    }
    if (layout_.label) made_.label.push_back(label(*layout_.label));
    if (layout_.weight) made_.weight.push_back(weight(*layout_.weight, fields_[*layout_.weight]));
    if (layout_.query) begin_query(fields_[*layout_.query]);
    for (std::size_t c = 0; c < layout_.features.size(); ++c) {
      const std::size_t field = layout_.features[c];
      const std::string_view value = fields_[field];
      if (made_.kinds[c] == column_kind::categorical) {
        made_.values.push_back(is_missing(value) ? nan : local_code(c, value));
      } else if (const auto number = find_float(value)) {
        made_.values.push_back(*number);
      } else if (is_missing(value)) {
        made_.values.push_back(nan);
      } else {
        fail(field, value,
             "is not a finite number; name the column in `categorical`, or the text in `missing`");
      }
    }
  }
  [[nodiscard]] float label(std::size_t field) const {
    const std::string_view text = fields_[field];
    if (!classes_.empty()) {
      const auto found = classes_.find(class_text(text));
      if (found != classes_.end()) return found->second;
      fail(field, text, "is none of the classes " + joined_text(options_.classes));
    }
    const auto number = find_float(text);
    if (!number) {
      fail(field, text,
           is_missing(text) ? "is no label; leave the row out, it teaches nothing"
                            : "is a label that is no number; name its texts in "
                              "`classes`");
    }
    return *number;
  }
  [[nodiscard]] float weight(std::size_t field, std::string_view text) const {
    const auto number = find_float(text);
    if (!number || *number <= 0) fail(field, text, "is a weight that is no number above 0");
    return *number;
  }
  /// The first text has the code 0, and so on: until all ranks' texts are known.
  [[nodiscard]] float local_code(std::size_t column, std::string_view text) {
    auto& codes = codes_[column];
    const auto next = static_cast<std::int32_t>(codes.size());
    return static_cast<float>(codes.try_emplace(std::string(text), next).first->second);
  }

  void begin_query(std::string_view query) {
    if (!made_.group.empty() && query == query_) return;
    query_ = query;
    if (!queries_.insert(query_).second) {
      fail(formatted("the rows of query \"{}\" do not follow each other", printable(query)));
    }
    made_.group.push_back(made_.rows);
  }

  void add_libsvm(std::string_view text) {
    const auto token = [&text] {
      text = without_blanks(text);
      const std::string_view found = text.substr(0, text.find_first_of(" \t"));
      text.remove_prefix(found.size());
      return found;
    };
    const std::string_view head = token();
    const std::size_t colon = head.find(':');
    const auto given = find_float(head.substr(0, colon));
    if (!given) fail(formatted("the label \"{}\" is not a finite number", printable(head)));
    made_.label.push_back(*given);
    if ((colon != head.npos) != !made_.weight.empty() && made_.rows > 0) {
      fail("some rows have a weight, and some have none");
    }
    if (colon != head.npos) made_.weight.push_back(weight(0, head.substr(colon + 1)));
    const std::size_t begin = made_.column.size();
    bool has_query = false;
    for (std::string_view entry = token(); !entry.empty(); entry = token()) {
      const std::size_t at = entry.find(':');
      if (entry.starts_with("qid:")) {
        has_query = true;
        begin_query(entry.substr(4));
        continue;
      }
      const auto column = parx::detail::parse_number<std::int32_t>(entry.substr(0, at));
      const auto value = find_float(entry.substr(std::min(at, entry.size() - 1) + 1));
      if (!column || *column < 0 || !value) {
        fail(formatted("\"{}\" is not column:value", printable(entry.substr(0, 80))));
      }
      made_.column.push_back(*column);
      made_.value.push_back(*value);
    }
    if (has_query != !made_.group.empty()) fail("some rows have a qid, and some have none");
    sort_entries(begin);
    if (made_.column.size() > begin) {
      made_.columns = std::max(made_.columns, std::int64_t{made_.column.back()} + 1);
    }
    made_.row_begin.push_back(static_cast<std::int64_t>(made_.column.size()));
  }
  /// The entries of a row from `begin` on ascend already, most times.
  void sort_entries(std::size_t begin) {
    const auto first = made_.column.begin() + static_cast<std::ptrdiff_t>(begin);
    if (!std::is_sorted(first, made_.column.end())) {
      std::vector<std::pair<std::int32_t, float>> entries;
      for (std::size_t i = begin; i < made_.column.size(); ++i) {
        entries.emplace_back(made_.column[i], made_.value[i]);
      }
      std::sort(entries.begin(), entries.end());
      for (std::size_t i = begin; i < made_.column.size(); ++i) {
        std::tie(made_.column[i], made_.value[i]) = entries[i - begin];
      }
    }
    const auto twice = std::adjacent_find(first, made_.column.end());
    if (twice != made_.column.end()) fail(formatted("column {} has two values", *twice));
  }

  /// Replaces the local codes.
  void recode(const std::vector<std::vector<std::string>>& categories) {
    const std::size_t width = codes_.size();
    for (std::size_t c = 0; c < width; ++c) {
      if (codes_[c].empty()) continue;
      std::unordered_map<std::string, float> global;
      for (std::size_t i = 0; i < categories[c].size(); ++i) {
        global.emplace(categories[c][i], static_cast<float>(i));
      }
      std::vector<float> of_local(codes_[c].size(), nan);
      for (const auto& [text, local] : codes_[c]) {
        const auto found = global.find(text);
        float& code = of_local[static_cast<std::size_t>(local)];
        if (found != global.end()) code = found->second;
        else if (categories[c].empty()) code = find_float(text).value_or(nan);
      }
      for (std::size_t at = c; at < made_.values.size(); at += width) {
        float& value = made_.values[at];
        if (value == value) value = of_local[static_cast<std::size_t>(value)];
      }
    }
  }

  const file_layout& layout_;
  const read_options& options_;
  field_splitter splitter_;
  table made_;
  std::map<std::string, float, std::less<>> classes_;
  std::vector<std::unordered_map<std::string, std::int32_t>> codes_;
  std::vector<std::string_view> fields_;
  std::unordered_set<std::string> queries_;
  std::string query_;
  const std::string* path_ = nullptr;
  std::uint64_t first_byte_ = 0;
  std::uint64_t line_ = 0;
};

}  // namespace parx::trees::detail
