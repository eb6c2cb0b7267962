// --parallel: how a training program deals its model out over the ranks, and what it does with a
// model that no rank has as a whole.
//
//   --parallel ddp | zero1 | zero2 | fsdp | hybrid
//
// The value is a list of words and settings, "word,name=number", of which one word is known today.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "options.hpp"
#include <parx/checkpoint.hpp>
#include <parx/comm.hpp>
#include <parx/ddp.hpp>
#include <parx/ddp/training_state.hpp>
#include <parx/fsdp.hpp>
#include <parx/fsdp/training_state.hpp>
#include <parx/plan.hpp>

namespace examples {

struct parallel_settings {
  std::string way = "ddp";
  int stage = 0;  ///< of ZeRO; 0: ddp
  bool within_hosts = false;  ///< the ranks of each host cut the model among themselves
};

namespace detail {

/// "a,b=3" as {"a", ""} and {"b", "3"}.
inline std::vector<std::pair<std::string, std::string>> words_of(std::string_view list) {
  std::vector<std::pair<std::string, std::string>> words;
  while (true) {
    const std::string_view word = list.substr(0, list.find(','));
    const std::size_t equals = std::min(word.find('='), word.size());
    words.emplace_back(word.substr(0, equals),
                       equals < word.size() ? word.substr(equals + 1) : std::string_view{});
    if (word.size() == list.size()) return words;
    list.remove_prefix(word.size() + 1);
  }
}

}  // namespace detail

inline void add_parallel_flag(cxxopts::Options& options) {
  options.add_options("Ranks")(
      "parallel",
      "what is cut over the ranks: nothing (ddp), the optimizer's state (zero1), gradients as well "
      "(zero2), values as well (fsdp), the same inside each host (hybrid)",
      text("ddp"));
}

[[nodiscard]] inline parallel_settings parallel_flag(const cxxopts::ParseResult& given) {
  const std::string said = given["parallel"].as<std::string>();
  const auto words = detail::words_of(said);
  constexpr std::array<std::string_view, 5> ways{"ddp", "zero1", "zero2", "fsdp", "hybrid"};
  const auto way = std::find(ways.begin(), ways.end(), words.front().first);
  parx::require(words.size() == 1 && words.front().second.empty() && way != ways.end(),
                "--parallel \"{}\": give ddp, zero1, zero2, fsdp or hybrid", said);
  return {said, std::min(static_cast<int>(way - ways.begin()), 3), *way == "hybrid"};
}

/// Collective. Calls use(wrapped) with the model, which has no values yet, as --parallel says.
/// `units` are what is gathered at a time. The first values come from `seed`. Throws
/// parx::usage_error where that and AdamW's state take more memory than there is.
template <typename Model, typename Use>
void with_parallel(const parallel_settings& s, Model& model, parx::process_group& group,
                   std::uint64_t seed, const parx::unit_choice& units, Use&& use) {
  constexpr std::size_t moments = 8;
  const auto machine = parx::cluster_of(group);
  const bool shared = s.stage == 3 && (s.within_hosts || group.shares_memory());
  parx::require_fits(parx::shapes_of(model), machine,
                     {.name = s.way,
                      .stage = s.stage,
                      .replicas = s.within_hosts ? machine.hosts : 1,
                      .host_pages = shared},
                     {}, moments);
  if (s.stage == 0) {
    model.initialize(seed);
    parx::ddp ddp{model, group};
    return use(ddp);
  }
  parx::fsdp fsdp{
      model, group,
      {.stage = s.stage,
       .units = units,
       .shard_within = s.within_hosts ? parx::shard_scope("host") : parx::shard_scope()}};
  fsdp.initialize(seed);
  use(fsdp);
}

template <typename Wrapped>
inline constexpr bool is_cut = false;
template <typename Model>
inline constexpr bool is_cut<parx::fsdp<Model>> = true;

/// Collective. f() with methods of the model: on rank 0 alone where every rank has all of it, else
/// on all of them together.
template <typename Wrapped, typename F>
void on_model(Wrapped& wrapped, F&& f) {
  if constexpr (is_cut<Wrapped>) {
    wrapped.call(std::forward<F>(f));
  } else if (wrapped.group().rank() == 0) {
    std::forward<F>(f)();
  }
}

/// Collective. Gives `copy`, a model of the same configuration, all values on every rank.
template <typename Wrapped, typename Model>
void copy_values(Wrapped& wrapped, Model& copy) {
  std::vector<parx::parameter<float>> parts = wrapped.parameters();
  std::size_t next = 0;
  copy.materialize();
  copy.for_each_parameter([&](const std::string&, parx::parameter<float>& whole) {
    const auto part = parts[next++].value().span();
    if constexpr (is_cut<Wrapped>) {
      // The parts of the ranks follow each other in the whole.
      parx::process_group& group = wrapped.shard_group();
      const std::size_t own = part.size();
      std::vector<std::size_t> sizes(static_cast<std::size_t>(group.size()));
      parx::all_gather(group, std::span(&own, 1), sizes);
      parx::all_gather_v(group, part, whole.value().span(), sizes);
    } else {
      std::copy(part.begin(), part.end(), whole.value().begin());
    }
  });
}

/// Collective. The model as a folder in Hugging Face's layout.
template <typename Wrapped>
void save_model(Wrapped& wrapped, const parx::json::value& config, const std::string& folder,
                const parx::text_files& files) {
  const bool is_first = wrapped.group().rank() == 0;
  if constexpr (is_cut<Wrapped>) {
    if (is_first) parx::save_pretrained_config(config, folder, files);
    parx::barrier(wrapped.group());
    save_gathered(wrapped, folder + "/model.safetensors");
  } else if (is_first) {
    parx::save_pretrained(wrapped.module(), config, folder, files);
  }
  parx::print0(wrapped.group(), "model: {}\n", folder);
}

}  // namespace examples
