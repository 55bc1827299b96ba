// Orthonormal matrices from free ones.

#include <cmath>
#include <string>
#include <vector>

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;

// The map's name; without one PyTorch's choice.
std::string chosen(const std::string& map, bool square) {
  if (map.empty()) return square ? "matrix_exp" : "householder";
  check(map == "cayley" || map == "matrix_exp" || map == "householder", "orthogonal_map", "the map '", map,
        "' is none of: cayley matrix_exp householder");
  return map;
}

Tensor apply(const Tensor& x, const std::string& name, const Tensor& base) {
  check_matrix("orthogonal_map", x, "x");
  const std::string map = chosen(name, rows(x) == cols(x));
  const Exact exact;
  const bool wide = rows(x) < cols(x);
  const Tensor tall = wide ? mT(x) : x;
  const int64_t n = rows(tall), k = cols(tall);
  Tensor lower = tril(tall, -1), q;
  if (map == "householder") {
    const Tensor tau = 2.0 / (sum(lower * lower, {-2}) + 1);
    const Tensor ends = diagonal(tall.detach(), 0, -2, -1);
    q = linalg_householder_product(lower, tau) *
        unsqueeze(where(lt(ends, filled(x, {}, 0)), filled(x, {}, -1), filled(x, {}, 1)), -2);
  } else {
    if (k < n) lower = pad(lower, {0, n - k});
    const Tensor skew = lower - mT(lower), one = identity(x, n);
    q = map == "cayley" ? linalg_solve(one - skew * 0.5, one + skew * 0.5) : linalg_matrix_exp(skew);
  }
  if (base.defined()) q = matmul(base, q);
  q = q.narrow(-1, 0, k);
  return wide ? mT(q) : q;
}

// The same of one tall matrix, by elimination, the series, and reflections one after the other.
naive::Matrix apply(const naive::Matrix& x, const std::string& name) {
  const int64_t n = x.m, k = x.n;
  const std::string map = chosen(name, n == k);
  if (map == "householder") {
    naive::Matrix q = naive::unit(n);
    for (int64_t j = 0; j < k; ++j) {
      std::vector<double> v(static_cast<size_t>(n), 0);
      double length = 1;
      v[static_cast<size_t>(j)] = 1;
      for (int64_t i = j + 1; i < n; ++i) {
        v[static_cast<size_t>(i)] = x(i, j);
        length += x(i, j) * x(i, j);
      }
      naive::Matrix reflection = naive::unit(n);
      for (int64_t a = 0; a < n; ++a)
        for (int64_t b = 0; b < n; ++b)
          reflection(a, b) -= 2 / length * v[static_cast<size_t>(a)] * v[static_cast<size_t>(b)];
      q = naive::product(q, reflection);
    }
    for (int64_t a = 0; a < n; ++a)
      for (int64_t j = 0; j < k; ++j) q(a, j) *= x(j, j) < 0 ? -1 : 1;
    return q;
  }
  naive::Matrix skew(n, n), plus = naive::unit(n), minus = plus;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < i && j < k; ++j) skew(i, j) = x(i, j), skew(j, i) = -x(i, j);
  for (size_t i = 0; i < skew.v.size(); ++i) plus.v[i] += skew.v[i] / 2, minus.v[i] -= skew.v[i] / 2;
  if (map == "cayley") return naive::solve(minus, plus);
  // The series of a 2^-6 part, which loses no digits, squared six times.
  for (double& v : skew.v) v /= 64;
  naive::Matrix term = naive::unit(n), q = term;
  for (int order = 1; order < 60; ++order) {
    term = naive::product(term, skew);
    for (double& v : term.v) v /= order;
    for (size_t i = 0; i < q.v.size(); ++i) q.v[i] += term.v[i];
  }
  for (int twice = 0; twice < 6; ++twice) q = naive::product(q, q);
  return q;
}

const Op<Tensor(const Tensor&, const std::string&, const Tensor&)> orthogonal_map_op{{
    .schema = "orthogonal_map(Tensor x, str map=\"\", Tensor? base=None) -> Tensor",
    .doc =
        "Matrices with orthonormal columns (rows where they are wide) from the triangles of x below the diagonal, "
        "times base on the left, which is square. Of the antisymmetric A that the triangle gives: cayley, (I - A/2)^-1 "
        "(I + A/2) (Lezcano-Casado and Martinez-Rubio, arXiv:1901.08428), or matrix_exp; or householder, the product "
        "of the reflections whose vectors the columns are, each with the sign of the diagonal. Without a name it is "
        "matrix_exp for square matrices, else householder, as in PyTorch. ShapeError, ValueError.",
    .example = "Tensor q = orthogonal_map(ones({4, 2}), \"matrix_exp\"); assert(allclose(matmul(q.t(), q), eye(2), "
               "1e-5, 1e-5));",
    .composed = [](const Tensor& x, const std::string& map, const Tensor& base) { return apply(x, map, base); },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .samples =
        [](Samples& s) {
          for (const char* map : {"cayley", "matrix_exp", "householder", ""}) {
            s.add(s.uniform({3, 3}, -1, 1), map).named(map);
            s.add(s.uniform({5, 2}, -1, 1), map).named(map);
            s.add(s.uniform({2, 3, 4}, -1, 1), map).named(map);
            s.add(s.uniform({4, 2}, -1, 1), map, s.uniform({4, 4}, -1, 1)).named("with a base");
          }
          s.invalid<ValueError>("is none of: cayley", s.tensor({2, 2}), "givens");
          s.invalid<ShapeError>("matri", s.tensor({3}));
        },
    .reference =
        [](const Tensor& x, const std::string& map, const Tensor& base) {
          std::vector<naive::Matrix> all = naive::matrices(x);
          for (naive::Matrix& m : all) {
            const bool wide = m.m < m.n;
            const naive::Matrix tall = wide ? naive::transposed(m) : m;
            naive::Matrix q = apply(tall, map);
            if (base.defined()) q = naive::product(naive::matrices(base)[0], q);
            naive::Matrix y(tall.m, tall.n);
            for (int64_t i = 0; i < y.m; ++i)
              for (int64_t j = 0; j < y.n; ++j) y(i, j) = q(i, j);
            m = wide ? naive::transposed(y) : y;
          }
          return naive::tensor(all, x.shape());
        },
    .tolerance = 10,
    .tolerance_reason = "products are rounded one after the other, and each multiplies the errors of the one before",
}};

}  // namespace

Tensor orthogonal_map(const Tensor& x, std::string_view map, const Tensor& base) {
  return orthogonal_map_op(x, std::string(map), base);
}

}  // namespace strata
