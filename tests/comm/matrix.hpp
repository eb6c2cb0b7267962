// matrix: one call of any operation, and the expected contents of every buffer.
//
// Contributions are formulas of rank and index: small integers that no dtype rounds. So the
// expected results are formulas as well, independent of parx. Buffers are views with a dtype known
// at run time: one template instance of each operation serves all trials.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <parx/comm.hpp>

namespace matrix {

using parx::algorithm;
using parx::buffer_view;
using parx::const_buffer_view;
using parx::dtype;
using parx::operation;
using parx::reduce_op;

struct trial {
  operation what = operation::barrier;
  algorithm use = algorithm::automatic;
  dtype type = dtype::float32;
  reduce_op op = reduce_op::sum;
  std::size_t count = 0;  ///< elements of a block where there are blocks, else of the vector
  int root = 0;
  bool in_place = false;
  bool uneven = false;
};

inline std::string describe(const trial& t) {
  return fmt::format("{} by {} of {} {} ({}), root {}{}{}", name_of(t.what), name_of(t.use),
                     t.count, name_of(t.type), name_of(t.op), t.root,
                     t.in_place ? ", in place" : "", t.uneven ? ", uneven" : "");
}

inline bool has_blocks(operation what) {
  return what == operation::reduce_scatter || what == operation::all_gather ||
         what == operation::gather || what == operation::scatter || what == operation::all_to_all;
}

/// Rank `rank`'s contribution at index i. Products stay below 2^4 on 8 ranks, sums below 32. For
/// avg all ranks contribute the same, 0, 1 or 2, so a rounded 1/world gives exact results.
inline int value(reduce_op op, int rank, std::size_t i) {
  const std::size_t mixed = i + 3 * static_cast<std::size_t>(rank);
  if (op == reduce_op::avg) return static_cast<int>(i % 3);
  if (op == reduce_op::product) return (i + static_cast<std::size_t>(rank)) % 3 == 0 ? 2 : 1;
  return static_cast<int>(mixed % 4);
}

/// After as many elements contributions repeat.
inline constexpr std::size_t period = 12;

/// The reduction over ranks first to last - 1. Factors are 1/world for avg and 2 for premul_sum.
inline double reduced(reduce_op op, int first, int last, int world, std::size_t i) {
  int result = value(op, first, i);
  for (int rank = first + 1; rank < last; ++rank) {
    const int next = value(op, rank, i);
    switch (op) {
      case reduce_op::sum:
      case reduce_op::avg:
      case reduce_op::premul_sum:
        result += next;
        break;
      case reduce_op::product:
        result *= next;
        break;
      case reduce_op::min:
        result = std::min(result, next);
        break;
      case reduce_op::max:
        result = std::max(result, next);
        break;
      case reduce_op::band:
        result &= next;
        break;
      case reduce_op::bor:
        result |= next;
        break;
      case reduce_op::bxor:
        result ^= next;
        break;
    }
  }
  if (op == reduce_op::avg) return static_cast<double>(result) / world;
  return op == reduce_op::premul_sum ? 2.0 * result : result;
}

/// Elements that `from` has for `to`, where blocks are uneven: some are empty.
inline std::size_t uneven_count(std::size_t count, int from, int to) {
  return static_cast<std::size_t>((from * 3 + to * 5 + 2) % 4) * count / 2;
}

inline constexpr int untouched = 77;

/// One rank's memory: an input and an output, which overlap as `in_place` says.
class arena {
 public:
  /// `area`, if given, is used instead of memory of its own: a shared buffer.
  arena(dtype type, std::size_t inputs, std::size_t outputs,
        std::optional<std::size_t> input_at_output, std::optional<std::size_t> output_at_input,
        std::span<std::byte> area)
      : type_(type), size_(size_of(type)) {
    // Apart unless in place. The larger one comes first: in a shared area it must lie at the same
    // place on all ranks, and the other's size may be a rank's own.
    const auto behind = [&](std::size_t count) { return (count * size_ + 127) / 64 * 64; };
    if (input_at_output) {
      input_at_ = *input_at_output * size_;
    } else if (output_at_input) {
      output_at_ = *output_at_input * size_;
    } else if (inputs < outputs) {
      input_at_ = behind(outputs);
    } else {
      output_at_ = behind(inputs);
    }
    input_count_ = inputs;
    output_count_ = outputs;
    const std::size_t bytes = std::max(input_at_ + inputs * size_, output_at_ + outputs * size_);
    if (area.empty()) {
      own_.resize(bytes);
      area = own_;
    }
    if (area.size() < bytes) throw std::runtime_error("the shared area of the test is too small");
    area_ = area.first(bytes);
    fill(0, std::vector<float>(bytes / size_, untouched));
  }

  [[nodiscard]] const_buffer_view input() const {
    return {area_.data() + input_at_, input_count_, type_};
  }
  [[nodiscard]] buffer_view output() { return {area_.data() + output_at_, output_count_, type_}; }

  template <typename Value>
  void fill_input(Value value) {
    fill(input_at_ / size_, table(input_count_, value));
  }
  /// Whether output[i] == value(i) for all i; `value` may be any function of the index.
  template <typename Value>
  [[nodiscard]] bool output_is(Value value) const {
    return is(output_at_, table(output_count_, value));
  }
  template <typename Value>
  [[nodiscard]] bool input_is(Value value) const {
    return is(input_at_, table(input_count_, value));
  }

 private:
  /// value(0) to value(count - 1): one loop a function, and not one for each dtype as well.
  template <typename Value>
  static std::vector<float> table(std::size_t count, Value value) {
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<float>(value(i));
    return all;
  }
  void fill(std::size_t first, const std::vector<float>& values) {
    visit_dtype(type_, [&]<typename T>(std::type_identity<T>) {
      T* to = reinterpret_cast<T*>(area_.data()) + first;
      for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
    });
  }
  [[nodiscard]] bool is(std::size_t at, const std::vector<float>& values) const {
    return visit_dtype(type_, [&]<typename T>(std::type_identity<T>) {
      const T* from = reinterpret_cast<const T*>(area_.data() + at);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!(from[i] == static_cast<T>(values[i]))) return false;
      }
      return true;
    });
  }

  dtype type_;
  std::size_t size_;
  std::size_t input_at_ = 0, output_at_ = 0, input_count_ = 0, output_count_ = 0;
  std::vector<std::byte> own_;
  std::span<std::byte> area_;
};

/// Runs one trial on one rank; throws a text that says what is wrong with its result.
inline void run(parx::process_group& group, const trial& t, std::span<std::byte> area = {}) {
  const int world = group.size(), rank = group.rank();
  const bool is_root = rank == t.root;
  const auto at = [](int r) { return static_cast<std::size_t>(r); };

  // The blocks: what each rank has of the whole, and for all_to_all what comes from each.
  std::vector<std::size_t> counts, incoming;
  for (int r = 0; r < world; ++r) {
    const int from = t.what == operation::all_to_all ? rank : 0;
    counts.push_back(!has_blocks(t.what) ? 0 : t.uneven ? uneven_count(t.count, from, r) : t.count);
    incoming.push_back(t.uneven ? uneven_count(t.count, r, rank) : t.count);
  }
  const auto begin = [](const std::vector<std::size_t>& of, int r) {
    std::size_t sum = 0;
    for (int i = 0; i < r; ++i) sum += of[static_cast<std::size_t>(i)];
    return sum;
  };
  const std::size_t whole = has_blocks(t.what) ? begin(counts, world) : t.count;
  const std::size_t own = counts[at(rank)], own_at = begin(counts, rank);

  // How large input and output are, and how they lie to each other when in place.
  std::size_t inputs = whole, outputs = whole;
  std::optional<std::size_t> input_at_output, output_at_input;
  switch (t.what) {
    case operation::reduce_scatter:
      outputs = own;
      output_at_input = own_at;
      break;
    case operation::all_gather:
      inputs = own;
      input_at_output = own_at;
      break;
    case operation::gather:
      inputs = own;
      outputs = is_root ? whole : 0;
      if (is_root) input_at_output = own_at;
      break;
    case operation::scatter:
      inputs = is_root ? whole : 0;
      outputs = own;
      if (is_root) output_at_input = own_at;
      break;
    case operation::all_to_all:
      outputs = begin(incoming, world);
      output_at_input = 0;
      break;
    default:
      output_at_input = 0;
  }
  if (t.what == operation::broadcast || t.what == operation::barrier) {
    output_at_input = 0;
  } else if (!t.in_place) {
    input_at_output = output_at_input = std::nullopt;
  }
  arena memory(t.type, inputs, outputs, input_at_output, output_at_input, area);
  memory.fill_input([&](std::size_t i) { return value(t.op, rank, i); });

  const const_buffer_view input = memory.input();
  const buffer_view output = memory.output();
  // One half of the trials; of all_to_all_v, which has no place to be in, those of odd counts.
  const bool asynchronous =
      t.in_place || (t.what == operation::all_to_all && t.uneven && t.count % 2 == 1);
  const auto wait = [](parx::work pending) { pending.wait(); };
  const parx::reduce_options reduction{.op = t.op, .factor = 2, .use = t.use};
  const parx::collective_options plain{.use = t.use};
  const parx::rooted_options rooted{.root = t.root, .use = t.use};
  switch (t.what) {
    case operation::all_reduce:
      if (asynchronous)
        wait(parx::async_all_reduce(group, output, reduction));
      else
        parx::all_reduce(group, input, output, reduction);
      break;
    case operation::reduce_scatter:
      if (t.uneven && asynchronous)
        wait(parx::async_reduce_scatter_v(group, input, output, counts, reduction));
      else if (t.uneven)
        parx::reduce_scatter_v(group, input, output, counts, reduction);
      else if (asynchronous)
        wait(parx::async_reduce_scatter(group, input, output, reduction));
      else
        parx::reduce_scatter(group, input, output, reduction);
      break;
    case operation::all_gather:
      if (t.uneven && asynchronous)
        wait(parx::async_all_gather_v(group, input, output, counts, plain));
      else if (t.uneven)
        parx::all_gather_v(group, input, output, counts, plain);
      else if (asynchronous)
        wait(parx::async_all_gather(group, input, output, plain));
      else
        parx::all_gather(group, input, output, plain);
      break;
    case operation::broadcast:
      if (asynchronous)
        wait(parx::async_broadcast(group, output, rooted));
      else
        parx::broadcast(group, output, rooted);
      break;
    case operation::reduce: {
      const parx::rooted_reduce_options options{
          .root = t.root, .op = t.op, .factor = 2, .use = t.use};
      if (asynchronous)
        wait(parx::async_reduce(group, output, options));
      else
        parx::reduce(group, input, output, options);
      break;
    }
    case operation::gather:
      if (t.uneven && asynchronous)
        wait(parx::async_gather_v(group, input, output, counts, rooted));
      else if (t.uneven)
        parx::gather_v(group, input, output, counts, rooted);
      else if (asynchronous)
        wait(parx::async_gather(group, input, output, rooted));
      else
        parx::gather(group, input, output, rooted);
      break;
    case operation::scatter:
      if (t.uneven && asynchronous)
        wait(parx::async_scatter_v(group, input, output, counts, rooted));
      else if (t.uneven)
        parx::scatter_v(group, input, output, counts, rooted);
      else if (asynchronous)
        wait(parx::async_scatter(group, input, output, rooted));
      else
        parx::scatter(group, input, output, rooted);
      break;
    case operation::all_to_all:
      if (t.uneven && asynchronous)
        wait(parx::async_all_to_all_v(group, input, counts, output, incoming, plain));
      else if (t.uneven)
        parx::all_to_all_v(group, input, counts, output, incoming, plain);
      else if (asynchronous)
        wait(parx::async_all_to_all(group, output, plain));
      else
        parx::all_to_all(group, input, output, plain);
      break;
    case operation::scan:
      if (asynchronous)
        wait(parx::async_scan(group, output, parx::scan_options{.op = t.op, .use = t.use}));
      else
        parx::scan(group, input, output, parx::scan_options{.op = t.op, .use = t.use});
      break;
    case operation::exscan:
      if (asynchronous)
        wait(parx::async_exscan(group, output, parx::scan_options{.op = t.op, .use = t.use}));
      else
        parx::exscan(group, input, output, parx::scan_options{.op = t.op, .use = t.use});
      break;
    case operation::barrier:
      if (asynchronous)
        wait(parx::async_barrier(group));
      else
        parx::barrier(group);
      return;
    default:
      throw std::runtime_error("no collective");
  }

  const auto mine = [&](std::size_t i) { return value(t.op, rank, i); };
  const auto sum_to = [&](int last, std::size_t first) {
    std::array<double, period> sums;
    for (std::size_t i = 0; i < period; ++i) sums[i] = reduced(t.op, 0, last, world, first + i);
    return [sums](std::size_t i) { return sums[i % period]; };
  };
  /// Element i of vectors that lie one after the other: rank r's from index first(r) on.
  const auto gathered = [&](const std::vector<std::size_t>& sizes, auto first) {
    return [&t, &sizes, first, r = 0, begins = std::size_t{0}](std::size_t i) mutable {
      if (i == 0) r = 0, begins = 0;
      while (i >= begins + sizes[static_cast<std::size_t>(r)])
        begins += sizes[static_cast<std::size_t>(r++)];
      return value(t.op, r, first(r) + i - begins);
    };
  };
  bool right = false;
  switch (t.what) {
    case operation::all_reduce:
      right = memory.output_is(sum_to(world, 0));
      break;
    case operation::reduce_scatter:
      right = memory.output_is(sum_to(world, own_at));
      break;
    case operation::all_gather:
      right = memory.output_is(gathered(counts, [](int) { return std::size_t{0}; }));
      break;
    case operation::broadcast:
      right = memory.output_is([&](std::size_t i) { return value(t.op, t.root, i); });
      break;
    case operation::reduce:
      right = is_root ? memory.output_is(sum_to(world, 0)) : memory.output_is([&](std::size_t i) {
        return t.in_place ? mine(i) : untouched;
      });
      break;
    case operation::gather:
      right = !is_root || memory.output_is(gathered(counts, [](int) { return std::size_t{0}; }));
      break;
    case operation::scatter:
      right = memory.output_is([&](std::size_t i) { return value(t.op, t.root, own_at + i); });
      break;
    case operation::all_to_all:
      right = memory.output_is(gathered(incoming, [&](int from) {
        std::size_t sum = 0;
        for (int to = 0; to < rank; ++to)
          sum += t.uneven ? uneven_count(t.count, from, to) : t.count;
        return sum;
      }));
      break;
    case operation::scan:
      right = memory.output_is(sum_to(rank + 1, 0));
      break;
    default:  // exscan
      right = rank > 0 ? memory.output_is(sum_to(rank, 0)) : memory.output_is([&](std::size_t i) {
        return t.in_place ? mine(i) : untouched;
      });
  }
  if (!right) throw std::runtime_error("wrong output: " + describe(t));
  if (!t.in_place && t.what != operation::broadcast && !memory.input_is(mine)) {
    throw std::runtime_error("its input was changed: " + describe(t));
  }
}

}  // namespace matrix
