// issuer: turns the arguments of a collective into a call: its plan, its header and its data.
//
// Progress (progress.hpp) then runs the call.
// Threads: those of its group, one at a time.
#pragma once

#include <memory>

#include <parx/comm/detail/issue/algorithm_choice.hpp>
#include <parx/comm/detail/issue/call_cache.hpp>
#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/detail/progress/shared_areas.hpp>
#include <parx/comm/schedule/call_shape.hpp>

namespace parx::inline PARX_ABI::detail {

class call_check;
struct collective_arguments;

class issuer {
 public:
  issuer(int rank, int world, const choice_options& given)
      : rank_(rank), world_(world), choice_(given) {}

  [[nodiscard]] detail::algorithm_choice& choice() noexcept { return choice_; }
  [[nodiscard]] shared_areas& areas() noexcept { return areas_; }

  /// Adds to a call's shape what is the same for all calls of the group.
  void complete(call_shape& shape) const {
    shape.rank = rank_;
    shape.world = world_;
    shape.staging_bytes = choice_.staging_bytes();
    shape.host_of = choice_.hosts();
  }

  /// Throws usage_error for a root or for buffers that cannot be.
  static void validate(const call_check& check, const collective_arguments& given);

  /// Fills a new `request`, whose arguments are right. Needs a choice that is ready. Returns the
  /// call's plan; the reference is valid until the next call. Throws usage_error.
  const std::shared_ptr<const execution_plan>& fill(const call_check& check,
                                                    const collective_arguments& given,
                                                    call& request);

 private:
  static constexpr std::size_t most_bytes_timed_after_start = 1024;

  [[nodiscard]] call_key key_of(const collective_arguments& given, const call& request) const;
  [[nodiscard]] std::shared_ptr<const execution_plan> plan_of(const call_check& check,
                                                              const call_key& key,
                                                              algorithm_list among) const;
  [[nodiscard]] prepared_call prepare(const call_check& check, const collective_arguments& given,
                                      const call_key& key,
                                      std::shared_ptr<const execution_plan> plan) const;

  int rank_;
  int world_;
  detail::algorithm_choice choice_;
  call_cache calls_;
  shared_areas areas_;
};

}  // namespace parx::detail
