// call_cache: the calls of a group as they were issued before, each made at the first one.
//
// A call that comes again has the plan, the header and the arithmetic of the one before: only its
// number and its buffers are new. So issuing it takes few stores, and the header is read in words
// that were written long ago (a load that spans several recent stores would stall, as store
// forwarding does not serve it: 140 ns for an all_reduce of 1 KiB).
//
// The key has everything that these depend on. Uneven counts are compared in full: with a hash, a
// collision would send the wrong elements. A lookup allocates nothing.
// Threads: those of its group, one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/detail/progress/call_header.hpp>
#include <parx/comm/detail/progress/collective_data.hpp>
#include <parx/comm/schedule/call_shape.hpp>
#include <parx/comm/schedule/execution_plan.hpp>

namespace parx::inline PARX_ABI::detail {

struct call_key {
  call_shape shape{};  ///< its blocks are left out: they are made of these counts
  algorithm asked = algorithm::automatic;
  std::span<const std::size_t> counts{};
  std::span<const std::size_t> incoming{};
  // The rest of the header; see call_header.
  /// Type, reduction and sizes in one word: as fields they would be compared in one wider load,
  /// which stalls as above.
  std::uint64_t elements = 0;
  std::uint32_t arithmetic = 0;
  int tag = -1;
  double factor = 1;
  const char* file = nullptr;
  int line = 0;

  void set_elements(std::uint8_t type, std::uint8_t reduction, std::uint32_t sizes) noexcept {
    elements = std::uint64_t{sizes} << 32 | std::uint64_t{reduction} << 8 | type;
  }
  [[nodiscard]] std::uint8_t type() const noexcept { return static_cast<std::uint8_t>(elements); }
  [[nodiscard]] std::uint8_t reduction() const noexcept {
    return static_cast<std::uint8_t>(elements >> 8);
  }
  [[nodiscard]] std::uint32_t sizes() const noexcept {
    return static_cast<std::uint32_t>(elements >> 32);
  }
  [[nodiscard]] bool has_shape_of(const call_key& other) const noexcept {
    return asked == other.asked && shape.is_like(other.shape);
  }
  [[nodiscard]] bool has_rest_of(const call_key& other) const noexcept {
    return elements == other.elements && arithmetic == other.arithmetic && tag == other.tag &&
           factor == other.factor && file == other.file && line == other.line;
  }
};

struct prepared_call {
  std::shared_ptr<const execution_plan> plan{};
  call_header header{};  ///< but for the group and the number
  reduction reduce{};    ///< empty where the user's function reduces
  scale_function scale = nullptr;
  double factor = 1;
};

class call_cache {
 public:
  /// The call for `key`. If there is none yet: make(plan), where the plan of a call of this shape
  /// is passed, or null. The reference is valid until the next find(). (make is not copied: that
  /// would read what was written a moment before, in wider words.)
  template <typename Make>
  [[nodiscard]] const prepared_call& find(const call_key& key, Make&& make) {
    static constexpr std::size_t most_calls = 256;       // few enough for a linear search
    static constexpr std::size_t most_actions = 65'536;  // of all plans: some 8 MB
    const prepared_call* alike = nullptr;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      // A loop makes its calls in the order in which they were made first.
      const std::size_t at = latest_ + i < kept_.size() ? latest_ + i : latest_ + i - kept_.size();
      const kept_call& each = kept_[at];
      if (!each.is_of_shape(key)) continue;
      if (each.key.has_rest_of(key)) {
        latest_ = at;
        return each.made;
      }
      alike = &each.made;
    }
    bool is_new_plan = alike == nullptr;
    prepared_call made = make(is_new_plan ? nullptr : alike->plan);
    const std::size_t actions = made.plan->steps.actions.size();
    if (kept_.size() >= most_calls || (is_new_plan && actions_ + actions > most_actions)) {
      kept_.clear();
      actions_ = 0;
      is_new_plan = true;
    }
    if (is_new_plan) actions_ += actions;
    latest_ = kept_.size();
    kept_.push_back({key,
                     {key.counts.begin(), key.counts.end()},
                     {key.incoming.begin(), key.incoming.end()},
                     std::move(made)});
    kept_.back().key.counts = kept_.back().key.incoming = {};
    return kept_.back().made;
  }

 private:
  struct kept_call {
    call_key key;
    std::vector<std::size_t> counts;
    std::vector<std::size_t> incoming;
    prepared_call made;

    [[nodiscard]] bool is_of_shape(const call_key& other) const noexcept {
      return key.has_shape_of(other) && same(counts, other.counts) &&
             same(incoming, other.incoming);
    }
    [[nodiscard]] static bool same(std::span<const std::size_t> a,
                                   std::span<const std::size_t> b) noexcept {
      return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
    }
  };

  std::vector<kept_call> kept_;
  std::size_t actions_ = 0;
  std::size_t latest_ = 0;  ///< index of the last call found
};

}  // namespace parx::detail
