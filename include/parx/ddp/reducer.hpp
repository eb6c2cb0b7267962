// reducer: sums gradients over ranks while backward is still computing the next ones.
//
// Invariants. Buckets are launched strictly by index, whatever order gradients become ready in, so
// that every rank issues the same collectives. Gradients are sums over samples and the count of
// samples travels ahead of them: the engine divides each element once, when its last contribution
// arrives. Embeddings' gradients are added up apart, by rows (row_exchange); what else a bucket's
// gradients are sent as, a hook can tell. Either ends after backward, in the order of the buckets.
// A parameter that no rank used keeps its gradient absent; one that some rank used gets the mean
// everywhere, those who did not use it counting as zero.
// A backward pass that fails closes the group only when its sums are under way: until then the
// others wait for nothing.
// Where all ranks see each other's memory (one host), the buckets lie in a shared area, in which
// sums are made in place.
// Threads: called on the thread that runs backward.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/comm/abort_reason.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/comm/shared_buffer.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/log.hpp>
#include <parx/ddp/bucket.hpp>
#include <parx/ddp/gathered_rows.hpp>
#include <parx/ddp/hook.hpp>
#include <parx/ddp/shared_rows.hpp>
#include <parx/trace/event.hpp>

namespace parx::inline PARX_ABI {

/// Where the time of the backward passes so far has gone, on this rank.
struct ddp_times {
  double communication = 0;  ///< seconds for which gradients were on their way
  double waited = 0;         ///< seconds of these in which nothing was left to compute

  /// The share of the communication that computation hid; 1 where there was none.
  [[nodiscard]] double hidden() const noexcept {
    return communication > 0 ? std::clamp(1 - waited / communication, 0.0, 1.0) : 1;
  }
  [[nodiscard]] friend ddp_times operator-(ddp_times after, const ddp_times& before) noexcept {
    return {after.communication - before.communication, after.waited - before.waited};
  }
};

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

/// Of parameter_handle. A template, so that a program which includes ddp and wraps no model does
/// not compile it.
template <typename Handle>
class reducer final : public backward_observer {
 public:
  /// `site` is the ddp's place in the user's program: the sums that it starts are named by it.
  reducer(process_group& group, std::vector<std::unique_ptr<Handle>> parameters,
          const bucket_limits& limits, comm_hook hook, call_site site)
      : group_(group), site_(site), parameters_(std::move(parameters)), places_(parameters_.size()),
        hook_(std::move(hook)) {
    std::vector<bucket_parameter> sizes;
    for (const auto& each : parameters_) {
      sizes.push_back({each->type(), each->bytes(), row_exchange::suits(*each)});
    }
    std::vector<bucket_layout> layouts = assign_buckets(sizes, limits);
    std::byte* begin = make_memory(layouts);
    for (bucket_layout& layout : layouts) {
      bucket& made = buckets_.emplace_back();
      made.layout = std::move(layout);
      made.memory = std::exchange(begin, begin + made.layout.bytes);
      for (const bucket_item& item : made.layout.items) {
        places_[item.parameter] = {buckets_.size() - 1, made.memory + item.offset};
        const Handle& each = *parameters_[item.parameter];
        each.bind_grad(places_[item.parameter].memory);
        if (sizes[item.parameter].travels_alone && shared_.size() != 0) {
          const auto offset = static_cast<std::size_t>(made.memory - shared_.data());
          made.rows.reset(
              new shared_rows(group_, each, site_, shared_, offset, made.layout.bytes));
          begin += shared_rows::mark_bytes(each);
        } else if (sizes[item.parameter].travels_alone) {
          made.rows.reset(new gathered_rows(group_, each, site_));
        }
        made.tensors.push_back(
            {item.offset / size_of(each.type()), each.rows(), each.count() / each.rows()});
      }
    }
    // [0] is the count of samples, [1 + i] tells whether parameter i was used, the last one whether
    // a rank has raised its flag.
    control_.resize(2 + parameters_.size());
    used_.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->attach(this, i);
  }
  ~reducer() override {
    // Their sums may still be written to the memory that the parameters are about to leave.
    control_work_ = {};
    hook_ = {};
    for (bucket& each : buckets_) {
      each.sum = {};
      if (each.rows != nullptr) each.rows->settle();
    }
    for (const auto& each : parameters_) {
      each->detach_observer();
      each->unbind();
    }
  }
  reducer(const reducer&) = delete;
  reducer& operator=(const reducer&) = delete;

  /// Collective. Gives every rank the values of rank 0, a bucket's memory full at a time.
  void broadcast_values() {
    for (bucket& each : buckets_) {
      for (const bucket_item& item : each.layout.items) {
        const Handle& from = *parameters_[item.parameter];
        std::memcpy(each.memory + item.offset, from.value(), from.bytes());
      }
      broadcast(group_, each.view(), {.root = 0}, site_);
      for (const bucket_item& item : each.layout.items) {
        const Handle& to = *parameters_[item.parameter];
        std::memcpy(to.value(), each.memory + item.offset, to.bytes());
      }
      std::memset(each.memory, 0, each.layout.bytes);
    }
  }

  [[nodiscard]] std::uint64_t values_hash() const {
    std::uint64_t hash = fnv1a({});
    for (const auto& each : parameters_) {
      hash = fnv1a({static_cast<const char*>(each->value()), each->bytes()}, hash);
    }
    return hash;
  }

  /// While false, gradients are only added up on this rank.
  [[nodiscard]] bool& synchronising() noexcept { return synchronising_; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }
  [[nodiscard]] std::size_t bucket_bytes(std::size_t index) const noexcept {
    return buckets_[index].layout.bytes;
  }
  [[nodiscard]] const ddp_times& times() const noexcept { return times_; }
  void zero_grad() const {
    for (const auto& each : parameters_) each->zero_grad();
  }
  void raise_flag() noexcept { flag_ = true; }
  [[nodiscard]] bool flag_raised() const noexcept { return control_.back() > 0; }
  [[nodiscard]] std::vector<hook_memory> remembered_by_hook() {
    if (!hook_) return {};
    std::vector<hook_bucket> buckets;
    for (std::size_t i = 0; i < buckets_.size(); ++i) buckets.push_back(as_hooked(i));
    std::vector<hook_memory> all = hook_.memory(buckets);
    // The next step's scale is made of it.
    all.push_back({"samples_of_last_step", {&last_count_, 1, dtype::float64}, hook_share::equal});
    return all;
  }

  /// Alone and in one piece there is nothing to add up: backward may make the mean itself.
  [[nodiscard]] gradient_of wanted() const override {
    const bool is_whole = synchronising_ && (!accumulating_ || find_gradient() == nullptr);
    return group_.size() == 1 && is_whole ? gradient_of::mean : gradient_of::sum;
  }
  void begin_backward(const backward_start& start) override {
    const Handle* const held = find_gradient();
    require(!needs_clearing_ || held == nullptr,
            "ddp at {}:{}: the gradient of \"{}\" from the last step, or from a backward pass that "
            "failed, is still there, and adding to it would count it twice. Call optimizer.step() "
            "or zero_grad() between two backward passes, or add up micro-batches under no_sync()",
            site_.file_name(), site_.line, held != nullptr ? held->name() : std::string());
    // zero_grad() has discarded the micro-batches so far: what they counted goes with them.
    if (held == nullptr) start_over();
    needs_clearing_ = false;
    count_ += start.count;
    for (const std::size_t index : start.reached) used_[index] = 1;
    accumulating_ = true;
    if (!synchronising_) return;
    control_.back() = flag_.exchange(false) ? 1 : 0;
    divided_ = start.of == gradient_of::mean;
    if (divided_) return;
    try {
      start_sums(start.reached);
    } catch (...) {
      abandon_backward();
      throw;
    }
  }

  /// Allowed, but more often a layer that was forgotten: says so once, on the first rank.
  void unobserved(std::string_view name, std::span<const std::size_t> shape) override {
    if (std::exchange(knows_stranger_, true) || group_.rank() != 0) return;
    log(log_level::warn,
        "ddp at {}:{}: backward reaches parameter \"{}\" [{}], which the model does not name: its "
        "gradient stays this rank's own, and what is made from the model (an optimizer, a "
        "checkpoint) leaves it out. If it belongs to a layer of the model, that is missing in "
        "members()",
        site_.file_name(), site_.line, name, fmt::join(shape.begin(), shape.end(), ", "));
  }

  void leaf_ready(std::size_t index) override {
    if (!under_way_) return;
    --buckets_[places_[index].bucket].pending;
    launch_full_buckets();
  }

  void end_backward() override {
    if (under_way_) {
      require(next_ == buckets_.size(),
              "ddp at {}:{}: backward ended before all gradients were ready", site_.file_name(),
              site_.line);
      {
        const trace::span waiting("wait for gradients", "ddp");
        const auto from = std::chrono::steady_clock::now();
        finish_sums();
        times_.waited +=
            std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
        times_.communication += group_.async_seconds() - async_before_;
      }
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        // Also tells a row-sparse gradient that other rows than its own may be set now.
        if (control_[1 + i] > 0 && !buckets_[places_[i].bucket].by_rows) {
          parameters_[i]->assume_grad();
        }
      }
    }
    if (!under_way_ && !divided_) return;  // a micro-batch under no_sync()
    for (const auto& each : parameters_) {
      if (each->step() != nullptr) each->step()->end_step();
    }
    start_over();
    needs_clearing_ = true;
  }

  void before_step() const override {
    require(!accumulating_,
            "ddp at {}:{}: optimizer.step() would use gradients that were only added up on this "
            "rank, under no_sync(), and each rank would take a step of its own. Leave the last "
            "micro-batch's backward outside of no_sync(), also where an epoch ends early",
            site_.file_name(), site_.line);
  }

  void abandon_backward() noexcept override {
    const bool others_wait = under_way_ && group_.size() > 1;
    start_over();
    needs_clearing_ = true;
    if (!others_wait || group_.closed()) return;
    // They would wait for gradients that will not come.
    group_.abort(std::current_exception()
                     ? abort_reason(group_.rank())
                     : fmt::format("rank {}: an exception ended its backward pass; see its output",
                                   group_.rank()));
  }

 private:
  struct aligned_delete {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete(memory, std::align_val_t{bucket_alignment});
    }
  };
  struct bucket {
    bucket_layout layout;
    std::byte* memory = nullptr;
    std::vector<hook_tensor> tensors;
    std::unique_ptr<row_exchange> rows;  ///< of an embedding that travels alone
    bool by_rows = false;                ///< in this step
    std::size_t pending = 0;             ///< gradients that are not ready yet
    work sum;

    [[nodiscard]] buffer_view view() const noexcept {
      return {memory, layout.bytes / size_of(layout.type), layout.type};
    }
  };

  /// Where the gradient of a parameter lives.
  struct place {
    std::size_t bucket = 0;
    std::byte* memory = nullptr;
  };

  /// Collective. Zeroed memory for all buckets, one behind the other.
  [[nodiscard]] std::byte* make_memory(const std::vector<bucket_layout>& layouts) {
    std::size_t bytes = 0;
    for (const bucket_layout& each : layouts) {
      const Handle& first = *parameters_[each.items.front().parameter];
      bytes += each.bytes + (row_exchange::suits(first) ? shared_rows::mark_bytes(first) : 0);
    }
    if (group_.size() > 1 && group_.shares_memory()) {
      shared_ = allocate_shared<std::byte>(group_, bytes, site_);
      return shared_.data();
    }
    own_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{bucket_alignment})));
    std::memset(own_.get(), 0, bytes);
    return own_.get();
  }

  /// A parameter that has a gradient, or null.
  [[nodiscard]] const Handle* find_gradient() const {
    for (const auto& each : parameters_) {
      if (each->has_grad()) return each.get();
    }
    return nullptr;
  }

  /// Sends the counts ahead; parameters that this backward does not reach are ready as they are.
  void start_sums(std::span<const std::size_t> reached) {
    async_before_ = group_.async_seconds();
    control_[0] = count_;
    for (std::size_t i = 0; i < used_.size(); ++i) control_[1 + i] = used_[i];
    control_work_ = async_all_reduce(group_, control_, {}, site_);
    under_way_ = true;
    next_ = 0;
    for (bucket& each : buckets_) each.pending = each.layout.items.size();
    std::vector<unsigned char> is_reached(parameters_.size(), 0);
    for (const std::size_t index : reached) is_reached[index] = 1;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (is_reached[i] != 0) continue;
      bucket& its = buckets_[places_[i].bucket];
      if (its.rows == nullptr) clear_absent(i);
      --its.pending;
    }
    launch_full_buckets();
  }

  /// Others may have a gradient where this rank has none.
  void clear_absent(std::size_t i) {
    const Handle& absent = *parameters_[i];
    if (!absent.has_grad()) std::memset(places_[i].memory, 0, absent.bytes());
  }

  void launch_full_buckets() {
    for (; next_ < buckets_.size() && buckets_[next_].pending == 0; ++next_) {
      if (buckets_[next_].rows != nullptr) {
        buckets_[next_].rows->announce();
      } else {
        start_sum(next_);
      }
    }
    group_.poll();
  }

  void start_sum(std::size_t index) {
    bucket& leaving = buckets_[index];
    if (hook_) {
      if (last_count_ == 0) {
        control_work_.wait();
        last_count_ = control_[0];
      }
      hook_bucket hooked = as_hooked(index);
      hook_.start(hooked);
    } else {
      // The control sum was issued before, so its count is there when this sum starts to run.
      leaving.sum = async_all_reduce(group_, leaving.view(),
                                     {.op = reduce_op::sum, .divide_by = control_.data()}, site_);
    }
  }

  /// What is left to do after backward, and waiting for all of it.
  void finish_sums() {
    control_work_.wait();
    const auto is_used = [&](const bucket& one) {
      return control_[1 + one.layout.items.front().parameter] != 0;
    };
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      bucket& each = buckets_[i];
      if (each.rows == nullptr) continue;
      each.by_rows = each.rows->is_cheaper();
      if (!each.by_rows) {
        clear_absent(each.layout.items.front().parameter);
        start_sum(i);
      } else if (is_used(each)) {
        each.rows->start(control_[0] == 0 ? 0 : 1 / control_[0]);
      }
    }
    for (int round = 0; round < hook_.rounds(); ++round) {
      for (std::size_t i = 0; i < buckets_.size(); ++i) {
        if (buckets_[i].by_rows) continue;
        hook_bucket hooked = as_hooked(i);
        hooked.count = control_[0];
        hook_.proceed(hooked, round);
      }
    }
    for (bucket& each : buckets_) {
      each.sum.wait();
      if (each.by_rows && is_used(each)) each.rows->finish();
    }
    last_count_ = control_[0];
  }

  [[nodiscard]] hook_bucket as_hooked(std::size_t index) {
    const bucket& each = buckets_[index];
    // A power of two scales without rounding.
    const double scale = last_count_ > 0 ? std::ldexp(1.0, -std::ilogb(last_count_)) : 1;
    return {group_, site_, index, each.view(), each.tensors, scale, 0};
  }

  void start_over() noexcept {
    count_ = 0;
    accumulating_ = divided_ = under_way_ = false;
    std::fill(used_.begin(), used_.end(), static_cast<unsigned char>(0));
  }

  process_group& group_;
  const call_site site_;
  std::vector<std::unique_ptr<Handle>> parameters_;
  std::vector<place> places_;
  std::vector<double> control_;
  std::vector<unsigned char> used_;  ///< since the last synchronised step
  std::atomic<bool> flag_{false};    ///< raised, and not sent yet
  shared_buffer<std::byte> shared_;  ///< the buckets' memory, or
  std::unique_ptr<std::byte, aligned_delete> own_;
  std::vector<bucket> buckets_;
  comm_hook hook_;
  work control_work_;  // destroyed, and so waited for, before the memory it writes
  std::size_t next_ = 0;  ///< the bucket to launch next
  ddp_times times_;
  double async_before_ = 0;  ///< the group's seconds when this pass started its sums
  double last_count_ = 0;  ///< samples of the last synchronised step on all ranks
  double count_ = 0;      ///< samples since the last synchronised step
  bool accumulating_ = false;  ///< some gradients have not left this rank
  bool divided_ = false;    ///< this pass makes the mean itself, without communication
  bool under_way_ = false;  ///< this pass has started its sums
  bool needs_clearing_ = false;  ///< gradients that are there must not be added to
  bool knows_stranger_ = false;  ///< a parameter that is not the model's has been seen
  bool synchronising_ = true;
};

}  // namespace parx::detail
