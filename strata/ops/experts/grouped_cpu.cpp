// Products by groups of rows: one product of the engine for each group.

#include "strata/core/error.h"
#include "strata/ops/experts/grouped_kernel.h"
#include "strata/ops/matmul/gemm_cpu.h"

namespace strata {
namespace {

void check_offsets(const GroupedCall& c, const char* op) {
  check<IndexError>(c.offsets[0] == 0 && c.offsets[c.groups] == c.n, op, "offsets go from ", c.offsets[0], " to ",
                    c.offsets[c.groups], ", rows from 0 to ", c.n);
  for (int64_t e = 0; e < c.groups; ++e)
    check<IndexError>(c.offsets[e] <= c.offsets[e + 1], op, "offsets descend from ", c.offsets[e], " to ",
                      c.offsets[e + 1], " at ", e);
}

const std::byte* at(const void* p, int64_t elements, DType t) {
  return static_cast<const std::byte*>(p) + elements * static_cast<int64_t>(size_of(t));
}
std::byte* at(void* p, int64_t elements, DType t) {
  return static_cast<std::byte*>(p) + elements * static_cast<int64_t>(size_of(t));
}

}  // namespace

void grouped_linear_cpu(const GroupedCall& c) {
  check_offsets(c, "grouped_linear");
  for (int64_t e = 0; e < c.groups; ++e) {
    const int64_t from = c.offsets[e], rows = c.offsets[e + 1] - from;
    if (rows == 0 || c.m == 0) continue;
    Gemm g;
    g.in = g.out = c.dtype;
    g.m = rows, g.n = c.m, g.k = c.k;
    g.a = at(c.a, from * c.a_row, c.dtype), g.a_row = c.a_row, g.a_col = c.a_col;
    g.b = at(c.b, e * c.b_group, c.dtype), g.b_row = c.b_col, g.b_col = c.b_row;
    g.c = at(c.y, from * c.y_row, c.dtype), g.c_row = c.y_row;
    cpu::gemm(g);
  }
}

void grouped_outer_cpu(const GroupedCall& c) {
  check_offsets(c, "grouped_outer");
  for (int64_t e = 0; e < c.groups; ++e) {
    const int64_t from = c.offsets[e], rows = c.offsets[e + 1] - from;
    if (c.m == 0 || c.k == 0) continue;
    Gemm g;  // of an empty group it stores zeros
    g.in = g.out = c.dtype;
    g.m = c.m, g.n = c.k, g.k = rows;
    g.a = at(c.a, from * c.a_row, c.dtype), g.a_row = c.a_col, g.a_col = c.a_row;
    g.b = at(c.b, from * c.b_row, c.dtype), g.b_row = c.b_row, g.b_col = c.b_col;
    g.c = at(c.y, e * c.m * c.y_row, c.dtype), g.c_row = c.y_row;
    cpu::gemm(g);
  }
}

}  // namespace strata
