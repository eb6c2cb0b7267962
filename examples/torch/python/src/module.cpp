// The extension module parx_torch._C: makes groups, and leaves the jobs when the program ends.
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "group.hpp"
#include "python_line.hpp"

namespace parx_torch {
namespace {

/// Jobs of this process. That of init_process_group("parx") is the whole, of which new_group()
/// makes subgroups. Where that has another backend, each group of parx is a job by itself.
std::mutex jobs_mutex;
std::vector<std::weak_ptr<job>> jobs;
std::weak_ptr<job> whole;

/// Collective over the members of the group.
c10::intrusive_ptr<backend> create(const c10d::DistributedBackendOptions& options,
                                   const pybind11::object& /*pg_options*/) {
  const pybind11::gil_scoped_release released;
  const auto limit = std::chrono::duration_cast<milliseconds>(options.timeout);
  std::vector<int> ranks(options.global_ranks_in_group.begin(),
                         options.global_ranks_in_group.end());
  const bool is_whole = ranks.empty();
  std::shared_ptr<job> of = is_whole ? nullptr : whole.lock();
  if (of == nullptr) {
    ranks.resize(static_cast<std::size_t>(options.group_size));
    std::iota(ranks.begin(), ranks.end(), 0);
    of = std::make_shared<job>(options.store, options.group_rank, options.group_size, limit);
    const std::lock_guard lock(jobs_mutex);
    std::erase_if(jobs, [](const auto& each) { return each.expired(); });
    jobs.push_back(of);
    if (is_whole) whole = of;
  }
  auto group_members =
      std::make_shared<members>(of, ranks, is_whole ? "world" : options.group_id, python_line());
  of->add(group_members);
  return c10::make_intrusive<group>(std::move(group_members), options.group_rank,
                                    options.group_size, limit);
}

/// Ends the groups of this process; `reason` why the program has failed, or nothing.
void leave(const std::string& reason) {
  const std::lock_guard lock(jobs_mutex);
  for (const auto& each : jobs) {
    if (const auto open = each.lock()) open->leave(reason);
  }
  jobs.clear();
}

}  // namespace
}  // namespace parx_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  const auto path = pybind11::module_::import("torch").attr("__path__")[pybind11::int_(0)];
  parx_torch::torch_folder = path.cast<std::string>() + '/';
  module.def("create", &parx_torch::create);
  module.def("leave", &parx_torch::leave, pybind11::call_guard<pybind11::gil_scoped_release>());
}
