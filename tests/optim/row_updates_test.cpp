// Embeddings give gradients to few rows. The oracle is the same optimizer over plain spans, which
// knows nothing of rows and is compared with PyTorch in optim_test.cpp.
#include <parx/optim.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>

#include <boost/test/unit_test.hpp>

#include <parx/nn.hpp>

#include "count_allocations.hpp"

using namespace parx;

namespace {

constexpr std::size_t rows = 90;
constexpr std::size_t width = 37;  // no multiple of anything

tensor<float> start_values() {
  auto values = tensor<float>::empty({rows, width});
  random_stream(7, "start").normal(values, 0.0F, 0.1F);
  return values;
}

/// Few rows of many: the low numbers often, the highest never.
tensor<int> batch(int step) {
  std::mt19937 random(static_cast<unsigned>(step));
  auto indices = tensor<int>::empty({4});
  for (int& index : indices) {
    const auto r = static_cast<double>(random()) / 4294967296.0;
    index = static_cast<int>(r * r * r * static_cast<double>(rows - 10));
  }
  return indices;
}

/// The same rows of a table as the batch and their gradient, which depends on their values.
struct table_run {
  explicit table_run(tensor<float> values = start_values()) : table("table", std::move(values)) {}

  void backward(int step) {
    const auto y = embedding<float>(table, batch(step));
    auto pull = tensor<float>::empty({4, width});
    random_stream(static_cast<std::uint64_t>(step), "pull").normal(pull, 0.0F, 1.0F);
    sum(y * y + y * variable<float>(pull)).backward();
  }
  parameter<float> table;
};

/// The oracle: values and gradients in plain memory, every row at every step.
template <typename Optimizer>
struct dense_run {
  template <typename Options>
  explicit dense_run(Options options)
      : values(start_values()),
        grads(tensor<float>::zeros({rows, width})),
        optimizer(std::vector{optim::target<float>("table", values.span(), grads.span())},
                  options) {}

  void step(int step) {
    const parameter<float> now("now", values.clone());
    const auto y = embedding<float>(now, batch(step));
    auto pull = tensor<float>::empty({4, width});
    random_stream(static_cast<std::uint64_t>(step), "pull").normal(pull, 0.0F, 1.0F);
    sum(y * y + y * variable<float>(pull)).backward();
    grads.copy_from(now.grad());
    optimizer.step();
  }
  tensor<float> values, grads;
  Optimizer optimizer;
};

bool same_bits(const tensor<float>& a, const tensor<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin());
}

double largest_difference(const tensor<float>& a, const tensor<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.data()[i]) - b.data()[i]));
  }
  return largest;
}

/// 600 steps with a learning rate that rises and falls, compared at the end.
template <typename Optimizer, typename Options>
void follows_dense(Options options) {
  const optim::lr_schedule schedule{
      .lr = options.lr, .warmup = 20, .steps = 600, .decay = optim::decay::cosine};
  dense_run<Optimizer> dense(options);
  table_run sparse;
  Optimizer optimizer(std::vector{sparse.table}, options);
  for (int step = 0; step < 600; ++step) {
    dense.optimizer.options().lr = optimizer.options().lr =
        schedule.at(static_cast<std::uint64_t>(step));
    sparse.backward(step);
    optimizer.step();
    dense.step(step);
  }
  BOOST_TEST(same_bits(sparse.table.value(), dense.values));
  BOOST_TEST(largest_difference(start_values(), dense.values) > 1e-2);
}

}  // namespace

BOOST_AUTO_TEST_CASE(deferred_adamw_is_dense_adamw_over_hundreds_of_scheduled_steps) {
  follows_dense<optim::adamw<float>>(optim::adamw_options{.lr = 3e-3});
  follows_dense<optim::adamw<float>>(optim::adamw_options{.lr = 3e-3, .weight_decay = 0});
  follows_dense<optim::adamw<float>>(
      optim::adamw_options{.lr = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.3});
}

BOOST_AUTO_TEST_CASE(deferred_sgd_is_dense_sgd_over_hundreds_of_scheduled_steps) {
  using optim::sgd_options;
  follows_dense<optim::sgd<float>>(sgd_options{.lr = 0.02});
  follows_dense<optim::sgd<float>>(sgd_options{.lr = 0.02, .weight_decay = 0.1});
  follows_dense<optim::sgd<float>>(sgd_options{.lr = 0.01, .momentum = 0.9});
  follows_dense<optim::sgd<float>>(
      sgd_options{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1,
                  .form = optim::momentum_form::nesterov});
}

// One rank evaluates or saves and others do not: they must stay equal.
BOOST_AUTO_TEST_CASE(when_and_by_whom_rows_are_read_changes_no_bit) {
  table_run quiet, watched;
  optim::adamw a(std::vector{quiet.table}, {.lr = 1e-2, .weight_decay = 0.1});
  optim::adamw b(std::vector{watched.table}, {.lr = 1e-2, .weight_decay = 0.1});
  std::optional<tensor<float>> kept;
  for (int step = 0; step < 700; ++step) {
    quiet.backward(step);
    a.step();
    watched.backward(step);
    b.step();
    if (step % 41 == 0) (void)watched.table.value();
    if (step % 13 == 0) (void)embedding<float>(watched.table, tensor<int>::full({1}, step % 80));
    if (step == 300) kept = watched.table.value();  // holds the optimizer to its memory
    if (step == 340) kept.reset();
  }
  BOOST_TEST(same_bits(quiet.table.value(), watched.table.value()));
}

// grad() may be written anywhere, so the next step looks at all of it.
BOOST_AUTO_TEST_CASE(asking_for_the_whole_gradient_changes_no_bit_and_writes_to_it_count) {
  table_run quiet, logged;
  optim::adamw a(std::vector{quiet.table}, {.lr = 1e-2, .weight_decay = 0.1});
  optim::adamw b(std::vector{logged.table}, {.lr = 1e-2, .weight_decay = 0.1});
  for (int step = 0; step < 500; ++step) {
    quiet.backward(step);
    logged.backward(step);
    if (step % 3 == 0) (void)logged.table.grad();
    a.step();
    b.step();
  }
  BOOST_TEST(same_bits(quiet.table.value(), logged.table.value()));
  logged.backward(0);
  logged.table.grad().at(rows - 1, 0) = 100;
  const float before = logged.table.value().at(rows - 1, 0);
  b.step();
  BOOST_TEST(logged.table.value().at(rows - 1, 0) < before - 1e-3F);
}

BOOST_AUTO_TEST_CASE(no_reader_ever_sees_a_row_that_is_behind) {
  dense_run<optim::adamw<float>> dense(optim::adamw_options{.lr = 1e-2, .weight_decay = 0.1});
  table_run by_value, by_handle, by_memory, by_copy;
  const tensor<float> handle = by_handle.table.value();
  std::vector<float> memory(rows * width);
  by_memory.table.bind_value(memory);
  optim::adamw optimizer(
      std::vector{by_value.table, by_handle.table, by_memory.table, by_copy.table},
      {.lr = 1e-2, .weight_decay = 0.1});
  for (int step = 0; step < 30; ++step) {
    for (table_run* run : {&by_value, &by_handle, &by_memory, &by_copy}) run->backward(step);
    optimizer.step();
    dense.step(step);
    const variable<float> copy = by_copy.table.detach();
    BOOST_TEST(same_bits(by_value.table.value(), dense.values));
    BOOST_TEST(same_bits(handle, dense.values));
    BOOST_TEST(same_bits(tensor<float>::wrap(memory, {rows, width}), dense.values));
    BOOST_TEST(same_bits(copy.value(), dense.values));
  }
}

BOOST_AUTO_TEST_CASE(pending_row_updates_are_applied_on_destruction_and_handover) {
  dense_run<optim::adamw<float>> dense(optim::adamw_options{.lr = 1e-2, .weight_decay = 0.1});
  table_run run;
  {
    optim::adamw first(std::vector{run.table}, {.lr = 1e-2, .weight_decay = 0.1});
    for (int step = 0; step < 20; ++step) {
      run.backward(step);
      first.step();
      dense.step(step);
    }
    auto moved = std::move(first);
    run.backward(20);
    moved.step();
    dense.step(20);
  }
  BOOST_TEST(same_bits(run.table.value(), dense.values));
  // Two of them in turns, each with its own state.
  table_run both;
  const auto plain = start_values();
  const auto grads = tensor<float>::zeros({rows, width});
  const std::vector target{optim::target<float>("table", plain.span(), grads.span())};
  optim::adamw a(std::vector{both.table}, {.weight_decay = 0.5});
  optim::sgd b(std::vector{both.table}, {.momentum = 0.5, .weight_decay = 0.5});
  optim::adamw dense_a(target, {.weight_decay = 0.5});
  optim::sgd dense_b(target, {.momentum = 0.5, .weight_decay = 0.5});
  for (int step = 0; step < 40; ++step) {
    both.backward(step);
    grads.fill(0);
    const auto found = both.table.row_grad();
    for (const std::size_t row : found->rows) {
      std::copy_n(found->values.data() + row * width, width, grads.data() + row * width);
    }
    if (step % 3 == 0) {
      b.step();
      dense_b.step();
    } else {
      a.step();
      dense_a.step();
    }
  }
  BOOST_TEST(same_bits(both.table.value(), plain));
}

BOOST_AUTO_TEST_CASE(a_table_that_also_has_a_dense_use_is_updated_whole) {
  dense_run<optim::adamw<float>> dense(optim::adamw_options{.lr = 1e-2});
  table_run run;
  optim::adamw optimizer(std::vector{run.table}, {.lr = 1e-2});
  for (int step = 0; step < 60; ++step) {
    run.backward(step);
    if (step % 10 == 7) {  // as a tied output projection
      run.table.zero_grad();
      sum(run.table * 0.5F).backward();
      dense.grads.fill(0.5F);
      dense.optimizer.step();
    } else {
      dense.step(step);
    }
    optimizer.step();
  }
  BOOST_TEST(same_bits(run.table.value(), dense.values));
}

BOOST_AUTO_TEST_CASE(a_run_resumed_from_saved_state_has_the_bits_of_the_uninterrupted_one) {
  table_run whole;
  optim::adamw uninterrupted(std::vector{whole.table}, {.lr = 1e-2, .weight_decay = 0.1});
  std::optional<tensor<float>> value;
  std::map<std::string, tensor<float>> tensors;
  std::uint64_t steps = 0;
  for (int step = 0; step < 500; ++step) {
    if (step == 250) {
      value = whole.table.value().clone();
      uninterrupted.for_each_state([&]<typename S>(const std::string& name, S& state) {
        if constexpr (std::is_same_v<S, std::uint64_t>) {
          steps = state;
        } else {
          tensors[name] = state.clone();
        }
      });
    }
    whole.backward(step);
    uninterrupted.step();
  }
  table_run resumed(*value);
  optim::adamw optimizer(std::vector{resumed.table}, {.lr = 1e-2, .weight_decay = 0.1});
  optimizer.for_each_state([&]<typename S>(const std::string& name, S& state) {
    if constexpr (std::is_same_v<S, std::uint64_t>) {
      state = steps;
    } else {
      state.copy_from(tensors.at(name));
    }
  });
  for (int step = 250; step < 500; ++step) {
    resumed.backward(step);
    optimizer.step();
  }
  BOOST_TEST(same_bits(resumed.table.value(), whole.table.value()));
}

// SparseAdam: only rows with a gradient move; their formula is Adam's with the common step count.
BOOST_AUTO_TEST_CASE(lazy_rows_are_those_of_sparse_adam) {
  const parameter<double> table("table", tensor<double>::ones({3, 1}));
  optim::adamw optimizer(std::vector{table}, {.lr = 0.1,
                                              .epsilon = 0,
                                              .weight_decay = 0,
                                              .rows = optim::row_updates::lazy});
  std::array<double, 3> w{1, 1, 1}, m{}, v{};
  for (int step = 1; step <= 12; ++step) {
    const int row = step % 2;  // never 2
    const double g = step % 3 - 1.5;
    sum(embedding<double>(table, tensor<int>::full({1}, row)) * g).backward();
    optimizer.step();
    const auto r = static_cast<std::size_t>(row);
    m[r] = 0.9 * m[r] + 0.1 * g;
    v[r] = 0.999 * v[r] + 0.001 * g * g;
    w[r] -= 0.1 * std::sqrt(1 - std::pow(0.999, step)) / (1 - std::pow(0.9, step)) * m[r] /
            std::sqrt(v[r]);
    for (std::size_t i = 0; i < 3; ++i) {
      BOOST_TEST(table.value().data()[i] == w[i], boost::test_tools::tolerance(1e-12));
    }
  }
}

BOOST_AUTO_TEST_CASE(clipping_looks_at_touched_rows_only_and_keeps_knowing_them) {
  table_run run;
  const parameter<float> other("other", tensor<float>::ones({5}));
  const std::vector parameters{run.table, other};
  run.backward(1);
  sum(other * 3.0F).backward();
  table_run same;
  same.backward(1);
  double squares = 5 * 9;
  for (const float g : same.table.grad()) squares += static_cast<double>(g) * g;
  BOOST_TEST(optim::clip_grad_norm(parameters, 0.5) == std::sqrt(squares),
             boost::test_tools::tolerance(1e-6));
  BOOST_TEST(run.table.touched_rows().has_value());
  BOOST_TEST(optim::grad_norm(optim::targets_of(parameters)) == 0.5,
             boost::test_tools::tolerance(1e-5));
}

BOOST_AUTO_TEST_CASE(a_step_over_rows_allocates_nothing_after_warm_up) {
  table_run run;
  optim::adamw optimizer(std::vector{run.table}, {.lr = 1e-2});
  const auto indices = batch(1);
  const auto step = [&] {
    sum(embedding<float>(run.table, indices)).backward();
    optim::clip_grad_norm(std::vector<optim::target<float>>{}, 1.0);
    optimizer.step();
  };
  for (int i = 0; i < 3; ++i) step();
  const std::size_t before = parx_test::allocations;
  for (int i = 0; i < 600; ++i) step();
  BOOST_TEST(parx_test::allocations == before);
}
