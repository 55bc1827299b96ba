// Eigen- and singular values on a card, by cuSOLVER.

#include "strata/ops/linalg/dense_inl.cuh"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/oriented.cuh"

namespace strata::linalg_cuda {
namespace {

// What tells of a failure is read where the host may wait.
void require_converged(std::string_view op, const Tensor& info, const Tensor& A) {
  if (cuda::capture_pool() == 0) require_success(op, info.view(batch_of(A)), Failure::not_converged);
}

template <class T>
void orient(const linalg::Vectors<T>& lead, const linalg::Vectors<T>& other, int64_t pairs, int64_t batch) {
  const int64_t total = batch * std::max(lead.count, other.count);
  linalg::oriented_kernel<T>
      <<<cuda::blocks_for(total, 8), 256, 0, cuda::stream()>>>(lead, other, static_cast<int>(pairs), total);
}

// One kernel does matrices of a batch by Jacobi's rotations: up to this side all, larger ones where there are enough
// of them for the card.
constexpr int64_t kSmall = 32, kMostInBatch = 256;
bool in_one_batch(int64_t side, int64_t batch) {
  return batch > 1 && (side <= kSmall || (side <= kMostInBatch && 8 * batch >= side));
}

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
    if (in_one_batch(side, batch)) {
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
  wide(A, op, [&]<class T>() {
    const linalg::Vectors<T> all{at<const T>(v), at<T>(*vectors), n, n, side, 1, side * side, 1, side};
    orient<T>(all, {}, side, batch);
  });
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
    // u is by columns; v too from Jacobi's method, while gesvd gives its transpose. U is by rows, V by columns.
    linalg::Vectors<T> longer{at<const T>(u), nullptr, left, long_side, long_side, 1, have * long_side, 0, 0};
    linalg::Vectors<T> shorter{at<const T>(v), nullptr, short_side, short_side, jacobi ? k : 1,
                               jacobi ? 1 : k, k * k,   0,          0};
    linalg::Vectors<T>&lefts = tall ? longer : shorter, &rights = tall ? shorter : longer;
    lefts.to = at<T>(*U), lefts.stride = 1, lefts.beyond = lefts.count;
    rights.to = at<T>(*Vh), rights.stride = rights.length, rights.beyond = 1;
    orient<T>(lefts, rights, k, batch);
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
