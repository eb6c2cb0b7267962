// group: parx as a process group of PyTorch: a c10d::Backend in 2.x, a c10d::ProcessGroup in 1.x.
//
// Each operation checks its arguments, and issues a function that blocks in parx's. Tensors that
// are not contiguous travel as copies. Elements keep their type, so that ranks which disagree about
// it are told. Threads: as parx: all ranks issue the same operations in the same order.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif
#undef CHECK

#include <parx/comm.hpp>
#include <parx/comm/collectives/coalesced.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "job.hpp"
#include "message_work.hpp"
#include "python_line.hpp"
#include "tensors.hpp"
#include "work_queue.hpp"

namespace parx_torch {

#if TORCH_VERSION_MAJOR >= 2
using backend = c10d::Backend;
#else
using backend = c10d::ProcessGroup;
#endif
using parx::call_site;
using work_ptr = c10::intrusive_ptr<c10d::Work>;

class group final : public backend {
 public:
  group(std::shared_ptr<members> ranks, int rank, int size, milliseconds limit)
      : backend(rank, size), members_(std::move(ranks)), limit_(limit) {
#if TORCH_VERSION_MAJOR < 2
    init();
#endif
  }
  /// Python may call it with its lock, which callbacks of the last futures need.
  ~group() override {
    std::optional<pybind11::gil_scoped_release> released;
    if (PyGILState_Check() != 0) released.emplace();
    members_->close();
    members_.reset();
  }
  const std::string getBackendName() const override { return "parx"; }

  work_ptr allreduce(tensors& data, const c10d::AllreduceOptions& options) override {
    if (data.size() == 1 && data[0].layout() == at::kSparse) return sparse_sum(data[0], options);
    require_one("all_reduce", data);
    const auto how = reduction_of("all_reduce", options.reduceOp, data[0]);
    return issue(c10d::OpType::ALLREDUCE, options.timeout, data, data,
                 [how](auto& ranks, const tensors& flat, milliseconds limit, call_site site) {
                   parx::all_reduce(ranks, view_of(flat[0]),
                                    {.op = how.op, .factor = how.factor, .timeout = limit}, site);
                 });
  }
  work_ptr allreduce_coalesced(tensors& data,
                               const c10d::AllreduceCoalescedOptions& options) override {
    parx::require(!data.empty(), "parx: all_reduce_coalesced is given no tensors");
    require_dense("all_reduce_coalesced", data);
    const auto how = reduction_of("all_reduce_coalesced", options.reduceOp, data[0]);
    return issue(c10d::OpType::ALLREDUCE_COALESCED, options.timeout, data, data,
                 [how](auto& ranks, const tensors& flat, milliseconds limit, call_site site) {
                   parx::all_reduce_coalesced(
                       ranks, views_of(flat),
                       {.op = how.op, .factor = how.factor, .timeout = limit}, site);
                 });
  }
  work_ptr broadcast(tensors& data, const c10d::BroadcastOptions& options) override {
    require_one("broadcast", data);
    return issue(c10d::OpType::BROADCAST, options.timeout, data, data,
                 [root = static_cast<int>(options.rootRank)](auto& ranks, const tensors& flat,
                                                             milliseconds limit, call_site site) {
                   parx::broadcast(ranks, view_of(flat[0]), {.root = root, .timeout = limit}, site);
                 });
  }
  work_ptr reduce(tensors& data, const c10d::ReduceOptions& options) override {
    require_one("reduce", data);
    const auto how = reduction_of("reduce", options.reduceOp, data[0]);
    return issue(c10d::OpType::REDUCE, options.timeout, data, data,
                 [how, root = static_cast<int>(options.rootRank)](
                     auto& ranks, const tensors& flat, milliseconds limit, call_site site) {
                   parx::reduce(
                       ranks, view_of(flat[0]),
                       {.root = root, .op = how.op, .factor = how.factor, .timeout = limit}, site);
                 });
  }

  work_ptr allgather(std::vector<tensors>& outputs, tensors& inputs,
                     const c10d::AllgatherOptions& options) override {
    require_one("all_gather", inputs);
    const tensors& out = one_list("all_gather", outputs);
    return issue(c10d::OpType::ALLGATHER, options.timeout, out, out,
                 [in = contiguous(inputs)](auto& ranks, const tensors& flat, milliseconds limit,
                                           call_site site) {
                   parx::all_gather_into(ranks, view_of(in[0]), views_of(flat), {.timeout = limit},
                                         site);
                 });
  }
  work_ptr _allgather_base(Tensor& output, Tensor& input,
                           const c10d::AllgatherOptions& options) override {
    tensors outputs{output}, inputs{input};
    return gather_each(c10d::OpType::_ALLGATHER_BASE, outputs, inputs, options);
  }
  /// Of each input i, rank r's comes into outputs[r][i].
  work_ptr allgather_coalesced(std::vector<tensors>& outputs, tensors& inputs,
                               const c10d::AllgatherOptions& options) override {
    require_dense("all_gather_coalesced", inputs);
    parx::require(outputs.size() == static_cast<std::size_t>(getSize()),
                  "parx: all_gather_coalesced has {} lists of outputs for {} ranks", outputs.size(),
                  getSize());
    tensors all;
    for (const tensors& each : outputs) {
      parx::require(each.size() == inputs.size(),
                    "parx: all_gather_coalesced has {} inputs, and {} outputs of a rank",
                    inputs.size(), each.size());
      all.insert(all.end(), each.begin(), each.end());
    }
    return issue(c10d::OpType::ALLGATHER_COALESCED, options.timeout, all, all,
                 [in = contiguous(inputs)](auto& ranks, const tensors& flat, milliseconds limit,
                                           call_site site) {
                   for (std::size_t i = 0; i < in.size(); ++i) {
                     tensors of_ranks;
                     for (std::size_t at = i; at < flat.size(); at += in.size()) {
                       of_ranks.push_back(flat[at]);
                     }
                     parx::all_gather_into(ranks, view_of(in[i]), views_of(of_ranks),
                                           {.timeout = limit}, site);
                   }
                 });
  }
  work_ptr reduce_scatter(tensors& outputs, std::vector<tensors>& inputs,
                          const c10d::ReduceScatterOptions& options) override {
    require_one("reduce_scatter", outputs);
    const tensors& in = one_list("reduce_scatter", inputs);
    const auto how = reduction_of("reduce_scatter", options.reduceOp, outputs[0]);
    return issue(c10d::OpType::REDUCE_SCATTER, options.timeout, outputs, outputs,
                 [how, in](auto& ranks, const tensors& flat, milliseconds limit, call_site site) {
                   parx::reduce_scatter_v(
                       ranks, view_of(joined(in)), view_of(flat[0]), counts_of(in),
                       {.op = how.op, .factor = how.factor, .timeout = limit}, site);
                 });
  }
  work_ptr _reduce_scatter_base(Tensor& output, Tensor& input,
                                const c10d::ReduceScatterOptions& options) override {
    tensors outputs{output}, inputs{input};
    return scatter_each(c10d::OpType::_REDUCE_SCATTER_BASE, outputs, inputs, options);
  }
#if TORCH_VERSION_MAJOR >= 2
  work_ptr allgather_into_tensor_coalesced(tensors& outputs, tensors& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return gather_each(c10d::OpType::COALESCED, outputs, inputs, options);
  }
  work_ptr reduce_scatter_tensor_coalesced(tensors& outputs, tensors& inputs,
                                           const c10d::ReduceScatterOptions& options) override {
    return scatter_each(c10d::OpType::COALESCED, outputs, inputs, options);
  }
#endif

  work_ptr gather(std::vector<tensors>& outputs, tensors& inputs,
                  const c10d::GatherOptions& options) override {
    require_one("gather", inputs);
    const bool is_root = getRank() == options.rootRank;
    const tensors out = is_root ? one_list("gather", outputs) : tensors();
    require_equal("gather", out, inputs[0]);
    return issue(c10d::OpType::GATHER, options.timeout, out, {},
                 [out, in = contiguous(inputs), root = static_cast<int>(options.rootRank)](
                     auto& ranks, const tensors&, milliseconds limit, call_site site) {
                   const Tensor all = at::empty({elements_of(out)}, in[0].options());
                   parx::gather(ranks, view_of(in[0]), view_of(all),
                                {.root = root, .timeout = limit}, site);
                   split(all, out);
                 });
  }
  work_ptr scatter(tensors& outputs, std::vector<tensors>& inputs,
                   const c10d::ScatterOptions& options) override {
    require_one("scatter", outputs);
    const bool is_root = getRank() == options.rootRank;
    const tensors in = is_root ? one_list("scatter", inputs) : tensors();
    require_equal("scatter", in, outputs[0]);
    return issue(c10d::OpType::SCATTER, options.timeout, outputs, outputs,
                 [in, root = static_cast<int>(options.rootRank)](
                     auto& ranks, const tensors& flat, milliseconds limit, call_site site) {
                   const Tensor all = in.empty() ? at::empty({0}, flat[0].options()) : joined(in);
                   parx::scatter(ranks, view_of(all), view_of(flat[0]),
                                 {.root = root, .timeout = limit}, site);
                 });
  }
  work_ptr alltoall_base(Tensor& output, Tensor& input, std::vector<std::int64_t>& output_splits,
                         std::vector<std::int64_t>& input_splits,
                         const c10d::AllToAllOptions& options) override {
    require_dense("all_to_all_single", {input, output});
    return issue(c10d::OpType::ALLTOALL_BASE, options.timeout, {output}, {output},
                 [in = contiguous({input}), to = counts_by(input, input_splits),
                  from = counts_by(output, output_splits)](auto& ranks, const tensors& flat,
                                                           milliseconds limit, call_site site) {
                   parx::all_to_all_v(ranks, view_of(in[0]), to, view_of(flat[0]), from,
                                      {.timeout = limit}, site);
                 });
  }
  work_ptr alltoall(tensors& outputs, tensors& inputs,
                    const c10d::AllToAllOptions& options) override {
    for (const tensors* each : {&outputs, &inputs}) {
      require_dense("all_to_all", *each);
      parx::require(each->size() == static_cast<std::size_t>(getSize()),
                    "parx: all_to_all is given a list of {} tensors for {} ranks", each->size(),
                    getSize());
    }
    return issue(
        c10d::OpType::ALLTOALL, options.timeout, outputs, {},
        [outputs, inputs](auto& ranks, const tensors&, milliseconds limit, call_site site) {
          const Tensor in = joined(inputs);
          const Tensor out = at::empty({elements_of(outputs)}, in.options());
          parx::all_to_all_v(ranks, view_of(in), counts_of(inputs), view_of(out),
                             counts_of(outputs), {.timeout = limit}, site);
          split(out, outputs);
        });
  }
  work_ptr barrier(const c10d::BarrierOptions& options) override {
    return issue(c10d::OpType::BARRIER, options.timeout, {}, {},
                 [](auto& ranks, const tensors&, milliseconds limit, call_site site) {
                   parx::barrier(ranks, {.timeout = limit}, site);
                 });
  }

  work_ptr send(tensors& data, int to, int tag) override {
    require_one("send", data);
    return begin_message(c10d::OpType::SEND, data[0].contiguous(),
                         [&, site = python_line()](auto& ranks, auto view) {
                           return parx::async_send(ranks, view, to, {.tag = tag, .timeout = limit_},
                                                   site);
                         });
  }
  work_ptr recv(tensors& data, int from, int tag) override {
    require_one("recv", data);
    return begin_message(
        c10d::OpType::RECV, data[0], [&, site = python_line()](auto& ranks, auto view) {
          return parx::async_recv(ranks, view, from, {.tag = tag, .timeout = limit_}, site);
        });
  }
  work_ptr recvAnysource(tensors& data, int tag) override {
    require_one("recv", data);
    return begin_message(
        c10d::OpType::RECVANYSOURCE, data[0], [&, site = python_line()](auto& ranks, auto view) {
          return parx::async_recv_any(ranks, view, {.tag = tag, .timeout = limit_}, site);
        });
  }

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return issued_; }

 private:
  [[nodiscard]] const tensors& one_list(const char* operation, const std::vector<tensors>& lists) {
    parx::require(lists.size() == 1 && lists[0].size() == static_cast<std::size_t>(getSize()),
                  "parx: {} is given {} lists of tensors, the first with {}, for {} ranks",
                  operation, lists.size(), lists.empty() ? 0 : lists[0].size(), getSize());
    require_dense(operation, lists[0]);
    return lists[0];
  }
  static void require_equal(const char* operation, const tensors& all, const Tensor& one) {
    for (const Tensor& each : all) {
      parx::require(each.numel() == one.numel() && each.scalar_type() == one.scalar_type(),
                    "parx: {} is given tensors of {} and of {} elements, or of two types",
                    operation, one.numel(), each.numel());
    }
  }
  /// Elements for each rank, of dimension 0 cut by `splits`, or evenly where there are none.
  [[nodiscard]] std::vector<std::size_t> counts_by(const Tensor& data,
                                                   const std::vector<std::int64_t>& splits) {
    const auto ranks = static_cast<std::size_t>(getSize());
    const std::int64_t rows = data.dim() == 0 ? 1 : data.size(0);
    const std::size_t row = rows == 0 ? 0 : view_of(data).count / static_cast<std::size_t>(rows);
    if (splits.empty()) {
      parx::require(rows % getSize() == 0,
                    "parx: all_to_all_single: dimension 0 is {}, which {} ranks do not divide",
                    rows, getSize());
      return std::vector<std::size_t>(ranks, static_cast<std::size_t>(rows) / ranks * row);
    }
    std::vector<std::size_t> counts;
    for (const std::int64_t each : splits) counts.push_back(static_cast<std::size_t>(each) * row);
    return counts;
  }

  work_ptr gather_each(c10d::OpType type, tensors& outputs, tensors& inputs,
                       const c10d::AllgatherOptions& options) {
    require_dense("all_gather_into_tensor", outputs);
    require_dense("all_gather_into_tensor", inputs);
    return issue(type, options.timeout, outputs, outputs,
                 [in = contiguous(inputs)](auto& ranks, const tensors& flat, milliseconds limit,
                                           call_site site) {
                   for (std::size_t i = 0; i < in.size(); ++i) {
                     parx::all_gather(ranks, view_of(in[i]), view_of(flat[i]), {.timeout = limit},
                                      site);
                   }
                 });
  }
  work_ptr scatter_each(c10d::OpType type, tensors& outputs, tensors& inputs,
                        const c10d::ReduceScatterOptions& options) {
    require_dense("reduce_scatter_tensor", outputs);
    require_dense("reduce_scatter_tensor", inputs);
    std::vector<reduction> how;
    for (const Tensor& each : inputs) {
      how.push_back(reduction_of("reduce_scatter_tensor", options.reduceOp, each));
    }
    return issue(type, options.timeout, outputs, outputs,
                 [how, in = contiguous(inputs)](auto& ranks, const tensors& flat,
                                                milliseconds limit, call_site site) {
                   for (std::size_t i = 0; i < in.size(); ++i) {
                     parx::reduce_scatter(
                         ranks, view_of(in[i]), view_of(flat[i]),
                         {.op = how[i].op, .factor = how[i].factor, .timeout = limit}, site);
                   }
                 });
  }
  /// The entries of all ranks, gathered and added: ranks may have entries at other places.
  work_ptr sparse_sum(const Tensor& data, const c10d::AllreduceOptions& options) {
    parx::require(options.reduceOp.op_ == c10d::ReduceOp::SUM,
                  "parx: all_reduce of a sparse tensor takes ReduceOp.SUM alone");
    return issue(
        c10d::OpType::ALLREDUCE, options.timeout, {data}, {},
        [data](auto& ranks, const tensors&, milliseconds limit, call_site site) {
          const at::NoGradGuard guard;
          const Tensor own = data.detach().coalesce();
          const std::int64_t entries = own._nnz();
          std::vector<std::int64_t> of_ranks(static_cast<std::size_t>(ranks.size()));
          parx::all_gather(ranks, entries, of_ranks, {.timeout = limit}, site);
          // Entries become the first dimension, so that ranks' parts are cut along it.
          const auto gather = [&](const Tensor& part) {
            tensors all;
            for (const std::int64_t each : of_ranks) {
              auto sizes = part.sizes().vec();
              sizes[0] = each;
              all.push_back(at::empty(sizes, part.options()));
            }
            parx::all_gather_into(ranks, view_of(part), views_of(all), {.timeout = limit}, site);
            return at::cat(all);
          };
          const Tensor indices = gather(own._indices().t().contiguous()).t();
          const Tensor values = gather(own._values().contiguous());
          Tensor(data).copy_(at::sparse_coo_tensor(indices, values, data.sizes()).coalesce());
        });
  }

  /// `received` are what `run` fills, of `results`; it gets them contiguous.
  template <typename Run>
  work_ptr issue(c10d::OpType type, milliseconds timeout, tensors results, const tensors& received,
                 Run run) {
    ++issued_;
    auto all = [of = members_.get(), received, flat = contiguous(received), run = std::move(run),
                site = python_line()](milliseconds limit) {
      run(of->collectives(), flat, limit, site);
      put_back(received, flat);
    };
    auto work = c10::make_intrusive<collective_work>(
        members_->queue(), getRank(), type, std::move(results),
        timeout > milliseconds(0) ? timeout : limit_, std::move(all));
    members_->queue()->submit(work);
    return work;
  }
  template <typename Issue>
  work_ptr begin_message(c10d::OpType type, const Tensor& data, Issue issue) {
    return c10::make_intrusive<message_work>(getRank(), type, members_->begin_message(data, issue));
  }

  std::shared_ptr<members> members_;
  const milliseconds limit_;
  std::atomic<std::uint64_t> issued_{0};
};

}  // namespace parx_torch
