#include "strata/lab/verify.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "strata/lab/verifier.h"
#include "strata/memory/poison.h"
#include "strata/ops/conv/conv.h"

namespace strata::lab {
namespace {

// Elements of an enlarged sample's largest tensor: several vectors and tiles, with a rest. It grows no further than to
// calls of so much, because references are plain loops: verification should take seconds, with sanitizers minutes.
constexpr double kLargeSample = 3000;
constexpr CallLimit kLargeCall{2e6, 4e6, 250e3};

}  // namespace

std::string_view name_of(Check c) {
  static constexpr std::string_view names[kNumChecks] = {"samples", "forward", "memory", "strided", "empty",
                                                         "meta",    "boxed",   "view",   "inplace", "gradient",
                                                         "second",  "device",  "threads", "invalid"};
  return names[static_cast<int>(c)];
}

Verifier::Verifier(const OpBase& op, const VerifyOptions& options) : op_(op), options_(options) {
  report_.op = op.name();
  report_.family = op.family();
}

void Verifier::fail(Check check, const Sample& sample, DType dtype, std::string message) {
  ++report_.failed[static_cast<size_t>(check)];
  if (static_cast<int>(report_.failures.size()) >= options_.max_failures) return;
  std::string text = sample.label.empty() ? "" : sample.label + ": ";
  report_.failures.push_back({check, dtype, text + text_of(sample.args), std::move(message)});
}

std::vector<Tensor> Verifier::call(const Args& args) const {
  NoGrad guard;
  if (options_.device.is_cpu()) return tensors_of(op_.call_boxed(args));
  DeviceScope scope(options_.device);
  std::vector<Tensor> results = tensors_of(op_.call_boxed(on_device(args)));
  for (Tensor& t : results)
    if (t.defined()) t = t.to(Device::cpu());
  return results;
}

// A device that meets an index out of range stops for good: what the CPU refuses is not tried there.
void Verifier::refused_on_cpu(const Args& args) const {
  NoGrad guard;
  op_.call_boxed(args);
}

Verifier::Args Verifier::on_device(const Args& args) const {
  if (options_.device.is_cpu()) return args;
  Args moved = map(args, [&](const Tensor& t) {
    if (t.impl().wrapped_number) return t;
    const auto elements = static_cast<int64_t>(t.storage()->nbytes) / size_of(t.dtype());
    const Tensor all = alias(t, {elements}, {1}, 0).to(options_.device);
    return alias(all, t.shape(), t.strides(), t.storage_offset());
  });
  for (Value& v : moved)
    if (Device* d = std::get_if<Device>(&v)) *d = options_.device;
  return moved;
}

bool Verifier::schema_has(std::string_view type) const {
  const auto& args = op_.schema().args;
  return std::any_of(args.begin(), args.end(), [&](const SchemaArg& a) { return a.type.text().starts_with(type); });
}

namespace {
// Results are measured by what f32 gives; what TF32 loses is no fault.
struct FullPrecision {
  const bool before = allow_tf32_convolutions();
  FullPrecision() { set_allow_tf32_convolutions(false); }
  FullPrecision(const FullPrecision&) = delete;
  FullPrecision& operator=(const FullPrecision&) = delete;
  ~FullPrecision() { set_allow_tf32_convolutions(before); }
};
}  // namespace

OpReport Verifier::run() {
  const FullPrecision precision;
  const auto begin = std::chrono::steady_clock::now();
  const memory::GuardScope guards;
  const Sample none;
  if (!op_.has_samples()) fail(Check::samples, none, DType::f32, "the record has no samples");
  for (const DType dtype : kAllDTypes) {
    if (!(options_.dtypes & dtype_bit(dtype)) || !op_.has_samples()) continue;
    if (op_.dtypes() & dtype_bit(dtype)) {
      round(dtype);
    } else if (options_.device.is_cpu()) {
      other_dtype(dtype);
    }
  }
  if (op_.has_samples() && options_.device.is_cpu()) threads();
  if (op_.has_samples() && !options_.device.is_cpu())
    for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) repeated(dtype);
  if (!has_reference())
    fail(Check::forward, none, DType::f32,
         "the record has no reference, and no composed form beside kernels: nothing says what is right");
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(report_);
}

void Verifier::round(DType dtype) {
  Samples samples(dtype);
  const Sample all;
  bool made = false;
  attempt(Check::samples, all, dtype, [&] {
    op_.samples(samples);
    expect(!samples.valid.empty(), "the record has no valid samples for ", dtype);
    made = true;
  });
  if (!made) return;
  report_.samples += static_cast<int>(samples.valid.size());
  for (const Sample& sample : samples.valid) valid_sample(sample, dtype);
  for (const Sample& sample : samples.valid) large_sample(sample, dtype);
  if (!options_.device.is_cpu()) return;  // arguments are refused by infer, which runs before any device matters
  for (const InvalidSample& sample : samples.refused) refused_sample(sample, dtype);
  attempt(Check::invalid, samples.valid.front(), dtype, [&] { absurd_arguments(samples.valid.front()); });
  attempt(Check::invalid, samples.valid.front(), dtype, [&] { wrong_types(samples.valid.front().args); });
}

void Verifier::valid_sample(const Sample& sample, DType dtype) {
  const Args& args = sample.args;
  Reference want;
  bool have_reference = false;
  attempt(Check::forward, sample, dtype, [&] {
    want = reference(args, dtype);
    have_reference = true;
    if (report_.reference.empty() || is_floating(dtype)) report_.reference = want.kind;
    forward(args, want);
  });
  if (!have_reference) return;
  attempt(Check::memory, sample, dtype, [&] { memory(args); });
  attempt(Check::strided, sample, dtype, [&] { strided(args, want); });
  attempt(Check::empty, sample, dtype, [&] { empty_arguments(args); });
  const bool on_cpu = options_.device.is_cpu();
  if (on_cpu) {
    attempt(Check::meta, sample, dtype, [&] { meta(args); });
    attempt(Check::boxed, sample, dtype, [&] { boxed(args); });
    attempt(Check::device, sample, dtype, [&] { elsewhere(sample, dtype); });
  }
  if (op_.is_view() && on_cpu) attempt(Check::view, sample, dtype, [&] { view(args); });
  if (op_.can_inplace()) {
    attempt(Check::inplace, sample, dtype, [&] { inplace(args); });
    if (dtype == DType::f64 && op_.has_backward() && on_cpu)
      attempt(Check::inplace, sample, dtype, [&] { inplace_gradient(args); });
  }
  if (op_.has_backward() && is_floating(dtype) && sample.differentiable) {
    if (dtype == DType::f64 && on_cpu) {
      attempt(Check::gradient, sample, dtype, [&] { gradient(args); });
      attempt(Check::second, sample, dtype, [&] { second_gradient(args); });
    } else {
      attempt(Check::gradient, sample, dtype, [&] { gradient_in(dtype, args); });
    }
  }
}

// Samples are small; vector loops, tiles and blocks want more elements. The enlarged arguments may be none that the op
// takes, and their numbers may leave the range of the dtype: then they say nothing.
void Verifier::large_sample(const Sample& sample, DType dtype) {
  bool empty = false;
  visit(sample.args, [&](const Tensor& t) { empty = empty || (t.defined() && t.numel() == 0); });
  if (empty) return;
  Sample large = sample;
  large.args = enlarged_within(op_, sample.args, kLargeSample, kLargeCall);
  large.label = "enlarged" + (sample.label.empty() ? "" : ", " + sample.label);
  Reference want;
  std::vector<Tensor> got;
  try {
    if (!options_.device.is_cpu()) refused_on_cpu(large.args);
    got = call(large.args);
    want = reference(large.args, dtype);  // references take what the op takes, unchecked
  } catch (const Error&) {
    return;
  }
  const double most = is_floating(dtype) ? std::min(1e30, largest(dtype)) : 1e15;
  for (const Tensor& t : want.results)
    if (t.defined())
      for (const double v : values(t))
        if (!(std::abs(v) < most)) return;
  attempt(Check::forward, large, dtype, [&] { expect_close(got, want.results, large.args); });
}

OpReport verify(const OpBase& op, const VerifyOptions& options) {
  return Verifier(op, options).run();
}

}  // namespace strata::lab
