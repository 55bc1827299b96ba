// The gradient of filters from channels-last tensors on Hopper's tensor cores: a sum over pixels, 64 of them a step, a
// share of the steps for each block. The columns of a product are three pieces of 64 channels: of boxes three taps
// below one another, which read the same box some rows further; of runs three taps, or pieces, copied each.

#include "strata/ops/conv/conv_boxes.cuh"
#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {
namespace {

constexpr int kPixels = 64, kPieces = 3, kTile = kPixels * kRowBytes;  // of 64 pixels and channels

struct FilterBoxes {
  CUtensorMap x, y;
  float* sums;
  Places places;
  int m, channels, chunks;  // chunks of 64 channels
  int kernel_h, kernel_w, dilation_h, dilation_w;
  int loaded, further;  // bytes of x for a step; from a piece to the next
  int boxes, shares, stages;
};

// Tap and first channel of a piece of a block's columns; no tap where there is none.
struct Piece {
  int tap, channel;
};
[[maybe_unused]] __device__ __forceinline__ Piece piece_of(const FilterBoxes& g, int tile, int i) {
  if (g.places.runs) {
    const int at = tile * kPieces + i, taps = g.kernel_h * g.kernel_w, tap = at / g.chunks;
    return {tap < taps ? tap : -1, (at - tap * g.chunks) * 64};
  }
  const int column = tile / g.chunks, of = column / g.kernel_w, a = of * kPieces + i;
  return {a < g.kernel_h ? a * g.kernel_w + column % g.kernel_w : -1, tile % g.chunks * 64};
}

template <int Tall>
constexpr int blocks_at_once() {
  return Tall == 1 ? 2 : 1;
}

template <class T, int Tall>
__global__ void __launch_bounds__(128 * (Tall + 1), blocks_at_once<Tall>())
    filter_boxes_kernel(const __grid_constant__ FilterBoxes g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t full[kMostStages], empty[kMostStages];
  const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  const int tid = static_cast<int>(threadIdx.x), group = tid / 128;
  const int tile = static_cast<int>(blockIdx.x), m0 = static_cast<int>(blockIdx.y) * Tall * 64,
            share = static_cast<int>(blockIdx.z), bytes = Tall * kTile + g.loaded;
  const int begin = static_cast<int>(static_cast<int64_t>(g.boxes) * share / g.shares),
            end = static_cast<int>(static_cast<int64_t>(g.boxes) * (share + 1) / g.shares);
  if (tid == 0) {
    for (int i = 0; i < kMostStages; ++i) {
      init_barrier(full + i, 1);
      init_barrier(empty + i, 4 * Tall);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_shared();
  }
  __syncthreads();

  if (group == Tall) {
    give_registers<Tall == 3 ? 32 : 40>();
    if (tid % 128 == 0) {
      Buffers ring(g.stages);
      for (int box = begin; box < end; ++box) {
        wait(empty + ring.stage, ring.parity ^ 1);
        uint64_t* const ready = full + ring.stage;
        arrive_expecting(ready, static_cast<uint32_t>(bytes));
        const uint32_t y_at = base + static_cast<uint32_t>(ring.stage * bytes), x_at = y_at + Tall * kTile;
        const Place at = place_of(g.places, box);
        const int top = at.y * g.places.step_y + g.places.first_y, left = at.x * g.places.step_x + g.places.first_x;
        if (g.places.runs) {
#pragma unroll
          for (int i = 0; i < Tall; ++i) copy_box_in(y_at + i * kTile, g.y, ready, m0 + i * 64, box * kPixels, 0, 0);
#pragma unroll
          for (int i = 0; i < kPieces; ++i) {
            const Piece piece = piece_of(g, tile, i);  // where there is none, any
            const int tap = max(piece.tap, 0), a = tap / g.kernel_w, b = tap - a * g.kernel_w;
            copy_run_in(x_at + i * kTile, g.x, ready, piece.channel, left, top, at.n, b * g.dilation_w,
                        a * g.dilation_h);
          }
        } else {
#pragma unroll
          for (int i = 0; i < Tall; ++i) copy_box_in(y_at + i * kTile, g.y, ready, m0 + i * 64, at.x, at.y, at.n);
          const int column = tile / g.chunks, a = column / g.kernel_w * kPieces, b = column % g.kernel_w;
          copy_box_in(x_at, g.x, ready, tile % g.chunks * 64, left + b * g.dilation_w, top + a * g.dilation_h, at.n);
        }
        ring.next();
      }
    }
  } else {
    take_registers<Tall == 3 ? 160 : Tall == 2 ? 232 : 208>();
    const int lane = tid % 32;
    float first[64], second[32];
#pragma unroll
    for (int i = 0; i < 64; ++i) first[i] = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) second[i] = 0;
    Buffers ring(g.stages);
    int held = -1;
    for (int box = begin; box < end; ++box) {
      wait(full + ring.stage, ring.parity);
      const uint32_t y_at = base + static_cast<uint32_t>(ring.stage * bytes),
                     a = y_at + static_cast<uint32_t>(group * kTile), b = y_at + Tall * kTile;
      fence_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) {  // 16 pixels each
        const auto at = static_cast<uint32_t>(k * 16 * kRowBytes);
        const uint64_t left = descriptor_t(a + at, kTile);
        multiply<T, true, true>(first, left, descriptor_t(b + at, static_cast<uint32_t>(g.further)), true);
        multiply<T, true, true>(
            second, left, descriptor_t(b + static_cast<uint32_t>(2 * g.further) + at, static_cast<uint32_t>(g.further)),
            true);
      }
      commit_products();
      wait_products<1>();
      if (held >= 0 && lane == 0) arrive(empty + held);
      held = ring.stage;
      ring.next();
    }
    wait_products<0>();
    pin(first);
    pin(second);

    const int columns = g.kernel_h * g.kernel_w * g.channels, row = m0 + group * 64 + tid % 128 / 32 * 16 + lane / 4;
    float* const sums = g.sums + static_cast<int64_t>(share) * g.m * columns;
    const auto write = [&](const auto& values, int from, int i) {
      const Piece piece = piece_of(g, tile, i);
      if (piece.tap < 0) return;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row + h * 8 >= g.m) continue;
        float* const line = sums + static_cast<int64_t>(row + h * 8) * columns + piece.tap * g.channels;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int c = piece.channel + j * 8 + lane % 4 * 2;
          if (c < g.channels)
            store_vec(line + c, Vec<float, 2>{values[from + j * 4 + h * 2], values[from + j * 4 + h * 2 + 1]});
        }
      }
    };
    write(first, 0, 0);
    write(first, 32, 1);
    write(second, 0, 2);
  }
#endif
}

template <class T, int Tall>
void launch(const FilterBoxes& g, int tiles, int bytes) {
  constexpr auto kernel = filter_boxes_kernel<T, Tall>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared),
             "convolution_weight", "cudaFuncSetAttribute");
  const dim3 grid(static_cast<unsigned>(tiles), blocks_for(g.m, 64 * Tall), static_cast<unsigned>(g.shares));
  kernel<<<grid, 128 * (Tall + 1), static_cast<size_t>(bytes), stream()>>>(g);
}

// Over how many blocks a sum is shared: rounds of them on a full card against the shares' sums in memory.
int choose_shares(int64_t tiles, int64_t slots, int64_t steps, int64_t results, double step) {
  constexpr double kBlock = 3e-6, kSum = 8 / 3e12;  // seconds, about: of a block beside its steps, of a sum
  const int64_t most = std::clamp<int64_t>(std::min(steps / 2, (int64_t{64} << 20) / results), 1, 1024);
  int64_t best = 1;
  double least = 0;
  for (int64_t n = 1; n <= most; ++n) {
    const auto rounds = static_cast<double>((tiles * n + slots - 1) / slots);
    const double cost =
        rounds * (static_cast<double>((steps + n - 1) / n) * step + kBlock) + static_cast<double>(n * results) * kSum;
    if (n > 1 && cost >= least) continue;
    best = n, least = cost;
  }
  return static_cast<int>(best);
}

}  // namespace

bool boxes_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  if (!fits_boxes(s, t, device, x, y)) return false;
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t chunks = up(s.ic, 64), taps = s.kh * s.kw, total = s.n * s.oh * s.ow;
  int tall = 1;
  for (const int i : {2, 3})
    if (s.oc > 64 && up(s.oc, 64 * i) * i <= up(s.oc, 64 * std::max(2, tall)) * std::max(2, tall)) tall = i;

  // Clocks of all steps, of boxes and of runs: products, or bytes.
  const int box_rows = static_cast<int>(8 + (kPieces - 1) * s.dh);
  const int64_t box_steps = s.n * up(s.oh, 8) * up(s.ow, 8), run_steps = up(total, kPixels);
  const int64_t box_tiles = up(s.kh, kPieces) * s.kw * chunks, run_tiles = up(taps * chunks, kPieces);
  const auto clocks = [&](int64_t tiles, int64_t steps, int64_t loaded) {
    return static_cast<double>(tiles * steps) *
           std::max(tall * 384 / 0.8, static_cast<double>(tall * kTile + loaded) / 36);
  };
  const bool may_box = s.sh == 1 && s.sw == 1 && box_rows <= 64, may_run = fits_runs(s);
  if (!may_box && !may_run) return false;
  const bool runs = !may_box || (may_run && clocks(run_tiles, run_steps, kPieces * kTile) <
                                                clocks(box_tiles, box_steps, int64_t{box_rows} * kUnit));
  const int64_t tiles = runs ? run_tiles : box_tiles, steps = runs ? run_steps : box_steps;
  const int64_t results = s.oc * s.ic * taps;
  if (tiles > 65535 || up(s.oc, 64 * tall) > 65535 || results > (1 << 30)) return false;

  FilterBoxes g{};
  g.loaded = runs ? kPieces * kTile : box_rows * kUnit;
  g.further = runs ? kTile : static_cast<int>(s.dh) * kUnit;
  const int bytes = tall * kTile + g.loaded;
  g.stages = std::min(kMostStages, ((tall == 1 ? kMostShared / 2 - 1024 : kMostShared) - kUnit) / bytes);
  if (g.stages < 2) return false;
  const BoxMap pixels{s.ic, s.iw, s.ih, s.n, s.ic, s.ic * s.iw, s.ic * s.iw * s.ih};
  g.x = runs ? run_map(s, t, x, kPixels) : box_map(t, x, pixels, 8, box_rows);
  g.y = runs ? box_map(t, y, {s.oc, total, 1, 1, s.oc, 1, 1}, kPixels, 1)
             : box_map(t, y, {s.oc, s.ow, s.oh, s.n, s.oc, s.oc * s.ow, s.oc * s.ow * s.oh}, 8, 8);
  Places& at = g.places;
  at.runs = runs, at.box_rows = 8;
  at.across = static_cast<int>(runs ? s.ow : up(s.ow, 8)), at.down = static_cast<int>(runs ? s.oh : up(s.oh, 8));
  at.by_image = FastDivisor(static_cast<uint32_t>(at.across * at.down));
  at.by_row = FastDivisor(static_cast<uint32_t>(at.across));
  at.first_y = static_cast<int>(-s.ph), at.first_x = static_cast<int>(-s.pw);
  at.step_y = static_cast<int>(s.sh), at.step_x = static_cast<int>(s.sw);
  g.m = static_cast<int>(s.oc), g.channels = static_cast<int>(s.ic), g.chunks = static_cast<int>(chunks);
  g.kernel_h = static_cast<int>(s.kh), g.kernel_w = static_cast<int>(s.kw);
  g.dilation_h = static_cast<int>(s.dh), g.dilation_w = static_cast<int>(s.dw);
  g.boxes = static_cast<int>(steps);
  const int64_t slots = int64_t{properties(device.index).multiprocessors} * (tall == 1 ? 2 : 1);
  const double step = std::max(tall * 384 / 0.8, bytes / 36.0) / 1.7e9 * (tall == 1 ? 2 : 1);
  g.shares = choose_shares(tiles * up(s.oc, 64 * tall), slots, steps, results, step);
  const Tensor sums = workspace(DType::f32, device, g.shares * results);
  g.sums = static_cast<float*>(sums.raw_data());
  const int all = g.stages * bytes + kUnit;
  const auto run = [&]<class T>() {
    tall == 1   ? launch<T, 1>(g, static_cast<int>(tiles), all)
    : tall == 2 ? launch<T, 2>(g, static_cast<int>(tiles), all)
                : launch<T, 3>(g, static_cast<int>(tiles), all);
  };
  t == DType::bf16 ? run.template operator()<BFloat16>() : run.template operator()<Half>();
  add_filter_shares(s, t, g.sums, g.shares, static_cast<int>(taps), static_cast<int>(s.ic), w);
  return true;
}

}  // namespace strata::conv_cuda
