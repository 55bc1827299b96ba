#include "strata/nn/position_dropout_inl.h"

#include "strata/core/op_base.h"
#include "strata/ops/dropout/dropout.h"

namespace strata::nn::detail {

using strata::detail::PositionShare;

DropNumbers::DropNumbers(const Shape& x) {
  const PositionShare share = strata::detail::position_share();
  const int64_t n = x.product();
  Generator& random = default_generator();
  if (share.parts == 1 || x.size() < 3 || x[1] * share.parts != share.length || n == 0) {
    const uint64_t own = random_blocks(n);
    key_ = random.next(own * static_cast<uint64_t>(share.parts));
    key_.offset += own * static_cast<uint64_t>(share.part);
    return;
  }
  key_ = random.next(random_blocks(n * share.parts));
  const int64_t row = n / x[0], whole = row * share.parts;
  numbers_ = share.paired ? Dims{row / 2, row / 2 * share.part, row / 2 * (2 * share.parts - 1 - share.part), whole, 0}
                          : Dims{row, row * share.part, row * share.part + whole, 2 * whole, 0};
}

Tensor DropNumbers::drop(const Tensor& piece, double p, int64_t first) const {
  if (p == 0) return piece;
  Dims numbers = numbers_;
  if (numbers.empty() && first > 0) numbers = {first + piece.numel(), 0, 0, 0, 0};
  if (!numbers.empty()) numbers[4] = first;
  return dropout(piece, p, key_, numbers);
}

Tensor dropped(const Tensor& x, double p) {
  return p == 0 ? x : DropNumbers(x.shape()).drop(x, p);
}

}  // namespace strata::nn::detail
