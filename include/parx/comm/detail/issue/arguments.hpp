// arguments: the arguments of a collective, checked and without types.
//
// Every usage_error begins with "all_gather on group "dp" at train.cpp:88: ", is thrown before any
// I/O and leaves the group usable.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <parx/comm/detail/issue/argument_errors.hpp>
#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/schedule/algorithm.hpp>
#include <parx/comm/schedule/call_shape.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hash.hpp>

namespace parx::inline PARX_ABI::detail {

/// A buffer of elements: of a dtype, or structs, which are only moved or combined by the user's
/// function.
struct elements {
  void* data = nullptr;  ///< also of an input, which is only read
  std::size_t count = 0;
  std::size_t size = 1;  ///< bytes per element
  std::uint8_t type = static_cast<std::uint8_t>(dtype::uint8);

  [[nodiscard]] std::size_t bytes() const noexcept { return count * size; }
  [[nodiscard]] std::string type_name() const {
    return type == call_header::user_type ? formatted("structs of {} bytes", size)
                                          : std::string(name_of(static_cast<dtype>(type)));
  }
};

/// How elements are combined.
struct arithmetic {
  reduce_op op = reduce_op::sum;
  const reduce_kernels* kernels = nullptr;  ///< of op
  double factor = 1;
  const double* divide_by = nullptr;
  reduction user{};  ///< instead of op
  reduction_order order = reduction_order::any;
};

/// The algorithms of an operation. A function for each, which only those who call the operation
/// name: a program has no code of the algorithms of others.
template <operation What>
[[nodiscard]] algorithm_list algorithms_of() noexcept;

/// An operation that chooses among algorithms.
struct collective_operation {
  operation what;
  algorithm_list (*algorithms)() noexcept;
};
template <operation What>
inline constexpr collective_operation collective{What, &algorithms_of<What>};

struct collective_arguments {
  operation what = operation::barrier;
  algorithm_list (*algorithms)() noexcept = nullptr;
  const char* form = "";  ///< see call_check
  call_site site{};
  elements input{};
  elements output{};          ///< its data is null if this rank receives nothing
  std::size_t count = 0;      ///< of the whole vector: call_shape::count
  std::size_t own_begin = 0;  ///< where this rank's block begins in it
  int root = -1;
  int tag = no_tag;
  std::span<const std::size_t> counts{};    ///< of uneven blocks: call_shape::blocks
  std::span<const std::size_t> incoming{};  ///< call_shape::incoming
  arithmetic combine{};
  packing pack{};
  std::size_t pack_hash = 0;
  std::span<const mutable_bytes> output_blocks{};  ///< as collective_data::output_blocks
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
  std::shared_ptr<const void> keep{};  ///< owns what these spans or `combine` refer to
  bool names_absent_ranks = false;
  bool preserve_input = false;

  /// The buffer that has the elements' type.
  [[nodiscard]] const elements& described() const noexcept {
    return input.data != nullptr ? input : output;
  }
};

/// The options without the user's function, if there is one.
template <typename Options>
[[nodiscard]] const auto& plain_options(const Options& options) noexcept {
  if constexpr (is_user_operation<Options>) {
    return options.options;
  } else {
    return options;
  }
}

/// Reads the arithmetic of a reduction of B's elements from its options. Fills `how` in place, as
/// call_check::view does.
template <typename B, typename Options>
void read_arithmetic(const Options& options, arithmetic& how) {
  if constexpr (is_user_operation<Options>) {
    using function = decltype(options.function);
    how.user = {.user = &apply_user_op<function, element_of<B>>, .context = &options.function};
    how.order = options.options.order;
  } else {
    how.op = options.op;
    if constexpr (type_erased<std::remove_cvref_t<B>>) how.kernels = &kernels_of_any;
    else how.kernels = &kernels_of<element_of<B>>;
    if constexpr (requires { options.factor; }) how.factor = options.factor;
    if constexpr (requires { options.divide_by; }) how.divide_by = options.divide_by;
    if constexpr (requires { options.order; }) how.order = options.order;
  }
}

/// Checks the arguments of a call; errors name the call and its call site. `form` is what the
/// function's name has beyond that of the operation: "_v".
class call_check {
 public:
  call_check(const process_group& group, operation what, call_site site,
             const char* form = "") noexcept
      : group_(group), what_(what), form_(form), site_(site) {}
  /// For arguments().
  call_check(const process_group& group, const collective_operation& called, call_site site,
             const char* form = "") noexcept
      : group_(group),
        what_(called.what),
        algorithms_(called.algorithms),
        form_(form),
        site_(site) {}

  template <typename... Args>
  void require(bool holds, counted_text<sizeof...(Args)> text, const Args&... args) const {
    if (!holds) [[unlikely]]
      refuse(formatted(text, args...));
  }
  /// Returns make(); a usage_error from it is rethrown with the call's name.
  template <typename Make>
  decltype(auto) guard(Make&& make) const {
    try {
      return make();
    } catch (const usage_error& refusal) {
      refuse(refusal.what());
    }
  }

  /// Fills `found` in place. Copying a struct right after writing its members stalls: the wide load
  /// cannot be forwarded from the narrower stores (store forwarding).
  template <readable_operand B>
  void view(B&& data, elements& found) const {
    if constexpr (one_number<B>) {
      using number = std::remove_cvref_t<B>;
      found.data = const_cast<number*>(&data);
      found.count = 1;
      found.size = sizeof(number);
      found.type = static_cast<std::uint8_t>(dtype_of<number>);
    } else if constexpr (buffer<B>) {
      const const_buffer_view seen = guard([&] { return const_view_of(data); });
      require(size_of(seen.type) != 0, "{} is not the number of a dtype",
              static_cast<int>(seen.type));
      fits(seen.count, size_of(seen.type));
      found.data = const_cast<void*>(seen.data);
      found.count = seen.count;
      found.size = size_of(seen.type);
      found.type = static_cast<std::uint8_t>(seen.type);
    } else {
      guard([&] { require_contiguous(data); });
      using pointed = element_of<B>;
      fits(static_cast<std::size_t>(std::size(data)), sizeof(pointed));
      found.data = const_cast<pointed*>(std::data(data));
      found.count = static_cast<std::size_t>(std::size(data));
      found.size = sizeof(pointed);
      found.type = call_header::user_type;
    }
  }

  void same_type(const elements& input, const elements& output) const {
    if (input.type == output.type && input.size == output.size) [[likely]]
      return;
    require(false, "the input holds {}, the output {}", input.type_name(), output.type_name());
  }
  void same_count(const elements& input, const elements& output) const {
    require(input.count == output.count, "the input holds {} elements, the output {}", input.count,
            output.count);
  }
  void is_rank(int rank, const char* role) const {
    require(rank >= 0 && rank < group_.size(), "{} {} is not in this group of {} ranks", role, rank,
            group_.size());
  }

  /// The element count of `each`, times the number of ranks.
  [[nodiscard]] std::size_t for_all_ranks(const elements& each) const {
    std::size_t whole = 0;
    require(!__builtin_mul_overflow(each.count, static_cast<std::size_t>(group_.size()), &whole) &&
                fit(whole, each.size),
            "{} elements of {} bytes for each of {} ranks are more than memory can hold",
            each.count, each.size, group_.size());
    return whole;
  }
  /// The sum of the ranks' counts, of elements as in `data`; `name` is the parameter's name.
  /// Checked even if no buffer here holds all blocks: this rank may forward others' blocks.
  [[nodiscard]] std::size_t sum(std::span<const std::size_t> counts, const char* name,
                                const elements& data) const {
    require(counts.size() == static_cast<std::size_t>(group_.size()),
            "{} has {} entries for {} ranks", name, counts.size(), group_.size());
    std::size_t whole = 0;
    for (const std::size_t each : counts) {
      require(!__builtin_add_overflow(whole, each, &whole) && fit(whole, data.size),
              "the sum of {} is more than memory can hold, or one of them is negative", name);
    }
    return whole;
  }
  /// Number of elements before this rank's block.
  [[nodiscard]] std::size_t begin_of_own(std::span<const std::size_t> counts) const {
    std::size_t begin = 0;
    for (int rank = 0; rank < group_.rank(); ++rank)
      begin += counts[static_cast<std::size_t>(rank)];
    return begin;
  }

  [[nodiscard]] const process_group& group() const noexcept { return group_; }
  [[nodiscard]] std::size_t own_rank() const noexcept {
    return static_cast<std::size_t>(group_.rank());
  }
  /// Fills the fields that all sends and receives have in common.
  template <typename Options>
  void fill_message(int peer, const Options& options, call& request) const {
    require(options.tag >= 0, "the tag {} is negative", options.tag);
    request.what = what_;
    request.site = site_;
    request.timeout = options.timeout;
    request.peer = peer;
    request.header.root = options.tag;
  }
  [[nodiscard]] collective_arguments arguments() const {
    collective_arguments given;
    given.what = what_;
    given.algorithms = algorithms_;
    given.form = form_;
    given.site = site_;
    return given;
  }
  /// The arguments of an operation with `Plain` options whose input and output have the same type.
  /// Fails to compile, with an explanation, if it does not take these types.
  template <typename Plain, typename In, typename Out, typename Options>
  [[nodiscard]] collective_arguments arguments(const In& input, Out& output,
                                               const Options& options) const {
    collective_arguments given = arguments();
    if constexpr (takes<Plain, In, Out, Options>()) {
      view(input, given.input);
      view(output, given.output);
      same_type(given.input, given.output);
      given.use = plain_options(options).use;
      given.timeout = plain_options(options).timeout;
      if constexpr (names_root<Plain>) given.root = plain_options(options).root;
      if constexpr (names_operation<Plain>) read_arithmetic<In>(options, given.combine);
      if constexpr (requires { options.preserve_input; }) {
        given.preserve_input = options.preserve_input;
      }
      if constexpr (requires { plain_options(options).tag; }) {
        given.tag = plain_options(options).tag;
        require(given.tag >= no_tag, "the tag {} is negative", given.tag);
      }
    }
    return given;
  }

 private:
  [[nodiscard]] static bool fit(std::size_t count, std::size_t size) noexcept {
    std::size_t bytes = 0;
    return !__builtin_mul_overflow(count, size, &bytes) &&
           bytes <= std::numeric_limits<std::size_t>::max() / 2;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw_usage("{}{} on group \"{}\" at {}: {}", name_of(what_), form_, group_.name(), site_, why);
  }
  void fits(std::size_t count, std::size_t size) const {
    require(fit(count, size), "{} elements of {} bytes are more than memory can hold", count, size);
  }

  const process_group& group_;
  operation what_;
  algorithm_list (*algorithms_)() noexcept = nullptr;
  const char* form_;
  call_site site_;
};

/// The weakest order that gives the same bits as the requested one. Built-in operations commute;
/// min, max and operations on integers are associative as well.
[[nodiscard]] inline reduction_order needed_order(const arithmetic& how, std::uint8_t type,
                                                  int world) noexcept {
  if (how.user) {
    return world > 2 ? how.order : std::min(how.order, reduction_order::ranks);
  }
  const bool exact = how.op == reduce_op::min || how.op == reduce_op::max ||
                     !is_floating(static_cast<dtype>(type));
  return exact || world <= 2 ? reduction_order::any : how.order;
}

/// The part of the fingerprint for a struct's size, uneven counts and coalesced buffers.
[[nodiscard]] inline std::uint32_t hash_of_sizes(const collective_arguments& given,
                                                 std::uint8_t type,
                                                 std::size_t element_size) noexcept {
  const bool differ = !given.incoming.empty();  // these differ between ranks: links compare them
  if (type != call_header::user_type && given.counts.empty() && given.pack_hash == 0) return 0;
  std::uint64_t hash = fnv1a({}) ^ given.pack_hash;
  const auto add = [&](std::size_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  if (type == call_header::user_type) add(element_size);
  if (!differ) {
    for (const std::size_t each : given.counts) add(each);
  }
  return (static_cast<std::uint32_t>(hash >> 32) ^ static_cast<std::uint32_t>(hash)) | 1u;
}

/// The part of the fingerprint for the factors and the reduction order.
[[nodiscard]] inline std::uint32_t hash_of(const arithmetic& combine,
                                           std::size_t element_size) noexcept {
  const auto order = static_cast<std::uint32_t>(combine.order) << 30;
  if (combine.user) return order ^ static_cast<std::uint32_t>(element_size);
  if (combine.divide_by != nullptr) return order ^ 1u;
  if (combine.op != reduce_op::premul_sum) return order;
  const auto bits = std::bit_cast<std::uint64_t>(combine.factor) * 0x9e3779b97f4a7c15u;
  return order ^ static_cast<std::uint32_t>(bits >> 32);
}

}  // namespace parx::detail
