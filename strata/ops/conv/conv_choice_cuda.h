#pragma once
// For tests and benches: which of the ways to compute a convolution is taken, where there are several.

namespace strata::conv_cuda {

/// -1: the cheapest by the planners' counts. What does not fit is not taken.
struct ConvChoice {
  int shape = -1;      ///< number of a shape of conv_boxes_kernel.cuh
  int way = -1;        ///< how pixels come: BoxWay of conv_boxes_plan.cuh
  int depthwise = -1;  ///< 0: on ordinary units (depthwise_tiles.cu); 1: by band matrices (depthwise_bands.cuh)
  int clusters = -1;   ///< of gradients of filters: 0: none; 1: of two blocks (conv_boxes_filter_kernel.cuh)
  int adding = -1;     ///< of shares of those gradients: 0: by element; 1: by rows in shared memory
};
/// What every thread's convolutions are told from now on.
ConvChoice& conv_choice();

}  // namespace strata::conv_cuda
