// metric: a figure of all ranks' rows by which a model is judged.
#pragma once

#include <functional>
#include <span>
#include <string>

#include <parx/comm/process_group.hpp>
#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

/// `value` is collective: given this rank's predictions, rows x outputs, it returns the figure of
/// all ranks' rows, the same on every rank.
struct metric {
  std::string name;
  bool higher_is_better = false;
  std::function<double(process_group& group, std::span<const float> predictions, const table& rows)>
      value;
};

}  // namespace parx::trees
