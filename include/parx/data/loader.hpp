// loader: the batches of an epoch, fetched ahead by worker threads, in an order that does not
// depend on them.
//
//   parx::data::loader loader{set, model, {.batch_size = 8}};  // or a group: {set, world, {...}}
//   for (auto& batch : loader.epoch(e)) { ... }
//
// All ranks get the same number of batches. Leaving the loop early, by break or by an exception,
// stops and joins the workers. An exception in the data set's fetch() arrives in the loop, at its
// batch. A loader may be used for several epochs at a time; each epoch's range belongs to one
// thread.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
#include <parx/core/source.hpp>
#include <parx/data/dataset.hpp>
#include <parx/data/detail/prefetch.hpp>
#include <parx/data/sampler.hpp>
#include <parx/tensor/batch.hpp>

namespace parx::inline PARX_ABI::data {

/// Whether a last batch that is smaller than the others is used.
enum class last_batch { keep, drop };

struct loader_options {
  std::size_t batch_size = 32;  ///< samples of one rank, or virtual replica, in one batch
  /// In which order samples are taken, and what becomes of the rest.
  sampler_options samples = {};
  /// Which samples this rank takes, instead of `samples` and of what a model or a group says.
  std::optional<distributed_sampler> sampler = std::nullopt;
  data::last_batch last_batch = data::last_batch::keep;
  std::size_t workers = 1;   ///< threads that fetch ahead; 0: the loop itself fetches
  std::size_t prefetch = 4;  ///< batches that are fetched or waiting at a time
  /// False: batches have weights but no samples, for a rank that needs none. A loader for a model
  /// knows that of stages in the middle of a pipeline by itself.
  bool fetches = true;
};

/// Of whom a loader learns whose samples it takes: a model under parx::parallel or a wrapper, whose
/// data_group() are the ranks with other samples, or such a group itself.
template <typename Readers>
concept batch_readers = requires(Readers& model) { model.data_group(); } ||
                        requires(Readers& group) {
                          { group.rank() } -> std::convertible_to<int>;
                          { group.size() } -> std::convertible_to<int>;
                        };

namespace detail {

/// Throws usage_error for a batch none of whose tensors has a row for each sample that fetch() was
/// asked for. (Those of a graph's nodes may have others.)
template <typename Batch>
void require_fetched(const Batch& batch, std::size_t samples) {
  if constexpr (is_batch_of_tensors<Batch>) {
    const std::vector<std::size_t> rows = all_rows_of(batch);
    if (rows.empty() || std::find(rows.begin(), rows.end(), samples) != rows.end()) return;
    throw_usage(
        "the data set's fetch() was asked for {} samples, and the tensors of its batch have {} "
        "rows: it returns one row for each",
        samples, joined_text(rows));
  }
}

}  // namespace detail

/// The batches of one epoch: an input range over `Batch&`, valid until the next one is taken.
template <typename Batch>
class epoch_batches {
 public:
  class iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Batch& operator*() const { return *range_->current_; }
    Batch* operator->() const { return &*range_->current_; }
    iterator& operator++() {
      range_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t /*end*/) const noexcept { return !range_->current_; }

   private:
    friend epoch_batches;
    explicit iterator(epoch_batches* range) : range_(range) {}
    epoch_batches* range_;
  };

  template <typename Produce>
  epoch_batches(std::size_t count, std::size_t step, sample_position start,
                const loader_options& options, Produce produce)
      : count_(count),
        step_(step),
        start_(start),
        batches_(count, options.workers, options.prefetch, std::move(produce)) {}

  iterator begin() {
    if (taken_ == 0) advance();
    return iterator(this);
  }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

  /// The number of batches, the same on all ranks.
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// The position in training after the current batch. A checkpoint keeps it as
  /// distributed_sampler::state(). The same on all ranks.
  [[nodiscard]] sample_position position() const noexcept {
    return {start_.epoch, start_.consumed + taken_ * step_};
  }

 private:
  void advance() {
    current_.reset();
    current_ = batches_.next();
    if (current_) ++taken_;
  }

  std::size_t count_;
  std::size_t step_;
  sample_position start_;
  std::size_t taken_ = 0;
  detail::ordered_prefetch<Batch> batches_;
  std::optional<Batch> current_;
};

template <dataset Dataset>
class loader {
 public:
  using batch_type = batch_of<Dataset>;

  /// All samples, unless the options have a sampler: with a warning where they are shuffled, and so
  /// trained on, in a job of several ranks. Refers to `source`, which must outlive the
  /// loader. Throws usage_error when it has no samples, the batch size or the prefetch window is 0,
  /// the sampler was made for another number of samples, or last_batch::drop leaves no batch.
  explicit loader(const Dataset& source, loader_options options = {},
                  call_site site = call_site::current())
      : source_(&source),
        options_(std::move(options)),
        sampler_(options_.sampler ? *options_.sampler
                                  : distributed_sampler(source.size(), 0, 1, options_.samples)) {
    const auto at = [&] { return formatted("loader at {}", site); };
    require(options_.batch_size > 0, "{}: the batch size must be at least 1", at());
    require(options_.fetches || std::default_initializable<batch_type>,
            "{}: batches without samples (.fetches = false) need a default constructor", at());
    require(options_.prefetch > 0, "{}: the prefetch window must be at least 1", at());
    require(source.size() > 0,
            "{}: the data set has no samples, so there is no batch to take; was its file empty, "
            "or is its path or a filter wrong?",
            at());
    require(sampler_.size() == source.size(),
            "{}: the sampler was made for {} samples, but the data set has {}; make it with "
            "distributed_sampler{{dataset.size(), ...}}",
            at(), sampler_.size(), source.size());
    require(options_.last_batch == last_batch::keep || batches() > 0,
            "{}: last_batch::drop leaves no batch: this rank has {} samples, and a batch {}", at(),
            sampler_.per_rank(), options_.batch_size);
    const int ranks = logger::instance().world_size();
    const bool is_shuffled = options_.samples.order == sample_order::shuffled;
    if (ranks <= 1 || options_.sampler || !is_shuffled) return;
    log0(log_level::warn,
         "{}: each of the {} ranks will train on all {} samples. To deal them to the ranks, give "
         "the loader the model or a group of ranks: loader{{set, model, {{...}}}}",
         at(), ranks, source.size());
  }
  /// This rank's samples: those of its place among the ranks of the model, or of the group, that
  /// have other samples. Of a model with virtual replicas shuffled samples, which are to be trained
  /// on, are dealt to these; sequential ones, which are for evaluation, to the ranks. A rank of a
  /// model that needs no samples fetches none. Throws usage_error for a sampler in the options that
  /// deals to another number of replicas.
  template <batch_readers Readers>
  loader(const Dataset& source, Readers& readers, loader_options options = {},
         call_site site = call_site::current())
      : loader(source, dealt(source.size(), readers, std::move(options), site), site) {}
  explicit loader(const Dataset&& source, loader_options options = {}) = delete;
  template <batch_readers Readers>
  loader(const Dataset&& source, Readers& readers, loader_options options = {}) = delete;

  /// For other arguments: compile-time errors that say what to do.
  template <typename Options>
    requires(!std::same_as<Options, loader_options> && !batch_readers<Options>)
  loader(const Dataset& source, Options) : loader(source) {
    static_assert(std::is_void_v<Options>, "options go in braces: loader{set, {.batch_size = 32}}");
  }
  template <typename Batch = batch_type>
  [[nodiscard]] Batch* begin() const {
    static_assert(std::is_void_v<Batch>,
                  "the batches of a loader are those of an epoch: for (auto& batch : "
                  "loader.epoch(0)); loader.batches() is their number");
    return nullptr;
  }
  template <typename Batch = batch_type>
  [[nodiscard]] Batch* end() const {
    return nullptr;
  }

  /// The batches of `epoch`, after its first `consumed` samples. With virtual replicas a batch has
  /// the samples of the rank's first one, then those of its second, and so on.
  [[nodiscard]] epoch_batches<batch_type> epoch(std::uint64_t epoch,
                                                std::size_t consumed = 0) const {
    auto entries = sampler_.entries(epoch, consumed);
    const std::size_t size = options_.batch_size;
    const auto own = static_cast<std::size_t>(sampler_.own_parts().size());
    const std::size_t batches = count_batches(entries.size() / own);
    return {batches,
            size * sampler_.parts(),
            {epoch, consumed},
            options_,
            [source = source_, entries = std::move(entries), size, own,
             fetches = options_.fetches](std::size_t number) {
              const std::size_t begin = number * size;
              const std::size_t end = std::min(begin + size, entries.size() / own);
              std::vector<std::size_t> indices;
              auto weights = tensor<float>::empty({(end - begin) * own});
              for (std::size_t replica = 0; replica < own; ++replica) {
                for (std::size_t i = begin; i < end; ++i) {
                  const sample_entry& taken = entries[i * own + replica];
                  weights.data()[indices.size()] = taken.weight;
                  indices.push_back(taken.index);
                }
              }
              if constexpr (std::default_initializable<batch_type>) {
                if (!fetches) {
                  batch_type empty{};
                  empty.weights = std::move(weights);
                  return empty;
                }
              }
              batch_type made = source->fetch(indices);
              detail::require_fetched(made, indices.size());
              made.weights = std::move(weights);
              if constexpr (requires { made.apply_weights(); }) made.apply_weights();
              return made;
            }};
  }

  /// The batches after a position, which distributed_sampler::position(state) returns.
  [[nodiscard]] epoch_batches<batch_type> epoch(sample_position from) const {
    return epoch(from.epoch, from.consumed);
  }

  /// A loader of the same samples in the same order for the ranks of `group` (any class with rank()
  /// and size()), to finish an epoch that other ranks have begun.
  template <typename Group>
  [[nodiscard]] loader dealt_to(const Group& group) const {
    loader other = *this;
    other.sampler_ = distributed_sampler(sampler_.size(), group, sampler_.options());
    return other;
  }

  /// Batches in an epoch, the same on all ranks.
  [[nodiscard]] std::size_t batches() const noexcept { return count_batches(sampler_.per_rank()); }
  /// Samples of one rank, or virtual replica, in one batch.
  [[nodiscard]] std::size_t batch_size() const noexcept { return options_.batch_size; }
  [[nodiscard]] const distributed_sampler& sampler() const noexcept { return sampler_; }
  [[nodiscard]] const Dataset& source() const noexcept { return *source_; }

 private:
  template <typename Readers>
  static loader_options dealt(std::size_t size, Readers& readers, loader_options options,
                              call_site site) {
    if constexpr (requires { readers.needs_input(); }) {
      options.fetches = options.fetches && readers.needs_input();
    }
    if constexpr (requires { readers.layout().replicas; }) {
      const int wanted = readers.layout().replicas;
      auto& samples = options.samples;
      if (!options.sampler && samples.replicas == 0 && samples.order == sample_order::shuffled) {
        samples.replicas = wanted;
      }
      const sampler_options& taken = options.sampler ? options.sampler->options() : samples;
      require(taken.replicas == wanted ||
                  (taken.replicas == 0 && taken.order == sample_order::sequential),
              "loader at {}: the layout of the model has {} virtual replicas, and the sampler "
              "deals samples to {}: leave out .sampler, or give its options {{.replicas = {}}}",
              site, wanted, taken.replicas, wanted);
    }
    if (options.sampler) return options;
    if constexpr (requires { readers.data_group(); }) {
      options.sampler.emplace(size, readers.data_group(), options.samples);
    } else {
      options.sampler.emplace(size, readers, options.samples);
    }
    return options;
  }
  [[nodiscard]] std::size_t count_batches(std::size_t entries) const noexcept {
    const std::size_t size = options_.batch_size;
    return options_.last_batch == last_batch::drop ? entries / size : (entries + size - 1) / size;
  }

  const Dataset* source_;
  loader_options options_;
  distributed_sampler sampler_;
};

template <typename Dataset>
loader(const Dataset&, loader_options) -> loader<Dataset>;
template <dataset Dataset, batch_readers Readers>
loader(const Dataset&, Readers&, loader_options = {}) -> loader<Dataset>;
/// For a class that is not a data set: a compile-time error that says what is missing.
template <typename Other>
  requires(!dataset<Other>)
loader(const Other&, loader_options = {}) -> loader<detail::no_dataset<Other>>;
template <typename Other, batch_readers Readers>
  requires(!dataset<Other>)
loader(const Other&, Readers&, loader_options = {}) -> loader<detail::no_dataset<Other>>;

}  // namespace parx::data
