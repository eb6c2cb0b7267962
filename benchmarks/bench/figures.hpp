// figures: a table of numbers, for the modes that have their own columns.
//
// As text it has a head and one aligned line for each row; as JSON it has one object for each row,
// with the same names, and with the library, network and ranks added.
#pragma once

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bench/backend.hpp>
#include <bench/options.hpp>

namespace bench {

struct figure {
  std::string_view name;  ///< "avg_us"
  int decimals = 2;
};

class figures {
 public:
  /// Prints the head, on rank 0 only. `subject` is what is measured: "all_reduce".
  figures(const backend& ranks, const options& given, std::string_view subject,
          std::string_view explanation, std::vector<figure> columns)
      : figures(given, subject,
                fmt::format("{}, {}, {} ranks", ranks.name(), ranks.network(), ranks.size()),
                explanation, std::move(columns),
                fmt::format(R"("library":"{}","network":"{}","ranks":{})", ranks.name(),
                            ranks.network(), ranks.size()),
                ranks.rank() == 0) {}
  /// For a program that is not a rank itself.
  figures(const options& given, std::string_view subject, std::string_view library,
          std::string_view explanation, std::vector<figure> columns)
      : figures(given, subject, library, explanation, std::move(columns),
                fmt::format(R"("library":"{}")", library), true) {}

  /// One number for each column.
  void add(std::span<const double> row) const {
    if (!prints_) return;
    std::string line = as_json_ ? "{" + common_ : " ";
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const figure& column = columns_[i];
      line += as_json_ ? fmt::format(R"(,"{}":{:.{}f})", column.name, row[i], column.decimals)
                       : fmt::format("{:>{}.{}f}", row[i], width_of(column), column.decimals);
    }
    fmt::print("{}{}\n", line, as_json_ ? "}" : "");
    std::fflush(stdout);
  }

 private:
  figures(const options& given, std::string_view subject, std::string_view about,
          std::string_view explanation, std::vector<figure> columns, std::string_view about_as_json,
          bool prints)
      : columns_(std::move(columns)), as_json_(given.format == table_format::json),
        prints_(prints) {
    const std::string_view kind = mode_names[static_cast<std::size_t>(given.measured)];
    common_ = fmt::format(R"("mode":"{}","subject":"{}",{})", kind, subject, about_as_json);
    if (as_json_ || !prints_) return;
    fmt::print("# {} of {} ({})\n# {}\n#", kind, subject, about, explanation);
    for (const figure& each : columns_) fmt::print("{:>{}}", each.name, width_of(each));
    fmt::print("\n");
    std::fflush(stdout);
  }

  [[nodiscard]] static int width_of(const figure& column) noexcept {
    return static_cast<int>(std::max<std::size_t>(column.name.size(), 10)) + 2;
  }

  std::vector<figure> columns_;
  bool as_json_;
  bool prints_;
  std::string common_;
};

}  // namespace bench
