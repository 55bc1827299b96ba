#include "strata/cuda/magnitudes.h"

#include <memory>

#include "strata/core/autocast_fp8.h"
#include "strata/core/beside.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/kernel.cuh"
#include "strata/memory/allocator.h"

namespace strata::cuda {
namespace {

struct Magnitudes final : strata::detail::Beside {
  Tensor parts;
  const void* data = nullptr;
  int64_t bytes = 0;
  DType dtype = DType::f32;
  uint32_t version = 0;
  int stream = 0;
  unsigned long long capture = 0;
};

// The capture that the current stream is in; 0 for none. What was left outside of one is not left again by its replays.
unsigned long long capture_id() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  check_cuda(cudaStreamGetCaptureInfo(stream(), &status, &id), "fp8", "cudaStreamGetCaptureInfo");
  return status == cudaStreamCaptureStatusNone ? 0 : id;
}

struct ParameterMagnitudes final : strata::detail::Beside {
  Tensor parts;
  uint32_t version = 0;
  bool known = false;
};
// Whether it is all of its storage: what is beside that is its own.
bool is_whole(const Tensor& t) {
  return t.defined() && t.dtype() == DType::f32 && t.numel() > 0 && t.device().is_cuda() && t.is_contiguous() &&
         static_cast<size_t>(t.nbytes()) == t.storage()->nbytes;
}
ParameterMagnitudes* of_parameter(const Tensor& t) {
  return dynamic_cast<ParameterMagnitudes*>(strata::detail::beside(*t.storage()));
}

// As the optimizers' loops do.
__global__ void __launch_bounds__(kParameterWarps* kWarp) parameter_kernel(uint32_t* parts, const float* x, int64_t n) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kParameterChunk, end = min(begin + kParameterChunk, n);
  uint32_t most = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kParameterWarps * kWarp)
    most = max(most, __float_as_uint(x[i]) & 0x7fffffffu);
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x % kWarp == 0) parts[blockIdx.x * kParameterWarps + threadIdx.x / kWarp] = most;
}

void compute_parameter(const Tensor& parts, const Tensor& parameter) {
  const DeviceScope scope(parameter.device().index);
  parameter_kernel<<<blocks_for(parameter.numel(), kParameterChunk), kParameterWarps * kWarp, 0, stream()>>>(
      static_cast<uint32_t*>(parts.raw_data()), static_cast<const float*>(parameter.raw_data()), parameter.numel());
  check_cuda(cudaGetLastError(), "fp8", "the parameter's largest magnitudes");
}

}  // namespace

uint32_t* magnitudes_beside(const Tensor& y) {
  constexpr int64_t kUnit = 16;  // of the rows that products in fp8 take
  if (!strata::detail::fp8_follows()) return nullptr;
  if (y.dim() < 2 || y.numel() == 0 || y.shape().back() % kUnit != 0 || y.dtype() == DType::f64) return nullptr;
  if (!y.is_contiguous()) return nullptr;
  auto left = std::make_unique<Magnitudes>();
  left->parts = empty({{kMagnitudeParts}, DType::i32, y.device(), std::nullopt});
  left->data = y.raw_data();
  left->bytes = y.nbytes();
  left->dtype = y.dtype();
  left->version = y.version();
  left->stream = current_stream(y.device().index).id();
  left->capture = capture_id();
  auto* parts = static_cast<uint32_t*>(left->parts.raw_data());
  check_cuda(cudaMemsetAsync(parts, 0, sizeof(uint32_t) * kMagnitudeParts, stream()), "fp8", "cudaMemsetAsync");
  strata::detail::put_beside(*y.storage(), std::move(left));
  return parts;
}

Tensor magnitudes_of(const Tensor& x) {
  const auto* left = dynamic_cast<const Magnitudes*>(strata::detail::beside(*x.storage()));
  const bool fits = left != nullptr && left->data == x.raw_data() && left->bytes == x.nbytes() &&
                    left->dtype == x.dtype() && left->version == x.version() && x.is_contiguous() &&
                    left->stream == current_stream(x.device().index).id() && left->capture == capture_id();
  return fits ? left->parts : Tensor();
}

Tensor kept_magnitudes(const Tensor& parameter) {
  if (!is_whole(parameter)) return {};
  const ParameterMagnitudes* kept = of_parameter(parameter);
  return kept != nullptr && kept->known && kept->version == parameter.version() ? kept->parts : Tensor();
}

Tensor readable_magnitudes(const Tensor& parameter) {
  return capturing() && !strata::detail::fp8_magnitudes_renewed() ? Tensor() : kept_magnitudes(parameter);
}

void keep_magnitudes(const Tensor& parameter, const Tensor& magnitudes) {
  ParameterMagnitudes* kept = of_parameter(parameter);
  if (kept == nullptr || !kept->parts.same_as(magnitudes)) {
    auto made = std::make_unique<ParameterMagnitudes>();
    kept = made.get();
    kept->parts = magnitudes;
    strata::detail::put_beside(*parameter.storage(), std::move(made));
  }
  kept->version = parameter.version();
  kept->known = true;
}

void renew_magnitudes(const Tensor& parameter, const Tensor& magnitudes) {
  if (!magnitudes.defined()) {
    if (ParameterMagnitudes* kept = of_parameter(parameter)) kept->known = false;
  } else if (!kept_magnitudes(parameter).same_as(magnitudes)) {
    compute_parameter(magnitudes, parameter);
    keep_magnitudes(parameter, magnitudes);
  }
}

void want_magnitudes(const Tensor& parameter) {
  if (capturing() || !parameter.requires_grad() || !parameter.is_leaf() || !is_whole(parameter)) return;
  if (kept_magnitudes(parameter).defined()) return;
  const ParameterMagnitudes* before = of_parameter(parameter);
  const int64_t parts = int64_t{kParameterWarps} * blocks_for(parameter.numel(), kParameterChunk);
  const memory::TagScope tag(memory::Tag::optimizer);
  renew_magnitudes(parameter,
                   before != nullptr ? before->parts : empty({{parts}, DType::f32, parameter.device(), std::nullopt}));
}

}  // namespace strata::cuda
