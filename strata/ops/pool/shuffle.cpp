// What moves elements between channels and places: pixel_shuffle and its inverse, channel_shuffle, windows as columns
// and back.

#include <vector>

#include "strata/core/channels_last.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// Leading dimensions as one: [lead, c, h, w].
Shape planes(const Tensor& x, std::string_view op) {
  check<ShapeError>(x.dim() >= 3, op, "input is ", x, ", wanted [.., C, H, W]");
  int64_t lead = 1;
  for (int64_t d = 0; d + 3 < x.dim(); ++d) lead *= x.size(d);
  return {lead, x.size(-3), x.size(-2), x.size(-1)};
}
Shape with_planes(const Tensor& x, int64_t c, int64_t h, int64_t w) {
  Shape s = x.shape();
  const int n = s.size();
  s[n - 3] = c;
  s[n - 2] = h;
  s[n - 1] = w;
  return s;
}
// Element i of the result is element from(i) of x.
template <class F>
Tensor moved(const Tensor& x, const Shape& shape, F&& from) {
  const std::vector<double> v = x.to_vector<double>();
  std::vector<double> r(static_cast<size_t>(shape.product()));
  for (size_t i = 0; i < r.size(); ++i) r[i] = v[static_cast<size_t>(from(static_cast<int64_t>(i)))];
  return from_span<double>(r, shape);
}

using Factor = Op<Tensor(const Tensor&, int64_t)>;

const Factor pixel_shuffle_op{{
    .schema = "pixel_shuffle(Tensor input, int upscale_factor) -> Tensor",
    .doc = "[.., C r^2, H, W] to [.., C, H r, W r]: r^2 channels become an r x r block (Shi et al., arXiv:1609.05158). "
           "ShapeError, ValueError unless r > 0.",
    .example = "assert(pixel_shuffle(ones({1, 8, 2, 3}), 2).shape() == Shape({1, 2, 4, 6}));",
    .composed =
        [](const Tensor& x, int64_t r) {
          const std::string_view op = "pixel_shuffle";
          const Shape p = planes(x, op);
          check(r > 0 && r < 65536, op, "upscale_factor must be positive, got ", r);
          check<ShapeError>(p[1] % (r * r) == 0, op, "the ", p[1], " channels of ", x, " are no multiple of ", r * r);
          const int64_t c = p[1] / (r * r);
          const Tensor blocks = x.reshape({p[0], c, r, r, p[2], p[3]});
          if (is_channels_last(x)) {  // as PyTorch's result; each pixel's channels first, then lines of them
            const Tensor turned = permute(blocks, {0, 4, 5, 2, 3, 1}).contiguous();
            return permute(permute(turned, {0, 1, 3, 2, 4, 5}).reshape({p[0], p[2] * r, p[3] * r, c}), {0, 3, 1, 2});
          }
          return permute(blocks, {0, 1, 4, 2, 5, 3}).reshape(with_planes(x, c, p[2] * r, p[3] * r));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 8, 2, 3}), 2);
          s.add(s.tensor({9, 1, 2}), 3);
          s.add(s.tensor({2, 3, 5, 8}).permute({0, 3, 1, 2}), 2).named("channels innermost");
          s.invalid<ShapeError>("no multiple", s.tensor({1, 6, 2, 2}), 2);
          s.invalid<ShapeError>("wanted", s.tensor({6, 2}), 2);
          s.invalid<ValueError>("positive", s.tensor({1, 6, 2, 2}), 0);
        },
    .reference =
        [](const Tensor& x, int64_t r) {
          const Shape p = planes(x, "");
          const int64_t h = p[2] * r, w = p[3] * r;
          return moved(x, with_planes(x, p[1] / (r * r), h, w), [&](int64_t i) {
            const int64_t col = i % w, row = i / w % h, plane = i / (h * w);
            return ((plane * r * r + row % r * r + col % r) * p[2] + row / r) * p[3] + col / r;
          });
        },
}};

const Factor pixel_unshuffle_op{{
    .schema = "pixel_unshuffle(Tensor input, int downscale_factor) -> Tensor",
    .doc = "The inverse of pixel_shuffle: [.., C, H r, W r] to [.., C r^2, H, W]. ShapeError, ValueError unless r > 0.",
    .example = "assert(pixel_unshuffle(ones({1, 2, 4, 6}), 2).shape() == Shape({1, 8, 2, 3}));",
    .composed =
        [](const Tensor& x, int64_t r) {
          const std::string_view op = "pixel_unshuffle";
          const Shape p = planes(x, op);
          check(r > 0 && r < 65536, op, "downscale_factor must be positive, got ", r);
          check<ShapeError>(p[2] % r == 0 && p[3] % r == 0, op, r, " does not divide the height and width of ", x);
          return permute(x.reshape({p[0], p[1], p[2] / r, r, p[3] / r, r}), {0, 1, 3, 5, 2, 4})
              .reshape(with_planes(x, p[1] * r * r, p[2] / r, p[3] / r));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 2, 4, 6}), 2);
          s.add(s.tensor({1, 3, 6}), 3);
          s.invalid<ShapeError>("does not divide", s.tensor({1, 2, 3, 4}), 2);
        },
    .reference =
        [](const Tensor& x, int64_t r) {
          const Shape p = planes(x, "");
          const int64_t h = p[2] / r, w = p[3] / r;
          return moved(x, with_planes(x, p[1] * r * r, h, w), [&](int64_t i) {
            const int64_t col = i % w, row = i / w % h, plane = i / (h * w), within = plane % (r * r);
            return (plane / (r * r) * p[2] + row * r + within / r) * p[3] + col * r + within % r;
          });
        },
}};

const Factor channel_shuffle_op{{
    .schema = "channel_shuffle(Tensor input, int groups) -> Tensor",
    .doc = "Channels of input [N, C, ..] dealt out in turn: those of `groups` groups are interleaved (Zhang et al., "
           "arXiv:1707.01083). ShapeError, ValueError unless groups > 0.",
    .example = "assert(channel_shuffle(ones({1, 4, 2}), 2).shape() == Shape({1, 4, 2}));",
    .composed =
        [](const Tensor& x, int64_t groups) {
          const std::string_view op = "channel_shuffle";
          check(groups > 0, op, "groups must be positive, got ", groups);
          check<ShapeError>(x.dim() >= 2 && x.size(1) % groups == 0, op, groups,
                            " groups do not divide the channels of ", x);
          int64_t inner = 1;
          for (int64_t d = 2; d < x.dim(); ++d) inner *= x.size(d);
          return transpose(x.reshape({x.size(0), groups, x.size(1) / groups, inner}), 1, 2).reshape(x.shape());
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 6, 3}), 2);
          s.add(s.tensor({2, 6}), 3);
          s.invalid<ShapeError>("do not divide", s.tensor({1, 5, 2}), 2);
          s.invalid<ValueError>("positive", s.tensor({1, 5, 2}), 0);
        },
    .reference =
        [](const Tensor& x, int64_t groups) {
          const int64_t c = x.size(1), inner = x.numel() / (x.size(0) * c), each = c / groups;
          return moved(x, x.shape(), [&](int64_t i) {
            const int64_t at = i / inner % c;
            return i + (at % groups * each + at / groups - at) * inner;
          });
        },
}};

}  // namespace

Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor) {
  return pixel_shuffle_op(x, upscale_factor);
}
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor) {
  return pixel_unshuffle_op(x, downscale_factor);
}
Tensor channel_shuffle(const Tensor& x, int64_t groups) {
  return channel_shuffle_op(x, groups);
}

}  // namespace strata
