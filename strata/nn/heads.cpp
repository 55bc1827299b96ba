#include "strata/nn/heads.h"

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/matmul/matmul.h"

namespace strata::nn {

ClassificationHead::ClassificationHead(int64_t dim, int64_t classes, bool bias, double drop)
    : Module("ClassificationHead"),
      out(register_module("out", Linear(dim, classes, bias))),
      dropout(register_module("dropout", Dropout(drop))) {
  check(classes >= 1, "ClassificationHead", "there are ", classes, " classes");
}

Tensor classification_loss(const Tensor& scores, const Tensor& targets) {
  constexpr std::string_view op = "classification_loss";
  check<ShapeError>(scores.dim() == 2, op, "scores are [B, classes], got ", scores);
  const bool low = scores.dtype() == DType::bf16 || scores.dtype() == DType::f16;
  const Tensor s = low ? scores.to(DType::f32) : scores;
  if (!is_floating(targets.dtype())) return cross_entropy(s, targets);
  if (targets.shape() == scores.shape() && scores.size(1) > 1) return binary_cross_entropy_with_logits(s, targets);
  check<ShapeError>(scores.size(1) == 1 && targets.numel() == scores.size(0), op, "scores are ", scores, ", targets ",
                    targets);
  return mse_loss(s.squeeze(1), targets.reshape({scores.size(0)}));
}

Tensor contrastive_loss(const Tensor& a, const Tensor& b, double temperature) {
  constexpr std::string_view op = "contrastive_loss";
  check<ShapeError>(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(1) && b.size(0) >= a.size(0), op,
                    "wants [B, D] and [N, D] with N >= B, got ", a, " and ", b);
  check(temperature > 0, op, "temperature is above 0, got ", temperature);
  const DeviceScope there(a.device());
  return cross_entropy(matmul(a, b.t()) / temperature, arange(a.size(0), DType::i64));
}

}  // namespace strata::nn
