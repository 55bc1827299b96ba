#include "strata/dist/context_parallel.h"

#include "strata/core/dims.h"
#include "strata/core/error.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/context_attention.h"
#include "strata/dist/context_length_inl.h"
#include "strata/dist/group.h"
#include "strata/ops/join/join.h"

namespace strata::distributed {

ContextKind context_kind(const std::string& name) {
  if (name == "ring") return ContextKind::ring;
  check(name == "ulysses", "context_kind", "wanted ring or ulysses, got '", name, "'");
  return ContextKind::ulysses;
}

void check_context(int64_t length, const ContextParallel& context) {
  check_context(length, context.kind, group(context.group).size());
}

void check_context(int64_t length, ContextKind kind, int64_t n) {
  if (n == 1) return;
  const int64_t parts = kind == ContextKind::ring ? 2 * n : n;
  check<ShapeError>(length % parts == 0, "context_part", "sequences of ", length,
                    " positions cannot be shared out among ", n, " ranks: a multiple of ", parts, " is wanted");
}

Tensor context_part(const Tensor& x, int64_t dim, const ContextParallel& context) {
  const Group& g = group(context.group);
  const int64_t n = g.size(), r = g.rank();
  dim = wrap_dim(dim, x.dim(), "context_part");
  check_context(x.size(dim), context);
  if (n == 1) return x;
  const int64_t part = x.size(dim) / n;
  if (context.kind == ContextKind::ulysses) return x.narrow(dim, r * part, part);
  const int64_t chunk = part / 2;
  return strata::cat({x.narrow(dim, r * chunk, chunk), x.narrow(dim, (2 * n - 1 - r) * chunk, chunk)}, dim);
}

Tensor context_whole(const Tensor& part, int64_t dim, const ContextParallel& context) {
  const int64_t n = group(context.group).size();
  dim = wrap_dim(dim, part.dim(), "context_whole");
  if (n == 1) return part;
  const Tensor all = all_gather(part, dim, context.group);
  if (context.kind == ContextKind::ulysses) return all;
  const int64_t chunk = part.size(dim) / 2;
  check<ShapeError>(part.size(dim) % 2 == 0, "context_whole", "a rank's part is two chunks, and dimension ", dim,
                    " of ", part, " is odd");
  TensorList chunks;
  for (int64_t r = 0; r < n; ++r) chunks.push_back(all.narrow(dim, 2 * r * chunk, chunk));
  for (int64_t r = n; r-- > 0;) chunks.push_back(all.narrow(dim, (2 * r + 1) * chunk, chunk));
  return strata::cat(chunks, dim);
}

Tensor context_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                         const ContextParallel& context, const Dims& heads) {
  return context.kind == ContextKind::ring ? ring_attention(q, k, v, options, context.group, heads)
                                           : ulysses_attention(q, k, v, options, context.group, heads);
}

}  // namespace strata::distributed
