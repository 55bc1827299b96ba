// Pseudo-inverses, ranks, conditions, least squares, powers and exponentials: composed of the factors.

#include <cmath>
#include <limits>

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;

double epsilon_of(DType t) {
  return t == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

// ---- what counts as 0 ----------------------------------------------------------------------------------------------

// max(atol, rtol * largest), one number a matrix, as a column beside the values. PyTorch's defaults: rtol is epsilon
// times the longer side, but 0 where atol alone is given and above 0.
Tensor bound_of(std::string_view op, const Tensor& A, const Tensor& sizes, const Tensor& atol, const Tensor& rtol) {
  const auto fitting = [&](const Tensor& t, std::string_view name) {
    check<DTypeError>(t.dtype() != DType::boolean, op, name, " is ", t, ", wants numbers");
    const Shape batch = batch_of(A);
    bool fits = t.dim() <= batch.size();
    for (int64_t d = 1; fits && d <= t.dim(); ++d) fits = t.size(-d) == 1 || t.size(-d) == batch[batch.size() - d];
    check<ShapeError>(fits, op, name, " is ", t, ", wants one number, or one for each matrix of ", A);
    return unsqueeze(t.to(A.dtype()), -1);
  };
  const double usual = epsilon_of(A.dtype()) * static_cast<double>(std::max(rows(A), cols(A)));
  const Tensor largest = sizes.shape().back() == 0 ? filled(A, {1}, 0) : amax(sizes, {-1}, true);
  const Tensor absolute = atol.defined() ? fitting(atol, "atol") : filled(A, {1}, 0);
  Tensor relative;
  if (rtol.defined()) {
    relative = fitting(rtol, "rtol");
  } else if (atol.defined()) {
    relative = where(absolute > 0.0, filled(A, {}, 0), filled(A, {}, usual));
  } else {
    relative = filled(A, {1}, usual);
  }
  return maximum(absolute, relative * largest);
}

void check_hermitian(std::string_view op, const Tensor& A, bool hermitian) {
  if (hermitian) {
    check_square(op, A);
  } else {
    check_matrix(op, A);
  }
}

double number_of(const Tensor& t, int64_t i, double otherwise) {
  return !t.defined() ? otherwise : t.to_vector<double>()[static_cast<size_t>(t.numel() == 1 ? 0 : i)];
}
// The references' bounds: (relative, absolute) of matrix i. In f64, so tests with a default bound have clear ranks.
std::pair<double, double> reference_bound(const Tensor& A, const Tensor& atol, const Tensor& rtol, int64_t i) {
  const double absolute = number_of(atol, i, 0);
  return {number_of(rtol, i, absolute > 0 ? 0 : 1e-5), absolute};
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool)> pinv_op{{
    .schema = "linalg_pinv(Tensor A, Tensor? atol=None, Tensor? rtol=None, bool hermitian=false) -> Tensor",
    .shard = "... m! n!, ..., ... -> ... n! m!",
    .doc =
        "Moore and Penrose's pseudo-inverse by singular values (with hermitian by eigenvalues of a symmetric matrix): "
        "those up to max(atol, rtol * largest) count as 0. rtol is epsilon times the longer side, unless atol above 0 "
        "is "
        "given; both may be one number for each matrix. The gradient (Golub and Pereyra 1973) takes the rank as "
        "constant.",
    .example = "Tensor p = linalg_pinv(ones({2, 2})); assert(std::abs(p[0][0].item() - 0.25) < 1e-6);",
    .infer =
        [](const Tensor& A, const Tensor&, const Tensor&, bool hermitian) {
          check_hermitian("linalg_pinv", A, hermitian);
          return like(A).with_shape(with(batch_of(A), cols(A), rows(A)));
        },
    .composed =
        [](const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian) {
          const Exact exact;
          if (hermitian) {
            auto [L, V] = linalg_eigh(A);
            const Tensor keep = gt(abs(L), bound_of("linalg_pinv", A, abs(L), atol, rtol));
            return matmul(V * unsqueeze(where(keep, reciprocal(where(keep, L, 1.0)), 0.0), -2), mT(V));
          }
          auto [U, S, Vh] = linalg_svd(A, false);
          const Tensor keep = gt(S, bound_of("linalg_pinv", A, S, atol, rtol));
          return matmul(mT(Vh) * unsqueeze(where(keep, reciprocal(where(keep, S, 1.0)), 0.0), -2), mT(U));
        },
    .saves = "A result",
    .backward =
        [](Backward& b, const Tensor& A, const Tensor&, const Tensor&, bool) {
          // dP = -P dA P + P P^T dA^T (1 - A P) + (1 - P A) dA^T P^T P
          const Tensor &P = b.y(), &g = b.gy(), Pt = mT(P), gt = mT(g);
          const Tensor right = matmul(gt, matmul(P, Pt)), left = matmul(matmul(Pt, P), gt);
          Tensor sum = right - matmul(A, matmul(P, right)) + left - matmul(matmul(left, P), A);
          b.set(0, sum - matmul(matmul(Pt, g), Pt));
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor&, const Tensor&, bool) { return cubic(A, 14); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {3, 3}));
          s.add(apart(s, {2, 5, 3})).named("tall");
          s.add(apart(s, {2, 3, 5})).named("wide");
          s.add(of_rank(s, {4, 3}, 1)).named("rank 1").not_differentiable();
          s.add(apart(s, {3, 3}), filled(s.tensor({1}), {}, 1.5)).named("atol").not_differentiable();
          s.add(apart(s, {2, 3, 3}), std::nullopt, s.uniform({2}, 0.01, 0.02)).named("rtol of each");
          s.add(positive(s, {3, 3}) - 3.1, std::nullopt, std::nullopt, true).named("symmetric").not_differentiable();
          s.add(s.tensor({0, 3})).named("no rows");
          s.add(s.tensor({0, 2, 3})).named("no matrices");
          s.invalid<ShapeError>("matrices", s.tensor({3}));
          s.invalid<ShapeError>("square", s.tensor({2, 3}), std::nullopt, std::nullopt, true);
          s.invalid<ShapeError>("rtol", apart(s, {2, 3, 3}), std::nullopt, s.tensor({3}));
          s.invalid<DTypeError>("f32 or f64", s.tensor({2, 2}, DType::f16));
        },
    .reference =
        [](const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian) {
          std::vector<naive::Matrix> all = naive::matrices(A);
          for (size_t i = 0; i < all.size(); ++i) {
            naive::Matrix& a = all[i];
            for (int64_t r = 0; hermitian && r < a.m; ++r)
              for (int64_t c = 0; c < r; ++c) a(c, r) = a(r, c);
            const auto [relative, absolute] = reference_bound(A, atol, rtol, static_cast<int64_t>(i));
            a = naive::pseudo_inverse(a, relative, absolute);
          }
          return naive::tensor(all, with(batch_of(A), cols(A), rows(A)));
        },
    .tolerance = 10,
    .tolerance_reason = "errors of small singular values are divided by their squares",
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool)> matrix_rank_op{{
    .schema = "linalg_matrix_rank(Tensor A, Tensor? atol=None, Tensor? rtol=None, bool hermitian=false) -> Tensor",
    .doc = "How many singular values (with hermitian sizes of eigenvalues) are above max(atol, rtol * largest), as for "
           "linalg_pinv; i64.",
    .example = "assert(linalg_matrix_rank(ones({3, 3})).item() == 1);",
    .composed =
        [](const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian) {
          check_hermitian("linalg_matrix_rank", A, hermitian);
          const NoGrad none;
          const Tensor sizes = hermitian ? abs(linalg_eigvalsh(A)) : linalg_svdvals(A);
          return sum(gt(sizes, bound_of("linalg_matrix_rank", A, sizes, atol, rtol)), {-1});
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor&, const Tensor&, bool) { return cubic(A, 3); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {3, 3}));
          s.add(of_rank(s, {2, 4, 5}, 2)).named("rank 2");
          s.add(apart(s, {4, 3}), filled(s.tensor({1}), {}, 2.0)).named("atol");
          s.add(positive(s, {3, 3}) - 3.1, std::nullopt, std::nullopt, true).named("symmetric");
          s.add(s.tensor({3, 0})).named("no columns");
          s.invalid<ShapeError>("matrices", s.tensor({3}));
          s.invalid<ShapeError>("square", s.tensor({2, 3}), std::nullopt, std::nullopt, true);
        },
    .reference =
        [](const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian) {
          std::vector<double> ranks;
          int64_t i = 0;
          for (naive::Matrix a : naive::matrices(A)) {
            for (int64_t r = 0; hermitian && r < a.m; ++r)
              for (int64_t c = 0; c < r; ++c) a(c, r) = a(r, c);
            naive::Matrix u, v;
            std::vector<double> sizes;
            naive::svd(a, u, sizes, v);
            const auto [relative, absolute] = reference_bound(A, atol, rtol, i++);
            double count = 0;
            for (const double x : sizes) count += x > std::max(absolute, relative * sizes[0]);
            ranks.push_back(count);
          }
          return naive::numbers(ranks, batch_of(A), DType::i64);
        },
}};

const Op<Tensor(const Tensor&, const std::string&)> cond_op{{
    .schema = "linalg_cond(Tensor A, str p=\"\") -> Tensor",
    .doc =
        "The condition of a matrix: the largest singular value by the smallest (p \"\" and \"2\"), the reverse "
        "(\"-2\"), or "
        "the norm p (fro, nuc, inf, -inf, 1, -1) of a square matrix times that of its inverse. inf for a singular one.",
    .example = "assert(linalg_cond(eye(2) * 3.0).item() == 1);",
    .composed =
        [](const Tensor& A, const std::string& p) {
          check_matrix("linalg_cond", A);
          const bool reverse = p == "-2" || p == "-2.0";
          if (p.empty() || p == "2" || p == "2.0" || reverse) {
            const Tensor S = linalg_svdvals(A);
            if (least(A) == 0) return filled(A, batch_of(A), 0);
            return reverse ? amin(S, {-1}) / amax(S, {-1}) : amax(S, {-1}) / amin(S, {-1});
          }
          check_square("linalg_cond", A);
          if (p == "nuc" && least(A) > 0) {  // the inverse's singular values are the inverses of A's
            const Tensor S = linalg_svdvals(A), singular = std::get<2>(linalg_lu_factor_ex(A.detach())) > 0;
            return where(singular, filled(A, {}, std::numeric_limits<double>::infinity()),
                         sum(S, {-1}) * sum(1.0 / where(unsqueeze(singular, -1), 1.0, S), {-1}));
          }
          auto [inverse, info] = linalg_inv_ex(A);
          const Tensor y = linalg_matrix_norm(A, p) *
                           linalg_matrix_norm(where(unsqueeze(unsqueeze(info > 0, -1), -1), 0.0, inverse), p);
          return where(info > 0, filled(A, {}, std::numeric_limits<double>::infinity()), y);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const std::string&) { return cubic(A, 3); },
    .samples =
        [](Samples& s) {
          s.add(apart(s, {3, 3}));
          s.add(apart(s, {2, 4, 3}), "-2").named("tall");
          for (const char* p : {"fro", "nuc", "inf", "-inf", "1", "-1"}) s.add(apart(s, {2, 3, 3}), p);
          s.add(s.tensor({2, 2}) * 0.0, "fro").named("singular").not_differentiable();
          s.add(s.tensor({3, 3}) * 0.0, "nuc").named("singular, nuc").not_differentiable();
          s.invalid<ShapeError>("square", s.tensor({2, 3}), "fro");
          s.invalid<ValueError>("ord", s.tensor({2, 2}), "max");
        },
    .reference =
        [](const Tensor& A, const std::string& p) {
          std::vector<double> all;
          for (const naive::Matrix& a : naive::matrices(A)) {
            naive::Matrix u, v, inverse;
            std::vector<double> s;
            naive::svd(a, u, s, v);
            if (s.back() < 1e-12) {
              all.push_back(std::numeric_limits<double>::infinity());
              continue;
            }
            check<LinAlgError>(s.back() > 1e-3 * s[0], "reference", "nearly singular");
            const auto norm = [&](const naive::Matrix& m, bool inverted) {
              double sum = 0, extreme = 0;
              if (p == "nuc") {
                for (const double x : s) sum += inverted ? 1 / x : x;
                return sum;
              }
              if (p == "fro") {
                for (const double x : m.v) sum += x * x;
                return std::sqrt(sum);
              }
              const bool by_column = p.back() == '1', most = p[0] != '-';
              for (int64_t i = 0; i < (by_column ? m.n : m.m); ++i) {
                sum = 0;
                for (int64_t j = 0; j < (by_column ? m.m : m.n); ++j) sum += std::abs(by_column ? m(j, i) : m(i, j));
                extreme = i == 0 ? sum : most ? std::max(extreme, sum) : std::min(extreme, sum);
              }
              return extreme;
            };
            if (p.empty() || p == "2" || p == "-2") {
              all.push_back(p == "-2" ? s.back() / s[0] : s[0] / s.back());
            } else {
              all.push_back(norm(a, false) * norm(naive::solve(a, naive::unit(a.n)), true));
            }
          }
          return naive::numbers(all, batch_of(A));
        },
}};

// ---- least squares -------------------------------------------------------------------------------------------------

using Lstsq = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Tensor rank_of(const Tensor& A, const Tensor& S, const Tensor& rtol) {
  return sum(gt(S, bound_of("linalg_lstsq", A, S, {}, rtol)), {-1});
}

Lstsq least_squares(const Tensor& A, const Tensor& B, std::optional<double> rcond, const std::string& given) {
  constexpr std::string_view op = "linalg_lstsq";
  check_matrix(op, A);
  check_same(op, A, "A", B, "B");
  const std::string driver = !given.empty() ? given : A.device().is_cuda() ? "gels" : "gelsy";
  check<ValueError>(driver == "gels" || driver == "gelsy" || driver == "gelsd" || driver == "gelss", op, "driver is \"",
                    given, "\", wants \"gels\", \"gelsy\", \"gelsd\" or \"gelss\"");
  const int64_t m = rows(A), n = cols(A);
  const bool vectors = B.dim() == 1 || (B.dim() + 1 == A.dim() && B.shape() == batch_of(A, 1));
  check<ShapeError>(vectors ? B.shape().back() == m : B.dim() >= 2 && rows(B) == m, op, "A is ", A, ", B is ", B,
                    ", wants B [.., m, k], or vectors [.., m], with m = ", m);
  const Exact exact;
  const Tensor b = vectors ? unsqueeze(B, -1) : B;
  Tensor X, rank = filled(A, {0}, 0).to(DType::i64), sizes = filled(A, {0}, 0), residuals = filled(A, {0}, 0);
  bool full = true;
  if (driver == "gels") {
    if (m >= n) {
      auto [Q, R] = linalg_qr(A);
      X = linalg_solve_triangular(R, matmul(mT(Q), b), true);
    } else {  // of all solutions the one in the span of A^T = Q R
      auto [Q, R] = linalg_qr(mT(A));
      X = matmul(Q, linalg_solve_triangular(mT(R), b, false));
    }
  } else {
    const double bound = rcond ? *rcond : epsilon_of(A.dtype()) * static_cast<double>(std::max(m, n));
    if (driver == "gelsy" && A.numel() > 0 && b.numel() > 0) {
      std::tie(X, rank) = detail::lstsq_gelsy(A, b, bound);
      return {vectors ? squeeze(X, -1) : X, residuals, rank, sizes};
    }
    const Tensor rtol = filled(A, {}, bound);
    X = matmul(linalg_pinv(A, {}, rtol), b);
    const NoGrad none;
    const Tensor S = linalg_svdvals(A);
    rank = rank_of(A, S, rtol);
    if (driver != "gelsy") sizes = S;
    if (m > n && driver != "gelsy" && !rank.is_meta())
      for (const int64_t r : rank.to_vector<int64_t>()) full = full && r == n;
  }
  if (m > n && full && driver != "gelsy") residuals = sum(square(matmul(A, X) - b), {-2});
  return {vectors ? squeeze(X, -1) : X, residuals, rank, sizes};
}

const Op<Lstsq(const Tensor&, const Tensor&, std::optional<double>, const std::string&)> lstsq_op{{
    .schema =
        "linalg_lstsq(Tensor A, Tensor B, float? rcond=None, str driver=\"\") -> (Tensor solution, Tensor residuals, "
        "Tensor rank, Tensor singular_values)",
    .doc =
        "X of least |A X - B|, and of these of least |X|. driver \"gels\" takes A's rank as full (by linalg_qr) and "
        "is wrong where it is not; \"gelsy\", \"gelsd\" and \"gelss\" take singular values up to rcond (epsilon times "
        "the longer side) times the largest as 0 (by linalg_pinv; gelsy on the CPU by factors with exchanged columns, "
        "on a card by those of A^T A in f64, or for f64 by linalg_qr, where none is 0), and give the rank, the last "
        "two "
        "also the singular values; \"\" is gelsy on the CPU and gels on a card, as PyTorch's. residuals are sums of "
        "squares for each column of B where A has more rows than columns and full rank (not for gelsy). What is not "
        "computed is empty. B is [.., m, k], or vectors [.., m].",
    .example =
        "auto [X, residuals, rank, sizes] = linalg_lstsq(eye(3, 2), ones({3, 1})); assert(allclose(X, ones({2, 1})));",
    .composed = least_squares,
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A, const Tensor&, std::optional<double>, const std::string&) { return cubic(A, 20); },
    .samples =
        [](Samples& s) {
          for (const char* driver : {"gelsy", "gels", "gelsd", "gelss"}) {  // the default is another one on a card
            s.add(apart(s, {2, 5, 3}), s.tensor({2, 5, 2}), std::nullopt, driver).named("tall");
            s.add(apart(s, {3, 5}), s.tensor({3, 2}), std::nullopt, driver).named("wide");
          }
          s.add(apart(s, {4, 3}), s.tensor({4, 2}), std::nullopt, "gelsy");
          s.add(apart(s, {2, 4, 3}), s.tensor({2, 4}), 0.01, "gelsd").named("vectors");
          s.add(of_rank(s, {4, 3}, 2), s.tensor({4, 1}), std::nullopt, "gelsy").named("rank 2").not_differentiable();
          s.invalid<ShapeError>("wants B", s.tensor({3, 2}), s.tensor({2, 2}));
          s.invalid<ValueError>("driver", s.tensor({3, 2}), s.tensor({3, 2}), std::nullopt, "qr");
          s.invalid<DTypeError>("one dtype", s.tensor({2, 2}, DType::f32), s.tensor({2, 2}, DType::f64));
        },
    .reference = [](const Tensor& A, const Tensor& B, std::optional<double> rcond, const std::string& driver) -> Lstsq {
      const int64_t m = rows(A), n = cols(A);
      const bool vectors = B.dim() == 1 || (B.dim() + 1 == A.dim() && B.shape() == batch_of(A, 1));
      const Tensor b = vectors ? B.unsqueeze(-1) : B;
      const Shape batch = broadcast_shapes(batch_of(A), batch_of(b), "reference");
      std::vector<naive::Matrix> as = naive::broadcast(A, batch), xs = naive::broadcast(b, batch);
      std::vector<double> rest, ranks, sizes;
      bool full = true;
      for (size_t i = 0; i < xs.size(); ++i) {
        naive::Matrix u, v, given = xs[i];
        std::vector<double> s;
        naive::svd(as[i], u, s, v);
        double rank = 0;
        const double bound = rcond.value_or(1e-5);
        for (const double x : s) rank += x > bound * s[0];
        if (driver == "gels") check<LinAlgError>(s.empty() || s.back() > 1e-3 * s[0], "reference", "rank is not full");
        full = full && rank == static_cast<double>(std::min(m, n));
        ranks.push_back(rank);
        sizes.insert(sizes.end(), s.begin(), s.end());
        xs[i] = naive::product(naive::pseudo_inverse(as[i], bound, 0), given);
        const naive::Matrix y = naive::product(as[i], xs[i]);
        for (int64_t c = 0; c < y.n; ++c) {
          double sum = 0;
          for (int64_t r = 0; r < y.m; ++r) sum += (y(r, c) - given(r, c)) * (y(r, c) - given(r, c));
          rest.push_back(sum);
        }
      }
      const bool by_values = driver == "gelsd" || driver == "gelss", ranked = driver != "gels";
      const Shape none{0};
      Tensor X = naive::tensor(xs, with(batch, n, cols(b)));
      Tensor residuals = m > n && full && (by_values || !ranked) ? naive::numbers(rest, with(batch, cols(b)))
                                                                 : naive::numbers({}, none);
      if (vectors) X = X.squeeze(-1);
      return {X, residuals,
              ranked ? naive::numbers(ranks, batch_of(A), DType::i64) : naive::numbers({}, none, DType::i64),
              by_values ? naive::numbers(sizes, with(batch_of(A), std::min(m, n))) : naive::numbers({}, none)};
    },
}};

// ---- powers and exponentials ---------------------------------------------------------------------------------------

const Op<Tensor(const Tensor&, int64_t)> matrix_power_op{{
    .schema = "linalg_matrix_power(Tensor A, int n) -> Tensor",
    .doc =
        "A to the power n of square matrices by repeated squaring: the identity for 0, the power of the inverse below.",
    .example = "assert(linalg_matrix_power(eye(2) * 2.0, 3)[0][0].item() == 8);",
    .composed =
        [](const Tensor& A, int64_t n) {
          check<ShapeError>(A.dim() >= 2 && rows(A) == cols(A), "linalg_matrix_power", "A is ", A,
                            ", wants square matrices");
          if (n < 0) check_square("linalg_matrix_power", A);
          Tensor square = n < 0 ? linalg_inv(A) : A, y;
          for (uint64_t left = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n); left != 0; left >>= 1) {
            if (left & 1) y = y.defined() ? matmul(y, square) : square;
            if (left > 1) square = matmul(square, square);
          }
          if (!y.defined()) return expand(identity(A, rows(A)), A.shape()).clone();
          return n == 1 ? y.clone() : y;
        },
    .autocast = Autocast::low,
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& A,
               int64_t n) { return cubic(A, 2.0 * (1 + std::log2(1.0 + std::abs(static_cast<double>(n))))); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 3}), 0).not_differentiable();
          for (const int n : {1, 2, 5}) s.add(s.tensor({2, 3, 3}), n);
          if (kWide & dtype_bit(s.dtype())) s.add(well(s, {3, 3}), -2).named("inverse");
          s.add(s.tensor({0, 0}), 3).named("empty");
          s.invalid<ShapeError>("square", s.tensor({2, 3}), 2);
        },
    .reference =
        [](const Tensor& A, int64_t n) {
          std::vector<naive::Matrix> all = naive::matrices(A);
          check<ValueError>(std::abs(n) < 1000, "reference", "a long loop");
          for (naive::Matrix& a : all) {
            const naive::Matrix base = n < 0 ? naive::solve(a, naive::unit(a.n)) : a;
            a = naive::unit(a.n);
            for (int64_t i = 0; i < std::abs(n); ++i) a = naive::product(a, base);
          }
          return naive::tensor(all, A.shape());
        },
    .tolerance = 8,
    .tolerance_reason = "each product is rounded, and the next multiplies its error",
}};

// The series of exp where the largest sum of a row is at most 1: what is left out is below half a unit in the last
// place. Terms in groups, of which the k-th is a factor times x^(m k), cost m - 1 products for the powers and one for
// each group but the last (Paterson and Stockmeyer, "On the number of nonscalar multiplications", SIAM J. Comput. 2,
// 1973).
Tensor exponential_series(const Tensor& x) {
  const int group = x.dtype() == DType::f64 ? 6 : 4, groups = 3;
  TensorList power = {identity(x, rows(x)), x};
  for (int i = 2; i <= group; ++i)
    power.push_back(matmul(power[static_cast<size_t>(i / 2)], power[static_cast<size_t>(i - i / 2)]));
  std::vector<double> factor = {1};
  for (int i = 1; i <= group * groups; ++i) factor.push_back(factor.back() / i);
  Tensor y;
  for (int k = groups - 1; k >= 0; --k) {
    Tensor sum = power[0] * factor[static_cast<size_t>(k * group)];
    for (int i = 1; i < group; ++i)
      sum = add(sum, power[static_cast<size_t>(i)], factor[static_cast<size_t>(k * group + i)]);
    const Tensor& last = power.back();
    y = y.defined() ? sum + matmul(y, last) : add(sum, last, factor.back());
  }
  return y;
}

const Op<Tensor(const Tensor&)> matrix_exp_op{{
    .schema = "linalg_matrix_exp(Tensor A) -> Tensor",
    .doc =
        "exp of square matrices: 12 terms (f64: 18) of the series of A / 2^s, whose largest sum of a row is at most 1, "
        "squared s times (Higham, Functions of Matrices, 2008, chapter 10). Each matrix has its own s.",
    .example = "assert(allclose(linalg_matrix_exp(zeros({2, 2})), eye(2)));",
    .composed =
        [](const Tensor& A) {
          check_square("linalg_matrix_exp", A);
          if (A.numel() == 0) return A.clone();
          if (rows(A) == 1) return exp(A);
          const Exact exact;
          Tensor halvings;
          int64_t most = 0;
          {
            const NoGrad none;
            const Tensor size = amax(sum(abs(A), {-1}), {-1});
            halvings = ceil(log2(where(isfinite(size), maximum(size, filled(A, {}, 1)), filled(A, {}, 1))));
            if (!A.is_meta())
              for (const double h : halvings.to_vector<double>()) most = std::max(most, static_cast<int64_t>(h));
            halvings = unsqueeze(unsqueeze(halvings, -1), -1);
          }
          Tensor y = exponential_series(A * exp2(-halvings));
          for (int64_t i = 0; i < most; ++i) {
            const Tensor squared = matmul(y, y);
            y = where(halvings > static_cast<double>(i), squared, y);
          }
          return y;
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& A) { return cubic(A, 2 * 25); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 3}, -1, 1));
          s.add(s.uniform({2, 2, 2}, -3, 3)).named("batch, squared");
          s.add(s.tensor({1, 1}));
          s.add(s.tensor({0, 0})).named("empty");
          s.invalid<ShapeError>("square", s.tensor({2, 3}));
          s.invalid<DTypeError>("f32 or f64", s.tensor({2, 2}, DType::f16));
        },
    .reference =
        [](const Tensor& A) {
          std::vector<naive::Matrix> all = naive::matrices(A);
          for (naive::Matrix& a : all) {  // the series itself, to its end
            double size = 0;
            for (const double v : a.v) size = std::max(size, std::abs(v));
            check<ValueError>(size * static_cast<double>(a.n) < 20, "reference", "the series loses too many digits");
            naive::Matrix term = naive::unit(a.n), y = term;
            for (int k = 1; k < 120; ++k) {
              term = naive::product(term, a);
              for (double& v : term.v) v /= k;
              for (size_t i = 0; i < y.v.size(); ++i) y.v[i] += term.v[i];
            }
            a = y;
          }
          return naive::tensor(all, A.shape());
        },
}};

}  // namespace

Tensor linalg_pinv(const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  return pinv_op(A, atol, rtol, hermitian);
}
Tensor linalg_matrix_rank(const Tensor& A, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  return matrix_rank_op(A, atol, rtol, hermitian);
}
Tensor linalg_cond(const Tensor& A, std::string_view p) {
  return cond_op(A, std::string(p));
}
std::tuple<Tensor, Tensor, Tensor, Tensor> linalg_lstsq(const Tensor& A, const Tensor& B, std::optional<double> rcond,
                                                        std::string_view driver) {
  return lstsq_op(A, B, rcond, std::string(driver));
}
Tensor linalg_matrix_power(const Tensor& A, int64_t n) {
  return matrix_power_op(A, n);
}
Tensor linalg_matrix_exp(const Tensor& A) {
  return matrix_exp_op(A);
}

}  // namespace strata
