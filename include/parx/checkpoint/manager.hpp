// checkpoint_manager: the checkpoints of a run: out/checkpoint-500, out/checkpoint-1000, ...
//
//   checkpoint_manager checkpoints(world, "out", {.save_total_limit = 3});
//   if (auto last = checkpoints.latest()) last->load("model", model);
//   checkpoints.save(step, checkpoint_parts{}.add("model", model).add("optimizer", optimizer));
//
// Invariant: whenever a process is killed, every folder with such a name is complete, and the
// newest good one is only removed by clear(). Files have checksums; latest() skips checkpoints that
// do not match theirs.
// Folder names and save_total_limit are those of Hugging Face's Trainer. If made for a group, all
// functions are collective, and a failure on one rank throws on every rank. Rank 0 writes the parts
// that all ranks have; every rank writes its own shards: see write_together. Called by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

enum class save_mode {
  blocking,    ///< save() returns when the checkpoint is on the disk
  background,  ///< save() copies the tensors and returns; a thread writes
};

struct checkpoint_options {
  std::size_t save_total_limit = 0;  ///< checkpoints to keep, including the best one; 0: all
  metric_goal goal = metric_goal::maximize;
  save_mode mode = save_mode::background;
};

class checkpoint_manager {
 public:
  /// Does not touch the folder: see probe().
  explicit checkpoint_manager(std::string folder, checkpoint_options options = {})
      : folder_(std::move(folder)), options_(options) {}
  /// `group` must outlive the manager; `folder` must be in a file system that all ranks share.
  checkpoint_manager(process_group& group, std::string folder, checkpoint_options options = {})
      : group_(&group), folder_(std::move(folder)), options_(options) {}
  checkpoint_manager(const checkpoint_manager&) = delete;
  checkpoint_manager& operator=(const checkpoint_manager&) = delete;
  /// Waits for the writer. A destructor cannot throw, so a failure of the writer is logged.
  ~checkpoint_manager();

  /// Call it before training: creates the folder if it is missing, and throws errc::io unless a
  /// checkpoint of `bytes` could be saved into it now.
  void probe(std::uint64_t bytes = 0, call_site site = call_site::current());
  /// The same for a checkpoint of the parts of all ranks.
  void probe(const checkpoint_parts& parts, call_site site = call_site::current());

  /// Creates the folder if it is missing. From then on only this manager, or the next one that
  /// claims the folder, can save into it: one that has claimed it before, in a process that was
  /// stopped and goes on later, throws errc::io. Call it where no other run uses the folder.
  void claim(call_site site = call_site::current());

  /// Removes all checkpoints, complete or damaged, and nothing else in the folder. Throws errc::io
  /// if the folder does not exist or another writer has locked it.
  void clear(call_site site = call_site::current());

  /// Saves <folder>/checkpoint-<step>, replacing an existing one. In the background mode it first
  /// waits for an earlier save and throws its failure; `parts` may change as soon as this returns.
  /// Throws errc::io with path and reason; earlier checkpoints are untouched then. All ranks pass
  /// equal parts, except for shards; ranks other than 0 may leave out all but their shards.
  /// `metric`, at rank 0, is what best() compares. save_total_limit keeps the checkpoint of
  /// `best_step`, if given, instead of the one with the best metric.
  void save(std::uint64_t step, const checkpoint_parts& parts, std::optional<double> metric = {},
            std::optional<std::uint64_t> best_step = {}, call_site site = call_site::current());

  /// Returns when the last save is on the disk; throws if it failed.
  void wait(call_site site = call_site::current());

  /// The complete checkpoint with the highest step. Damaged ones are skipped with a warning that
  /// names the damage. nullopt if there is no checkpoint. Throws errc::bad_data if all checkpoints
  /// are damaged: the user decides whether to start over.
  [[nodiscard]] std::optional<saved_checkpoint> latest(call_site site = call_site::current());
  /// The same for the checkpoint with the best metric, the oldest of equal ones; nullopt if no
  /// complete checkpoint has a metric.
  [[nodiscard]] std::optional<saved_checkpoint> best(call_site site = call_site::current());

  /// The folder, as given.
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

 private:
  [[nodiscard]] int rank() const noexcept { return group_ == nullptr ? 0 : group_->rank(); }

  /// Starts the writer thread.
  template <typename Write>
  void write_behind(Write write);

  /// Collective. Whether any rank has a shard to write.
  [[nodiscard]] bool any_shards(const checkpoint_parts& parts, call_site site) const;
  /// A new group of the same ranks, so that the writer threads' collectives do not mix with those
  /// of training.
  [[nodiscard]] static process_group all_of(const process_group& group, call_site site);

  /// The first undamaged one of order(all checkpoints, newest first), as rank 0 lists them. The
  /// ranks share the work: each verifies the checksums of some of the files.
  template <typename Order>
  [[nodiscard]] std::optional<saved_checkpoint> find(call_site site, Order&& order);

  process_group* group_ = nullptr;
  std::string folder_;
  checkpoint_options options_;
  std::vector<std::byte> memory_;  // the copy that the writer thread writes
  std::exception_ptr failure_;     // of the writer thread; read after it was joined
  std::optional<process_group> writers_;
  detail::writer_claim claim_;  // at rank 0
  bool together_ = false;  // whether all ranks wrote the last checkpoint; the same on all ranks
  std::thread writer_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/manager_impl.hpp>
#endif
