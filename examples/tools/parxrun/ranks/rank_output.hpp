// rank_output: where the output of a node's ranks goes: to parxrun's own, to files, or to both.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tools/parxrun/nodes/messages.hpp"
#include "tools/parxrun/ranks/output_channel.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

struct rank_output {
  /// The path of a rank's log files without ".out" and ".err"; null: there are none.
  std::function<std::string(int rank)> log_stem = {};
  output_streams to_files = {};  ///< those that go to files
  output_streams tee = {};       ///< those of them that are shown as well
  earlier_log earlier = earlier_log::replace;
  std::function<std::string(int rank)> prefix =
      {};                                    ///< of its lines on parxrun's output; null: none
  std::function<bool(int rank)> shows = {};  ///< whether it has lines there; null: all have
  /// A single rank inherits parxrun's output, so that it has the terminal that it expects.
  bool inherited_by_one = true;

  /// For one generation of the ranks. Where there may be several, it makes the folder of this one,
  /// `id` is the job's, and files of an earlier turn of the same job are kept.
  [[nodiscard]] static rank_output of(const agent_options& options, const rank_placement& place,
                                      const std::string& id, const std::string& node) {
    rank_output where = common(options, place.first_rank);
    where.inherited_by_one = place.world_size == 1;
    if (!options.log_dir.empty() && !options.nodes.has_generations()) {
      where.log_stem = [folder = options.log_dir](int rank) {
        return formatted("{}/rank_{}", folder, rank);
      };
    } else if (!options.log_dir.empty()) {
      const std::string folder = formatted("{}/{}/attempt_{}.{}", options.log_dir, id,
                                           place.restarts, place.generation);
      make_log_folder(folder);
      where.earlier = earlier_log::keep;
      where.log_stem = [folder, number = place.node_rank](int rank) {
        return formatted("{}/n{}.r{}", folder, number, rank);
      };
    }
    if (options.tags == output_tags::rank) {
      const bool several = options.nodes.most > 1;
      where.prefix = [several, node](int rank) {
        return several ? formatted("[rank {} on {}] ", rank, node) : formatted("[rank {}] ", rank);
      };
    }
    return where;
  }

 private:
  [[nodiscard]] static rank_output common(const agent_options& options, int first_rank) {
    rank_output where;
    where.to_files = options.log_dir.empty() ? output_streams{} : options.to_files;
    where.tee = options.tee;
    if (!options.shown_ranks.empty() || !options.shown_local_ranks.empty()) {
      where.shows = [&options, first_rank](int rank) {
        const auto has = [](const std::vector<int>& list, int number) {
          return std::find(list.begin(), list.end(), number) != list.end();
        };
        return has(options.shown_ranks, rank) || has(options.shown_local_ranks, rank - first_rank);
      };
    }
    return where;
  }
};

}  // namespace parx::detail
