// Definitions of issue.hpp.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include <parx/comm/detail/group_core.hpp>
#include <parx/comm/detail/issue/issue.hpp>
#include <parx/comm/measure.hpp>
#include <parx/comm/schedule/catalog.hpp>
#include <parx/core/stopped.hpp>

namespace parx::inline PARX_ABI::detail {

template <operation What>
algorithm_list algorithms_of() noexcept {
  return entries_of<What>;
}
#ifdef PARX_SEPARATE_COMPILATION
template algorithm_list algorithms_of<operation::all_reduce>() noexcept;
template algorithm_list algorithms_of<operation::reduce_scatter>() noexcept;
template algorithm_list algorithms_of<operation::all_gather>() noexcept;
template algorithm_list algorithms_of<operation::broadcast>() noexcept;
template algorithm_list algorithms_of<operation::reduce>() noexcept;
template algorithm_list algorithms_of<operation::gather>() noexcept;
template algorithm_list algorithms_of<operation::scatter>() noexcept;
template algorithm_list algorithms_of<operation::all_to_all>() noexcept;
template algorithm_list algorithms_of<operation::scan>() noexcept;
template algorithm_list algorithms_of<operation::exscan>() noexcept;
template algorithm_list algorithms_of<operation::barrier>() noexcept;
#endif

/// Throws usage_error if input and output overlap, unless the operation is in place.
inline void check_overlap(const call_check& check, const collective_arguments& given) {
  if (given.input.data == nullptr || given.output.data == nullptr) return;
  const auto in = reinterpret_cast<std::uintptr_t>(given.input.data);
  const auto out = reinterpret_cast<std::uintptr_t>(given.output.data);
  if (in >= out + given.output.bytes() || out >= in + given.input.bytes()) return;
  const std::size_t own = given.own_begin * given.input.size;
  bool exact = in == out;
  if (given.what == operation::all_gather || given.what == operation::gather)
    exact = in == out + own;
  if (given.what == operation::reduce_scatter || given.what == operation::scatter)
    exact = out == in + own;
  check.require(exact,
                "input and output overlap without being the same elements; pass one buffer for "
                "an in-place operation, or two separate ones");
  check.require(!given.preserve_input || !given.pack.inputs.empty(),
                "preserve_input in place is for all_reduce; a second buffer for the result "
                "leaves the input as it is");
}

inline void issuer::validate(const call_check& check, const collective_arguments& given) {
  if (has_root(given.what)) check.is_rank(given.root, "root");
  check_overlap(check, given);
}

inline call_key issuer::key_of(const collective_arguments& given, const call& request) const {
  const elements& described = given.described();
  const arithmetic& how = given.combine;
  call_key key{.asked = given.use,
               .counts = given.counts,
               .incoming = given.incoming,
               .tag = given.tag,
               .file = given.site.file,
               .line = given.site.line};
  key.shape.what = given.what;
  key.shape.count = given.count;
  key.shape.root = given.root;
  key.shape.element_bytes = described.size;
  key.shape.order = needed_order(how, described.type, world_);
  key.shape.shared =
      static_cast<shared_buffers>((request.data.shared_input.area != nullptr ? 1 : 0) +
                                  (request.data.shared_output.area != nullptr ? 2 : 0));
  key.shape.separate_blocks = !given.output_blocks.empty();
  std::uint8_t reduction = call_header::no_reduction;
  if (reduces(given.what)) {
    key.arithmetic = hash_of(how, given.input.size);
    reduction = how.user ? call_header::user_reduction : static_cast<std::uint8_t>(how.op);
    if (how.op == reduce_op::premul_sum) key.factor = how.factor;
  }
  key.set_elements(described.type, reduction, hash_of_sizes(given, described.type, described.size));
  return key;
}

inline std::shared_ptr<const execution_plan> issuer::plan_of(const call_check& check,
                                                             const call_key& key,
                                                             algorithm_list among) const {
  call_shape shape = key.shape;
  complete(shape);
  if (!key.counts.empty()) shape.blocks = partition::uneven(key.counts);
  if (!key.incoming.empty()) shape.incoming = partition::uneven(key.incoming);
  return check.guard([&] {
    const bool chooses = key.asked == algorithm::automatic;
    const algorithm use =
        chooses ? choose(shape, choice_.costs(), choice_.rules(), among) : key.asked;
    return std::shared_ptr<const execution_plan>(
        new execution_plan(make_plan(make_schedule(shape, use, among))));
  });
}

inline prepared_call issuer::prepare(const call_check& check, const collective_arguments& given,
                                     const call_key& key,
                                     std::shared_ptr<const execution_plan> plan) const {
  prepared_call made{.plan = plan != nullptr ? std::move(plan)
                                             : plan_of(check, key, given.algorithms())};
  call_header& header = made.header;
  header.operation = static_cast<std::uint8_t>(given.what);
  header.type = key.type();
  header.reduction = key.reduction();
  header.algorithm = static_cast<std::uint8_t>(made.plan->steps.name);
  header.count = given.incoming.empty() ? given.count : 0;
  header.root = has_root(given.what) ? given.root : given.tag;
  header.line = static_cast<std::uint32_t>(given.site.line);
  header.sizes = key.sizes();
  header.arithmetic = key.arithmetic;
  header.set_file(given.site.file_name());
  const arithmetic& how = given.combine;
  if (!reduces(given.what) || how.user) return made;
  const auto type = static_cast<dtype>(given.input.type);
  check.guard([&] { made.reduce = {.kernel = how.kernels->combine(type, how.op)}; });
  if (how.op == reduce_op::avg && world_ > 1) made.factor = 1.0 / world_;
  if (how.op == reduce_op::premul_sum) made.factor = how.factor;
  check.require(how.divide_by == nullptr || (how.op == reduce_op::sum && is_floating(type)),
                "divide_by needs reduce_op::sum over floating elements, not {} over {}",
                name_of(how.op), name_of(type));
  if (how.divide_by != nullptr || made.factor != 1) made.scale = how.kernels->scale(type);
  return made;
}

inline const std::shared_ptr<const execution_plan>& issuer::fill(const call_check& check,
                                                                 const collective_arguments& given,
                                                                 call& request) {
  request.what = given.what;
  request.form = given.form;
  request.site = given.site;
  request.timeout = given.timeout;
  request.names_absent_ranks = given.names_absent_ranks;
  if (given.keep != nullptr) request.keep = given.keep;
  collective_data& data = request.data;
  data.input = static_cast<const std::byte*>(given.input.data);
  data.output = static_cast<std::byte*>(given.output.data);
  data.element_size = given.described().size;
  data.counts_differ = !given.incoming.empty();
  if (!given.output_blocks.empty()) data.output_blocks = given.output_blocks;
  if (given.pack.inputs.empty()) {
    data.shared_input = areas_.find(given.input.data, given.input.bytes());
    data.shared_output = areas_.find(given.output.data, given.output.bytes());
  } else {
    data.pack = given.pack;  // an empty one is there, and to copy it stalls: see call_cache.hpp
  }
  const call_key key = key_of(given, request);
  const auto with_plan = [&, this](std::shared_ptr<const execution_plan> plan) {
    return prepare(check, given, key, std::move(plan));
  };
  const prepared_call& made = calls_.find(key, with_plan);
  request.plan = made.plan.get();
  request.header = made.header;
  request.timed_after_start =
      choice_.shares_memory() && given.count * data.element_size <= most_bytes_timed_after_start;
  data.reduce = given.combine.user ? given.combine.user : made.reduce;
  data.scale = made.scale;
  data.factor = made.factor;
  data.divide_by = given.combine.divide_by;
  if (made.plan->steps.name == algorithm::shared) {
    // Other ranks expect this rank's buffer in the same area and at the same offset as their own.
    const shared_view& view =
        given.what == operation::reduce_scatter ? data.shared_input : data.shared_output;
    const std::uint64_t place = view.offset + (view.area->id << 48);
    request.header.sizes ^= static_cast<std::uint32_t>(place * 0x9e3779b97f4a7c15u >> 32);
  }
  return made.plan;
}

/// Fills a new `request`. Throws usage_error before any communication; measures the network first
/// if the group has not chosen an algorithm yet. As issuer::fill, which it returns.
inline const std::shared_ptr<const execution_plan>& fill_call(const process_group& group,
                                                              const collective_arguments& given,
                                                              call& request) {
  issuer& issuing = core_of(group)->issuer();
  const call_check check(group, given.what, given.site, given.form);
  issuing.validate(check, given);
  if (!issuing.choice().ready()) ready_choice(group, given.site);
  return issuing.fill(check, given, request);
}

/// Runs a call to its end. In a destructor that runs because of an exception other ranks may not
/// come to this call: see wait_in_unwinding.
inline void run_to_end(group_core& core, call& request) {
  const bool unwinding = std::uncaught_exceptions() > 0 && !stopped_by_signal::is_thrown();
  if (!unwinding) [[likely]]
    return core.progress().run(request);
  core.progress().submit(request);
  core.progress().wait_in_unwinding(request);
  request.rethrow();
}

PARX_INLINE void run(const process_group& group, const collective_arguments& given) {
  group_core& core = *core_of(group);
  const auto inside = core.enter(given.what, given.site);
  call request;
  fill_call(group, given, request);
  run_to_end(core, request);
}

PARX_INLINE work start(const process_group& group, const collective_arguments& given) {
  group_core& core = *core_of(group);
  const auto inside = core.enter(given.what, given.site);
  auto request = std::make_unique<call>();
  request->kept_plan = fill_call(group, given, *request);
  request->timed = true;
  core.progress().submit(*request);
  return {core_of(group), std::move(request)};
}

PARX_INLINE void run(const process_group& group, call& request) {
  group_core& core = *core_of(group);
  const auto inside = core.enter(request.what, request.site);
  run_to_end(core, request);
}

PARX_INLINE work start(const process_group& group, std::unique_ptr<call> request) {
  group_core& core = *core_of(group);
  const auto inside = core.enter(request->what, request->site);
  core.progress().submit(*request);
  return {core_of(group), std::move(request)};
}

}  // namespace parx::detail
