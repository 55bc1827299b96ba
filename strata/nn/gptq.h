#pragma once
// GPTQ: codes of a layer's weight chosen one column after the other, each column's error made up for by those that
// follow, as the layer's inputs weigh it ("GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
// Transformers", Frantar et al., https://arxiv.org/abs/2210.17323).

#include <string>
#include <string_view>
#include <vector>

#include "strata/nn/packed.h"

namespace strata::nn {

/// How gptq() chooses.
struct GptqOptions {
  int64_t group_size = 128;  ///< columns with one scale, a multiple of 32; 0: all
  bool symmetric = true;     ///< no zeros
  bool act_order = false;    ///< columns with the largest inputs first; the codes then have an `order`
  double damp = 0.01;        ///< added to H's diagonal, in parts of its mean; above 0
  DType scale_dtype = DType::f32;
  std::vector<std::string> skip = {"head"};  ///< as PackOptions'
  /// Sums of x^T x that are kept at a time, in bytes. Layers past it wait for another pass over the calibration, in
  /// which those before them are packed already.
  int64_t hessian_bytes = int64_t{2} << 30;
};

/// Codes for `weight` [rows, columns] as int4 or int8 ("format"), where H [columns, columns] is the sum of x^T x over
/// inputs x. Columns whose inputs were all zero become zero. Throws ValueError, ShapeError, DTypeError. On the CPU.
PackedWeight gptq_weight(const Tensor& weight, const Tensor& hessian, std::string_view format,
                         const GptqOptions& options = {});

/// |(W - W') x| / |W x| over those inputs, all rows together; 0 where W x is.
double output_error(const Tensor& weight, const Tensor& decoded, const Tensor& hessian);

namespace detail {
struct Calibration {
  void* fn;
  void (*run)(void* fn);
};
std::vector<PackedLayer> gptq(const Module& module, std::string_view format, const GptqOptions& options,
                              Calibration calibration);
}  // namespace detail

/// Packs every Linear of `module` that quantize() would, by GPTQ: `calibration()` calls the module on text of its own,
/// without gradients, once or (GptqOptions::hessian_bytes) more often, the same each time; hooks before the layers sum
/// their inputs' products. Throws ValueError for a layer that calibration did not call, before anything of that pass is
/// packed; and as gptq_weight(), naming the layer.
///     nn::gptq(model, "int4", {.group_size = 64}, [&] { for (const Tensor& t : batches) model.forward(t); });
template <class F>
std::vector<PackedLayer> gptq(const Module& module, std::string_view format, const GptqOptions& options,
                              F&& calibration) {
  return detail::gptq(module, format, options, {const_cast<void*>(static_cast<const void*>(&calibration)), [](void* f) {
                                                  (*static_cast<std::remove_reference_t<F>*>(f))();
                                                }});
}

}  // namespace strata::nn
