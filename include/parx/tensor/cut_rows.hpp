// cut_rows: how the rows of a tensor (its last axis) are cut over ranks (tensor parallelism).
//
// A layer that is cut by columns computes a part of each row. A mark is stored with the memory of
// its result, so that views and copies keep it without the graph. The rows are
// - logits: the outputs are classes, in chunks by rank. cross_entropy, argmax and nn::accuracy ask
//   the other ranks for what they need, full_logits() gathers all, and an operation on single
//   values gives logits again. Every other operation throws (autograd/function.hpp).
// - features: the next layer's input. Operations forget it; only functions of whole rows (a loss, a
//   softmax, a largest class) throw, because they would silently be those of the part.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/rank_axis.hpp>
#include <parx/tensor/shape.hpp>
#include <parx/types/chunk.hpp>

namespace parx::inline PARX_ABI {

/// What the result of a cut layer is.
enum class cut_result {
  features,  ///< the next layer's input
  logits,    ///< the loss's input: outputs are classes
};

struct cut_rows {
  std::shared_ptr<rank_axis> axis;
  cut_result result = cut_result::features;
  std::size_t here = 0;  ///< values of each row on this rank
  std::size_t whole = 0;
  std::string layer = {};  ///< its name
};

namespace detail {

/// Whether the last axis of such a view has the values of the rows that this rank has.
[[nodiscard]] inline bool has_rows(const cut_rows& cut, const shape& s,
                                   const strides& step) noexcept {
  return s.rank() > 0 && s.back() == cut.here && (step[s.rank() - 1] == 1 || cut.here == 1);
}

[[noreturn, gnu::noinline]] inline void refuse_cut_logits(std::string_view call,
                                                          const cut_rows& cut,
                                                          std::string_view cut_at = {}) {
  throw_usage("{}: these logits are cut by classes over {} ranks{}: take parx::full_logits(logits)",
              call, cut.axis->size(), cut_at);
}
[[noreturn, gnu::noinline]] inline void refuse_cut_features(std::string_view call, call_site site,
                                                            const cut_rows& cut) {
  throw_usage(
      "{} at {}: this rank has {} of the {} values of each row, because \"{}\" is cut by columns "
      "over {} ranks: if its outputs are classes, its line of the plan is parx::tp::head",
      call, site, cut.here, cut.whole, cut.layer, cut.axis->size());
}

}  // namespace detail

/// How logits are cut by classes; null for whole rows. Throws usage_error, which begins with `call`
/// and the site, for features that are cut and for a view whose last axis is not the classes.
template <typename Rows>
[[nodiscard]] const cut_rows* cut_classes(const Rows& x, std::string_view call, call_site site) {
  const cut_rows* const cut = x.cut();
  if (cut == nullptr) [[likely]]
    return nullptr;
  const bool rows = detail::has_rows(*cut, x.shape(), x.strides());
  if (cut->result == cut_result::features) {
    if (rows) detail::refuse_cut_features(call, site, *cut);
    return nullptr;
  }
  if (!rows) detail::refuse_cut_logits(formatted("{} at {}", call, site), *cut);
  return cut;
}

namespace detail {

/// Notes for the result of an operation on single values of `source` how its rows are cut.
template <typename Source, typename Result>
[[gnu::noinline]] void pass_cut_on(const Source& source, const Result& result) {
  const cut_rows& cut = *source.cut();
  if (has_rows(cut, source.shape(), source.strides())) {
    result.note_cut(source.shared_cut());
  } else if (cut.result == cut_result::logits) {
    cut_rows other_axis = cut;  // never those of a view, so that all functions of rows throw
    other_axis.here = 0;
    result.note_cut(std::make_shared<const cut_rows>(std::move(other_axis)));
  }
}

/// The first largest class of each row, counted over all ranks. `own` has for each row this rank's
/// largest value and its class, counted from the rank's first. Collective over the axis: one
/// all-gather of these.
[[nodiscard]] inline std::vector<std::size_t> largest_of_all_ranks(const cut_rows& cut,
                                                                   const std::vector<double>& own) {
  const int ranks = cut.axis->size();
  std::vector<double> all(own.size() * static_cast<std::size_t>(ranks));
  cut.axis->all_gather(const_view_of(own), view_of(all),
                       std::vector(static_cast<std::size_t>(ranks), own.size()));
  std::vector<std::size_t> best(own.size() / 2);
  for (std::size_t row = 0; row < best.size(); ++row) {
    double highest = all[2 * row];
    best[row] = static_cast<std::size_t>(all[2 * row + 1]);
    for (int r = 1; r < ranks; ++r) {
      const double* const of_rank = all.data() + static_cast<std::size_t>(r) * own.size() + 2 * row;
      if (!(highest < of_rank[0])) continue;
      highest = of_rank[0];
      best[row] = chunk_begin(cut.whole, ranks, r) + static_cast<std::size_t>(of_rank[1]);
    }
  }
  return best;
}

/// Throws usage_error, which begins with `call`, for logits that are cut.
template <typename Rows>
void require_no_cut_logits(const Rows& x, std::string_view call, call_site site) {
  const cut_rows* const cut = x.cut();
  if (cut != nullptr && cut->result == cut_result::logits) [[unlikely]]
    refuse_cut_logits(formatted("{} at {}", call, site), *cut);
}

}  // namespace detail

/// Throws usage_error, which begins with `call`, where the rows of `x` (along its last axis) are
/// parts.
template <typename Rows>
void require_whole_rows(const Rows& x, std::string_view call, call_site site) {
  if (const cut_rows* const cut = cut_classes(x, call, site); cut != nullptr) [[unlikely]]
    detail::refuse_cut_logits(formatted("{} at {}", call, site), *cut);
}

}  // namespace parx
