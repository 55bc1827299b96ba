#include "strata/lab/verify.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>

#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/lab/verifier.h"
#include "strata/memory/allocator.h"
#include "strata/memory/poison.h"

namespace strata::lab {
namespace {

// Rounding errors allowed to a kernel that accumulates in f32 (f64 for f64), in units of that type's epsilon.
constexpr double kUnits = 4;
// Elements of an enlarged sample's largest tensor: several vectors and tiles, with a rest.
constexpr double kLargeSample = 3000;
// Enough elements that loops divide them among threads.
constexpr double kThreadedSample = 200000;
// Calls with more work than this are left out: verification should take seconds, with sanitizers minutes.
constexpr double kMostFlops = 1e9, kMostBytes = 1e9;
// The same of results, which are compared as numbers of eight bytes.
constexpr double kMostResultBytes = 1e8;

bool is_result_fresh(const Tensor& result, std::span<const Value> args) {
  bool fresh = result.storage()->release == nullptr && result.device().is_cpu();
  visit(args, [&](const Tensor& t) { fresh = fresh && !(t.defined() && t.storage() == result.storage()); });
  return fresh;
}

// The results' usual size: their root mean square.
double usual_size(const Tensor& t) {
  double sum = 0;
  int64_t n = 0;
  for (const double v : values(t)) {
    if (!std::isfinite(v)) continue;
    sum += v * v;
    ++n;
  }
  return n > 0 ? std::sqrt(sum / static_cast<double>(n)) : 0;
}

double magnitude(const Tensor& t) {
  double m = 0;
  for (const double v : values(t))
    if (std::isfinite(v)) m = std::max(m, std::abs(v));
  return m;
}

std::vector<std::string> all_bytes(const std::vector<Tensor>& tensors) {
  std::vector<std::string> r;
  r.reserve(tensors.size());
  for (const Tensor& t : tensors) r.push_back(t.defined() ? bytes(t) : std::string());
  return r;
}

}  // namespace

std::string_view name_of(Check c) {
  static constexpr std::string_view names[kNumChecks] = {"samples", "forward", "memory", "strided", "empty",
                                                         "meta",    "boxed",   "view",   "inplace", "gradient",
                                                         "second",  "threads", "invalid"};
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

OpReport Verifier::run() {
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
  large.args = enlarged(sample.args, kLargeSample);
  large.label = "enlarged" + (sample.label.empty() ? "" : ", " + sample.label);
  Reference want;
  std::vector<Tensor> got;
  try {
    if (op_.cost_boxed(large.args).flops > kMostFlops) return;
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

// ---- the reference -------------------------------------------------------------------------------------------------

// Dense copies, broadcast as the op would, floating ones in f64; with `integers_too` also those of `dtype`.
Verifier::Args Verifier::reference_args(const Args& args, DType dtype, bool integers_too) const {
  Shape common;
  if (op_.adapt() != Adapt::none) {
    visit(args, [&](const Tensor& t) {
      if (t.defined()) common = broadcast_shapes(common, t.shape(), op_.name());
    });
  }
  Args r = map(args, [&](const Tensor& t) {
    Tensor x = t;
    if (op_.adapt() != Adapt::none) {
      Strides strides = Strides::filled(common.size(), 0);
      const int lead = common.size() - t.shape().size();
      for (int i = lead; i < common.size(); ++i)
        if (t.shape()[i - lead] == common[i]) strides[i] = t.strides()[i - lead];
      x = alias(t, common, strides, t.storage_offset());
    }
    return is_floating(t.dtype()) || (integers_too && t.dtype() == dtype) ? converted(x, DType::f64) : dense_copy(x);
  });
  for (Value& v : r)
    if (const DType* d = std::get_if<DType>(&v); d && *d == dtype && is_floating(dtype)) v = DType::f64;
  return r;
}

Verifier::Reference Verifier::reference(const Args& args, DType dtype) const {
  NoGrad guard;
  const bool own = !op_.has_reference() && (!op_.has_composed() || op_.is_composed());
  const char* kind = op_.has_reference() ? "record" : "composed";
  if (is_floating(dtype)) {
    if (!own) return {tensors_of(op_.reference_boxed(reference_args(args, dtype, false))), kind};
    if (!schema_has("RngKey")) {
      try {
        return {tensors_of(op_.call_boxed(reference_args(args, dtype, false))), "own f64"};
      } catch (const DTypeError&) {
        // Not an op of f64: its own result from dense arguments has to do.
      }
    }
    return {tensors_of(op_.call_boxed(map(args, dense_copy))), "own"};
  }
  const bool to_float = op_.adapt() == Adapt::promote_float;
  if (!own) {
    for (const bool upcast : {to_float, !to_float}) {
      try {
        return {tensors_of(op_.reference_boxed(reference_args(args, dtype, upcast))), kind};
      } catch (const Error&) {
        // A reference may be written for f64 alone, or for integers.
      }
    }
  }
  if (to_float) return {tensors_of(op_.call_boxed(reference_args(args, dtype, true))), "own f64"};
  return {tensors_of(op_.call_boxed(map(args, dense_copy))), "own"};
}

// Kernels accumulate in f32 or f64 and round to the result's dtype once; an op composed of others rounds each step. A
// record that asks for more tolerance rounds in between: errors are then relative to the results' usual size as well.
Tolerance Verifier::tolerance(const Tensor& result, const Args& args) const {
  const DType dtype = result.dtype();
  if (!is_floating(dtype)) return {};
  double length = 1, scale = 1;
  const auto outputs = static_cast<double>(std::max<int64_t>(result.numel(), 1));
  bool reduced = is_reduced_floating(dtype);
  visit(args, [&](const Tensor& t) {
    if (!t.defined()) return;
    length = std::max(length, static_cast<double>(t.numel()) / outputs);
    for (const int64_t n : t.shape()) length = std::max(length, std::sqrt(static_cast<double>(n)));
    if (is_floating(t.dtype())) scale = std::max(scale, magnitude(t));
    reduced = reduced || is_reduced_floating(t.dtype());
  });
  scale = std::max(scale, magnitude(result));
  try {
    length = std::max(length, op_.cost_boxed(args).flops / outputs);
  } catch (const Error&) {
    // A cost that needs more than these arguments tells no length.
  }
  const double widen = std::max(1.0, op_.tolerance());
  const DType computed = op_.is_composed() && reduced ? dtype : dtype == DType::f64 ? DType::f64 : DType::f32;
  double coarsest = epsilon(dtype);
  if (widen > 1)
    visit(args, [&](const Tensor& t) { coarsest = std::max(coarsest, t.defined() ? epsilon(t.dtype()) : 0); });
  const double between = widen > 1 ? widen * coarsest * usual_size(result) : 0;
  return {widen * coarsest, widen * kUnits * epsilon(computed) * length * scale + between};
}

void Verifier::expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const Args& args,
                            double widen) {
  expect(got.size() == want.size(), got.size(), " results, the reference has ", want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    expect(got[i].shape() == want[i].shape(), "result ", i, " is ", got[i], ", the reference's is ", want[i]);
    Tolerance t = tolerance(got[i], args);
    t.absolute *= widen;
    const Difference d = compare(got[i], want[i], t);
    if (d.index >= 0) report_.worst = std::max(report_.worst, d.ratio);
    expect(d.ratio <= 1, "result ", i, " ", got[i], ", element ", d.index, ": got ", d.got, ", the reference (",
           report_.reference, ") says ", d.want, "; off by ", std::abs(d.got - d.want), ", allowed ", d.bound);
  }
}

// ---- checks of one sample ------------------------------------------------------------------------------------------

void Verifier::forward(const Args& args, const Reference& want) {
  const std::vector<Tensor> inputs = tensors_of(args);
  const std::vector<std::string> before = all_bytes(inputs);
  const std::vector<Tensor> got = call(args);
  const std::vector<std::string> after = all_bytes(inputs);
  for (size_t i = 0; i < before.size(); ++i) expect(before[i] == after[i], "the call wrote to tensor argument ", i);
  expect_close(got, want.results, args);
}

void Verifier::memory(const Args& args) {
  std::vector<std::string> first;
  // NaN in every floating dtype, then small numbers: what a kernel does not write, or reads without having written,
  // differs.
  for (const int pattern : {0xff, 0x2a}) {
    memory::PoisonScope poison(static_cast<uint8_t>(pattern));
    const std::vector<Tensor> got = call(args);
    for (size_t i = 0; i < got.size(); ++i) {
      if (!is_result_fresh(got[i], args)) continue;
      const Storage& s = *got[i].storage();
      for (size_t at = s.nbytes; s.nbytes > 0 && at < memory::block_size(s.nbytes); ++at)
        expect(static_cast<uint8_t>(s.data[at]) == pattern, "the kernel wrote ", at - s.nbytes,
               " bytes past the end of result ", i);
    }
    if (first.empty()) {
      first = all_bytes(got);
      continue;
    }
    const std::vector<std::string> second = all_bytes(got);
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i] == second[i]) continue;
      const auto at = static_cast<int64_t>(std::mismatch(first[i].begin(), first[i].end(), second[i].begin()).first -
                                           first[i].begin());
      expect(false, "result ", i, " ", got[i], " depends on what was in memory before, from element ",
             at / size_of(got[i].dtype()),
             " on: the kernel leaves elements unwritten, or reads workspace that it did not fill");
    }
  }
}

void Verifier::strided(const Args& args, const Reference& want) {
  // A view of one's own strides has no meaning over other strides.
  const auto& schema = op_.schema().args;
  if (op_.is_view() &&
      std::any_of(schema.begin(), schema.end(), [](const SchemaArg& a) { return a.name == "strides"; }))
    return;
  if (op_.is_view()) return strided_views(args);
  expect_close(call(map(args, reversed_storage)), want.results, args);
  expect_close(call(map(args, every_second)), want.results, args);
  // Along its largest dimension each floating argument repeats one element: other values, so compared with dense ones.
  const Args expanded = map(args, [](const Tensor& t) {
    if (!is_floating(t.dtype()) || t.numel() < 2) return t;
    const int64_t d = std::max_element(t.shape().begin(), t.shape().end()) - t.shape().begin();
    const Tensor x = dense_copy(t);
    Strides strides = x.strides();
    strides[d] = 0;
    return alias(x, x.shape(), strides, 0);
  });
  std::vector<Tensor> dense;
  try {
    dense = call(map(expanded, dense_copy));
  } catch (const Error&) {
    // A matrix of equal rows has no inverse: refused in one layout, refused in the other.
    bool refused = false;
    try {
      call(expanded);
    } catch (const Error&) {
      refused = true;
    }
    return expect(refused, "takes strided arguments that it refuses as dense ones");
  }
  expect_close(call(expanded), dense, expanded, 2);
}

// A view of strided arguments is right when it shows the same elements, or says that it cannot be had.
void Verifier::strided_views(const Args& args) {
  const std::vector<std::string> want = all_bytes(call(args));
  for (const auto layout : {reversed_storage, every_second}) {
    std::vector<Tensor> got;
    try {
      got = call(map(args, layout));
    } catch (const ShapeError&) {
      continue;
    }
    expect(all_bytes(got) == want, "shows other elements when the argument is strided");
  }
}

void Verifier::empty_arguments(const Args& args) {
  // Sizes that several arguments share usually belong together: one such size becomes 0 in all of them.
  std::vector<int64_t> sizes;
  visit(args, [&](const Tensor& t) {
    if (t.defined()) sizes.insert(sizes.end(), t.shape().begin(), t.shape().end());
  });
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const int64_t size : sizes) {
    if (size == 0) continue;
    Args emptied = map(args, [&](const Tensor& t) {
      Shape s = t.shape();
      for (int64_t& n : s)
        if (n == size) n = 0;
      return s == t.shape() ? t : empty({s, t.dtype(), Device::cpu(), std::nullopt});
    });
    for (Value& v : emptied) {
      if (Dims* d = std::get_if<Dims>(&v); d && *d != Dims{size})
        for (int64_t& n : *d)
          if (n == size && size > 1) n = 0;
    }
    try {
      if (!options_.device.is_cpu()) refused_on_cpu(emptied);
      const std::vector<Tensor> got = call(emptied);
      if (!op_.is_dynamic() && options_.device.is_cpu()) meta(emptied);
      for (const Tensor& t : got)
        if (t.defined()) values(t);
    } catch (const Error&) {
      // Refused: also right. Anything else is not.
    }
  }
}

void Verifier::meta(const Args& args) const {
  const auto as_meta = [](const Tensor& t) {
    TensorMeta m = t.meta();
    m.device = Device::meta();
    m.strides = t.strides();
    return empty(m);
  };
  Args dry = map(args, as_meta);
  for (Value& v : dry)
    if (Device* d = std::get_if<Device>(&v)) *d = Device::meta();
  NoGrad guard;
  DeviceScope device(Device::meta());
  std::vector<Tensor> inferred;
  try {
    inferred = tensors_of(op_.call_boxed(dry));
  } catch (const DeviceError&) {
    if (op_.is_dynamic()) return;  // sizes that depend on values cannot be inferred; saying so is right
    throw;
  }
  DeviceScope real(Device::cpu());
  const std::vector<Tensor> got = call(args);
  expect(got.size() == inferred.size(), "infers ", inferred.size(), " results, computes ", got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (!got[i].defined() || !inferred[i].defined()) {
      expect(got[i].defined() == inferred[i].defined(), "result ", i, " is ", got[i], ", inferred as ", inferred[i]);
      continue;
    }
    expect(inferred[i].is_meta(), "result ", i, " of meta arguments is on ", inferred[i].device());
    expect(got[i].shape() == inferred[i].shape() && got[i].dtype() == inferred[i].dtype(), "result ", i, " is ", got[i],
           ", inferred as ", inferred[i]);
  }
}

void Verifier::boxed(const Args& args) const {
  NoGrad guard;
  const std::vector<Value> results = op_.call_boxed(args);
  const Schema& schema = op_.schema();
  expect(results.size() == schema.results.size(), "the schema promises ", schema.results.size(),
         " results, the call gives ", results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const bool list = schema.results[i].type.kind == SchemaType::tensors;
    expect(list ? std::holds_alternative<TensorList>(results[i]) : std::holds_alternative<Tensor>(results[i]),
           "result ", i, " is not of the schema's type ", schema.results[i].type.text());
  }
  // All arguments spelled out, then those that equal their default left out.
  Args full = args;
  for (size_t i = full.size(); i < schema.args.size(); ++i) {
    expect(schema.args[i].default_value || schema.args[i].type.optional, "the sample lacks argument '",
           schema.args[i].name, "'");
    full.push_back(schema.args[i].default_value.value_or(std::monostate()));
  }
  expect(all_bytes(tensors_of(op_.call_boxed(full))) == all_bytes(tensors_of(results)),
         "the schema's defaults, spelled out, give another result");
}

void Verifier::view(const Args& args) const {
  const Tensor first = tensors_of(args).front();
  for (const Tensor& r : call(args))
    expect(r.storage() == first.storage(), "a view op's result has storage of its own");
}

void Verifier::inplace(const Args& args) const {
  const std::vector<Tensor> plain = call(args);
  Args own = args;
  own[0] = dense_copy(std::get<Tensor>(own[0]));
  own = on_device(own);
  const Tensor self = std::get<Tensor>(own[0]);
  const bool fits = plain[0].shape() == self.shape() && plain[0].dtype() == self.dtype();
  const uint32_t version = self.version();
  NoGrad guard;
  if (!fits) {
    try {
      op_.inplace_boxed(own);
    } catch (const Error&) {
      return;
    }
    expect(false, "wrote a result ", plain[0], " over ", self, " without an error");
  }
  DeviceScope scope(options_.device);
  const Tensor got = std::get<Tensor>(op_.inplace_boxed(own)[0]);
  expect(got.storage() == self.storage(), "the in-place form returns other storage");
  expect(got.version() > version, "the in-place form does not count its write: version stays ", version);
  const Difference d = compare(got.to(Device::cpu()), plain[0], {});
  expect(d.ratio <= 0, "in place, element ", d.index, " is ", d.got, ", otherwise ", d.want);
}

// The samples, and one of them enlarged, if the op (and, where wanted, its gradient on the device) takes it: work is
// divided only where there is enough of it.
std::vector<Sample> Verifier::with_one_enlarged(const std::vector<Sample>& samples, bool gradient) const {
  std::vector<Sample> all = samples;
  for (const Sample& sample : samples) {
    Sample large = sample;
    large.args = enlarged(sample.args, kThreadedSample);
    large.label = "enlarged";
    try {
      const Cost cost = op_.cost_boxed(large.args);
      if (cost.flops > kMostFlops || cost.bytes > kMostBytes) continue;
      if (result_bytes(op_, large.args) > kMostResultBytes) continue;
      if (!options_.device.is_cpu()) refused_on_cpu(large.args);
      call(large.args);
      if (gradient) gradients_on_device(large.args);
    } catch (const Error&) {
      continue;
    }
    all.push_back(large);
    break;
  }
  return all;
}

// On a card, where blocks run in any order: the same bits each time, of results and of gradients.
void Verifier::repeated(DType dtype) {
  if (!(options_.dtypes & op_.dtypes() & dtype_bit(dtype))) return;
  Samples samples(dtype);
  try {
    op_.samples(samples);
  } catch (const std::exception&) {
    return;  // reported by round()
  }
  const bool gradient = op_.has_backward() && is_floating(dtype);
  for (const Sample& sample : with_one_enlarged(samples.valid, gradient)) {
    attempt(Check::threads, sample, dtype, [&] {
      const bool rule = gradient && sample.differentiable;
      const auto bits = [&] {
        std::vector<Tensor> all = call(sample.args);
        if (!rule) return all_bytes(all);
        for (Tensor& t : gradients_on_device(sample.args)) all.push_back(std::move(t));
        return all_bytes(all);
      };
      const auto first = bits();
      expect(bits() == first, "the same call gives other bits when it is repeated");
    });
  }
}

void Verifier::threads() {
  const DType dtype = op_.dtypes() & dtype_bit(DType::f32) ? DType::f32 : kAllDTypes[std::countr_zero(op_.dtypes())];
  if (!(options_.dtypes & dtype_bit(dtype))) return;
  Samples samples(dtype);
  try {
    op_.samples(samples);
  } catch (const std::exception&) {
    return;  // reported by round()
  }
  const int outer = num_threads();
  // A library below may divide a sum among threads; the record then says so in the reason for its tolerance.
  const bool divided = op_.tolerance_reason().find("thread") != std::string_view::npos;
  for (const Sample& sample : with_one_enlarged(samples.valid, false)) {
    attempt(Check::threads, sample, dtype, [&] {
      set_num_threads(1);
      const std::vector<Tensor> one = call(sample.args);
      set_num_threads(3);
      const std::vector<Tensor> three = call(sample.args);
      set_num_threads(outer);
      if (divided) return expect_close(three, one, sample.args);
      expect(all_bytes(one) == all_bytes(three), "the result on three threads differs from that on one");
    });
    set_num_threads(outer);
  }
}

OpReport verify(const OpBase& op, const VerifyOptions& options) {
  return Verifier(op, options).run();
}

}  // namespace strata::lab
