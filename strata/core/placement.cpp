#include "strata/core/placement.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "strata/core/node.h"
#include "strata/core/place_into.h"
#include "strata/core/strides_inl.h"

namespace strata {
namespace {

// Where a handle's elements are.
struct Part {
  Tensor local;
  LayoutRef layout;
};

// What a handle's storage ends with: also its mark. Of a tensor that became a handle the storage holds the part, since
// the tensor has no room for it: views of it have their own.
void mark(void* part) {
  delete static_cast<Part*>(part);
}

// The offset by which such a tensor is told from its views.
constexpr int64_t kInStorage = std::numeric_limits<int64_t>::min();

struct PlacedImpl final : TensorImpl {
  Part part;
};

// What of so many elements, cut in whole units, rank `place` of `ranks` has.
Stretch share_of(int64_t length, int64_t unit, int64_t ranks, int64_t place) {
  const int64_t units = length / unit, each = units / ranks, more = units % ranks;
  return {unit * (place * each + std::min(place, more)), unit * (each + (place < more ? 1 : 0))};
}
int64_t length_of(const std::vector<Stretch>& parts) {
  int64_t n = 0;
  for (const Stretch& s : parts) n += s.length;
  return n;
}
// Of `parts`, one behind the other, the elements of `wanted`.
std::vector<Stretch> within(const std::vector<Stretch>& parts, const Stretch& wanted) {
  std::vector<Stretch> found;
  int64_t at = 0;
  for (const Stretch& s : parts) {
    const int64_t begin = std::max(at, wanted.begin), end = std::min(at + s.length, wanted.begin + wanted.length);
    if (begin < end) found.push_back({s.begin + begin - at, end - begin});
    at += s.length;
  }
  if (found.empty()) found.push_back({parts[0].begin, 0});
  return found;
}

const Part& part_of(const Tensor& t, std::string_view what) {
  check(is_placed(t), what, "the tensor ", t, " is not sharded: distribute() makes it so");
  const TensorImpl& impl = t.impl();
  return impl.offset == kInStorage ? *static_cast<const Part*>(impl.storage->owner)
                                   : static_cast<const PlacedImpl&>(impl).part;
}

// Reads placements' text.
class Reader {
 public:
  explicit Reader(std::string_view text) : all_(text), left_(text) {}
  std::vector<Placement> read() {
    std::vector<Placement> placements;
    for (blanks(); !left_.empty(); blanks()) {
      placements.push_back(one());
      if (!left_.empty() && left_[0] != ' ') wrong("a blank");
    }
    return placements;
  }

 private:
  [[noreturn]] void wrong(std::string_view wanted) const {
    throw ValueError("placements",
                     cat("'", all_, "' is not understood at byte ", all_.size() - left_.size(), ": wanted ", wanted,
                         "; one placement an axis, R, S(0) or P(sum), S also with "
                         "unit=N, segments=N+N and part"));
  }
  void blanks() {
    while (!left_.empty() && left_[0] == ' ') left_.remove_prefix(1);
  }
  bool take(std::string_view what) {
    if (!left_.starts_with(what)) return false;
    left_.remove_prefix(what.size());
    return true;
  }
  int64_t number(int64_t least, int64_t most) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), n);
    if (error != std::errc() || n < least || n > most) wrong(cat("a number from ", least, " to ", most));
    left_.remove_prefix(static_cast<size_t>(end - left_.data()));
    return n;
  }
  Placement one() {
    if (take("R")) return {};
    if (take("P(")) {
      for (const std::string_view r : {"sum", "avg", "max", "min", "product"})
        if (take(r)) {
          if (!take(")")) wrong("')'");
          return Placement::partial_of(r);
        }
      wrong("sum, avg, max, min or product");
    }
    if (!take("S(")) wrong("R, S( or P(");
    Placement p = Placement::sharded(static_cast<int>(number(0, kMaxDims - 1)));
    constexpr int64_t most = int64_t{1} << 48;
    while (take(",")) {
      if (take("unit=")) {
        p.unit = number(1, most);
      } else if (take("segments=")) {
        do p.segments.push_back(number(0, most));
        while (p.segments.size() < 4096 && take("+"));
      } else if (take("part")) {
        p.part = true;
      } else {
        wrong("unit=, segments= or part");
      }
    }
    if (!take(")")) wrong("')'");
    return p;
  }
  std::string_view all_, left_;
};

}  // namespace

bool Placement::operator==(const Placement& o) const {
  if (kind != o.kind) return false;
  if (kind == shard) return dim == o.dim && cuts_like(o);
  return kind == replicate || reduction == o.reduction;
}

std::string text_of(const Placement& p) {
  if (p.is_replicate()) return "R";
  if (p.is_partial()) return cat("P(", p.reduction, ")");
  std::string s = cat("S(", p.dim);
  if (p.unit != 1) s += cat(",unit=", p.unit);
  for (size_t i = 0; i < p.segments.size(); ++i) s += cat(i ? "+" : ",segments=", p.segments[i]);
  return s + (p.part ? ",part)" : ")");
}
std::string text_of(const std::vector<Placement>& all) {
  std::string s;
  for (const Placement& p : all) s += cat(s.empty() ? "" : " ", text_of(p));
  return s;
}
std::vector<Placement> parse_placements(std::string_view text) {
  return Reader(text).read();
}

void Layout::check(const Shape& whole, std::string_view op) const {
  strata::check(placements.size() == mesh->axes.size(), op, "there are ", mesh->axes.size(),
                " axes of the mesh, but placements for ", placements.size(), ": '", text_of(placements), "'");
  for (size_t a = 0; a < placements.size(); ++a) {
    const Placement& p = placements[a];
    if (!p.is_shard()) continue;
    strata::check(p.dim >= 0 && p.dim < whole.size(), op, text_of(p), " of a tensor of shape ", whole,
                  ", which has no dimension ", p.dim);
    int64_t sum = 0;
    for (const int64_t n : p.segments) {
      strata::check(n >= 0 && n % p.unit == 0, op, "in ", text_of(p), " a segment is no whole number of units");
      sum += n;
    }
    const int64_t size = whole[p.dim];
    strata::check(p.segments.empty() || sum == size, op, "the segments of ", text_of(p), " have ", sum,
                  " elements, the dimension has ", size);
    strata::check(size % p.unit == 0, op, "dimension ", p.dim, " of ", whole, " is no whole number of units of ",
                  p.unit);
    strata::check(!p.part || p.segments.empty(), op, text_of(p), " has segments, which are of the whole dimension");
    const bool rows = p.part && p.unit == 1;  // can be cut anywhere
    for (size_t b = 0; b < a; ++b)
      strata::check(rows || !placements[b].is_shard() || placements[b].dim != p.dim || placements[b].cuts_like(p), op,
                    "axes that share a dimension must cut it alike, not as '", text_of(placements), "'");
  }
}

std::vector<int> Layout::places() const {
  std::vector<int> all;
  for (const MeshPlace::Axis& a : mesh->axes) all.push_back(a.place);
  return all;
}

std::vector<Stretch> Layout::stretches(int dim, int64_t size, const std::vector<int>& places) const {
  std::vector<Stretch> parts;
  int64_t unit = 1;
  bool begun = false;
  for (size_t a = 0; a < placements.size(); ++a) {
    const Placement& p = placements[a];
    if (!p.is_shard() || p.dim != dim) continue;
    if (!begun) {
      begun = true;
      unit = p.unit;
      int64_t at = 0;
      for (const int64_t n : p.segments) {
        parts.push_back({at, n});
        at += n;
      }
    }
    if (parts.empty()) parts.push_back({0, size});
    const int64_t ranks = mesh->axes[a].size, place = places[a];
    if (p.part) {
      parts = within(parts, share_of(length_of(parts), p.unit, ranks, place));
      continue;
    }
    for (Stretch& s : parts) {
      const Stretch own = share_of(s.length, unit, ranks, place);
      s = {s.begin + own.begin, own.length};
    }
  }
  if (!begun) parts.push_back({0, size});
  return parts;
}

Shape Layout::local_shape(const Shape& whole, const std::vector<int>& places) const {
  Shape local = whole;
  for (int d = 0; d < whole.size(); ++d) {
    local[d] = length_of(stretches(d, whole[d], places));
  }
  return local;
}

bool Layout::is_replicate() const {
  return std::all_of(placements.begin(), placements.end(), [](const Placement& p) { return p.is_replicate(); });
}

bool is_placed(const Tensor& t) {
  return t.defined() && detail::is_handle(t.impl());
}
const LayoutRef& layout_of(const Tensor& t) {
  return part_of(t, "layout_of").layout;
}
const Tensor& local_part(const Tensor& t) {
  return part_of(t, "local_part").local;
}

namespace detail {

bool is_handle(const TensorImpl& t) {
  return t.storage && t.storage->release == &mark;
}

Tensor place(const Tensor& local, const TensorMeta& whole, LayoutRef layout, const Ref<Storage>& storage) {
  Ref<PlacedImpl> t = make_ref<PlacedImpl>();
  t->storage = storage ? storage : Storage::borrow(nullptr, 0, mark, nullptr);
  t->storage->device = whole.device;
  t->shape = whole.shape;
  t->strides = whole.strides ? *whole.strides : contiguous_strides(whole.shape);
  t->numel = whole.shape.product();
  t->dtype = whole.dtype;
  t->device = whole.device;
  t->contiguous = strides_are_contiguous(t->shape, t->strides);
  t->part = {local, std::move(layout)};
  t_mode.unusual |= kPlacements;
  return Tensor(Ref<TensorImpl>(std::move(t)));
}

void place_into(const Tensor& t, const Tensor& local, const TensorMeta& whole, LayoutRef layout) {
  check(!is_placed(t) || t.impl().offset == kInStorage, "place_into", "the tensor ", t, " is sharded already");
  const Shape wanted = layout->local_shape(whole.shape);
  check<ShapeError>(local.shape() == wanted, "place_into", "the part is ", local, ", wanted ", wanted);
  Tensor(t).set_grad({});
  autograd_meta(t).low = {};
  TensorImpl& to = t.impl();
  // Under a storage of its own: what shows the old elements keeps them.
  Ref<Storage> storage = Storage::borrow(nullptr, 0, mark, new Part{local, std::move(layout)});
  storage->device = whole.device;
  to.storage = std::move(storage);
  to.shape = whole.shape;
  to.strides = contiguous_strides(whole.shape);
  to.offset = kInStorage;
  to.numel = whole.shape.product();
  to.dtype = whole.dtype;
  to.device = whole.device;
  to.contiguous = true;
  t_mode.unusual |= kPlacements;
}

const PlacementRoom& placement_room() {
  if (!g_placement_room) throw ValueError("placements", "this program has no room that can communicate");
  return *g_placement_room;
}

Tensor as_leaf_lies(const Tensor& gradient, const Tensor& leaf) {
  if (!is_placed(leaf)) return placement_room().whole(gradient);
  Layout to = *layout_of(leaf);
  for (Placement& p : to.placements)
    if (p.is_partial()) p = {};
  if (is_placed(gradient) && *layout_of(gradient) == to) return gradient;
  return placement_room().redistribute(gradient, std::make_shared<const Layout>(std::move(to)));
}

void delete_handle(TensorImpl* t) {
  if (t->offset == kInStorage)
    delete t;
  else
    delete static_cast<PlacedImpl*>(t);
}

Tensor alias_of_placed(const Tensor& t, const Shape& shape, const Strides& strides, int64_t offset) {
  if (shape != t.shape() || strides != t.strides() || offset != t.storage_offset()) throw_placed(t);
  TensorMeta whole = t.meta();
  whole.strides = t.strides();
  return place(local_part(t).detach(), whole, layout_of(t), t.storage());
}

void throw_placed(const Tensor& t) {
  throw DeviceError("data",
                    cat("a sharded tensor ", t, " (", text_of(layout_of(t)->placements),
                        ") has no elements of its own here: local_part() gives this rank's, full_tensor() all"));
}

}  // namespace detail
}  // namespace strata
