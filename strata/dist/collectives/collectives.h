#pragma once
// Collectives as ops: each takes this rank's part and returns what it gets, and has a gradient. Groups are named by axes
// of the mesh ("dp", "dp+cp"; strata/dist/group.h). Every rank of the group must make the same calls in the same order,
// backward passes included.

#include <cstdint>
#include <string>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata::distributed {

/// The ranks' x, reduced elementwise: "sum", "avg", "min", "max" or "product". The same bits in every rank.
Tensor all_reduce(const Tensor& x, const std::string& reduction = "sum", const std::string& group = "world");
/// all_reduce() at the group's rank `root`; zeros elsewhere.
Tensor reduce(const Tensor& x, int64_t root = 0, const std::string& reduction = "sum",
              const std::string& group = "world");
/// The x of the group's rank `root`.
Tensor broadcast(const Tensor& x, int64_t root = 0, const std::string& group = "world");
/// The ranks' x, one behind the other along `dim`.
Tensor all_gather(const Tensor& x, int64_t dim = 0, const std::string& group = "world");
/// This rank's part along `dim` of the ranks' x, reduced.
Tensor reduce_scatter(const Tensor& x, int64_t dim = 0, const std::string& reduction = "sum",
                      const std::string& group = "world");
/// Cuts x along `split_dim`, a part for each rank, and joins what comes from each along `concat_dim`.
Tensor all_to_all(const Tensor& x, int64_t split_dim = 0, int64_t concat_dim = 0, const std::string& group = "world");
/// Rows of x to each rank, as many as send_counts says, and of each rank, as many as receive_counts says: both i64 with
/// an element a rank.
Tensor all_to_all_rows(const Tensor& x, const Tensor& send_counts, const Tensor& receive_counts,
                       const std::string& group = "world");
/// The same with counts that the host has, and that the ranks have told each other: nothing is read or asked for. On
/// cards counts that do not fit a peer's never end.
Tensor exchange_rows(const Tensor& x, const std::vector<int64_t>& send_counts,
                     const std::vector<int64_t>& receive_counts, const std::string& group = "world");
/// matmul(all_gather(x, dim), weight), and the gathered x: pieces travel while others are multiplied. x [.., K], weight
/// [K, N]; `dim` is not the last.
std::tuple<Tensor, Tensor> all_gather_matmul(const Tensor& x, const Tensor& weight, int64_t dim = 0,
                                             const std::string& group = "world");
/// reduce_scatter(matmul(x, weight), dim), a sum: pieces travel while others are multiplied. x [.., K], weight [K, N].
Tensor matmul_reduce_scatter(const Tensor& x, const Tensor& weight, int64_t dim = 0,
                             const std::string& group = "world");
/// The x of the rank `by` before this one, in a ring.
Tensor ring_shift(const Tensor& x, int64_t by = 1, const std::string& group = "world");

/// Sends x to a rank of the group, which must receive() it, and returns when x may be changed; on a card it is queued in
/// the order of the group's calls. Not recorded: it has no gradient.
void send(const Tensor& x, int64_t to, const std::string& group = "world");
/// What a rank of the group sends, a tensor like `like` in shape, dtype and device. Its gradient does not go back.
Tensor receive(const Tensor& like, int64_t from, const std::string& group = "world");
/// Returns when every rank of the group has called it.
void barrier(const std::string& group = "world");

}  // namespace strata::distributed
