// The records of ring attention: keys and values go round the ring of a group's ranks, backward with their gradients.

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/context_attention.h"
#include "strata/dist/collectives/context_blocks_inl.h"
#include "strata/dist/collectives/context_options_inl.h"
#include "strata/dist/group.h"
#include "strata/ops/attention/attention_definition_record.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

using detail::ContextBlock;
using strata::detail::AttentionArguments;
using Text = const std::string&;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

// A call as this rank sees it.
struct Ring {
  Group& group;
  int64_t n, rank, batch, length;
  WeightNumbers numbers;
  AttentionArguments whole;  // the options; what a block changes in them is in block()
  bool causal;

  Ring(const Tensor& q, STRATA_CONTEXT_ARGUMENTS)
      : group(distributed::group(group)),
        n(this->group.size()),
        rank(this->group.rank()),
        batch(q.size(0)),
        length(q.size(2)),
        numbers(detail::context_numbers(heads, q.size(1), n * length)),
        whole(detail::context_arguments(false, scale, window, dropout_p, key, soft_cap, group, heads, q, n)),
        causal(causal) {}

  // Whose keys are here in a step.
  int64_t source(int64_t step) const { return (rank - step + n) % n; }
  std::vector<ContextBlock> blocks(int64_t step) const {
    return detail::context_blocks(n, rank, source(step), length, causal, whole.window, whole.dropout_p > 0);
  }
  // A block's weights are dropped by the numbers that they have in one call of all positions.
  AttentionArguments arguments(const ContextBlock& b, int64_t step) const {
    AttentionArguments a = whole;
    a.is_causal = b.causal;
    a.query_offset = b.offset;
    if (a.dropout_p == 0) return a;
    const int64_t half = length / 2;
    const uint64_t first = numbers.of(0, 0, detail::chunk_begin(n, rank, b.q / half, half),
                                      detail::chunk_begin(n, source(step), b.k / half, half));
    a.numbers = {static_cast<int64_t>(first), numbers.batch, numbers.head, numbers.query};
    return a;
  }
  // Each rank's tensor to the next: begins, and says where what comes will be.
  std::pair<Work, Tensor> pass_on(const Tensor& own, const char* what) const {
    const Tensor coming = empty(like(own).with_shape(own.shape()));
    const auto to = static_cast<int>((rank + 1) % n), from = static_cast<int>((rank + n - 1) % n);
    Work w = group.start(own.device(), cat("ring_attention ", what, ' ', own.dtype(), ' ', own.shape()),
                         [=](Collectives& c) {
                           c.shift(coming.raw_data(), own.raw_data(), static_cast<size_t>(own.nbytes()), to, from);
                         },
                         {own, coming});
    return {std::move(w), coming};
  }
};

// Keys and values, or their gradients, behind one another in one tensor: one message a step.
struct Joined {
  Shape first, second;
  Joined(const Tensor& a, const Tensor& b) : first(a.shape()), second(b.shape()) {}
  int64_t split() const { return first[0] * first[1] * first[2] * first[3]; }
  int64_t numel() const { return split() + second[0] * second[1] * second[2] * second[3]; }
  Tensor a(const Tensor& both) const { return both.narrow(0, 0, split()).view(first); }
  Tensor b(const Tensor& both) const { return both.narrow(0, split(), numel() - split()).view(second); }
  Tensor of(const Tensor& x, const Tensor& y) const {
    const Tensor both = empty(like(x).with_shape({numel()}));
    copy_elements(a(both), x);
    copy_elements(b(both), y);
    return both;
  }
};

// Zeros where x is, whatever device new tensors are made on.
Tensor zeros_beside(const Tensor& x, const Shape& shape, DType dtype) {
  const Tensor z = empty({shape, dtype, x.device(), std::nullopt});
  fill_elements(z, 0);
  return z;
}

void add_to(const Tensor& sum, const Tensor& x) {
  copy_elements(sum, sum + x.to(sum.dtype()));
}

// What attention over some of the keys gave, put together with what others gave: in f32 (f64 for f64).
class Merged {
 public:
  Merged(const Tensor& out, const Tensor& lse) : out_(out), lse_(lse) {
    sum_ = zeros_beside(out, out.shape(), lse.dtype());
    fill_elements(lse, -std::numeric_limits<double>::infinity());
  }
  void add(const ContextBlock& b, const Tensor& out, const Tensor& lse) {
    const Tensor sum = sum_.narrow(2, b.q, b.queries), all = lse_.narrow(2, b.q, b.queries);
    const Tensor top = maximum(all, lse);
    const Tensor from = masked_fill(top, top == -std::numeric_limits<double>::infinity(), 0);  // nothing is seen yet
    const Tensor before = (all - from).exp(), now = (lse - from).exp(), total = before + now;
    // One of the terms is 1, unless nothing is seen: then both are 0.
    const Tensor share = total.clamp(1, std::nullopt);
    copy_elements(sum, sum * (before / share).unsqueeze(3) + out.to(sum.dtype()) * (now / share).unsqueeze(3));
    copy_elements(all, from + total.log());
  }
  void finish() const { copy_elements(out_, sum_); }

 private:
  Tensor out_, lse_, sum_;
};

void forward_there(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                   STRATA_CONTEXT_ARGUMENTS) {
  const Ring ring(q, STRATA_CONTEXT_NAMES);
  if (ring.n == 1) {
    AttentionArguments a = ring.whole;
    a.is_causal = causal;
    const auto [o, l] = strata::detail::attention_with_lse(q, k, v, {}, a);
    copy_elements(out, o);
    copy_elements(lse, l);
    return;
  }
  const Joined joined(k, v);
  Tensor here = joined.of(k, v);
  Merged merged(out, lse);
  for (int64_t step = 0; step < ring.n; ++step) {
    auto [work, coming] = step + 1 < ring.n ? ring.pass_on(here, "keys and values") : std::pair<Work, Tensor>();
    const Tensor keys = joined.a(here), values = joined.b(here);
    const std::vector<ContextBlock> blocks = ring.blocks(step);
    for (const ContextBlock& b : blocks) {
      const auto [o, l] =
          strata::detail::attention_with_lse(q.narrow(2, b.q, b.queries), keys.narrow(2, b.k, b.keys),
                                             values.narrow(2, b.k, b.keys), {}, ring.arguments(b, step));
      merged.add(b, o, l);
    }
    work.wait();
    here = coming;
  }
  merged.finish();
}

// A block's weights are made again from the lse of all keys, so its gradients are its share of the whole's.
void backward_there(Tensor& gq, Tensor& gk, Tensor& gv, const Tensor& gout, const Tensor& glse, const Tensor& q,
                    const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse, STRATA_CONTEXT_ARGUMENTS) {
  const Ring ring(q, STRATA_CONTEXT_NAMES);
  const DType wide = statistic_dtype(q.dtype());
  const Joined joined(k, v);
  const Tensor sum = zeros_beside(q, q.shape(), wide);
  Tensor here = ring.n == 1 ? Tensor() : joined.of(k, v);
  Tensor gradients = zeros_beside(q, {joined.numel()}, wide);  // of the keys and values that are here
  Work arriving;
  Tensor arrives;
  for (int64_t step = 0; step < ring.n; ++step) {
    auto [work, coming] = step + 1 < ring.n ? ring.pass_on(here, "keys and values again") : std::pair<Work, Tensor>();
    const Tensor keys = here.defined() ? joined.a(here) : k, values = here.defined() ? joined.b(here) : v;
    const std::vector<ContextBlock> blocks = ring.blocks(step);
    std::vector<Triple> parts;
    for (const ContextBlock& b : blocks) {
      const auto own = [&](const Tensor& t) { return t.defined() ? t.narrow(2, b.q, b.queries) : t; };
      parts.push_back(strata::detail::attention_gradients(own(gout), own(glse), own(q), keys.narrow(2, b.k, b.keys),
                                                          values.narrow(2, b.k, b.keys), own(out), own(lse),
                                                          ring.arguments(b, step)));
    }
    if (step > 0) {  // the gradients of these keys, as far as the ranks before have come
      arriving.wait();
      gradients = arrives;
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      const ContextBlock& b = blocks[i];
      const auto& [pq, pk, pv] = parts[i];
      add_to(sum.narrow(2, b.q, b.queries), pq);
      add_to(joined.a(gradients).narrow(2, b.k, b.keys), pk);
      add_to(joined.b(gradients).narrow(2, b.k, b.keys), pv);
    }
    if (ring.n > 1) std::tie(arriving, arrives) = ring.pass_on(gradients, "gradients of keys and values");
    work.wait();
    here = coming;
  }
  if (ring.n > 1) {
    arriving.wait();
    gradients = arrives;
  }
  copy_elements(gq, sum);
  copy_elements(gk, joined.a(gradients));
  copy_elements(gv, joined.b(gradients));
}

// [B, H, T, D] laid out as [B, T, H, D], which heads are joined from without a copy.
TensorMeta heads_inside(const Tensor& like_this, int64_t size) {
  const Shape& s = like_this.shape();
  return {Shape{s[0], s[1], s[2], size}, like_this.dtype(), like_this.device(),
          Strides{s[2] * s[1] * size, size, s[1] * size, 1}};
}

void check_parts(const Tensor& q, const Tensor& k, const Tensor& v, STRATA_CONTEXT_ARGUMENTS, std::string_view op) {
  detail::check_context_inputs(q, k, v, STRATA_CONTEXT_NAMES, op);
  const int64_t n = distributed::group(group).size();
  check<ShapeError>(n == 1 || q.size(2) % 2 == 0, op, "a rank's part is two chunks of as many positions, and q is ", q);
}

// Positions of a rank's part, [length].
std::vector<int64_t> positions_of(int64_t n, int64_t rank, int64_t length) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < length; ++i)
    at.push_back(detail::chunk_begin(n, rank, i / (length / 2), length / 2) + i % (length / 2));
  return at;
}

// The gradients with ops that can be differentiated: all keys and values are gathered, scores are whole.
Triple composed_gradients(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Tensor& out, const Tensor& lse, STRATA_CONTEXT_ARGUMENTS) {
  const Ring ring(q, STRATA_CONTEXT_NAMES);
  AttentionArguments a = detail::context_arguments(STRATA_CONTEXT_NAMES, q, ring.n);
  if (ring.n == 1) return strata::detail::attention_composed_backward(gout, glse, q, k, v, {}, out, lse, a);
  check<AutogradError>(dropout_p == 0, "ring_attention", "a gradient of its gradient is not there with dropout_p");
  std::vector<int64_t> all;
  for (int64_t r = 0; r < ring.n; ++r)
    for (const int64_t p : positions_of(ring.n, r, ring.length)) all.push_back(p);
  const Tensor keys = from_span<int64_t>(all, {1, ring.n * ring.length}).to(q.device());
  const Tensor queries =
      from_span<int64_t>(positions_of(ring.n, ring.rank, ring.length), {ring.length, 1}).to(q.device());
  Tensor seen;
  if (causal) seen = keys <= queries;
  if (window > 0) {
    const Tensor near = (keys - queries).abs() < window;
    seen = seen.defined() ? logical_and(seen, near) : near;
  }
  a.is_causal = false;
  a.window = 0;
  const auto [gq, gk, gv] = strata::detail::attention_composed_backward(gout, glse, q, all_gather(k, 2, group),
                                                                        all_gather(v, 2, group), seen, out, lse, a);
  return {gq, reduce_scatter(gk, 2, "sum", group), reduce_scatter(gv, 2, "sum", group)};
}

Cost ring_cost(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, Text group, double products,
               double turns) {
  const auto n = static_cast<double>(distributed::group(group).size());
  const double pairs = static_cast<double>(q.size(0) * q.size(1) * q.size(2)) * static_cast<double>(k.size(2)) * n;
  const double bytes = static_cast<double>(k.nbytes() + v.nbytes());
  return {(causal ? 0.5 : 1) * products * pairs * static_cast<double>(q.size(3) + v.size(3)),
          2 * static_cast<double>(q.nbytes()) + (n + turns * (n - 1)) * bytes};
}

using BackwardSignature = Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, const Tensor&, bool, std::optional<double>, int64_t, double,
                                 std::optional<RngKey>, double, Text, const Dims&);

const Op<BackwardSignature> ring_attention_backward_op{{
    .schema =
        "ring_attention_backward(Tensor gout, Tensor? glse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
        "bool is_causal, float? scale, int window, float dropout_p, RngKey? key, float logit_soft_cap, str group, "
        "int[] heads=[]) "
        "-> (Tensor gq, Tensor gk, Tensor gv)",
    .shard = "unplaced",
    .internal = true,
    .doc = "The gradients of ring_attention for this rank's q, k and v, from the gradients gout and (where given) glse "
           "of its results out and lse. Keys and values go round the ring again, and their gradients, in f32 (f64 for "
           "f64), one rank behind them. A gradient of them gathers all keys and has whole scores; not with dropout_p.",
    .infer =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
           const Tensor& lse, STRATA_CONTEXT_ARGUMENTS) {
          constexpr std::string_view kOp = "ring_attention_backward";
          check_parts(q, k, v, STRATA_CONTEXT_NAMES, kOp);
          const Shape rows{q.size(0), q.size(1), q.size(2)};
          strata::detail::check_attention_results(gout, glse, out, lse, {rows[0], rows[1], rows[2], v.size(3)}, rows,
                                                  q.dtype(), kOp);
          return std::array<TensorMeta, 3>{heads_inside(q, q.size(3)), heads_inside(k, k.size(3)),
                                           heads_inside(v, v.size(3))};
        },
    .kernels = {.everywhere = backward_there},
    .composed = composed_gradients,
    .cost = [](const Tensor&, const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
               const Tensor&, STRATA_CONTEXT_ARGUMENTS) { return ring_cost(q, k, v, causal, group, 5, 3); },
    .samples =
        [](Samples& s) {
          const DType st = statistic_dtype(s.dtype());
          s.add(s.tensor({1, 2, 6, 4}), std::nullopt, s.tensor({1, 2, 6, 4}), s.tensor({1, 1, 6, 4}),
                s.tensor({1, 1, 6, 4}), s.tensor({1, 2, 6, 4}), s.uniform({1, 2, 6}, 2, 4, st), true, std::nullopt, 0,
                0.0, RngKey{}, 0.0, "world");
          s.add(s.tensor({2, 2, 6, 4}), std::nullopt, s.tensor({2, 2, 6, 4}), s.tensor({2, 1, 6, 4}),
                s.tensor({2, 1, 6, 4}), s.tensor({2, 2, 6, 4}), s.uniform({2, 2, 6}, 2, 4, st), true, std::nullopt, 0,
                0.4, RngKey{7, 3}, 0.0, "world", Dims{2, 6});
        },
    .reference =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
           const Tensor& lse, STRATA_CONTEXT_ARGUMENTS) {
          return strata::detail::attention_composed_backward(gout, glse, q, k, v, {}, out, lse,
                                                             detail::context_arguments(STRATA_CONTEXT_NAMES, q, 1));
        },
    .tolerance = 32,
    .tolerance_reason = "as of scaled_dot_product_attention_backward, which it calls",
}};

using Signature = Pair(const Tensor&, const Tensor&, const Tensor&, bool, std::optional<double>, int64_t, double,
                       std::optional<RngKey>, double, Text, const Dims&);

const Op<Signature> ring_attention_op{{
    .schema =
        "ring_attention(Tensor q, Tensor k, Tensor v, bool is_causal=false, float? scale=None, int window=0, float "
        "dropout_p=0.0, RngKey? key=None, float logit_soft_cap=0.0, str group=\"world\", int[] heads=[]) -> "
        "(Tensor out, Tensor lse)",
    .shard = "unplaced",
    .shown = 1,
    .doc =
        "Attention over a sequence whose positions lie in parts on the group's n ranks (Liu et al., arXiv:2310.01889). "
        "Cut into 2n chunks, rank r has chunks r and 2n - 1 - r, one behind the other: under a causal mask every rank "
        "then "
        "computes as much. q [B, H, T/n, D], k [B, Hkv, T/n, D] and v [B, Hkv, T/n, Dv] are of those positions; the "
        "rest "
        "is as of scaled_dot_product_attention, whose result for them out [B, H, T/n, Dv] is, and lse [B, H, T/n]. "
        "Keys "
        "and values go round the ring under the ranks' products; what the parts give is put together by their lse in "
        "f32 (f64 for f64). Backward sends keys, values and their gradients round. With the same key on every rank the "
        "weights "
        "are dropped that one call of all positions drops; heads = [first, all] says which q has where others have the "
        "others. ShapeError, DTypeError, ValueError when the arguments do not fit.",
    .example =
        "Tensor q = ones({1, 2, 4, 8});\n"
        "assert(distributed::ring_attention(q, q, q, {.is_causal = true}).shape() == q.shape());  // a job of one",
    .infer =
        [](const Tensor& q, const Tensor& k, const Tensor& v, STRATA_CONTEXT_ARGUMENTS) {
          check_parts(q, k, v, STRATA_CONTEXT_NAMES, "ring_attention");
          return std::array<TensorMeta, 2>{
              heads_inside(q, v.size(3)),
              TensorMeta{Shape{q.size(0), q.size(1), q.size(2)}, statistic_dtype(q.dtype()), q.device(), std::nullopt}};
        },
    .kernels = {.everywhere = forward_there},
    .saves = "q k v out lse",
    .backward =
        [](Backward& b, const Tensor& q, const Tensor& k, const Tensor& v, STRATA_CONTEXT_ARGUMENTS) {
          const Tensor gout = b.has_gy(0) ? b.gy(0) : b.y(0) * 0;
          const auto [gq, gk, gv] = ring_attention_backward_op(gout, b.has_gy(1) ? b.gy(1) : Tensor(), q, k, v, b.y(0),
                                                               b.y(1), STRATA_CONTEXT_NAMES);
          b.set(0, gq);
          b.set(1, gk);
          b.set(2, gv);
        },
    .draws =
        [](const Tensor& q, const Tensor&, const Tensor&, bool, std::optional<double>, int64_t, double dropout_p,
           std::optional<RngKey>, double, Text group, const Dims& heads) {
          const int64_t all = q.size(2) * distributed::group(group).size();
          return dropout_p > 0 ? random_blocks(q.size(0) * detail::context_heads(q, heads) * all * all) : 0;
        },
    .autocast = Autocast::low,
    .cost = [](const Tensor& q, const Tensor& k, const Tensor& v,
               STRATA_CONTEXT_ARGUMENTS) { return ring_cost(q, k, v, causal, group, 2, 1); },
    .samples =
        [](Samples& s) {
          const auto none = std::nullopt;
          s.add(s.tensor({2, 2, 6, 8}), s.tensor({2, 2, 6, 8}), s.tensor({2, 2, 6, 8}));
          s.add(s.tensor({1, 4, 6, 3}), s.tensor({1, 2, 6, 3}), s.tensor({1, 2, 6, 5}), true, 0.3)
              .named("grouped heads");
          s.add(s.tensor({1, 1, 9, 4}), s.tensor({1, 1, 9, 4}), s.tensor({1, 1, 9, 4}), true, none, 4, 0.25,
                RngKey{7, 3}, 2.5)
              .named("window, dropout, soft cap");
          s.add(s.tensor({2, 2, 6, 4}), s.tensor({2, 1, 6, 4}), s.tensor({2, 1, 6, 4}), true, none, 0, 0.4,
                RngKey{7, 3}, 0.0, "world", Dims{2, 6})
              .named("some of the heads");
          s.add(s.tensor({1, 2, 0, 4}), s.tensor({1, 2, 0, 4}), s.tensor({1, 2, 0, 4})).named("nothing");
          s.invalid<ShapeError>("has 4 positions", s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 6, 8}),
                                s.tensor({1, 2, 6, 8}));
          s.invalid<ShapeError>("no multiple", s.tensor({1, 3, 4, 8}), s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 4, 8}));
          s.invalid<ValueError>("dropout_p", s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 4, 8}),
                                false, none, 0, 1.5, RngKey{});
          s.invalid<ValueError>("heads are the first and how many", s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 4, 8}),
                                s.tensor({1, 2, 4, 8}), false, none, 0, 0.0, none, 0.0, "world", Dims{1, 2});
          s.invalid<ValueError>("there is no group", s.tensor({1, 2, 4, 8}), s.tensor({1, 2, 4, 8}),
                                s.tensor({1, 2, 4, 8}), false, none, 0, 0.0, none, 0.0, "sideways");
        },
    .reference =
        [](const Tensor& q, const Tensor& k, const Tensor& v, STRATA_CONTEXT_ARGUMENTS) {
          return strata::detail::attention_by_loops(q, k, v, {}, detail::context_arguments(STRATA_CONTEXT_NAMES, q, 1));
        },
    .tolerance = 16,
    .tolerance_reason = "as of scaled_dot_product_attention, which it calls",
}};

}  // namespace

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o, Text group,
                      const Dims& heads) {
  return std::get<0>(detail::call_with_options(ring_attention_op, "ring_attention", q, k, v, o, group, heads));
}

}  // namespace strata::distributed
