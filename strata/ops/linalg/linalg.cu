// Cholesky's and Gauss's factors on a card, and what is solved with them.

#include <initializer_list>
#include <limits>
#include <vector>

#include "strata/cuda/each.cuh"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/linalg/dense_inl.cuh"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/permutation_inl.h"
#include "strata/ops/shape/shape_kernels.h"

namespace strata::linalg_cuda {
namespace {

using cuda::each_blocks;
using cuda::for_each;
using cuda::kEachThreads;

// A batched routine has a block for each matrix: from this side on one matrix after the other, by all blocks, is
// faster. cuBLAS's triangles are so from 64 on where there are few.
constexpr int64_t kBatchedFactors = 512, kBatchedTriangles = 64, kFewTriangles = 8;

__global__ void addresses_kernel(uint64_t* to, uint64_t base, int64_t step, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) to[i] = base + static_cast<uint64_t>(i * step);
}

constexpr int kOrderThreads = 128;
// Block (x, y) has kOrderThreads of the rows of matrix x.
__global__ void __launch_bounds__(kOrderThreads)
    permutation_kernel(int64_t* order, const int* pivots, int64_t rows, int64_t k) {
  const int64_t b = blockIdx.x, row = int64_t{blockIdx.y} * kOrderThreads + threadIdx.x;
  if (row < rows) order[b * rows + row] = linalg::row_before(pivots + b * k, k, rows, row);
}

// Columns of n elements, `columns` of each matrix, in the order of the matrix; `back`: from it.
template <class T>
__global__ void __launch_bounds__(kEachThreads)
    reordered_kernel(T* to, const T* from, const int64_t* order, int64_t columns, int64_t n, int64_t total, bool back) {
  for_each(total, [=](int64_t e) {
    const int64_t column = e / n, place = order[column / columns * n + e % n];
    if (back)
      to[column * n + place] = from[e];
    else
      to[e] = from[column * n + place];
  });
}
// Columns of the identity in that order.
template <class T>
__global__ void __launch_bounds__(kEachThreads)
    exchanges_kernel(T* to, const int64_t* order, int64_t n, int64_t total) {
  for_each(total, [=](int64_t e) {
    const int64_t column = e / n;
    to[e] = order[column / n * n + e % n] == column % n ? T(1) : T(0);
  });
}

constexpr int kTile = 32, kTileRows = 8, kTileThreads = kTile * kTileRows;
// The lower triangle by rows from matrices by columns; zeros above it. A block has a tile.
template <class T>
__global__ void __launch_bounds__(kTileThreads) lower_kernel(T* to, const T* from, int64_t n, int64_t tiles) {
  __shared__ T tile[kTile][kTile + 1];
  const int64_t place = blockIdx.x % (tiles * tiles), matrix = blockIdx.x / (tiles * tiles) * n * n,
                row = place / tiles * kTile, column = place % tiles * kTile;
  const int x = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile;
  for (int y = first; y < kTile; y += kTileRows)
    if (column <= row && row + x < n && column + y < n) tile[y][x] = from[matrix + (column + y) * n + row + x];
  __syncthreads();
  for (int y = first; y < kTile; y += kTileRows)
    if (row + y < n && column + x < n)
      to[matrix + (row + y) * n + column + x] = column + x <= row + y ? tile[x][y] : T(0);
}

template <class T>
__global__ void __launch_bounds__(kEachThreads)
    triangles_kernel(T* low, T* high, const T* both, int64_t m, int64_t n, int64_t k, int64_t total) {
  for_each(total, [=](int64_t e) {
    const int64_t row = e / n, i = row % m, j = e % n;
    const T x = both[e];
    if (j < k) low[row * k + j] = j < i ? x : j == i ? T(1) : T(0);
    if (i < k) high[(row / m * k + i) * n + j] = j >= i ? x : T(0);
  });
}

}  // namespace

Tensor addresses(const Tensor& batch, int64_t count) {
  const Tensor t = made(batch, {count}, DType::i64);
  addresses_kernel<<<cuda::blocks_for(count, 256), 256, 0, cuda::stream()>>>(
      at<uint64_t>(t), reinterpret_cast<uint64_t>(batch.raw_data()), batch.nbytes() / count, count);
  return t;
}

void cholesky(Tensor& L, Tensor& info, const Tensor& A, bool upper, bool check_errors) {
  constexpr std::string_view op = "linalg_cholesky";
  const int64_t batch = info.numel();
  const int n = as_int(op, rows(A));
  if (L.numel() == 0) {
    info.zero_();
  } else {
    // Always the lower triangle by columns, the library's faster form: the upper one by rows is that already.
    const Tensor columns = copied(upper ? A : mT(A));
    wide(A, op, [&]<class T>() {
      const auto handle = cuda::cusolver_handle();
      if (batch > 1) {
        const Tensor to = addresses(columns, batch);
        return check_dense(dense<T>().potrf_batched(handle, CUBLAS_FILL_MODE_LOWER, n, at<T*>(to), n, at<int>(info),
                                                    as_int(op, batch)),
                           op);
      }
      const cudaDataType type = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_64F;
      const auto& routines = cuda::generic();
      const auto parameters = cuda::generic_parameters();
      size_t on_card = 0, on_host = 0;
      check_dense(routines.potrf_size(handle, parameters, CUBLAS_FILL_MODE_LOWER, n, type, at<T>(columns), n, type,
                                      &on_card, &on_host),
                  op);
      const Tensor work = made(A, {std::max<int64_t>(1, static_cast<int64_t>(on_card))}, DType::u8);
      std::vector<char> host(on_host);
      check_dense(routines.potrf(handle, parameters, CUBLAS_FILL_MODE_LOWER, n, type, at<T>(columns), n, type,
                                 work.raw_data(), on_card, host.data(), on_host, at<int>(info)),
                  op);
    });
    if (upper)
      triu_cuda(L, columns, 0);
    else
      wide(A, op, [&]<class T>() {
        const int64_t tiles = (rows(A) + kTile - 1) / kTile;
        lower_kernel<T><<<static_cast<unsigned>(batch * tiles * tiles), kTileThreads, 0, cuda::stream()>>>(
            at<T>(L), at<const T>(columns), rows(A), tiles);
      });
  }
  if (check_errors) require_success(op, info, Failure::not_positive);
}

namespace {

Tensor order_of(const Tensor& pivots, int64_t side, int64_t count);
template <class T>
Tensor reordered(const Tensor& x, const Tensor& order, int64_t side, int64_t count, bool back);
struct Triangle {
  bool lower, unit;
};
template <class T>
void solve_columns(std::string_view op, const Tensor& a, const Tensor& x, int64_t side, int64_t count,
                   std::initializer_list<Triangle> triangles);

// The factors of matrices by columns, in place.
template <class T>
void factor(std::string_view op, const Tensor& columns, const Tensor& pivots, const Tensor& info, int64_t tall,
            int64_t broad, bool pivot) {
  const int64_t batch = info.numel(), k = std::min(tall, broad);
  const int m = as_int(op, tall), n = as_int(op, broad);
  if (batch > 1 && m <= n && m < kBatchedFactors) {  // the routine is for squares
    const Tensor to = addresses(columns, batch);
    check_dense(dense<T>().getrf_batched(cuda::cublas_handle(), m, at<T*>(to), m, pivot ? at<int>(pivots) : nullptr,
                                         at<int>(info), as_int(op, batch)),
                op);
    if (m == n) return;
    // What is to the right of a square is U there too: P A = L U.
    Tensor rest = narrow(columns, -2, tall, broad - tall);
    const Tensor x =
        pivot ? reordered<T>(contiguous(rest), order_of(pivots, tall, batch), tall, batch, false) : copied(rest);
    solve_columns<T>(op, columns, x, tall, batch, {{.lower = true, .unit = true}});
    rest.copy_(x);
    return;
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

// Triangles at the head of `a` by columns, one after the other solved for columns x [.., k, n] in place. Transposed
// triangles, and those to the right of x, take the library twice as long: operands come as their transposes instead.
template <class T>
void solve_columns(std::string_view op, const Tensor& a, const Tensor& x, int64_t side, int64_t count,
                   std::initializer_list<Triangle> triangles) {
  const int64_t size = x.numel() / count;
  const int n = as_int(op, side), k = as_int(op, size / side);
  const auto handle = cuda::cublas_handle();
  const T one = 1;
  const bool singly = count == 1 || (count <= kFewTriangles && side >= kBatchedTriangles);
  const Tensor from = singly ? Tensor() : addresses(a, count), to = singly ? Tensor() : addresses(x, count);
  for (const Triangle t : triangles) {
    const auto uplo = t.lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
    const auto diag = t.unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
    if (!singly)
      check_dense(dense<T>().trsm_batched(handle, CUBLAS_SIDE_LEFT, uplo, CUBLAS_OP_N, diag, n, k, &one,
                                          at<const T*>(from), n, at<T*>(to), n, as_int(op, count)),
                  op);
    for (int64_t b = 0; singly && b < count; ++b)
      check_dense(dense<T>().trsm(handle, CUBLAS_SIDE_LEFT, uplo, CUBLAS_OP_N, diag, n, k, &one,
                                  at<const T>(a, b * (a.numel() / count)), n, at<T>(x, b * size), n),
                  op);
  }
}

// The library's way with exchanges and factors together, of matrices by columns: for few columns x.
template <class T>
void solve_by_pivots(std::string_view op, const Tensor& factors, const Tensor& pivots, const Tensor& x, int64_t side,
                     int64_t count, bool adjoint) {
  const auto turn = adjoint ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int n = as_int(op, side), k = as_int(op, x.numel() / (count * side));
  if (count > 1) {
    const Tensor from = addresses(factors, count), to = addresses(x, count);
    int status = 0;
    return check_dense(dense<T>().getrs_batched(cuda::cublas_handle(), turn, n, k, at<const T*>(from), n,
                                                at<const int>(pivots), at<T*>(to), n, &status, as_int(op, count)),
                       op);
  }
  const Tensor status = made(factors, {1}, DType::i32);
  check_dense(dense<T>().getrs(cuda::cusolver_handle(), turn, n, k, at<const T>(factors), n, at<const int>(pivots),
                               at<T>(x), n, at<int>(status)),
              op);
}
// With many columns two triangles are faster than that routine; so are batches from a side of 16 on.
bool by_triangles(int64_t side, int64_t columns, int64_t count) {
  return columns >= 16 && (count == 1 || (side > 16 && columns >= side));
}

Tensor order_of(const Tensor& pivots, int64_t side, int64_t count) {
  Tensor order = made(pivots, {count, side}, DType::i64);
  lu_permutation(order, pivots, side);
  return order;
}
template <class T>
Tensor reordered(const Tensor& x, const Tensor& order, int64_t side, int64_t count, bool back) {
  const Tensor y = made(x, x.shape(), x.dtype());
  reordered_kernel<T><<<each_blocks(x.numel()), kEachThreads, 0, cuda::stream()>>>(
      at<T>(y), at<const T>(x), at<const int64_t>(order), x.numel() / (count * side), side, x.numel(), back);
  return y;
}

// A X = B for columns B, by factors of A by columns.
template <class T>
Tensor solved(std::string_view op, const Tensor& factors, const Tensor& pivots, const Tensor& B, int64_t side,
              int64_t count) {
  if (!by_triangles(side, B.numel() / (count * side), count)) {
    const Tensor x = copied(B);
    solve_by_pivots<T>(op, factors, pivots, x, side, count, false);
    return x;
  }
  const Tensor x = reordered<T>(contiguous(B), order_of(pivots, side, count), side, count, false);
  solve_columns<T>(op, factors, x, side, count, {{.lower = true, .unit = true}, {.lower = false, .unit = false}});
  return x;
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

void lu_triangles(Tensor& L, Tensor& U, const Tensor& LU) {
  if (LU.numel() == 0) return;
  const Tensor both = contiguous(LU);
  const int64_t m = rows(LU), n = cols(LU);
  wide(LU, "lu_triangles", [&]<class T>() {
    triangles_kernel<T><<<each_blocks(both.numel()), kEachThreads, 0, cuda::stream()>>>(
        at<T>(L), at<T>(U), at<const T>(both), m, n, std::min(m, n), both.numel());
  });
}

void solve(Tensor& X, Tensor& info, const Tensor& A, const Tensor& B, bool left, bool check_errors) {
  constexpr std::string_view op = "linalg_solve";
  info.zero_();
  if (A.numel() > 0) {
    const bool vectors = linalg::is_vectors(A, B);
    const int64_t side = rows(A), matrices = info.numel();
    // Each matrix is factored once; B's further batch dimensions meet the factors afterwards.
    const Tensor lu = copied(left ? mT(A) : A), pivots = made(A, {std::max<int64_t>(1, matrices) * side}, DType::i32);
    wide(A, op, [&]<class T>() {
      factor<T>(op, lu, pivots, info, side, side, true);
      if (X.numel() == 0) return;
      const Shape batch = batch_of(X, vectors ? 1 : 2);
      const Tensor all_b = expand(vectors ? unsqueeze(B, -1) : B, vectors ? unsqueeze(X, -1).shape() : X.shape());
      const Tensor factors = contiguous(expand(lu, linalg::with(batch, side, side)));
      const Tensor exchanges =
          contiguous(expand(reshape(pivots, linalg::with(batch_of(A), side)), linalg::with(batch, side)));
      const Tensor x = solved<T>(op, factors, exchanges, left ? mT(all_b) : all_b, side, batch.product());
      const Tensor y = left ? mT(x) : x;
      X.copy_(vectors ? squeeze(y, -1) : y);
    });
  }
  if (check_errors) require_success(op, info, Failure::singular);
}

void inverse(Tensor& X, Tensor& info, const Tensor& A) {
  constexpr std::string_view op = "linalg_inv";
  if (A.numel() == 0) return void(info.zero_());
  const int64_t side = rows(A), batch = info.numel();
  const int n = as_int(op, side);
  const Tensor columns = copied(mT(A)), x = made(A, A.shape(), A.dtype());
  wide(A, op, [&]<class T>() {
    if (side <= 32) {  // what is singular is not written
      Tensor all = x;
      all.fill_(std::numeric_limits<double>::quiet_NaN());
      const Tensor from = addresses(columns, batch), to = addresses(x, batch);
      return check_dense(dense<T>().matinv_batched(cuda::cublas_handle(), n, at<const T*>(from), n, at<T*>(to), n,
                                                   at<int>(info), as_int(op, batch)),
                         op);
    }
    info.zero_();
    const Tensor pivots = made(A, {batch, side}, DType::i32);
    factor<T>(op, columns, pivots, info, side, side, true);
    const Tensor order = order_of(pivots, side, batch);
    exchanges_kernel<T><<<each_blocks(x.numel()), kEachThreads, 0, cuda::stream()>>>(at<T>(x), at<const int64_t>(order),
                                                                                     side, x.numel());
    solve_columns<T>(op, columns, x, side, batch, {{.lower = true, .unit = true}, {.lower = false, .unit = false}});
  });
  X.copy_(mT(x));
}

void solve_factored(Tensor& X, const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint) {
  constexpr std::string_view op = "linalg_solve";
  if (X.numel() == 0) return;
  const Shape batch = batch_of(X);
  const int64_t side = rows(LU), count = batch.product();
  const Tensor all = expand(LU, linalg::with(batch, side, side)), all_b = expand(B, X.shape());
  // By columns; X A = B is A^T X^T = B^T.
  const Tensor b = left ? mT(all_b) : all_b, exchanges = contiguous(expand(pivots, linalg::with(batch, side)));
  wide(LU, op, [&]<class T>() {
    Tensor x;
    if (left != adjoint) {
      x = solved<T>(op, contiguous(mT(all)), exchanges, b, side, count);
    } else if (!by_triangles(side, X.numel() / (count * side), count)) {
      x = copied(b);
      solve_by_pivots<T>(op, contiguous(mT(all)), exchanges, x, side, count, true);
    } else {  // A^T = U^T L^T P^T: the factors as they lie are the transposes by columns
      const Tensor turned = contiguous(all), y = copied(b);
      solve_columns<T>(op, turned, y, side, count, {{.lower = true, .unit = false}, {.lower = false, .unit = true}});
      x = reordered<T>(y, order_of(exchanges, side, count), side, count, true);
    }
    X.copy_(left ? mT(x) : x);
  });
}

void solve_triangular(Tensor& X, const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular) {
  constexpr std::string_view op = "linalg_solve_triangular";
  if (X.numel() == 0) return;
  const int64_t side = rows(A), count = X.numel() / (rows(X) * cols(X));
  const Tensor all = expand(A, linalg::with(batch_of(X), side, side));
  // By columns; X A = B is A^T X^T = B^T.
  const Tensor a = contiguous(left ? mT(all) : all);
  if (!left) X.copy_(B);
  const Tensor x = left ? copied(mT(expand(B, X.shape()))) : X;
  wide(A, op,
       [&]<class T>() { solve_columns<T>(op, a, x, side, count, {{.lower = left != upper, .unit = unitriangular}}); });
  if (left) X.copy_(mT(x));
}

void cholesky_solve(Tensor& X, const Tensor& B, const Tensor& L, bool upper) {
  constexpr std::string_view op = "cholesky_solve";
  if (X.numel() == 0) return;
  const int64_t side = rows(L), count = X.numel() / (rows(X) * cols(X));
  const Tensor all = expand(L, linalg::with(batch_of(X), side, side)), low = upper ? mT(all) : all;
  const Tensor x = copied(mT(expand(B, X.shape())));
  wide(L, op, [&]<class T>() {
    solve_columns<T>(op, contiguous(mT(low)), x, side, count, {{.lower = true, .unit = false}});
    solve_columns<T>(op, contiguous(low), x, side, count, {{.lower = false, .unit = false}});
  });
  X.copy_(mT(x));
}

}  // namespace strata::linalg_cuda
