#pragma once
// The records' kernels: they describe a product, which the device's gemm computes.

#include "strata/core/tensor.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/matmul/gemm_cuda.h"
#include "strata/ops/matmul/outer_batch_inl.h"

namespace strata {
namespace products {

// The product of the matrices in the last two dims; operands of one dim are a row (a) or a column (b).
inline Gemm product(Tensor& y, const Tensor& a, const Tensor& b) {
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

template <class On>
void run(On on, const Gemm& g, const Tensor& y) {
  if constexpr (on.cuda)
    cuda::gemm(g, y.device());
  else
    cpu::gemm(g);
}
// t as a dense matrix [rows, last].
inline Tensor dense_rows(const Tensor& t) {
  return t.contiguous().view({t.numel() / t.shape().back(), t.shape().back()});
}
// Dense rows of a product with an epilogue that has a second matrix.
template <class On>
void with_aux(On on, Tensor& y, const Tensor& aux, const Tensor& a, const Tensor& b, const Tensor& bias,
              Epilogue epilogue) {
  Gemm g = product(y, a, b);
  Tensor dense;
  if (bias.defined()) {
    dense = bias.contiguous();
    g.bias = dense.raw_data();
    g.bias_dtype = bias.dtype();
  }
  g.epilogue = epilogue;
  g.aux = aux.raw_data();
  run(on, g, y);
}
}  // namespace products

namespace products {
// On a card each dim of a batch that neither operand steps through evenly is a loop of launches, and small matrices are
// worth less than their launch: one product instead, whose result is put in order.
inline bool is_one_product(const OuterBatch& o, DType t) {
  constexpr double kLaunch = 1e9;  // operations in the time of some launches
  const int64_t p = o.sizes_a.product(), q = o.sizes_b.product();
  const double each = 2.0 * static_cast<double>(o.m) * static_cast<double>(o.n) * static_cast<double>(o.k) *
                      static_cast<double>(std::max(p, q));
  return is_floating(t) && std::min(p, q) >= 4 && each < kLaunch && o.m > 0 && o.n > 0 && o.k > 0;
}
}  // namespace products

template <class On>
void matmul_kernel(On on, Tensor& y, const Tensor& a, const Tensor& b) {
  if constexpr (on.cuda) {
    const auto outer = products::outer_batch(a, b);
    if (outer && products::is_one_product(*outer, a.dtype())) {
      const Tensor rows = outer->rows(a), columns = outer->columns(b);
      Tensor flat = empty({{rows.shape()[0], columns.shape()[1]}, y.dtype(), y.device(), std::nullopt});
      products::run(on, products::product(flat, rows, columns), flat);
      outer->apart(y).copy_(reshape(flat, outer->apart_shape()));
      return;
    }
  }
  products::run(on, products::product(y, a, b), y);
}

template <class On>
void addmm_kernel(On on, Tensor& y, const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  Gemm g = products::product(y, a, b);
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
  products::run(on, g, y);
}

template <class On>
void linear_kernel(On on, Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias, bool tf32 = false) {
  Gemm g = products::product(y, x, weight.transpose(0, 1));
  g.tf32 = tf32;
  Tensor dense;
  if (bias.defined()) {
    dense = bias.contiguous();
    g.bias = dense.raw_data();
    g.bias_dtype = bias.dtype();
  }
  products::run(on, g, y);
}

/// y = gelu_tanh(pre), pre = linear(x, weight, bias).
template <class On>
void linear_gelu_kernel(On on, Tensor& y, Tensor& pre, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (y.numel() == 0) return;
  const int64_t in = x.shape().back();
  const Tensor rows = x.contiguous().view({y.numel() / y.shape().back(), in});
  Tensor to = products::dense_rows(y), argument = products::dense_rows(pre);  // copies where y or pre is strided
  products::with_aux(on, to, argument, rows, weight.transpose(0, 1), bias, Epilogue::gelu_tanh);
  if (!y.is_contiguous()) y.copy_(to.view(y.shape()));
  if (!pre.is_contiguous()) pre.copy_(argument.view(pre.shape()));
}

/// y = (g weight) * gelu_tanh'(pre).
template <class On>
void matmul_gelu_grad_kernel(On on, Tensor& y, const Tensor& g, const Tensor& weight, const Tensor& pre) {
  if (y.numel() == 0) return;
  const Tensor rows = g.contiguous().view({y.numel() / y.shape().back(), g.shape().back()});
  Tensor to = products::dense_rows(y);
  products::with_aux(on, to, products::dense_rows(pre), rows, weight, {}, Epilogue::gelu_tanh_grad);
  if (!y.is_contiguous()) y.copy_(to.view(y.shape()));
}

}  // namespace strata
