// However gradients travel and wherever they are added up, in float or as bfloat16, among all ranks
// or first within shard groups: the mean over all samples. Exactly so where the gradients are small
// integers, which no order of additions rounds; a model that no wrapper has computes them.
#include <parx/fsdp.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../comm/jobs.hpp"
#include "../messages.hpp"
#include <parx/autograd.hpp>
#include <parx/models/llama.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

using namespace parx;

namespace {

constexpr std::size_t width = 8, rows = 2;
constexpr auto sharded = accumulated_gradients::sharded;
constexpr wire_types half{.gather = dtype::bfloat16, .reduce = dtype::bfloat16};

struct layer : nn::module<layer> {
  nn::linear<> weights{width, width};
  variable<float> forward(const variable<float>& x) { return weights(x); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weights", weights);
  }
};
struct model : nn::module<model> {
  using value_type = float;
  layer first, second;
  layer unused;
  variable<float> forward(const variable<float>& x) { return second(first(x)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("first", first);
    visit("second", second);
    visit("unused", unused);
  }
};

/// -1, 0 or 1; in an eighth of all places not 0.
float small_integer(std::size_t i, std::size_t salt) {
  const std::size_t mixed = (i * 2654435761U + salt * 40503U) >> 7U;
  return mixed % 8 == 0 ? 1.0F : mixed % 8 == 1 ? -1.0F : 0.0F;
}
void give_values(model& m) {
  m.initialize(1);
  std::size_t salt = 0;
  m.for_each_parameter([&](const std::string&, parameter<float>& each) {
    ++salt;
    for (std::size_t i = 0; i < each.value().size(); ++i) {
      each.value().data()[i] = small_integer(i, salt);
    }
  });
}
/// The samples of a rank and micro-batch.
tensor<float> samples(std::size_t rank, std::size_t pass) {
  auto x = tensor<float>::empty({rows, width});
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = small_integer(i + 3, 5 * rank + pass);
  return x;
}
auto loss_of(auto& wrapped, const tensor<float>& x) {
  return nn::mse_loss(wrapped(x), tensor<float>::full(x.shape(), 1));
}

/// By name: the mean gradient of passes `first` to before `last` of all ranks.
std::map<std::string, std::vector<float>> expected_means(std::size_t world, std::size_t first,
                                                         std::size_t last) {
  model alone;
  give_values(alone);
  auto all = tensor<float>::empty({rows * world * (last - first), width});
  float* to = all.data();
  for (std::size_t rank = 0; rank < world; ++rank) {
    for (std::size_t pass = first; pass < last; ++pass) {
      const auto some = samples(rank, pass);
      to = std::copy_n(some.data(), some.size(), to);
    }
  }
  loss_of(alone, all).backward();
  std::map<std::string, std::vector<float>> found;
  alone.for_each_parameter([&](const std::string& name, parameter<float>& each) {
    if (!each.has_grad()) return;
    found[name].assign(each.grad().data(), each.grad().data() + each.grad().size());
  });
  return found;
}

/// "" where the gradients of this rank's parts are these.
template <typename Fsdp>
std::string difference(Fsdp& wrapped, const std::map<std::string, std::vector<float>>& expected) {
  std::string found;
  wrapped.module().for_each_parameter([&](const std::string& name, parameter<float>& part) {
    const auto means = expected.find(name);
    if (part.has_grad() != (means != expected.end())) found = "whether " + name + " has a gradient";
    if (!part.has_grad() || part.shape().size() == 0 || means == expected.end()) return;
    const std::size_t begin = part.spec().run_at(0).global;
    for (std::size_t i = 0; i < part.grad().size(); ++i) {
      const float here = part.grad().data()[i], there = means->second[begin + i];
      if (here == there) continue;
      found = name + "[" + std::to_string(begin + i) + "] " + std::to_string(here) + " for " +
              std::to_string(there);
    }
  });
  return found;
}

struct way {
  fsdp_options options{};
  std::string name;
};
std::vector<way> ways() {
  std::vector<way> all;
  for (const int stage : {1, 2, 3}) {
    for (const auto order : {reduction_order::any, reduction_order::serial}) {
      for (const auto accumulate : {accumulated_gradients::whole, sharded}) {
        for (const bool narrow : {false, true}) {
          if (stage == 1 && accumulate == sharded) continue;
          way& each = all.emplace_back();
          each.options.stage = stage;
          each.options.units = by_type<layer>;
          each.options.order = order;
          each.options.accumulate = accumulate;
          if (narrow) each.options.wire.reduce = dtype::bfloat16;
          each.name = "stage " + std::to_string(stage) +
                      (order == reduction_order::any ? " any order" : " serial") +
                      (accumulate == sharded ? " sharded" : " whole") + (narrow ? " bfloat16" : "");
        }
      }
    }
  }
  return all;
}

void check_means(process_group& group, const way& each) {
  const auto world = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  model m;
  give_values(m);
  fsdp wrapped{m, group, each.options};
  const auto passes = [&](std::size_t first, std::size_t last) {
    for (std::size_t pass = first; pass < last; ++pass) {
      if (pass + 1 < last) {
        const auto guard = wrapped.no_sync();
        loss_of(wrapped, samples(rank, pass)).backward();
      } else {
        loss_of(wrapped, samples(rank, pass)).backward();
      }
    }
    return difference(wrapped, expected_means(world, first, last));
  };
  std::string wrong = passes(0, 1);
  wrapped.zero_grad();
  if (wrong.empty()) wrong = passes(1, 5);
  wrapped.zero_grad();
  {  // discarded
    const auto guard = wrapped.no_sync();
    loss_of(wrapped, samples(rank, 9)).backward();
  }
  wrapped.zero_grad();
  if (wrong.empty()) wrong = passes(5, 7);
  if (!wrong.empty()) throw std::runtime_error(each.name + ": " + wrong);
}

/// What a run of a small llama ends with.
struct outcome {
  std::uint64_t hash = 0;
  std::vector<double> losses, norms;
};
std::vector<outcome> train(jobs::kind network, int world, fsdp_options options) {
  constexpr models::llama_config config{.vocab_size = 61,
                                        .hidden_size = 24,
                                        .intermediate_size = 40,
                                        .num_hidden_layers = 2,
                                        .num_attention_heads = 2,
                                        .num_key_value_heads = 1,
                                        .max_position_embeddings = 16};
  options.units = by_type<models::llama_layer<>>;
  std::vector<outcome> found(static_cast<std::size_t>(world));
  const auto failures = jobs::run_collecting(network, world, [&](process_group& group) {
    models::llama<> m{config};
    fsdp wrapped{m, group, options};
    wrapped.initialize(7);
    optim::adamw opt{wrapped.parameters(), {.lr = 1e-2}};
    outcome& own = found[static_cast<std::size_t>(group.rank())];
    for (int step = 0; step < 6; ++step) {
      for (int pass = 0; pass < 3; ++pass) {
        auto ids = tensor<std::int64_t>::empty({2, 7});
        for (std::size_t i = 0; i < ids.size(); ++i) {
          ids.data()[i] = (static_cast<std::int64_t>(i) * 31 + group.rank() * 17 + step * 7 +
                           pass * 3) % 61;
        }
        const auto loss = nn::cross_entropy(wrapped(ids), ids);
        own.losses.push_back(static_cast<double>(loss.mean()));
        if (pass < 2) {
          const auto guard = wrapped.no_sync();
          loss.backward();
        } else {
          loss.backward();
        }
      }
      own.norms.push_back(parx::optim::clip_grad_norm(wrapped.parameters(), 0.5));
      opt.step();
    }
    own.hash = wrapped.values_hash();
  });
  for (const auto& each : failures) BOOST_TEST(each == "");
  return found;
}
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return most;
}

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_are_the_means_of_all_samples_however_they_travel) {
  for (const way& each : ways()) {
    for (const int world : {1, 2, 4}) {
      for (const auto& failure : jobs::run_collecting(
               jobs::kind::inproc, world,
               [&](process_group& group) { check_means(group, each); })) {
        BOOST_TEST(failure == "", world << " ranks: " << failure);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(replicas_add_their_sums_once_a_step_whatever_was_accumulated_before) {
  for (way each : ways()) {
    each.options.shard_within = "host";
    for (const auto& failure :
         jobs::run_collecting(jobs::kind::hybrid, 4,
                              [&](process_group& group) { check_means(group, each); })) {
      BOOST_TEST(failure == "", failure);
    }
    for (const auto& failure : jobs::run_collecting(
             jobs::kind::tcp, 4, [&](process_group& group) {
               const int first = group.rank() / 2 * 2;  // neighbours; hosts are every other rank
               auto pair = group.subgroup(std::array{first, first + 1});
               way its = each;
               its.options.shard_within = pair;
               check_means(group, its);
             })) {
      BOOST_TEST(failure == "", failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_added_up_in_parts_are_a_ddps_within_rounding) {
  for (const int stage : {2, 3}) {
    const auto whole = train(jobs::kind::inproc, 3, {.stage = stage});
    const auto parts = train(jobs::kind::inproc, 3, {.stage = stage, .accumulate = sharded});
    BOOST_TEST(largest_difference(parts[0].norms, whole[0].norms) > 0);
    BOOST_TEST(largest_difference(parts[0].norms, whole[0].norms) < 1e-6);
    BOOST_TEST(largest_difference(parts[0].losses, whole[0].losses) < 1e-6);
    for (const outcome& each : parts) BOOST_TEST(each.hash == parts[0].hash);
  }
}

BOOST_AUTO_TEST_CASE(under_no_sync_no_rank_keeps_a_whole_gradient_where_parts_are_added_up) {
  for (const auto accumulate : {accumulated_gradients::whole, sharded}) {
    for (const auto& failure : jobs::run_collecting(
             jobs::kind::inproc, 2, [&](process_group& group) {
               model m;
               give_values(m);
               fsdp wrapped{m, group,
                            {.stage = 2, .units = by_type<layer>, .accumulate = accumulate}};
               const auto held = [&] {
                 barrier(group);
                 const std::size_t live = memory_pool::instance().stats().live_bytes;
                 barrier(group);
                 return live;
               };
               loss_of(wrapped, samples(0, 0)).backward();  // what is allocated once is there
               wrapped.zero_grad();
               const std::size_t before = held();
               const auto guard = wrapped.no_sync();
               loss_of(wrapped, samples(0, 0)).backward();
               const std::size_t kept = held() - before;
               const std::size_t gradients = 2 * 2 * (width + 1) * width * sizeof(float);
               if (accumulate == sharded ? kept != 0 : kept < gradients)
                 throw std::runtime_error("keeps " + std::to_string(kept) + " of " +
                                          std::to_string(gradients) + " bytes");
               wrapped.zero_grad();
             })) {
      BOOST_TEST(failure == "", failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(as_bfloat16_training_stays_close_to_float_and_equal_on_all_ranks) {
  const auto exact = train(jobs::kind::inproc, 3, {.stage = 2});
  std::vector<outcome> first;
  for (const auto network : {jobs::kind::inproc, jobs::kind::tcp}) {
    for (const int stage : {1, 2, 3}) {
      const auto found = train(
          network, 3, {.stage = stage, .values = value_storage::gathered, .wire = half});
      if (first.empty()) first = found;
      for (const outcome& each : found) BOOST_TEST(each.hash == first[0].hash);
      BOOST_TEST(found[0].norms == first[0].norms);
      BOOST_TEST(found[0].hash != exact[0].hash);
      // 2^-9 is what rounding to 8 bits does to a value.
      BOOST_TEST(largest_difference(found[0].losses, exact[0].losses) < 0.03);
    }
  }
  BOOST_TEST(first[0].losses.back() < exact[0].losses.front() * 0.8);
}

BOOST_AUTO_TEST_CASE(a_unit_is_gathered_as_bfloat16_and_the_parts_stay_exact) {
  for (const int stage : {1, 2, 3}) {
    for (const auto& failure : jobs::run_collecting(
             jobs::kind::inproc, 2, [&](process_group& group) {
               model m;
               m.initialize(5);
               const std::vector<float> exact(m.first.weights.weight().value().data(),
                                              m.first.weights.weight().value().data() + 64);
               fsdp wrapped{m, group,
                            {.stage = stage,
                             .units = by_type<layer>,
                             .values = value_storage::gathered,
                             .wire = {.gather = dtype::bfloat16}}};
               {
                 const auto whole = wrapped.gathered(m.first.weights.weight());
                 const auto values = m.first.weights.weight().value().span();
                 for (std::size_t i = 0; i < exact.size(); ++i) {
                   if (values[i] != static_cast<float>(bfloat16(exact[i])))
                     throw std::runtime_error("not rounded to bfloat16");
                 }
               }
               wrapped.module().for_each_parameter(
                   [&](const std::string& name, parameter<float>& part) {
                     if (name != "first.weights.weight" || part.shape().size() == 0) return;
                     const std::size_t begin = part.spec().run_at(0).global;
                     for (std::size_t i = 0; i < part.value().size(); ++i) {
                       if (part.value().data()[i] != exact[begin + i])
                         throw std::runtime_error("a part is rounded");
                     }
                   });
             })) {
      BOOST_TEST(failure == "", failure);
    }
  }
}

BOOST_AUTO_TEST_CASE(options_that_cannot_be_or_differ_are_refused) {
  const auto refused = [](auto options_of, const std::string& sentence) {
    for (const auto& failure :
         jobs::run_collecting(jobs::kind::inproc, 2, [&](process_group& group) {
           model m;
           fsdp wrapped{m, group, options_of(group.rank())};
         })) {
      BOOST_TEST(parx_test::mentions(failure, sentence), failure);
    }
  };
  refused([](int) { return fsdp_options{.stage = 1, .accumulate = sharded}; },
          "stage 1 keeps all gradients whole");
  refused([](int) { return fsdp_options{.wire = {.reduce = dtype::float16}}; },
          ".wire takes dtype::bfloat16, not float16");
  refused([](int) { return fsdp_options{.values = value_storage::shared, .wire = half}; },
          "nothing is gathered. Leave one of them out");
  refused(
      [](int rank) {
        return fsdp_options{.wire = {.reduce = rank == 0 ? std::optional<dtype>()
                                                         : std::optional(dtype::bfloat16)}};
      },
      "reduced as bfloat16");
}
