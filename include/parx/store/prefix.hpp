// prefix_store: another store whose keys get a prefix, so that its users' keys do not collide.
//
// The key k becomes "prefix/k", as in PyTorch. When nested, the outermost prefix is next to the
// key: prefix_store("outer", prefix_store("inner", s)) turns k into "inner/outer/k".
//
// Borrows the other store, which must outlive it. Threads: as the other store.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/store/store.hpp>

namespace parx::inline PARX_ABI {

class prefix_store final : public store {
 public:
  prefix_store(std::string prefix, store& other) : prefix_(std::move(prefix)), other_(other) {
    set_default_timeout(other.default_timeout());
  }

  [[nodiscard]] std::string describe() const override {
    return formatted("prefix \"{}\" of {}", prefix_, other_.describe());
  }

 private:
  void do_set(std::string_view key, std::string_view value, deadline limit) override {
    return other_.set(full(key), value, limit);
  }
  std::string do_get(std::string_view key, deadline limit) override {
    return other_.get(full(key), limit);
  }
  std::int64_t do_add(std::string_view key, std::int64_t delta, deadline limit) override {
    return other_.add(full(key), delta, limit);
  }
  void do_wait(std::span<const std::string> keys, deadline limit) override {
    return other_.wait(full(keys), limit);
  }
  bool do_check(std::span<const std::string> keys, deadline limit) override {
    return other_.check(full(keys), limit);
  }
  std::string do_compare_set(std::string_view key, std::string_view expected,
                             std::string_view desired, deadline limit) override {
    return other_.compare_set(full(key), expected, desired, limit);
  }
  bool do_delete_key(std::string_view key, deadline limit) override {
    return other_.delete_key(full(key), limit);
  }
  std::int64_t do_num_keys(deadline limit) override { return other_.num_keys(limit); }
  void do_append(std::string_view key, std::string_view value, deadline limit) override {
    return other_.append(full(key), value, limit);
  }
  std::vector<std::string> do_multi_get(std::span<const std::string> keys,
                                        deadline limit) override {
    return other_.multi_get(full(keys), limit);
  }
  void do_multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                    deadline limit) override {
    return other_.multi_set(full(keys), values, limit);
  }
  std::unique_ptr<store_watch> do_watch(std::string_view key, deadline limit) override {
    return other_.watch(full(key), limit);
  }

  [[nodiscard]] std::string full(std::string_view key) const {
    return formatted("{}/{}", prefix_, key);
  }
  [[nodiscard]] std::vector<std::string> full(std::span<const std::string> keys) const {
    std::vector<std::string> result;
    result.reserve(keys.size());
    for (const std::string& key : keys) result.push_back(full(key));
    return result;
  }

  std::string prefix_;
  store& other_;
};

}  // namespace parx
