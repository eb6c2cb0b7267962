// A run that is saved in one layout goes on in another: values, the optimizer's state and an
// average have the bits that they have without the break, and frozen parameters have no state.
// Random pairs of layouts: PARX_TEST_PAIRS says how many, PARX_TEST_SEED which is the first.
#include <parx/parallel.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <comm/jobs.hpp>
#include <data/support.hpp>
#include <messages.hpp>
#include <parallel/small.hpp>

#include <parx/checkpoint/save.hpp>
#include <parx/core/env.hpp>
#include <parx/core/hash.hpp>
#include <parx/optim/adamw.hpp>
#include <parx/optim/clip.hpp>
#include <parx/optim/ema.hpp>
#include <parx/optim/sgd.hpp>

namespace {

using parx::process_group;

constexpr int steps_before = 2, steps_after = 2;

/// On what the bits of values depend.
struct summation {
  int dp = 1, tp = 1, microbatches = 1, replicas = 0;
  bool sp = false;

  bool operator==(const summation&) const = default;
};
struct way {
  parx::layout how;
  int ranks = 1;
  summation sums;
  jobs::kind kind = jobs::kind::inproc;
};

class draw {
 public:
  explicit draw(std::uint64_t seed) : random_(seed) {}
  int below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
  template <typename T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<int>(all.size()))];
  }

 private:
  std::mt19937_64 random_;
};

summation drawn_sums(draw& random) {
  summation sums{.dp = random.one_of({1, 2, 2, 3}), .tp = random.one_of({1, 1, 2})};
  if (random.below(6) == 0) sums.replicas = random.one_of({2, 4});
  else sums.microbatches = random.one_of({1, 2, 4});
  if (sums.dp == 3) sums.tp = 1;
  if (sums.dp == 3) sums.replicas = 0;
  sums.sp = sums.tp > 1 && random.below(3) == 0;
  return sums;
}
/// Any layout that sums so, of at most eight ranks.
way drawn_way(draw& random, const summation& sums) {
  way made{.ranks = 0, .sums = sums};
  parx::layout& how = made.how;
  how = {.dp = sums.dp, .tp = sums.tp, .sp = sums.sp, .replicas = sums.replicas};
  if (sums.replicas == 0) how.microbatches = sums.microbatches;
  how.zero = random.below(4);
  if (how.zero == 3) how.gathered = random.below(3) == 0;
  do {
    how.pp = random.one_of({1, 2, 2, 3, 4});
  } while (how.pp * how.dp * how.tp > 8);
  if (how.pp > 1) {
    const bool in_halves = how.zero < 2;  // zb1p and zbv go with zero=1 alone
    how.schedule =
        random.one_of<const char*>({"gpipe", "1f1b", "eager_1f1b", in_halves ? "zb1p" : "1f1b"});
    const bool has_chunks = how.pp == 2 && random.below(3) == 0 && sums.replicas == 0;
    const bool is_even = sums.microbatches % 2 == 0 && sums.replicas == 0;
    if (has_chunks && (is_even || in_halves)) {
      how.chunks = 2;
      how.schedule = random.one_of<const char*>({is_even ? "interleaved" : "zbv",
                                                 is_even ? "looped_bfs" : "zbv",
                                                 in_halves ? "zbv" : "interleaved"});
    }
  }
  made.ranks = how.pp * how.dp * how.tp;
  if (how.zero == 3 && sums.dp == 2 && sums.replicas == 0 && random.below(3) == 0) {
    how.hybrid = true;
    made.kind = jobs::kind::hybrid;
  }
  return made;
}

enum class rule { adamw, momentum, plain };

/// A model, which parameters are frozen, and an optimizer.
struct program {
  bool is_tied = false;
  bool has_wide_table = false;  ///< which sharded layouts cut by rows
  rule by = rule::adamw;
  std::uint64_t seed = 0;

  [[nodiscard]] bool is_frozen(const std::string& path) const {
    return parx::detail::fnv1a(path, seed) % 4 == 0;
  }
};

using bytes = std::vector<std::byte>;
/// All tensors of a checkpoint, whole, by "part/name".
std::map<std::string, bytes> contents(const std::string& folder) {
  const auto saved = parx::saved_checkpoint::open(folder);
  std::map<std::string, bytes> all;
  const auto take = [&](const std::string& part, const auto& file) {
    for (const parx::stored_tensor& each : file.tensors()) {
      const parx::shard_spec whole = parx::detail::whole_spec(each);
      bytes& read = all[part + "/" + each.name];
      read.resize(whole.size() * parx::size_of(*each.type));
      parx::detail::read_part(file, each, whole, *each.type, read);
    }
  };
  for (const std::string part : {"model", "optimizer", "ema"}) {
    if (saved.contains(part + ".safetensors")) take(part, saved.tensors(part));
    else take(part, parx::safetensors_shards(folder, part));
  }
  return all;
}

/// What differs between two checkpoints; "" if nothing does.
std::string difference(const std::string& one, const std::string& other) {
  const auto a = contents(one), b = contents(other);
  std::string found;
  for (const auto& [name, values] : a) {
    const auto there = b.find(name);
    if (there == b.end()) found += name + " only in the first; ";
    else if (there->second != values) found += name + " differs; ";
  }
  for (const auto& [name, values] : b)
    if (!a.contains(name)) found += name + " only in the second; ";
  return found;
}

template <typename Model, typename Optimizer>
void run_steps(Model& model, Optimizer& opt, parx::optim::ema<float>& average, int first,
               int last) {
  const process_group& readers = model.data_group();
  for (int step = first; step < last; ++step) {
    (void)model.forward_backward(small::some(step, readers.rank(), readers.size()),
                                 small::criterion);
    parx::optim::clip_grad_norm(opt.targets(), 0.5);
    opt.step();
    average.update();
  }
}
template <typename Model, typename Optimizer>
void save(Model& model, Optimizer& opt, parx::optim::ema<float>& average,
          const std::string& folder) {
  parx::checkpoint_parts parts;
  add_training_state(model, opt, parts);
  add_part(model, "ema", average, parts);
  parx::save(model.job_group(), parts, folder);
}

/// Calls use(model, optimizer, average) on the ranks of `where`; what a rank said first.
template <typename Use>
std::string with_program(const program& what, const way& where, Use use) {
  const auto failures = jobs::run_collecting(where.kind, where.ranks, [&](process_group& world) {
    const auto run = [&](auto net) {
      net.for_each_parameter([&](const std::string& path, auto& each) {
        if (what.is_frozen(path)) each.freeze();
      });
      parx::parallel model{net, world, where.how};
      model.initialize(what.seed);
      const auto go = [&](auto opt) {
        parx::optim::ema average{model.parameters(), {.decay = 0.9}};
        use(model, opt, average);
      };
      using namespace parx::optim;
      if (what.by == rule::adamw) go(adamw{model.parameters(), adamw_options{.lr = 1e-2}});
      else if (what.by == rule::plain) go(sgd{model.parameters(), sgd_options{.lr = 1e-2}});
      else go(sgd{model.parameters(), sgd_options{.lr = 1e-2, .momentum = 0.9}});
    };
    auto gpt = small::tied_gpt().config();
    auto llama = small::llama().config();
    if (what.has_wide_table) gpt.vocab_size = llama.vocab_size = 9000;
    if (what.is_tied) run(parx::models::gpt<float>{gpt});
    else run(parx::models::llama<float>{llama});
  });
  for (const std::string& each : failures)
    if (!each.empty()) return each;
  return {};
}

/// Saves in `before`, goes on in `after`; what is wrong.
std::string fault_of(const program& what, const way& before, const way& after) {
  const parx_test::scratch_folder scratch;
  const std::string saved = scratch.file("saved"), again = scratch.file("again"),
                    straight = scratch.file("straight"), resumed = scratch.file("resumed");
  std::string fault = with_program(what, before, [&](auto& model, auto& opt, auto& average) {
    run_steps(model, opt, average, 0, steps_before);
    save(model, opt, average, saved);
    run_steps(model, opt, average, steps_before, steps_before + steps_after);
    save(model, opt, average, straight);
  });
  if (!fault.empty()) return "before: " + fault;
  fault = with_program(what, after, [&](auto& model, auto& opt, auto& average) {
    const auto from = parx::saved_checkpoint::open(saved);
    load_training_state(model, opt, from);
    load_part(model, "ema", average, from);
    save(model, opt, average, again);
    run_steps(model, opt, average, steps_before, steps_before + steps_after);
    save(model, opt, average, resumed);
  });
  if (!fault.empty()) return "after: " + fault;
  fault = difference(saved, again);
  if (!fault.empty()) return "loaded: " + fault;
  for (const auto& [name, values] : contents(saved)) {
    const std::string path = name.substr(name.find('/') + 1);
    const std::string parameter = path.substr(0, path.rfind('.'));
    const bool is_moment = name.starts_with("optimizer/") && !name.ends_with(".step");
    if (is_moment && (what.is_frozen(parameter) || what.by == rule::plain))
      return name + " has been saved, of zeros";
  }
  // Tables that are tied over stages, and looped BFS, add up in orders of their own.
  const auto adds_by_stages = [&](const way& each) {
    return each.how.pp > 1 && (what.is_tied || each.how.schedule == "looped_bfs");
  };
  const bool is_same =
      before.sums == after.sums && !adds_by_stages(before) && !adds_by_stages(after);
  if (!is_same) return {};
  fault = difference(straight, resumed);
  return fault.empty() ? "" : "gone on: " + fault;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_saved_in_one_layout_goes_on_in_another_with_its_bits) {
  const parx::environment given = parx::process_environment();
  const auto pairs = parx::env_number<std::uint64_t>(given, "PARX_TEST_PAIRS").value_or(12);
  const auto first = parx::env_number<std::uint64_t>(given, "PARX_TEST_SEED").value_or(1);
  for (std::uint64_t seed = first; seed < first + pairs; ++seed) {
    draw random(seed);
    const program what{.is_tied = random.below(3) == 0,
                       .has_wide_table = random.below(5) == 0,
                       .by = random.one_of({rule::adamw, rule::adamw, rule::momentum, rule::plain}),
                       .seed = seed};
    const way before = drawn_way(random, drawn_sums(random));
    const bool is_other = random.below(3) == 0;
    const way after = drawn_way(random, is_other ? drawn_sums(random) : before.sums);
    const std::string fault = fault_of(what, before, after);
    BOOST_TEST(fault == "", "PARX_TEST_SEED=" << seed
                                              << " PARX_TEST_PAIRS=1: " << to_string(before.how)
                                              << " to " << to_string(after.how) << ": " << fault);
  }
}
