#include <parx/ddp/raw.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <Eigen/Core>

#include <ddp/ranks.hpp>

#include <parx/comm/schedule/rules.hpp>
#include <parx/ddp.hpp>
#include <parx/optim.hpp>

namespace {

// One pass in which every element's gradient grows by `gradient`, or becomes it.
enum class raw_write { over, on_top };
void raw_step(parx::raw_module<float>& raw, double count, float gradient, raw_write how) {
  auto pass = raw.begin_backward(count);
  for (float& x : raw.grad(0)) x = how == raw_write::on_top ? x + gradient : gradient;
  pass.ready(0);
  pass.end();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_raw_module_sums_hand_written_gradients) {
  for (const int world : {1, 2, 3}) {
    const auto results = on_ranks(world, [&](parx::process_group& group) {
      std::vector<float> a(10, static_cast<float>(group.rank()));
      std::vector<float> b(3, 1);
      parx::raw_module<float> raw;
      const auto first = raw.add("a", a, {2, 5});
      const auto second = raw.add("b", b);
      parx::ddp ddp{raw, group};
      std::vector<float> result(a);  // rank 0's values by now
      const double count = group.rank() + 1;
      auto pass = raw.begin_backward(count);
      for (float& x : raw.grad(second)) x = static_cast<float>(count * 12);
      pass.ready(second);
      for (float& x : raw.grad(first)) x = static_cast<float>(count * 24);
      pass.ready(first);
      pass.end();
      result.insert(result.end(), raw.grad(first).begin(), raw.grad(first).end());
      result.insert(result.end(), raw.grad(second).begin(), raw.grad(second).end());
      return result;
    });
    std::vector<float> expected(10, 0);
    expected.insert(expected.end(), 10, 24);
    expected.insert(expected.end(), 3, 12);
    for (const auto& each : results) BOOST_TEST(each == expected, "world " << world);
  }
}

BOOST_AUTO_TEST_CASE(gradients_are_summed_in_the_order_that_the_options_ask_for) {
  // A rule for the ring, which begins each chunk at another rank; serial order is against it.
  parx::threads_options by_ring;
  by_ring.group.choice.rules = std::make_shared<const std::vector<parx::algorithm_rule>>(
      parx::parse_algorithm_list("all_reduce:ring"));
  const auto gradients = [&](parx::reduction_order order) {
    return on_ranks(3, [&](parx::process_group& group) {
      std::vector<float> w(3000, 1);
      parx::raw_module<float> raw;
      raw.add("w", w);
      parx::ddp ddp{raw, group, {.order = order}};
      constexpr float large = 1 << 24;  // and 1 more is rounded away
      constexpr float parts[] = {1, large, -large};
      raw_step(raw, group.rank() == 0 ? 2 : 1, parts[group.rank()], raw_write::over);
      return std::vector<float>(raw.grad(0).begin(), raw.grad(0).end());
    }, by_ring);
  };
  for (const auto& each : gradients(parx::reduction_order::serial)) {
    BOOST_TEST(each == std::vector<float>(3000, 0));
  }
  for (const auto& each : gradients(parx::reduction_order::any)) {
    BOOST_TEST(each != std::vector<float>(3000, 0));
  }
}

BOOST_AUTO_TEST_CASE(an_optimizer_steps_a_raw_module_made_before_or_after_the_wrapper) {
  for (const bool is_before : {true, false}) {
    const auto results = on_ranks(2, [&](parx::process_group& group) {
      std::vector<float> w(5, 1);
      parx::raw_module<float> raw;
      raw.add("w", w);
      std::optional<parx::optim::sgd<float>> optimizer;
      if (is_before) optimizer.emplace(raw.parameters(), parx::optim::sgd_options{.lr = 0.25});
      parx::ddp ddp{raw, group};
      if (!is_before) optimizer.emplace(ddp.parameters(), parx::optim::sgd_options{.lr = 0.25});
      for (int step = 0; step < 2; ++step) {
        auto pass = raw.begin_backward(2);
        for (float& x : raw.grad(0)) x = static_cast<float>(8 * group.rank());  // the mean is 2
        pass.ready(0);
        pass.end();
        optimizer->step();
      }
      return w;
    });
    for (const auto& each : results) BOOST_TEST(each == std::vector<float>(5, 0));
  }
}

BOOST_AUTO_TEST_CASE(a_raw_module_adds_micro_batches_up_and_can_discard_them) {
  for (const int world : {1, 2, 3}) {
    const auto results = on_ranks(world, [&](parx::process_group& group) {
      std::vector<float> w(5, 1);
      parx::raw_module<float> raw;
      raw.add("w", w);
      parx::ddp ddp{raw, group};
      std::vector<float> result;
      for (int step = 0; step < 2; ++step) {
        {
          const auto guard = ddp.no_sync();
          raw_step(raw, 5, 1000, raw_write::over);
          raw.zero_grad();
          raw_step(raw, 2, 12, raw_write::over);
        }
        raw_step(raw, 4, 24, raw_write::on_top);
        result.push_back(raw.grad(0)[4]);
      }
      return result;
    });
    for (const auto& each : results) {
      BOOST_TEST(each == (std::vector<float>{6, 6}), "world " << world);  // (12 + 24) / (2 + 4)
    }
  }
}

BOOST_AUTO_TEST_CASE(a_raw_pass_that_an_exception_leaves_does_not_disturb_the_next) {
  parx::run_threads(1, [](parx::process_group& group) {
    std::vector<float> w(5, 1);
    parx::raw_module<float> raw;
    raw.add("w", w);
    parx::ddp ddp{raw, group};
    {
      const auto guard = ddp.no_sync();
      raw_step(raw, 5, 1000, raw_write::over);
    }
    try {
      auto pass = raw.begin_backward(3);
      throw std::runtime_error("no gradient");
    } catch (const std::runtime_error&) {
    }
    parx::barrier(group);
    raw_step(raw, 4, 24, raw_write::over);
    if (raw.grad(0)[0] != 6) {
      throw std::runtime_error(fmt::format("{} is not 24 / 4", raw.grad(0)[0]));
    }
  });
}

BOOST_AUTO_TEST_CASE(a_raw_pass_that_one_rank_leaves_ends_all_ranks) {
  std::vector<std::string> texts(2);
  const auto run = [&] {
    parx::run_threads(2, [&](parx::process_group& group) {
      std::vector<float> w(5, 1);
      parx::raw_module<float> raw;
      raw.add("w", w);
      parx::ddp ddp{raw, group};
      auto pass = raw.begin_backward(1);
      if (group.rank() == 1) throw std::runtime_error("no gradient");
      pass.ready(0);
      try {
        pass.end();
      } catch (const parx::error& ended) {
        texts[0] = ended.what();
      }
    });
  };
  BOOST_CHECK_EXCEPTION(run(), std::runtime_error, [](const auto& cause) {
    return cause.what() == std::string("no gradient");
  });
  BOOST_TEST(texts[0].find("rank 1: no gradient") != std::string::npos, texts[0]);
  BOOST_TEST(texts[0].find("raw_test.cpp:") != std::string::npos, texts[0]);
}

BOOST_AUTO_TEST_CASE(a_ddp_that_goes_in_the_middle_of_a_pass_waits_for_its_sums) {
  const auto results = on_ranks(2, [](parx::process_group& group) {
    std::vector<float> w(5, 1);
    parx::raw_module<float> raw;
    raw.add("w", w);
    std::optional<parx::ddp<parx::raw_module<float>>> ddp;
    ddp.emplace(raw, group);
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    auto pass = raw.begin_backward(1);
    for (float& x : raw.grad(0)) x = group.rank() == 0 ? 10 : 20;
    pass.ready(0);
    ddp.reset();  // the gradient moves out of the bucket, which is still being written on rank 0
    return std::vector<float>(raw.grad(0).begin(), raw.grad(0).end());
  });
  for (const auto& each : results) BOOST_TEST(each == std::vector<float>(5, 15));
}

BOOST_AUTO_TEST_CASE(eigen_matrices_are_parameters_also_of_a_rank_whose_samples_have_run_out) {
  const auto results = on_ranks(3, [](parx::process_group& group) {
    const int samples = 2 * group.rank();  // 0, 2 and 4
    Eigen::MatrixXf weight = Eigen::MatrixXf::Constant(2, 3, static_cast<float>(group.rank() + 1));
    Eigen::VectorXf bias = Eigen::VectorXf::Zero(2);
    parx::raw_module<float> raw;
    const auto w = raw.add("weight", weight, {weight.cols(), weight.rows()});
    const auto b = raw.add("bias", bias);
    parx::ddp ddp{raw, group};
    const Eigen::MatrixXf upstream = Eigen::MatrixXf::Constant(2, samples, 12);
    auto pass = raw.begin_backward(samples);
    // Not rowwise().sum(), which adds to a null pointer where there is no column.
    Eigen::Map<Eigen::VectorXf>(raw.grad(b).data(), 2) = upstream * Eigen::VectorXf::Ones(samples);
    pass.ready(b);
    Eigen::Map<Eigen::MatrixXf>(raw.grad(w).data(), 2, 3) =
        upstream * Eigen::MatrixXf::Constant(samples, 3, 2);
    pass.ready(w);
    pass.end();
    std::vector<float> result(weight.data(), weight.data() + weight.size());
    result.insert(result.end(), raw.grad(w).begin(), raw.grad(w).end());
    result.insert(result.end(), raw.grad(b).begin(), raw.grad(b).end());
    return result;
  });
  std::vector<float> expected(6, 1);  // rank 0's values
  expected.insert(expected.end(), 6, 24);
  expected.insert(expected.end(), 2, 12);
  for (const auto& each : results) BOOST_TEST(each == expected);
}

BOOST_AUTO_TEST_CASE(a_matrix_with_gaps_is_no_parameter) {
  Eigen::MatrixXf weight = Eigen::MatrixXf::Zero(4, 4);
  auto corner = weight.topLeftCorner(2, 2);
  parx::raw_module<float> raw;
  BOOST_CHECK_THROW(raw.add("corner", corner), parx::usage_error);
}

BOOST_AUTO_TEST_CASE(forgetting_ready_names_the_parameter) {
  std::vector<float> a(4);
  parx::raw_module<float> raw;
  raw.add("embedding.weight", a);
  auto pass = raw.begin_backward(1);
  BOOST_CHECK_EXCEPTION(pass.end(), parx::usage_error, [](const auto& refused) {
    return std::string(refused.what()).find("embedding.weight") != std::string::npos;
  });
}
