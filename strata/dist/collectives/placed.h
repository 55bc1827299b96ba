#pragma once
// Tensors that lie in parts on the ranks of a mesh. Any op takes them, and gives what it would give of the whole:
// placement changes who computes and what travels, never the result. docs/design/placements.md
//
//     distributed::set_mesh(distributed::Mesh("dp=2 tp=2"));
//     Tensor w = distributed::distribute(weight, "R S(0)");          // whole along dp, rows along tp
//     Tensor y = linear(distributed::distribute(x, "S(0) R"), w);    // "S(0) S(1)", without a byte sent
//     Tensor all = distributed::full_tensor(y);
//
// Every rank of the mesh makes the same calls in the same order, backward passes included.

#include <string>
#include <vector>

#include "strata/core/placement.h"

namespace strata::distributed {

/// `x`, which every rank has alike, as a sharded tensor: a placement for each axis of the mesh, R, S(dim) or P(sum)
/// (S(0,unit=64) keeps heads whole, S(0,segments=64+32+32) cuts a fused weight part by part). Nothing is sent; the part
/// is a copy. `axes` names the axes where they are not the whole mesh ("tp", "dp+tp"). Throws ValueError for text that
/// is no placement, or does not fit x.
Tensor distribute(const Tensor& x, const std::string& placements, const std::string& axes = "");
/// A sharded tensor as it lies otherwise. All pairs of placements; differentiable: its gradient lies as it came or,
/// where `gradient` is given, so. Throws ValueError as distribute().
Tensor redistribute(const Tensor& x, const std::string& placements, const std::string& gradient = "");
/// All of a sharded tensor in every rank, as a plain tensor; x itself where it is plain.
Tensor full_tensor(const Tensor& x);
/// This rank's part of a sharded tensor, without history; x itself where it is plain. It shares x's memory.
Tensor local(const Tensor& x);
/// A sharded tensor of this shape from each rank's part, which must be as large as `placements` say. It shares the
/// part's memory and has no history. Throws ShapeError otherwise.
Tensor from_local(const Tensor& part, const std::string& placements, const Shape& shape, const std::string& axes = "");
/// "S(0) R"; empty for a plain tensor.
std::string placements_of(const Tensor& x);

}  // namespace strata::distributed
