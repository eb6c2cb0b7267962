// gathered_values: stores the values of units by gathering their parts from all ranks before use.
//
// A kept unit has memory of its own, in which its part lies; it is gathered in place once after
// each step. The other units have fixed addresses and take a block of a pool while they are used,
// so only the units that compute, and those gathered ahead, are in memory. Units of similar size
// share a pool, and an idle pool takes no memory: a layer does not need a block as large as the
// head of a language model. Ranks of one host gather kept units through shared memory. Values sent
// as bfloat16 are gathered into the first half of their memory. The rank's own values are rounded
// as well, so the exact part then lies elsewhere, in kept units too.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/comm/work.hpp>
#include <parx/ddp/bucket_memory.hpp>
#include <parx/fsdp/lasting_memory.hpp>
#include <parx/fsdp/unit_plan.hpp>
#include <parx/fsdp/unit_values.hpp>
#include <parx/fsdp/wire.hpp>
#include <parx/tensor/page_pool.hpp>

namespace parx::inline PARX_ABI::detail {

class gathered_values final : public unit_values {
 public:
  /// Collective over `group`. Group and plan are borrowed. `is_kept` has an entry for each unit; of
  /// the other units, at most `blocks` of similar size are in memory at once. `wire` is
  /// wire_types::gather.
  gathered_values(const unit_plan& plan, process_group& group, std::vector<bool> is_kept,
                  std::size_t blocks, std::optional<dtype> wire, call_site site);
  ~gathered_values() override;

  [[nodiscard]] std::byte* whole(std::size_t flat) const override { return flats_[flat].whole; }
  [[nodiscard]] std::byte* part(std::size_t flat) const override { return flats_[flat].part; }

  [[nodiscard]] bool has_room(std::size_t unit) const override {
    const held& here = units_[unit];
    return !here.memory || here.memory->attached() || here.pool->free_blocks() > 0;
  }
  void start(std::size_t unit) override;
  void wait(std::size_t unit) override;
  void release(std::size_t unit) noexcept override;
  void written() override;

 private:
  struct place {
    std::byte* whole = nullptr;
    std::byte* part = nullptr;
  };
  struct held {
    std::optional<page_pool> pool = {};  ///< if the unit is not kept
    std::optional<fixed_memory> memory = {};
    bool is_started = false;
    std::vector<work> gathers = {};
  };

  /// One pool for the units of each power of two of bytes.
  void make_pools(std::size_t blocks);
  /// Takes a block of the unit's pool, and gives back the free memory of the other pools.
  void attach(held& here);
  [[nodiscard]] bool is_part_within(const unit_flat& flat) const noexcept {
    return is_kept_[flat.unit] && !is_narrowed(wire_, flat.type);
  }
  static void drop(held& here) noexcept {
    here.gathers.clear();  // waits
    here.is_started = false;
  }
  [[nodiscard]] std::size_t bytes_of_kept() const noexcept;
  [[nodiscard]] std::size_t bytes_of_parts() const noexcept;

  const unit_plan& plan_;
  process_group& group_;
  const call_site site_;
  const std::optional<dtype> wire_;
  const std::vector<bool> is_kept_;
  std::vector<page_pool> pools_;  ///< by size
  std::vector<held> units_;
  std::vector<place> flats_;
  bucket_memory kept_;
  lasting_memory parts_;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/gathered_values_impl.hpp>
#endif
