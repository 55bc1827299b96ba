// 8 and 4 bits a number, both ways, with error feedback (Seide et al. 2014; two coded halves as in Tang et al.,
// arXiv:2102.02888, section 4).

#include <cmath>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/dist/exchange/exchange_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/join/join.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::distributed::exchange {

int64_t reduced_bytes(int64_t count, int64_t element, int64_t ranks, int64_t rank, bool host) {
  constexpr int64_t kGathered = 2048, kPiece = int64_t{1} << 20;  // as in communicator.cpp
  if (!host) return static_cast<int64_t>(ring_bytes(static_cast<double>(count * element), ranks));
  if (count * element <= kGathered) return count * element * (ranks - 1);
  int64_t sent = 0;
  const int64_t most = kPiece / element * ranks;
  for (int64_t from = 0; from < count; from += most) {
    const int64_t n = std::min(most, count - from), own = n / ranks + (rank < n % ranks ? 1 : 0);
    sent += (n - own + own * (ranks - 1)) * element;
  }
  return sent;
}

Codes encode(const Tensor& x, const BlockCode& code) {
  const Tensor blocks = x.view({-1, code.block});
  Tensor scales, steps;  // steps of the grid, from 0
  if (code.bits == 1) {
    scales = mean(abs(blocks), {1}, true);
    steps = where(blocks >= Scalar(0.0f), 1.0f, 0.0f).to(DType::f32);
  } else {
    const int most = (1 << (code.bits - 1)) - 1;
    scales = amax(abs(blocks), {1}, true) / Scalar(static_cast<float>(most));
    steps = round(blocks / where(scales == Scalar(0.0f), 1.0f, scales)) + Scalar(static_cast<float>(most));
  }
  // The first numbers of a block are the low bits of its bytes, and so on.
  const int64_t width = code.block * code.bits / 8;
  Tensor bytes = steps.narrow(1, 0, width);
  for (int i = 1; i * code.bits < 8; ++i)
    bytes = bytes + steps.narrow(1, i * width, width) * Scalar(static_cast<float>(1 << (i * code.bits)));
  return {bytes.to(DType::u8).contiguous(), scales.contiguous()};
}

Tensor decode(const Codes& c, const BlockCode& code) {
  const float most = code.bits == 1 ? 0.5f : static_cast<float>((1 << (code.bits - 1)) - 1);
  const Scalar base(static_cast<float>(1 << code.bits));
  Tensor rest = c.codes.to(DType::f32);
  TensorList parts;
  for (int i = 0; i * code.bits < 8; ++i) {
    const bool last = (i + 1) * code.bits >= 8;
    const Tensor above = last ? Tensor() : floor(rest / base);
    parts.push_back(last ? rest : rest - above * base);
    rest = above;
  }
  const Tensor steps = parts.size() == 1 ? parts[0] : cat(parts, 1);
  const Tensor grid = (steps - Scalar(most)) * Scalar(code.bits == 1 ? 2.0f : 1.0f);
  return (grid * c.scales.view({-1, 1})).view({-1});
}

Tensor gradient_of(const Tensor& parameter) {
  const Tensor g = parameter.grad();
  return g.defined() ? g.detach().to(DType::f32) : zeros_on(parameter.device(), parameter.shape());
}

void set_gradient(Tensor parameter, const Tensor& value) {
  const Tensor v = value.view(parameter.shape());
  if (const Tensor g = parameter.grad(); g.defined() && g.shape() == parameter.shape())
    copy_elements(g, v.to(g.dtype()));
  else
    parameter.set_grad(v.to(parameter.dtype()).clone());
}

void clip(TensorList& gradients, double max_norm) {
  if (std::isinf(max_norm)) return;
  Tensor squares;
  for (const Tensor& g : gradients) {
    const Tensor own = sum(square(g.to(DType::f64)));
    squares = squares.defined() ? squares + own : own;
  }
  // A norm that is not finite makes all of them so.
  const Tensor factor = clamp_max(Scalar(max_norm) / sqrt(squares), 1.0).to(DType::f32);
  for (Tensor& g : gradients) g = g * factor;
}

CodedExchange::CodedExchange(const ExchangeRecord& record, const Parameters& parameters, Group& group,
                             const ExchangeOptions& options, const BlockCode& code)
    : GradientExchange(record, parameters, group, options), code_(code) {
  const memory::TagScope tag(memory::Tag::optimizer);
  std::vector<int64_t> numels;
  for (const Parameter& p : parameters_) numels.push_back(p.tensor.numel());
  for (Bucket& b : make_buckets(numels, ranks() * code.block)) {
    const int64_t n = b.padded;
    flats_.push_back({std::move(b), zeros_on(device_, {n}), zeros_on(device_, {n / ranks()})});
  }
}

Tensor CodedExchange::gradients_of(const Bucket& b) const {
  TensorList parts;
  for (const size_t i : b.members) parts.push_back(gradient_of(parameters_[i].tensor).contiguous().view({-1}));
  if (b.padded > b.numel) parts.push_back(zeros_on(device_, {b.padded - b.numel}));
  return parts.size() == 1 ? parts[0] : cat(parts, 0);
}

void CodedExchange::give_gradients(const Bucket& b, const Tensor& flat) {
  for (size_t k = 0; k < b.members.size(); ++k) {
    const Tensor& t = parameters_[b.members[k]].tensor;
    set_gradient(t, flat.narrow(0, b.offsets[k], t.numel()));
  }
}

Tensor CodedExchange::average(Flat& f, const Tensor& gradients) {
  const int64_t n = ranks(), stretch = f.bucket.padded / n, blocks = stretch / code_.block;
  const Tensor x = gradients + f.error;
  const Codes mine = encode(x, code_);
  copy_elements(f.error, x - decode(mine, code_));
  // What fills up the last block is no number of anybody's.
  if (f.bucket.padded > f.bucket.numel)
    fill_elements(f.error.narrow(0, f.bucket.numel, f.bucket.padded - f.bucket.numel), 0);
  const int64_t width = mine.codes.size(1);
  const Codes theirs{to_ranks(mine.codes.view({n, blocks, width}), "codes"),
                     to_ranks(mine.scales.view({n, blocks}), "scales")};
  Tensor total;
  for (int64_t r = 0; r < n; ++r) {
    const Tensor part = decode({theirs.codes.select(0, r), theirs.scales.select(0, r)}, code_);
    total = total.defined() ? total + part : part;
  }
  total = total * Scalar(1.0f / static_cast<float>(n)) + f.sum_error;
  const Codes sums = encode(total, code_);
  copy_elements(f.sum_error, total - decode(sums, code_));
  return decode({from_ranks(sums.codes, "codes of sums").view({n * blocks, width}),
                 from_ranks(sums.scales, "scales of sums").view({n * blocks, 1})},
                code_);
}

std::vector<GradientExchange::State> CodedExchange::states() {
  std::vector<State> all;
  for (size_t i = 0; i < flats_.size(); ++i) {
    all.push_back({cat("error.", i), true, flats_[i].error});
    all.push_back({cat("sum_error.", i), true, flats_[i].sum_error});
  }
  return all;
}

double padded_numbers(const std::vector<Shape>& shapes, int64_t ranks, const BlockCode& code) {
  std::vector<int64_t> numels;
  for (const Shape& s : shapes) numels.push_back(s.product());
  double all = 0;
  for (const Bucket& b : make_buckets(numels, ranks * code.block)) all += static_cast<double>(b.padded);
  return all;
}
double sent_coded(const std::vector<Shape>& shapes, int64_t ranks, const BlockCode& code) {
  const double each = static_cast<double>(code.bytes(code.block)) / static_cast<double>(code.block);
  return ring_bytes(each * padded_numbers(shapes, ranks, code), ranks);
}

namespace {

constexpr BlockCode kInt8{8, 256}, kInt4{4, 64};

class LowBit final : public CodedExchange {
 public:
  using CodedExchange::CodedExchange;

 protected:
  void exchange(double) override {
    for (Flat& f : flats_) give_gradients(f.bucket, average(f, gradients_of(f.bucket)));
  }
};

}  // namespace

std::unique_ptr<GradientExchange> make_int8(const GradientExchange::Parameters& p, Group& g, const ExchangeOptions& o) {
  return std::make_unique<LowBit>(exchange_record("int8"), p, g, o, kInt8);
}
std::unique_ptr<GradientExchange> make_int4(const GradientExchange::Parameters& p, Group& g, const ExchangeOptions& o) {
  return std::make_unique<LowBit>(exchange_record("int4"), p, g, o, kInt4);
}
double sent_int8(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&) {
  return sent_coded(shapes, ranks, kInt8);
}
double sent_int4(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&) {
  return sent_coded(shapes, ranks, kInt4);
}

double kept_int8(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&) {
  return 4 * padded_numbers(shapes, ranks, kInt8) * (1 + 1 / static_cast<double>(ranks));
}
double kept_int4(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&) {
  return 4 * padded_numbers(shapes, ranks, kInt4) * (1 + 1 / static_cast<double>(ranks));
}

}  // namespace strata::distributed::exchange
