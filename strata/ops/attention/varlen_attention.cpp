// Attention over sequences of different lengths that lie one after another.

#include <algorithm>
#include <vector>

#include "strata/core/error.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kName = "varlen_attention";

void check_ends(std::span<const int64_t> ends, const Tensor& x, std::string_view name) {
  check<ShapeError>(!ends.empty() && ends.front() == 0 && ends.back() == x.shape()[0], kName, name,
                    " must go from 0 to the ", x.shape()[0], " rows of ", x);
  for (size_t i = 1; i < ends.size(); ++i)
    check<ShapeError>(ends[i] >= ends[i - 1], kName, name, " must not decrease, but ", ends[i - 1], " comes before ",
                      ends[i]);
}

// [T, H, D] as [1, H, T, D].
Tensor heads_first(const Tensor& x) {
  return x.transpose(0, 1).unsqueeze(0);
}

struct Sequences {
  std::span<const int64_t> q, k;
};

// The sequences are split into eight at a time, so that a gradient is put together from parts of its own size rather
// than from whole tensors.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Sequences& s, const AttentionOptions& o) {
  const size_t n = s.q.size() - 1;
  if (n == 1)
    return scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), {}, o)
        .squeeze(0)
        .transpose(0, 1);
  std::vector<Sequences> parts;
  Dims q_sizes, k_sizes;
  const size_t each = (n + kMaxDims - 1) / kMaxDims;
  for (size_t i = 0; i < n; i += each) {
    const size_t count = std::min(each, n - i) + 1;
    parts.push_back({s.q.subspan(i, count), s.k.subspan(i, count)});
    q_sizes.push_back(parts.back().q.back() - parts.back().q.front());
    k_sizes.push_back(parts.back().k.back() - parts.back().k.front());
  }
  const TensorList qs = split_with_sizes(q, q_sizes), ks = split_with_sizes(k, k_sizes),
                   vs = split_with_sizes(v, k_sizes);
  TensorList results;
  for (size_t i = 0; i < parts.size(); ++i) results.push_back(attend(qs[i], ks[i], vs[i], parts[i], o));
  return cat(results, 0);
}

}  // namespace

Tensor varlen_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::span<const int64_t> cu_seqlens_q,
                        std::span<const int64_t> cu_seqlens_k, const AttentionOptions& options) {
  check<ShapeError>(q.dim() == 3 && k.dim() == 3 && v.dim() == 3, kName, "q, k and v must be [total, H, D], got ", q,
                    ", ", k, ", ", v);
  check<ShapeError>(k.shape()[0] == v.shape()[0], kName, "k is ", k, ", v is ", v);
  check_ends(cu_seqlens_q, q, "cu_seqlens_q");
  check_ends(cu_seqlens_k, k, "cu_seqlens_k");
  check<ShapeError>(cu_seqlens_q.size() == cu_seqlens_k.size() && cu_seqlens_q.size() > 1, kName, "got ",
                    cu_seqlens_q.size(), " ends of queries and ", cu_seqlens_k.size(),
                    " of keys; wanted as many of both, and at least one sequence");
  return attend(q, k, v, {cu_seqlens_q, cu_seqlens_k}, options);
}

}  // namespace strata
