// Definitions of manager.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>
#include <system_error>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/manager.hpp>
#include <parx/checkpoint/write_together.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/core/error.hpp>
#include <parx/core/log.hpp>
#include <parx/core/start_thread.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI {

template <typename Write>
void checkpoint_manager::write_behind(Write write) {
  writer_ = detail::start_thread("that writes a checkpoint",
                                 [this, write = std::move(write)]() mutable {
                                   try {
                                     write();
                                   } catch (...) {
                                     failure_ = std::current_exception();
                                   }
                                 });
}

template <typename Order>
std::optional<saved_checkpoint> checkpoint_manager::find(call_site site, Order&& order) {
  wait(site);
  std::size_t skipped = 0;  // this and the next: at rank 0
  bool were_all = false;
  const auto skip = [&](const error& reason) {
    if (rank() == 0) log(log_level::warn, "skipping a checkpoint: {}", reason.what());
    ++skipped;
  };
  std::vector<std::uint64_t> steps;
  detail::agree_on_rank0(group_, site, [&] {
    const auto all = detail::list_checkpoints(folder_, skip);
    const auto candidates = order(all);
    were_all = candidates.size() == all.size();
    for (const saved_checkpoint& one : candidates) steps.push_back(one.step());
  });
  if (group_ != nullptr) broadcast_object(*group_, steps, {.root = 0}, site);
  for (const std::uint64_t step : steps) {
    try {
      return saved_checkpoint::open_together(group_, detail::checkpoint_path(folder_, step), site);
    } catch (const error& reason) {
      if (group_ != nullptr && group_->closed()) throw;
      skip(reason);
    }
  }
  detail::agree_on_rank0(group_, site, [&] {
    if (skipped > 0 && were_all) {
      throw_error(errc::bad_data,
                  "all checkpoints in \"{}\" are damaged, see the warnings above. Nothing was "
                  "changed: restore one from a copy, or move them away to start over.",
                  folder_);
    }
  });
  return std::nullopt;
}

PARX_INLINE checkpoint_manager::~checkpoint_manager() {
  if (writer_.joinable()) writer_.join();
  if (failure_ == nullptr) return;
  try {
    log(log_level::error, "the last checkpoint was not saved: {}", text_of(failure_));
  } catch (const std::exception&) {  // out of memory
  }
}

PARX_INLINE void checkpoint_manager::probe(std::uint64_t bytes, call_site site) {
  detail::agree_on_rank0(group_, site, [&] { detail::probe_folder(folder_, bytes); });
}

PARX_INLINE void checkpoint_manager::probe(const checkpoint_parts& parts, call_site site) {
  std::array<std::uint64_t, 1> bytes{parts.written_by(rank()).bytes()};
  if (group_ != nullptr) all_reduce(*group_, bytes, {}, site);
  probe(bytes[0], site);
}

PARX_INLINE void checkpoint_manager::claim(call_site site) {
  detail::agree_on_rank0(group_, site, [&] {
    std::error_code failure;
    // A checkpoint may be being written in it.
    if (!claim_.path().empty() && std::filesystem::exists(claim_.path(), failure)) return;
    detail::make_folders(folder_);
    const detail::folder_lock lock(folder_, detail::lock_holder::is_superseded);
    claim_ = detail::writer_claim(folder_);
  });
}

PARX_INLINE void checkpoint_manager::clear(call_site site) {
  wait(site);
  detail::agree_on_rank0(group_, site, [&] { detail::remove_checkpoints(folder_); });
}

PARX_INLINE void checkpoint_manager::save(std::uint64_t step, const checkpoint_parts& parts,
                                          std::optional<double> metric,
                                          std::optional<std::uint64_t> best_step, call_site site) {
  wait(site);
  const detail::save_plan plan{detail::checkpoint_path(folder_, step),
                               step,
                               metric,
                               best_step,
                               options_.save_total_limit,
                               options_.goal,
                               site,
                               claim_.path()};
  together_ = any_shards(parts, site);
  if (options_.mode == save_mode::blocking) {
    if (together_) {
      detail::write_together(*group_, plan, parts.written_by(rank()));
    } else {
      detail::agree_on_rank0(group_, site, [&] { detail::write_alone(plan, parts); });
    }
    return;
  }
  const auto copy_of_parts = [&] { return parts.written_by(rank()).copied_to(memory_); };
  if (!together_) {
    detail::agree_on_rank0(group_, site, [this, &copy_of_parts, &plan] {
      write_behind([plan, copy = copy_of_parts()] { detail::write_alone(plan, copy); });
    });
    return;
  }
  if (!writers_) writers_ = all_of(*group_, site);
  // If a rank fails to allocate its copy or to start its thread, the other ranks' writers would
  // wait for it forever. So they begin only after all ranks have started theirs.
  std::promise<bool> all_started;
  try {
    detail::agree(group_, site, [this, &copy_of_parts, &all_started, &plan] {
      write_behind(
          [this, plan, copy = copy_of_parts(), begins = all_started.get_future()]() mutable {
            if (begins.get()) detail::write_together(*writers_, plan, copy);
          });
    });
  } catch (...) {
    all_started.set_value(false);
    throw;
  }
  all_started.set_value(true);
}

PARX_INLINE void checkpoint_manager::wait(call_site site) {
  if (options_.mode == save_mode::blocking) return;
  const auto end = [&] {
    if (writer_.joinable()) writer_.join();
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  };
  if (together_) {
    end();  // the writers have agreed: all ranks throw or none does
  } else {
    detail::agree_on_rank0(group_, site, end);
  }
}

PARX_INLINE std::optional<saved_checkpoint> checkpoint_manager::latest(call_site site) {
  return find(site, [](const auto& all) { return all; });
}

PARX_INLINE std::optional<saved_checkpoint> checkpoint_manager::best(call_site site) {
  return find(site, [&](auto all) {
    std::erase_if(all, [](const auto& one) { return !one.metric(); });
    std::reverse(all.begin(), all.end());  // oldest first
    std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
      return is_better(*a.metric(), *b.metric(), options_.goal);
    });
    return all;
  });
}

PARX_INLINE bool checkpoint_manager::any_shards(const checkpoint_parts& parts,
                                                call_site site) const {
  if (group_ == nullptr || group_->size() == 1) return false;
  return on_any_rank(*group_, parts.has_shards(), site);
}

PARX_INLINE process_group checkpoint_manager::all_of(const process_group& group, call_site site) {
  return group.subgroup(all_ranks(group.size()), {.name = "checkpoint"}, site);
}

}  // namespace parx
