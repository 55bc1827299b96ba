// The CPU's kernels, by LAPACK. A row-major matrix is, to LAPACK, its transpose: where that is as good nothing is
// turned round. Each matrix is worked on by one thread; the batch is spread over the pool.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/linalg/factors_inl.h"
#include "strata/ops/linalg/lapack.h"
#include "strata/ops/linalg/linalg_kernels.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/view/view.h"

namespace strata::linalg_cpu {
namespace {

// Memory that LAPACK works in. OpenBLAS's kernels round otherwise where memory is aligned otherwise: results that
// depend on where an allocator had room would differ from run to run.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlign{64};
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAlign)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kAlign); }
  bool operator==(const AlignedAllocator&) const { return true; }
};
template <class T>
using Work = std::vector<T, AlignedAllocator<T>>;

using linalg::batch_of;
using linalg::cols;
using linalg::Failure;
using linalg::lapack;
using linalg::require_success;
using linalg::rows;

int as_int(std::string_view op, int64_t n) {
  check<ShapeError>(n <= std::numeric_limits<int>::max(), op, "a side of ", n, " is longer than LAPACK takes");
  return static_cast<int>(n);
}
// LAPACK wants leading dimensions of at least 1.
int leading(int n) {
  return std::max(1, n);
}

// body(first, last) over the matrices of a batch, each of which takes about `work` operations.
template <class Body>
void each(int64_t batch, double work, Body&& body) {
  const auto grain = static_cast<int64_t>(std::clamp(2e4 / std::max(work, 1.0), 1.0, 1e6));
  parallel_for(0, batch, grain, body);
}

// A column-major matrix from a row-major one, or back with rows and columns exchanged.
template <class T>
void turn(T* to, const T* from, int64_t m, int64_t n) {
  constexpr int64_t size = sizeof(T);
  transpose_elements(size, reinterpret_cast<const char*>(from), size * n, reinterpret_cast<char*>(to), size * m, n, m);
}

// The matrices of a tensor, row-major; a copy where it is not that.
template <class T>
struct Batch {
  explicit Batch(const Tensor& t) : held(contiguous(t)), p(held.numel() > 0 ? held.data<T>() : nullptr) {}
  Tensor held;
  const T* p;
};
template <class T>
T* out(Tensor& t) {
  return t.numel() > 0 ? t.data<T>() : nullptr;
}

template <class F>
void wide(const Tensor& t, std::string_view op, F&& f) {
  dispatch_wide_floats(t.dtype(), op, f);
}

// The sign of a vector is free: the one with the largest element positive is chosen. -1 where it is to be turned.
template <class T>
T sign_of(const T* v, int64_t n, int64_t step) {
  T largest = 0, found = 1;
  for (int64_t i = 0; i < n; ++i) {
    const T a = std::abs(v[i * step]);
    if (a > largest) {
      largest = a;
      found = v[i * step] < 0 ? T(-1) : T(1);
    }
  }
  return found;
}
template <class T>
void scale(T* v, int64_t n, int64_t step, T by) {
  if (by == 1) return;
  for (int64_t i = 0; i < n; ++i) v[i * step] *= by;
}

}  // namespace

void cholesky(Tensor& L, Tensor& info, const Tensor& A, bool upper, bool check_errors) {
  const int64_t side = rows(A);
  const int n = as_int("linalg_cholesky", side);
  // The lower triangle by rows is the upper one by columns.
  const char uplo = upper ? 'L' : 'U';
  int32_t* failed = out<int32_t>(info);
  wide(A, "linalg_cholesky", [&]<class T>() {
    const Batch<T> a(A);
    T* l = out<T>(L);
    each(info.numel(), static_cast<double>(side * side * side) / 3, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        T* y = l + b * side * side;
        for (int64_t i = 0; i < side; ++i) {
          const T* x = a.p + b * side * side + i * side;
          for (int64_t j = 0; j < side; ++j) y[i * side + j] = (upper ? j >= i : j <= i) ? x[j] : T(0);
        }
        int status = 0;
        if (n > 0) lapack<T>().potrf(&uplo, &n, y, &n, &status, 1);
        failed[b] = status;
      }
    });
  });
  if (check_errors) require_success("linalg_cholesky", info, Failure::not_positive);
}

void lu_factor(Tensor& LU, Tensor& pivots, Tensor& info, const Tensor& A, bool pivot, bool check_errors) {
  check<ValueError>(pivot, "linalg_lu_factor", "pivot=False is for matrices on a card; LAPACK always exchanges rows");
  const int64_t tall = rows(A), broad = cols(A), k = std::min(tall, broad);
  const int m = as_int("linalg_lu_factor", tall), n = as_int("linalg_lu_factor", broad);
  int32_t *order = out<int32_t>(pivots), *failed = out<int32_t>(info);
  wide(A, "linalg_lu_factor", [&]<class T>() {
    const Batch<T> a(A);
    T* lu = out<T>(LU);
    each(info.numel(), static_cast<double>(tall * broad * k), [&](int64_t first, int64_t last) {
      Work<T> columns(static_cast<size_t>(tall * broad));
      for (int64_t b = first; b < last; ++b) {
        int status = 0;
        if (k > 0) {
          turn(columns.data(), a.p + b * tall * broad, tall, broad);
          lapack<T>().getrf(&m, &n, columns.data(), &m, order + b * k, &status);
          turn(lu + b * tall * broad, columns.data(), broad, tall);
        }
        failed[b] = status;
      }
    });
  });
  if (check_errors) require_success("linalg_lu_factor", info, Failure::singular);
}

void lu_permutation(Tensor& order, const Tensor& pivots, int64_t rows) {
  const Batch<int32_t> p(pivots);
  const int64_t k = pivots.shape().back(), batch = rows == 0 ? 0 : order.numel() / rows;
  int64_t* to = out<int64_t>(order);
  for (int64_t b = 0; b < batch; ++b) {
    int64_t* row = to + b * rows;
    std::iota(row, row + rows, int64_t{0});
    for (int64_t i = 0; i < k; ++i) {
      const int64_t other = static_cast<int64_t>(p.p[b * k + i]) - 1;
      check<ValueError>(other >= 0 && other < rows, "lu_permutation", "pivot ", other + 1, " of a matrix with ", rows,
                        " rows");
      std::swap(row[i], row[other]);
    }
  }
}

void solve(Tensor& X, Tensor& info, const Tensor& A, const Tensor& B, bool left, bool check_errors) {
  const bool vectors = linalg::is_vectors(A, B);
  const int64_t side = rows(A), columns = vectors ? 1 : left ? cols(X) : rows(X), matrices = info.numel();
  const int n = as_int("linalg_solve", side), k = as_int("linalg_solve", columns), one = leading(n);
  const Shape batch = batch_of(X, vectors ? 1 : 2);
  const Tensor all_b = expand(vectors ? unsqueeze(B, -1) : B, vectors ? unsqueeze(X, -1).shape() : X.shape());
  // Which of A's matrices each system has: one is factored once, however many systems it serves.
  const Tensor places = contiguous(expand(reshape(linalg::counted(info, matrices), batch_of(A)), batch));
  const int64_t* place = places.numel() > 0 ? places.data<int64_t>() : nullptr;
  int32_t* failed = out<int32_t>(info);
  wide(A, "linalg_solve", [&]<class T>() {
    const Batch<T> a(A), b(all_b);
    Work<T> lu(static_cast<size_t>(matrices * side * side));
    std::vector<int> pivots(static_cast<size_t>(matrices * side));
    each(matrices, static_cast<double>(side * side * side) / 1.5, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const T* from = a.p + i * side * side;
        T* to = lu.data() + i * side * side;
        // X A = B is A^T X^T = B^T, whose matrices have these bytes already.
        if (left) {
          turn(to, from, side, side);
        } else {
          std::copy(from, from + side * side, to);
        }
        int status = 0;
        lapack<T>().getrf(&n, &n, to, &one, pivots.data() + i * side, &status);
        failed[i] = status;
      }
    });
    if (X.numel() == 0) return;
    T* x = out<T>(X);
    each(places.numel(), static_cast<double>(side * side * columns) * 2, [&](int64_t first, int64_t last) {
      Work<T> v(static_cast<size_t>(side * columns));
      for (int64_t i = first; i < last; ++i) {
        const T* given = b.p + i * side * columns;
        T* to = x + i * side * columns;
        int status = 0;
        if (left) {
          turn(v.data(), given, side, columns);
        } else {
          std::copy(given, given + side * columns, v.data());
        }
        lapack<T>().getrs("N", &n, &k, lu.data() + place[i] * side * side, &one, pivots.data() + place[i] * side,
                          v.data(), &one, &status, 1);
        if (left) {
          turn(to, v.data(), columns, side);
        } else {
          std::copy(v.begin(), v.end(), to);
        }
      }
    });
  });
  if (check_errors) require_success("linalg_solve", info, Failure::singular);
}

void solve_triangular(Tensor& X, const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular) {
  if (X.numel() == 0) return;
  const int64_t side = rows(A), size = rows(X) * cols(X);
  const Tensor all = expand(A, linalg::with(batch_of(X), side, side));
  X.copy_(B);
  const int n = as_int("linalg_solve_triangular", side),
            m = as_int("linalg_solve_triangular", left ? cols(X) : rows(X));
  const char uplo = upper ? 'L' : 'U', diag = unitriangular ? 'U' : 'N';
  wide(A, "linalg_solve_triangular", [&]<class T>() {
    const Batch<T> a(all);
    T* x = out<T>(X);
    const T one = 1;
    each(X.numel() / size, static_cast<double>(side * size), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        // By columns these are the transposes: A X = B reads X^T A^T = B^T.
        if (left) {
          lapack<T>().trsm("R", &uplo, "N", &diag, &m, &n, &one, a.p + b * side * side, &n, x + b * size, &m, 1, 1, 1,
                           1);
        } else {
          lapack<T>().trsm("L", &uplo, "N", &diag, &n, &m, &one, a.p + b * side * side, &n, x + b * size, &n, 1, 1, 1,
                           1);
        }
      }
    });
  });
}

namespace {

// Householder's form of one matrix by columns, and workspace for it.
template <class T>
struct Reflections {
  Reflections(int rows, int columns, int wanted) : m(rows), n(columns), k(std::min(rows, columns)), q(wanted) {
    int status = 0;
    const int ask = -1;
    T a = 0, b = 0;
    const int ld = leading(m);
    lapack<T>().geqrf(&m, &n, &a, &ld, &a, &a, &ask, &status);
    const int used = std::min(k, q);
    if (q > 0) lapack<T>().orgqr(&m, &q, &used, &b, &ld, &b, &b, &ask, &status);
    work.resize(static_cast<size_t>(std::max({a, b, T(1)})));
    size = static_cast<int>(work.size());
    columns_of.resize(static_cast<size_t>(m) * static_cast<size_t>(std::max(n, q)));
    tau.resize(static_cast<size_t>(std::max(1, k)));
  }
  void factor() {
    int status = 0;
    if (k > 0) lapack<T>().geqrf(&m, &n, columns_of.data(), &m, tau.data(), work.data(), &size, &status);
  }
  // Q's first q columns over the vectors, of which the first `used` count.
  void generate(int used) {
    int status = 0;
    if (q > 0 && m > 0)
      lapack<T>().orgqr(&m, &q, &used, columns_of.data(), &m, tau.data(), work.data(), &size, &status);
  }
  int m, n, k, q, size = 0;
  Work<T> columns_of, tau, work;
};

}  // namespace

void qr(Tensor& Q, Tensor& R, const Tensor& A, const std::string& mode) {
  const int64_t tall = rows(A), broad = cols(A), k = std::min(tall, broad);
  const int64_t q = mode == "r" ? 0 : mode == "complete" ? tall : k, r = rows(R);
  const int m = as_int("linalg_qr", tall), n = as_int("linalg_qr", broad);
  wide(A, "linalg_qr", [&]<class T>() {
    const Batch<T> a(A);
    T *to_q = out<T>(Q), *to_r = out<T>(R);
    const int64_t batch = batch_of(A).product();
    each(batch, static_cast<double>(tall * broad * k), [&](int64_t first, int64_t last) {
      Reflections<T> h(m, n, static_cast<int>(q));
      for (int64_t b = first; b < last; ++b) {
        if (k > 0) turn(h.columns_of.data(), a.p + b * tall * broad, tall, broad);
        h.factor();
        for (int64_t i = 0; i < r; ++i)
          for (int64_t j = 0; j < broad; ++j)
            to_r[(b * r + i) * broad + j] = i <= j && i < k ? h.columns_of[static_cast<size_t>(j * tall + i)] : T(0);
        if (q == 0) continue;
        h.generate(static_cast<int>(k));
        turn(to_q + b * tall * q, h.columns_of.data(), q, tall);
      }
    });
  });
}

void geqrf(Tensor& y, Tensor& tau, const Tensor& A) {
  const int64_t tall = rows(A), broad = cols(A), k = std::min(tall, broad);
  if (k == 0) return;
  const int m = as_int("geqrf", tall), n = as_int("geqrf", broad);
  wide(A, "geqrf", [&]<class T>() {
    const Batch<T> a(A);
    T *to = out<T>(y), *scales = out<T>(tau);
    each(batch_of(A).product(), static_cast<double>(tall * broad * k), [&](int64_t first, int64_t last) {
      Reflections<T> h(m, n, 0);
      for (int64_t b = first; b < last; ++b) {
        turn(h.columns_of.data(), a.p + b * tall * broad, tall, broad);
        h.factor();
        turn(to + b * tall * broad, h.columns_of.data(), broad, tall);
        std::copy(h.tau.begin(), h.tau.begin() + k, scales + b * k);
      }
    });
  });
}

void householder_product(Tensor& Q, const Tensor& A, const Tensor& tau) {
  if (Q.numel() == 0) return;
  const int64_t tall = rows(A), broad = cols(A), used = tau.shape().back();
  const int m = as_int("linalg_householder_product", tall), n = as_int("linalg_householder_product", broad);
  wide(A, "linalg_householder_product", [&]<class T>() {
    const Batch<T> a(A), t(tau);
    T* to = out<T>(Q);
    each(batch_of(A).product(), static_cast<double>(tall * broad * broad), [&](int64_t first, int64_t last) {
      Reflections<T> h(m, n, n);
      for (int64_t b = first; b < last; ++b) {
        turn(h.columns_of.data(), a.p + b * tall * broad, tall, broad);
        std::copy(t.p + b * used, t.p + (b + 1) * used, h.tau.begin());
        h.generate(static_cast<int>(used));
        turn(to + b * tall * broad, h.columns_of.data(), broad, tall);
      }
    });
  });
}

namespace {

// `vectors` may be undefined: values only.
void spectrum(std::string_view op, Tensor& values, Tensor* vectors, const Tensor& A, const std::string& uplo) {
  const int64_t side = rows(A), batch = batch_of(A).product();
  if (side == 0 || batch == 0) return;
  const int n = as_int(op, side);
  const char triangle = uplo == "U" || uplo == "u" ? 'L' : 'U', job = vectors ? 'V' : 'N';
  std::vector<int> failed(static_cast<size_t>(batch));
  wide(A, op, [&]<class T>() {
    const Batch<T> a(A);
    T *w = out<T>(values), *to = vectors ? out<T>(*vectors) : nullptr;
    each(batch, static_cast<double>(side * side * side) * (vectors ? 9 : 1.4), [&](int64_t first, int64_t last) {
      Work<T> v(static_cast<size_t>(side * side)), work(1);
      std::vector<int> iwork(1);
      int status = 0, ask = -1;
      lapack<T>().syevd(&job, &triangle, &n, v.data(), &n, w, work.data(), &ask, iwork.data(), &ask, &status, 1, 1);
      const int size = static_cast<int>(work[0]), isize = iwork[0];
      work.resize(static_cast<size_t>(size));
      iwork.resize(static_cast<size_t>(isize));
      for (int64_t b = first; b < last; ++b) {
        std::copy(a.p + b * side * side, a.p + (b + 1) * side * side, v.begin());
        lapack<T>().syevd(&job, &triangle, &n, v.data(), &n, w + b * side, work.data(), &size, iwork.data(), &isize,
                          &status, 1, 1);
        failed[static_cast<size_t>(b)] = status;
        if (!vectors) continue;
        for (int64_t j = 0; j < side; ++j)
          scale(&v[static_cast<size_t>(j * side)], side, 1, sign_of(&v[static_cast<size_t>(j * side)], side, 1));
        turn(to + b * side * side, v.data(), side, side);
      }
    });
  });
  for (size_t b = 0; b < failed.size(); ++b)
    if (failed[b] != 0)
      throw LinAlgError(
          op,
          cat(batch_of(A).empty() ? std::string() : cat("(Batch element ", static_cast<int64_t>(b), "): "),
              "the algorithm did not converge: the matrix is ill-conditioned, or not finite (code ", failed[b], ")"));
}

// U and Vh may be null: values only. By columns A is A^T = V S U^T, so that U and Vh come out as they are stored.
void singular(std::string_view op, Tensor* U, Tensor& S, Tensor* Vh, const Tensor& A, bool full,
              const std::string& driver) {
  check<ValueError>(driver.empty(), op, "driver \"", driver,
                    "\" is one of cuSOLVER; on the CPU there is none to choose");
  if (linalg::factors_of_nothing(A, {U, Vh})) return;
  const int64_t tall = rows(A), broad = cols(A), k = std::min(tall, broad), batch = batch_of(A).product();
  const char job = !U ? 'N' : full ? 'A' : 'S';
  const int m = as_int(op, broad), n = as_int(op, tall), p = static_cast<int>(k);
  std::vector<int> failed(static_cast<size_t>(batch));
  wide(A, op, [&]<class T>() {
    T *s = out<T>(S), *u = U ? out<T>(*U) : nullptr, *vh = Vh ? out<T>(*Vh) : nullptr;
    const Batch<T> a(A);
    const int64_t u_size = U ? rows(*U) * cols(*U) : 0, v_size = Vh ? rows(*Vh) * cols(*Vh) : 0;
    const int ld_vh = m, ld_u = full ? n : p;
    each(batch, static_cast<double>(tall * broad * k) * (U ? 10 : 3), [&](int64_t first, int64_t last) {
      Work<T> copy(static_cast<size_t>(tall * broad)), work(1);
      std::vector<int> iwork(static_cast<size_t>(8 * k));
      T none = 0;
      int status = 0, size = -1;
      const auto run = [&](int64_t b) {
        lapack<T>().gesdd(&job, &m, &n, copy.data(), &m, s + b * k, U ? vh + b * v_size : &none, &ld_vh,
                          U ? u + b * u_size : &none, &ld_u, work.data(), &size, iwork.data(), &status, 1);
      };
      run(first);
      size = static_cast<int>(work[0]);
      work.resize(static_cast<size_t>(size));
      for (int64_t b = first; b < last; ++b) {
        const T* from = a.p + b * tall * broad;
        std::copy(from, from + tall * broad, copy.begin());
        bool finite = true;  // LAPACK may never end with a NaN
        for (const T v : copy) finite = finite && std::isfinite(v);
        status = 1;
        if (finite) run(b);
        if (finite && status > 0) {  // divide and conquer gave up: the older way is slower and sure
          std::copy(from, from + tall * broad, copy.begin());
          int wanted = -1;
          Work<T> more(1);
          for (int pass = 0; pass < 2; ++pass) {
            lapack<T>().gesvd(&job, &job, &m, &n, copy.data(), &m, s + b * k, U ? vh + b * v_size : &none, &ld_vh,
                              U ? u + b * u_size : &none, &ld_u, more.data(), &wanted, &status, 1, 1);
            wanted = static_cast<int>(more[0]);
            if (pass == 0) more.resize(static_cast<size_t>(wanted));
          }
        }
        failed[static_cast<size_t>(b)] = status;
        if (!U || status != 0) continue;
        const int64_t us = cols(*U), vs = rows(*Vh);
        for (int64_t j = 0; j < std::max(us, vs); ++j) {
          T* column = u + b * u_size + j;
          T* row = vh + b * v_size + j * broad;
          const T by = j < us ? sign_of(column, tall, us) : sign_of(row, broad, 1);
          if (j < us) scale(column, tall, us, by);
          if (j < vs) scale(row, broad, 1, j < us && j >= k ? sign_of(row, broad, 1) : by);
        }
      }
    });
  });
  for (size_t b = 0; b < failed.size(); ++b)
    if (failed[b] != 0)
      throw LinAlgError(
          op,
          cat(batch_of(A).empty() ? std::string() : cat("(Batch element ", static_cast<int64_t>(b), "): "),
              "the algorithm did not converge: the matrix is ill-conditioned, or not finite (code ", failed[b], ")"));
}

}  // namespace

void gelsy(Tensor& X, Tensor& rank, const Tensor& A, const Tensor& B, double rcond) {
  constexpr std::string_view op = "linalg_lstsq";
  const int64_t tall = rows(A), broad = cols(A), columns = cols(B), ldb = std::max(tall, broad), size = tall * broad;
  const int m = as_int(op, tall), n = as_int(op, broad), k = as_int(op, columns), ld = static_cast<int>(ldb);
  const Shape batch = batch_of(X);
  const Tensor all_a = expand(A, linalg::with(batch, tall, broad)),
               all_b = expand(B, linalg::with(batch, tall, columns));
  // Which of A's matrices each system has.
  const Tensor places = contiguous(expand(reshape(linalg::counted(rank, rank.numel()), batch_of(A)), batch));
  const int64_t* place = places.data<int64_t>();
  int64_t* found = out<int64_t>(rank);
  wide(A, op, [&]<class T>() {
    const Batch<T> a(all_a), b(all_b);
    T* x = out<T>(X);
    for (int64_t i = 0; i < all_a.numel(); ++i)
      if (!std::isfinite(a.p[i])) throw LinAlgError(op, "the matrix is not finite");
    each(places.numel(), static_cast<double>(size * std::min(tall, broad)) * 2, [&](int64_t first, int64_t last) {
      Work<T> matrix(static_cast<size_t>(size)), right(static_cast<size_t>(ldb * columns)), work(1),
          turned(static_cast<size_t>(tall * columns));
      std::vector<int> order(static_cast<size_t>(broad));
      const T bound = static_cast<T>(rcond);
      int status = 0, wanted = -1, full = 0;
      lapack<T>().gelsy(&m, &n, &k, matrix.data(), &m, right.data(), &ld, order.data(), &bound, &full, work.data(),
                        &wanted, &status);
      wanted = static_cast<int>(work[0]);
      work.resize(static_cast<size_t>(std::max(1, wanted)));
      for (int64_t i = first; i < last; ++i) {
        turn(matrix.data(), a.p + i * size, tall, broad);
        turn(turned.data(), b.p + i * tall * columns, tall, columns);
        for (int64_t c = 0; c < columns; ++c) std::copy_n(turned.data() + c * tall, tall, right.data() + c * ldb);
        std::fill(order.begin(), order.end(), 0);
        lapack<T>().gelsy(&m, &n, &k, matrix.data(), &m, right.data(), &ld, order.data(), &bound, &full, work.data(),
                          &wanted, &status);
        found[place[i]] = full;
        T* to = x + i * broad * columns;
        for (int64_t r = 0; r < broad; ++r)
          for (int64_t c = 0; c < columns; ++c) to[r * columns + c] = right[static_cast<size_t>(c * ldb + r)];
      }
    });
  });
}

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

}  // namespace strata::linalg_cpu
