// replica_flat_sum: a flat_sum over virtual replicas, along replica_tree.hpp's tree. A pass is one
// replica; all but a step's last are added up on this rank.
#pragma once

#include <cstddef>
#include <vector>

#include <parx/fsdp/flat_sum.hpp>
#include <parx/reduction/replica_sum.hpp>

namespace parx::inline PARX_ABI::detail {

class replica_flat_sum final : public flat_sum {
 public:
  replica_flat_sum(const sum_settings& how, const flat_parameter& flat, std::byte* part,
                   const step_header& header, call_site site)
      : flat_sum(how, flat, part, header, site),
        sum_(*how.virtual_replicas, how.all, flat.type, std::vector(flat.ranks, flat.part), site) {}

  void drop() noexcept override {
    flat_sum::drop();
    sum_.drop();
  }

 private:
  void scatter() override {
    if (pass_.is_padding) return;
    if (!pass_.is_last) sum_.add(memory_);
    else sum_.start(memory_);
  }
  void exchange() override {}
  void complete() override {
    if (pass_.is_last) sum_.finish(part_, header_.factor());
  }

  replica_sum sum_;
};

}  // namespace parx::detail
