// A model that is cut in two stages by hand trains to the same bits as the whole one, also where
// its backward runs in two halves.
#include <parx/autograd/border.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ddp/ranks.hpp>

#include <parx/autograd.hpp>
#include <parx/comm.hpp>
#include <parx/ddp.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using parx::tensor;
using parx::variable;

constexpr std::size_t features = 6, hidden = 8, classes = 5, steps = 4;
// Micro-batches have different numbers of rows, and backward takes them in an order of its own.
constexpr std::array<std::size_t, 4> rows{3, 1, 5, 2};
constexpr std::array<std::size_t, 4> backward_order{2, 0, 3, 1};

struct front : parx::nn::module<front> {
  parx::nn::linear<> up{features, hidden};
  parx::nn::layer_norm<> norm{hidden};

  variable<float> forward(const variable<float>& x) { return norm(parx::gelu(up(x))); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("up", up);
    visit("norm", norm);
  }
};

struct back : parx::nn::module<back> {
  parx::nn::linear<> mix{hidden, hidden};
  parx::nn::linear<> out{hidden, classes};

  variable<float> forward(const variable<float>& x) { return out(x + parx::relu(mix(x))); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("mix", mix);
    visit("out", out);
  }
};

struct whole : parx::nn::module<whole> {
  struct front front;
  struct back back;

  variable<float> forward(const variable<float>& x) { return back(front(x)); }
  template <typename Visit>
  void members(Visit& visit) {
    visit("front", front);
    visit("back", back);
  }
};

struct microbatch {
  tensor<float> x;
  tensor<std::int64_t> y;
  std::vector<float> weights;  // 0 is padding
};

microbatch sample(std::size_t step, std::size_t index, int rank) {
  const std::size_t n = rows[index];
  const parx::random_stream stream(
      7, "s" + std::to_string(step) + "m" + std::to_string(index) + "r" + std::to_string(rank));
  microbatch made{tensor<float>::empty({n, features}), tensor<std::int64_t>::empty({n}),
                  std::vector<float>(n)};
  stream.normal(made.x, 0.0F, 1.0F);
  for (std::size_t row = 0; row < n; ++row) {
    made.y.data()[row] = static_cast<std::int64_t>((3 * row + index + step) % classes);
    made.weights[row] = static_cast<float>((row + static_cast<std::size_t>(rank)) % 3) * 0.7F;
  }
  return made;
}

parx::weighted_loss<float> loss_of(const variable<float>& logits, const microbatch& batch) {
  return parx::nn::cross_entropy(logits, batch.y, {.row_weights = batch.weights});
}

/// A module's values out of those of the whole model.
template <typename Part>
void start_as_in(whole& source, Part& part, const std::string& prefix) {
  part.initialize(0);
  source.for_each_parameter([&](const std::string& path, auto& from) {
    part.for_each_parameter([&](const std::string& name, auto& to) {
      if (path == prefix + name) to.value().copy_from(from.value());
    });
  });
}

template <typename Model>
std::vector<float> values_of(Model& model) {
  std::vector<float> all;
  model.for_each_parameter([&](const std::string&, auto& p) {
    all.insert(all.end(), p.value().begin(), p.value().end());
  });
  return all;
}

/// Gradients add up as sums; what divides them is the wrapper, or without one this.
template <typename Model>
void divide_gradients(Model& model, double count) {
  model.for_each_parameter([&](const std::string&, auto& p) {
    for (float& each : p.grad().span()) each = static_cast<float>(each / count);
  });
}

enum class wrapper { none, ddp };
enum class rule { sgd, adamw };
/// In halves the gradients of the weights come one micro-batch after those of the inputs.
enum class how { whole, halves };

template <typename Model, typename Body>
void with_optimizer(rule which, Model& model, Body body) {
  if (which == rule::sgd) {
    parx::optim::sgd optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
    body(optimizer);
  } else {
    parx::optim::adamw optimizer{model.parameters(), {.lr = 0.03}};
    body(optimizer);
  }
}

/// The first half of a backward, or a whole one and nothing left.
struct started {
  std::optional<parx::backward_rest> rest;
  double count = 0;
};
started start(how way, const variable<float>& output, const tensor<float>& upstream,
              const parx::backward_options& options) {
  if (way == how::halves) return {output.backward_inputs_from(upstream, options), options.count};
  output.backward_from(upstream, options);
  return {std::nullopt, options.count};
}
started start(how way, const parx::weighted_loss<float>& loss, parx::backward_options options) {
  options.count = loss.count;
  return start(way, loss.sum, tensor<float>::scalar(1), options);
}

/// body(), under no_sync() unless it `synchronises`.
template <typename Model, typename Body>
auto under(parx::ddp<Model>* ddp, bool synchronises, Body body) {
  if (ddp == nullptr || synchronises) return body();
  const auto guard = ddp->no_sync();
  return body();
}

/// Runs the micro-batches' backwards in their order, all but the last under no_sync(), and one
/// step. backward(index, options) is what start() returns.
template <typename Model, typename Optimizer, typename Backward>
void accumulate_and_step(how way, Model& model, Optimizer& optimizer, parx::ddp<Model>* ddp,
                         Backward backward) {
  double count = 0;
  std::optional<parx::backward_rest> behind;
  for (const std::size_t index : backward_order) {
    const parx::backward_options options{
        .of = ddp == nullptr ? parx::gradient_of::sum : parx::gradient_of::mean};
    // First halves are nothing to ddp: it synchronises with the last of the second.
    const bool synchronises = way == how::halves || index == backward_order.back();
    started made = under(ddp, synchronises, [&] { return backward(index, options); });
    count += made.count;
    if (behind) under(ddp, false, [&] { behind->weights(); });
    behind = std::move(made.rest);
  }
  if (behind) behind->weights();
  if (ddp == nullptr) divide_gradients(model, count);
  optimizer.step();
}

template <typename Model>
std::optional<parx::ddp<Model>> wrap(wrapper kind, Model& model, parx::process_group& group) {
  std::optional<parx::ddp<Model>> made;
  if (kind == wrapper::ddp) made.emplace(model, group, parx::ddp_options{});
  return made;
}
template <typename T>
T* pointer(std::optional<T>& maybe) {
  return maybe ? &*maybe : nullptr;
}

std::vector<float> train_whole(wrapper kind, rule which, parx::process_group& dp) {
  whole model;
  model.initialize(11);
  auto ddp = wrap(kind, model, dp);
  with_optimizer(which, model, [&](auto& optimizer) {
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<parx::weighted_loss<float>> losses;
      for (std::size_t m = 0; m < rows.size(); ++m) {
        const microbatch batch = sample(step, m, dp.rank());
        losses.push_back(loss_of(model(batch.x), batch));
      }
      accumulate_and_step(how::whole, model, optimizer, pointer(ddp),
                          [&](std::size_t m, const parx::backward_options& options) {
                            return start(how::whole, losses[m], options);
                          });
    }
  });
  return values_of(model);
}

/// The first half of the ranks are the first stage's. Values and gradients are handed over as plain
/// memory, all micro-batches forward before any of them backward.
std::vector<float> train_stage(wrapper kind, rule which, how way, parx::process_group& world) {
  const int replicas = world.size() / 2, stage = world.rank() / replicas;
  const int peer = (world.rank() + replicas) % world.size();
  parx::process_group dp = *parx::split(world, stage);
  whole source;
  source.initialize(11);
  std::vector<float> result;
  if (stage == 0) {
    front model;
    start_as_in(source, model, "front.");
    auto ddp = wrap(kind, model, dp);
    with_optimizer(which, model, [&](auto& optimizer) {
      for (std::size_t step = 0; step < steps; ++step) {
        std::vector<variable<float>> outputs;
        for (std::size_t m = 0; m < rows.size(); ++m) {
          outputs.push_back(model(sample(step, m, dp.rank()).x));
          parx::send(world, outputs[m].value().span(), peer);
        }
        accumulate_and_step(way, model, optimizer, pointer(ddp),
                            [&](std::size_t m, parx::backward_options options) {
                              const auto sum = tensor<float>::empty(outputs[m].shape());
                              parx::recv(world, sum.span(), peer);
                              parx::recv(world, std::span(&options.count, 1), peer);
                              return start(way, outputs[m], sum, options);
                            });
      }
    });
    result = values_of(model);
  } else {
    back model;
    start_as_in(source, model, "back.");
    auto ddp = wrap(kind, model, dp);
    with_optimizer(which, model, [&](auto& optimizer) {
      for (std::size_t step = 0; step < steps; ++step) {
        std::vector<parx::border<float>> borders;
        std::vector<parx::weighted_loss<float>> losses;
        for (std::size_t m = 0; m < rows.size(); ++m) {
          const auto received = tensor<float>::empty({rows[m], hidden});
          parx::recv(world, received.span(), peer);
          borders.emplace_back(received);
          losses.push_back(loss_of(model(borders[m]), sample(step, m, dp.rank())));
        }
        accumulate_and_step(way, model, optimizer, pointer(ddp),
                            [&](std::size_t m, const parx::backward_options& options) {
                              started made = start(way, losses[m], options);
                              const auto handed = borders[m].gradient();
                              parx::send(world, handed.sum.span(), peer);
                              parx::send(world, std::span(&handed.count, 1), peer);
                              return made;
                            });
      }
    });
    result = values_of(model);
  }
  return result;
}

void cut_equals_whole(wrapper kind, int replicas) {
  whole untrained;
  untrained.initialize(11);
  const std::vector<float> start = values_of(untrained);
  for (const rule which : {rule::sgd, rule::adamw}) {
    const auto expected = on_ranks(
        replicas, [&](parx::process_group& dp) { return train_whole(kind, which, dp); });
    for (const how way : {how::whole, how::halves}) {
      const auto found = on_ranks(2 * replicas, [&](parx::process_group& world) {
        return train_stage(kind, which, way, world);
      });
      for (std::size_t replica = 0; replica < expected.size(); ++replica) {
        std::vector<float> stages = found[replica];
        const auto& rest = found[replica + static_cast<std::size_t>(replicas)];
        stages.insert(stages.end(), rest.begin(), rest.end());
        BOOST_TEST((stages == expected[replica]));
        BOOST_TEST((stages != start));
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(without_a_wrapper) { cut_equals_whole(wrapper::none, 1); }
BOOST_AUTO_TEST_CASE(under_ddp_of_one_rank) { cut_equals_whole(wrapper::ddp, 1); }
BOOST_AUTO_TEST_CASE(under_ddp_of_two_ranks_a_stage) { cut_equals_whole(wrapper::ddp, 2); }

BOOST_AUTO_TEST_CASE(a_ddp_of_one_rank_divides_the_sums_of_a_graph_with_a_border_itself) {
  // Counts that are no powers of two, and one micro-batch: by hand, in exact numbers.
  const auto gradient = on_ranks(1, [](parx::process_group& group) {
    parx::nn::linear<> model(2, 1);
    model.initialize(1);
    parx::ddp ddp{model, group};
    const parx::border<float> x(tensor<float>::from({3, 6}, {1, 2}));
    const auto y = ddp(x);
    y.backward_from(tensor<float>::full({1, 1}, 2), {.count = 3});
    return std::vector<float>{model.parameters()[0].grad().at(0, 0),
                              model.parameters()[0].grad().at(0, 1),
                              model.parameters()[1].grad().at(0),
                              static_cast<float>(x.gradient().count)};
  })[0];
  BOOST_TEST(gradient[0] == 2.0F);
  BOOST_TEST(gradient[1] == 4.0F);
  BOOST_TEST(gradient[2] == 2.0F / 3);
  BOOST_TEST(gradient[3] == 3.0F);
}
