// explain: what a layout means for each rank, as text: which stage, replica and piece of the layers
// it has, whose samples it reads, and what its parameters take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>
#include <parx/parallel/any_parallel.hpp>

namespace parx::inline PARX_ABI {

/// Collective. A line on the layout, and a table with a line for each rank, the same on all.
///
///   layout "pp=2,tp=2" on 4 ranks: 2 stages x 1 replica x 2 pieces of each layer, ...
///   rank  stage  replica  piece  reads samples  parameters  buckets sent
template <typename T>
[[nodiscard]] std::string explain(any_parallel<T>& model,
                                  call_site site = call_site::current()) {
  constexpr std::size_t columns = 6;
  process_group& job = model.job_group();
  std::uint64_t elements = 0, sent = 0;
  model.module().for_each_parameter(
      [&](const std::string&, const parameter<T>& part) { elements += part.size(); });
  for (std::size_t i = 0; i < model.bucket_count(); ++i) sent += model.bucket_bytes(i);
  const auto place = model.place();
  const std::uint64_t mine[columns] = {static_cast<std::uint64_t>(place.stage),
                                       static_cast<std::uint64_t>(place.replica),
                                       static_cast<std::uint64_t>(place.piece),
                                       model.needs_input() ? 1U : 0U,
                                       elements,
                                       sent};
  std::vector<std::uint64_t> all(columns * static_cast<std::size_t>(job.size()));
  all_gather(job, mine, all, {}, site);
  const layout& how = model.layout();
  const auto many = [](int count, const char* what) {
    return formatted("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string text =
      formatted("layout \"{}\" on {}: {} x {} x {} of each layer; {} a step\n", to_string(how),
                many(job.size(), "rank"), many(how.pp, "stage"), many(how.dp, "replica"),
                many(how.tp, "piece"),
                how.parts() == 1 ? "1 micro-batch" : formatted("{} micro-batches", how.parts()));
  text +=
      "the ranks of a replica need the same samples: data::loader{set, model, options} deals "
      "them\n";
  text += formatted("{:>6}{:>8}{:>9}{:>7}{:>9}{:>13}{:>10}{:>15}\n", "rank", "stage", "replica",
                    "piece", "samples", "parameters", "values", "gradients sent");
  const auto mib = [](double bytes) { return formatted("{:.2f} MiB", bytes / (1 << 20)); };
  for (int rank = 0; rank < job.size(); ++rank) {
    const std::uint64_t* const row = all.data() + columns * static_cast<std::size_t>(rank);
    text +=
        formatted("{:>6}{:>8}{:>9}{:>7}{:>9}{:>13}{:>10}{:>15}\n", rank, row[0], row[1], row[2],
                  row[3] != 0 ? "read" : "-", row[4], mib(static_cast<double>(row[4] * sizeof(T))),
                  mib(static_cast<double>(row[5])));
  }
  return text;
}

}  // namespace parx
