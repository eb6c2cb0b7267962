// parx-bench-fsdp: time and memory of ddp, the stages of ZeRO and hybrid sharding on one model, in
// alternating rounds of one run.
//
//   parxrun -n 2 --tag-output=false parx-bench-fsdp --model bert
//   parxrun -n 4 --tag-output=false parx-bench-fsdp --model llama --ways shared --steps 4
//
// Each way has its own model and AdamW. A round's time is that of the slowest rank; ratios are
// medians of each round's ratio to the first way. Bytes are what rank 0 sends in a step, also
// through shared memory. With a single way, its memory is printed too, which takes a fifth of a
// core: the largest PSS of any rank, compared with the formula (16 bytes for each parameter /
// ranks, values and gradients of the two largest units, activations), and the PSS before the model
// was made. --json is for scripts, and reports the memory of getrusage instead.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <bench/resident.hpp>
#include <bench/training_data.hpp>
#include <common/networks.hpp>
#include <common/options.hpp>
#include <fmt/ranges.h>

#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/launch.hpp>
#include <parx/models.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>
#include <parx/plan.hpp>

namespace nn = parx::nn;
using bench::batches, bench::ids, bench::random_ids, bench::stream_of;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::array<std::string_view, 6> all_ways{"ddp",    "zero1",    "zero2",
                                                   "shared", "gathered", "hybrid"};

struct settings {
  std::string model;
  std::vector<std::string> ways;
  std::size_t layers = 0, width = 0, inner = 0, heads = 0, vocabulary = 0;
  std::size_t batch = 0, length = 0, prefetch = 0, steps = 0, rounds = 0;
  double seconds = 0;
  bool checkpoints = false, as_json = false;
};

/// One way to train the model, with its own model and optimizer.
class contender {
 public:
  explicit contender(std::string way) : name(std::move(way)) {}
  contender(const contender&) = delete;
  contender& operator=(const contender&) = delete;
  virtual ~contender() = default;

  /// Collective. Trains on batch `number` and returns its loss.
  virtual float step(std::size_t number) = 0;
  /// The bytes that this rank has sent so far.
  [[nodiscard]] virtual std::size_t bytes_sent() = 0;

  const std::string name;
  std::vector<double> times;  ///< by round: the time of a step
  std::size_t sent = 0;       ///< bytes in all rounds
  std::size_t taken = 0;      ///< steps in all rounds
  float loss = 0;
};

template <typename Workload, typename Wrapper>
class trained final : public contender {
 public:
  using model_type = typename Workload::model_type;

  template <typename Wrap>
  trained(std::string way, const Workload& work, parx::process_group& group, Wrap wrap)
      : contender(std::move(way)), work_(work), group_(group), model_(work.make()),
        net_(wrap(model_)), optimizer_(net_.parameters(), {.lr = 5e-4}) {}

  float step(std::size_t number) override {
    const auto of_batch = work_.loss(net_, number % batches);
    of_batch.backward();
    optimizer_.step();
    return static_cast<float>(of_batch.mean());
  }
  [[nodiscard]] std::size_t bytes_sent() override {
    std::size_t bytes = group_.bytes_sent();
    if constexpr (requires { net_.shard_group(); }) bytes += net_.shard_group().bytes_sent();
    return bytes;
  }

 private:
  const Workload& work_;
  parx::process_group& group_;
  model_type model_;
  Wrapper net_;
  parx::optim::adamw<> optimizer_;
};

template <typename Workload>
std::unique_ptr<contender> make_contender(const std::string& way, const Workload& work,
                                          parx::process_group& group, const settings& s) {
  using model_type = typename Workload::model_type;
  const auto place = std::ranges::find(all_ways, way) - all_ways.begin();
  const int stage = std::min(static_cast<int>(place), 3);
  {
    constexpr std::size_t moments = 8;
    model_type shapes = work.make();
    parx::require_fits(way, parx::shapes_of(shapes, work.units), parx::cluster_of(group),
                       {.how = {.zero = stage, .hybrid = way == "hybrid"},
                        .copies = way == "hybrid" ? 2 : 1,
                        .host_pages = way == "shared" || way == "hybrid"},
                       work.cost, moments);
  }
  if (way == "ddp") {
    return std::make_unique<trained<Workload, parx::ddp<model_type>>>(
        way, work, group, [&](model_type& model) {
          model.initialize(0);
          return parx::ddp<model_type>(model, group);
        });
  }
  parx::fsdp_options options{
      .stage = stage, .units = {{}, work.units, 0}, .prefetch = s.prefetch};
  if (way == "shared") options.values = parx::value_storage::shared;
  if (way == "gathered") options.values = parx::value_storage::gathered;
  std::optional<parx::process_group> half;
  if (way == "hybrid") {
    std::vector<int> ranks;
    const int part = group.size() / 2;
    for (int i = 0; i < part; ++i) ranks.push_back(group.rank() / part * part + i);
    half.emplace(group.subgroup(ranks, {.name = "half"}));
    options.shard_within = *half;
  }
  return std::make_unique<trained<Workload, parx::fsdp<model_type>>>(
      way, work, group,
      [&](model_type& model) { return parx::fsdp<model_type>(model, group, options); });
}

/// Trains `steps` steps one way. Returns the mean time of a step on the slowest rank.
double time_of(contender& of, std::size_t steps, parx::process_group& group) {
  parx::barrier(group);
  const std::size_t sent = of.bytes_sent();
  const auto start = clock_type::now();
  for (std::size_t i = 0; i < steps; ++i) of.loss = of.step(of.taken++);
  std::vector<double> took{std::chrono::duration<double>(clock_type::now() - start).count() /
                           static_cast<double>(steps)};
  of.sent += of.bytes_sent() - sent;
  parx::all_reduce(group, took, {.op = parx::reduce_op::max});
  return took[0];
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// MiB of parameters, optimizer and gradients, two units, and activations.
template <typename Workload>
double formula_mib(const Workload& work, parx::process_group& group) {
  typename Workload::model_type model = work.make();
  const parx::model_shapes shapes = parx::shapes_of(model, work.units);
  std::vector<std::size_t> units(shapes.units.size());
  std::size_t parameters = 0;
  for (const parx::planned_parameter& each : shapes.parameters) {
    parameters += each.bytes();
    if (each.rows == parx::table_rows::none) units[each.unit] += each.bytes();
  }
  std::ranges::sort(units, std::greater());
  units.resize(std::max<std::size_t>(units.size(), 2));
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t bytes =
      4 * parameters / ranks + 2 * (units[0] + units[1]) + work.cost.activation_bytes;
  return static_cast<double>(bytes) / 0x1p20;
}

template <typename Workload>
void compare(parx::world& world, const settings& s, const Workload& work) {
  const double before = bench::resident_mib();
  std::optional<bench::peak_resident> peak;
  if (s.ways.size() == 1 && !s.as_json) peak.emplace();
  std::vector<std::unique_ptr<contender>> all;
  for (const std::string& way : s.ways) {
    if (way == "hybrid" && (world.size() < 4 || world.size() % 2 != 0)) continue;
    all.push_back(make_contender(way, work, world, s));
  }
  std::vector<double> first;
  for (const auto& each : all) {
    each->step(each->taken++);
    first.push_back(time_of(*each, s.steps == 0 ? 3 : 1, world));
    each->sent = each->taken = 0;
  }
  // The same number of steps for all ways, so that losses can be compared.
  const double turn = s.seconds / static_cast<double>(s.rounds * all.size());
  const auto as_many = static_cast<std::size_t>(turn / *std::ranges::max_element(first));
  const std::size_t steps = s.steps > 0 ? s.steps : std::max<std::size_t>(1, as_many);
  for (std::size_t round = 0; round < s.rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t at = (i + round) % all.size();
      all[at]->times.push_back(time_of(*all[at], steps, world));
    }
  }
  if (!s.as_json) {
    parx::print0(world, "{:<9} {:>9} {:>17} {:>9} {:>10} {:>8}\n", "way", "step ms",
                 "ratio (quartiles)", "samples/s", "MiB sent", "loss");
  }
  const auto samples = static_cast<double>(s.batch * static_cast<std::size_t>(world.size()));
  for (const auto& each : all) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < each->times.size(); ++i) {
      ratios.push_back(each->times[i] / all.front()->times[i]);
    }
    std::ranges::sort(ratios);
    const double step = median(each->times);
    const double sent = static_cast<double>(each->sent) / static_cast<double>(each->taken) / 0x1p20;
    if (s.as_json) {
      rusage used{};
      getrusage(RUSAGE_SELF, &used);
      std::vector<double> most{static_cast<double>(used.ru_maxrss) / 1024};
      parx::all_reduce(world, most, {.op = parx::reduce_op::max});
      parx::print0(world,
                   R"({{"framework": "parx-{}", "model": "{}", "world": {}, "batch": {}, )"
                   R"("samples_per_s": {:.1f}, "step_ms": {:.3f}, "sent_mib": {:.2f}, )"
                   R"("peak_mib": {:.1f}, "last_loss": {:.4f}}})"
                   "\n",
                   each->name, s.model, world.size(), s.batch, samples / step, 1e3 * step, sent,
                   most[0], each->loss);
      continue;
    }
    parx::print0(world, "{:<9} {:>9.3f} {:>6.3f} ({:.3f}-{:.3f}) {:>9.1f} {:>10.2f} {:>8.4f}\n",
                 each->name, 1e3 * step, ratios[ratios.size() / 2], ratios[ratios.size() / 4],
                 ratios[ratios.size() * 3 / 4], samples / step, sent, each->loss);
  }
  if (!peak) return;
  std::vector<double> most{peak->mib(), before};
  parx::all_reduce(world, most, {.op = parx::reduce_op::max});
  const double formula = formula_mib(work, world);
  parx::print0(world,
               "memory of a rank: at most {:.1f} MiB, {:.1f} of it before the model; the formula "
               "says {:.1f} ({:.1f} of them activations): {:.3f}\n",
               most[0], most[1], formula,
               static_cast<double>(work.cost.activation_bytes) / 0x1p20, most[0] / formula);
}

// The models to train. `cost` is the work of one step.

parx::step_work cost_of(const settings& s, parx::feed_forward form, std::size_t vocabulary) {
  return parx::work_of({.layers = s.layers,
                        .width = s.width,
                        .inner = s.inner,
                        .vocabulary = vocabulary,
                        .batch = s.batch,
                        .positions = s.length,
                        .form = form,
                        .kept = s.checkpoints ? parx::activations::computed_again
                                              : parx::activations::kept});
}

template <typename Model, typename Config>
struct language_model {
  using model_type = Model;

  [[nodiscard]] model_type make() const {
    model_type model(config);
    if (checkpoints) model.gradient_checkpointing_enable();
    return model;
  }
  template <typename Net>
  [[nodiscard]] auto loss(Net& net, std::size_t i) const {
    const std::size_t length = text[i].extent(1) - 1;
    return nn::cross_entropy(net(text[i].slice(1, 0, length)), text[i].slice(1, 1, length + 1));
  }

  Config config;
  std::vector<std::string> units;
  parx::step_work cost;
  bool checkpoints = false;
  std::vector<ids> text = {};
};

template <typename Model, typename Config>
void compare_language_models(parx::world& world, const settings& s, const Config& config,
                             std::vector<std::string> units, parx::feed_forward form) {
  language_model<Model, Config> work{config, std::move(units),
                                     cost_of(s, form, s.vocabulary), s.checkpoints};
  for (std::size_t i = 0; i < batches; ++i) {
    work.text.push_back(random_ids(stream_of(world, i, "text"), {s.batch, s.length + 1},
                                   static_cast<std::uint32_t>(s.vocabulary)));
  }
  compare(world, s, work);
}

struct bert_classification {
  using model_type = parx::models::bert_classifier<>;

  [[nodiscard]] model_type make() const { return model_type(config); }
  template <typename Net>
  [[nodiscard]] auto loss(Net& net, std::size_t i) const {
    return nn::cross_entropy(net(words[i], mask), labels[i]);
  }

  parx::models::bert_config config;
  std::vector<std::string> units;
  parx::step_work cost;
  std::vector<ids> words = {}, labels = {};
  parx::tensor<std::uint8_t> mask = {};
};

void compare_bert(parx::world& world, const settings& s) {
  bert_classification work{{.vocab_size = s.vocabulary,
                            .hidden_size = s.width,
                            .num_hidden_layers = s.layers,
                            .num_attention_heads = s.heads,
                            .intermediate_size = s.inner,
                            .max_position_embeddings = std::max<std::size_t>(256, s.length),
                            .hidden_dropout_prob = 0,
                            .attention_probs_dropout_prob = 0},
                           {"bert.encoder.layer.*"},
                           cost_of(s, parx::feed_forward::plain, 0)};
  for (std::size_t i = 0; i < batches; ++i) {
    work.words.push_back(random_ids(stream_of(world, i, "words"), {s.batch, s.length},
                                    static_cast<std::uint32_t>(s.vocabulary)));
    work.labels.push_back(random_ids(stream_of(world, i, "labels"), {s.batch}, 4));
  }
  work.mask = parx::tensor<std::uint8_t>::ones({s.batch, s.length});
  compare(world, s, work);
}

struct equal_layers : nn::module<equal_layers> {
  using value_type = float;

  equal_layers(std::size_t count, std::size_t width) {
    for (std::size_t i = 0; i < count; ++i) layers.emplace_back(width, width);
  }
  [[nodiscard]] parx::variable<float> forward(parx::variable<float> x) {
    for (nn::linear<>& each : layers) x = parx::relu(each(x));
    return x;
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("layers", layers);
  }

  std::vector<nn::linear<>> layers;
};

struct regression {
  using model_type = equal_layers;

  [[nodiscard]] model_type make() const { return {layers, width}; }
  template <typename Net>
  [[nodiscard]] auto loss(Net& net, std::size_t i) const {
    return nn::mse_loss(net(x[i]), x[i]);
  }

  std::size_t layers, width;
  std::vector<std::string> units;
  parx::step_work cost;
  std::vector<parx::tensor<float>> x = {};
};

void compare_equal_layers(parx::world& world, const settings& s) {
  regression work{s.layers, s.width, {"layers.*"},
                  {.activation_bytes = 2 * (s.layers + 2) * s.batch * s.width * sizeof(float)}};
  for (std::size_t i = 0; i < batches; ++i) {
    work.x.push_back(parx::tensor<float>::empty({s.batch, s.width}));
    stream_of(world, i, "images").normal(work.x.back(), 0.0F, 1.0F);
  }
  compare(world, s, work);
}

void compare_ways(parx::world& world, const settings& s) {
  using parx::feed_forward;
  if (s.model == "bert") return compare_bert(world, s);
  if (s.model == "deep") return compare_equal_layers(world, s);
  if (s.model == "gpt") {
    return compare_language_models<parx::models::gpt<>>(
        world, s,
        parx::models::gpt_config{.vocab_size = s.vocabulary, .n_positions = s.length,
                                 .n_embd = s.width, .n_layer = s.layers, .n_head = s.heads,
                                 .n_inner = s.inner, .embd_pdrop = 0, .attn_pdrop = 0,
                                 .resid_pdrop = 0},
        {"transformer.h.*"}, feed_forward::plain);
  }
  compare_language_models<parx::models::llama<>>(
      world, s,
      parx::models::llama_config{.vocab_size = s.vocabulary, .hidden_size = s.width,
                                 .intermediate_size = s.inner, .num_hidden_layers = s.layers,
                                 .num_attention_heads = s.heads, .num_key_value_heads = s.heads,
                                 .max_position_embeddings = s.length},
      {"model.layers.*", "lm_head"}, feed_forward::gated);
}

/// Replaces flags that are 0 by the model's usual sizes.
settings with_usual_sizes(settings s) {
  struct sizes {
    std::size_t layers, width, inner, heads, vocabulary, batch, length;
  };
  const sizes usual = s.model == "bert"   ? sizes{2, 64, 256, 2, 30522, 16, 128}
                      : s.model == "gpt"  ? sizes{4, 128, 512, 4, 256, 8, 128}
                      : s.model == "deep" ? sizes{12, 512, 1, 1, 1, 256, 1}
                                          : sizes{16, 512, 1376, 8, 32000, 1, 128};
  const auto put = [](std::size_t& value, std::size_t otherwise) {
    if (value == 0) value = otherwise;
  };
  put(s.layers, usual.layers);
  put(s.width, usual.width);
  put(s.inner, usual.inner);
  put(s.heads, usual.heads);
  put(s.vocabulary, usual.vocabulary);
  put(s.batch, usual.batch);
  put(s.length, usual.length);
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  using examples::text;
  cxxopts::Options options("parx-bench-fsdp",
                           "ddp, ZeRO and hybrid sharding in alternating rounds");
  options.add_options()
      ("model", "gpt, bert, llama; deep: equal layers, for overlap", text("gpt"))
      ("ways", "those to compare, ratios are to the first",
       cxxopts::value<std::vector<std::string>>()->default_value(
           "ddp,zero1,zero2,shared,gathered,hybrid"))
      ("layers", "0, here and below: the model's usual", text(0))
      ("width", "of the model", text(0))
      ("inner", "width between the feed-forward matrices", text(0))
      ("heads", "of attention", text(0))
      ("vocab", "tokens that there are", text(0))
      ("batch", "samples of one rank in one step", text(0))
      ("seq", "tokens of a sample", text(0))
      ("prefetch", "units that are gathered ahead", text(1))
      ("steps", "of a round; 0: as --seconds says", text(0))
      ("rounds", "in which every way has a turn", text(9))
      ("seconds", "length of the measurement", text(20))
      ("checkpoint", "layers are computed again in backward")
      ("json", "a line for each way")
      ("h,help", "print this");
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto size = [&](const char* flag, std::size_t least = 0) {
      return examples::number<std::size_t>(given, flag, least, 1 << 24);
    };
    const auto model = examples::choice(given, "model", {"gpt", "bert", "llama", "deep"});
    const auto ways = given["ways"].as<std::vector<std::string>>();
    for (const std::string& way : ways) {
      parx::require(std::ranges::find(all_ways, way) != all_ways.end(), "--ways \"{}\": give {}",
                    way, fmt::join(all_ways, ", "));
    }
    settings s;
    s.model = model;
    s.ways = ways;
    s.layers = size("layers");
    s.width = size("width");
    s.inner = size("inner");
    s.heads = size("heads");
    s.vocabulary = size("vocab");
    s.batch = size("batch");
    s.length = size("seq");
    s.prefetch = size("prefetch");
    s.steps = size("steps");
    s.rounds = size("rounds", 1);
    s.seconds = examples::number(given, "seconds", 0.0, 1e6);
    s.checkpoints = given.count("checkpoint") != 0;
    s.as_json = given.count("json") != 0;
    compare_ways(world, with_usual_sizes(std::move(s)));
  });
}
