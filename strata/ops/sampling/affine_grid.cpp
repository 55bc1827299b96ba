#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/sampling/sampling.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// The sizes of the result's positions.
Dims checked(const Tensor& theta, const Dims& size) {
  const int64_t n = size.size() - 2;
  check<ShapeError>((n == 2 || n == 3) && theta.shape() == Shape({size[0], n, n + 1}), "affine_grid", "theta of ",
                    theta.shape(), " does not belong to a size of ", size);
  check<DTypeError>(is_floating(theta.dtype()), "affine_grid", "needs a floating dtype, got ", theta);
  Dims spatial;
  for (int d = 2; d < size.size(); ++d) {
    check<ShapeError>(size[d] > 0, "affine_grid", "size ", size, " has no positions");
    spatial.push_back(size[d]);
  }
  return spatial;
}
Shape grid_shape(const Dims& size, const Dims& spatial) {
  Shape s{size[0]};
  for (const int64_t v : spatial) s.push_back(v);
  s.push_back(spatial.size());
  return s;
}

Tensor composed(const Tensor& theta, const Dims& size, bool align_corners) {
  const Dims spatial = checked(theta, size);
  const int n = spatial.size();
  const DeviceScope there(theta.device());
  TensorList places;
  for (int d = n - 1; d >= 0; --d) {
    const int64_t steps = spatial[d];
    Tensor line = steps > 1 ? linspace(-1, 1, steps, theta.dtype()) : zeros({1}, theta.dtype());
    if (!align_corners) line = line * (static_cast<double>(steps - 1) / static_cast<double>(steps));
    Shape along = Shape::filled(n, 1);
    along[d] = steps;
    places.push_back(expand(line.reshape(along), spatial));
  }
  places.push_back(ones(spatial, theta.dtype()));
  const Tensor base = stack(places, n).reshape({spatial.product(), n + 1});
  return matmul(base, transpose(theta, 1, 2)).reshape(grid_shape(size, spatial));
}

Tensor by_hand(const Tensor& theta, const Dims& size, bool align_corners) {
  const Dims spatial = checked(theta, size);
  const int n = spatial.size();
  const naive::Array map(theta);
  return naive::made(grid_shape(size, spatial), [&](const Dims& place) {
    double sum = map[{place[0], place[n + 1], n}];
    for (int d = 0; d < n; ++d) {
      const auto steps = static_cast<double>(spatial[n - 1 - d]), i = static_cast<double>(place[n - d]);
      const double at = align_corners ? (steps > 1 ? 2 * i / (steps - 1) - 1 : 0) : (2 * i + 1) / steps - 1;
      sum += map[{place[0], place[n + 1], d}] * at;
    }
    return sum;
  });
}

const Op<Tensor(const Tensor&, const Dims&, bool)> affine_grid_op{{
    .schema = "affine_grid(Tensor theta, int[] size, bool align_corners=false) -> Tensor",
    .doc = "Positions for grid_sample: theta [N, 2, 3] (or [N, 3, 4]) maps a result of `size` [N, C, H, W] ([N, C, D, "
           "H, W]) into the input, both from -1 to 1: [N, H, W, 2] ([N, D, H, W, 3]), columns first (Jaderberg et al., "
           "arXiv:1506.02025). With align_corners the ends are the middles of the corner elements, else the corners "
           "of the image. ShapeError, DTypeError.",
    .example = "assert(affine_grid(ones({1, 2, 3}), {1, 3, 4, 5}).shape() == Shape({1, 4, 5, 2}));",
    .composed = composed,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 2, 3}), Dims{2, 1, 3, 4});
          s.add(s.tensor({2, 2, 3}), Dims{2, 3, 4, 5}, true).named("align corners");
          s.add(s.tensor({1, 3, 4}), Dims{1, 2, 3, 1, 2}).named("three dimensions");
          s.add(s.tensor({1, 3, 4}), Dims{1, 2, 3, 1, 2}, true).named("three dimensions, align corners");
          s.invalid<ShapeError>("theta of", s.tensor({1, 2, 2}), Dims{1, 1, 2, 2});
          s.invalid<ShapeError>("theta of", s.tensor({1, 2, 3}), Dims{2, 1, 2, 2});
          s.invalid<ShapeError>("no positions", s.tensor({1, 2, 3}), Dims{1, 1, 0, 2});
          s.invalid<DTypeError>("floating", s.tensor({1, 2, 3}, DType::i64), Dims{1, 1, 2, 2});
        },
    .reference = by_hand,
}};

}  // namespace

Tensor affine_grid(const Tensor& theta, const Dims& size, bool align_corners) {
  return affine_grid_op(theta, size, align_corners);
}

}  // namespace strata
