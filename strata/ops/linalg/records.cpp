// What the records of this family share.

#include "strata/ops/linalg/records.h"

#include <cmath>

#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::linalg {

void require_success(std::string_view op, const Tensor& info, Failure what) {
  if (info.is_meta() || info.numel() == 0) return;
  const std::vector<int32_t> all = info.to_vector<int32_t>();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0) continue;
    const std::string where = info.dim() == 0 ? std::string() : cat("(Batch element ", static_cast<int64_t>(i), "): ");
    switch (what) {
      case Failure::not_positive:
        throw LinAlgError(op, cat(where, "the matrix is not positive definite: its leading minor of order ", all[i],
                                  " is not positive"));
      case Failure::singular:
        throw LinAlgError(op, cat(where, "the matrix is singular: pivot ", all[i], " is 0"));
      case Failure::not_converged:
        throw LinAlgError(
            op, cat(where, "the algorithm did not converge: the matrix is ill-conditioned, or not finite ", "(code ",
                    all[i], ")"));
    }
  }
}

void check_matrix(std::string_view op, const Tensor& A, std::string_view name) {
  check<DTypeError>(A.dtype() == DType::f32 || A.dtype() == DType::f64, op, name, " is ", A, ", wants f32 or f64");
  check<ShapeError>(A.dim() >= 2, op, name, " is ", A, ", wants matrices [.., m, n]");
}
void check_square(std::string_view op, const Tensor& A, std::string_view name) {
  check_matrix(op, A, name);
  check<ShapeError>(rows(A) == cols(A), op, name, " is ", A, ", wants square matrices");
}
void check_same(std::string_view op, const Tensor& a, std::string_view name_a, const Tensor& b,
                std::string_view name_b) {
  check<DTypeError>(a.dtype() == b.dtype(), op, name_a, " is ", a.dtype(), " and ", name_b, " is ", b.dtype(),
                    ", wants one dtype");
}

Shape batch_of(const Tensor& A, int n) {
  Shape s = A.shape();
  for (; n > 0; --n) s.erase(s.size() - 1);
  return s;
}
Shape with(Shape batch, int64_t a) {
  batch.push_back(a);
  return batch;
}
Shape with(Shape batch, int64_t a, int64_t b) {
  batch.push_back(a);
  batch.push_back(b);
  return batch;
}
Tensor mT(const Tensor& A) {
  return transpose(A, -2, -1);
}
Tensor identity(const Tensor& A, int64_t n) {
  const DeviceScope device(A.device());
  return eye(n, {}, A.dtype());
}
Tensor counted(const Tensor& A, int64_t n, DType dtype) {
  const DeviceScope device(A.device());
  return arange(0, n, 1, dtype);
}
Tensor filled(const Tensor& A, const Shape& shape, double value) {
  const DeviceScope device(A.device());
  return full(shape, value, A.dtype());
}
bool is_vectors(const Tensor& A, const Tensor& B) {
  return B.dim() == 1 || (B.dim() + 1 == A.dim() && B.shape() == batch_of(A, 1));
}

Tensor well(Samples& s, const Shape& shape) {
  if (!is_floating(s.dtype())) return s.tensor(shape);
  const Tensor noise = s.uniform(shape, -1, 1);
  return noise + identity(noise, shape.back()) * static_cast<double>(shape.back());
}
Tensor positive(Samples& s, const Shape& shape) {
  if (!is_floating(s.dtype())) return s.tensor(shape);
  const Tensor noise = s.uniform(shape, -0.3, 0.3), levels = counted(noise, shape.back(), noise.dtype()) * 2.0 + 2.0;
  return noise + mT(noise) + diag_embed(levels);
}
Tensor apart(Samples& s, const Shape& shape) {
  if (!is_floating(s.dtype())) return s.tensor(shape);
  const Tensor noise = s.uniform(shape, -0.3, 0.3);
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  const Tensor levels = unsqueeze(counted(noise, m, noise.dtype()) * 1.5 + 1.0, -1) * ones({n}, noise.dtype());
  const Tensor places = eq(unsqueeze(counted(noise, m), -1), counted(noise, n));
  return noise + where(places, levels, 0.0).to(noise.dtype());
}

Tensor of_rank(Samples& s, const Shape& shape, int64_t r) {
  Shape left = shape, right = shape;
  left[left.size() - 1] = r;
  right[right.size() - 2] = r;
  return matmul(apart(s, left), apart(s, right));
}

Cost cubic(const Tensor& A, double factor) {
  const double each =
      static_cast<double>(rows(A)) * static_cast<double>(cols(A)) * static_cast<double>(std::max<int64_t>(least(A), 1));
  return {factor * each * static_cast<double>(batch_of(A).product()), 2.0 * static_cast<double>(A.nbytes())};
}

namespace naive {

Matrix unit(int64_t n) {
  Matrix r(n, n);
  for (int64_t i = 0; i < n; ++i) r(i, i) = 1;
  return r;
}
Matrix transposed(const Matrix& a) {
  Matrix r(a.n, a.m);
  for (int64_t i = 0; i < a.m; ++i)
    for (int64_t j = 0; j < a.n; ++j) r(j, i) = a(i, j);
  return r;
}
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix r(a.m, b.n);
  for (int64_t i = 0; i < a.m; ++i)
    for (int64_t l = 0; l < a.n; ++l)
      for (int64_t j = 0; j < b.n; ++j) r(i, j) += a(i, l) * b(l, j);
  return r;
}

std::vector<Matrix> matrices(const Tensor& A) {
  return broadcast(A, batch_of(A));
}
std::vector<Matrix> broadcast(const Tensor& A, const Shape& batch) {
  const std::vector<double> v = A.expand(with(batch, rows(A), cols(A))).to_vector<double>();
  std::vector<Matrix> all;
  auto from = v.begin();
  for (int64_t b = 0; b < batch.product(); ++b) {
    Matrix m(rows(A), cols(A));
    std::copy_n(from, m.v.size(), m.v.begin());
    from += static_cast<int64_t>(m.v.size());
    all.push_back(std::move(m));
  }
  return all;
}
Tensor tensor(const std::vector<Matrix>& all, const Shape& shape) {
  std::vector<double> v;
  for (const Matrix& m : all) v.insert(v.end(), m.v.begin(), m.v.end());
  return numbers(v, shape);
}
Tensor numbers(const std::vector<double>& all, const Shape& shape, DType dtype) {
  return from_span<double>(all, shape).to(dtype);
}

Matrix solve(Matrix a, Matrix b) {
  const int64_t n = a.n;
  const auto largest = [](const Matrix& m) {
    double most = 0;
    for (const double v : m.v) most = std::max(most, std::abs(v));
    return most;
  };
  const double size = largest(a), given = largest(b);
  for (int64_t c = 0; c < n; ++c) {
    int64_t best = c;
    for (int64_t i = c + 1; i < n; ++i)
      if (std::abs(a(i, c)) > std::abs(a(best, c))) best = i;
    check<LinAlgError>(std::abs(a(best, c)) > 1e-5 * size, "reference", "nearly singular");
    for (int64_t j = 0; j < n; ++j) std::swap(a(c, j), a(best, j));
    for (int64_t j = 0; j < b.n; ++j) std::swap(b(c, j), b(best, j));
    for (int64_t i = 0; i < n; ++i) {
      if (i == c) continue;
      const double f = a(i, c) / a(c, c);
      for (int64_t j = c; j < n; ++j) a(i, j) -= f * a(c, j);
      for (int64_t j = 0; j < b.n; ++j) b(i, j) -= f * b(c, j);
    }
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < b.n; ++j) b(i, j) /= a(i, i);
  check<LinAlgError>(largest(b) * size <= 30 * given, "reference", "nearly singular");
  return b;
}

double determinant(Matrix a) {
  const int64_t n = a.n;
  double d = 1;
  for (int64_t c = 0; c < n; ++c) {
    int64_t best = c;
    for (int64_t i = c + 1; i < n; ++i)
      if (std::abs(a(i, c)) > std::abs(a(best, c))) best = i;
    if (a(best, c) == 0) return 0;
    if (best != c) d = -d;
    for (int64_t j = 0; j < n; ++j) std::swap(a(c, j), a(best, j));
    d *= a(c, c);
    for (int64_t i = c + 1; i < n; ++i) {
      const double f = a(i, c) / a(c, c);
      for (int64_t j = c; j < n; ++j) a(i, j) -= f * a(c, j);
    }
  }
  return d;
}

namespace {

// Turned so that the largest element of column j is positive.
void choose_sign(Matrix& v, int64_t j, Matrix* other) {
  int64_t best = 0;
  for (int64_t i = 1; i < v.m; ++i)
    if (std::abs(v(i, j)) > std::abs(v(best, j))) best = i;
  if (v.m == 0 || v(best, j) >= 0) return;
  for (int64_t i = 0; i < v.m; ++i) v(i, j) = -v(i, j);
  for (int64_t i = 0; other && i < other->m; ++i) (*other)(i, j) = -(*other)(i, j);
}

// The columns of m in the order `order`.
Matrix arranged(const Matrix& m, const std::vector<int64_t>& order) {
  Matrix r(m.m, static_cast<int64_t>(order.size()));
  for (int64_t i = 0; i < r.m; ++i)
    for (int64_t j = 0; j < r.n; ++j) r(i, j) = m(i, order[static_cast<size_t>(j)]);
  return r;
}

}  // namespace

void eigen(Matrix a, std::vector<double>& values, Matrix& vectors) {
  const int64_t n = a.n;
  Matrix v = unit(n);
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, on = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) (i == j ? on : off) += a(i, j) * a(i, j);
    if (off <= 1e-30 * on) break;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        if (a(p, q) == 0) continue;
        const double theta = (a(q, q) - a(p, p)) / (2 * a(p, q));
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int64_t i = 0; i < n; ++i) {
          const double x = a(i, p), y = a(i, q);
          a(i, p) = c * x - s * y, a(i, q) = s * x + c * y;
        }
        for (int64_t i = 0; i < n; ++i) {
          const double x = a(p, i), y = a(q, i);
          a(p, i) = c * x - s * y, a(q, i) = s * x + c * y;
        }
        for (int64_t i = 0; i < n; ++i) {
          const double x = v(i, p), y = v(i, q);
          v(i, p) = c * x - s * y, v(i, q) = s * x + c * y;
        }
      }
    }
  }
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return a(x, x) < a(y, y); });
  values.clear();
  for (const int64_t i : order) values.push_back(a(i, i));
  vectors = arranged(v, order);
  for (int64_t j = 0; j < n; ++j) choose_sign(vectors, j, nullptr);
}

void svd(const Matrix& given, Matrix& u, std::vector<double>& s, Matrix& v) {
  if (given.m < given.n) {
    svd(transposed(given), v, s, u);
    for (int64_t j = 0; j < u.n; ++j) choose_sign(u, j, &v);
    return;
  }
  Matrix a = given, turns = unit(given.n);
  const int64_t n = a.n;
  for (int sweep = 0; sweep < 60; ++sweep) {
    double worst = 0;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        double x = 0, y = 0, z = 0;
        for (int64_t i = 0; i < a.m; ++i) x += a(i, p) * a(i, p), y += a(i, q) * a(i, q), z += a(i, p) * a(i, q);
        if (z == 0 || std::abs(z) <= 1e-15 * std::sqrt(x * y) || x * y < 1e-280) continue;
        worst = std::max(worst, std::abs(z) / std::sqrt(x * y));
        const double theta = (y - x) / (2 * z);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), sn = t * c;
        for (Matrix* m : {&a, &turns})
          for (int64_t i = 0; i < m->m; ++i) {
            const double l = (*m)(i, p), r = (*m)(i, q);
            (*m)(i, p) = c * l - sn * r, (*m)(i, q) = sn * l + c * r;
          }
      }
    }
    if (worst == 0) break;
  }
  std::vector<double> sizes;
  std::vector<int64_t> order;
  for (int64_t j = 0; j < n; ++j) {
    double x = 0;
    for (int64_t i = 0; i < a.m; ++i) x += a(i, j) * a(i, j);
    sizes.push_back(std::sqrt(x));
    order.push_back(j);
  }
  std::sort(order.begin(), order.end(),
            [&](int64_t x, int64_t y) { return sizes[static_cast<size_t>(x)] > sizes[static_cast<size_t>(y)]; });
  s.clear();
  for (const int64_t j : order) s.push_back(sizes[static_cast<size_t>(j)]);
  u = arranged(a, order);
  v = arranged(turns, order);
  for (int64_t j = 0; j < n; ++j) {
    const double size = s[static_cast<size_t>(j)];
    for (int64_t i = 0; i < u.m; ++i) u(i, j) = size > 0 ? u(i, j) / size : 0;
    choose_sign(u, j, &v);
  }
}

void require_apart(const std::vector<double>& values) {
  double size = 0;
  for (const double v : values) size = std::max(size, std::abs(v));
  for (size_t i = 1; i < values.size(); ++i)
    check<ValueError>(std::abs(values[i] - values[i - 1]) > 1e-2 * size, "reference", "values are nearly equal");
}

Matrix pseudo_inverse(const Matrix& a, double bound_of_largest, double atol) {
  Matrix u, v;
  std::vector<double> s;
  svd(a, u, s, v);
  const double bound = std::max(atol, s.empty() ? 0 : bound_of_largest * s[0]);
  for (int64_t j = 0; j < v.n; ++j)
    for (int64_t i = 0; i < v.m; ++i)
      v(i, j) = s[static_cast<size_t>(j)] > bound ? v(i, j) / s[static_cast<size_t>(j)] : 0;
  return product(v, transposed(u));
}

}  // namespace naive
}  // namespace strata::linalg
