#include "strata/ops/matmul/gemm_shape.h"

#include <utility>

namespace strata {

void merge_batch(Gemm& g) {
  Shape batch;
  Strides a, b, c;
  for (int d = 0; d < g.batch.size(); ++d) {
    if (g.batch[d] == 1) continue;
    const int last = batch.size() - 1;
    if (last >= 0 && a[last] == g.a_batch[d] * g.batch[d] && b[last] == g.b_batch[d] * g.batch[d] &&
        c[last] == g.c_batch[d] * g.batch[d]) {
      batch[last] *= g.batch[d];
      a[last] = g.a_batch[d], b[last] = g.b_batch[d], c[last] = g.c_batch[d];
    } else {
      batch.push_back(g.batch[d]);
      a.push_back(g.a_batch[d]);
      b.push_back(g.b_batch[d]);
      c.push_back(g.c_batch[d]);
    }
  }
  g.batch = batch, g.a_batch = a, g.b_batch = b, g.c_batch = c;
  // One B for consecutive blocks of rows of A and C is a single product with more rows.
  if (g.batch.empty()) return;
  const int last = g.batch.size() - 1;
  const bool rows_continue = g.m == 1 || (g.a_batch[last] == g.m * g.a_row && g.c_batch[last] == g.m * g.c_row);
  if (g.b_batch[last] == 0 && rows_continue) {
    if (g.m == 1) g.a_row = g.a_batch[last], g.c_row = g.c_batch[last];
    g.m *= g.batch[last];
    g.batch.erase(last);
    g.a_batch.erase(last);
    g.b_batch.erase(last);
    g.c_batch.erase(last);
  }
}

void transpose(Gemm& g) {
  std::swap(g.m, g.n);
  std::swap(g.a, g.b);
  std::swap(g.a_row, g.b_col);
  std::swap(g.a_col, g.b_row);
  std::swap(g.a_batch, g.b_batch);
  std::swap(g.c_row, g.c_col);
}

}  // namespace strata
