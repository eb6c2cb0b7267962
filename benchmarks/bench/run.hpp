// run: the whole measurement over one backend: every operation, size and placement that was asked
// for.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <bench/backend.hpp>
#include <bench/measure.hpp>
#include <bench/oracle.hpp>
#include <bench/report.hpp>
#include <parx/core/error.hpp>

namespace bench {

namespace detail {

struct file_closer {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using file = std::unique_ptr<std::FILE, file_closer>;

/// Page-aligned memory, as NCCL's and MPI's benchmarks use.
class pages {
 public:
  explicit pages(std::size_t bytes)
      : data_(::operator new(std::max<std::size_t>(bytes, 1), alignment)) {
    std::memset(data_, 0, bytes);  // no page fault under the clock
  }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;
  ~pages() { ::operator delete(data_, alignment); }
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  static constexpr std::align_val_t alignment{4096};
  void* data_;
};

[[nodiscard]] inline std::string describe_rank() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("Pid {:>6} on {:>10} core {:>2}", ::getpid(), host.data(), ::sched_getcpu());
}

[[nodiscard]] inline std::vector<std::string> describe_all(backend& ranks) {
  static constexpr std::size_t width = 320;
  std::string mine = describe_rank();
  mine.resize(width);
  std::string all(width * static_cast<std::size_t>(ranks.size()), '\0');
  ranks.gather(mine, all);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < all.size(); at += width) lines.emplace_back(all.c_str() + at);
  return lines;
}

/// The call of one shape over two buffers that hold its whole vector each.
[[nodiscard]] inline call place_call(operation op, placement where, const shape& elements,
                                     const options& given, int rank, std::byte* first,
                                     std::byte* second) {
  const std::size_t size = parx::size_of(given.type);
  std::byte* input = first;
  std::byte* output = where == placement::in_place ? first : second;
  const std::size_t mine = static_cast<std::size_t>(rank) * elements.count * size;
  if (where == placement::in_place && op == operation::all_gather) input += mine;
  if (where == placement::in_place && op == operation::reduce_scatter) output += mine;
  return {op,
          where,
          {input, elements.input, given.type},
          {output, elements.output, given.type},
          given.reduction,
          given.root};
}

}  // namespace detail

/// Measures one placement of one size. Collective.
[[nodiscard]] inline result measure_call(backend& ranks, const options& given, const call& next) {
  result column;
  if (given.check) {
    const oracle truth(given.type, given.reduction, ranks.size());
    if (next.op != operation::barrier) truth.prepare(next, ranks.rank());
    ranks.run(next);
    auto wrong = static_cast<double>(truth.count_wrong(next, ranks.rank()));
    ranks.sum_over_ranks({&wrong, 1});
    column.wrong = static_cast<std::size_t>(wrong);
  }
  // Repeated in place, a sum would overflow and a product underflow into slow numbers; zeros stay.
  if (next.op != operation::barrier) {
    std::memset(next.output.data, 0, next.output.bytes());
    std::memset(const_cast<void*>(next.input.data), 0, next.input.bytes());
  }
  column.time = measure(ranks, given, [&] { ranks.run(next); });
  return column;
}

/// Runs everything; rank 0 prints. Collective. Returns the number of wrong elements, the same on
/// all ranks. Throws parx::usage_error where the world and the options do not go together, and
/// whatever the backend throws.
[[nodiscard]] inline std::size_t run_all(backend& ranks, const options& given,
                                         const std::string& program) {
  parx::require(given.root >= 0 && given.root < ranks.size(),
                "-r {}: there is no such rank in a world of {}", given.root, ranks.size());
  ranks.require_support(given.type, given.reduction);
  const run_info info{program, ranks.name(), ranks.network(), detail::describe_all(ranks), given};
  std::vector<std::unique_ptr<report>> reports;
  detail::file json;
  if (ranks.rank() == 0) {
    reports.push_back(make_report(given.format, stdout, info));
    if (!given.json_file.empty()) {
      json.reset(std::fopen(given.json_file.c_str(), "we"));
      if (json == nullptr) {
        parx::throw_error(parx::errc::io, "--json {}: the file cannot be written: {}",
                          given.json_file, parx::errno_text(errno));
      }
      reports.push_back(make_report(table_format::json, json.get(), info));
    }
  }

  const std::size_t element_size = parx::size_of(given.type);
  const auto sizes = sizes_of(given);
  const auto most = sizes.back() + static_cast<std::size_t>(ranks.size()) * element_size;
  const detail::pages first(most);
  const detail::pages second(most);
  std::size_t wrong = 0;
  for (const operation op : given.operations) {
    for (const auto& each : reports) each->begin(op);
    std::size_t last = 0;
    for (const std::size_t size : sizes) {
      const shape elements = shape_of(op, size / element_size, ranks.size());
      // Small sizes that are rounded up to the same shape, and those of a barrier, are measured
      // once.
      if (size != sizes.front() && elements.whole() == last) continue;
      last = elements.whole();
      row next{op, elements.whole() * element_size, elements.count, std::nullopt, std::nullopt};
      for (const placement where : {placement::out_of_place, placement::in_place}) {
        if (!ranks.has(op, where)) continue;
        auto& column = where == placement::in_place ? next.in_place : next.out_of_place;
        column = measure_call(ranks, given,
                              detail::place_call(op, where, elements, given, ranks.rank(),
                                                 first.data(), second.data()));
        wrong += column->wrong.value_or(0);
      }
      for (const auto& each : reports) each->add(next);
    }
    for (const auto& each : reports) each->end(op);
  }
  return wrong;
}

}  // namespace bench
