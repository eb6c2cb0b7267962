// workspace: the memory of one run of a collective, and the actions that need no link.
//
// It maps the regions of a schedule to addresses: in the caller's buffers, in scratch, in the
// packed copy of several buffers, or in shared memory. Scratch is kept from run to run. Threads:
// belongs to its engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include <parx/comm/detail/progress/collective_data.hpp>
#include <parx/comm/schedule/action.hpp>
#include <parx/types/stream_copy.hpp>

namespace parx::inline PARX_ABI::detail {

class workspace {
 public:
  /// Prepares a run on `data`, which must outlive the run; unset fields of it are filled in.
  void start(const schedule& steps, collective_data& data, int rank, int world) {
    data_ = &data;
    rank_ = rank;
    world_ = world;
    if (!data.pack.inputs.empty()) pack();
    if (data.divide_by != nullptr) {
      data.factor = *data.divide_by != 0 ? 1 / *data.divide_by : 0;
      if (data.factor == 1) data.scale = nullptr;
    }
    if (!staged()) enlarge(scratch_, steps.scratch_count * data.element_size);
    scratch_at_ = scratch_.data();
  }
  /// After the last action.
  void end() {
    if (!data_->pack.outputs.empty()) unpack();
  }

  [[nodiscard]] const std::byte* read_at(const region& where) const noexcept {
    if (where.where == place::input) return data_->input + where.offset * data_->element_size;
    return at(where);
  }
  [[nodiscard]] std::byte* write_at(const region& where) noexcept { return at(where); }

  /// Performs a local action as a whole.
  void perform(const action& step) {
    const std::size_t bytes = step.count() * data_->element_size;
    switch (step.kind) {
      case action_kind::fetch:
        copy_bytes(write_at(step.to), shared_at(step.from, step.peer), bytes);
        break;
      case action_kind::spread: spread(step, bytes); break;
      case action_kind::combine: combine(step, false); break;
      case action_kind::combine_for_all: combine(step, true); break;
      default:
        copy_bytes(write_at(step.to), read_at(step.from), bytes);
        scale_last(step, write_at(step.to), step.count());
    }
  }

  /// Reduces `count` elements received for a receive_reduce, from byte `offset` of the action on.
  /// May overwrite `theirs`.
  void reduce(const action& step, std::size_t offset, std::byte* theirs, std::size_t count) {
    std::byte* to = write_at(step.to) + offset;
    const std::byte* mine = read_at(step.from) + offset;
    if (step.own.count > 0) {
      data_->reduce(theirs, mine, theirs, count);
      data_->reduce(to, theirs, read_at(step.own) + offset, count);
    } else if (step.received_first) {
      data_->reduce(to, theirs, mine, count);
    } else {
      data_->reduce(to, mine, theirs, count);
    }
    scale_last(step, to, count);
  }

  static void enlarge(std::vector<std::byte>& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
  }

 private:
  [[nodiscard]] bool staged() const noexcept { return data_->staging.area != nullptr; }
  [[nodiscard]] std::byte* at(const region& where) const noexcept {
    const std::size_t offset = where.offset * data_->element_size;
    if (where.where == place::output) {
      if (!data_->output_blocks.empty()) [[unlikely]]
        return in_blocks(offset);
      return data_->output + offset;
    }
    return staged() ? shared_at(where, rank_) : scratch_at_ + offset;
  }
  /// Of byte `offset` of the output, where its blocks are separate buffers.
  [[nodiscard]] std::byte* in_blocks(std::size_t offset) const noexcept {
    const auto last = data_->output_blocks.end() - 1;
    auto block = data_->output_blocks.begin();
    for (; block != last && offset >= block->size; ++block) offset -= block->size;
    return block->data + offset;
  }
  static void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    if (to == from || bytes == 0) return;
    if (bytes >= least_streamed) return stream_copy(to, from, bytes);
    std::memcpy(to, from, bytes);
  }
  void scale_last(const action& step, std::byte* result, std::size_t count) const {
    if (step.completes && data_->scale != nullptr) data_->scale(result, count, data_->factor);
  }
  [[nodiscard]] std::byte* shared_at(const region& where, int rank) const noexcept {
    const std::size_t size = data_->element_size;
    if (where.where == place::scratch) return data_->staging.at(rank, where.offset, size);
    const shared_view& buffer =
        where.where == place::input ? data_->shared_input : data_->shared_output;
    return buffer.of(rank) + where.offset * size;
  }

  /// In blocks that stay in the cache until all ranks have a copy, so that the source is read once.
  void spread(const action& step, std::size_t bytes) {
    static constexpr std::size_t block_bytes = std::size_t{64} << 10;
    const std::byte* from = read_at(step.from);
    for (std::size_t done = 0; done < bytes; done += block_bytes) {
      const std::size_t size = std::min(block_bytes, bytes - done);
      for (int rank = 0; rank < world_; ++rank) {
        std::byte* to = shared_at(step.to, rank) + done;
        if (to == from + done) continue;
        if (bytes >= least_streamed) stream_copy(to, from + done, size);
        else std::memcpy(to, from + done, size);
      }
    }
  }

  /// One pass over all ranks' buffers, in blocks that stay in the L1 cache until they are copied to
  /// the other ranks. The result is written last: it may overwrite this rank's input.
  void combine(const action& step, bool for_all) {
    static constexpr std::size_t block_bytes = std::size_t{8} << 10;
    const std::size_t block = std::max<std::size_t>(1, block_bytes / data_->element_size);
    partial_.resize(block * data_->element_size);
    find_parts(step, for_all);
    std::byte* const result = write_at(step.to);
    for (std::size_t done = 0; done < step.count(); done += block) {
      const std::size_t count = std::min(block, step.count() - done);
      const std::size_t offset = done * data_->element_size;
      const std::byte* sum = parts_[0] + offset;
      for (std::size_t i = 1; i < parts_.size(); ++i) {
        std::byte* next = i + 1 == parts_.size() ? result + offset : partial_.data();
        data_->reduce(next, sum, parts_[i] + offset, count);
        sum = next;
      }
      scale_last(step, result + offset, count);
      for (std::byte* const copy : copies_) {
        copy_bytes(copy + offset, result + offset, count * data_->element_size);
      }
    }
  }
  /// The addresses of the ranks' parts of a combine, and of the copies of its result.
  void find_parts(const action& step, bool for_all) {
    const bool reads_own = step.own.count > 0;
    parts_.clear();
    copies_.clear();
    for (int rank = 0; rank < world_; ++rank) {
      parts_.push_back(reads_own && rank == rank_ ? read_at(step.own)
                                                  : shared_at(step.from, rank));
      if (for_all) copies_.push_back(shared_at(step.to, rank));
    }
    // This rank did not copy its own part in: the result goes there, for the others to fetch.
    if (reads_own) copies_.push_back(write_at(step.from));
  }

  void pack() {
    std::size_t block = 0;
    for (const const_bytes& each : data_->pack.inputs) block += each.size;
    enlarge(packed_, block * data_->pack.blocks);
    std::byte* to = packed_.data() + block * data_->pack.input_block;
    data_->input = to;
    for (const const_bytes& each : data_->pack.inputs) {
      copy_bytes(to, each.data, each.size);
      to += each.size;
    }
    if (data_->pack.outputs.empty()) return;
    data_->output = packed_.data();
  }
  void unpack() {
    const std::byte* from = packed_.data();
    for (std::size_t i = 0; i < data_->pack.blocks; ++i) {
      for (const mutable_bytes& each : data_->pack.outputs) {
        const std::size_t size = each.size / data_->pack.blocks;
        copy_bytes(each.data + i * size, from, size);
        from += size;
      }
    }
  }

  collective_data* data_ = nullptr;
  int rank_ = 0;
  int world_ = 1;
  std::byte* scratch_at_ = nullptr;  ///< if not staged
  std::vector<std::byte> scratch_;
  std::vector<std::byte> packed_;
  std::vector<std::byte> partial_;
  std::vector<const std::byte*> parts_;  ///< of the current combine: see find_parts
  std::vector<std::byte*> copies_;
};

}  // namespace parx::detail
