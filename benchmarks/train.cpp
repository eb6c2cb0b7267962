// parx-bench-train: samples per second of data-parallel training, on the models and with the
// arithmetic of peers/torch_train.py. Rank 0 prints one JSON line.
//
//   parx-bench-train --model bert
//   parxrun -n 2 --tag-output=false parx-bench-train --model gpt --seconds 8
//   parx-bench-train --model mlp --parallel bare  the loop without the ddp wrapper
//   parx-bench-train --model cnn --bf16           products of bfloat16, as the trainer's .bf16
//   parxrun -n 2 --tag-output=false parx-bench-train --model gpt --width 512 --parallel tp
//
// GPT's output shares the embedding's matrix, as in GPT-2; PyTorch's has its own. There are eight
// synthetic batches with a fixed seed, used in turn; a step is forward, backward (with the
// gradients' all-reduce) and the optimizer. Phases are medians on rank 0; "hidden" is the fraction
// of the communication during which backward was computing. With tp the ranks have parts of one GPT
// (tp-sp: with sequence parallelism) and the same batch; otherwise each rank has its own.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <bench/training_data.hpp>
#include <common/networks.hpp>
#include <common/options.hpp>
#include <parx/ddp.hpp>
#include <parx/launch.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/tensor_parallel.hpp>
#include <parx/tensor_parallel/plans.hpp>

namespace nn = parx::nn;
using seconds = std::chrono::duration<double>;
using bench::batches, bench::ids, bench::random_ids, bench::stream_of;

namespace {

enum class wrapper { ddp, bare, tp, tp_sp };

struct settings {
  std::string model, name;
  std::size_t batch = 0, length = 0;
  double dropout = 0, seconds = 0;
  std::size_t warm_up = 0, bucket = 0;
  parx::models::gpt_config gpt = {};
  bool whole_logits = true;
  parx::dtype products = parx::dtype::float32;
  wrapper wrapped = wrapper::ddp;

  [[nodiscard]] bool one_batch() const noexcept {
    return wrapped == wrapper::tp || wrapped == wrapper::tp_sp;
  }
};

struct phases {
  double forward, backward, optimizer;
  [[nodiscard]] double step() const noexcept { return forward + backward + optimizer; }
};

/// One step: forward(number) is the loss of batch `number`.
template <typename Forward, typename Optimizer>
phases take_step(std::size_t number, const Forward& forward, Optimizer& optimizer,
                 double& loss_value) {
  const auto start = std::chrono::steady_clock::now();
  const auto loss = forward(number % batches);
  const auto forwarded = std::chrono::steady_clock::now();
  loss.backward();
  const auto differentiated = std::chrono::steady_clock::now();
  optimizer.step();
  const auto end = std::chrono::steady_clock::now();
  loss_value = loss.mean();
  return {seconds(forwarded - start).count(), seconds(differentiated - forwarded).count(),
          seconds(end - differentiated).count()};
}

template <typename Field>
double median_ms(std::vector<phases>& taken, Field field) {
  const auto middle = taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2);
  std::nth_element(taken.begin(), middle, taken.end(),
                   [&](const phases& a, const phases& b) { return field(a) < field(b); });
  return 1e3 * field(*middle);
}

double peak_mib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) / 1024;
}

/// Figures of the wrapper: the size of the gradients, and the fraction of their communication that
/// was hidden.
struct communication {
  double gradient_mib = 0;
  std::function<double()> hidden = [] { return 1.0; };
};

template <typename Forward, typename Optimizer>
void measure(parx::world& world, const settings& s, Forward loss_of, Optimizer& optimizer,
             const communication& figures = {}) {
  const auto forward = [&](std::size_t number) {
    const parx::autocast_scope scope(s.products);
    return loss_of(number);
  };
  double first_loss = 0;
  double loss = 0;
  take_step(0, forward, optimizer, first_loss);
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 1; i < s.warm_up; ++i) take_step(i, forward, optimizer, loss);
  std::vector<double> pace{seconds(std::chrono::steady_clock::now() - begin).count() /
                           static_cast<double>(s.warm_up - 1)};
  parx::all_reduce(world, pace, {.op = parx::reduce_op::max});
  const std::size_t steps =
      std::max<std::size_t>(10, static_cast<std::size_t>(s.seconds / pace[0]));

  std::vector<phases> taken(steps);
  parx::barrier(world);
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < steps; ++i) {
    taken[i] = take_step(s.warm_up + i, forward, optimizer, loss);
  }
  parx::barrier(world);
  const double wall = seconds(std::chrono::steady_clock::now() - start).count();

  std::vector<double> peak{peak_mib()};
  parx::all_reduce(world, peak, {.op = parx::reduce_op::max});
  parx::print0(
      world,
      R"({{"framework": "parx-{}{}", "model": "{}", "world": {}, "batch": {}, "dropout": {}, )"
      R"("samples_per_s": {:.1f}, "step_ms": {:.3f}, "forward_ms": {:.3f}, "backward_ms": {:.3f}, )"
      R"("optimizer_ms": {:.3f}, "steps": {}, "peak_mib": {:.1f}, "first_loss": {:.4f}, )"
      R"("last_loss": {:.4f}, "gradient_mib": {:.2f}, "hidden": {:.3f}}})"
      "\n",
      s.name, s.products == parx::dtype::bfloat16 ? "-bf16" : "", s.model, world.size(), s.batch,
      s.dropout,
      static_cast<double>(s.batch * (s.one_batch() ? 1U : static_cast<std::size_t>(world.size())) *
                          steps) / wall,
      median_ms(taken, [](const phases& p) { return p.step(); }),
      median_ms(taken, [](const phases& p) { return p.forward; }),
      median_ms(taken, [](const phases& p) { return p.backward; }),
      median_ms(taken, [](const phases& p) { return p.optimizer; }), steps, peak[0], first_loss,
      loss, figures.gradient_mib, figures.hidden());
}

/// Trains `model`, wrapped or bare; loss_of(net, number) is the loss of batch `number`.
template <typename Model, typename LossOf, typename MakeOptimizer>
void train(parx::world& world, const settings& s, Model& model, LossOf loss_of,
           MakeOptimizer make) {
  model.initialize(0);
  if (s.wrapped == wrapper::bare) {
    auto optimizer = make(model.parameters());
    measure(world, s, [&](std::size_t number) { return loss_of(model, number); }, optimizer);
  } else {
    parx::ddp net{model, world, {.buckets = {.bytes = s.bucket}}};
    auto optimizer = make(net.parameters());
    double bytes = 0;
    for (std::size_t i = 0; i < net.bucket_count(); ++i) {
      bytes += static_cast<double>(net.bucket_bytes(i));
    }
    measure(world, s, [&](std::size_t number) { return loss_of(net, number); }, optimizer,
            {bytes / 0x1p20, [&] { return net.times().hidden(); }});
  }
}

const auto make_adamw = [](auto parameters) {
  return parx::optim::adamw<>{std::move(parameters), {.lr = 5e-4}};
};
const auto make_sgd = [](auto parameters) {
  return parx::optim::sgd<>{std::move(parameters), {.lr = 0.05, .momentum = 0.9}};
};

template <typename Model>
void train_images(parx::world& world, const settings& s, Model model, parx::shape image) {
  std::vector<parx::tensor<float>> x;
  std::vector<ids> y;
  image.insert(0, s.batch);
  for (std::size_t i = 0; i < batches; ++i) {
    x.push_back(parx::tensor<float>::empty(image));
    stream_of(world, i, "images").normal(x.back(), 0.0F, 1.0F);
    y.push_back(random_ids(stream_of(world, i, "labels"), {s.batch}, 10));
  }
  train(
      world, s, model, [&](auto& net, std::size_t i) { return nn::cross_entropy(net(x[i]), y[i]); },
      make_sgd);
}

void train_bert(parx::world& world, const settings& s) {
  std::vector<ids> x;
  std::vector<ids> y;
  for (std::size_t i = 0; i < batches; ++i) {
    x.push_back(random_ids(stream_of(world, i, "words"), {s.batch, s.length}, 30522));
    y.push_back(random_ids(stream_of(world, i, "labels"), {s.batch}, 4));
  }
  const auto mask = parx::tensor<std::uint8_t>::ones({s.batch, s.length});
  parx::models::bert_classifier<> model{
      {.hidden_dropout_prob = s.dropout, .attention_probs_dropout_prob = s.dropout}};
  train(
      world, s, model,
      [&](auto& net, std::size_t i) { return nn::cross_entropy(net(x[i], mask), y[i]); },
      make_adamw);
}

void train_gpt(parx::world& world, const settings& s) {
  const auto words = static_cast<std::uint32_t>(s.gpt.vocab_size);
  std::vector<ids> text;
  for (std::size_t i = 0; i < batches; ++i) {
    const parx::random_stream stream =
        s.one_batch() ? parx::random_stream(1000, "text").substream(i)
                      : stream_of(world, i, "text");
    text.push_back(random_ids(stream, {s.batch, s.length + 1}, words));
  }
  const auto read = [&](std::size_t i) { return text[i].slice(1, 0, s.length); };
  const auto next = [&](std::size_t i) { return text[i].slice(1, 1, s.length + 1); };
  parx::models::gpt<> model{s.gpt};
  if (!s.one_batch()) {
    return train(
        world, s, model,
        [&](auto& net, std::size_t i) {
          return s.whole_logits ? nn::cross_entropy(net(read(i)), next(i)) : net(read(i), next(i));
        },
        make_adamw);
  }
  const auto between =
      s.wrapped == wrapper::tp ? nn::between_cuts::whole : nn::between_cuts::positions;
  const auto tp = parx::parallelize(model, world, parx::tp::ready_plan(model, between));
  model.initialize(0);
  auto optimizer = make_adamw(model.parameters());
  double bytes = 0;
  for (const auto& each : model.parameters()) bytes += static_cast<double>(each.size()) * 4;
  const auto loss_of = [&](std::size_t i) { return nn::cross_entropy(model(read(i)), next(i)); };
  measure(world, s, loss_of, optimizer, {.gradient_mib = bytes / 0x1p20});
}

template <std::size_t... Layer>
auto deep_model(std::index_sequence<Layer...> /*pairs*/) {
  const auto layer = [](std::size_t) { return nn::sequential{nn::linear{512, 512}, nn::relu{}}; };
  return nn::sequential{layer(Layer)..., nn::linear{512, 10}};
}

void train_model(parx::world& world, const settings& s) {
  if (s.model == "bert") {
    train_bert(world, s);
  } else if (s.model == "gpt") {
    train_gpt(world, s);
  } else if (s.model == "mlp") {
    train_images(world, s,
                 nn::sequential{nn::linear{784, 1024}, nn::relu{}, nn::linear{1024, 1024},
                                nn::relu{}, nn::linear{1024, 10}},
                 {784});
  } else if (s.model == "cnn") {
    constexpr auto relu = parx::activation::relu;
    train_images(world, s,
                 nn::sequential{nn::conv2d{1, 32, 3, {.padding = 1, .activation = relu}},
                                nn::max_pool2d{2},
                                nn::conv2d{32, 64, 3, {.padding = 1, .activation = relu}},
                                nn::max_pool2d{2},
                                nn::flatten{}, nn::linear{64 * 7 * 7, 10}},
                 {1, 28, 28});
  } else if (s.model == "deep") {
    train_images(world, s, deep_model(std::make_index_sequence<12>()), {512});
  }
}

std::size_t usual_batch(const std::string& model) {
  if (model == "bert") return 16;
  if (model == "mlp") return 128;
  if (model == "cnn") return 64;
  return model == "gpt" ? 8 : 256;
}

}  // namespace

int main(int argc, char** argv) {
  const auto text = [](const char* value) {
    return cxxopts::value<std::string>()->default_value(value);
  };
  cxxopts::Options options("parx-bench-train", "Samples a second of data-parallel training");
  options.add_options()
      ("model", "bert, mlp, cnn or gpt; deep: twelve equal layers, for overlap", text("bert"))
      ("batch", "samples of one rank in one step; 0: the model's usual", text("0"))
      ("seq", "tokens of a sample", text("128"))
      ("dropout", "probability, for bert and gpt", text("0"))
      ("seconds", "length of the measurement", text("4"))
      ("warm-up", "steps before it", text("8"))
      ("bucket-mib", "size of a gradient bucket", text("25"))
      ("parallel", "ddp; bare: each rank for itself; tp, tp-sp: a GPT in parts", text("ddp"))
      ("bf16", "products of bfloat16")
      ("width", "of gpt", text("128"))
      ("layers", "of gpt", text("4"))
      ("heads", "of gpt", text("4"))
      ("vocab", "of gpt", text("256"))
      ("logits", "of gpt: whole, or in blocks of 256 rows", text("whole"))
      ("h,help", "print this");
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto count = [&](const char* flag, std::size_t least, std::size_t most) {
      return examples::number<std::size_t>(given, flag, least, most);
    };
    settings s;
    s.model = examples::choice(given, "model", {"bert", "mlp", "cnn", "gpt", "deep"});
    s.name = examples::choice(given, "parallel", {"ddp", "bare", "tp", "tp-sp"});
    s.batch = count("batch", 0, 1'000'000);
    s.length = count("seq", 1, 1'000'000);
    s.dropout = examples::number(given, "dropout", 0.0, 0.99);
    s.seconds = examples::number(given, "seconds", 0.0, 1e6);
    s.warm_up = count("warm-up", 2, 1'000'000);
    s.bucket = count("bucket-mib", 1, 1 << 20) << 20;
    s.gpt.vocab_size = count("vocab", 2, 1'000'000);
    s.gpt.n_embd = count("width", 1, 1'000'000);
    s.gpt.n_layer = count("layers", 1, 1000);
    s.gpt.n_head = count("heads", 1, 1000);
    s.whole_logits = examples::choice(given, "logits", {"whole", "blocks"}) == "whole";
    s.gpt.n_positions = s.length;
    s.gpt.embd_pdrop = s.gpt.attn_pdrop = s.gpt.resid_pdrop = s.dropout;
    if (given.count("bf16") != 0) s.products = parx::dtype::bfloat16;
    if (s.name == "bare") s.wrapped = wrapper::bare;
    if (s.name == "tp") s.wrapped = wrapper::tp;
    if (s.name == "tp-sp") s.wrapped = wrapper::tp_sp;
    parx::require(!s.one_batch() || s.model == "gpt", "--parallel {} is for --model gpt", s.name);
    if (s.batch == 0) s.batch = usual_batch(s.model);
    train_model(world, s);
  });
}
