// Gauss's factors with exchanged rows, and what is solved with them.

#include <algorithm>
#include <array>
#include <cmath>

#include "strata/core/dispatch.h"
#include "strata/core/loops.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;

// LU and the exchanges of rows, from 1.
void factor(naive::Matrix& a, std::vector<double>& pivots) {
  for (int64_t c = 0; c < std::min(a.m, a.n); ++c) {
    int64_t best = c;
    for (int64_t i = c + 1; i < a.m; ++i)
      if (std::abs(a(i, c)) > std::abs(a(best, c))) best = i;
    for (int64_t i = c; i < a.m; ++i) {
      const double rival = std::abs(a(i, c)), most = std::abs(a(best, c));
      check<LinAlgError>(i == best || rival < most * (1 - 1e-4), "reference", "two pivots are nearly equal");
    }
    check<LinAlgError>(std::abs(a(best, c)) > 1e-4, "reference", "nearly singular");
    for (int64_t j = 0; j < a.n; ++j) std::swap(a(c, j), a(best, j));
    pivots.push_back(static_cast<double>(best + 1));
    for (int64_t i = c + 1; i < a.m; ++i) {
      a(i, c) /= a(c, c);
      for (int64_t j = c + 1; j < a.n; ++j) a(i, j) -= a(i, c) * a(c, j);
    }
  }
}

std::tuple<Tensor, Tensor> factor_reference(const Tensor& A, bool) {
  std::vector<naive::Matrix> all = naive::matrices(A);
  std::vector<double> pivots;
  for (naive::Matrix& a : all) factor(a, pivots);
  return {naive::tensor(all, A.shape()), naive::numbers(pivots, with(batch_of(A), least(A)), DType::i32)};
}

// Row i of each matrix becomes row order[i].
Tensor take_rows(const Tensor& A, const Tensor& order) {
  const Shape batch = broadcast_shapes(batch_of(A), batch_of(order, 1), "linalg_lu");
  const Shape s = with(batch, order.shape().back(), cols(A));
  return gather(expand(A, with(batch, rows(A), cols(A))), -2, expand(unsqueeze(order, -1), s));
}

Tensor lower(const Tensor& LU) {
  const int64_t k = least(LU);
  return tril(narrow(LU, -1, 0, k), -1) +
         where(eq(unsqueeze(counted(LU, rows(LU)), -1), counted(LU, k)), filled(LU, {}, 1), filled(LU, {}, 0));
}

// Differentiation of A = P L U (Walter and Lehmann, arXiv:1009.6112): for square A, with M = tril(L^T gL, -1) +
// triu(gU U^T), gA = P L^-T M U^-T. What L has below, or U to the right of, the square is solved from that square.
Tensor factor_backward(const Tensor& LU, const Tensor& order, const Tensor& g) {
  const int64_t m = rows(LU), n = cols(LU), k = std::min(m, n);
  const Tensor square = narrow(narrow(LU, -2, 0, k), -1, 0, k), gk = narrow(narrow(g, -2, 0, k), -1, 0, k);
  const Tensor L = tril(square, -1) + identity(LU, k), U = triu(square);
  Tensor low = matmul(mT(L), tril(gk, -1)), up = matmul(triu(gk), mT(U)), right, below;
  if (n > k) {
    const Tensor U2 = narrow(narrow(LU, -2, 0, k), -1, k, n - k), gU2 = narrow(narrow(g, -2, 0, k), -1, k, n - k);
    low = low - matmul(gU2, mT(U2));
    right = linalg_solve_triangular(mT(L), gU2, true, true, true);
  }
  if (m > k) {
    const Tensor L2 = narrow(LU, -2, k, m - k), gL2 = narrow(g, -2, k, m - k);
    up = up - matmul(mT(L2), gL2);
    below = linalg_solve_triangular(mT(U), gL2, false, false);
  }
  Tensor gA = linalg_solve_triangular(mT(L), tril(low, -1) + triu(up), true, true, true);
  gA = linalg_solve_triangular(mT(U), gA, false, false);
  if (right.defined()) gA = cat({gA, right}, -1);
  if (below.defined()) gA = cat({gA, below}, -2);
  return take_rows(gA, argsort(order, -1));
}

void add_factor_samples(Samples& s) {
  s.add(apart(s, {4, 4}));
  s.add(flip(apart(s, {3, 3}), {0})).named("exchanges");
  s.add(flip(apart(s, {2, 3, 5}), {1})).named("wide");
  s.add(flip(apart(s, {2, 5, 3}), {1})).named("tall");
  s.add(s.tensor({0, 3})).named("empty");
  s.add(s.tensor({0, 2, 2})).named("no matrices");
  s.invalid<ShapeError>("matrices", s.tensor({3}));
  s.invalid<DTypeError>("f32 or f64", s.tensor({2, 2}, DType::bf16));
  s.invalid<ValueError>("pivot", s.tensor({2, 2}), false);
  if (s.benchmarking()) s.bench(well(s, {512, 512}));
}

const Op<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, bool, bool)> lu_factor_ex_op{{
    .schema = "linalg_lu_factor_ex(Tensor A, bool pivot=true, bool check_errors=false) -> (Tensor LU, Tensor pivots, "
              "Tensor info)",
    .shard = "... m! n! -> ... m! n!, ... k!, ...",
    .doc =
        "A = P L U of matrices [.., m, n]: U on and above the diagonal of LU, L below it (its diagonal is 1), row i "
        "exchanged with row pivots[i] (i32, counted from 1). info is 0, or the place from 1 of the first zero on U's "
        "diagonal, with check_errors a LinAlgError. pivot=false, without exchanges, is for cards. Gradient: Walter and "
        "Lehmann, arXiv:1009.6112.",
    .example =
        "auto [LU, pivots, info] = linalg_lu_factor_ex(eye(3)); assert(pivots[2].item() == 3 && info.item() == 0);",
    .infer =
        [](const Tensor& A, bool pivot, bool) {
          check_matrix("linalg_lu_factor", A);
          check<ValueError>(pivot || A.device().is_cuda(), "linalg_lu_factor",
                            "pivot=false is for matrices on a card; LAPACK always exchanges rows");
          return std::array<TensorMeta, 3>{like(A),
                                           like(A).with_shape(with(batch_of(A), least(A))).with_dtype(DType::i32),
                                           like(A).with_shape(batch_of(A)).with_dtype(DType::i32)};
        },
    .kernels = {.cpu = linalg_cpu::lu_factor, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::lu_factor)},
    .saves = "LU pivots",
    .backward =
        [](Backward& b, const Tensor& A, bool, bool) {
          if (b.has_gy(0)) b.set(0, factor_backward(b.y(0), lu_permutation(b.y(1), rows(A)), b.gy(0)));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, bool, bool) { return cubic(A, 2.0 / 3); },
    .samples = add_factor_samples,
    .reference = [](const Tensor& A, bool pivot, bool) -> std::tuple<Tensor, Tensor, Tensor> {
      auto [LU, pivots] = factor_reference(A, pivot);
      return {LU, pivots, zeros(batch_of(A), DType::i32)};
    },
}};

const Op<std::tuple<Tensor, Tensor>(const Tensor&, bool)> lu_factor_op{{
    .schema = "linalg_lu_factor(Tensor A, bool pivot=true) -> (Tensor LU, Tensor pivots)",
    .doc = "linalg_lu_factor_ex, with a LinAlgError for a singular matrix.",
    .example =
        "auto [LU, pivots] = linalg_lu_factor(eye(3)); assert(LU.shape() == Shape({3, 3}) && pivots.dim() == 1);",
    .composed = [](const Tensor& A, bool pivot) -> std::tuple<Tensor, Tensor> {
      auto [LU, pivots, info] = lu_factor_ex_op(A, pivot, true);
      return {LU, pivots};
    },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, bool) { return cubic(A, 2.0 / 3); },
    .samples =
        [](Samples& s) {
          add_factor_samples(s);
          s.invalid<LinAlgError>("pivot 1 is 0", s.tensor({2, 2}) * 0.0);
        },
    .reference = factor_reference,
}};

const Op<Tensor(const Tensor&, int64_t)> lu_permutation_op{{
    .schema = "lu_permutation(Tensor pivots, int rows) -> Tensor",
    .shard = "... k! -> ... m!",
    .doc = "The order of rows (i64) after the exchanges `pivots` (i32, from 1) of linalg_lu_factor: A[order] = L U.",
    .example = "auto [LU, pivots] = linalg_lu_factor(eye(3)); assert(lu_permutation(pivots, 3)[2].item() == 2);",
    .infer =
        [](const Tensor& pivots, int64_t rows) {
          check<DTypeError>(pivots.dtype() == DType::i32, "lu_permutation", "pivots is ", pivots, ", wants i32");
          check<ShapeError>(pivots.dim() >= 1 && rows >= pivots.shape().back(), "lu_permutation", "pivots is ", pivots,
                            ", wants at most one for each of ", rows, " rows");
          return like(pivots).with_shape(with(batch_of(pivots, 1), rows)).with_dtype(DType::i64);
        },
    .kernels = {.cpu = linalg_cpu::lu_permutation, .cuda = STRATA_CUDA_KERNEL(linalg_cuda::lu_permutation)},
    .dtypes = dtype_bit(DType::i32),
    .cost =
        [](const Tensor& p, int64_t) {
          return Cost{static_cast<double>(p.numel()), static_cast<double>(3 * p.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({3}, 4, 6, DType::i32), 5);
          s.add(s.integers({2, 4}, 4, 5, DType::i32), 4);
          s.add(s.integers({0}, 1, 2, DType::i32), 3).named("no exchanges");
          s.invalid<DTypeError>("i32", s.integers({2}, 1, 2, DType::i64), 2);
          s.invalid<ShapeError>("at most one", s.integers({3}, 1, 2, DType::i32), 2);
        },
    .reference =
        [](const Tensor& pivots, int64_t rows) {
          // Matrices of exchange, multiplied.
          const std::vector<int32_t> p = pivots.to_vector<int32_t>();
          const int64_t k = pivots.shape().back(), batch = batch_of(pivots, 1).product();
          std::vector<double> all;
          for (int64_t b = 0; b < batch; ++b) {
            naive::Matrix order = naive::unit(rows);
            for (int64_t i = 0; i < k; ++i) {
              naive::Matrix swap = naive::unit(rows);
              const int64_t j = p[static_cast<size_t>(b * k + i)] - 1;
              swap(i, i) = swap(j, j) = 0;
              swap(i, j) = swap(j, i) = 1;
              order = naive::product(swap, order);
            }
            for (int64_t i = 0; i < rows; ++i)
              for (int64_t j = 0; j < rows; ++j)
                if (order(i, j) == 1) all.push_back(static_cast<double>(j));
          }
          return naive::numbers(all, with(batch_of(pivots, 1), rows), DType::i64);
        },
}};

template <class T>
void unpack_data(const Tensor& LU, Tensor& L, Tensor& U) {
  const int64_t m = rows(LU), n = cols(LU), k = least(LU);
  const Tensor from = contiguous(LU);
  const T* p = from.data<T>();
  T *l = L.data<T>(), *u = U.data<T>();
  parallel_for(0, LU.numel() / (m * n) * m, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t i = at % m, kept = std::min(i, k);
      const T* row = p + at * n;
      T* low = l + at * k;
      std::copy(row, row + kept, low);
      if (i < k) low[i] = T(1);
      std::fill(low + std::min(i + 1, k), low + k, T(0));
      if (i >= k) continue;
      T* high = u + (at / m * k + i) * n;
      std::fill(high, high + i, T(0));
      std::copy(row + i, row + n, high + i);
    }
  });
}
using Triangles = std::tuple<Tensor, Tensor>;
const Op<Triangles(const Tensor&)> lu_triangles_op{{
    .schema = "lu_triangles(Tensor LU) -> (Tensor L, Tensor U)",
    .shard = "... m! n! -> ... m! k!, ... k! n!",
    .internal = true,
    .doc = "L [.., m, k], with a diagonal of 1, and U [.., k, n] of matrices LU [.., m, n] that hold both.",
    .infer =
        [](const Tensor& LU) {
          check_matrix("lu_triangles", LU, "LU");
          const int64_t k = least(LU);
          return std::array<TensorMeta, 2>{like(LU).with_shape(with(batch_of(LU), rows(LU), k)),
                                           like(LU).with_shape(with(batch_of(LU), k, cols(LU)))};
        },
    .kernels = {.cpu =
                    [](Tensor& L, Tensor& U, const Tensor& LU) {
                      if (LU.numel() > 0)
                        dispatch_all(LU.dtype(), "lu_triangles", [&]<class T>() { unpack_data<T>(LU, L, U); });
                    },
                .cuda = STRATA_CUDA_KERNEL(linalg_cuda::lu_triangles)},
    .composed =
        [](const Tensor& LU) {
          return Triangles{lower(LU), triu(narrow(LU, -2, 0, least(LU)))};
        },
    .backward =
        [](Backward& b, const Tensor& LU) {
          const int64_t m = rows(LU), n = cols(LU), k = least(LU);
          Tensor low, high;
          if (b.has_gy(0)) low = tril(b.gy(0), -1);
          if (b.has_gy(1)) high = triu(b.gy(1));
          if (low.defined() && n > k) low = pad(low, {0, n - k});
          if (high.defined() && m > k) high = pad(high, {0, 0, 0, m - k});
          if (low.defined() || high.defined()) b.set(0, !low.defined() ? high : high.defined() ? low + high : low);
        },
    .dtypes = kWide,
    .cost =
        [](const Tensor& LU) {
          return Cost{0, static_cast<double>(3 * LU.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 4}));
          s.add(s.tensor({2, 3, 5})).named("wide");
          s.add(s.tensor({3, 2, 5}).permute({1, 2, 0})).named("tall, strided");
          s.invalid<ShapeError>("matrices", s.tensor({4}));
        },
    .reference =
        [](const Tensor& LU) {
          const int64_t m = rows(LU), n = cols(LU), k = least(LU);
          std::vector<naive::Matrix> L, U;
          for (const naive::Matrix& a : naive::matrices(LU)) {
            naive::Matrix l(m, k), u(k, n);
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                if (i > j) l(i, j) = a(i, j);
                if (i <= j) u(i, j) = a(i, j);
              }
            for (int64_t i = 0; i < k; ++i) l(i, i) = 1;
            L.push_back(l), U.push_back(u);
          }
          return Triangles{naive::tensor(L, with(batch_of(LU), m, k)), naive::tensor(U, with(batch_of(LU), k, n))};
        },
}};

std::tuple<Tensor, Tensor, Tensor> unpack(const Tensor& LU, const Tensor& pivots, bool data, bool exchanges) {
  check_matrix("lu_unpack", LU, "LU_data");
  const int64_t m = rows(LU);
  Tensor P = filled(LU, {0}, 0), L = P, U = P;
  if (data) std::tie(L, U) = lu_triangles_op(LU);
  if (exchanges) {
    // Column c has its 1 in the row that came to be row c.
    const Tensor order = lu_permutation(pivots, m);
    if (LU.device().is_cuda()) {  // three launches, not six
      P = eq(unsqueeze(counted(LU, m), -1), unsqueeze(order, -2)).to(LU.dtype());
    } else if (order.dim() == 1) {  // without a copy of the zeros
      P = filled(LU, {m, m}, 0);
      index_put_(P, {order, counted(LU, m)}, filled(LU, {}, 1));
    } else {
      P = scatter(filled(LU, with(batch_of(pivots, 1), m, m), 0), -2, unsqueeze(order, -2), Scalar(1));
    }
  }
  return {P, L, U};
}

const Op<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, bool, bool)> lu_unpack_op{{
    .schema =
        "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=true, bool unpack_pivots=true) -> (Tensor P, "
        "Tensor L, Tensor U)",
    .doc = "P [.., m, m], L [.., m, k] and U [.., k, n] from the results of linalg_lu_factor; what is not asked for is "
           "empty.",
    .example = "auto [LU, pivots] = linalg_lu_factor(eye(3)); auto [P, L, U] = lu_unpack(LU, pivots); "
               "assert(U.shape() == Shape({3, 3}));",
    .composed = unpack,
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost =
        [](const Tensor& LU, const Tensor&, bool, bool) {
          return Cost{static_cast<double>(LU.numel()), static_cast<double>(3 * LU.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 4}), s.integers({4}, 4, 5, DType::i32));
          s.add(s.tensor({2, 3, 5}), s.integers({2, 3}, 3, 4, DType::i32)).named("wide");
          s.add(s.tensor({2, 5, 3}), s.integers({2, 3}, 3, 6, DType::i32)).named("tall");
          s.add(s.tensor({3, 3}), s.integers({3}, 3, 4, DType::i32), true, false).named("no P");
          s.add(s.tensor({3, 3}), s.integers({3}, 3, 4, DType::i32), false).named("P alone").not_differentiable();
          s.invalid<ShapeError>("matrices", s.tensor({4}), s.integers({4}, 4, 5, DType::i32));
          s.invalid<DTypeError>("i32", s.tensor({2, 2}), s.tensor({2}));
        },
    .reference = [](const Tensor& LU, const Tensor& pivots, bool data,
                    bool exchanges) -> std::tuple<Tensor, Tensor, Tensor> {
      const int64_t m = rows(LU), n = cols(LU), k = least(LU);
      const Shape batch = batch_of(LU);
      Tensor none = zeros({0}, DType::f64);
      std::vector<naive::Matrix> P, L, U;
      const std::vector<int32_t> p = pivots.to_vector<int32_t>();
      size_t at = 0;
      for (const naive::Matrix& a : naive::matrices(LU)) {
        naive::Matrix l(m, k), u(k, n), order = naive::unit(m);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            if (i > j) l(i, j) = a(i, j);
            if (i <= j) u(i, j) = a(i, j);
          }
        for (int64_t i = 0; i < k; ++i) l(i, i) = 1;
        for (int64_t i = 0; i < k; ++i, ++at)
          for (int64_t r = 0; r < m; ++r) std::swap(order(r, i), order(r, p[at] - 1));
        P.push_back(order), L.push_back(l), U.push_back(u);
      }
      return {exchanges ? naive::tensor(P, with(batch, m, m)) : none, data ? naive::tensor(L, with(batch, m, k)) : none,
              data ? naive::tensor(U, with(batch, k, n)) : none};
    },
}};

const Op<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, bool)> lu_op{{
    .schema = "linalg_lu(Tensor A, bool pivot=true) -> (Tensor P, Tensor L, Tensor U)",
    .doc = "A = P L U: P a permutation, L a lower triangle with a diagonal of 1, U an upper one.",
    .example = "auto [P, L, U] = linalg_lu(eye(3) * 2.0); assert(U[0][0].item() == 2);",
    .composed =
        [](const Tensor& A, bool pivot) {
          auto [LU, pivots, info] = lu_factor_ex_op(A, pivot, false);
          return unpack(LU, pivots, true, true);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, bool) { return cubic(A, 2.0 / 3); },
    .samples = add_factor_samples,
    .reference =
        [](const Tensor& A, bool pivot) {
          auto [LU, pivots] = factor_reference(A, pivot);
          return lu_unpack_op.reference(LU, pivots, true, true);
        },
}};

Tensor solve_factored(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint) {
  if (!left) return mT(solve_factored(LU, pivots, mT(B), true, !adjoint));
  const Tensor order = lu_permutation(pivots, rows(LU));
  if (adjoint) {
    const Tensor y = linalg_solve_triangular(mT(LU), B, false);
    return take_rows(linalg_solve_triangular(mT(LU), y, true, true, true), argsort(order, -1));
  }
  return linalg_solve_triangular(LU, linalg_solve_triangular(LU, take_rows(B, order), false, true, true), true);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool, bool)> lu_solve_op{{
    .schema = "linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, bool left=true, bool adjoint=false) -> Tensor",
    .doc = "X with A X = B (X A = B without left; A^T in A's place with adjoint) from the results of linalg_lu_factor. "
           "Batches broadcast.",
    .example = "auto [LU, pivots] = linalg_lu_factor(eye(2) * 2.0); "
               "assert(linalg_lu_solve(LU, pivots, ones({2, 1}))[0].item() == 0.5);",
    .composed =
        [](const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint) {
          check_square("linalg_lu_solve", LU, "LU");
          check_matrix("linalg_lu_solve", B, "B");
          check_same("linalg_lu_solve", LU, "LU", B, "B");
          check<ShapeError>((left ? rows(B) : cols(B)) == rows(LU), "linalg_lu_solve", "LU is ", LU, ", B is ", B);
          return solve_factored(LU, pivots, B, left, adjoint);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost =
        [](const Tensor& LU, const Tensor&, const Tensor& B, bool, bool) {
          return Cost{2.0 * static_cast<double>(B.numel()) * static_cast<double>(rows(LU)),
                      static_cast<double>(LU.nbytes() + 2 * B.nbytes())};
        },
    .samples =
        [](Samples& s) {
          for (const bool left : {true, false})
            for (const bool adjoint : {false, true})
              s.add(well(s, {3, 3}), s.integers({3}, 3, 4, DType::i32), s.tensor({3, 3}), left, adjoint);
          s.add(well(s, {2, 3, 3}), s.integers({2, 3}, 3, 4, DType::i32), s.tensor({3, 2})).named("broadcast");
          s.invalid<ShapeError>("B is", well(s, {3, 3}), s.integers({3}, 3, 4, DType::i32), s.tensor({2, 2}));
        },
    .reference =
        [](const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint) {
          auto [P, L, U] = lu_unpack_op.reference(LU, pivots, true, true);
          const Shape batch = broadcast_shapes(batch_of(LU), batch_of(B), "reference");
          const auto p = naive::broadcast(P, batch), l = naive::broadcast(L, batch), u = naive::broadcast(U, batch);
          std::vector<naive::Matrix> b = naive::broadcast(B, batch);
          for (size_t i = 0; i < b.size(); ++i) {
            naive::Matrix a = naive::product(p[i], naive::product(l[i], u[i]));
            if (adjoint) a = naive::transposed(a);
            b[i] = left ? naive::solve(a, b[i])
                        : naive::transposed(naive::solve(naive::transposed(a), naive::transposed(b[i])));
          }
          return naive::tensor(b, with(batch, rows(B), cols(B)));
        },
}};

}  // namespace

std::tuple<Tensor, Tensor> linalg_lu_factor(const Tensor& A, bool pivot) {
  return lu_factor_op(A, pivot);
}
std::tuple<Tensor, Tensor, Tensor> linalg_lu_factor_ex(const Tensor& A, bool pivot, bool check_errors) {
  return lu_factor_ex_op(A, pivot, check_errors);
}
Tensor lu_permutation(const Tensor& pivots, int64_t rows) {
  return lu_permutation_op(pivots, rows);
}
std::tuple<Tensor, Tensor, Tensor> lu_unpack(const Tensor& LU, const Tensor& pivots, bool unpack_data,
                                             bool unpack_pivots) {
  return lu_unpack_op(LU, pivots, unpack_data, unpack_pivots);
}
std::tuple<Tensor, Tensor, Tensor> linalg_lu(const Tensor& A, bool pivot) {
  return lu_op(A, pivot);
}
Tensor linalg_lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint) {
  return lu_solve_op(LU, pivots, B, left, adjoint);
}

}  // namespace strata
