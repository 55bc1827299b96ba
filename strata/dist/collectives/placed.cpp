// The records that make and read sharded tensors, and what the call path asks of this room.

#include "strata/dist/collectives/placed.h"

#include <algorithm>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/dist/group.h"
#include "strata/dist/relay_inl.h"
#include "strata/ops/copy/copy.h"

namespace strata::distributed {
namespace {

using Text = const std::string&;

// Where this process is on the axes named: those of the mesh, or the job as one axis, "world".
std::shared_ptr<const MeshPlace> place_on(std::string_view axes) {
  MeshPlace place;
  if (axes == "world" || (axes.empty() && size() == 1)) {
    place.axes.push_back({"world", size(), rank()});
    return std::make_shared<const MeshPlace>(std::move(place));
  }
  const Mesh m = mesh();
  int left = rank();
  for (size_t a = m.axes().size(); a-- > 0;) {
    const Mesh::Axis& axis = m.axes()[a];
    place.axes.insert(place.axes.begin(), {axis.name, axis.size, left % axis.size});
    left /= axis.size;
  }
  if (axes.empty()) return std::make_shared<const MeshPlace>(std::move(place));
  (void)m.ranks_of(axes, rank());  // names what is no axis
  const std::string named = cat("+", axes, "+");
  std::erase_if(place.axes, [&](const MeshPlace::Axis& a) { return named.find(cat("+", a.name, "+")) == named.npos; });
  return std::make_shared<const MeshPlace>(std::move(place));
}

// In a mesh of one rank there is nothing to place: tensors stay plain.
bool is_single(const MeshPlace& m) {
  return std::all_of(m.axes.begin(), m.axes.end(), [](const MeshPlace::Axis& a) { return a.size == 1; });
}

LayoutRef layout_on(std::shared_ptr<const MeshPlace> place, std::string_view text, const Shape& shape,
                    std::string_view op) {
  std::vector<Placement> placements = parse_placements(text);
  // A job of one may not have named its axes.
  if (is_single(*place)) {
    if (place->axes.size() != placements.size())
      place = std::make_shared<const MeshPlace>(
          MeshPlace{std::vector<MeshPlace::Axis>(placements.size(), {"world", 1, 0})});
  }
  const Layout layout{std::move(place), std::move(placements)};
  layout.check(shape, op);
  return std::make_shared<const Layout>(layout);
}

Tensor redistributed(const Tensor& x, const LayoutRef& to) {
  if (is_placed(x) && *layout_of(x) == *to) return x.detach();
  const Tensor here = is_placed(x) ? local_part(x) : x;
  const Layout from = is_placed(x) ? *layout_of(x) : Layout{to->mesh, std::vector<Placement>(to->mesh->axes.size())};
  const Tensor part = relay(here, x.shape(), from, *to);
  // A handle's memory is its own, and row-major like the handle.
  return strata::detail::place(part.storage() == here.storage() ? part.clone() : part, x.meta(), to);
}

const Op<Tensor(const Tensor&, Text, Text)> distribute_op{{
    .schema = "distribute(Tensor x, str placements, str axes=\"\") -> Tensor",
    .shard = "itself",
    .doc = "x, which every rank has alike, as a sharded tensor: a placement for each axis of the mesh, R (all of it), "
           "S(dim) "
           "(a part of a dimension) or P(sum) (rank 0 has it, the others zeros). S(0,unit=64) never cuts a unit apart, "
           "S(0,segments=64+32+32) cuts each segment for itself. axes names the axes (\"tp\", \"dp+tp\") where they "
           "are not the "
           "whole mesh; \"world\" is the job as one axis. Nothing is sent. In a mesh of one rank the result is a plain "
           "copy. The "
           "gradient is whole in every rank. ValueError for text that is no placement or does not fit x.",
    .example = "assert(distributed::distribute(ones({2, 3}), \"S(0)\").shape() == Shape({2, 3}));  // a job of one",
    .dynamic = {.everywhere =
                    [](const Tensor& x, Text placements, Text axes) {
                      check(!is_placed(x), "distribute", "the tensor ", x,
                            " is sharded already: redistribute() moves it");
                      const LayoutRef to = layout_on(place_on(axes), placements, x.shape(), "distribute");
                      return is_single(*to->mesh) ? x.clone() : redistributed(x, to);
                    }},
    .backward = [](Backward& b, const Tensor&, Text, Text) { b.set(0, full_tensor(b.gy())); },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), "S(1)");
          s.add(s.tensor({6}), "S(0,unit=2)", "world");
          s.add(s.tensor({}), "P(sum)");
          s.invalid<ValueError>("no dimension 2", s.tensor({3, 5}), "S(2)");
          s.invalid<ValueError>("wanted R, S( or P(", s.tensor({3, 5}), "Q");
          s.invalid<ValueError>("units of", s.tensor({3, 5}), "S(1,unit=2)");
        },
    .reference = [](const Tensor& x, Text, Text) { return x.clone(); },
}};

const Op<Tensor(const Tensor&, Text, Text)> redistribute_op{{
    .schema = "redistribute(Tensor x, str placements, str gradient=\"\") -> Tensor",
    .shard = "itself",
    .doc = "A sharded tensor as it lies otherwise, by as few bytes as the placements allow: cutting and partial sums "
           "of whole "
           "tensors send nothing, S to R gathers, P to R reduces, P to S reduces and scatters, S to S of another "
           "dimension is an "
           "all_to_all. A plain tensor, which every rank has alike, is distributed over the mesh. The gradient lies as "
           "it came, "
           "or, where `gradient` is given, so: placement never changes its meaning. ValueError for placements that do "
           "not fit x.",
    .example = "assert(distributed::redistribute(ones({2, 3}), \"S(0)\").shape() == Shape({2, 3}));  // a job of one",
    .dynamic = {.everywhere =
                    [](const Tensor& x, Text placements, Text gradient) {
                      const auto place = is_placed(x) ? layout_of(x)->mesh : place_on("");
                      const LayoutRef to = layout_on(place, placements, x.shape(), "redistribute");
                      if (!gradient.empty()) layout_on(place, gradient, x.shape(), "redistribute");
                      return is_single(*to->mesh) ? x.clone() : redistributed(x, to);
                    }},
    .backward =
        [](Backward& b, const Tensor&, Text, Text gradient) {
          // A plain one is whole in every rank, which is cut for nothing when it is wanted so.
          b.set(0, gradient.empty() || !is_placed(b.gy()) ? b.gy() : redistribute_op(b.gy(), gradient, ""));
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), "S(0)");
          s.add(s.tensor({2}), "P(avg)");
          s.add(s.tensor({4, 2}), "S(0)", "S(1)");
          s.invalid<ValueError>("no dimension 1", s.tensor({3}), "S(1)");
          s.invalid<ValueError>("no dimension 1", s.tensor({3}), "R", "S(1)");
        },
    .reference = [](const Tensor& x, Text, Text) { return x.clone(); },
}};

const Op<Tensor(const Tensor&)> full_tensor_op{{
    .schema = "full_tensor(Tensor x) -> Tensor",
    .shard = "itself",
    .doc =
        "All of a sharded tensor in every rank, as a plain tensor; of a plain one a copy. The gradient is that of the "
        "whole, which every rank has.",
    .example = "assert(distributed::full_tensor(ones({2})).numel() == 2);",
    .dynamic = {.everywhere =
                    [](const Tensor& x) {
                      if (!is_placed(x)) return x.clone();
                      const Layout& from = *layout_of(x);
                      const Tensor all = relay(local_part(x), x.shape(), from,
                                               {from.mesh, std::vector<Placement>(from.placements.size())});
                      return all.storage() == local_part(x).storage() ? all.clone() : all;
                    }},
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy()); },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({0, 2}));
        },
    .reference = [](const Tensor& x) { return x.clone(); },
}};

const strata::detail::PlacementRoom kRoom{
    .relay = relay,
    .redistribute =
        [](const Tensor& t, const LayoutRef& to) {
          const std::string text = text_of(to->placements);
          if (is_placed(t)) return redistribute_op(t, text, "");
          std::string axes;
          for (const MeshPlace::Axis& a : to->mesh->axes) axes += cat(axes.empty() ? "" : "+", a.name);
          return distribute_op(t, text, axes);
        },
    .whole = [](const Tensor& t) { return full_tensor(t); },
    .sum =
        [](double value, const std::string& axis) {
          group(axis).run("sum of one number",
                          [&](Communicator& c) { c.all_reduce(&value, 1, DType::f64, Reduction::sum); });
          return value;
        },
};
[[maybe_unused]] const bool g_registered = [] {
  strata::detail::g_placement_room = &kRoom;
  return true;
}();

}  // namespace

Tensor distribute(const Tensor& x, const std::string& placements, const std::string& axes) {
  return distribute_op(x, placements, axes);
}
Tensor redistribute(const Tensor& x, const std::string& placements, const std::string& gradient) {
  return redistribute_op(x, placements, gradient);
}
Tensor full_tensor(const Tensor& x) {
  return is_placed(x) ? full_tensor_op(x) : x;
}
Tensor local(const Tensor& x) {
  return is_placed(x) ? local_part(x).detach() : x;
}

Tensor from_local(const Tensor& part, const std::string& placements, const Shape& shape, const std::string& axes) {
  const LayoutRef layout = layout_on(place_on(axes), placements, shape, "from_local");
  const Shape wanted = layout->local_shape(shape);
  check<ShapeError>(!is_placed(part) && part.shape() == wanted, "from_local", "the part is ", part, ", wanted ", wanted,
                    ", this rank's of ", shape, " as '", placements, "'");
  if (is_single(*layout->mesh)) return part.detach();
  TensorMeta whole = part.meta();
  whole.shape = shape;
  return strata::detail::place(part.contiguous().detach(), whole, layout);
}

std::string placements_of(const Tensor& x) {
  return is_placed(x) ? text_of(layout_of(x)->placements) : std::string();
}

}  // namespace strata::distributed
