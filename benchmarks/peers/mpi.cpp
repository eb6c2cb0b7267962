// The MPI peer: the same measurement over the operations of an MPI library (Open MPI, MPICH, ...).
//
//   mpirun -np 2 peer-open-mpi -b 4 -e 64M
// The C interface is enough, and the old C++ one needs another library.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <string>

#include <fmt/format.h>

#include <bench/options.hpp>
#include <bench/run.hpp>
#include <parx/core/env.hpp>
#include <parx/core/version.hpp>

namespace {

class mpi_backend final : public bench::backend {
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
    return text.substr(0, text.find_first_of(",\n\t"));
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

  void run(const bench::call& given) override {
    using bench::operation;
    const bool in_place = given.where == bench::placement::in_place;
    const void* input = in_place ? MPI_IN_PLACE : given.input.data;
    void* output = given.output.data;
    const MPI_Datatype type = type_of(given.output.type);
    const int received = count_of(given.output.count);
    const int sent = count_of(given.input.count);
    switch (given.op) {
      case operation::all_reduce:
        MPI_Allreduce(input, output, received, type, operation_of(given.reduction), MPI_COMM_WORLD);
        return;
      case operation::reduce_scatter:
        MPI_Reduce_scatter_block(input, output, received, type, operation_of(given.reduction),
                                 MPI_COMM_WORLD);
        return;
      case operation::all_gather:
        MPI_Allgather(input, sent, type, output, sent, type, MPI_COMM_WORLD);
        return;
      case operation::broadcast:
        MPI_Bcast(output, received, type, given.root, MPI_COMM_WORLD);
        return;
      case operation::reduce:
        // Only the root may say MPI_IN_PLACE.
        MPI_Reduce(in_place && rank_ != given.root ? given.input.data : input, output, received,
                   type, operation_of(given.reduction), given.root, MPI_COMM_WORLD);
        return;
      case operation::send_recv:
        MPI_Sendrecv(given.input.data, sent, type, (rank_ + 1) % size_, 0, output, received, type,
                     (rank_ + size_ - 1) % size_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
      case operation::barrier: MPI_Barrier(MPI_COMM_WORLD); return;
    }
  }

  void max_over_ranks(std::span<double> values) override { combine(values, MPI_MAX); }
  void sum_over_ranks(std::span<double> values) override { combine(values, MPI_SUM); }
  void gather(std::span<const char> mine, std::span<char> all) override {
    const int count = count_of(mine.size());
    MPI_Allgather(mine.data(), count, MPI_CHAR, all.data(), count, MPI_CHAR, MPI_COMM_WORLD);
  }

 private:
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
};

}  // namespace

int main(int argc, char** argv) {
  static constexpr int wrong_result = 1;
  static constexpr int wrong_usage = 2;
  const std::string version = "parx-bench for MPI version " PARX_VERSION;
  MPI_Init(&argc, &argv);
  int code = 0;
  try {
    if (const auto given = bench::parse_options("peer", version, argc, argv)) {
      parx::require(given->algorithm == "automatic",
                    "--algo {}: the algorithms of an MPI library are chosen by its own variables",
                    given->algorithm);
      mpi_backend ranks;
      code = bench::run_all(ranks, *given, version) > 0 ? wrong_result : 0;
    }
  } catch (const parx::usage_error& wrong) {
    fmt::print(stderr, "{}\n", wrong.what());
    code = wrong_usage;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    MPI_Abort(MPI_COMM_WORLD, wrong_result);
  }
  MPI_Finalize();
  return code;
}
