#pragma once
// Linear layers whose weight is a low-bit matrix: docs/design/low_bit.md.

#include <string>
#include <string_view>
#include <vector>

#include "strata/nn/module.h"
#include "strata/ops/lowbit/weight_format.h"

namespace strata::nn {

/// Puts `weight` in the place of the parameter "weight" of `linear`, a module of kind "Linear" with as many rows and
/// columns. Every handle to the layer then computes packed_linear(x, weight, bias); the bias stays a parameter, and
/// gradients reach x. The old weight's memory is given back: what holds its handle sees a meta tensor of its shape. A
/// layer that is packed already gets the new weight.
///
/// In the state the parts are "weight.int4.codes", "weight.int4.scales" and so on, by the format's name, and
/// "weight.int4.blocks" (i64: columns, block_rows, block_columns), so that pack_from_state() makes the same of a new
/// network. Module::to(device) moves them; Module::to(dtype) would round the scales too: convert first, then pack.
///
/// Throws ValueError for another kind of module, and for one whose weight others share or read by themselves
/// (MultiheadAttention's); ShapeError, DeviceError; and as PackedWeight::check().
void pack_linear(const Module& linear, const PackedWeight& weight);
/// The same of matrices of several formats, one below the other: q, k and v of a file that gives v more bits. Their parts
/// in the state are "weight.0.q4_k.codes", "weight.1.q6_k.codes" and so on. Throws ValueError for none.
void pack_linear(const Module& linear, const std::vector<PackedWeight>& rows);
/// Whether a module is a Linear with a packed weight.
bool is_packed(const Module& module);
/// Its weight. ValueError where it is not packed, or of several matrices.
PackedWeight packed_weight(const Module& linear);
/// Its matrices, one below the other; one where all of it is of one format. ValueError where it is not packed.
std::vector<PackedWeight> packed_weights(const Module& linear);
/// [rows, columns] of such matrices, one below the other. Throws ValueError for none.
Shape dense_shape(const std::vector<PackedWeight>& rows);
/// The numbers that the codes of such matrices stand for, [rows, columns].
Tensor dense_weight(const std::vector<PackedWeight>& rows, DType dtype = DType::f32);
/// Gives it a parameter "weight" of `dtype` again, frozen, with the numbers that the codes stand for.
void unpack_linear(const Module& linear, DType dtype = DType::f32);

/// Packs the layers of `module` for which `state` has a packed weight, with the parts that stand there, which are
/// not copied. load_state_dict(state) may follow for the rest.
///     nn::pack_from_state(net, state); net.load_state_dict(state);      // the same logits as those of the net it came
///     from
/// Throws ValueError for a packed layer that the module lacks, or a part that does not belong; and as pack_linear().
void pack_from_state(const Module& module, const StateDict& state);

/// What became of a layer.
struct PackedLayer {
  std::string name;         ///< "blocks.0.attn.qkv"
  double bits = 0;          ///< for each number of the weight
  double weight_error = 0;  ///< |W - W'| / |W|, over all numbers
  double output_error = 0;  ///< the same of x W^T over what calibration gave; 0 where there was none
};
/// Which layers, and how.
struct PackOptions {
  QuantizeOptions rounding;  ///< blocks, symmetry, double quantisation
  /// Layers whose name has one of these as a whole part, as "blocks.0" has. Language models read the head's weight by
  /// themselves, and published ones keep it as it is.
  std::vector<std::string> skip = {"head"};
};
/// Rounds the weight of every Linear of `module` to `format` (quantize_weight()): all that are not skipped, and whose
/// weight is theirs alone. Layers keep their devices. Throws as quantize_weight(), naming the layer; layers before it
/// are packed then.
///     std::vector<nn::PackedLayer> layers = nn::quantize(net, "int4", {.rounding = {.block_columns = 64}, .skip =
///     {"head"}});
std::vector<PackedLayer> quantize(const Module& module, std::string_view format, const PackOptions& options = {});

/// The names of the layers that quantize() would take, in their order.
std::vector<std::string> packable_layers(const Module& module, const std::vector<std::string>& skip = {});

}  // namespace strata::nn
