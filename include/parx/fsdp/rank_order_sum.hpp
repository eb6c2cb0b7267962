// rank_order_sum: a flat_sum over all ranks at once, for replicas whose gradients are added up in
// rank order. A part is divided into pieces, one for each replica in rank order.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/reduce_scatter.hpp>
#include <parx/fsdp/flat_sum.hpp>

namespace parx::inline PARX_ABI::detail {

class rank_order_sum final : public flat_sum {
 public:
  using flat_sum::flat_sum;

 private:
  /// Starts a reduce_scatter for each part. A single one would not do: it needs the ranks' blocks
  /// in rank order, and the ranks of a part need not be neighbours.
  void scatter() override {
    std::vector<std::size_t> counts(how_.part_of.size());
    for (std::size_t part = 0; part < flat_.ranks; ++part) {
      std::size_t replica = 0;
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        counts[rank] = how_.part_of[rank] == part ? size_of_piece(replica++) : 0;
      }
      const buffer_view from{memory_ + part * flat_.part_bytes(), flat_.part, flat_.type};
      const buffer_view to{own_piece(), counts[static_cast<std::size_t>(how_.all.rank())],
                           flat_.type};
      works_.push_back(
          async_reduce_scatter_v(how_.all, from, to, counts,
                                 {.divide_by = &header_.count(), .order = how_.order}, site_));
    }
  }
  void exchange() override {
    std::vector<std::size_t> counts(static_cast<std::size_t>(how_.replicas.size()));
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = size_of_piece(i);
    const const_buffer_view piece{own_piece(), counts[own_replica()], flat_.type};
    works_.push_back(async_all_gather_v(how_.replicas, piece, part(), counts, {}, site_));
  }

  [[nodiscard]] std::size_t own_replica() const noexcept {
    return static_cast<std::size_t>(how_.replicas.rank());
  }
  [[nodiscard]] std::size_t piece_begin(std::size_t replica) const noexcept {
    return flat_.part * replica / static_cast<std::size_t>(how_.replicas.size());
  }
  [[nodiscard]] std::size_t size_of_piece(std::size_t replica) const noexcept {
    return piece_begin(replica + 1) - piece_begin(replica);
  }
  [[nodiscard]] std::byte* own_piece() const noexcept {
    return part_ + piece_begin(own_replica()) * size_of(flat_.type);
  }
};

}  // namespace parx::detail
