#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/matmul/matmul_kernels.h"

namespace strata::cpu {
namespace {

// The product of the matrices in the last two dims; operands of one dim are a row (a) or a column (b).
Gemm product(Tensor& y, const Tensor& a, const Tensor& b) {
  Gemm g;
  g.in = a.dtype(), g.out = y.dtype();
  g.a = a.raw_data(), g.b = b.raw_data(), g.c = y.raw_data();
  const int64_t ad = a.dim(), bd = b.dim();
  const bool row = ad == 1, column = bd == 1;
  g.m = row ? 1 : a.shape()[ad - 2];
  g.k = a.shape()[ad - 1];
  g.n = column ? 1 : b.shape()[bd - 1];
  g.a_row = row ? 0 : a.strides()[ad - 2];
  g.a_col = a.strides()[ad - 1];
  g.b_row = column ? b.strides()[0] : b.strides()[bd - 2];
  g.b_col = column ? 0 : b.strides()[bd - 1];
  const int64_t batch = y.dim() - !row - !column;
  g.c_row = row ? 0 : y.strides()[batch];
  g.c_col = column ? 0 : y.strides()[y.dim() - 1];
  // 0 also where a size is 1: an operand's own stride there means nothing.
  const auto batch_stride = [&](const Tensor& t, int64_t d, int64_t own) {
    const int64_t at = d - (batch - own);
    return at < 0 || t.shape()[at] == 1 ? 0 : t.strides()[at];
  };
  for (int64_t d = 0; d < batch; ++d) {
    g.batch.push_back(y.shape()[d]);
    g.a_batch.push_back(batch_stride(a, d, std::max<int64_t>(ad - 2, 0)));
    g.b_batch.push_back(batch_stride(b, d, std::max<int64_t>(bd - 2, 0)));
    g.c_batch.push_back(y.strides()[d]);
  }
  return g;
}
}  // namespace

void matmul(Tensor& y, const Tensor& a, const Tensor& b) { gemm(product(y, a, b)); }

void addmm(Tensor& y, const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  Gemm g = product(y, a, b);
  g.alpha = alpha.to_double();
  g.beta = beta.to_double();
  const bool bias_row = input.dim() == 1 && input.shape()[0] == g.n && input.is_contiguous();
  if (bias_row && g.alpha == 1 && g.beta == 1) {
    g.beta = 0;
    g.bias = input.raw_data();
    g.bias_dtype = input.dtype();
  } else if (g.beta != 0) {
    y.copy_(input);
  }
  gemm(g);
}

void linear(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Gemm g = product(y, x, weight.transpose(0, 1));
  Tensor dense;
  if (bias.defined()) {
    dense = bias.contiguous();
    g.bias = dense.raw_data();
    g.bias_dtype = bias.dtype();
  }
  gemm(g);
}

}  // namespace strata::cpu
