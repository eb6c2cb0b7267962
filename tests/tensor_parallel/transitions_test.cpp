#include "../../examples/first/placements/transitions.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <ddp/ranks.hpp>
#include <tensor_parallel/dense.hpp>

#include <parx/autograd/checkpoint.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/tensor_parallel/axis.hpp>

using namespace parx::tp;
using parx::tensor;
using parx::variable;

namespace {

const parx::shape s{4, 7, 5};  // of the whole: no extent can be cut evenly by 2, 3 and 4

/// The tensor of each rank, and their sum.
struct summands {
  std::vector<tensor<float>> of;
  tensor<float> sum = tensor<float>::zeros(s);

  summands(int ranks, std::uint64_t seed) {
    for (int r = 0; r < ranks; ++r) {
      of.push_back(integers(s, seed + static_cast<std::uint64_t>(r)));
      sum = plus(sum, of.back());
    }
  }
  const tensor<float>& here(const axis& a) const { return of[static_cast<std::size_t>(a.rank())]; }
};

/// What is wrong on a rank, by name.
class findings {
 public:
  void check(bool right, const std::string& what) {
    if (!right) wrong_ += what + "; ";
  }
  /// y = transition(x) has this value, and x this gradient when y has `upstream`.
  template <typename X, typename Transition>
  void check(const std::string& what, const tensor<float>& x, Transition transition,
             const tensor<float>& value, const tensor<float>& upstream,
             const tensor<float>& gradient) {
    const variable<float> leaf(x, parx::gradient::wanted);
    const auto y = transition(X(leaf));
    check(equal(y.local().value(), value), what + " forward");
    y.local().backward_from(upstream);
    check(equal(leaf.grad(), gradient), what + " backward");
  }
  [[nodiscard]] const std::string& text() const { return wrong_; }

 private:
  std::string wrong_;
};

template <int Dim>
void check_dim(axis& a, findings& found) {
  const std::string at = " of axis " + std::to_string(Dim);
  const int n = a.size(), rank = a.rank();
  const summands values(n, 100), grads(n, 200);
  const tensor<float> whole = integers(s, 1), upstream = integers(s, 2);
  const auto own = [&](const tensor<float>& t) { return chunk_of(t, Dim, rank, n); };
  const std::size_t extent = whole.extent(Dim);
  using shard = sharded<float, Dim>;

  found.check<shard>(
      "gather_from" + at, own(whole), [&](const shard& x) { return gather_from(a, x, extent); },
      whole, upstream, own(upstream));
  found.check<shard>(
      "gather_from<replicated>" + at, own(whole),
      [&](const shard& x) { return gather_from<replicated>(a, x, extent); }, whole,
      grads.here(a), own(grads.sum));
  found.check<invariant<float>>(
      "scatter_to an invariant" + at, whole,
      [&](const invariant<float>& x) { return scatter_to<Dim>(a, x); }, own(whole), own(upstream),
      upstream);
  tensor<float> alone = upstream.clone();  // this rank's chunk, else zero
  for (int r = 0; r < n; ++r) {
    if (r == rank) continue;
    std::size_t begin = 0;
    for (int before = 0; before < r; ++before) begin += chunk_of(whole, Dim, before, n).extent(Dim);
    alone.slice(Dim, begin, begin + chunk_of(whole, Dim, r, n).extent(Dim)).fill(0);
  }
  found.check<replicated<float>>(
      "scatter_to a replicated" + at, whole,
      [&](const replicated<float>& x) { return scatter_to<Dim>(a, x); }, own(whole), own(upstream),
      alone);
  found.check<partial<float>>(
      "reduce_scatter_from" + at, values.here(a),
      [&](const partial<float>& x) { return reduce_scatter_from<Dim>(a, x); }, own(values.sum),
      own(upstream), upstream);
}

template <int From, int To>
void check_exchange(axis& a, findings& found) {
  const tensor<float> whole = integers(s, 1), upstream = integers(s, 2);
  using shard = sharded<float, From>;
  found.check<shard>(
      "all_to_all from " + std::to_string(From) + " to " + std::to_string(To),
      chunk_of(whole, From, a.rank(), a.size()),
      [&](const shard& x) { return all_to_all<To>(a, x, whole.extent(From)); },
      chunk_of(whole, To, a.rank(), a.size()), chunk_of(upstream, To, a.rank(), a.size()),
      chunk_of(upstream, From, a.rank(), a.size()));
}

template <typename Body>
void on_axes(Body body) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto found = on_ranks(ranks, [&](parx::process_group& group) {
      axis a{group};
      findings here;
      body(a, here);
      return here.text();
    });
    for (const std::string& wrong : found) BOOST_TEST(wrong == "", ranks << " ranks: " << wrong);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(whole_tensors_are_copied_and_summed_with_the_gradients_of_their_placement) {
  on_axes([](axis& a, findings& found) {
    const summands values(a.size(), 100), grads(a.size(), 200);
    const tensor<float> whole = integers(s, 1), upstream = integers(s, 2);
    found.check<invariant<float>>(
        "copy_to", whole, [&](const invariant<float>& x) { return copy_to(a, x); }, whole,
        grads.here(a), grads.sum);
    found.check<partial<float>>(
        "reduce_from", values.here(a), [&](const partial<float>& x) { return reduce_from(a, x); },
        values.sum, upstream, upstream);
    found.check<partial<float>>(
        "reduce_from<replicated>", values.here(a),
        [&](const partial<float>& x) { return reduce_from<replicated>(a, x); }, values.sum,
        grads.here(a), grads.sum);
  });
}

BOOST_AUTO_TEST_CASE(chunks_of_every_axis_are_gathered_scattered_and_reduced_also_uneven_ones) {
  on_axes([](axis& a, findings& found) {
    check_dim<0>(a, found);
    check_dim<1>(a, found);
    check_dim<-1>(a, found);
  });
}

BOOST_AUTO_TEST_CASE(all_to_all_leads_from_every_cut_to_every_other) {
  on_axes([](axis& a, findings& found) {
    check_exchange<0, 1>(a, found);
    check_exchange<1, 0>(a, found);
    check_exchange<1, -1>(a, found);
    check_exchange<-1, 1>(a, found);
  });
}

BOOST_AUTO_TEST_CASE(even_chunks_need_no_extent_and_others_are_refused_where_it_is_missing) {
  const auto refused = on_ranks(2, [](parx::process_group& group) -> std::string {
    axis a{group};
    const sharded<float, 0> even(integers({3, 2}, 1));
    if (gather_from(a, even).shape() != parx::shape{6, 2}) return "not six rows";
    try {
      (void)gather_from(a, even, 9);  // 5 and 4 rows
    } catch (const parx::usage_error& error) {
      return error.what();
    }
    return "";
  });
  BOOST_TEST(refused[0].find("rows 0-4 of [9, 2]") != std::string::npos, refused[0]);
}

BOOST_AUTO_TEST_CASE(what_is_computed_again_in_backward_is_not_sent_again) {
  // The ranks count what they send in forward, and in a recomputation of forward.
  const auto sent = on_ranks(2, [](parx::process_group& group) {
    axis a{group};
    const variable<float> x(integers({64}, 1), parx::gradient::wanted);
    const auto y = parx::checkpoint(
        [&](const variable<float>& z) {
          return reduce_from(a, partial(z * 2.0F)).local() * 3.0F;
        },
        x);
    const std::size_t forward = group.bytes_sent();
    y.backward_from(tensor<float>::ones({64}));
    const bool right = equal(x.grad(), tensor<float>::full({64}, 6));
    return std::vector<std::size_t>{forward, group.bytes_sent(), right ? 1U : 0U};
  });
  for (const auto& rank : sent) {
    BOOST_TEST(rank[0] > 0U);
    BOOST_TEST(rank[1] == rank[0]);
    BOOST_TEST(rank[2] == 1U);
  }
}
