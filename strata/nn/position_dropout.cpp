#include "strata/autograd/function.h"
#include "strata/core/op_base.h"
#include "strata/core/position_share_inl.h"
#include "strata/core/rng.h"
#include "strata/nn/position_dropout_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::nn::detail {
namespace {

using strata::detail::PositionShare;

// Row by row and chunk by chunk, each with the numbers that begin at its place of the whole.
Tensor drop_by_chunks(const Tensor& x, double p, RngKey key, const PositionShare& share) {
  const int64_t rows = x.size(0), own = x.size(1), inner = x.numel() / (rows * own);
  const int64_t chunk = share.paired ? own / 2 : own;
  Tensor y = empty(TensorMeta{x.shape(), x.dtype(), x.device(), std::nullopt});
  for (int64_t b = 0; b < rows; ++b)
    for (int64_t at = 0; at < own; at += chunk) {
      const int64_t place = at == 0 ? share.part : 2 * share.parts - 1 - share.part;
      const auto first = static_cast<uint64_t>((b * share.length + place * chunk) * inner);
      RngKey here = key;
      here.offset += (first + 3) / 4;
      const auto piece = [&](const Tensor& t) { return t.narrow(0, b, 1).narrow(1, at, chunk); };
      piece(y).copy_(dropout(piece(x), p, here));
    }
  return y;
}

struct DropPositions : Function<DropPositions> {
  struct Ctx : FunctionCtx {
    double p = 0;
    RngKey key;
    PositionShare share;
  };
  static Tensor forward(Ctx& ctx, const Tensor& x, double p, RngKey key, const PositionShare& share) {
    ctx.p = p;
    ctx.key = key;
    ctx.share = share;
    return drop_by_chunks(x, p, key, share);
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) {
    return {DropPositions::apply(gy[0], ctx.p, ctx.key, ctx.share)};
  }
};

}  // namespace

Tensor dropped(const Tensor& x, double p) {
  const PositionShare share = strata::detail::position_share();
  if (share.parts == 1 || p == 0) return dropout(x, p);
  Generator& random = default_generator();
  if (x.dim() >= 3 && x.size(1) * share.parts == share.length && x.numel() > 0)
    return DropPositions::apply(x, p, random.next(random_blocks(x.numel() * share.parts)), share);
  const uint64_t own = random_blocks(x.numel());
  random.next(own * static_cast<uint64_t>(share.part));
  const Tensor y = dropout(x, p);
  random.next(own * static_cast<uint64_t>(share.parts - 1 - share.part));
  return y;
}

}  // namespace strata::nn::detail
