// checkpoint_manager: the checkpoints of a run: out/checkpoint-500, out/checkpoint-1000, ...
//
//   checkpoint_manager checkpoints(world, "out", {.save_total_limit = 3});
//   if (auto last = checkpoints.latest()) last->load("model", model);
//   checkpoints.save(step, checkpoint_parts{}.add("model", model).add("optimizer", optimizer));
//
// Invariant: whatever is killed whenever, every folder with such a name is whole, and the newest
// good one is never removed but by clear(). Files carry checksums; latest() passes over what does
// not fit them.
// Names and limits are those of Hugging Face's Trainer. Made for a group, all functions are
// collective, and what fails on one rank throws on every rank. Rank 0 writes, and every rank the
// shards that it alone holds: see write_together. One thread calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/checkpoint/write_together.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

enum class save_mode {
  blocking,    ///< save() returns when the checkpoint is on the disk
  background,  ///< save() copies the tensors and returns; a thread writes
};

struct checkpoint_options {
  std::size_t save_total_limit = 0;  ///< checkpoints to keep, the best among them; 0: all
  metric_goal goal = metric_goal::maximize;
  save_mode mode = save_mode::background;
};

class checkpoint_manager {
 public:
  /// Touches nothing yet: see probe().
  explicit checkpoint_manager(std::string folder, checkpoint_options options = {})
      : folder_(std::move(folder)), options_(options) {}
  /// `group` must outlive the manager; `folder` is in a file system that all ranks see.
  checkpoint_manager(process_group& group, std::string folder, checkpoint_options options = {})
      : group_(&group), folder_(std::move(folder)), options_(options) {}
  checkpoint_manager(const checkpoint_manager&) = delete;
  checkpoint_manager& operator=(const checkpoint_manager&) = delete;
  /// Waits for the writer; its failure is logged, since nobody can be told any more.
  ~checkpoint_manager();

  /// Before training: creates the folder where it is missing, and throws errc::io unless a
  /// checkpoint of `bytes` could be saved into it now.
  void probe(std::uint64_t bytes = 0, call_site site = call_site::current());
  /// The same for a checkpoint of these parts, and of those of the other ranks.
  void probe(const checkpoint_parts& parts, call_site site = call_site::current());

  /// Removes all checkpoints, whole or damaged; the folder and what else is in it stay. Throws
  /// errc::io where there is no folder, or another writer keeps it.
  void clear(call_site site = call_site::current());

  /// Saves <folder>/checkpoint-<step>; one that is there is replaced. In the background, an earlier
  /// save is waited for first, and its failure thrown here; `parts` may change again as soon as
  /// this returns. Throws errc::io, naming path and reason: earlier checkpoints are untouched.
  /// All ranks pass equal parts, but for shards; ranks other than 0 may leave them out. `metric` is
  /// what best() compares, at rank 0; where the caller knows of a best one, `best_step` is
  /// the one that save_total_limit spares.
  void save(std::uint64_t step, const checkpoint_parts& parts, std::optional<double> metric = {},
            std::optional<std::uint64_t> best_step = {}, call_site site = call_site::current());

  /// Returns when the last save is on the disk; throws where it failed.
  void wait(call_site site = call_site::current());

  /// The checkpoint with the highest step that is whole; damaged ones are passed over with a
  /// warning that names what is wrong. nullopt where there is none. Throws errc::bad_data where
  /// every checkpoint is damaged: the user decides whether to begin anew.
  [[nodiscard]] std::optional<saved_checkpoint> latest(call_site site = call_site::current()) {
    return find(site, [](const auto& all) { return all; });
  }
  /// The one with the best metric, of equal ones the oldest, in the same way; nullopt where no
  /// whole checkpoint has a metric.
  [[nodiscard]] std::optional<saved_checkpoint> best(call_site site = call_site::current());

  /// The folder, as given.
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

 private:
  [[nodiscard]] int rank() const noexcept { return group_ == nullptr ? 0 : group_->rank(); }

  template <typename Write>
  void write_behind(Write write) {
    writer_ = std::thread([this, write = std::move(write)]() mutable {
      try {
        write();
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }

  /// Collective. Whether a rank other than 0 may have something to write.
  [[nodiscard]] bool any_shards(const checkpoint_parts& parts, call_site site) const;
  /// The same ranks as a group of their own: the writers' collectives do not come between those of
  /// training.
  [[nodiscard]] static process_group all_of(const process_group& group, call_site site);

  /// The first good one of order(all checkpoints, newest first), as rank 0 lists them. The ranks
  /// share the reading: each compares the checksums of some of the files.
  template <typename Order>
  std::optional<saved_checkpoint> find(call_site site, Order&& order) {
    wait(site);
    std::size_t passed_over = 0;  // at rank 0, as the next
    bool were_all = false;
    const auto pass_over = [&](const error& reason) {
      if (rank() == 0) log(log_level::warn, "passing over a checkpoint: {}", reason.what());
      ++passed_over;
    };
    std::vector<std::uint64_t> steps;
    detail::agree_on_rank0(group_, site, [&] {
      const auto all = detail::list_checkpoints(folder_, pass_over);
      const auto candidates = order(all);
      were_all = candidates.size() == all.size();
      for (const saved_checkpoint& one : candidates) steps.push_back(one.step());
    });
    if (group_ != nullptr) broadcast_object(*group_, steps, {.root = 0}, site);
    const shard_place mine = group_ == nullptr ? shard_place{} : detail::place_in(*group_);
    for (const std::uint64_t step : steps) {
      std::optional<saved_checkpoint> found;
      try {
        detail::agree(group_, site, [&] {
          found = saved_checkpoint::open(detail::checkpoint_path(folder_, step),
                                         checkpoint_check::contents, mine);
        });
        return found;
      } catch (const error& reason) {
        if (group_ != nullptr && group_->closed()) throw;
        pass_over(reason);
      }
    }
    detail::agree_on_rank0(group_, site, [&] {
      if (passed_over > 0 && were_all) {
        throw_error(errc::bad_data,
                    "none of the checkpoints in \"{}\" is whole, as was said of each. Nothing was "
                    "changed: get one back from a copy, or move them away to begin anew.",
                    folder_);
      }
    });
    return std::nullopt;
  }

  process_group* group_ = nullptr;
  std::string folder_;
  checkpoint_options options_;
  std::vector<std::byte> memory_;  // what the writer writes
  std::exception_ptr failure_;     // the writer's; read after it was joined
  std::optional<process_group> writers_;
  bool together_ = false;  // all ranks have written the last one; equal on all
  std::thread writer_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/manager_impl.hpp>
#endif
