#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/rnn/slstm_kernel.h"

namespace strata::recurrent {
namespace {
constexpr int64_t kUnits = 2048;  // below which a second thread does not pay

// body(rows' first element among B H, its first among B 4 H, units) for runs of units of one sequence.
template <class Body>
void for_units(int64_t batch, int64_t hidden, Body&& body) {
  parallel_for(0, batch * hidden, kUnits, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) body(e, e / hidden * 4 * hidden + e % hidden);
  });
}
}  // namespace

void slstm_step_cpu(Tensor& h, Tensor& c_next, Tensor& l_next, Tensor& sums, const Tensor& from_x, const Tensor& from_h,
                    const Tensor& c, const Tensor& l) {
  const Tensor x = contiguous(from_x), y = contiguous(from_h), c0 = contiguous(c), l0 = contiguous(l);
  dispatch_floats(h.dtype(), "slstm_step", [&]<class T>() {
    using R = compute_t<T>;
    const int64_t H = h.size(1);
    for_units(h.size(0), H, [&, xs = x.data<T>(), ys = y.data<T>(), kept = sums.data<T>()](int64_t e, int64_t at) {
      const auto sum = [&](int64_t gate) {
        const R v = static_cast<R>(xs[at + gate * H]) + static_cast<R>(ys[at + gate * H]);
        kept[at + gate * H] = static_cast<T>(v);
        return v;
      };
      const SlstmSums<R> all{sum(0), sum(1), sum(2), sum(3)};
      const SlstmState<R> s = slstm_unit<R>(all, c0.data<R>()[e], l0.data<R>()[e]);
      h.data<T>()[e] = static_cast<T>(s.h);
      c_next.data<R>()[e] = s.c;
      l_next.data<R>()[e] = s.l;
    });
  });
}

void slstm_step_backward_cpu(Tensor& gsums, Tensor& gc_before, Tensor& gl_before, const Tensor& gh, const Tensor& gc,
                             const Tensor& gl, const Tensor& sums, const Tensor& c, const Tensor& l) {
  const Tensor dh = contiguous(gh), dc = contiguous(gc), dl = contiguous(gl), k = contiguous(sums), c0 = contiguous(c),
               l0 = contiguous(l);
  dispatch_floats(gsums.dtype(), "slstm_step_backward", [&]<class T>() {
    using R = compute_t<T>;
    const int64_t H = c0.size(1);
    for_units(c0.size(0), H, [&, kept = k.data<T>(), to = gsums.data<T>()](int64_t e, int64_t at) {
      const auto sum = [&](int64_t gate) { return static_cast<R>(kept[at + gate * H]); };
      R c_grad = dc.data<R>()[e], l_grad = dl.data<R>()[e];
      const SlstmSums<R> g = slstm_unit_backward<R>({sum(0), sum(1), sum(2), sum(3)}, c0.data<R>()[e], l0.data<R>()[e],
                                                    static_cast<R>(dh.data<T>()[e]), c_grad, l_grad);
      gc_before.data<R>()[e] = c_grad;
      gl_before.data<R>()[e] = l_grad;
      to[at] = static_cast<T>(g.i);
      to[at + H] = static_cast<T>(g.f);
      to[at + 2 * H] = static_cast<T>(g.z);
      to[at + 3 * H] = static_cast<T>(g.o);
    });
  });
}

}  // namespace strata::recurrent
