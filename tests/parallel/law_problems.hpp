// Random training problems, and the layouts in which the law wants the same bits of them: small
// models with tied, frozen and large parts, batches with ragged ends. Pure functions of a seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/pipeline/catalog.hpp>
#include <parx/plan/layout.hpp>

namespace law {

class dice {
 public:
  explicit dice(std::uint64_t seed) : bits_(seed) {}
  /// One of first, ..., last.
  [[nodiscard]] int between(int first, int last) {
    return first + static_cast<int>(bits_() % static_cast<std::uint64_t>(last - first + 1));
  }
  template <typename T>
  [[nodiscard]] T one_of(std::initializer_list<T> all) {
    return all.begin()[between(0, static_cast<int>(all.size()) - 1)];
  }
  /// Once in `times`.
  [[nodiscard]] bool once_in(int times) { return between(1, times) == 1; }

 private:
  std::mt19937_64 bits_;
};

enum class family { llama, gpt, bert };

struct problem {
  family of = family::llama;
  int layers = 2;
  bool is_tied = false;  ///< the first and the last layer share a matrix
  bool has_dropout = false;
  bool is_by_rows = false;  ///< its table is large enough to be cut by rows
  bool recomputes = false;  ///< activations in backward
  unsigned frozen = 0;      ///< bit b: the parts that frozen_bit() gives b
  unsigned frozen_later = 0;
  int freezes_at = 0;  ///< the call before which the latter takes the former's place; 0: none
  bool by_adamw = true;
  int dp = 1, tp = 1;
  bool sp = false;
  int microbatches = 1;
  int replicas = 0;  ///< then dp is a layout's own
  /// By call of forward_backward and data rank, the rows; of each virtual replica where there are.
  std::vector<std::vector<int>> rows{};
  /// By call: whether its gradients are only added up, for the next one.
  std::vector<bool> accumulates{};
  std::vector<int> evaluated{};  ///< rows, by data rank
  bool generates = false;

  [[nodiscard]] int blocks() const { return layers + 2; }
};

/// For problem::frozen: not all layers.
inline unsigned some_frozen(dice& roll) {
  constexpr unsigned layers = 0b111000;
  const auto parts = static_cast<unsigned>(roll.between(1, 62));
  return (parts & layers) == layers ? parts & ~0b10000U : parts;
}

inline problem random_problem(dice& roll) {
  problem made;
  made.of = roll.one_of({family::llama, family::gpt, family::bert});
  made.layers = roll.between(2, 4);
  made.is_tied = made.of == family::gpt || (made.of == family::llama && roll.once_in(4));
  made.has_dropout = made.of != family::llama && !roll.once_in(3);
  made.is_by_rows = roll.once_in(3);
  made.recomputes = roll.once_in(6);
  if (roll.once_in(3)) made.frozen = some_frozen(roll);
  made.by_adamw = !roll.once_in(3);
  made.dp = roll.one_of({1, 1, 2, 2, 2, 3, 4});
  made.tp = made.dp <= 2 && roll.once_in(4) ? 2 : 1;
  made.sp = made.tp > 1 && roll.once_in(2);
  made.microbatches = roll.between(1, 5);
  if (!made.is_tied && roll.once_in(4)) made.replicas = roll.between(2, 6);
  const auto some_rows = [&] {
    const int kind = roll.between(0, 5);
    return kind == 0 ? 0 : kind == 1 ? 1 : roll.between(1, 6);
  };
  const int calls = roll.between(2, 4);
  for (int call = 0; call < calls; ++call) {
    std::vector<int>& rows = made.rows.emplace_back();
    if (made.replicas > 0) {
      rows.push_back(roll.between(1, 2));
    } else {
      for (int rank = 0; rank < made.dp; ++rank) rows.push_back(some_rows());
    }
    made.accumulates.push_back(made.replicas == 0 && call + 1 < calls && roll.once_in(4));
  }
  if (roll.once_in(5)) {
    made.frozen_later = roll.once_in(2) ? 0 : some_frozen(roll);
    made.freezes_at = roll.between(1, calls - 1);
    if (made.accumulates[static_cast<std::size_t>(made.freezes_at) - 1]) made.freezes_at = 0;
  }
  for (int rank = 0; rank < made.dp; ++rank) made.evaluated.push_back(some_rows());
  made.generates = made.of != family::bert && roll.once_in(3);
  return made;
}

struct way {
  parx::layout how;
  int ranks = 1;
  jobs::kind network = jobs::kind::inproc;
};

/// Whether the library has such a table, and the law covers it: looped BFS runs backwards in
/// another order.
inline bool is_covered(const problem& of, const parx::layout& how) {
  if (how.pp == 1) return true;
  if (how.pp * how.chunks > of.blocks() || how.schedule == "looped_bfs") return false;
  const bool in_halves = how.schedule == "zb1p" || how.schedule == "zbv";
  if (in_halves && how.zero > 1) return false;
  if (how.schedule == "zbv" && (2 * how.pp > of.blocks() || of.is_tied)) return false;
  try {
    (void)parx::schedule_named(how.schedule)(
        {.ranks = how.pp, .microbatches = how.parts(), .chunks = how.chunks});
    parx::validate(how);
  } catch (const parx::usage_error&) {
    return false;
  }
  return true;
}

/// A layout in which the problem has the bits of all others. `staged` and `unstaged` say which of
/// the two may be: a table that is tied over stages has bits of its own.
inline way random_way(dice& roll, const problem& of, bool unstaged, bool staged) {
  for (;;) {
    parx::layout how{.dp = of.dp, .tp = of.tp, .sp = of.sp, .zero = roll.between(0, 3)};
    if (of.replicas > 0) {
      how.replicas = of.replicas;
      how.dp = roll.between(1, std::min(of.replicas, 4));
    } else {
      how.microbatches = of.microbatches;
    }
    if (staged && (!unstaged || !roll.once_in(3))) {
      how.pp = roll.between(2, 4);
      how.chunks = roll.between(1, 2);
      how.schedule = parx::pipeline_schedules[static_cast<std::size_t>(roll.between(0, 6))].name;
    }
    if (how.zero == 3 && of.replicas == 0) how.hybrid = roll.once_in(3);
    if (how.zero == 3) how.gathered = roll.once_in(2);
    const int ranks = how.pp * how.dp * how.tp;
    if (ranks > 8 || !is_covered(of, how)) continue;
    // Ranks of two hosts in turns: shards over two of four, beside two copies of them.
    const bool has_hosts = how.hybrid && ranks == 4 && how.dp == 4;
    return {how, ranks, has_hosts ? jobs::kind::hybrid : jobs::kind::inproc};
  }
}

inline std::string to_string(const problem& of) {
  using parx::formatted;
  std::string text =
      formatted("{} of {} layers",
                std::array{"llama", "gpt", "bert"}[static_cast<std::size_t>(of.of)], of.layers);
  const auto add = [&](bool is_said, const std::string& word) {
    if (is_said) text += ", " + word;
  };
  add(of.is_tied, "tied");
  add(of.has_dropout, "dropout");
  add(of.is_by_rows, "a table by rows");
  add(of.recomputes, "checkpointed");
  add(of.frozen != 0, formatted("frozen {:b}", of.frozen));
  add(of.freezes_at > 0, formatted("{:b} from {}", of.frozen_later, of.freezes_at));
  add(true, of.by_adamw ? "adamw" : "sgd");
  for (std::size_t call = 0; call < of.rows.size(); ++call) {
    add(true, formatted("{}rows {}", of.accumulates[call] ? "no_sync " : "",
                        parx::joined_text(of.rows[call], " ")));
  }
  add(true, "evaluated " + parx::joined_text(of.evaluated, " "));
  return text;
}

inline std::string to_string(const way& of) {
  return parx::formatted("\"{}\" on {} ranks{}", to_string(of.how), of.ranks,
                         of.network == jobs::kind::hybrid ? " of two hosts" : "");
}

/// Which bit of problem::frozen a parameter has: embeddings, even layers, odd layers, norms and
/// biases of layers, and what follows the layers.
inline unsigned frozen_bit(const std::string& path) {
  const auto has = [&](const char* part) { return path.find(part) != std::string::npos; };
  if (has("wte") || has("embed_tokens") || has("word_embeddings")) return 0;
  const auto digit =
      std::find_if(path.begin(), path.end(), [](char each) { return each >= '0' && each <= '9'; });
  if (digit == path.end()) return has("wpe") || has("embeddings") ? 1 : 2;
  if (path.ends_with("bias") || has("norm") || has("ln_")) return 3;
  return (*digit - '0') % 2 == 0 ? 4 : 5;
}

}  // namespace law
