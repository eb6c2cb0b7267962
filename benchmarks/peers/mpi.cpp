// The MPI peer: the same measurement over the operations of an MPI library (Open MPI, MPICH, ...).
//
//   mpirun -np 2 peer-open-mpi -b 4 -e 64M
//   mpirun.mpich -np 2 peer-mpich --mode latency
//
// BENCH_NETWORK names in the tables what the launcher's variables have chosen.
// The C interface is enough, and the old C++ one needs another library.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <bench/options.hpp>
#include <bench/run.hpp>
#include <parx/core/env.hpp>
#include <parx/core/version.hpp>

namespace {

class mpi_backend final : public bench::backend, public bench::nonblocking {
 public:
  mpi_backend() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  [[nodiscard]] std::string name() const override {
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    text.resize(static_cast<std::size_t>(length));
    std::replace(text.begin(), text.end(), '\t', ' ');
    return text.substr(0, text.find_first_of(",\n"));
  }
  [[nodiscard]] std::string network() const override {
    return parx::env_string(parx::process_environment(), "BENCH_NETWORK").value_or("default");
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] bool has(bench::operation op, bench::placement where) const override {
    // In place, MPI_Reduce_scatter_block leaves the result in the first chunk, not in the rank's
    // own.
    return bench::is_meaningful(op, where) &&
           !(op == bench::operation::reduce_scatter && where == bench::placement::in_place);
  }
  void require_support(parx::dtype type, parx::reduce_op reduction) const override {
    static_cast<void>(type_of(type));
    static_cast<void>(operation_of(reduction));
  }
  void use(const std::string& algorithm) override {
    parx::require(algorithm == "automatic",
                  "--algo {}: the algorithms of an MPI library are chosen by its own variables",
                  algorithm);
  }
  [[nodiscard]] bench::memory allocate(std::size_t bytes) override {
    return bench::ordinary_memory(bytes);
  }

  void run(const bench::call& given) override {
    using bench::operation;
    const arguments with(*this, given);
    switch (given.op) {
      case operation::all_reduce:
        MPI_Allreduce(with.input, with.output, with.received, with.type, with.reduction, world);
        return;
      case operation::reduce_scatter:
        MPI_Reduce_scatter_block(with.input, with.output, with.received, with.type, with.reduction,
                                 world);
        return;
      case operation::all_gather:
        MPI_Allgather(with.input, with.sent, with.type, with.output, with.sent, with.type, world);
        return;
      case operation::broadcast:
        MPI_Bcast(with.output, with.received, with.type, given.root, world);
        return;
      case operation::reduce:
        MPI_Reduce(with.input, with.output, with.received, with.type, with.reduction, given.root,
                   world);
        return;
      case operation::gather:
        MPI_Gather(with.input, with.sent, with.type, with.output, with.sent, with.type, given.root,
                   world);
        return;
      case operation::scatter:
        MPI_Scatter(with.input, with.received, with.type, with.output, with.received, with.type,
                    given.root, world);
        return;
      case operation::all_to_all:
        MPI_Alltoall(with.input, with.received / size_, with.type, with.output,
                     with.received / size_, with.type, world);
        return;
      case operation::scan:
        MPI_Scan(with.input, with.output, with.received, with.type, with.reduction, world);
        return;
      case operation::exscan:
        MPI_Exscan(with.input, with.output, with.received, with.type, with.reduction, world);
        return;
      case operation::send_recv:
        MPI_Sendrecv(with.input, with.sent, with.type, next(), 0, with.output, with.received,
                     with.type, previous(), 0, world, MPI_STATUS_IGNORE);
        return;
      case operation::barrier: MPI_Barrier(world); return;
    }
  }

  [[nodiscard]] bench::nonblocking* without_blocking() override { return this; }
  void start(const bench::call& given) override {
    using bench::operation;
    const arguments with(*this, given);
    pending_.assign(1, MPI_REQUEST_NULL);
    MPI_Request* request = pending_.data();
    switch (given.op) {
      case operation::all_reduce:
        MPI_Iallreduce(with.input, with.output, with.received, with.type, with.reduction, world,
                       request);
        return;
      case operation::reduce_scatter:
        MPI_Ireduce_scatter_block(with.input, with.output, with.received, with.type, with.reduction,
                                  world, request);
        return;
      case operation::all_gather:
        MPI_Iallgather(with.input, with.sent, with.type, with.output, with.sent, with.type, world,
                       request);
        return;
      case operation::broadcast:
        MPI_Ibcast(with.output, with.received, with.type, given.root, world, request);
        return;
      case operation::reduce:
        MPI_Ireduce(with.input, with.output, with.received, with.type, with.reduction, given.root,
                    world, request);
        return;
      case operation::gather:
        MPI_Igather(with.input, with.sent, with.type, with.output, with.sent, with.type, given.root,
                    world, request);
        return;
      case operation::scatter:
        MPI_Iscatter(with.input, with.received, with.type, with.output, with.received, with.type,
                     given.root, world, request);
        return;
      case operation::all_to_all:
        MPI_Ialltoall(with.input, with.received / size_, with.type, with.output,
                      with.received / size_, with.type, world, request);
        return;
      case operation::scan:
        MPI_Iscan(with.input, with.output, with.received, with.type, with.reduction, world,
                  request);
        return;
      case operation::exscan:
        MPI_Iexscan(with.input, with.output, with.received, with.type, with.reduction, world,
                    request);
        return;
      case operation::send_recv:
        pending_.push_back(MPI_REQUEST_NULL);
        MPI_Irecv(with.output, with.received, with.type, previous(), 0, world, &pending_[0]);
        MPI_Isend(with.input, with.sent, with.type, next(), 0, world, &pending_[1]);
        return;
      case operation::barrier: MPI_Ibarrier(world, request); return;
    }
  }
  void finish() override {
    MPI_Waitall(count_of(pending_.size()), pending_.data(), MPI_STATUSES_IGNORE);
  }

  void send_burst(parx::const_buffer_view message, int to, int count) override {
    pending_.assign(static_cast<std::size_t>(count), MPI_REQUEST_NULL);
    for (MPI_Request& each : pending_) {
      MPI_Isend(message.data, count_of(message.count), type_of(message.type), to, 1, world, &each);
    }
    finish();
  }
  void receive_burst(parx::buffer_view message, int from, int count) override {
    pending_.assign(static_cast<std::size_t>(count), MPI_REQUEST_NULL);
    for (MPI_Request& each : pending_) {
      MPI_Irecv(message.data, count_of(message.count), type_of(message.type), from, 1, world,
                &each);
    }
    finish();
  }

  void max_over_ranks(std::span<double> values) override { combine(values, MPI_MAX); }
  void sum_over_ranks(std::span<double> values) override { combine(values, MPI_SUM); }
  void gather(std::span<const char> mine, std::span<char> all) override {
    const int count = count_of(mine.size());
    MPI_Allgather(mine.data(), count, MPI_CHAR, all.data(), count, MPI_CHAR, MPI_COMM_WORLD);
  }

 private:
  static inline const MPI_Comm world = MPI_COMM_WORLD;

  /// A call in MPI's words.
  struct arguments {
    const void* input;
    void* output;
    int sent;
    int received;
    MPI_Datatype type;
    MPI_Op reduction;

    arguments(const mpi_backend& ranks, const bench::call& given)
        : input(given.input.data), output(given.output.data), sent(count_of(given.input.count)),
          received(count_of(given.output.count)), type(type_of(given.output.type)),
          reduction(operation_of(given.reduction)) {
      if (given.where == bench::placement::out_of_place) return;
      // Only the root may say MPI_IN_PLACE: of its input, and of its output in a scatter.
      if (bench::has_root(given.op) && ranks.rank_ != given.root) return;
      if (given.op == bench::operation::scatter) {
        output = MPI_IN_PLACE;
      } else {
        input = MPI_IN_PLACE;
      }
    }
  };

  [[nodiscard]] int next() const { return (rank_ + 1) % size_; }
  [[nodiscard]] int previous() const { return (rank_ + size_ - 1) % size_; }
  [[nodiscard]] static int count_of(std::size_t count) {
    parx::require(count <= INT_MAX, "{} elements are more than an MPI call can take", count);
    return static_cast<int>(count);
  }
  [[nodiscard]] static MPI_Datatype type_of(parx::dtype type) {
    switch (type) {
      case parx::dtype::float32: return MPI_FLOAT;
      case parx::dtype::float64: return MPI_DOUBLE;
      case parx::dtype::int8: return MPI_INT8_T;
      case parx::dtype::int16: return MPI_INT16_T;
      case parx::dtype::int32: return MPI_INT32_T;
      case parx::dtype::int64: return MPI_INT64_T;
      case parx::dtype::uint8: return MPI_UINT8_T;
      case parx::dtype::uint16: return MPI_UINT16_T;
      case parx::dtype::uint32: return MPI_UINT32_T;
      case parx::dtype::uint64: return MPI_UINT64_T;
      default: parx::throw_usage("-d {}: MPI has no such datatype", parx::name_of(type));
    }
  }
  [[nodiscard]] static MPI_Op operation_of(parx::reduce_op reduction) {
    switch (reduction) {
      case parx::reduce_op::sum: return MPI_SUM;
      case parx::reduce_op::product: return MPI_PROD;
      case parx::reduce_op::min: return MPI_MIN;
      case parx::reduce_op::max: return MPI_MAX;
      case parx::reduce_op::band: return MPI_BAND;
      case parx::reduce_op::bor: return MPI_BOR;
      case parx::reduce_op::bxor: return MPI_BXOR;
      default: parx::throw_usage("-o {}: MPI has no such reduction", parx::name_of(reduction));
    }
  }
  static void combine(std::span<double> values, MPI_Op reduction) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), count_of(values.size()), MPI_DOUBLE, reduction,
                  MPI_COMM_WORLD);
  }

  int rank_ = 0;
  int size_ = 1;
  std::vector<MPI_Request> pending_;
};

}  // namespace

int main(int argc, char** argv) {
  static constexpr int wrong_result = 1;
  static constexpr int wrong_usage = 2;
  const std::string version = "parx-bench for MPI version " PARX_VERSION;
  MPI_Init(&argc, &argv);
  int code = 0;
  try {
    if (const auto given = bench::parse_options("peer-mpi", version, argc, argv)) {
      parx::require(!given->shared, "--shared: this is parx's own kind of memory");
      mpi_backend ranks;
      code = bench::run_all(ranks, *given, version) > 0 ? wrong_result : 0;
    }
  } catch (const parx::usage_error& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    code = wrong_usage;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    MPI_Abort(MPI_COMM_WORLD, wrong_result);
  }
  MPI_Finalize();
  return code;
}
