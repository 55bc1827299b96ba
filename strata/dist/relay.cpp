#include "strata/dist/relay_inl.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/dist/group.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

// One tensor on its way from layout to layout, one axis after the other.
class Way {
 public:
  Way(const Tensor& local, const Shape& whole, const Layout& from) : t_(local), whole_(whole), now_(from) {}

  Tensor to(const Layout& wanted) {
    // Inner axes first, so that what an axis has to give up is never cut further.
    for (size_t a = now_.placements.size(); a-- > 0;) {
      if (now_.placements[a] == wanted.placements[a] && !outer_changes(a, wanted)) continue;
      leave(a, wanted.placements[a], alone(a, wanted));
    }
    for (size_t a = 0; a < now_.placements.size(); ++a)
      if (!(now_.placements[a] == wanted.placements[a])) enter(a, wanted.placements[a]);
    return t_;
  }

 private:
  Group& group(size_t axis) const { return distributed::group(now_.mesh->axes[axis].name); }
  TensorMeta meta(const Shape& shape) const { return {shape, t_.dtype(), t_.device(), std::nullopt}; }

  // Whether an axis outside of `axis` begins or ends to cut the dimension that `axis` cuts: then that has to be undone
  // first, and done again behind it.
  bool outer_changes(size_t axis, const Layout& wanted) const {
    const Placement& p = now_.placements[axis];
    if (!p.is_shard()) return false;
    const auto cuts = [&](const Placement& o) { return o.is_shard() && o.dim == p.dim; };
    for (size_t b = 0; b < axis; ++b) {
      const Placement &from = now_.placements[b], &next = wanted.placements[b];
      if (!(from == next) && (cuts(from) || cuts(next))) return true;
    }
    return false;
  }
  // Whether no other axis cuts the dimensions that `axis` leaves or comes to, now or later.
  bool alone(size_t axis, const Layout& wanted) const {
    for (const Placement* p : {&now_.placements[axis], &wanted.placements[axis]})
      for (size_t b = 0; b < now_.placements.size(); ++b)
        for (const Placement* o : {&now_.placements[b], &wanted.placements[b]})
          if (b != axis && p->is_shard() && o->is_shard() && o->dim == p->dim) return false;
    return true;
  }

  std::vector<int> places_with(size_t axis, int place) const {
    std::vector<int> places = now_.places();
    places[axis] = place;
    return places;
  }
  Layout with(size_t axis, const Placement& p) const {
    Layout l = now_;
    l.placements[axis] = p;
    return l;
  }

  // Where each of `parts` begins in a tensor whose dimension is `held`, one stretch behind the other.
  static std::vector<Stretch> within(const std::vector<Stretch>& parts, const std::vector<Stretch>& held) {
    std::vector<Stretch> found;
    for (const Stretch& p : parts) {
      int64_t at = 0;
      for (const Stretch& h : held) {
        if (p.begin >= h.begin && p.begin + p.length <= h.begin + h.length) {
          found.push_back({at + p.begin - h.begin, p.length});
          break;
        }
        at += h.length;
      }
    }
    return found;
  }
  Tensor cut(const Tensor& from, int dim, const std::vector<Stretch>& parts) const {
    Shape shape = from.shape();
    shape[dim] = 0;
    for (const Stretch& p : parts) shape[dim] += p.length;
    Tensor y = empty(meta(shape));
    int64_t at = 0;
    for (const Stretch& p : parts) {
      copy_elements(y.narrow(dim, at, p.length), from.narrow(dim, p.begin, p.length));
      at += p.length;
    }
    return y;
  }
  static void paste(const Tensor& into, int dim, const std::vector<Stretch>& parts, const Tensor& from) {
    int64_t at = 0;
    for (const Stretch& p : parts) {
      copy_elements(into.narrow(dim, p.begin, p.length), from.narrow(dim, at, p.length));
      at += p.length;
    }
  }
  std::string what(std::string_view op, size_t axis, const Placement& to) const {
    return cat(op, " ", text_of(now_.placements[axis]), " to ", text_of(to), " ", t_.dtype(), " ", whole_);
  }

  // From a part or a partial sum to all of it, or straight to `next` where that costs less.
  void leave(size_t axis, const Placement& next, bool alone) {
    const Placement now = now_.placements[axis];
    if (now.is_shard()) {
      if (next.is_shard() && next.dim != now.dim && alone)
        swap(axis, next);
      else
        gather(axis);
    } else if (now.is_partial()) {
      if (next.is_shard() && alone && (now.reduction == "sum" || now.reduction == "avg") && scatter(axis, next)) return;
      reduce(axis);
    }
  }

  void gather(size_t axis) {
    const Placement now = now_.placements[axis];
    Group& g = group(axis);
    const Layout next = with(axis, {});
    const std::vector<int> mine = now_.places();
    const std::vector<Stretch> held = next.stretches(now.dim, whole_[now.dim], mine);
    Tensor y = empty(meta(next.local_shape(whole_, mine)));
    // Every rank sends as much as the largest part.
    int64_t most = 0;
    std::vector<Shape> shapes;
    for (int r = 0; r < g.size(); ++r) {
      shapes.push_back(now_.local_shape(whole_, places_with(axis, r)));
      most = std::max(most, shapes.back().product());
    }
    const auto bytes = static_cast<size_t>(most * size_of(t_.dtype()));
    Tensor own = empty(meta({most}));
    if (t_.numel() > 0) copy_elements(own.narrow(0, 0, t_.numel()).view(t_.shape()), t_);
    if (t_.numel() < most) own.narrow(0, t_.numel(), most - t_.numel()).zero_();
    const Tensor all = empty(meta({g.size() * most}));
    if (bytes > 0)
      g.run(t_.device(), what("gather", axis, {}),
            [&](Collectives& c) { c.all_gather(all.raw_data(), own.raw_data(), bytes); });
    for (int r = 0; r < g.size(); ++r) {
      const Shape& shape = shapes[static_cast<size_t>(r)];
      if (shape.product() == 0) continue;
      paste(y, now.dim, within(now_.stretches(now.dim, whole_[now.dim], places_with(axis, r)), held),
            all.narrow(0, r * most, shape.product()).view(shape));
    }
    t_ = y;
    now_ = next;
  }

  // From dimension to dimension: each rank sends each other the piece where their parts meet.
  void swap(size_t axis, const Placement& next) {
    const Placement now = now_.placements[axis];
    Group& g = group(axis);
    const Layout after = with(axis, next);
    const std::vector<int> mine = now_.places();
    Tensor y = empty(meta(after.local_shape(whole_, mine)));
    std::vector<size_t> sent, received;
    std::vector<Shape> shapes;
    Tensor out = empty(meta({t_.numel()})), in = empty(meta({y.numel()}));
    int64_t at = 0;
    const std::vector<Stretch> all_next = now_.stretches(next.dim, whole_[next.dim], mine);
    for (int r = 0; r < g.size(); ++r) {
      const std::vector<int> theirs = places_with(axis, r);
      const Tensor piece = cut(t_, next.dim, within(after.stretches(next.dim, whole_[next.dim], theirs), all_next));
      if (piece.numel() > 0) copy_elements(out.narrow(0, at, piece.numel()).view(piece.shape()), piece);
      at += piece.numel();
      sent.push_back(static_cast<size_t>(piece.nbytes()));
      Shape shape = y.shape();
      shape[now.dim] = now_.local_shape(whole_, theirs)[now.dim];
      shapes.push_back(shape);
      received.push_back(static_cast<size_t>(shape.product() * size_of(t_.dtype())));
    }
    g.run(t_.device(), what("exchange", axis, next),
          [&](Collectives& c) { c.all_to_all(in.raw_data(), received, out.raw_data(), sent); });
    const std::vector<Stretch> held = after.stretches(now.dim, whole_[now.dim], mine);
    at = 0;
    for (int r = 0; r < g.size(); ++r) {
      const Shape& shape = shapes[static_cast<size_t>(r)];
      if (shape.product() > 0)
        paste(y, now.dim, within(now_.stretches(now.dim, whole_[now.dim], places_with(axis, r)), held),
              in.narrow(0, at, shape.product()).view(shape));
      at += shape.product();
    }
    t_ = y;
    now_ = after;
  }

  // False where the parts are not equally large.
  bool scatter(size_t axis, const Placement& next) {
    const Placement now = now_.placements[axis];
    Group& g = group(axis);
    const Layout after = with(axis, next);
    const std::vector<Stretch> held = now_.stretches(next.dim, whole_[next.dim], now_.places());
    Tensor y = empty(meta(after.local_shape(whole_)));
    for (int r = 0; r < g.size(); ++r)
      if (after.local_shape(whole_, places_with(axis, r)) != y.shape()) return false;
    Tensor in = empty(meta({y.numel() * g.size()}));
    for (int r = 0; r < g.size() && y.numel() > 0; ++r)
      copy_elements(in.narrow(0, r * y.numel(), y.numel()).view(y.shape()),
                    cut(t_, next.dim, within(after.stretches(next.dim, whole_[next.dim], places_with(axis, r)), held)));
    const Reduction by = reduction_named("redistribute", now.reduction);
    g.run(t_.device(), what("reduce_scatter", axis, next),
          [&](Collectives& c) { c.reduce_scatter(y.raw_data(), in.raw_data(), y.numel(), y.dtype(), by); });
    t_ = y;
    now_ = after;
    return true;
  }

  void reduce(size_t axis) {
    const Reduction by = reduction_named("redistribute", now_.placements[axis].reduction);
    Tensor y = empty(meta(t_.shape()));
    copy_elements(y, t_);
    if (y.numel() > 0)
      group(axis).run(t_.device(), what("all_reduce", axis, {}),
                      [&](Collectives& c) { c.all_reduce(y.raw_data(), y.numel(), y.dtype(), by); });
    t_ = y;
    now_ = with(axis, {});
  }

  // From all of it to a part, or to what the ranks' reduction gives again.
  void enter(size_t axis, const Placement& next) {
    const Layout after = with(axis, next);
    if (next.is_shard()) {
      const std::vector<int> mine = now_.places();
      const std::vector<Stretch> held = now_.stretches(next.dim, whole_[next.dim], mine);
      t_ = cut(t_, next.dim, within(after.stretches(next.dim, whole_[next.dim], mine), held));
    } else if (next.is_partial() && (next.reduction == "sum" || next.reduction == "product") &&
               now_.mesh->axes[axis].place != 0) {
      // What changes no number by being added: -0, since -0 + 0 is 0.
      Tensor y = empty(meta(t_.shape()));
      y.fill_(next.reduction == "product" ? Scalar(1) : is_floating(y.dtype()) ? Scalar(-0.0) : Scalar(0));
      t_ = y;
    }
    now_ = after;
  }

  Tensor t_;
  const Shape& whole_;
  Layout now_;
};

}  // namespace

Tensor relay(const Tensor& local, const Shape& whole, const Layout& from, const Layout& to) {
  if (from == to) return local;
  std::optional<Pin> pin;  // it may live elsewhere, as parameters do
  if (local.numel() > 0) pin.emplace(local, Access::read);
  return Way(local, whole, from).to(to);
}

}  // namespace strata::distributed
