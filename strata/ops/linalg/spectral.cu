// Eigen- and singular values on a card, by cuSOLVER.

#include <cmath>
#include <vector>

#include "strata/cuda/each.cuh"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/linalg/dense_inl.cuh"
#include "strata/ops/linalg/factors_inl.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/oriented.cuh"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::linalg_cuda {
namespace {

using cuda::each_blocks;
using cuda::for_each;
using cuda::kEachThreads;

// What tells of a failure is read where the host may wait.
void require_converged(std::string_view op, const Tensor& info, const Tensor& A) {
  if (cuda::capture_pool() == 0) require_success(op, info.view(batch_of(A)), Failure::not_converged);
}

template <class T, class From>
void orient(const linalg::Vectors<T, From>& lead, const linalg::Vectors<T, From>& other, int64_t pairs, int64_t batch) {
  const int64_t total = batch * std::max(lead.count, other.count);
  linalg::oriented_kernel<T, From>
      <<<cuda::blocks_for(total, 8), 256, 0, cuda::stream()>>>(lead, other, static_cast<int>(pairs), total);
}
// The same of left vectors and right ones, into U by rows and V by columns; pairs of both are turned together.
template <class T, class From>
void orient(linalg::Vectors<T, From> lefts, linalg::Vectors<T, From> rights, const Tensor& U, const Tensor& Vh,
            int64_t pairs, int64_t batch) {
  lefts.to = at<T>(U), lefts.stride = 1, lefts.beyond = lefts.count;
  rights.to = at<T>(Vh), rights.stride = rights.length, rights.beyond = 1;
  orient<T, From>(lefts, rights, pairs, batch);
}

// One kernel does matrices of a batch by Jacobi's rotations: up to this side all, larger ones where there are enough
// of them for the card.
constexpr int64_t kSmall = 32, kMostInBatch = 256;
bool in_one_batch(int64_t side, int64_t batch) {
  return batch > 1 && (side <= kSmall || (side <= kMostInBatch && 8 * batch >= side));
}

// Eigenvalues, ascending, and in v's place vectors by columns.
template <class T>
void find_spectrum(std::string_view op, const Tensor& v, const Tensor& values, const Tensor& info, int64_t side,
                   bool vectors, cublasFillMode_t triangle) {
  const int64_t batch = info.numel();
  const int n = as_int(op, side);
  const auto job = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const auto handle = cuda::cusolver_handle();
  int size = 0;
  if (in_one_batch(side, batch)) {
    const auto parameters = cuda::syevj_parameters();
    const int count = as_int(op, batch);
    check_dense(
        dense<T>().syevj_batched_size(handle, job, triangle, n, at<T>(v), n, at<T>(values), &size, parameters, count),
        op);
    const Tensor work = made(v, {std::max(1, size)}, v.dtype());
    return check_dense(dense<T>().syevj_batched(handle, job, triangle, n, at<T>(v), n, at<T>(values), at<T>(work), size,
                                                at<int>(info), parameters, count),
                       op);
  }
  check_dense(dense<T>().syevd_size(handle, job, triangle, n, at<T>(v), n, at<T>(values), &size), op);
  const Tensor work = made(v, {std::max(1, size)}, v.dtype());
  for (int64_t b = 0; b < batch; ++b)
    check_dense(dense<T>().syevd(handle, job, triangle, n, at<T>(v, b * side * side), n, at<T>(values, b * side),
                                 at<T>(work), size, at<int>(info, b)),
                op);
}

void spectrum(std::string_view op, Tensor& values, Tensor* vectors, const Tensor& A, const std::string& uplo) {
  if (A.numel() == 0) return;
  const int64_t side = rows(A), batch = batch_of(A).product();
  const Tensor v = copied(A), info = made(A, {batch}, DType::i32);
  const auto triangle = uplo == "U" || uplo == "u" ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
  wide(A, op, [&]<class T>() { find_spectrum<T>(op, v, values, info, side, vectors != nullptr, triangle); });
  require_converged(op, info, A);
  if (!vectors) return;
  wide(A, op, [&]<class T>() {
    const int n = as_int(op, side);
    orient<T, T>({at<const T>(v), at<T>(*vectors), n, n, side, 1, side * side, 1, side}, {}, side, batch);
  });
}

// Roots of what is ascending, in the other order; what rounding has made negative counts as 0.
__global__ void __launch_bounds__(kEachThreads) roots_kernel(float* to, const double* from, int64_t k, int64_t total) {
  for_each(total, [=](int64_t e) {
    const double x = from[e / k * k + k - 1 - e % k];
    to[e] = static_cast<float>(x < 0 ? 0.0 : std::sqrt(x));
  });
}

// Of columns, the last first: what each has beside those before it, as columns of length 1 that point its way.
Tensor orthonormal(const Tensor& columns) {
  const auto [Q, R] = linalg_qr(flip(columns, {-1}));
  const Tensor down = diagonal(R, 0, -2, -1) < 0.0;
  return Q * unsqueeze(down.to(DType::f64) * -2.0 + 1.0, -2);
}

// f32 by the eigenvalues of A^T A (A A^T where that is smaller) in f64: products of f32 are exact there, and the digits
// that the square of the condition costs f32 has not. The longer vectors are A times the shorter ones, orthonormal to
// f32's digits up to a condition of kMostCondition; beyond it they are A times the shorter ones made orthonormal by
// reflections, the largest first. What a vector loses to those before it, at most 2^-52 largest^2 / (their value), is
// below sqrt(2^-52) of the largest value, since the vector itself is no longer than that where theirs is small. False
// where A is not finite, for small sides, and where the host may not look.
constexpr float kMostCondition = 3e4F;
bool singular_by_gram(std::string_view op, Tensor* U, Tensor& S, Tensor* Vh, const Tensor& A, bool full) {
  const int64_t m = rows(A), n = cols(A), k = std::min(m, n), size = std::max(m, n), batch = batch_of(A).product();
  if (A.dtype() != DType::f32 || k <= kSmall || (U && full && m != n) || cuda::capture_pool() != 0) return false;
  const bool tall = m >= n;
  const Tensor fine = (tall ? A : mT(A)).to(DType::f64), gram = contiguous(matmul(mT(fine), fine)),
               values = made(A, linalg::with(batch_of(A), k), DType::f64), info = made(A, {batch}, DType::i32);
  find_spectrum<double>(op, gram, values, info, k, U != nullptr, CUBLAS_FILL_MODE_LOWER);
  roots_kernel<<<each_blocks(S.numel()), kEachThreads, 0, cuda::stream()>>>(at<float>(S), at<const double>(values), k,
                                                                            S.numel());
  for (const int32_t status : info.to_vector<int32_t>())
    if (status != 0) return false;
  const std::vector<float> sizes = S.to_vector<float>();
  bool apart = true;
  for (auto first = sizes.begin(); first != sizes.end(); first += k) {
    const float most = *first, least = *(first + k - 1);
    if (!std::isfinite(most) || !std::isfinite(least)) return false;
    apart = apart && least * kMostCondition > most;
  }
  if (!U) return true;
  const Tensor products = matmul(fine, mT(gram));
  const Tensor units =
      contiguous(apart ? products / sqrt(sum(square(products), {-2}, true)) : flip(orthonormal(products), {-1}));
  const int side = as_int(op, k);
  const linalg::Vectors<float, double> longer{
      at<const double>(units, k - 1), nullptr, side, as_int(op, size), -1, k, size * k, 0, 0},
      shorter{at<const double>(gram, (k - 1) * k), nullptr, side, side, -k, 1, k * k, 0, 0};
  orient<float, double>(tall ? longer : shorter, tall ? shorter : longer, *U, *Vh, k, batch);
  return true;
}

void singular(std::string_view op, Tensor* U, Tensor& S, Tensor* Vh, const Tensor& A, bool full,
              const std::string& driver) {
  check<ValueError>(driver.empty() || driver == "gesvd" || driver == "gesvdj", op, "driver is \"", driver,
                    "\", wants \"gesvd\" or \"gesvdj\"; gesvda gives approximations and is left out");
  if (linalg::factors_of_nothing(A, {U, Vh})) return;
  const int64_t m = rows(A), n = cols(A), k = std::min(m, n), batch = batch_of(A).product();
  if (driver.empty() && singular_by_gram(op, U, S, Vh, A, full)) return;
  // The longer side comes first, which gesvd wants: by columns, a wide A is its transpose.
  const bool tall = m >= n;
  const int long_side = as_int(op, tall ? m : n), short_side = as_int(op, k);
  const int left = full ? long_side : short_side;
  const Tensor a = copied(tall ? mT(A) : A), info = made(A, {batch}, DType::i32);
  const bool jacobi = driver != "gesvd", together = jacobi && long_side <= kSmall;
  // Jacobi's method writes the vectors of a matrix even where none are asked for, those of small ones all.
  const int64_t kept = U || together ? batch : 1, have = together ? long_side : left;
  const Tensor u = made(A, {kept, have, long_side}, A.dtype()), v = made(A, {kept, k, k}, A.dtype());
  wide(A, op, [&]<class T>() {
    const auto handle = cuda::cusolver_handle();
    int size = 0;
    const auto job = U ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
    const auto parameters = cuda::gesvdj_parameters();
    const int econ = full ? 0 : 1;
    if (together) {
      const int count = as_int(op, batch);
      check_dense(dense<T>().gesvdj_batched_size(handle, job, long_side, short_side, at<T>(a), long_side, at<T>(S),
                                                 at<T>(u), long_side, at<T>(v), short_side, &size, parameters, count),
                  op);
      const Tensor work = made(A, {std::max(1, size)}, A.dtype());
      return check_dense(dense<T>().gesvdj_batched(handle, job, long_side, short_side, at<T>(a), long_side, at<T>(S),
                                                   at<T>(u), long_side, at<T>(v), short_side, at<T>(work), size,
                                                   at<int>(info), parameters, count),
                         op);
    }
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
  wide(A, op, [&]<class T>() {
    // u is by columns; v too from Jacobi's method, while gesvd gives its transpose.
    const linalg::Vectors<T> longer{at<const T>(u), nullptr, left, long_side, long_side, 1, have * long_side, 0, 0},
        shorter{at<const T>(v), nullptr, short_side, short_side, jacobi ? k : 1, jacobi ? 1 : k, k * k, 0, 0};
    orient<T, T>(tall ? longer : shorter, tall ? shorter : longer, *U, *Vh, k, batch);
  });
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
