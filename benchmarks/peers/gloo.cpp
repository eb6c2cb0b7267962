// The Gloo peer: the same measurement over Gloo's TCP transport.
//
//   BENCH_STORE=$(mktemp -d) parxrun -n 2 --tag-output=false peer-gloo -b 4 -e 64M --algo ring
//
// Ranks come from the launcher's variables; BENCH_STORE is an empty folder in which they find each
// other, BENCH_INTERFACE_ADDRESS this host's own address (127.0.0.1). all_reduce has three
// algorithms: ring (what Gloo and PyTorch choose), bcube and halving_doubling. Measure each in a
// process of its own: after other traffic on the same connections Gloo can fall into stalls of 40
// ms and more, in which one side waits for the other's delayed acknowledgement.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bench/options.hpp>
#include <bench/run.hpp>
#include <parx/core/env.hpp>
#include <parx/core/version.hpp>
#include <parx/launch/detect_launch.hpp>

namespace {

enum class algorithm : std::uint8_t { automatic, ring, bcube, halving_doubling };
constexpr std::array<std::string_view, 4> algorithm_names{"automatic", "ring", "bcube",
                                                          "halving_doubling"};

class gloo_backend final : public bench::backend {
 public:
  gloo_backend(const parx::launch_env& job, const parx::environment& env)
      : context_(std::make_shared<gloo::rendezvous::Context>(job.rank, job.world_size)) {
    const auto folder = parx::env_string(env, "BENCH_STORE");
    parx::require(folder.has_value(),
                  "peer-gloo: set BENCH_STORE to an empty folder that all ranks see");
    gloo::transport::tcp::attr address;
    address.hostname = parx::env_string(env, "BENCH_INTERFACE_ADDRESS").value_or("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(*folder);
    context_->setTimeout(std::chrono::minutes(2));
    context_->connectFullMesh(store, device);
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
  }
  [[nodiscard]] std::string network() const override { return "tcp"; }
  [[nodiscard]] int rank() const override { return context_->rank; }
  [[nodiscard]] int size() const override { return context_->size; }

  [[nodiscard]] bool has(bench::operation op, bench::placement where) const override {
    // Gloo's reduce_scatter leaves the result at the front of the input, which is not NCCL's.
    using bench::operation;
    if (!bench::is_meaningful(op, where) || op == operation::reduce_scatter) return false;
    if (op == operation::scan || op == operation::exscan) return false;
    const bool in_place = where == bench::placement::in_place;
    if (in_place && (op == operation::gather || op == operation::scatter)) return false;
    if (op != bench::operation::all_reduce) return use_ == algorithm::automatic;
    return use_ != algorithm::halving_doubling || where == bench::placement::in_place;
  }
  void require_support(parx::dtype type, parx::reduce_op reduction) const override {
    with_type(type, []<typename T>(std::type_identity<T>) {});
    static_cast<void>(function_of<float>(reduction));
  }
  void use(const std::string& name) override {
    const auto found = std::find(algorithm_names.begin(), algorithm_names.end(), name);
    parx::require(found != algorithm_names.end(), "--algo {}: Gloo's algorithms are {}", name,
                  fmt::join(algorithm_names, ", "));
    use_ = static_cast<algorithm>(found - algorithm_names.begin());
  }
  [[nodiscard]] bench::memory allocate(std::size_t bytes) override {
    return bench::ordinary_memory(bytes);
  }

  void run(const bench::call& given) override {
    if (given.op == bench::operation::barrier) return meet();
    with_type(given.output.type, [&]<typename T>(std::type_identity<T>) { run_with<T>(given); });
  }

  [[nodiscard]] bench::nonblocking* without_blocking() override { return nullptr; }
  void send_burst(parx::const_buffer_view message, int to, int count) override {
    auto data = context_->createUnboundBuffer(const_cast<void*>(message.data), message.bytes());
    for (int i = 0; i < count; ++i) {
      data->send(to, message_slot);
      data->waitSend();
    }
  }
  void receive_burst(parx::buffer_view message, int from, int count) override {
    auto data = context_->createUnboundBuffer(message.data, message.bytes());
    for (int i = 0; i < count; ++i) {
      data->recv(from, message_slot);
      data->waitRecv();
    }
  }

  void max_over_ranks(std::span<double> values) override { combine(values, parx::reduce_op::max); }
  void sum_over_ranks(std::span<double> values) override { combine(values, parx::reduce_op::sum); }
  void gather(std::span<const char> mine, std::span<char> all) override {
    gloo::AllgatherOptions with(context_);
    with.setInput(const_cast<char*>(mine.data()), mine.size());
    with.setOutput(all.data(), all.size());
    with.setTag(clock_tag);
    gloo::allgather(with);
  }

  /// The ranks leave together: a connection that one side has closed is an error on the other.
  void meet() {
    gloo::BarrierOptions with(context_);
    with.setTag(clock_tag);
    gloo::barrier(with);
  }

 private:
  static constexpr std::uint64_t message_slot = 0x5500000001;
  static constexpr std::uint32_t measured_tag = 1;
  static constexpr std::uint32_t clock_tag = 2;

  using function = void (*)(void*, const void*, const void*, std::size_t);

  template <typename F>
  static void with_type(parx::dtype type, F f) {
    switch (type) {
      case parx::dtype::float32: return f(std::type_identity<float>{});
      case parx::dtype::float64: return f(std::type_identity<double>{});
      case parx::dtype::int8: return f(std::type_identity<std::int8_t>{});
      case parx::dtype::uint8: return f(std::type_identity<std::uint8_t>{});
      case parx::dtype::int32: return f(std::type_identity<std::int32_t>{});
      case parx::dtype::int64: return f(std::type_identity<std::int64_t>{});
      case parx::dtype::uint64: return f(std::type_identity<std::uint64_t>{});
      default: parx::throw_usage("-d {}: Gloo has no such datatype", parx::name_of(type));
    }
  }
  template <typename T>
  [[nodiscard]] static function function_of(parx::reduce_op reduction) {
    switch (reduction) {
      case parx::reduce_op::sum: return &gloo::sum<T>;
      case parx::reduce_op::product: return &gloo::product<T>;
      case parx::reduce_op::min: return &gloo::min<T>;
      case parx::reduce_op::max: return &gloo::max<T>;
      default: parx::throw_usage("-o {}: Gloo has no such reduction", parx::name_of(reduction));
    }
  }
  template <typename T>
  [[nodiscard]] static const gloo::ReductionFunction<T>* prepared_function_of(
      parx::reduce_op reduction) {
    using functions = gloo::ReductionFunction<T>;
    switch (reduction) {
      case parx::reduce_op::product: return functions::product;
      case parx::reduce_op::min: return functions::min;
      case parx::reduce_op::max: return functions::max;
      default: return functions::sum;
    }
  }

  template <typename T>
  void run_with(const bench::call& given) {
    using bench::operation;
    auto* input = const_cast<T*>(static_cast<const T*>(given.input.data));
    auto* output = static_cast<T*>(given.output.data);
    const bool in_place = given.where == bench::placement::in_place;
    switch (given.op) {
      case operation::all_reduce:
        if (use_ == algorithm::halving_doubling) return halve_and_double<T>(given);
        all_reduce<T>(in_place ? nullptr : input, output, given.output.count, given.reduction,
                      measured_tag);
        return;
      case operation::all_gather: {
        gloo::AllgatherOptions with(context_);
        if (!in_place) with.setInput(input, given.input.count);
        with.setOutput(output, given.output.count);
        with.setTag(measured_tag);
        gloo::allgather(with);
        return;
      }
      case operation::broadcast: {
        gloo::BroadcastOptions with(context_);
        with.setOutput(output, given.output.count);
        with.setRoot(given.root);
        with.setTag(measured_tag);
        gloo::broadcast(with);
        return;
      }
      case operation::reduce: {
        // Without an input, Gloo takes the output on every rank for it.
        gloo::ReduceOptions with(context_);
        if (!in_place) with.setInput(input, given.input.count);
        with.setOutput(output, given.output.count);
        with.setReduceFunction(function_of<T>(given.reduction));
        with.setRoot(given.root);
        with.setTag(measured_tag);
        gloo::reduce(with);
        return;
      }
      case operation::gather: {
        gloo::GatherOptions with(context_);
        with.setInput(input, given.input.count);
        if (rank() == given.root) with.setOutput(output, given.output.count);
        with.setRoot(given.root);
        with.setTag(measured_tag);
        gloo::gather(with);
        return;
      }
      case operation::scatter: {
        gloo::ScatterOptions with(context_);
        if (rank() == given.root) {
          std::vector<T*> pieces;
          for (int to = 0; to < size(); ++to) {
            pieces.push_back(input + static_cast<std::size_t>(to) * given.output.count);
          }
          with.setInputs(pieces, given.output.count);
        }
        with.setOutput(output, given.output.count);
        with.setRoot(given.root);
        with.setTag(measured_tag);
        gloo::scatter(with);
        return;
      }
      case operation::all_to_all: {
        gloo::AlltoallOptions with(context_);
        with.setInput(input, given.input.count);
        with.setOutput(output, given.output.count);
        with.setTag(measured_tag);
        gloo::alltoall(with);
        return;
      }
      case operation::send_recv: {
        auto out = context_->createUnboundBuffer(input, given.input.bytes());
        auto in = context_->createUnboundBuffer(output, given.output.bytes());
        if (size() == 1) {
          std::memcpy(output, input, given.output.bytes());
          return;
        }
        in->recv((rank() + size() - 1) % size(), message_slot);
        out->send((rank() + 1) % size(), message_slot);
        in->waitRecv();
        out->waitSend();
        return;
      }
      case operation::reduce_scatter:
      case operation::scan:
      case operation::exscan:
      case operation::barrier: return;
    }
  }

  /// `input` is null in place.
  template <typename T>
  void all_reduce(T* input, T* output, std::size_t count, parx::reduce_op reduction,
                  std::uint32_t tag) {
    using options = gloo::AllreduceOptions;
    options with(context_);
    if (input != nullptr) with.setInput(input, count);
    with.setOutput(output, count);
    with.setReduceFunction(function_of<T>(reduction));
    with.setAlgorithm(use_ == algorithm::bcube ? options::Algorithm::BCUBE
                                               : options::Algorithm::RING);
    with.setTag(tag);
    gloo::allreduce(with);
  }

  /// An algorithm of Gloo's older kind: built for one buffer, then run as often as wanted.
  template <typename T>
  void halve_and_double(const bench::call& given) {
    const auto key =
        std::tuple(given.output.data, given.output.count, given.output.type, given.reduction);
    if (prepared_ == nullptr || key != prepared_for_) {
      prepared_ = std::make_unique<gloo::AllreduceHalvingDoubling<T>>(
          context_, std::vector<T*>{static_cast<T*>(given.output.data)},
          static_cast<int>(given.output.count), prepared_function_of<T>(given.reduction));
      prepared_for_ = key;
      // A rank that starts before its partner has built its own buffers would wait for ever.
      meet();
    }
    prepared_->run();
  }

  void combine(std::span<double> values, parx::reduce_op reduction) {
    all_reduce<double>(nullptr, values.data(), values.size(), reduction, clock_tag);
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  algorithm use_ = algorithm::automatic;
  std::unique_ptr<gloo::Algorithm> prepared_;
  std::tuple<void*, std::size_t, parx::dtype, parx::reduce_op> prepared_for_;
};

}  // namespace

int main(int argc, char** argv) {
  static constexpr int wrong_result = 1;
  static constexpr int wrong_usage = 2;
  const std::string version = "parx-bench for Gloo version " PARX_VERSION;
  try {
    const auto given = bench::parse_options("peer-gloo", version, argc, argv);
    if (!given) return 0;
    parx::require(!given->shared, "--shared: this is parx's own kind of memory");
    gloo_backend ranks(parx::detect_launch(), parx::process_environment());
    const std::size_t wrong = bench::run_all(ranks, *given, version);
    ranks.meet();
    return wrong > 0 ? wrong_result : 0;
  } catch (const parx::usage_error& wrong) {
    std::fprintf(stderr, "peer-gloo: %s\n", wrong.what());
    return wrong_usage;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "peer-gloo: %s\n", failure.what());
    return wrong_result;
  }
}
