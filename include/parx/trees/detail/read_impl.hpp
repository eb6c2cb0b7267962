// Definitions of read.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/trees/detail/file_layout.hpp>
#include <parx/trees/detail/rows_of_file.hpp>
#include <parx/trees/detail/table_builder.hpp>
#include <parx/trees/read.hpp>

namespace parx::inline PARX_ABI::trees {

namespace detail {

/// Whole numbers, 9 or 9.0, are their own codes: then there are no texts to keep.
[[nodiscard]] inline std::vector<std::string> ordered_categories(const std::set<std::string>& all) {
  const auto is_code = [](const std::string& text) {
    const auto number = find_float(text);
    return number && *number >= 0 && *number < 16777216 && *number == std::floor(*number);
  };
  if (std::all_of(all.begin(), all.end(), is_code)) return {};
  return {all.begin(), all.end()};
}

/// The texts of all ranks' tables, by column; `group` may be nullptr.
inline void unite(process_group* group, std::vector<std::set<std::string>>& texts) {
  if (group == nullptr || group->size() == 1) return;
  std::string mine;  // a line a text; a column ends with NUL, which no text has
  for (const auto& column : texts) {
    for (const std::string& text : column) mine += text + '\n';
    mine += '\0';
  }
  for (const std::string& lines : all_gather_object(*group, mine)) {
    std::string_view rest = lines;
    for (auto& column : texts) {
      while (!rest.empty() && rest.front() != '\0') {
        const std::size_t end = rest.find('\n');
        column.emplace(rest.substr(0, end));
        rest.remove_prefix(end + 1);
      }
      if (!rest.empty()) rest.remove_prefix(1);
    }
  }
}

/// Throws usage_error on all ranks, with the text of the first that has one; `group` may be
/// nullptr.
inline void refuse_together(process_group* group, const std::string& wrong) {
  std::vector<std::string> all{wrong};
  if (group != nullptr) all = all_gather_object(*group, wrong);
  for (const std::string& each : all) require(each.empty(), "{}", each);
}

inline void check_like(const file_layout& layout, const table& like, const std::string& path) {
  if (layout.is_libsvm) return;
  if (like.columns != static_cast<std::int64_t>(layout.features.size())) {
    throw_error(errc::bad_data, "\"{}\" has {} columns, the table to be like has {}", path,
                layout.features.size(), like.columns);
  }
  if (!layout.has_header || like.names.empty()) return;
  for (std::size_t c = 0; c < like.names.size(); ++c) {
    const std::string& name = layout.names[layout.features[c]];
    if (name == like.names[c]) continue;
    throw_error(errc::bad_data, "\"{}\": column \"{}\" is where the table to be like has \"{}\"",
                path, printable(name), printable(like.names[c]));
  }
}

[[nodiscard]] inline table read_for(process_group* group, const std::string& path,
                                    const read_options& options) {
  const int rank = group != nullptr ? group->rank() : 0;
  const int ranks = group != nullptr ? group->size() : 1;
  const call_site site = call_site::current();
  file_layout layout;
  std::optional<table_builder> builder;
  std::vector<std::set<std::string>> texts;
  std::vector<std::int64_t> begins;
  rows_of_file part;
  std::string wrong_column;  // agree() would make an error of a usage_error
  parx::detail::agree(group, site, [&] {
    const std::vector<std::string> files = files_of(path);
    try {
      layout = layout_of(files.front(), options);
    } catch (const usage_error& failure) {
      wrong_column = failure.what();
      return;
    }
    if (options.like != nullptr) check_like(layout, *options.like, path);
    builder.emplace(layout, options);
    if (!options.query_file.empty()) {
      if (files.size() > 1) {
        wrong_column =
            formatted("a query file is for one file, and \"{}\" has {}", path, files.size());
        return;
      }
      begins = read_query_file(options.query_file);
    }
    if (files.size() == 1) {
      part = part_of(path, layout, begins, rank, ranks);
      builder->add(files.front(), part);
    } else {
      const auto count = static_cast<std::int64_t>(files.size());
      for (std::int64_t i = count * rank / ranks; i < count * (rank + 1) / ranks; ++i) {
        builder->add(files[static_cast<std::size_t>(i)], {});
      }
    }
    texts = builder->texts();
  });
  refuse_together(group, wrong_column);
  unite(group, texts);
  std::vector<std::vector<std::string>> categories(texts.size());
  for (std::size_t c = 0; c < texts.size(); ++c) categories[c] = ordered_categories(texts[c]);
  if (options.like != nullptr) {
    categories.assign(texts.size(), {});
    std::copy(options.like->categories.begin(), options.like->categories.end(), categories.begin());
  }
  table made = builder->finish(categories);
  if (!begins.empty()) {
    for (const std::int64_t begin : begins) {
      if (begin >= part.first_row && begin <= part.first_row + made.rows)
        made.group.push_back(begin - part.first_row);
    }
  }
  if (group != nullptr) {  // what a part by bytes did not know
    std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks));
    all_gather(*group, std::span(&made.rows, 1), rows, {}, site);
    std::int64_t before = 0, all = 0;
    for (int each = 0; each < ranks; ++each) {
      if (each < rank) before += rows[static_cast<std::size_t>(each)];
      all += rows[static_cast<std::size_t>(each)];
    }
    if (part.first_byte > 0) made.origins.front().first_row = before;
    if (all == 0) throw_error(errc::bad_data, "\"{}\" has no rows", path);
  } else if (made.rows == 0) {
    throw_error(errc::bad_data, "\"{}\" has no rows", path);
  }
  return made;
}

}  // namespace detail

PARX_INLINE table read(const std::string& path, const read_options& options) {
  return detail::read_for(nullptr, path, options);
}

PARX_INLINE table read(process_group& group, const std::string& path, const read_options& options) {
  return detail::read_for(&group, path, options);
}

}  // namespace parx::trees
