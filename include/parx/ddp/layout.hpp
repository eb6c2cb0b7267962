// The layout check: all ranks have the same parameters, by name, shape, dtype, in the same order.
//
// One hash a rank is exchanged; only when they differ do the layouts themselves travel, to say how.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/hash.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] inline std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// "- only on rank 0: ..." and "+ only on rank 3: ..." for the first few lines that differ.
[[nodiscard]] inline std::string layout_difference(std::string_view first, std::string_view other,
                                                   int other_rank) {
  static constexpr std::size_t most_lines = 8;
  const auto a = lines_of(first);
  const auto b = lines_of(other);
  std::string text;
  std::size_t shown = 0;
  const auto list = [&](const auto& from, const auto& missing_in, char sign, int rank) {
    for (const auto line : from) {
      if (std::find(missing_in.begin(), missing_in.end(), line) != missing_in.end()) continue;
      if (shown++ < most_lines) text += fmt::format("\n  {} rank {}: {}", sign, rank, line);
    }
  };
  list(a, b, '-', 0);
  list(b, a, '+', other_rank);
  if (shown == 0) text = "\n  the same parameters, in another order";
  if (shown > most_lines) text += fmt::format("\n  ... and {} more lines", shown - most_lines);
  return text;
}

struct difference_of_ranks {
  int rank = 0;      ///< the first that is not like rank 0
  std::string text;  ///< the lines that differ
};

/// Collective. How the lines of `mine` differ between ranks; nullopt, on every rank, where all have
/// the same.
[[nodiscard]] inline std::optional<difference_of_ranks> compare_ranks(process_group& group,
                                                                      const std::string& mine,
                                                                      call_site site) {
  const std::array<std::uint64_t, 2> digest{fnv1a(mine), mine.size()};
  std::vector<std::uint64_t> digests(2 * static_cast<std::size_t>(group.size()));
  all_gather(group, digest, digests, {}, site);
  int different = -1;
  for (int rank = 1; rank < group.size() && different < 0; ++rank) {
    const auto i = 2 * static_cast<std::size_t>(rank);
    if (digests[i] != digests[0] || digests[i + 1] != digests[1]) different = rank;
  }
  if (different < 0) return std::nullopt;
  const auto text_of = [&](int rank) {
    std::string text = mine;
    text.resize(digests[2 * static_cast<std::size_t>(rank) + 1]);
    broadcast(group, text, {.root = rank}, site);
    return text;
  };
  const std::string first = text_of(0);
  const std::string other = text_of(different);
  return difference_of_ranks{different, layout_difference(first, other, different)};
}

/// "fc1.weight [128, 784] float32", "fc1.weight rows 0-63 of [128, 784] float32": what must be
/// equal on all ranks.
[[nodiscard]] inline std::string layout_of(const parameter_handle& parameter) {
  const row_gradient_part* const rows = parameter.row_gradient();
  // Ranks that treat a gradient by rows and ranks that do not would wait for each other.
  return fmt::format("{} {} {}{}", parameter.name(), parameter.spec().text(),
                     name_of(parameter.type()),
                     rows != nullptr && rows->expects_row_grad() ? " by rows" : "");
}

/// Collective. Throws errc::mismatch on every rank unless all have the same layout.
inline void check_layout(process_group& group,
                         const std::vector<std::unique_ptr<parameter_handle>>& parameters,
                         call_site site) {
  std::string mine;
  for (const auto& each : parameters) mine += layout_of(*each) + '\n';
  const auto different = compare_ranks(group, mine, site);
  if (!different) return;
  throw_error(errc::mismatch,
              "ddp on group \"{}\": the model of rank {} differs from that of rank 0. All ranks "
              "must build the same model, in the same order:{}",
              group.name(), different->rank, different->text);
}

}  // namespace parx::detail
