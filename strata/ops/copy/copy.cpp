#include "strata/ops/copy/copy.h"

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/cuda/job_inl.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/naive_inl.h"

namespace strata {
namespace {

using naive::Array;

Cost move_cost(const Tensor& x) {
  return {0, 2.0 * static_cast<double>(x.nbytes())};
}

// For what is no call of a record: kernels and updates that write into memory of their own.
constexpr ByDevice<void (*)(const Tensor&, const Tensor&)> kCopy{.cpu = copy_elements_cpu,
                                                                 .cuda = STRATA_CUDA_KERNEL(copy_elements_cuda)};
constexpr ByDevice<void (*)(const Tensor&, Scalar)> kFill{.cpu = fill_elements_cpu,
                                                          .cuda = STRATA_CUDA_KERNEL(fill_elements_cuda)};
// Meta tensors get the CPU's, which says that they have no elements.
template <class F>
F chosen(const ByDevice<F>& kernels, Device d) {
  const F own = kernels.on(d.type);
  return own ? own : kernels.cpu;
}

const Op<Tensor(const Tensor&, DType)> to_op{{
    .schema = "to(Tensor x, DType dtype) -> Tensor",
    .shard = "elementwise",
    .doc = "x converted to another dtype, in the order of its elements in memory. Floating to integer truncates "
           "towards zero; any number but 0 is "
           "true. The gradient is converted back.",
    .infer = [](const Tensor& x, DType dtype) { return laid_like(x).with_dtype(dtype); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, DType) { copy_elements(on, y, x); }),
    .backward = [](Backward& b, const Tensor& x, DType) { b.set(0, to(b.gy(), x.dtype())); },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, DType dtype) {
          return Cost{0, static_cast<double>(x.numel() * (size_of(x.dtype()) + size_of(dtype)))};
        },
    .samples =
        [](Samples& s) {
          for (DType t : {DType::f32, DType::f64, DType::bf16}) s.add(s.tensor({3, 5}), t);
          s.add(s.tensor({2, 3}), DType::i32).not_differentiable();
          s.add(s.tensor({2, 3}), DType::boolean).not_differentiable();
          s.add(s.tensor({0, 3}), DType::f32);
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), DType::bf16);
        },
    .reference =
        [](const Tensor& x, DType dtype) {
          Array y(x);
          for (int64_t i = 0; i < y.size(); ++i) {
            if (dtype == DType::boolean) y.flat(i) = y.flat(i) != 0;
            if (!is_floating(dtype)) y.flat(i) = std::trunc(y.flat(i));
          }
          return Tensor(y);
        },
}};

const Op<Tensor(const Tensor&, Device, Device)> to_device_op{{
    .schema = "to_device(Tensor x, Device device, Device source=cpu) -> Tensor",
    .shard = "elementwise",
    .doc = "A copy of x, which is on `source`, on another device, its elements in the same order in memory; "
           "x.to(device) is x itself when it is there "
           "already. A copy to the "
           "host returns when the bytes have arrived. The gradient is copied back.",
    .infer =
        [](const Tensor& x, Device device, Device source) {
          check<DeviceError>(!grad_enabled() || !x.requires_grad() || x.device() == source, "to_device",
                             "the gradient goes back to `source`, which is ", source, ", but x is ", x);
          check<DeviceError>(!x.is_meta() || device.is_meta(), "to_device", "a meta tensor has no elements to move to ",
                             device, ": ", x);
          TensorMeta m = laid_like(x);
          m.device = device;
          return m;
        },
    .kernels = {.everywhere = [](Tensor& y, const Tensor& x, Device, Device) { copy_elements(y, x); }},
    .backward = [](Backward& b, const Tensor&, Device, Device source) { b.set(0, to(b.gy(), source)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, Device, Device) { return move_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), Device::cpu(), Device::cpu());
          s.add(s.tensor({0, 2}), Device::cpu(), Device::cpu());
        },
    .reference = [](const Tensor& x, Device, Device) { return Tensor(Array(x)); },
}};

const Op<Tensor(const Tensor&, bool)> clone_op{{
    .schema = "clone(Tensor x, bool row_major=true) -> Tensor",
    .shard = "elementwise linear",
    .doc = "A copy of x with its own storage: row-major, as kernels of plugins ask for it, or its elements in the same "
           "order in memory, without gaps, as x.clone() has it (row-major where elements of x share their place).",
    .infer = [](const Tensor& x, bool row_major) { return row_major ? like(x) : laid_like(x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, bool) { copy_elements(on, y, x); }),
    .backward = [](Backward& b, const Tensor&, bool) { b.set(0, b.gy()); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, bool) { return move_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({}));
          s.add(s.tensor({0, 2}));
          s.add(s.tensor({4, 3}).t()).named("turned");
          s.add(s.tensor({4, 3}).t(), false).named("turned, in its order");
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}));
        },
    .reference = [](const Tensor& x, bool) { return Tensor(Array(x)); },
}};

// In place only: overwrites dst with src (same shape), converting. dst's old history ends here.
const Op<Tensor(const Tensor&, const Tensor&)> copy_op{{
    .schema = "copy(Tensor x, Tensor src) -> Tensor",
    .shard = "elementwise",
    .doc = "src broadcast to x's shape and converted to x's dtype; x.copy_(src) writes it over x.",
    .infer =
        [](const Tensor& x, const Tensor& src) {
          check<ShapeError>(x.shape() == src.shape(), "copy", "cannot copy ", src, " into ", x);
          return like(x);
        },
    .kernels = {.everywhere = [](Tensor& y, const Tensor&, const Tensor& src) { copy_elements(y, src); }},
    .backward =
        [](Backward& b, const Tensor&, const Tensor& src) {
          if (b.needs(1)) b.set(1, to(b.gy(), src.dtype()));
        },
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const Tensor& src) {
          return Cost{0, static_cast<double>(x.nbytes() + src.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}));
          s.invalid<ShapeError>("cannot copy", s.tensor({3}), s.tensor({4}));
        },
    .reference = [](const Tensor&, const Tensor& src) { return Tensor(Array(src)); },
}};

const Op<Tensor(const Tensor&, Scalar)> fill_op{{
    .schema = "fill(Tensor x, Scalar value) -> Tensor",
    .shard = "elementwise",
    .doc = "A tensor like x with every element equal to value; x.fill_(value) writes it over x.",
    .infer = [](const Tensor& x, Scalar) { return like(x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor&, Scalar v) { fill_elements(on, y, v); }),
    .backward = [](Backward&, const Tensor&, Scalar) {},
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, Scalar) {
          return Cost{0, static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), Scalar(1));
          s.add(s.tensor({0}), Scalar(2.5));
        },
    .reference = [](const Tensor& x, Scalar value) { return Tensor(Array(x.shape(), value.to_double())); },
}};

}  // namespace

// Whoever calls these two outside of an op may have another card current.
template <class F>
static void there(Device device, F&& f) {
  if (!device.is_cuda() || cuda::device_count() == 1) return f();
  cuda::on_card(device.index, f);
}
void copy_elements(const Tensor& dst, const Tensor& src) {
  // Between a card and the host it is the card's business.
  const Device device = src.device().is_cpu() ? dst.device() : src.device();
  there(device, [&] { chosen(kCopy, device)(dst, src); });
}
void fill_elements(const Tensor& dst, Scalar value) {
  there(dst.device(), [&] { chosen(kFill, dst.device())(dst, value); });
}

Tensor to(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : to_op(x, dtype);
}

Tensor to(const Tensor& x, Device device) {
  return x.device() == device ? x : to_device_op(x, device, x.device());
}

Tensor contiguous(const Tensor& x) {
  return x.is_contiguous() ? x : clone_op(x, true);
}
Tensor clone(const Tensor& x) {
  return clone_op(x, false);
}

Tensor pin_memory(const Tensor& x) {
  check<DeviceError>(x.device().is_cpu(), "pin_memory", "needs a tensor on the host, got ", x);
  return x.to(Tier::pinned);
}

Tensor Tensor::to(DType dtype) const {
  return strata::to(*this, dtype);
}
Tensor Tensor::to(Device device) const {
  return strata::to(*this, device);
}
Tensor Tensor::to(Tier tier) const {
  if (is_meta() || storage()->tier() == (tier == Tier() ? memory::backend(device()).tier : tier)) return *this;
  Tensor there = strata::empty(meta(), tier);
  there.copy_(*this);
  return there;
}
Tensor Tensor::contiguous() const {
  return strata::contiguous(*this);
}
Tensor Tensor::clone() const {
  return strata::clone(*this);
}

Tensor& Tensor::copy_(const Tensor& src) {
  const bool in_parts = (t_mode.unusual & detail::kPlacements) && (is_placed(*this) || is_placed(src));
  if (!t_mode.grad_enabled && !(t_mode.unusual & kObserved) && !in_parts && shape() == src.shape() && !is_meta() &&
      !src.is_meta()) {
    const Pin to(*this), from(src, Access::read);
    copy_elements(*this, src);  // inside kernels and updates: no record to make
    bump_version(*this, "copy_");
    return *this;
  }
  const Tensor here = src.device() == device() || is_meta() ? src : strata::to(src, device());
  return copy_op.inplace(*this, here.shape() == shape() ? here : here.expand(shape()));
}

Tensor& Tensor::fill_(Scalar value) {
  return fill_op.inplace(*this, value);
}

}  // namespace strata
