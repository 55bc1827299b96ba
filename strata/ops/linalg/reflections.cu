// Householder's reflections on a card: small matrices by a kernel with a block for each, others by cuSOLVER.

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/linalg/dense_inl.cuh"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/reflections.cuh"
#include "strata/ops/shape/shape.h"
#include "strata/ops/shape/shape_kernels.h"

namespace strata::linalg_cuda {
namespace {

// Warps of a block, and how many bytes of shared memory are small: 150 x 150 of f32.
int warps_for(int64_t columns) {
  return columns <= 32 ? 8 : 16;
}
constexpr int64_t kSmallBytes = 96 * 1024;
template <class T>
bool small(int64_t m, int64_t n, int64_t columns) {
  return linalg::reflections_bytes<T>(m, n, warps_for(std::max(n, columns))) <= kSmallBytes;
}
template <class T>
void reflect_small(std::string_view op, const linalg::Reflections<T>& job, int64_t batch) {
  const int warps = warps_for(std::max(job.n, job.columns));
  const auto bytes = static_cast<size_t>(linalg::reflections_bytes<T>(job.m, job.n, warps));
  const auto kernel = &linalg::reflections_kernel<T>;
  if (bytes > 48 * 1024)
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmallBytes), op,
                     "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(batch), static_cast<unsigned>(warps * cuda::kWarp), bytes, cuda::stream()>>>(job);
}

// Householder's vectors over matrices by columns [.., n, m], and their factors.
template <class T>
void reflect(std::string_view op, const Tensor& columns, const Tensor& tau, int64_t m, int64_t n) {
  const int64_t batch = columns.numel() / (m * n), k = std::min(m, n);
  const auto handle = cuda::cusolver_handle();
  int size = 0;
  check_dense(dense<T>().geqrf_size(handle, as_int(op, m), as_int(op, n), at<T>(columns), as_int(op, m), &size), op);
  const Tensor work = made(columns, {std::max(1, size)}, columns.dtype()), info = made(columns, {1}, DType::i32);
  for (int64_t b = 0; b < batch; ++b)
    check_dense(dense<T>().geqrf(handle, static_cast<int>(m), static_cast<int>(n), at<T>(columns, b * m * n),
                                 static_cast<int>(m), at<T>(tau, b * k), at<T>(work), size, at<int>(info)),
                op);
}
// Q's first `columns` columns, by columns [.., columns, m], over the vectors in its first `used`.
template <class T>
void generate(std::string_view op, const Tensor& q, const Tensor& tau, int64_t m, int64_t columns, int64_t used) {
  const int64_t batch = q.numel() / (m * columns);
  const auto handle = cuda::cusolver_handle();
  int size = 0;
  const int rows = as_int(op, m), n = as_int(op, columns), k = as_int(op, used);
  check_dense(dense<T>().orgqr_size(handle, rows, n, k, at<T>(q), rows, at<T>(tau), &size), op);
  const Tensor work = made(q, {std::max(1, size)}, q.dtype()), info = made(q, {1}, DType::i32);
  for (int64_t b = 0; b < batch; ++b)
    check_dense(dense<T>().orgqr(handle, rows, n, k, at<T>(q, b * m * columns), rows, at<T>(tau, b * used), at<T>(work),
                                 size, at<int>(info)),
                op);
}

}  // namespace

void qr(Tensor& Q, Tensor& R, const Tensor& A, const std::string& mode) {
  const int64_t m = rows(A), n = cols(A), k = std::min(m, n), q = mode == "r" ? 0 : cols(Q);
  if (A.numel() == 0) {  // no reflections: Q is the identity
    if (R.numel() > 0) R.zero_();
    if (q > 0 && Q.numel() > 0) Q.copy_(linalg::identity(A, m));
    return;
  }
  wide(A, "linalg_qr", [&]<class T>() {
    if (small<T>(m, n, q)) {
      const Tensor a = contiguous(A);
      return reflect_small<T>("linalg_qr",
                              {.a = at<const T>(a),
                               .r = at<T>(R),
                               .q = q > 0 ? at<T>(Q) : nullptr,
                               .m = static_cast<int>(m),
                               .n = static_cast<int>(n),
                               .k = static_cast<int>(k),
                               .rows_of_r = static_cast<int>(rows(R)),
                               .columns = static_cast<int>(q)},
                              A.numel() / (m * n));
    }
    const Tensor columns = copied(mT(A)), tau = made(A, linalg::with(batch_of(A), k), A.dtype());
    reflect<T>("linalg_qr", columns, tau, m, n);
    triu_cuda(R, narrow(mT(columns), -2, 0, rows(R)), 0);
    if (q == 0) return;
    const Tensor y = made(A, linalg::with(batch_of(A), q, m), A.dtype());
    Tensor first = narrow(y, -2, 0, k);
    first.copy_(narrow(columns, -2, 0, k));
    if (q > k) narrow(y, -2, k, q - k).zero_();
    generate<T>("linalg_qr", y, tau, m, q, k);
    Q.copy_(mT(y));
  });
}

void geqrf(Tensor& y, Tensor& tau, const Tensor& A) {
  if (A.numel() == 0) return;
  const int64_t m = rows(A), n = cols(A);
  wide(A, "geqrf", [&]<class T>() {
    if (small<T>(m, n, 0)) {
      const Tensor a = contiguous(A);
      return reflect_small<T>("geqrf",
                              {.a = at<const T>(a),
                               .vectors = at<T>(y),
                               .tau = at<T>(tau),
                               .m = static_cast<int>(m),
                               .n = static_cast<int>(n),
                               .k = static_cast<int>(std::min(m, n))},
                              A.numel() / (m * n));
    }
    const Tensor columns = copied(mT(A));
    reflect<T>("geqrf", columns, tau, m, n);
    y.copy_(mT(columns));
  });
}

void householder_product(Tensor& Q, const Tensor& A, const Tensor& tau) {
  constexpr std::string_view op = "linalg_householder_product";
  if (Q.numel() == 0) return;
  const int64_t m = rows(A), n = cols(A), k = tau.shape().back();
  if (k == 0) return void(Q.copy_(narrow(linalg::identity(A, m), -1, 0, n)));
  const Tensor scales = contiguous(tau);
  wide(A, op, [&]<class T>() {
    if (small<T>(m, n, n)) {
      const Tensor a = contiguous(A);
      return reflect_small<T>(op,
                              {.a = at<const T>(a),
                               .given = at<const T>(scales),
                               .q = at<T>(Q),
                               .m = static_cast<int>(m),
                               .n = static_cast<int>(n),
                               .k = static_cast<int>(k),
                               .columns = static_cast<int>(n)},
                              A.numel() / (m * n));
    }
    const Tensor y = copied(mT(A));
    generate<T>(op, y, scales, m, n, k);
    Q.copy_(mT(y));
  });
}

}  // namespace strata::linalg_cuda
