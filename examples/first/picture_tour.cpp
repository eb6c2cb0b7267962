// picture_tour: draws what a course draws, from runs on this machine.
//
//   PARX_TRANSPORT=tcp parxrun -n 2 picture_tour --folder examples/guide
//
// ring.svg: an all_reduce over a ring of 4 ranks, step by step. ddp_step.svg and fsdp_step.svg: a
// training step of these ranks, from their traces. The layers sleep instead of computing.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/options.hpp"
#include "ring_picture.hpp"
#include "traced_step.hpp"
#include <parx/comm.hpp>
#include <parx/ddp.hpp>
#include <parx/fsdp.hpp>
#include <parx/optim.hpp>

namespace {

using examples::sleeping_layer;

void write(const std::string& file, const std::string& svg) {
  std::ofstream out(file);
  out << svg;
  parx::require(out.flush().good(), "--folder: {} cannot be written", file);
}

std::string contents_of(const std::string& file) {
  std::ifstream in(file);
  parx::require(in.good(), "{} cannot be read", file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Collective. Traces the fourth step of `wrapped`; on rank 0 all ranks' rows, else none.
template <typename Wrapper>
std::vector<examples::lane> traced(parx::world& world, Wrapper& wrapped,
                                   const std::string& folder) {
  parx::optim::sgd optimizer{wrapped.parameters(), {.lr = 1e-3f}};
  const auto step = [&] {
    const parx::trace::span whole("step", "layer");
    auto y = wrapped(parx::variable<float>(parx::tensor<float>::ones({1})));
    sum(y).backward();
    const parx::trace::span update("update", "optim");
    optimizer.step();
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) step();
  const std::string file = parx::formatted("{}/picture_tour.{}.json", folder, world.rank());
  parx::trace::start({.path = file + ".%r"});
  parx::barrier(world);
  step();
  parx::trace::flush();
  parx::trace::stop();
  const std::string written = parx::trace::trace_file(file + ".%r", world.rank(), world.size());
  const auto all = parx::all_gather_object(world, contents_of(written));
  parx::trace::start({.path = file});  // forgets the events, which would be written again at exit
  parx::trace::stop();
  std::remove(written.c_str());
  std::vector<examples::lane> rows;
  for (int rank = 0; rank < world.size() && world.rank() == 0; ++rank) {
    for (auto& each : examples::lanes_of(all[static_cast<std::size_t>(rank)], rank)) {
      rows.push_back(std::move(each));
    }
  }
  return rows;
}

using part = std::pair<std::string_view, std::string>;
const part forward{"#4a86c8", "F: forward of a layer"};
const part backward{"#5aa55a", "B: backward"};
const part waiting{"#bbbbbb", "waits, updates"};

void draw_ring(const std::string& folder) {
  const auto steps = examples::run_ring();
  examples::check_ring(steps.back());
  write(folder + "/ring.svg", to_svg(steps));
}

void draw_ddp(parx::world& world, const std::string& folder, examples::milliseconds each) {
  parx::nn::sequential model{sleeping_layer(0, each), sleeping_layer(1, each),
                             sleeping_layer(2, each), sleeping_layer(3, each)};
  model.initialize(1);
  parx::ddp ddp{model, world, {.buckets = {.first_bytes = 1, .bytes = 1}}};
  const examples::lane_picture drawn{
      .title = "A step of ddp: gradients of one layer are summed while the layer before computes",
      .lanes = traced(world, ddp, folder),
      .legend = {forward, backward, {"#e08a3c", "all_reduce of a layer's gradients"}, waiting}};
  if (world.rank() == 0) write(folder + "/ddp_step.svg", to_svg(drawn));
}

void draw_fsdp(parx::world& world, const std::string& folder, examples::milliseconds each) {
  parx::nn::sequential model{sleeping_layer(0, each), sleeping_layer(1, each),
                             sleeping_layer(2, each), sleeping_layer(3, each)};
  parx::fsdp fsdp{model, world,
                  {.units = parx::by_type<sleeping_layer>,
                   .values = parx::value_storage::gathered}};
  const examples::lane_picture drawn{
      .title = "A step of fsdp: each layer, a unit, is gathered, computes, and is freed",
      .lanes = traced(world, fsdp, folder),
      .legend = {forward, backward, {"#2f9e9b", "all_gather of a unit"},
                 {"#e08a3c", "reduction of its gradients"}, waiting}};
  if (world.rank() == 0) write(folder + "/fsdp_step.svg", to_svg(drawn));
}

}  // namespace

int main(int argc, char** argv) {
  cxxopts::Options options("picture_tour", "What a course draws, from runs on this machine\n"
                           "Guide: examples/guide/train.md\n");
  options.add_options()("h,help", "print this")
      ("folder", "where the pictures go", examples::text("."))
      ("ms", "milliseconds of a layer's forward", examples::text("6"));
  return parx::run([&](parx::world& world) {
    const auto given = examples::parse(options, argc, argv);
    if (given.count("help") != 0) return parx::print0(world, "{}", options.help());
    const auto folder = given["folder"].as<std::string>();
    const examples::milliseconds each(examples::number(given, "ms", 0.1, 1000.0));
    if (world.rank() == 0) draw_ring(folder);
    draw_ddp(world, folder, each);
    draw_fsdp(world, folder, each);
  });
}
