// any_dataset: a data set whose type is chosen at run time; code that uses it is compiled once.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <parx/data/dataset.hpp>

namespace parx::inline PARX_ABI::data {

/// Holds a data set of class-labelled samples. Copies share it. Threads: as that data set.
class any_dataset {
 public:
  template <dataset D>
    requires(!std::same_as<D, any_dataset> && std::same_as<batch_of<D>, batch>)
  any_dataset(D source)  // NOLINT(google-explicit-constructor): any data set is one
      : held_(std::make_shared<const holder<D>>(std::move(source))) {}

  [[nodiscard]] std::size_t size() const { return held_->size(); }
  [[nodiscard]] batch fetch(std::span<const std::size_t> indices) const {
    return held_->fetch(indices);
  }

 private:
  struct base {
    virtual ~base() = default;
    virtual std::size_t size() const = 0;
    virtual batch fetch(std::span<const std::size_t> indices) const = 0;
  };
  template <typename D>
  struct holder final : base {
    explicit holder(D given) : source(std::move(given)) {}
    std::size_t size() const override { return source.size(); }
    batch fetch(std::span<const std::size_t> indices) const override {
      return source.fetch(indices);
    }
    D source;
  };

  std::shared_ptr<const base> held_;
};

}  // namespace parx::data
