#!/bin/bash
# A wrong call is told the way out in one sentence:   compile_errors.sh COMPILER [FLAG...]
set -u
# With -DWRONG every line is an error, and without it none.
program() {
  cat <<'END'
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <Eigen/Core>
#include <parx/autograd/ops/concat.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/comm.hpp>
#include <parx/data/loader.hpp>
#include <parx/data/table.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/ddp/raw.hpp>
#include <parx/checkpoint/save.hpp>
#include <parx/fsdp/fsdp.hpp>
#include <parx/launch/run.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/activation.hpp>
#include <parx/nn/loss.hpp>
#include <parx/nn/sequential.hpp>
#include <parx/optim.hpp>
#include <parx/parallel/parallel.hpp>
#include <parx/train/evaluation.hpp>
#include <parx/train/trainer.hpp>
#ifdef WRONG
#define LAYER visit(layer)
#define TOUCHED_ROWS touched_row
#define SPEC part
#define GROUP int
#else
#define LAYER visit("layer", layer)
#define TOUCHED_ROWS touched_rows
#define SPEC spec
#define GROUP std::string
#endif
struct score { float loss; int rank; };
struct samples {  // one at a time, as PyTorch's
  std::size_t size() const { return 4; }
  float operator[](std::size_t row) const { return static_cast<float>(row); }
};
struct rows : samples {
  struct batch { parx::tensor<float> weights; };
  batch fetch(std::span<const std::size_t>) const { return {}; }
};
struct unweighted : samples {
  struct batch { parx::tensor<float> x; };
  batch fetch(std::span<const std::size_t>) const { return {}; }
};
struct unnamed : parx::nn::module<unnamed> {
  parx::nn::linear<> layer{4, 2};
  template <typename Visit>
  void members(Visit& visit) { LAYER; }
};
struct unlisted : parx::nn::module<unlisted> {
  parx::nn::linear<> layer{4, 2};
#ifndef WRONG
  template <typename Visit>
  void members(Visit& visit) { visit("layer", layer); }
#endif
};
struct plain { parx::nn::linear<> layer{4, 2}; };
struct given {
  using value_type = float;
  std::span<float> value() const { return {}; }
  std::vector<std::size_t> shape() const { return {}; }
  void bind_grad(std::span<float>) const {}
  void unbind() const {}
  bool has_grad() const { return false; }
  void assume_grad() const {}
  void zero_grad() const {}
  void attach(parx::backward_observer*, std::size_t) const {}
  void detach_observer() const {}
  parx::backward_observer* observer() const { return nullptr; }
};
struct by_rows : given, parx::row_sparse_parameter {
  bool expects_row_grad() const { return true; }
  std::optional<std::span<const std::size_t>> TOUCHED_ROWS() const { return std::nullopt; }
  std::span<float> add_rows(std::span<const std::size_t>) const { return value(); }
  void clear_rows() const {}
};
struct grouped : given, parx::grouped_parameter {
  GROUP reduction_group() const { return {}; }
};
struct placed : given, parx::placed_parameter {
  parx::shard_spec SPEC() const { return {}; }
};
template <typename P>
struct user_module {
  P only;
  void for_each_parameter(auto&& visitor) { visitor(std::string("only"), only); }
};
float lesser(float a, float b) { return a < b ? a : b; }
void calls(parx::process_group& world, parx::parallel_model<float, parx::tensor<float>>& net) {
  int k = 1;
  std::string text;
  std::map<int, float> table;
  std::vector<float> x(4), y(4);
  std::vector<score> scores(4);
  score lone{};
  const std::vector<float>& fixed = x;
  parx::tensor<float> images;
  parx::tensor<std::int64_t> classes;
  parx::nn::linear model{4, 2};
  parx::ddp ddp{model, world};
  (void)unlisted().parameters();
  const parx::variable<float> input = images;
  const parx::data::tensor_dataset known{images, classes};
  const parx::data::loader checks{known, {.batch_size = 2}};
  const auto handles = [](auto& module) { (void)parx::parameter_handles(module); };
  std::optional<user_module<by_rows>> of_rows;
  handles(*of_rows);
  std::optional<user_module<grouped>> of_grouped;
  handles(*of_grouped);
  user_module<placed> of_placed;
  handles(of_placed);
#ifdef WRONG
  (void)parx::differentiable(images, [](const parx::tensor<float>&) {}, input);
  (void)parx::train::make_evaluation(ddp, checks, [](auto& net, auto& batch) {
    return parx::nn::cross_entropy(net(batch.x), batch.y);
  }, parx::call_site::current());
  user_module<plain> of_plain;
  handles(of_plain);
  (void)unnamed().parameters();
  (void)parx::run([](parx::world) {});
  parx::all_reduce(world, lone);
  parx::all_reduce(world, 3);
  parx::all_reduce(world, lone, {.op = parx::reduce_op::max});
  parx::all_reduce(world, x, [](float a, float b) { return a < b ? a : b; });
  parx::all_reduce(world, scores);
  parx::all_reduce(world, scores, parx::user_op([](int a, int b) { return a + b; }));
  parx::all_reduce(world, fixed);
  parx::reduce(world, x, lesser);
  parx::scan(world, scores);
  parx::all_reduce(world, x, parx::reduce_op::max);
  parx::reduce(world, x, 0);
  parx::reduce_scatter(world, x, fixed);
  parx::all_gather(world, lone, x);
  parx::broadcast(world, lone);
  parx::broadcast(world, x, 1);
  parx::gather(world, x, images, 0);
  parx::async_scatter(world, images, x, 1).wait();
  std::vector<bool> bits(4);
  parx::broadcast(world, bits);
  parx::async_all_reduce(world, fixed).wait();
  parx::async_reduce(world, lone).wait();
  parx::async_scan(world, x, lesser).wait();
  parx::async_reduce_scatter(world, scores, scores).wait();
  parx::async_all_gather(world, x, fixed).wait();
  parx::async_broadcast(world, fixed).wait();
  auto in_flight = parx::async_all_reduce(world, std::vector<float>(4));
  parx::async_broadcast(world, std::vector<int>(4)).wait();
  parx::async_reduce(world, std::vector<double>(4)).wait();
  parx::async_scan(world, std::vector<short>(4)).wait();
  parx::async_reduce_scatter(world, std::vector<float>(8), x).wait();
  parx::async_all_gather(world, x, std::vector<float>(8)).wait();
  parx::async_send(world, std::vector<long>(4), 1).wait();
  parx::async_recv(world, std::vector<char>(4), 1).wait();
  parx::all_reduce(world, x, y, parx::reduce_op::max);
  parx::scan(world, x, &y[0]);
  parx::all_reduce(world, x, true);
  parx::gather(world, x, 0);
  parx::scatter(world, x, lone);
  parx::send(world, lone, 1);
  parx::recv(world, lone, 1);
  parx::batch(world).send(table, 1).recv(fixed, 1).run();
  parx::batch(world).send(std::vector<unsigned short>(5), 0).run();
  parx::batch(world).recv(std::array<int, 5>{}, 0).run();
  parx::all_reduce(world, std::array<float, 6>{});
  parx::all_to_all(world, std::array<float, 7>{});
  parx::broadcast(world, std::array<float, 8>{});
  parx::reduce(world, std::array<float, 9>{});
  parx::scan(world, std::array<float, 10>{});
  parx::exscan(world, std::array<float, 11>{});
  parx::recv(world, std::array<float, 12>{}, 0);
  (void)parx::recv_any(world, std::array<float, 13>{});
  parx::async_all_to_all(world, std::vector<long>(4)).wait();
  parx::async_exscan(world, std::array<float, 4>{}).wait();
  parx::async_all_gather(world, std::vector<unsigned>(4), x).wait();
  parx::async_gather(world, x, std::vector<char>(4)).wait();
  parx::async_all_reduce(world, std::array<double, 4>{}, x).wait();
  parx::async_send(world, Eigen::VectorXf(x.size()), 1).wait();
  parx::async_recv(world, std::vector<unsigned char>(4), 1).wait();
  parx::gather_v(world, lone, x, std::vector<int>(4));
  parx::all_gather_v(world, x, y, 4);
  parx::optim::sgd by_model{model, {.lr = 0.1}};
  parx::optim::adamw by_wrapper{ddp};
  parx::optim::sgd by_rate{model.parameters(), 0.1};
  parx::optim::adamw by_other{model.parameters(), parx::optim::sgd_options{}};
  parx::optim::sgd by_buffer{x};
  parx::optim::adamw by_misspelt{model.parameters(), {.learning_rate = 0.1}};
  parx::optim::adamw_options misspelt{.learning_rate = 0.2};
  (void)parx::nn::cross_entropy(ddp(images), images);
  (void)parx::nn::cross_entropy(ddp(images), std::vector<int>(4));
  (void)parx::nn::cross_entropy(images, classes);
  (void)parx::nn::mse_loss(ddp(images), classes);
  (void)parx::nn::mse_loss(images, images);
  parx::optim::clip_grad_norm(ddp, 1.0);
  parx::save(world, model, "model.safetensors");
  plain bare;
  parx::ddp wrapped{bare, world};
  (void)parx::data::read_table("a.csv", {.csv = {.header = false}, .label = "3"});
  (void)parx::tensor<float>::zeros(k, 3);
  (void)parx::tensor<int>::empty();
  images[0] = 1;
  (void)parx::tensor<float>::from(std::vector<std::vector<float>>(2), {2, 2});
  (void)parx::data::tensor_dataset{x, std::vector<int>(4)};
  (void)parx::data::tensor_dataset{images, std::vector<int>(4)};
  parx::nn::sequential copied{model, parx::nn::relu{}};
  parx::nn::sequential sized{784, 128};
  parx::nn::sequential named{"fc", parx::nn::linear{4, 2}};
  parx::ddp alone{model};
  parx::save(model, "model.safetensors");
  parx::load_state("model.safetensors", model);
  (void)parx::nn::cross_entropy(ddp(images), classes, x);
  rows set;
  parx::data::loader by_size{set, 32};
  for (auto& batch : parx::data::loader{set, {.batch_size = 2}}) (void)batch;
  parx::data::distributed_sampler sampler{set, world};
  samples one_by_one;
  unweighted unweighed;
  parx::data::loader loader{one_by_one, {.batch_size = 2}};
  (void)parx::train::samples_in(one_by_one[0]);
  const auto loss = [](auto& net, auto&) { return net; };
  parx::train::trainer of_a_model{model, by_model, by_size, loss};
  parx::fsdp sharded{model, world};  // of fsdp/fsdp.hpp alone
  parx::train::trainer of_an_fsdp{sharded, by_model, by_size, loss};
  net.forward_backward(images, [](auto&, auto&) { return 1.0f; });
  parx::parallel by_text{model, world, "tp=2"};
  parx::parallel of_a_temporary{parx::nn::linear{4, 2}, world};
  struct of_vectors { parx::tensor<float> x; std::vector<int> labels; };
  (void)net.evaluate(of_vectors(), [](auto& y, auto&) { return parx::nn::mse_loss(y, y); });
  (void)net.evaluate(images, [](auto& y) { return parx::nn::mse_loss(y, y); });
  (void)fmt::format("{}", parx::nn::mse_loss(ddp(images), images));
  (void)fmt::format("{}", parx::nn::tally());
  (void)ddp(images)[0];
  parx::data::loader of_a_group{unweighed, world, {.batch_size = 2}};
  parx::nn::sequential of_a_function{parx::nn::linear{4, 2}, [](auto& x) { return x; }};
  (void)parx::nn::linear{4, 2}(classes);
  std::vector<int> whole_numbers(4);
  parx::raw_module<float> of_floats;
  of_floats.add("w", whole_numbers);
  (void)parx::concat(ddp(images), ddp(images), 1);
  (void)parx::reshape(ddp(images), -1, 2);
  (void)images(0, 1);
  (void)parx::nn::mse_loss(ddp(images), images).item();
#else
  (void)parx::concat({ddp(images), ddp(images)}, 1);
  (void)parx::sum(parx::reshape(ddp(images), {-1, 2}), 1);
  (void)parx::mean(ddp(images), {0, 1});
  (void)parx::differentiable(images, [](const parx::tensor<float>&, parx::grad_sink<float>) {}, input);
  (void)parx::train::make_evaluation(ddp, checks, [](auto& net, auto& batch) -> parx::nn::metrics {
    return {{"loss", parx::nn::cross_entropy(net(batch.x), batch.y)}};
  }, parx::call_site::current());
  using parx::data::csv_header;
  (void)parx::data::read_table("a.csv", {.csv = {.header = csv_header::absent}, .label = "3"});
  images = parx::tensor<float>::zeros({k, 3});
  classes = parx::tensor<std::int64_t>::from(std::vector<int>(4), {k, -1});
  (void)parx::data::tensor_dataset{images, images};
  parx::nn::sequential moved_in{parx::nn::linear{4, 2}, std::move(model)};
  parx::nn::sequential within{parx::nn::sequential{parx::nn::relu{}}, parx::nn::relu{}};
  (void)unnamed().parameters();
  rows whole;
  parx::data::loader loader{whole, {.batch_size = 2}};
  (void)parx::train::samples_in(whole.fetch({}));
  float array[4] = {}, sum[4] = {};
  parx::all_reduce(world, array, sum);
  parx::reduce(world, array, sum);
  parx::scan(world, fixed, parx::view_of(y));
  parx::reduce_scatter(world, x, std::span(&y[0], 4), parx::user_op(lesser));
  parx::batch(world).send(std::span(fixed), 0).recv(parx::view_of(y), 0).run();
  parx::exscan(world, std::span(y));
  parx::scan(world, Eigen::Map<Eigen::VectorXf>(&y[0], 4));
  parx::all_gather(world, std::span(&k, 1), std::span(&k, 1));
  parx::broadcast(world, scores, {.root = 1});
  double mean = 0;
  parx::all_reduce(world, k, {.op = parx::reduce_op::max});
  parx::all_reduce(world, mean, parx::user_op([](double a, double b) { return a < b ? a : b; }));
  parx::broadcast(world, mean, {.root = 1});
  parx::async_reduce(world, k).wait();
  parx::all_gather(world, mean, images);
  parx::exscan(world, k);
  parx::send(world, 3, 1);
  parx::recv(world, k, 1);
  parx::async_all_reduce(world, std::span(&k, 1)).wait();
  Eigen::MatrixXf matrix(4, 4);
  parx::async_all_reduce(world, matrix.col(1)).wait();
  parx::async_all_gather(world, Eigen::Map<Eigen::VectorXf>(&y[0], 4), matrix).wait();
  parx::async_scatter(world, fixed, parx::view_of(x)).wait();
  parx::async_send(world, fixed, 1).wait();
  parx::async_broadcast(world, parx::view_of(x)).wait();
  parx::async_all_gather(world, fixed, std::span(y)).wait();
  parx::async_send(world, std::span(fixed), 1).wait();
  parx::send(world, fixed, 1, {.tag = 1});
  parx::all_reduce(world, x, y, {.op = parx::reduce_op::max});
  parx::gather_v(world, x, y, std::vector<int>{4, 4}, {.root = 1});
  const int sizes[] = {4, 4};
  parx::all_to_all_v(world, x, sizes, y, std::array<long, 2>{4, 4});
  parx::broadcast_object(world, text, {.root = 1});
  parx::optim::sgd of_parameters{model.parameters(), {.lr = 0.1}};
  parx::optim::sgd of_targets{of_parameters.targets()};
  parx::optim::sgd moved{std::move(of_parameters)};
  parx::optim::adamw of_groups{
      parx::optim::decay_groups(ddp.parameters(), parx::optim::adamw_options{})};
  parx::ddp elsewhere{std::move(ddp)};
  (void)parx::nn::cross_entropy(elsewhere(images), classes, {.row_weights = x});
  (void)parx::nn::mse_loss(model(images), images, {.row_weights = x});
  net.forward_backward(images, [&](auto& y, auto&) { return parx::nn::mse_loss(y, images); });
  parx::optim::clip_grad_norm(model.parameters(), 1.0);
  parx::save(ddp, "model.safetensors");
#endif
}
END
}
# As programs of the library read the headers, which is less to read.
set -- "$@" -DPARX_SEPARATE_COMPILATION -std=c++20 -fsyntax-only -x c++
said=$(program | "$@" - 2>&1) || { echo "$said"; exit 1; }
case $* in *clang*) set -- "$@" -ferror-limit=0 ;; esac  # it stops at 20
said=$(program | "$@" -DWRONG - 2>&1) && { echo "it compiles"; exit 1; }
errors() { grep 'error:' <<<"$said"; }
told() {  # told TIMES WORDS
  [ "$(errors | grep -c -e "$2")" = "$1" ] || { echo "not said $1 times: $2"; echo "$said"; exit 1; }
}
# Of calls that are wrong in the same way with the same types, compilers tell the first.
told 11 'a single struct k goes as std::span'
told 4 'options go in braces, by their names: {.root = 1}'
told 5 'options go in braces, by their names: .*your own goes as parx::user_op(function)'
told 2 'how two structs combine'
told 25 'this buffer is a temporary'
told 1 'does not take two elements'
told 4 'written to const elements'
told 1 'counts are a range of integers'
told 1 'a module with data members names its layers'
told 1 'the backward function takes the gradient of the result and a grad_sink'
told 1 'an evaluation returns its figures by name'
told 2 'a data set has size() and fetch'
told 1 'a batch for the trainer has count()'
told 1 'a trainer takes the model in its wrapper'
told 1 'a trainer over this wrapper needs its whole chapter: include <parx/fsdp.hpp>'
told 1 'the criterion of forward_backward returns a loss'
told 1 'this raw_module is of RawModuleIsOf'
told 2 'a parallel model takes the model by its name'
told 1 'the members of a batch are tensors'
told 1 'a criterion, or what makes figures, takes'
told 2 'print loss.mean()'
told 1 'a row of a variable is select'
told 1 'does not take what it is called with'
grep -q -e 'RawModuleIsOf = float; BufferHolds = int' -e 'explain_other_elements<float, int>' <<<"$said" ||
  { echo "the types of a raw_module and its buffer are not named"; echo "$said"; exit 1; }
told 2 'takes the parameters of a model'
told 1 'the learning rate is one of the options'
told 1 "these options are another optimizer's"
told 1 'an optimizer takes what it updates'
told 2 'labels are numbers of classes'
told 1 'the logits are what a model returns'
told 1 'parx::ddp ddp{model, world} wraps'
told 3 'a shape goes in braces'
told 1 'the parts go in braces: concat'
told 1 'its number is loss.mean()'
told 2 'an element of a tensor is'
told 1 'one flat range of numbers'
told 1 'the samples are a tensor<float>'
told 1 'the targets are a tensor'
told 1 'modules move but do not copy'
told 3 'sequential takes modules'
told 1 'takes the model and the group'
told 1 'save takes a model in its wrapper: '
told 1 'the order is load_state(model,'
told 1 'options go in braces: cross_entropy'
told 1 'options go in braces: loader'
told 1 'the batches of a loader are those of an epoch'
told 1 'a sampler takes the number of samples'
told 1 'gives each member the name'
told 1 "a file's header is csv_header::present"
told 1 "the target is a tensor or variable of the prediction's type"
told 1 'the prediction is what a model returns'
told 1 'clip_grad_norm takes the parameters'
told 1 'save takes a model in its wrapper, without the group'
told 1 'a parameter has value_type and const members'
told 1 'a row_sparse_parameter has const members'
told 1 'a grouped_parameter has reduction_group'
told 1 'with the world by reference'
told 1 'a placed_parameter has spec'
# A list in braces has no type, so no overload can take one with a misspelt name: the compilers' own
# lines name the options' type, and the name where that type stands before it.
told 1 "learning_rate"
grep -q 'convert .* to .*adamw_options' <<<"$said" ||
  { echo "no note names the options of a call with a misspelt one"; echo "$said"; exit 1; }
# Beside the sentence, that no loader, no ddp, ... can be made, and what follows from a call of a
# layer or a criterion that cannot be made, or of fmt.
others=$(errors | grep -v -e '::\(loader\|ddp\|sequential\|parallel\)(<brace' -e 'call to .*adamw(' \
  -e "arguments of '\(loader\|ddp\|sequential\)'" -e 'implicitly-deleted copy' \
  -e 'fmt/core.h' -e 'a parallel model is made of' -e 'parallel/model.hpp:.*\(no match\|captured\|inconsistent\)' \
  -e 'batch\(es\)\?.hpp:.*no member named' \
  -e 'nn/module.hpp:.*\(no viable conversion\|cannot convert\)')
[ "$(grep -c . <<<"$others")" = 114 ] || { echo "$others"; exit 1; }
