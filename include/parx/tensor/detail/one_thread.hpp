// one_thread: keeps BLAS libraries from starting threads that nobody asked for.
//
// Ranks are processes, usually one per core; a BLAS that starts one thread for each core of the
// host in each of them makes everything slower. So where neither OMP_NUM_THREADS nor the library's
// own variable is set, the libraries are limited to one thread; so are OpenMP's within a block of
// parallel_for, whose threads are busy. The functions that do this are weak symbols, null where the
// program has no such library.
#pragma once

#include <cstdlib>

#include <parx/core/abi.hpp>
#include <parx/core/thread_pool.hpp>

extern "C" {
[[gnu::weak]] void openblas_set_num_threads(int count);
[[gnu::weak]] int omp_get_max_threads() noexcept;
[[gnu::weak]] void omp_set_num_threads(int count) noexcept;
}

namespace parx::inline PARX_ABI::detail {

/// Whether the user has chosen the number of threads. `variable` is the library's own variable.
[[nodiscard]] inline bool threads_are_chosen(const char* variable) noexcept {
  return std::getenv("OMP_NUM_THREADS") != nullptr || std::getenv(variable) != nullptr;
}

/// OpenBLAS has one number for the whole process; MKL and BLIS use OpenMP's, see below.
inline void hold_openblas_to_one_thread() noexcept {
  [[maybe_unused]] static const bool done = [] {
    if (openblas_set_num_threads != nullptr && !threads_are_chosen("OPENBLAS_NUM_THREADS")) {
      openblas_set_num_threads(1);
    }
    return true;
  }();
}

/// While it lives, OpenMP regions that this thread opens have one thread. The rest of the program
/// uses OpenMP's number for this thread as well, so the destructor restores it.
class one_openmp_thread {
 public:
  one_openmp_thread() noexcept {
    static const bool known = omp_set_num_threads != nullptr && omp_get_max_threads != nullptr;
    static const bool chosen = threads_are_chosen("OMP_NUM_THREADS");
    if (!known || (chosen && !thread_pool::is_inside())) return;
    before_ = omp_get_max_threads();
    if (before_ > 1) omp_set_num_threads(1);
  }
  ~one_openmp_thread() {
    if (before_ > 1) omp_set_num_threads(before_);
  }
  one_openmp_thread(const one_openmp_thread&) = delete;
  one_openmp_thread& operator=(const one_openmp_thread&) = delete;

 private:
  int before_ = 1;
};

}  // namespace parx::detail
