// row_table: an embedding table cut by rows over the ranks; no rank ever has the whole table.
//
// The model's parameter keeps its shape, but only has reserved addresses. Before a lookup reads
// rows (deferred_updates), they are fetched from their owners to their places. After backward, the
// gradient's rows go to their owners, which add them up in rank order and scale them: the bits are
// those of ddp's table_sum. The optimizer works on the owner's part, a parameter of these rows, and
// defers updates of untouched rows as usual. Any other read of the table, or a gradient of the
// whole table, is a usage_error that names it.
// Threads: the one that runs forward and backward.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/autograd/parameter.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/collectives/scatter.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/reduction/gradient_sums.hpp>
#include <parx/reduction/rows/row_all_to_all.hpp>

namespace parx::inline PARX_ABI::detail {

// Reserved addresses for a sparsely written array. A page takes memory when it is
// first written, and reads as zero before.
class reserved_pages {
 public:
  static constexpr std::size_t page_bytes = 4096;

  explicit reserved_pages(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const found = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (found == MAP_FAILED) {
      throw_error(errc::io, "no addresses for a table of {} bytes: {}", bytes, errno_text(errno));
    }
    // With huge pages, one row would take 2 MiB.
    ::madvise(found, bytes, MADV_NOHUGEPAGE);
    data_ = found;
  }
  reserved_pages(reserved_pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  ~reserved_pages() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  [[nodiscard]] void* data() const noexcept { return data_; }
  /// Everything is zero again, and takes no memory.
  void drop() const noexcept {
    if (data_ != nullptr) ::madvise(data_, bytes_, MADV_DONTNEED);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

/// The groups that exchange a table's rows; all are borrowed.
struct row_groups {
  process_group& fetching;  ///< the ranks over which the table is cut
  process_group& replicas;  ///< the ranks that have the same part
  process_group& summing;   ///< all ranks that have gradients of it
  const std::vector<std::size_t>& part_of;  ///< by rank of `summing`
  int tag = no_tag;                         ///< of the table's operations on `fetching`
  int virtual_replicas = 0;  ///< whose gradients are summed along their tree; 0: each rank's are
};

/// The interface of row_table, independent of the element type: it sums a backward pass's gradients
/// in three steps.
class any_row_table {
 public:
  any_row_table(const any_row_table&) = delete;
  any_row_table& operator=(const any_row_table&) = delete;
  virtual ~any_row_table() = default;

  /// Local: this pass is not the last of its step. The gradient of the model's parameter stays, or
  /// goes to the place of its virtual replica.
  virtual void keep(const reduction_pass& pass) = 0;
  /// Collective, asynchronous: the gradient of the model's parameter is final.
  virtual void announce() = 0;
  /// Collective: blocks until all ranks have announced, then sends the rows.
  virtual void start() = 0;
  /// Blocks until the owner's part has the sum of all ranks' rows times `factor`. The model's
  /// parameter has no gradient afterwards. `is_used` is false if no rank has a gradient: then the
  /// part has none either.
  virtual void finish(double factor, bool is_used) = 0;
  /// The pass has failed: blocks while operations still use this object's memory.
  virtual void abandon() noexcept = 0;

 protected:
  any_row_table() = default;
};

/// A trained parameter that is cut by rows.
struct trained_table {
  std::size_t parameter;
  any_row_table* rows;
};

template <typename T>
class row_table : public any_row_table, private deferred_updates<T> {
 public:
  /// `part`, which has no values and is not cut yet, becomes this rank's rows of `whole`. If
  /// `whole` has values, this is collective, and each rank receives its part of rank 0's; otherwise
  /// the caller must initialize the part.
  row_table(const row_groups& groups, parameter<T> whole, parameter<T> part, call_site site)
      : whole_(std::move(whole)),
        part_(std::move(part)),
        traffic_(groups.fetching, groups.summing, groups.part_of, whole_.name(), rows(), width(),
                 dtype_of<T>, groups.tag, site),
        values_(whole_.size() * sizeof(T)),
        gradients_(whole_.size() * sizeof(T)) {
    part_.keep_part(whole_.spec().slice(0, traffic_.own_begin(), traffic_.own_end()));
    part_.expect_row_grad();
    const tensor<T>& values = part_.allocate();
    if (whole_.has_values()) {
      std::vector<std::size_t> counts;
      const equal_row_blocks& cut = traffic_.cut();
      for (std::size_t rank = 0; rank < cut.ranks; ++rank) {
        counts.push_back((cut.begin(rank + 1) - cut.begin(rank)) * width());
      }
      scatter_v(groups.fetching, whole_.value().span(), values.span(), counts, {}, site);
      if (groups.replicas.size() > 1) broadcast(groups.replicas, values.span(), {}, site);
    }
    whole_.forget_values();
    whole_.bind_value(elements(values_));
    whole_.bind_zeroed_grad(elements(gradients_));
    whole_.watch_reads(this);
  }
  ~row_table() override {
    row_table::abandon();
    whole_.watch_reads(nullptr);
    whole_.zero_grad();
    whole_.unbind_grad();
    whole_.forget_values();
  }

  void keep(const reduction_pass& /*pass*/) override {}
  void announce() override { traffic_.announce(touched_rows()); }
  void start() override { traffic_.start(gradient()); }
  void finish(double factor, bool is_used) override {
    note_written(touched_rows().size());
    traffic_.add_up(factor, [&](std::span<const std::size_t> rows) -> std::byte* {
      if (!is_used) return nullptr;
      return reinterpret_cast<std::byte*>(part_.add_rows(rows).data());
    });
    whole_.zero_grad();
    drop_many_pages();
  }
  void abandon() noexcept override { traffic_.wait(); }

 protected:
  static constexpr const char* remedy =
      "fsdp has cut it by rows, so only lookups can use it. If the model needs the whole table, "
      "make it as nn::embedding{rows, width, {.use = nn::embedding_use::whole}}, or give fsdp the "
      "option .tables = embedding_tables::in_units";

  /// Those of the model's parameter, none without a gradient.
  [[nodiscard]] std::span<const std::size_t> touched_rows() const {
    const auto touched = whole_.touched_rows();
    require(touched.has_value() || !whole_.has_grad(),
            "table \"{}\" has a gradient for all of its rows: {}", whole_.name(), remedy);
    return touched.value_or(std::span<const std::size_t>());
  }
  [[nodiscard]] const std::byte* gradient() const {
    const T* const from = whole_.has_grad() ? whole_.row_grad()->values.data() : nullptr;
    return reinterpret_cast<const std::byte*>(from);
  }
  void note_written(std::size_t rows) noexcept {
    written_ += rows * std::max(width() * sizeof(T), reserved_pages::page_bytes);
  }
  /// Gives pages back once this much has been written, and never of smaller tables: touching a page
  /// again costs a page fault.
  void drop_many_pages() {
    constexpr std::size_t least_drop = std::size_t{32} << 20U;
    if (written_ < least_drop || 2 * whole_.size() * sizeof(T) <= least_drop) return;
    values_.drop();
    gradients_.drop();
    whole_.bind_zeroed_grad(elements(gradients_));
    written_ = 0;
  }
  [[nodiscard]] std::size_t rows() const noexcept { return whole_.shape()[0]; }
  [[nodiscard]] std::size_t width() const noexcept {
    return rows() == 0 ? 0 : whole_.size() / rows();
  }

  const parameter<T> whole_;  ///< the model's
  const parameter<T> part_;
  row_all_to_all traffic_;

 private:
  [[nodiscard]] std::span<T> elements(const reserved_pages& of) const noexcept {
    return {static_cast<T*>(of.data()), whole_.size()};
  }

  // deferred_updates: called before a read of the model's parameter.
  void settle(const tensor<T>& /*value*/) override {
    throw_usage("all of table \"{}\" is read: {}", whole_.name(), remedy);
  }
  void settle(const tensor<T>& value, std::span<const std::size_t> rows) override {
    note_written(traffic_.fetch(reinterpret_cast<std::byte*>(value.data()), rows,
                                [&](std::span<const std::size_t> own) {
                                  return reinterpret_cast<const std::byte*>(
                                      part_.value_at_rows(own).data());
                                }));
  }

  const reserved_pages values_, gradients_;
  std::size_t written_ = 0;  ///< upper bound of the bytes of pages in use since the last drop
};

}  // namespace parx::detail
