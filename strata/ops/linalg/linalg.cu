// The kernels for cards, by cuSOLVER. A row-major matrix is to it its transpose; copies that turn matrices round are
// ops.

#include <algorithm>
#include <climits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/cuda/cusolver.h"
#include "strata/cuda/kernel.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/index/index.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/permutation_inl.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::linalg_cuda {
namespace {

using cuda::check_dense;
using cuda::dense;
using linalg::batch_of;
using linalg::cols;
using linalg::Failure;
using linalg::mT;
using linalg::require_success;
using linalg::rows;

int as_int(std::string_view op, int64_t n) {
  check<ShapeError>(n <= INT_MAX, op, "a side of ", n, " is longer than cuSOLVER takes");
  return static_cast<int>(n);
}
template <class T>
T* at(const Tensor& t, int64_t offset = 0) {
  return static_cast<T*>(t.raw_data()) + offset;
}
Tensor made(const Tensor& beside, const Shape& shape, DType dtype) {
  return empty({shape, dtype, beside.device(), std::nullopt});
}
// A row-major copy that may be written over; of mT(A): A by columns.
Tensor copied(const Tensor& A) {
  const Tensor c = made(A, A.shape(), A.dtype());
  Tensor to = c;
  to.copy_(A);
  return c;
}
template <class F>
void wide(const Tensor& t, std::string_view op, F&& f) {
  dispatch_wide_floats(t.dtype(), op, f);
}

__global__ void addresses_kernel(uint64_t* to, uint64_t base, int64_t step, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) to[i] = base + static_cast<uint64_t>(i * step);
}
// The addresses of the matrices of a row-major batch, on the device.
Tensor addresses(const Tensor& batch, int64_t count) {
  const Tensor t = made(batch, {count}, DType::i64);
  addresses_kernel<<<cuda::blocks_for(count, 256), 256, 0, cuda::stream()>>>(
      at<uint64_t>(t), reinterpret_cast<uint64_t>(batch.raw_data()), batch.nbytes() / count, count);
  return t;
}

constexpr int kOrderThreads = 128;
// Block (x, y) has kOrderThreads of the rows of matrix x.
__global__ void __launch_bounds__(kOrderThreads)
    permutation_kernel(int64_t* order, const int* pivots, int64_t rows, int64_t k) {
  const int64_t b = blockIdx.x, row = int64_t{blockIdx.y} * kOrderThreads + threadIdx.x;
  if (row < rows) order[b * rows + row] = linalg::row_before(pivots + b * k, k, rows, row);
}

// What tells of a failure is read where the host may wait.
void require_converged(std::string_view op, const Tensor& info, const Tensor& A) {
  if (cuda::capture_pool() == 0) require_success(op, info.view(batch_of(A)), Failure::not_converged);
}

// 1 or -1 for each column of V: what makes its largest element positive.
Tensor signs_of(const Tensor& V) {
  const Tensor largest = gather(V, -2, argmax(abs(V), -2, true));
  return where(largest < 0.0, -1.0, 1.0).to(V.dtype());
}

}  // namespace

void cholesky(Tensor& L, Tensor& info, const Tensor& A, bool upper, bool check_errors) {
  const int64_t batch = info.numel();
  const int n = as_int("linalg_cholesky", rows(A));
  L.copy_(upper ? triu(A) : tril(A));
  info.zero_();
  if (L.numel() > 0)
    wide(A, "linalg_cholesky", [&]<class T>() {
      const auto uplo = upper ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
      const auto handle = cuda::cusolver_handle();
      if (batch > 1) {
        const Tensor to = addresses(L, batch);
        check_dense(
            dense<T>().potrf_batched(handle, uplo, n, at<T*>(to), n, at<int>(info), as_int("linalg_cholesky", batch)),
            "linalg_cholesky");
        L.copy_(upper ? triu(L) : tril(L));  // the other triangle was its workspace
      } else {
        int size = 0;
        check_dense(dense<T>().potrf_size(handle, uplo, n, at<T>(L), n, &size), "linalg_cholesky");
        const Tensor work = made(A, {std::max(1, size)}, A.dtype());
        check_dense(dense<T>().potrf(handle, uplo, n, at<T>(L), n, at<T>(work), size, at<int>(info)),
                    "linalg_cholesky");
      }
    });
  if (check_errors) require_success("linalg_cholesky", info, Failure::not_positive);
}

namespace {

// The factors of matrices by columns, in place.
template <class T>
void factor(std::string_view op, const Tensor& columns, const Tensor& pivots, const Tensor& info, int64_t tall,
            int64_t broad, bool pivot) {
  const int64_t batch = info.numel(), k = std::min(tall, broad);
  const int m = as_int(op, tall), n = as_int(op, broad);
  if (batch > 1 && m == n) {
    const Tensor to = addresses(columns, batch);
    return check_dense(dense<T>().getrf_batched(cuda::cublas_handle(), n, at<T*>(to), n,
                                                pivot ? at<int>(pivots) : nullptr, at<int>(info), as_int(op, batch)),
                       op);
  }
  const auto handle = cuda::cusolver_handle();
  int size = 0;
  check_dense(dense<T>().getrf_size(handle, m, n, at<T>(columns), m, &size), op);
  const Tensor work = made(columns, {std::max(1, size)}, columns.dtype());
  for (int64_t b = 0; b < batch; ++b)
    check_dense(dense<T>().getrf(handle, m, n, at<T>(columns, b * tall * broad), m, at<T>(work),
                                 pivot ? at<int>(pivots, b * k) : nullptr, at<int>(info, b)),
                op);
}

}  // namespace

void lu_factor(Tensor& LU, Tensor& pivots, Tensor& info, const Tensor& A, bool pivot, bool check_errors) {
  info.zero_();
  if (A.numel() > 0) {
    const Tensor columns = copied(mT(A));
    wide(A, "linalg_lu_factor",
         [&]<class T>() { factor<T>("linalg_lu_factor", columns, pivots, info, rows(A), cols(A), pivot); });
    LU.copy_(mT(columns));
    if (!pivot) pivots.copy_(linalg::counted(A, pivots.shape().back(), DType::i32) + 1);
  }
  if (check_errors) require_success("linalg_lu_factor", info, Failure::singular);
}

void lu_permutation(Tensor& order, const Tensor& pivots, int64_t rows) {
  if (order.numel() == 0) return;
  const Tensor p = contiguous(pivots);
  const int64_t batch = order.numel() / rows;
  const dim3 blocks(static_cast<unsigned>(batch), cuda::blocks_for(rows, kOrderThreads));
  permutation_kernel<<<blocks, kOrderThreads, 0, cuda::stream()>>>(
      at<int64_t>(order), p.numel() > 0 ? at<const int>(p) : nullptr, rows, pivots.shape().back());
}

void solve(Tensor& X, Tensor& info, const Tensor& A, const Tensor& B, bool left, bool check_errors) {
  info.zero_();
  if (A.numel() > 0) {
    const bool vectors = linalg::is_vectors(A, B);
    const int64_t side = rows(A), matrices = info.numel();
    // Each matrix is factored once; B's further batch dimensions meet the factors afterwards.
    const Tensor lu = copied(left ? mT(A) : A), pivots = made(A, {std::max<int64_t>(1, matrices) * side}, DType::i32);
    wide(A, "linalg_solve", [&]<class T>() {
      factor<T>("linalg_solve", lu, pivots, info, side, side, true);
      if (X.numel() == 0) return;
      const Shape batch = batch_of(X, vectors ? 1 : 2);
      const Tensor all_b = expand(vectors ? unsqueeze(B, -1) : B, vectors ? unsqueeze(X, -1).shape() : X.shape());
      const Tensor x = copied(left ? mT(all_b) : all_b);
      const int64_t count = batch.product(), k = X.numel() / (count * side);
      const Tensor factors = contiguous(expand(lu, linalg::with(batch, side, side)));
      const Tensor exchanges =
          contiguous(expand(reshape(pivots, linalg::with(batch_of(A), side)), linalg::with(batch, side)));
      const int n = as_int("linalg_solve", side), nrhs = as_int("linalg_solve", k);
      if (count > 1) {
        const Tensor from = addresses(factors, count), to = addresses(x, count);
        int status = 0;
        check_dense(
            dense<T>().getrs_batched(cuda::cublas_handle(), CUBLAS_OP_N, n, nrhs, at<const T*>(from), n,
                                     at<const int>(exchanges), at<T*>(to), n, &status, as_int("linalg_solve", count)),
            "linalg_solve");
      } else {
        const Tensor status = made(A, {1}, DType::i32);
        check_dense(dense<T>().getrs(cuda::cusolver_handle(), CUBLAS_OP_N, n, nrhs, at<const T>(factors), n,
                                     at<const int>(exchanges), at<T>(x), n, at<int>(status)),
                    "linalg_solve");
      }
      const Tensor y = left ? mT(x) : x;
      X.copy_(vectors ? squeeze(y, -1) : y);
    });
  }
  if (check_errors) require_success("linalg_solve", info, Failure::singular);
}

void solve_factored(Tensor& X, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint) {
  if (X.numel() == 0) return;
  const Shape batch = batch_of(X);
  const int64_t side = rows(LU), count = batch.product(), k = X.numel() / (count * side);
  const Tensor all_b = expand(B, X.shape());
  // By columns; X A = B is A^T X^T = B^T.
  const Tensor factors = copied(mT(expand(LU, linalg::with(batch, side, side)))), x = copied(left ? mT(all_b) : all_b);
  const Tensor exchanges = contiguous(expand(pivots, linalg::with(batch, side)));
  const auto turn = left == adjoint ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int n = as_int("linalg_solve", side), nrhs = as_int("linalg_solve", k);
  wide(LU, "linalg_solve", [&]<class T>() {
    if (count > 1) {
      const Tensor from = addresses(factors, count), to = addresses(x, count);
      int status = 0;
      check_dense(
          dense<T>().getrs_batched(cuda::cublas_handle(), turn, n, nrhs, at<const T*>(from), n,
                                   at<const int>(exchanges), at<T*>(to), n, &status, as_int("linalg_solve", count)),
          "linalg_solve");
    } else {
      const Tensor status = made(LU, {1}, DType::i32);
      check_dense(dense<T>().getrs(cuda::cusolver_handle(), turn, n, nrhs, at<const T>(factors), n,
                                   at<const int>(exchanges), at<T>(x), n, at<int>(status)),
                  "linalg_solve");
    }
  });
  X.copy_(left ? mT(x) : x);
}

void solve_triangular(Tensor& X, const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular) {
  if (X.numel() == 0) return;
  const int64_t side = rows(A), size = rows(X) * cols(X), batch = X.numel() / size;
  const Tensor a = contiguous(expand(A, linalg::with(batch_of(X), side, side)));
  X.copy_(B);
  const int n = as_int("linalg_solve_triangular", side),
            other = as_int("linalg_solve_triangular", left ? cols(X) : rows(X));
  wide(A, "linalg_solve_triangular", [&]<class T>() {
    const auto handle = cuda::cublas_handle();
    // By columns these are the transposes: A X = B reads X^T A^T = B^T.
    const auto where = left ? CUBLAS_SIDE_RIGHT : CUBLAS_SIDE_LEFT;
    const auto uplo = upper ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
    const auto diag = unitriangular ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
    const int m = left ? other : n, k = left ? n : other;
    const T one = 1;
    if (batch > 1) {
      const Tensor from = addresses(a, batch), to = addresses(X, batch);
      check_dense(dense<T>().trsm_batched(handle, where, uplo, CUBLAS_OP_N, diag, m, k, &one, at<const T*>(from), n,
                                          at<T*>(to), m, as_int("linalg_solve_triangular", batch)),
                  "linalg_solve_triangular");
    } else {
      check_dense(dense<T>().trsm(handle, where, uplo, CUBLAS_OP_N, diag, m, k, &one, at<const T>(a), n, at<T>(X), m),
                  "linalg_solve_triangular");
    }
  });
}

namespace {

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
  const Tensor columns = copied(mT(A)), tau = made(A, linalg::with(batch_of(A), k), A.dtype());
  wide(A, "linalg_qr", [&]<class T>() {
    reflect<T>("linalg_qr", columns, tau, m, n);
    R.copy_(triu(narrow(mT(columns), -2, 0, rows(R))));
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
  const Tensor columns = copied(mT(A));
  wide(A, "geqrf", [&]<class T>() { reflect<T>("geqrf", columns, tau, rows(A), cols(A)); });
  y.copy_(mT(columns));
}

void householder_product(Tensor& Q, const Tensor& A, const Tensor& tau) {
  if (Q.numel() == 0) return;
  const Tensor y = copied(mT(A)), scales = contiguous(tau);
  if (tau.numel() == 0) return void(Q.copy_(narrow(linalg::identity(A, rows(A)), -1, 0, cols(A))));
  wide(A, "linalg_householder_product",
       [&]<class T>() { generate<T>("linalg_householder_product", y, scales, rows(A), cols(A), tau.shape().back()); });
  Q.copy_(mT(y));
}

namespace {

// One kernel does small matrices of a batch by Jacobi's rotations.
constexpr int64_t kSmall = 32;

void spectrum(std::string_view op, Tensor& values, Tensor* vectors, const Tensor& A, const std::string& uplo) {
  if (A.numel() == 0) return;
  const int64_t side = rows(A), batch = batch_of(A).product();
  const int n = as_int(op, side);
  const Tensor v = copied(A), info = made(A, {batch}, DType::i32);
  const auto triangle = uplo == "U" || uplo == "u" ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
  const auto job = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  wide(A, op, [&]<class T>() {
    const auto handle = cuda::cusolver_handle();
    int size = 0;
    if (batch > 1 && side <= kSmall) {
      const auto parameters = cuda::syevj_parameters();
      const int count = as_int(op, batch);
      check_dense(
          dense<T>().syevj_batched_size(handle, job, triangle, n, at<T>(v), n, at<T>(values), &size, parameters, count),
          op);
      const Tensor work = made(A, {std::max(1, size)}, A.dtype());
      check_dense(dense<T>().syevj_batched(handle, job, triangle, n, at<T>(v), n, at<T>(values), at<T>(work), size,
                                           at<int>(info), parameters, count),
                  op);
      return;
    }
    check_dense(dense<T>().syevd_size(handle, job, triangle, n, at<T>(v), n, at<T>(values), &size), op);
    const Tensor work = made(A, {std::max(1, size)}, A.dtype());
    for (int64_t b = 0; b < batch; ++b)
      check_dense(dense<T>().syevd(handle, job, triangle, n, at<T>(v, b * side * side), n, at<T>(values, b * side),
                                   at<T>(work), size, at<int>(info, b)),
                  op);
  });
  require_converged(op, info, A);
  if (!vectors) return;
  const Tensor turned = mT(v);
  vectors->copy_(turned * signs_of(turned));
}

void singular(std::string_view op, Tensor* U, Tensor& S, Tensor* Vh, const Tensor& A, bool full,
              const std::string& driver) {
  check<ValueError>(driver.empty() || driver == "gesvd" || driver == "gesvdj", op, "driver is \"", driver,
                    "\", wants \"gesvd\" or \"gesvdj\"; gesvda gives approximations and is left out");
  const int64_t m = rows(A), n = cols(A), k = std::min(m, n), batch = batch_of(A).product();
  if (A.numel() == 0) {
    for (Tensor* t : {U, Vh})
      if (t && t->numel() > 0) t->copy_(linalg::identity(A, cols(*t)));
    return;
  }
  // The longer side comes first, which gesvd wants: by columns, a wide A is its transpose.
  const bool tall = m >= n;
  const int long_side = as_int(op, tall ? m : n), short_side = as_int(op, k);
  const int left = full ? long_side : short_side;
  const Tensor a = copied(tall ? mT(A) : A), info = made(A, {batch}, DType::i32);
  // Jacobi's method writes the vectors of a matrix even where none are asked for.
  const Shape each = U ? batch_of(A) : Shape{};
  const Tensor u = made(A, linalg::with(each, left, long_side), A.dtype());
  const Tensor v = made(A, linalg::with(each, k, k), A.dtype());
  const bool jacobi = driver != "gesvd";
  wide(A, op, [&]<class T>() {
    const auto handle = cuda::cusolver_handle();
    int size = 0;
    const auto job = U ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
    const auto parameters = cuda::gesvdj_parameters();
    const int econ = full ? 0 : 1;
    if (jacobi) {
      check_dense(dense<T>().gesvdj_size(handle, job, econ, long_side, short_side, at<T>(a), long_side, at<T>(S),
                                         at<T>(u), long_side, at<T>(v), short_side, &size, parameters),
                  op);
    } else {
      check_dense(dense<T>().gesvd_size(handle, long_side, short_side, &size), op);
    }
    const Tensor work = made(A, {std::max(1, size)}, A.dtype());
    for (int64_t b = 0; b < batch; ++b) {
      T *from = at<T>(a, b * m * n), *s = at<T>(S, b * k), *to_u = at<T>(u, U ? b * left * long_side : 0),
        *to_v = at<T>(v, U ? b * k * k : 0);
      if (jacobi) {
        check_dense(dense<T>().gesvdj(handle, job, econ, long_side, short_side, from, long_side, s, to_u, long_side,
                                      to_v, short_side, at<T>(work), size, at<int>(info, b), parameters),
                    op);
      } else {
        const signed char first = !U ? 'N' : full ? 'A' : 'S', second = !U ? 'N' : 'S';
        check_dense(dense<T>().gesvd(handle, first, second, long_side, short_side, from, long_side, s, to_u, long_side,
                                     to_v, short_side, at<T>(work), size, nullptr, at<int>(info, b)),
                    op);
      }
    }
  });
  require_converged(op, info, A);
  if (!U) return;
  // u is by columns; v too from Jacobi's method, while gesvd gives its transpose.
  const Tensor long_vectors = mT(u), short_vectors = jacobi ? mT(v) : v;
  Tensor left_vectors = tall ? long_vectors : short_vectors, right_vectors = tall ? short_vectors : long_vectors;
  const Tensor signs = signs_of(left_vectors);
  left_vectors = left_vectors * signs;
  // The first k columns belong together; those beyond have a sign of their own.
  const int64_t have = cols(right_vectors);
  Tensor turn = narrow(signs, -1, 0, k);
  if (have > k) turn = cat({turn, signs_of(narrow(right_vectors, -1, k, have - k))}, -1);
  U->copy_(left_vectors);
  Vh->copy_(mT(right_vectors * turn));
}

}  // namespace

void eigh(Tensor& values, Tensor& vectors, const Tensor& A, const std::string& uplo) {
  spectrum("linalg_eigh", values, &vectors, A, uplo);
}
void eigvalsh(Tensor& values, const Tensor& A, const std::string& uplo) {
  spectrum("linalg_eigvalsh", values, nullptr, A, uplo);
}
void svd(Tensor& U, Tensor& S, Tensor& Vh, const Tensor& A, bool full_matrices, const std::string& driver) {
  singular("linalg_svd", &U, S, &Vh, A, full_matrices, driver);
}
void svdvals(Tensor& S, const Tensor& A, const std::string& driver) {
  singular("linalg_svdvals", nullptr, S, nullptr, A, false, driver);
}

}  // namespace strata::linalg_cuda
