#include "strata/core/dispatch.h"
#include "strata/cuda/each.cuh"
#include "strata/cuda/kernel.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/rnn/slstm_kernel.h"

namespace strata::recurrent {
namespace {
using cuda::narrow;
using cuda::widen;

template <class T, class R = compute_t<T>>
struct Forward {
  const T *x, *y;
  const R *c, *l;
  T *h, *sums;
  R *c_next, *l_next;
};

template <class T>
__global__ void __launch_bounds__(cuda::kEachThreads) step_kernel(int64_t units, int64_t H, Forward<T> s) {
  using R = compute_t<T>;
  cuda::for_each(units, [&](int64_t e) {
    const int64_t at = e / H * 4 * H + e % H;
    R sum[4];
#pragma unroll
    for (int g = 0; g < 4; ++g) sum[g] = widen(s.x[at + g * H]) + widen(s.y[at + g * H]);
    const SlstmState<R> r = slstm_unit<R>({sum[0], sum[1], sum[2], sum[3]}, s.c[e], s.l[e]);
    s.h[e] = narrow<T>(r.h);
    s.c_next[e] = r.c;
    s.l_next[e] = r.l;
#pragma unroll
    for (int g = 0; g < 4; ++g) s.sums[at + g * H] = narrow<T>(sum[g]);
  });
}

template <class T, class R = compute_t<T>>
struct Backward {
  const T *gh, *sums;
  const R *gc, *gl, *c, *l;
  T* gsums;
  R *gc_before, *gl_before;
};

template <class T>
__global__ void __launch_bounds__(cuda::kEachThreads) backward_kernel(int64_t units, int64_t H, Backward<T> s) {
  using R = compute_t<T>;
  cuda::for_each(units, [&](int64_t e) {
    const int64_t at = e / H * 4 * H + e % H;
    R gc = s.gc[e], gl = s.gl[e];
    const SlstmSums<R> g = slstm_unit_backward<R>(
        {widen(s.sums[at]), widen(s.sums[at + H]), widen(s.sums[at + 2 * H]), widen(s.sums[at + 3 * H])}, s.c[e],
        s.l[e], widen(s.gh[e]), gc, gl);
    s.gc_before[e] = gc;
    s.gl_before[e] = gl;
    s.gsums[at] = narrow<T>(g.i);
    s.gsums[at + H] = narrow<T>(g.f);
    s.gsums[at + 2 * H] = narrow<T>(g.z);
    s.gsums[at + 3 * H] = narrow<T>(g.o);
  });
}

template <class T>
T* at(const Tensor& t) {
  return static_cast<T*>(t.raw_data());
}
}  // namespace

void slstm_step_cuda(Tensor& h, Tensor& c_next, Tensor& l_next, Tensor& sums, const Tensor& from_x,
                     const Tensor& from_h, const Tensor& c, const Tensor& l) {
  if (h.numel() == 0) return;
  const Tensor x = contiguous(from_x), y = contiguous(from_h), c0 = contiguous(c), l0 = contiguous(l);
  dispatch_floats(h.dtype(), "slstm_step", [&]<class T>() {
    using R = compute_t<T>;
    step_kernel<T><<<cuda::each_blocks(h.numel()), cuda::kEachThreads, 0, cuda::stream()>>>(
        h.numel(), h.size(1),
        {at<T>(x), at<T>(y), at<R>(c0), at<R>(l0), at<T>(h), at<T>(sums), at<R>(c_next), at<R>(l_next)});
  });
}

void slstm_step_backward_cuda(Tensor& gsums, Tensor& gc_before, Tensor& gl_before, const Tensor& gh, const Tensor& gc,
                              const Tensor& gl, const Tensor& sums, const Tensor& c, const Tensor& l) {
  if (gh.numel() == 0) return;
  const Tensor dh = contiguous(gh), dc = contiguous(gc), dl = contiguous(gl), k = contiguous(sums), c0 = contiguous(c),
               l0 = contiguous(l);
  dispatch_floats(gsums.dtype(), "slstm_step_backward", [&]<class T>() {
    using R = compute_t<T>;
    backward_kernel<T><<<cuda::each_blocks(gh.numel()), cuda::kEachThreads, 0, cuda::stream()>>>(
        gh.numel(), c.size(1),
        {at<T>(dh), at<T>(k), at<R>(dc), at<R>(dl), at<R>(c0), at<R>(l0), at<T>(gsums), at<R>(gc_before),
         at<R>(gl_before)});
  });
}

}  // namespace strata::recurrent
