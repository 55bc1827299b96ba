// Convolutions through oneDNN. It picks the memory layouts that its kernels like; ours are reordered into and out of
// them.

#include <algorithm>
#include <new>

#include "strata/core/parallel.h"
#include "strata/ops/conv/conv_kernels.h"
#include "strata/ops/matmul/dnnl_inl.h"

namespace strata::cpu::detail {
namespace {
using dnnl::memory;

struct Key {
  ConvKind kind;
  ConvSizes s;
  int32_t t, result;
  int64_t bias;
};

// A primitive and, for each of its arguments, the way from or to our layout.
struct ConvOp {
  struct Port {
    bool reordered = false, is_result = false;
    size_t bytes = 0;
    DnnlOp reorder;
  };
  DnnlOp main;
  std::vector<Port> ports;
  explicit operator bool() const { return static_cast<bool>(main.primitive); }

  void add(int arg, const memory::desc& ours, const memory::desc& theirs, bool is_result) {
    Port p;
    p.is_result = is_result;
    p.reordered = ours != theirs;
    p.bytes = theirs.get_size();
    if (p.reordered) {
      const memory::desc& from = is_result ? theirs : ours;
      const memory::desc& to = is_result ? ours : theirs;
      p.reorder.primitive = dnnl::reorder(dnnl::reorder::primitive_desc(dnnl_engine(), from, dnnl_engine(), to));
      p.reorder.add(DNNL_ARG_FROM, from);
      p.reorder.add(DNNL_ARG_TO, to);
    }
    main.add(arg, theirs);
    ports.push_back(std::move(p));
  }
};

#if DNNL_VERSION_MAJOR >= 3
using Forward = dnnl::convolution_forward::primitive_desc;
Forward forward_desc(const memory::desc& x, const memory::desc& w, const memory::desc& b, const memory::desc& y,
                     const memory::dims& st, const memory::dims& di, const memory::dims& pad, bool bias) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
  constexpr auto alg = dnnl::algorithm::convolution_direct;
  return bias ? Forward(dnnl_engine(), kind, alg, x, w, b, y, st, di, pad, pad)
              : Forward(dnnl_engine(), kind, alg, x, w, y, st, di, pad, pad);
}
dnnl::convolution_backward_data::primitive_desc data_desc(const memory::desc& x, const memory::desc& w,
                                                          const memory::desc& y, const memory::dims& st,
                                                          const memory::dims& di, const memory::dims& pad,
                                                          const Forward& hint) {
  return {dnnl_engine(), dnnl::algorithm::convolution_direct, x, w, y, st, di, pad, pad, hint};
}
dnnl::convolution_backward_weights::primitive_desc weights_desc(const memory::desc& x, const memory::desc& w,
                                                                const memory::desc& y, const memory::dims& st,
                                                                const memory::dims& di, const memory::dims& pad,
                                                                const Forward& hint) {
  return {dnnl_engine(), dnnl::algorithm::convolution_direct, x, w, y, st, di, pad, pad, hint};
}
#else
using Forward = dnnl::convolution_forward::primitive_desc;
Forward forward_desc(const memory::desc& x, const memory::desc& w, const memory::desc& b, const memory::desc& y,
                     const memory::dims& st, const memory::dims& di, const memory::dims& pad, bool bias) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
  constexpr auto alg = dnnl::algorithm::convolution_direct;
  using Desc = dnnl::convolution_forward::desc;
  return Forward(bias ? Desc(kind, alg, x, w, b, y, st, di, pad, pad) : Desc(kind, alg, x, w, y, st, di, pad, pad),
                 dnnl_engine());
}
dnnl::convolution_backward_data::primitive_desc data_desc(const memory::desc& x, const memory::desc& w,
                                                          const memory::desc& y, const memory::dims& st,
                                                          const memory::dims& di, const memory::dims& pad,
                                                          const Forward& hint) {
  return {{dnnl::algorithm::convolution_direct, x, w, y, st, di, pad, pad}, dnnl_engine(), hint};
}
dnnl::convolution_backward_weights::primitive_desc weights_desc(const memory::desc& x, const memory::desc& w,
                                                                const memory::desc& y, const memory::dims& st,
                                                                const memory::dims& di, const memory::dims& pad,
                                                                const Forward& hint) {
  return {{dnnl::algorithm::convolution_direct, x, w, y, st, di, pad, pad}, dnnl_engine(), hint};
}
#endif

void make(const Key& key, ConvOp& op) {
  const ConvSizes& s = key.s;
  using Tag = memory::format_tag;
  const auto t = dnnl_dtype(static_cast<DType>(key.t)), result = dnnl_dtype(static_cast<DType>(key.result));
  const memory::dims xd{s.n, s.ic, s.ih, s.iw}, yd{s.n, s.oc, s.oh, s.ow};
  const memory::dims wd = s.groups == 1 ? memory::dims{s.oc, s.ic, s.kh, s.kw}
                                        : memory::dims{s.groups, s.oc / s.groups, s.ic / s.groups, s.kh, s.kw};
  const Tag wtag = s.groups == 1 ? Tag::oihw : Tag::goihw;
  const memory::dims st{s.sh, s.sw}, di{s.dh - 1, s.dw - 1}, pad{s.ph, s.pw};
  const auto type = [&](ConvKind kind) { return key.kind == kind ? result : t; };
  const auto tx = type(ConvKind::transpose), tw = type(ConvKind::weight), ty = type(ConvKind::forward);
  const memory::desc ax(xd, tx, Tag::any), aw(wd, tw, Tag::any), ay(yd, ty, Tag::any), b({s.oc}, t, Tag::x);
  const memory::desc px(xd, tx, Tag::nchw), pw(wd, tw, wtag), py(yd, ty, Tag::nchw);
  // Backward primitives take a forward one, of the arguments' dtype, as a hint.
  const Forward hint = key.kind == ConvKind::forward
                           ? forward_desc(ax, aw, b, ay, st, di, pad, key.bias != 0)
                           : forward_desc(memory::desc(xd, t, Tag::any), memory::desc(wd, t, Tag::any), b,
                                          memory::desc(yd, t, Tag::any), st, di, pad, false);
  const auto is_reference = [](const auto& pd) { return std::strncmp(pd.impl_info_str(), "ref", 3) == 0; };
  switch (key.kind) {
    case ConvKind::forward: {
      if (is_reference(hint)) return;
      op.add(DNNL_ARG_SRC, px, hint.src_desc(), false);
      op.add(DNNL_ARG_WEIGHTS, pw, hint.weights_desc(), false);
      op.add(DNNL_ARG_DST, py, hint.dst_desc(), true);
      if (key.bias != 0) op.add(DNNL_ARG_BIAS, b, b, false);
      op.main.primitive = dnnl::convolution_forward(hint);
      break;
    }
    case ConvKind::transpose: {
      const auto pd = data_desc(ax, aw, ay, st, di, pad, hint);
      if (is_reference(pd)) return;
      op.add(DNNL_ARG_DIFF_DST, py, pd.diff_dst_desc(), false);
      op.add(DNNL_ARG_WEIGHTS, pw, pd.weights_desc(), false);
      op.add(DNNL_ARG_DIFF_SRC, px, pd.diff_src_desc(), true);
      op.main.primitive = dnnl::convolution_backward_data(pd);
      break;
    }
    case ConvKind::weight: {
      const auto pd = weights_desc(ax, aw, ay, st, di, pad, hint);
      if (is_reference(pd)) return;
      op.add(DNNL_ARG_SRC, px, pd.src_desc(), false);
      op.add(DNNL_ARG_DIFF_DST, py, pd.diff_dst_desc(), false);
      op.add(DNNL_ARG_DIFF_WEIGHTS, pw, pd.diff_weights_desc(), true);
      op.main.primitive = dnnl::convolution_backward_weights(pd);
      break;
    }
  }
}

// Memory for reordered arguments, kept between calls.
char* workspace(size_t bytes) {
  struct Freed {
    void operator()(char* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  thread_local std::unique_ptr<char[], Freed> buffer;
  thread_local size_t capacity = 0;
  if (bytes > capacity) {
    buffer.reset();
    capacity = 0;  // should the next line throw
    buffer.reset(static_cast<char*>(::operator new[](bytes, std::align_val_t(64))));
    capacity = bytes;
  }
  return buffer.get();
}

// On the calling thread. With `ask` it only says whether oneDNN has a kernel.
bool run(ConvKind kind, const ConvSizes& s, DType t, DType result, const void* first, const void* second,
         const void* bias, void* out, bool ask) {
  dnnl_on_this_thread();
  const Key key{kind, s, static_cast<int32_t>(t), static_cast<int32_t>(result), bias != nullptr};
  thread_local DnnlCache<Key, ConvOp> cache;
  ConvOp& op = cache.get(key, [&](ConvOp& fresh) { make(key, fresh); });
  if (!op || ask) return static_cast<bool>(op);
  const void* ours[4] = {first, second, out, bias};
  const auto round_up = [](size_t n) { return (n + 63) / 64 * 64; };
  size_t total = 0;
  for (const ConvOp::Port& p : op.ports) total += p.reordered ? round_up(p.bytes) : 0;
  char* space = workspace(total);
  const void* theirs[4] = {};
  for (size_t i = 0; i < op.ports.size(); ++i) {
    ConvOp::Port& p = op.ports[i];
    theirs[i] = ours[i];
    if (!p.reordered) continue;
    theirs[i] = space;
    space += round_up(p.bytes);
    if (!p.is_result) p.reorder.run({ours[i], theirs[i]});
  }
  if (op.ports.size() == 4) {
    op.main.run({theirs[0], theirs[1], theirs[2], theirs[3]});
  } else {
    op.main.run({theirs[0], theirs[1], theirs[2]});
  }
  if (op.ports[2].reordered) op.ports[2].reorder.run({theirs[2], ours[2]});
  return true;
}
}  // namespace

bool conv_onednn(ConvKind kind, const ConvSizes& s, DType t, DType result, const void* first, const void* second,
                 const void* bias, void* out) {
  if (dnnl_dtype(t) == memory::data_type::undef || t == DType::f16) return false;
  if (s.n == 0 || s.ic == 0 || s.oc == 0) return false;
  if (kind == ConvKind::weight) return run(kind, s, t, result, first, second, bias, out, false);
  // Parts depend on the sizes alone, so that the number of threads changes no bit: images, and within the one image of
  // an inference blocks of output channels.
  constexpr int64_t kMostParts = 32, kChannels = 32;
  const bool forward = kind == ConvKind::forward,
             by_channels = forward && s.n == 1 && s.groups == 1 && s.oc > kChannels;
  const int64_t whole = by_channels ? s.oc : s.n;
  const int64_t work = s.n * s.oc * s.oh * s.ow * (s.ic / s.groups) * s.kh * s.kw;
  const int64_t wanted = std::clamp<int64_t>(work >> 20, 1, kMostParts);
  const int64_t step = std::max(by_channels ? kChannels : 1, (whole + wanted - 1) / wanted);
  const auto part_of = [&](int64_t size) {
    ConvSizes part = s;
    (by_channels ? part.oc : part.n) = size;
    return part;
  };
  for (int64_t size : {std::min(step, whole), whole % step}) {
    if (size > 0 && !run(kind, part_of(size), t, result, first, second, bias, out, true)) return false;
  }
  const int64_t in_image = s.ic * s.ih * s.iw, out_image = s.oc * s.oh * s.ow;
  // Elements from one image or channel to the next.
  const int64_t x_step = by_channels ? 0 : forward ? in_image : out_image;
  const int64_t w_step = by_channels ? s.ic * s.kh * s.kw : 0;
  const int64_t out_step = by_channels ? s.oh * s.ow : forward ? out_image : in_image;
  const auto at = [&](const void* p, int64_t i) { return static_cast<const char*>(p) + i * size_of(t); };
  parallel_for(0, (whole + step - 1) / step, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * step; i < std::min(whole, end * step); i += step) {
      run(kind, part_of(std::min(step, whole - i)), t, result, at(first, i * x_step), at(second, i * w_step),
          bias != nullptr && by_channels ? at(bias, i) : bias, static_cast<char*>(out) + i * out_step * size_of(result),
          false);
    }
  });
  return true;
}

}  // namespace strata::cpu::detail
