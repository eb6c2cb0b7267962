// What a program may do wrong with a ddp: each is an error that says what to do.
#include <parx/ddp.hpp>

#include <boost/test/unit_test.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include <ddp/exact.hpp>
#include <ddp/ranks.hpp>
#include <messages.hpp>

#include <parx/autograd.hpp>
#include <parx/nn.hpp>
#include <parx/optim.hpp>

namespace {

using namespace exact;

/// What the usage_error says that `call` throws; "" where it throws nothing.
template <typename Call>
std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (const parx::usage_error& refused) {
    return refused.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(backward_twice_without_step_is_refused) {
  std::string text;
  parx::run_threads(1, [&](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group};
    const auto backward = [&] { loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4).backward(); };
    backward();
    text = refusal_of(backward);
  });
  BOOST_TEST(text.find("first.weight") != std::string::npos, text);
  BOOST_TEST(text.find("no_sync") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_step_of_gradients_that_have_not_left_the_rank_is_refused) {
  for (const int world : {1, 2}) {
    parx::run_threads(world, [&](parx::process_group& group) {
      model m;
      parx::ddp ddp{m, group};
      parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1f}};
      const auto backward = [&] {
        loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4).backward();
      };
      {
        const auto guard = ddp.no_sync();
        backward();
      }
      const std::string said = parx_test::message_of([&] { opt.step(); });
      parx::require(parx_test::mentions(said, "usage: ", "under no_sync()"), "{}", said);
      backward();  // the last micro-batch
      opt.step();
      parx::require(ddp.replicas_equal(), "the ranks have different parameters");
    });
  }
}

BOOST_AUTO_TEST_CASE(a_loss_from_before_a_step_is_refused) {
  const auto told = on_ranks(2, [&](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group};
    parx::optim::sgd opt{ddp.parameters(), {.lr = 0.1f}};
    const auto loss = [&] { return loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4); };
    const auto old = loss();
    loss().backward();
    opt.step();
    std::string said = parx_test::message_of([&] { old.backward(); });
    loss().backward();  // nothing has started: the ranks go on
    return said;
  });
  for (const std::string& each : told) {
    BOOST_TEST(parx_test::mentions(each, "usage: backward at misuse_test.cpp:", ".weight\"",
                                   "before an optimizer's step changed it"),
               each);
  }
}

BOOST_AUTO_TEST_CASE(a_layer_that_is_frozen_on_one_rank_alone_is_refused_on_all) {
  const auto train = [](int world, auto freeze) {
    return on_ranks(world, [&](parx::process_group& group) {
      model m;
      parx::ddp ddp{m, group};
      return parx_test::message_of([&] {
        for (const int step : {0, 1}) {
          freeze(m, group.rank(), step);
          loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4).backward();
          ddp.zero_grad();
        }
      });
    });
  };
  for (const std::string& said : train(3, [](model& m, int rank, int step) {
         if (rank == 1 && step == 1) m.second.freeze();
       })) {
    BOOST_TEST(parx_test::mentions(said, "ddp at misuse_test.cpp:",
                                   "\"second.weight\" is frozen on rank 1 of 3",
                                   "Call freeze() on all ranks or on none"),
               said);
  }
  for (const std::string& said :
       train(3, [](model& m, int, int) { m.second.freeze(); }))
    BOOST_TEST(said == "nothing was thrown");
}

BOOST_AUTO_TEST_CASE(a_refused_backward_names_the_ddp_and_leaves_the_group_open) {
  std::vector<std::string> texts(2);
  parx::run_threads(2, [&](parx::process_group& group) {
    model m;
    parx::ddp ddp{m, group};
    const auto backward = [&] { loss_of(ddp(integers(4, 6, 1)), integers(4, 3, 2), 4).backward(); };
    backward();
    texts[static_cast<std::size_t>(group.rank())] = refusal_of(backward);
    parx::barrier(group);
    m.zero_grad();
    backward();
  });
  for (const auto& text : texts) {
    BOOST_TEST(text.find("ddp at misuse_test.cpp:") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_CASE(alone_a_failed_backward_closes_nothing_and_its_remains_are_refused) {
  std::string text;
  parx::run_threads(1, [&](parx::process_group& group) {
    model m;
    make_integer_valued(m);
    parx::ddp ddp{m, group};
    bool fail = true;
    const auto backward = [&] {
      const auto hidden = parx::relu(m.first(integers(16, 6, 1)));
      const auto fragile = parx::differentiable(
          hidden.value().clone(),
          [&](const tensor<float>& upstream, const parx::grad_sink<float>& sink) {
            if (fail) throw std::runtime_error("no");
            sink.add(upstream);
          },
          hidden);
      loss_of(m.second(fragile), integers(16, 3, 2), 16).backward();
    };
    try {
      backward();
    } catch (const std::runtime_error&) {
    }
    parx::barrier(group);  // throws where the group was closed
    fail = false;
    text = refusal_of(backward);
    m.zero_grad();
    backward();
    if (gradients_of(m) != single_process(false)) throw std::logic_error("other gradients");
  });
  BOOST_TEST(text.find("zero_grad()") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_second_ddp_of_a_model_is_refused_and_the_first_still_works) {
  std::vector<std::string> texts(2);
  const auto results = on_ranks(2, [&](parx::process_group& group) {
    model m;
    make_integer_valued(m);
    parx::ddp first{m, group};
    texts[static_cast<std::size_t>(group.rank())] =
        refusal_of([&] { parx::ddp second{m, group}; });
    const auto [begin, end] = rows_of(group.rank(), group.size());
    loss_of(first(integers(16, 6, 1).slice(0, begin, end)), integers(16, 3, 2).slice(0, begin, end),
            static_cast<double>(end - begin)).backward();
    return gradients_of(m);
  });
  for (const auto& text : texts)
    BOOST_TEST(text.find("another wrapper") != std::string::npos, text);
  for (const auto& each : results) BOOST_TEST(each == single_process(false));
}
