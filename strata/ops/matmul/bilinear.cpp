#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/products.h"
#include "strata/ops/matmul/records.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Shape result_shape(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) {
  constexpr std::string_view op = "bilinear";
  bool agree = weight.dim() == 3 && x1.dim() >= 1 && x1.dim() == x2.dim() && x1.size(-1) == weight.size(1) &&
               x2.size(-1) == weight.size(2);
  for (int64_t d = 0; agree && d + 1 < x1.dim(); ++d) agree = x1.size(d) == x2.size(d);
  check<ShapeError>(agree, op, "wants [.., k], [.., l] and a weight [out, k, l], got ", x1, ", ", x2, " and ", weight);
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.size(0)}, op, "bias is ", bias, ", wanted [",
                    weight.size(0), "]");
  Shape s = x1.shape();
  s[s.size() - 1] = weight.size(0);
  return s;
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> bilinear_op{{
    .schema = "bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor",
    .doc = "input1^T weight[o] input2 + bias[o] for every o: input1 [.., k], input2 [.., l], weight [out, k, l], bias "
           "[out] -> [.., out]. ShapeError.",
    .example = "assert(bilinear(ones({4, 2}), ones({4, 3}), ones({5, 2, 3})).sum().item() == 120);",
    .composed =
        [](const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) {
          const Shape shape = result_shape(x1, x2, weight, bias);
          int64_t n = 1;
          for (int64_t d = 0; d + 1 < x1.dim(); ++d) n *= x1.size(d);
          const Tensor y =
              einsum("ni,oij,nj->no", {x1.reshape({n, x1.size(-1)}), weight, x2.reshape({n, x2.size(-1)})});
          return (bias.defined() ? y + bias : y).reshape(shape);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 2}), s.tensor({4, 3}), s.tensor({5, 2, 3}), s.tensor({5}));
          s.add(s.tensor({2, 3, 4}), s.tensor({2, 3, 2}), s.tensor({1, 4, 2})).named("more dimensions");
          s.add(s.tensor({3}), s.tensor({2}), s.tensor({4, 3, 2}), s.tensor({4})).named("vectors");
          s.invalid<ShapeError>("wants", s.tensor({4, 2}), s.tensor({4, 3}), s.tensor({5, 3, 2}));
          s.invalid<ShapeError>("wants", s.tensor({4, 2}), s.tensor({3, 3}), s.tensor({5, 2, 3}));
          s.invalid<ShapeError>("bias is", s.tensor({4, 2}), s.tensor({4, 3}), s.tensor({5, 2, 3}), s.tensor({4}));
        },
    .reference = [](const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) -> Tensor {
      const naive::Array a(x1), b(x2), w(weight);
      return naive::made(result_shape(x1, x2, weight, bias), [&](const Dims& place) {
        const int64_t o = place[place.size() - 1];
        double sum = bias.defined() ? bias.to_vector<double>()[static_cast<size_t>(o)] : 0;
        for (int64_t i = 0; i < weight.size(1); ++i)
          for (int64_t j = 0; j < weight.size(2); ++j)
            sum += a[naive::moved(place, x1.dim() - 1, i)] * w[{o, i, j}] * b[naive::moved(place, x1.dim() - 1, j)];
        return sum;
      });
    },
}};

}  // namespace

Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) {
  return bilinear_op(x1, x2, weight, bias);
}

}  // namespace strata
