#include <bit>

#include "strata/cuda/array_places_inl.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/current.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/range.cuh"
#include "strata/cuda/runtime.h"
#include "strata/ops/decoder/decoder_inl.h"
#include "strata/ops/decoder/decoder_walk.cuh"
#include "strata/ops/factory/factory.h"

namespace strata::decoder {
namespace {

using cuda::check_cuda;

bool lies_densely(const Tensor& t, Device device, DType dtype) {
  return t.defined() && t.device() == device && t.dtype() == dtype && t.is_contiguous() &&
         reinterpret_cast<uintptr_t>(t.raw_data()) % 16 == 0;
}
// log2 of a power of two; of 0, which stands for all, more than any row's number has bits; else nothing.
std::optional<int> shift_of(int64_t n) {
  if (n == 0) return 31;
  return std::has_single_bit(static_cast<uint64_t>(n)) ? std::optional(std::countr_zero(static_cast<uint64_t>(n)))
                                                       : std::nullopt;
}

// Makes the kernel's view of a step; `fits` says whether there is one.
struct Reading {
  Walk walk;
  std::optional<Numbering> kind;
  DType scale_dtype = DType::f32;
  Device device;
  bool fits = true;

  Rows rows(const Matrix& m, int64_t count, int64_t columns) {
    Rows r;
    const auto own = m.packed ? (m.packed->format->codes == WeightCodes::e4m3   ? std::optional(Numbering::e4m3)
                                 : m.packed->format->codes == WeightCodes::int4 ? std::optional(Numbering::int4)
                                                                                : std::nullopt)
                              : std::optional(Numbering::bf16);
    fits = fits && own && (!kind || *kind == *own) && count % 2 == 0 && columns % 8 == 0;
    if (!fits) return r;
    if (!m.packed) {
      fits = lies_densely(m.dense, device, DType::bf16) && m.dense.shape() == Shape{count, columns};
      if (fits)
        r.codes = static_cast<const uint8_t*>(m.dense.raw_data()), r.row_bytes = static_cast<int32_t>(2 * columns);
      kind = own;
      return r;
    }
    const PackedWeight& p = *m.packed;
    const std::optional<int> down = shift_of(p.block_rows), across = shift_of(p.block_columns);
    const int64_t row_bytes = p.format->row_bytes(columns);
    fits = p.rows == count && p.columns == columns && !p.order.defined() && !p.nested.defined() && down && across &&
           *across >= 7 && row_bytes % 16 == 0 && lies_densely(p.codes, device, p.codes.dtype()) &&
           lies_densely(p.scales, device, p.scales.dtype()) &&
           (!p.zeros.defined() || lies_densely(p.zeros, device, DType::u8));
    if (!fits) return r;
    const int64_t blocks = p.grid()[1];
    const auto size = static_cast<int32_t>(size_of(p.scales.dtype()));
    const auto shift = static_cast<int32_t>(*across);
    const int held = *own == Numbering::int4 ? kColumns<Numbering::int4> : kColumns<Numbering::e4m3>;
    fits = (!kind || (walk.block_shift == shift && scale_dtype == p.scales.dtype())) && (size == 4 || size == 2) &&
           shift < 31 && scales_align(static_cast<int>(row_bytes), held, shift, size, p.zeros.defined());
    kind = own, walk.block_shift = shift, walk.scale_size = size, scale_dtype = p.scales.dtype();
    walk.scale_half = scale_dtype == DType::f16;
    r.codes = static_cast<const uint8_t*>(p.codes.raw_data()), r.row_bytes = static_cast<int32_t>(row_bytes);
    r.scales = static_cast<const uint8_t*>(p.scales.raw_data());
    r.scale_bytes = static_cast<int32_t>(blocks * size), r.row_shift = *down;
    if (p.zeros.defined())
      r.zeros = static_cast<const uint8_t*>(p.zeros.raw_data()), r.zero_bytes = static_cast<int32_t>(blocks);
    return r;
  }
};

template <Numbering kKind, int kHeadSize>
__global__ void __launch_bounds__(kThreads, 1)
    checked_kernel(const __grid_constant__ Walk w, const Room room, const int64_t* start, int64_t capacity,
                   cuda::RangeCheck check) {
  if (blockIdx.x == 0 && threadIdx.x == 0 && (w.running == nullptr || *w.running > 0)) check(*start, capacity);
  walk_block<kKind, kHeadSize>(w, room);
}

const void* kernel_of(Numbering kind, int64_t head_size) {
  const bool large = head_size == 128;
  if (kind == Numbering::bf16)
    return reinterpret_cast<const void*>(large ? checked_kernel<Numbering::bf16, 128>
                                               : checked_kernel<Numbering::bf16, 64>);
  if (kind == Numbering::e4m3)
    return reinterpret_cast<const void*>(large ? checked_kernel<Numbering::e4m3, 128>
                                               : checked_kernel<Numbering::e4m3, 64>);
  return reinterpret_cast<const void*>(large ? checked_kernel<Numbering::int4, 128>
                                             : checked_kernel<Numbering::int4, 64>);
}

}  // namespace

std::optional<Tensor> step(const StepTensors& s) {
  const Device device = s.x.device();
  if (!device.is_cuda() || s.layers.empty() || static_cast<int>(s.layers.size()) > kMostLayers) return std::nullopt;
  const cuda::DeviceProperties& card = cuda::properties(device.index);
  const LayerTensors& first = s.layers.front();
  if (card.major != 9 || !lies_densely(s.x, device, DType::bf16) || first.k.dim() != 4) return std::nullopt;
  const int64_t dim = s.x.numel(), capacity = first.k.size(2), head_size = first.k.size(3),
                width = first.down.packed ? first.down.packed->columns : first.down.dense.size(1);
  Reading r;
  Walk& w = r.walk;
  r.device = device;
  const auto turns = [&](const Tensor& t) { return lies_densely(t, device, DType::f32) && t.numel() == head_size / 2; };
  const auto number = [&](const Tensor& t) { return lies_densely(t, device, DType::i64) && t.numel() == 1; };
  if ((head_size != 64 && head_size != 128) || s.kv_heads <= 0 || s.heads % s.kv_heads != 0 || !turns(s.cos) ||
      !turns(s.sin) || !number(s.place) || !number(s.starts) || (s.running.defined() && !number(s.running)))
    return std::nullopt;
  for (size_t i = 0; i < s.layers.size() && r.fits; ++i) {
    const LayerTensors& l = s.layers[i];
    const auto cache = [&](const Tensor& t) {
      return lies_densely(t, device, DType::bf16) && t.shape() == Shape{1, s.kv_heads, capacity, head_size};
    };
    const auto norm = [&](const Tensor& t) { return lies_densely(t, device, DType::bf16) && t.numel() == dim; };
    r.fits = cache(l.k) && cache(l.v) && norm(l.norm1) && norm(l.norm2);
    if (!r.fits) break;
    w.layers[i] = {.norm1 = l.norm1.raw_data(),
                   .norm2 = l.norm2.raw_data(),
                   .qkv = r.rows(l.qkv, (s.heads + 2 * s.kv_heads) * head_size, dim),
                   .out = r.rows(l.out, dim, s.heads * head_size),
                   .gate_up = r.rows(l.gate_up, 2 * width, dim),
                   .down = r.rows(l.down, dim, width),
                   .k = const_cast<void*>(l.k.raw_data()),
                   .v = const_cast<void*>(l.v.raw_data())};
  }
  if (!r.fits) return std::nullopt;
  const int64_t widest = std::max({dim, width, s.heads * head_size});
  const Room room = room_of(static_cast<int>(widest), *r.kind != Numbering::bf16, static_cast<int>(head_size));
  if (widest > kSharedLimit / 4 || room.slots < 2) return std::nullopt;

  cuda::ArrayPlaces places;
  const int64_t stream = places.take(4 * dim), qkv = places.take(4 * (s.heads + 2 * s.kv_heads) * head_size),
                parts = places.take(4 * s.heads * kMostSplits * (head_size + 4)),
                attended = places.take(2 * s.heads * head_size), inner = places.take(2 * width),
                counts = 1 + s.kv_heads * ((s.heads / s.kv_heads + kSharedHeads - 1) / kSharedHeads),
                arrivals = places.take(counts * static_cast<int64_t>(sizeof(unsigned)));
  const Tensor scratch = empty({{places.bytes()}, DType::u8, device, std::nullopt});
  const Tensor y = empty({s.x.shape(), DType::bf16, device, std::nullopt});
  auto* const base = static_cast<unsigned char*>(const_cast<void*>(scratch.raw_data()));
  cuda::fill_bytes(device, base + arrivals, 0, counts * static_cast<int64_t>(sizeof(unsigned)));
  w.count = static_cast<int32_t>(s.layers.size()), w.dim = static_cast<int32_t>(dim);
  w.heads = static_cast<int32_t>(s.heads), w.kv_heads = static_cast<int32_t>(s.kv_heads);
  w.width = static_cast<int32_t>(width), w.head_stride = capacity * head_size, w.eps = static_cast<float>(s.eps);
  w.x = s.x.raw_data(), w.y = const_cast<void*>(y.raw_data());
  w.place = static_cast<const int64_t*>(s.place.raw_data());
  if (s.running.defined()) w.running = static_cast<const int64_t*>(s.running.raw_data());
  w.cos = static_cast<const float*>(s.cos.raw_data()), w.sin = static_cast<const float*>(s.sin.raw_data());
  w.stream = reinterpret_cast<float*>(base + stream), w.qkv = reinterpret_cast<float*>(base + qkv);
  w.parts = reinterpret_cast<float*>(base + parts), w.attended = reinterpret_cast<uint16_t*>(base + attended);
  w.inner = reinterpret_cast<uint16_t*>(base + inner), w.arrivals = reinterpret_cast<unsigned*>(base + arrivals);
  w.done = reinterpret_cast<int*>(w.arrivals + 1);

  const void* const kernel = kernel_of(*r.kind, head_size);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, room.bytes), "decoder step",
             "cudaFuncSetAttribute");
  const auto* start = static_cast<const int64_t*>(s.starts.raw_data());
  int64_t most = capacity;
  cuda::RangeCheck check = cuda::range_check();
  Room own = room;
  void* parameters[] = {&w, &own, &start, &most, &check};
  const cudaError_t e =
      cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(card.multiprocessors)), dim3(kThreads), parameters,
                                  static_cast<size_t>(room.bytes), cuda::stream());
  if (e == cudaErrorCooperativeLaunchTooLarge) {  // this process has a part of the card only
    cudaGetLastError();
    return std::nullopt;
  }
  check_cuda(e, "decoder step", "the launch");
  return y;
}

}  // namespace strata::decoder
