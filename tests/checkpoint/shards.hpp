// A model whose parameters lie on several ranks in parts, cut in one way or another.
//
// Every element has a value that follows from its tensor's name and its index in the whole, so each
// rank can tell what has to lie on it without knowing how it got there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <parx/checkpoint/save.hpp>
#include <parx/comm/threads.hpp>
#include <parx/optim.hpp>

#include <ddp/ranks.hpp>

namespace shards {

inline float element(const std::string& name, std::size_t index, std::uint64_t step = 0) {
  std::size_t sum = 31 * step;
  for (const char c : name) sum = 7 * sum + static_cast<unsigned char>(c);
  return static_cast<float>((sum + index) % 65'521);
}

struct named_shape {
  std::string name;
  parx::shape whole;
};
inline const std::vector<named_shape> tensors{{"embed.weight", {37, 24}},
                                              {"fc.weight", {24, 18, 5}},
                                              {"fc.bias", {3}},
                                              {"scale", {}},
                                              {"nothing", {0, 4}}};

enum class cut { flat, rows, columns };

/// What of a tensor lies on a rank, and which elements these are.
struct share {
  parx::shard_spec spec;
  std::vector<std::size_t> indices;
};

inline share share_of(const parx::shape& whole, cut how, int rank, int world) {
  const std::size_t n = static_cast<std::size_t>(world), r = static_cast<std::size_t>(rank);
  share mine{parx::shard_spec::whole(whole), {}};
  const std::size_t size = whole.size(), last = whole.rank() == 0 ? 1 : whole[whole.rank() - 1];
  // The borders are uneven on purpose.
  const auto border = [n](std::size_t extent, std::size_t i) {
    return i == n ? extent : extent * i * i / (n * n);
  };
  if (how == cut::columns && whole.rank() > 1) {
    const std::size_t begin = border(last, r), end = border(last, r + 1);
    mine.spec = mine.spec.slice(-1, begin, end);
    for (std::size_t i = 0; i < size; ++i)
      if (i % last >= begin && i % last < end) mine.indices.push_back(i);
    return mine;
  }
  const bool by_rows = how == cut::rows && whole.rank() > 0;
  const std::size_t below = by_rows && whole[0] > 0 ? size / whole[0] : 1;
  const std::size_t extent = by_rows ? whole[0] : size;
  const std::size_t begin = border(extent, r), end = border(extent, r + 1);
  mine.spec = by_rows ? mine.spec.slice(0, begin, end) : mine.spec.flat(begin, end);
  for (std::size_t i = begin * below; i < end * below; ++i) mine.indices.push_back(i);
  return mine;
}

/// The parameters of a rank, their AdamW and their average.
struct model {
  model(cut how, int rank, int world, const std::vector<named_shape>& all = tensors) {
    for (const auto& [name, whole] : all) {
      shares.push_back(share_of(whole, how, rank, world));
      list.emplace_back(name, whole);
      list.back().keep_part(shares.back().spec);
      (void)list.back().allocate();
    }
    adamw = std::make_unique<parx::optim::adamw<float>>(list);
    average = std::make_unique<parx::optim::ema<float>>(list);
  }
  // Calls use(name, elements, the indices that they have in the whole) and use(name, number).
  template <typename Use>
  void for_each(Use use) {
    const auto visit = [&](auto& state) {
      state.for_each_state([&](const std::string& name, auto& value) {
        if constexpr (requires { value.data(); }) {
          std::size_t i = 0;
          while (!name.starts_with(list[i].name() + ".")) ++i;
          use(name, value.span(), shares[i].indices);
        } else {
          use(name, value);
        }
      });
    };
    for (std::size_t i = 0; i < list.size(); ++i)
      use(list[i].name(), list[i].value().span(), shares[i].indices);
    visit(*adamw);
    visit(*average);
  }
  void fill(std::uint64_t step = 0) {
    for_each([&](const std::string& name, auto&&... value) { put(name, step, value...); });
  }
  static void put(const std::string& name, std::uint64_t step, std::span<float> values,
                  const std::vector<std::size_t>& indices) {
    for (std::size_t i = 0; i < indices.size(); ++i) values[i] = element(name, indices[i], step);
  }
  static void put(const std::string& name, std::uint64_t step, std::uint64_t& number) {
    number = name.size() + step;
  }
  // What is not as it should be.
  std::string wrong(std::uint64_t step = 0) {
    std::string text;
    for_each([&](const std::string& name, auto&&... value) {
      if (!right(name, step, value...)) text += name + " is wrong; ";
    });
    return text;
  }
  static bool right(const std::string& name, std::uint64_t step, std::span<float> values,
                    const std::vector<std::size_t>& indices) {
    bool all = values.size() == indices.size();
    for (std::size_t i = 0; all && i < indices.size(); ++i)
      all = values[i] == element(name, indices[i], step);
    return all;
  }
  static bool right(const std::string& name, std::uint64_t step, std::uint64_t& number) {
    return number == name.size() + step;
  }
  void add_to(parx::checkpoint_parts& parts, const parx::sharding& how) {
    parts.add_shard("model", how, list).add_shard("optimizer", how, *adamw);
    parts.add_shard("average", how, *average);
  }
  void load(const parx::saved_checkpoint& saved) {
    saved.load("model", list);
    saved.load("optimizer", *adamw);
    saved.load("average", *average);
  }

  std::vector<share> shares;
  std::vector<parx::parameter<float>> list;
  std::unique_ptr<parx::optim::adamw<float>> adamw;
  std::unique_ptr<parx::optim::ema<float>> average;
};

/// Saves what `world` ranks have in parts; the message of each rank's failure.
inline std::vector<std::string> save(const std::string& folder, int world, cut how,
                                     std::uint64_t step = 0) {
  return on_ranks(world, [&](parx::process_group& group) -> std::string {
    model mine(how, group.rank(), world);
    mine.fill(step);
    parx::checkpoint_parts parts;
    mine.add_to(parts, parx::sharded_over(group));
    try {
      parx::save(group, parts, folder, step);
    } catch (const parx::error& failure) {
      return failure.what();
    }
    return {};
  });
}

}  // namespace shards
