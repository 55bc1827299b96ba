// One source of a parallel loop on the processor and on a card: the triad of STREAM (McCalpin, 1995), a = b + s c, by
// the library's loop and by one written for the place. Built with CUDA, nvcc compiles this file; prints bytes moved per
// second.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include <strata/cuda/loop.h>
#include <strata/cuda/runtime.h>
#include <strata/strata.h>

using namespace strata;

struct Triad {
  float* a;
  const float *b, *c;
  float s;
  STRATA_LOOP_BODY void operator()(int64_t i) const { a[i] = b[i] + s * c[i]; }
};

struct Sum {
  float s;
  STRATA_LOOP_BODY float operator()(float b, float c) const { return b + s * c; }
};

#ifdef __CUDACC__
__global__ void native_kernel(float* a, const float* b, const float* c, float s, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) a[i] = b[i] + s * c[i];
}
#endif

void native(Device device, float* a, const float* b, const float* c, float s, int64_t n) {
#ifdef __CUDACC__
  if (device.is_cuda()) {
    native_kernel<<<static_cast<unsigned>((n + 255) / 256), 256, 0,
                    static_cast<cudaStream_t>(cuda::current_stream().handle())>>>(a, b, c, s, n);
    return;
  }
#endif
  parallel_for(0, n, 32768, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a[i] = b[i] + s * c[i];
  });
}

// The best of repeated calls in GB/s, in turns so that both meet the same machine.
struct Rates {
  double native = 0, loop = 0, map = 0;
};

template <class Call>
double rate(Device device, double bytes, Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  if (device.is_cuda()) cuda::synchronize();
  return bytes / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 1e9;
}

int main() {
  bool right = true;
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (device.is_cuda() && cuda::device_count() == 0) {
      std::printf("no card: %s\n", cuda::unavailable_reason().c_str());
      continue;
    }
    const int64_t n = int64_t{1} << (device.is_cuda() ? 28 : 24);
    const DeviceScope there(device);
    const Tensor b = rand({n}), c = rand({n}), a = zeros({n}), by_map = zeros({n});
    const auto at = [](const Tensor& t) { return static_cast<float*>(t.raw_data()); };
    Rates best;
    const double bytes = 3.0 * static_cast<double>(b.nbytes());
    try {
      for (int round = 0; round < 20; ++round) {
        best.native = std::max(best.native, rate(device, bytes, [&] { native(device, at(a), at(b), at(c), 2, n); }));
        best.loop = std::max(best.loop, rate(device, bytes, [&] {
                               loop::for_each(device, n, Triad{at(a), at(b), at(c), 2});
                             }));
        best.map = std::max(best.map, rate(device, bytes, [&] { loop::map<float>(by_map, Sum{2}, b, c); }));
      }
    } catch (const DeviceError& e) {  // a build for the processor alone, on a machine with a card
      std::printf("%s\n", e.what());
      continue;
    }
    std::printf("%s: native %.1f GB/s, loop::for_each %.1f (%.2f of it), loop::map %.1f (%.2f)\n",
                to_string(device).c_str(), best.native, best.loop, best.loop / best.native, best.map,
                best.map / best.native);
    right = right && (a - (b + c * 2.0)).abs().max().item() < 1e-6 && (a - by_map).abs().max().item() < 1e-6;
  }
  return right ? 0 : 1;
}
