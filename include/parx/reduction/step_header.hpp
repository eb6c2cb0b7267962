// step_header: the numbers that are summed over the ranks of a reduction group ahead of a step's
// gradients; step_headers: those of all groups of a wrapper, and their sums.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/autograd/observer.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/comm/work.hpp>
#include <parx/core/error.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/reduction/reduction_group.hpp>
#include <parx/reduction/reduction_state.hpp>

namespace parx::inline PARX_ABI {

enum class parameter_use { unused, used, frozen };

class step_header {
 public:
  explicit step_header(std::size_t parameters) : values_(first_parameter + parameters) {}

  /// Samples of the step.
  [[nodiscard]] double& count() noexcept { return values_[0]; }
  [[nodiscard]] const double& count() const noexcept { return values_[0]; }
  /// Ranks that have raised their flag.
  [[nodiscard]] double& flags() noexcept { return values_[1]; }
  [[nodiscard]] const double& flags() const noexcept { return values_[1]; }
  /// The previous step's samples, summed over the ranks; the gradients were divided by it.
  [[nodiscard]] double& last_count() noexcept { return values_[2]; }
  [[nodiscard]] const double& last_count() const noexcept { return values_[2]; }
  /// A number below 2^32 that must be equal on all ranks; after the sum, their sum.
  [[nodiscard]] double& order_hash() noexcept { return values_[3]; }
  [[nodiscard]] const double& order_hash() const noexcept { return values_[3]; }
  /// Ranks whose samples nobody has counted, which weigh 1 each.
  [[nodiscard]] double& uncounted() noexcept { return values_[4]; }
  [[nodiscard]] const double& uncounted() const noexcept { return values_[4]; }
  /// `hash`, which is below 2^16, follows from the values of the group's parameters; 0 in a step
  /// that does not compare them.
  void set_values_hash(std::uint32_t hash) noexcept {
    values_[5] = hash;
    values_[6] = static_cast<double>(hash) * hash;
  }
  /// After the sum over `ranks`, at most 2^16: whether all had the same hash. By Cauchy-Schwarz the
  /// square of the sum is then, and only then, that of its parts, times their number.
  [[nodiscard]] bool has_equal_values(int ranks) const noexcept {
    const auto sum = static_cast<std::uint64_t>(values_[5]);
    return sum * sum == static_cast<std::uint64_t>(values_[6]) * static_cast<std::uint64_t>(ranks);
  }
  /// What this rank has done with parameter `i` of this group.
  void set_use(std::size_t i, parameter_use use) noexcept {
    values_[first_parameter + i] = use == parameter_use::used     ? 1
                                   : use == parameter_use::frozen ? frozen_rank
                                                                  : 0;
  }
  /// After the sum: ranks that have used it, and ranks on which it is frozen.
  [[nodiscard]] double users(std::size_t i) const noexcept {
    return std::floor(values_[first_parameter + i]);
  }
  [[nodiscard]] double frozen_ranks(std::size_t i) const noexcept {
    return (values_[first_parameter + i] - users(i)) / frozen_rank;
  }

  /// The factor from a sum over all samples to their mean; 0 if there are no samples.
  [[nodiscard]] double factor() const noexcept { return count() == 0 ? 0 : 1 / count(); }

  /// All of it, to be summed in place.
  [[nodiscard]] std::span<double> values() noexcept { return values_; }

 private:
  static constexpr std::size_t first_parameter = 7;
  /// Counts beside the users in one number, exactly for up to 2^26 ranks.
  static constexpr double frozen_rank = 0x1p-26;

  std::vector<double> values_;
};

/// Refuses a parameter that is frozen on some ranks of a wrapper only: its mean over all samples
/// would lack theirs, in silence. The header counts these ranks at no cost; only their names are
/// asked for once there is an error.
/// `parameter` has a name() and is_frozen(); `frozen_ranks` is the number of such ranks, the same
/// on all of `group`; `who` is the wrapper, "ddp at train.cpp:12", made at `site`. Throws
/// errc::mismatch on all ranks where some have frozen it and others have not.
template <typename Parameter>
void require_frozen_alike(process_group& group, std::string_view who,
                          const Parameter& parameter, double frozen_ranks, call_site site) {
  if (frozen_ranks == 0 || frozen_ranks == group.size()) [[likely]]
    return;
  const int here = parameter.is_frozen() ? 1 : 0;
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&here, 1), all, {}, site);
  std::vector<std::size_t> frozen;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != 0) frozen.push_back(rank);
  // Frozen on all since some ranks have accumulated gradients of it.
  if (frozen.size() == all.size()) return;
  throw_error(
      errc::mismatch,
      "{}: parameter \"{}\" is frozen on rank {} of {} and trained on the others: its "
      "gradient would lack their samples. Call freeze() on all ranks or on none",
      who, parameter.name(), joined_text(frozen), group.size());
}

/// Refuses a step in which some ranks count their samples and others do not: those of the former
/// would weigh as many times more, in silence. `uncounted` is the number of the latter among
/// `ranks`, `counted` this rank's way. Throws errc::mismatch on all ranks.
inline void require_counted_alike(std::string_view who, sample_count counted, double uncounted,
                                  int ranks) {
  if (uncounted == 0 || uncounted == ranks) [[likely]]
    return;
  throw_error(
      errc::mismatch,
      "{}: in one step {} of {} ranks called loss.backward(), whose loss would weigh as one "
      "sample, and the others backward(loss, count), as this rank {}. Give the count on all "
      "ranks or on none",
      who, uncounted, ranks, counted == sample_count::given ? "did" : "did not");
}

/// Threads: the one that runs backward.
class step_headers {
 public:
  /// `group_of` has the number of each parameter's group. `site` is where the wrapper was made.
  step_headers(reduction_groups groups, std::vector<std::size_t> group_of, reduction_order order,
               call_site site)
      : groups_(std::move(groups)), order_(order), site_(site), group_of_(std::move(group_of)),
        works_(groups_.size()) {
    std::vector<std::size_t> parameters(groups_.size());
    for (const std::size_t group : group_of_) numbers_.push_back(parameters[group]++);
    for (const std::size_t each : parameters) headers_.emplace_back(each);
  }

  [[nodiscard]] const reduction_groups& groups() const noexcept { return groups_; }
  [[nodiscard]] const std::string& who() const noexcept { return groups_.who(); }
  /// The header of the wrapper's own group: this rank's numbers before receive(), the sums after
  /// it, until the next send().
  [[nodiscard]] step_header& own() noexcept { return headers_[own_group]; }
  [[nodiscard]] const step_header& own() const noexcept { return headers_[own_group]; }
  /// Once the header has been received: the ranks that have used the parameter in this step.
  [[nodiscard]] double users(std::size_t parameter) const noexcept {
    return headers_[group_of_[parameter]].users(numbers_[parameter]);
  }
  /// Samples of the last step on all ranks; in the first one, which has none before it, of this
  /// step: then it blocks until the header has arrived.
  [[nodiscard]] double recent_count() {
    if (last_count_ == 0) {
      wait();
      last_count_ = own().count();
    }
    return last_count_;
  }

  /// How this rank's passes of the step that send() will speak of have counted their samples.
  void set_counted(sample_count how) noexcept { counted_ = how; }
  /// Collective over all groups, asynchronous. `parameters` have a name() and is_frozen().
  template <typename Parameters>
  void send(const reduction_state& state, const Parameters& parameters) {
    last_count_ = own().count();
    for (step_header& each : headers_) {
      each.count() = state.count();
      each.last_count() = last_count_;
      each.uncounted() = counted_ == sample_count::given ? 0 : 1;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const parameter_use otherwise =
          parameters[i]->is_frozen() ? parameter_use::frozen : parameter_use::unused;
      headers_[group_of_[i]].set_use(numbers_[i],
                                     state.is_used(i) ? parameter_use::used : otherwise);
    }
    if (groups_.is_alone()) return;
    for (std::size_t i = 0; i < works_.size(); ++i) {
      works_[i] = async_all_reduce(groups_[i], headers_[i].values(), {.order = order_}, site_);
    }
  }
  /// Blocks until the header of the own group has arrived; for test(), whether that is so.
  void wait() { works_[own_group].wait(); }
  [[nodiscard]] bool test() { return works_[own_group].test(); }
  /// Blocks until all headers have arrived. Throws errc::mismatch if they say that ranks of a group
  /// count different samples or do not count them, or have frozen different parameters.
  template <typename Parameters>
  void receive(const Parameters& parameters) {
    for (work& each : works_) each.wait();
    require_equal_counts();
    for (std::size_t i = 0; i < groups_.size(); ++i)
      require_counted_alike(who(), counted_, headers_[i].uncounted(), groups_[i].size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      require_frozen_alike(groups_[group_of_[i]], who(), *parameters[i],
                           headers_[group_of_[i]].frozen_ranks(numbers_[i]), site_);
    }
  }

 private:
  static constexpr std::size_t own_group = 0;

  /// If ranks divided the same sum by different counts, their parameters would silently diverge.
  /// The count that each has used is sent with the next step's header, at no cost.
  void require_equal_counts() const {
    const double count = own().last_count() / groups_[own_group].size();
    for (std::size_t group = 1; group < groups_.size(); ++group) {
      const double mean = headers_[group].last_count() / groups_[group].size();
      if (std::abs(mean - count) <= 1e-9 * count) continue;
      throw_error(errc::mismatch,
                  "ddp on reduction group \"{}\": this rank has divided the last step's gradients "
                  "by {} samples, but the ranks of the group by {} on average. All must count the "
                  "same samples; a pipeline's last stage counts, earlier stages receive the count",
                  groups_.name(group), count, mean);
    }
  }

  const reduction_groups groups_;
  const reduction_order order_;
  const call_site site_;
  const std::vector<std::size_t> group_of_;  ///< by parameter
  std::vector<std::size_t> numbers_;         ///< by parameter: its index among those of its group
  std::vector<step_header> headers_;         ///< by group
  double last_count_ = 0;  ///< samples of the last step on all ranks
  sample_count counted_ = sample_count::given;
  std::vector<work> works_;  // destroyed, and so waited for, before the headers that they write
};

}  // namespace parx
