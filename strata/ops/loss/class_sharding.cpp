#include "strata/ops/loss/class_sharding_inl.h"

#include <algorithm>
#include <memory>

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::detail {
namespace {

constexpr int64_t kNone = -100;  // no class, of however few there are

// One local call, and what it needs of the call on the whole.
struct Call {
  // What the arguments were before they became those of this rank's classes.
  Tensor target, gloss;
  int64_t ignored = 0;
  std::string reduction;
  double smoothing = 0;
  int64_t classes = 0;  // of the whole
  Stretch own;          // this rank's
  Layout layout;        // of the logits

  // The ranks' along those axes that cut dimension `dim` of the logits.
  Tensor reduced(const Tensor& x, int dim, std::string_view by) const {
    Layout from{layout.mesh, std::vector<Placement>(layout.placements.size())};
    const Layout to = from;
    for (size_t a = 0; a < from.placements.size(); ++a)
      if (layout.placements[a].is_shard() && layout.placements[a].dim == dim)
        from.placements[a] = Placement::partial_of(by);
    return placement_room().relay(x, x.shape(), from, to);
  }
  bool cuts(int dim) const {
    return std::any_of(layout.placements.begin(), layout.placements.end(),
                       [&](const Placement& p) { return p.is_shard() && p.dim == dim; });
  }
  Tensor counts() const { return target != ignored; }  // [N], boolean
  // How many rows count, over all ranks.
  Tensor count(DType dtype) const { return reduced(sum(counts()), 0, "sum").to(dtype); }
  // Targets as this rank's classes, the others' at some class, and which are its own.
  std::pair<Tensor, Tensor> held() const {
    const Tensor local = target - own.begin, at = local.clamp(0, own.length - 1);
    return {at, logical_and(eq(local, at), counts())};
  }
};

void check_targets(const Call& call) {
  if (!call.target.device().is_cpu()) return;  // nobody waits for a card
  for (const int64_t t : call.target.to_vector<int64_t>())
    check<IndexError>(t == call.ignored || (t >= 0 && t < call.classes), "cross_entropy", "target ", t,
                      " is not one of ", call.classes, " classes");
}

Call begin(LocalCall& c, size_t logits, int64_t classes) {
  Call call{.target = std::get<Tensor>(c.arg("target")),
            .ignored = std::get<int64_t>(c.arg("ignore_index")),
            .reduction = std::get<std::string>(c.arg("reduction")),
            .smoothing = std::get<double>(c.arg("label_smoothing")),
            .classes = classes,
            .layout = c.layouts[logits]};
  call.own = call.layout.stretches(1, classes, call.layout.places())[0];
  return call;
}

// ---- forward -----------------------------------------------------------------------------------------------------

void forward_before(LocalCall& c, Call& call, int64_t classes) {
  call = begin(c, 0, classes);
  if (!call.cuts(1)) {
    if (call.reduction == "mean") c.arg("reduction") = Value(std::string("sum"));
    return;
  }
  check_targets(call);
  // Only lse is asked for.
  c.arg("target") = Value(full_like(call.target, kNone));
  c.arg("ignore_index") = Value(kNone);
  c.arg("reduction") = Value(std::string("none"));
  c.arg("label_smoothing") = Value(0.0);
}

void forward_after(LocalCall& c, const Call& call) {
  if (!call.cuts(1)) {
    if (call.reduction == "mean") c.results[0] = c.results[0] / call.count(c.results[0].dtype());
    return;
  }
  const Tensor x = std::get<Tensor>(c.arg("x")), here = c.results[1];
  const DType dtype = here.dtype();
  const auto [at, own] = call.held();
  const Tensor top = call.reduced(here, 1, "max");
  const int64_t rows = here.numel();
  TensorList parts{(here - top).exp(),
                   masked_fill(gather(x, 1, at.unsqueeze(1)).squeeze(1).to(dtype), logical_not(own), 0)};
  if (call.smoothing > 0) parts.push_back(sum(x.to(dtype), {1}));
  const Tensor sums = call.reduced(cat(parts, 0), 1, "sum");
  const Tensor lse = top + sums.narrow(0, 0, rows).log();
  Tensor each = lse - sums.narrow(0, rows, rows);
  if (call.smoothing > 0) {
    const Tensor even = lse - sums.narrow(0, 2 * rows, rows) / static_cast<double>(call.classes);
    each = each * (1 - call.smoothing) + even * call.smoothing;
  }
  each = masked_fill(each, logical_not(call.counts()), 0);
  if (call.reduction != "none") each = sum(each);
  if (call.reduction == "mean") each = each / call.count(dtype);
  c.results = {each, lse};
}

// ---- gradient ----------------------------------------------------------------------------------------------------

void backward_before(LocalCall& c, Call& call, int64_t classes) {
  call = begin(c, 1, classes);
  call.gloss = std::get<Tensor>(c.arg("gloss"));
  if (call.reduction == "mean") {
    call.gloss = call.gloss / call.count(call.gloss.dtype());
    c.arg("gloss") = Value(call.gloss);
    c.arg("reduction") = Value(std::string("sum"));
  }
  if (!call.cuts(1)) return;
  check_targets(call);
  c.arg("target") = Value(where(call.counts(), call.held().first, kNone));
  c.arg("ignore_index") = Value(kNone);
  c.arg("label_smoothing") = Value(0.0);
}

// The kernel took 1 from the probability of a class in every row; only the target's owner had to.
void backward_after(LocalCall& c, const Call& call) {
  if (!call.cuts(1)) return;
  const Tensor x = std::get<Tensor>(c.arg("x")), lse = std::get<Tensor>(c.arg("lse"));
  const Tensor share = masked_fill(call.gloss.expand(lse.shape()), logical_not(call.counts()), 0).unsqueeze(1);
  auto [at, own] = call.held();
  if (call.smoothing > 0) {
    const Tensor p = (x.to(lse.dtype()) - lse.unsqueeze(1)).exp();
    const Tensor mine = where(own, at, kNone);
    const Tensor wanted = at_targets(mine, call.own.length, lse.dtype()) * (1 - call.smoothing) +
                          call.smoothing / static_cast<double>(call.classes);
    c.results[0] = ((p - wanted) * share).to(x.dtype());
    return;
  }
  at = at.unsqueeze(1);
  const Tensor p = (gather(x, 1, at).to(lse.dtype()) - lse.unsqueeze(1)).exp();
  const Tensor right = where(own.unsqueeze(1), gather(c.results[0], 1, at), (p * share).to(x.dtype()));
  c.results[0] = scatter(c.results[0], 1, at, right);
}

}  // namespace

void shard_cross_entropy(Sharding& s) {
  const bool gradient = s.has("gloss");
  const std::string reduction = s.text("reduction");
  const size_t logits = gradient ? 1 : 0;
  const Shape& x = s.args[logits].shape;
  if (x.size() != 2) return;
  const auto call = std::make_shared<Call>();
  const auto add = [&](Sharding::Possibility p) {
    p.before = [gradient, call, classes = x[1]](LocalCall& c) {
      gradient ? backward_before(c, *call, classes) : forward_before(c, *call, classes);
    };
    p.after = [gradient, call](LocalCall& c) { gradient ? backward_after(c, *call) : forward_after(c, *call); };
    s.add(std::move(p));
  };

  std::vector<Placement> ways;
  for (size_t i = 0; i < s.args.size(); ++i)
    if (s.args[i].shape.size() > 0 && s.args[i].shape[0] == x[0]) s.ways(ways, i, 0, x[0]);
  for (const Placement& way : ways) {
    Sharding::Possibility p = s.whole();
    for (size_t i = 0; i < s.args.size(); ++i)
      if (s.args[i].shape.size() > 0 && (i > 0 || !gradient || reduction == "none")) p.args[i] = way;
    p.results.assign(p.results.size(), way);
    if (!gradient && reduction != "none") p.results[0] = Placement::partial_of("sum");
    add(std::move(p));
  }

  // Of classes one stretch is a rank's.
  ways.clear();
  s.ways(ways, logits, 1, x[1]);
  for (Placement way : ways) {
    if (!way.segments.empty()) continue;
    way.dim = 1;
    Sharding::Possibility p = s.whole();
    p.args[logits] = way;
    if (gradient) p.results[0] = way;
    add(std::move(p));
  }
}

}  // namespace strata::detail
