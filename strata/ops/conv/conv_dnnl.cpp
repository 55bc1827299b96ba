// Convolutions through oneDNN. It picks the memory layouts that its kernels like; ours are reordered into and out of
// them.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "strata/core/parallel.h"
#include "strata/ops/conv/conv_kernels.h"
#include "strata/ops/matmul/dnnl_inl.h"
#include "strata/ops/vec/scratch.h"

namespace strata::cpu::detail {
namespace {
using dnnl::memory;

// One primitive: a convolution of some of the images, to some of the channels of its result, which lie among the
// others.
struct Key {
  ConvKind kind;
  ConvSizes s;                          // of the part
  int64_t x_images, y_images, w_outer;  // elements from one image, or one output channel's weights, to the next
  int32_t t, result;
  int64_t bias, winograd;
};

memory::dims dims_of(const memory::desc& d);
int64_t block_of_first(const memory::desc& d);

// A primitive and, for each of its arguments, the way from or to our layout.
struct ConvOp {
  struct Port {
    bool reordered = false, is_result = false;
    size_t bytes = 0;
    memory::desc ours, theirs;
    DnnlOp reorder;
    std::vector<DnnlOp> slices;  // the reorder of an argument, cut along its first dimension
  };
  DnnlOp main;
  std::vector<Port> ports;
  explicit operator bool() const { return static_cast<bool>(main.primitive); }

  void add(int arg, const memory::desc& ours, const memory::desc& theirs, bool is_result) {
    Port p;
    p.is_result = is_result;
    p.ours = ours;
    p.theirs = theirs;
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
  // Into how many slices, `most` at most, an argument can be cut for its reorder: they begin between blocks of theirs.
  int64_t slices(size_t port, int64_t most) const {
    const int64_t block = block_of_first(ports[port].theirs);
    return block == 0 ? 1 : std::clamp<int64_t>((dims_of(ports[port].ours)[0] + block - 1) / block, 1, most);
  }
  // Reorders slice `i` of `count` of an argument into `theirs`.
  void pack(size_t port, int64_t i, int64_t count, const void* ours, void* theirs) {
    Port& p = ports[port];
    if (count == 1) return p.reorder.run({ours, theirs});
    if (p.slices.size() != static_cast<size_t>(count)) p.slices = std::vector<DnnlOp>(static_cast<size_t>(count));
    DnnlOp& slice = p.slices[static_cast<size_t>(i)];
    if (!slice.primitive) {
      memory::dims sizes = dims_of(p.ours), from(sizes.size(), 0);
      const int64_t unit = block_of_first(p.theirs), units = (sizes[0] + unit - 1) / unit;
      from[0] = units * i / count * unit;
      sizes[0] = std::min(sizes[0], units * (i + 1) / count * unit) - from[0];
      const memory::desc a = p.ours.submemory_desc(sizes, from), b = p.theirs.submemory_desc(sizes, from);
      slice.primitive = dnnl::reorder(dnnl::reorder::primitive_desc(dnnl_engine(), a, dnnl_engine(), b));
      slice.add(DNNL_ARG_FROM, a);
      slice.add(DNNL_ARG_TO, b);
    }
    slice.run({ours, theirs});
  }
};

#if DNNL_VERSION_MAJOR >= 3
memory::dims dims_of(const memory::desc& d) {
  return d.get_dims();
}
// Of how many elements of the first dimension a layout's blocks are: each processor has its own. 0: no such layout.
int64_t block_of_first(const memory::desc& d) {
  if (d.get_format_kind() != memory::format_kind::blocked) return 0;
  int64_t block = 1;
  const memory::dims sizes = d.get_inner_blks(), of = d.get_inner_idxs();
  for (size_t i = 0; i < sizes.size(); ++i) block *= of[i] == 0 ? sizes[i] : 1;
  return block;
}
using Forward = dnnl::convolution_forward::primitive_desc;
Forward forward_desc(dnnl::algorithm alg, const memory::desc& x, const memory::desc& w, const memory::desc& b,
                     const memory::desc& y, const memory::dims& st, const memory::dims& di, const memory::dims& pad,
                     bool bias) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
  return bias ? Forward(dnnl_engine(), kind, alg, x, w, b, y, st, di, pad, pad)
              : Forward(dnnl_engine(), kind, alg, x, w, y, st, di, pad, pad);
}
dnnl::convolution_backward_data::primitive_desc data_desc(dnnl::algorithm alg, const memory::desc& x,
                                                          const memory::desc& w, const memory::desc& y,
                                                          const memory::dims& st, const memory::dims& di,
                                                          const memory::dims& pad, const Forward& hint) {
  return {dnnl_engine(), alg, x, w, y, st, di, pad, pad, hint};
}
dnnl::convolution_backward_weights::primitive_desc weights_desc(dnnl::algorithm alg, const memory::desc& x,
                                                                const memory::desc& w, const memory::desc& y,
                                                                const memory::dims& st, const memory::dims& di,
                                                                const memory::dims& pad, const Forward& hint) {
  return {dnnl_engine(), alg, x, w, y, st, di, pad, pad, hint};
}
#else
memory::dims dims_of(const memory::desc& d) {
  return d.dims();
}
// Of how many elements of the first dimension a layout's blocks are: each processor has its own. 0: no such layout.
int64_t block_of_first(const memory::desc& d) {
  if (d.data.format_kind != dnnl_blocked) return 0;
  int64_t block = 1;
  const auto& layout = d.data.format_desc.blocking;
  for (int i = 0; i < layout.inner_nblks; ++i) block *= layout.inner_idxs[i] == 0 ? layout.inner_blks[i] : 1;
  return block;
}
using Forward = dnnl::convolution_forward::primitive_desc;
Forward forward_desc(dnnl::algorithm alg, const memory::desc& x, const memory::desc& w, const memory::desc& b,
                     const memory::desc& y, const memory::dims& st, const memory::dims& di, const memory::dims& pad,
                     bool bias) {
  constexpr auto kind = dnnl::prop_kind::forward_training;
  using Desc = dnnl::convolution_forward::desc;
  return Forward(bias ? Desc(kind, alg, x, w, b, y, st, di, pad, pad) : Desc(kind, alg, x, w, y, st, di, pad, pad),
                 dnnl_engine());
}
dnnl::convolution_backward_data::primitive_desc data_desc(dnnl::algorithm alg, const memory::desc& x,
                                                          const memory::desc& w, const memory::desc& y,
                                                          const memory::dims& st, const memory::dims& di,
                                                          const memory::dims& pad, const Forward& hint) {
  return {{alg, x, w, y, st, di, pad, pad}, dnnl_engine(), hint};
}
dnnl::convolution_backward_weights::primitive_desc weights_desc(dnnl::algorithm alg, const memory::desc& x,
                                                                const memory::desc& w, const memory::desc& y,
                                                                const memory::dims& st, const memory::dims& di,
                                                                const memory::dims& pad, const Forward& hint) {
  return {{alg, x, w, y, st, di, pad, pad}, dnnl_engine(), hint};
}
#endif

void make(const Key& key, ConvOp& op) {
  const ConvSizes& s = key.s;
  using Tag = memory::format_tag;
  const auto t = dnnl_dtype(static_cast<DType>(key.t)), result = dnnl_dtype(static_cast<DType>(key.result));
  const memory::dims xd{s.n, s.ic, s.ih, s.iw}, yd{s.n, s.oc, s.oh, s.ow};
  const int64_t window = s.kh * s.kw;
  const memory::dims wd = s.groups == 1 ? memory::dims{s.oc, s.ic, s.kh, s.kw}
                                        : memory::dims{s.groups, s.oc / s.groups, s.ic / s.groups, s.kh, s.kw};
  const memory::dims wstrides = s.groups == 1
                                    ? memory::dims{key.w_outer, window, s.kw, 1}
                                    : memory::dims{key.w_outer * (s.oc / s.groups), key.w_outer, window, s.kw, 1};
  const memory::dims st{s.sh, s.sw}, di{s.dh - 1, s.dw - 1}, pad{s.ph, s.pw};
  const auto type = [&](ConvKind kind) { return key.kind == kind ? result : t; };
  const auto tx = type(ConvKind::transpose), tw = type(ConvKind::weight), ty = type(ConvKind::forward);
  const memory::desc ax(xd, tx, Tag::any), aw(wd, tw, Tag::any), ay(yd, ty, Tag::any), b({s.oc}, t, Tag::x);
  const memory::desc px(xd, tx, memory::dims{key.x_images, s.ih * s.iw, s.iw, 1}), pw(wd, tw, wstrides),
      py(yd, ty, memory::dims{key.y_images, s.oh * s.ow, s.ow, 1});
  const auto alg = key.winograd != 0 ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
  // Backward primitives take a forward one, of the arguments' dtype, as a hint.
  const Forward hint = key.kind == ConvKind::forward
                           ? forward_desc(alg, ax, aw, b, ay, st, di, pad, key.bias != 0)
                           : forward_desc(alg, memory::desc(xd, t, Tag::any), memory::desc(wd, t, Tag::any), b,
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
      const auto pd = data_desc(alg, ax, aw, ay, st, di, pad, hint);
      if (is_reference(pd)) return;
      op.add(DNNL_ARG_DIFF_DST, py, pd.diff_dst_desc(), false);
      op.add(DNNL_ARG_WEIGHTS, pw, pd.weights_desc(), false);
      op.add(DNNL_ARG_DIFF_SRC, px, pd.diff_src_desc(), true);
      op.main.primitive = dnnl::convolution_backward_data(pd);
      break;
    }
    case ConvKind::weight: {
      const auto pd = weights_desc(alg, ax, aw, ay, st, di, pad, hint);
      if (is_reference(pd)) return;
      op.add(DNNL_ARG_SRC, px, pd.src_desc(), false);
      op.add(DNNL_ARG_DIFF_DST, py, pd.diff_dst_desc(), false);
      op.add(DNNL_ARG_DIFF_WEIGHTS, pw, pd.diff_weights_desc(), true);
      op.main.primitive = dnnl::convolution_backward_weights(pd);
      break;
    }
  }
}

// The primitive of this thread for `key`; false where oneDNN has none.
ConvOp& op_of(const Key& key) {
  dnnl_on_this_thread();
  thread_local DnnlCache<Key, ConvOp> cache;
  return cache.get(key, [&](ConvOp& fresh) { make(key, fresh); });
}

// On the calling thread. `packed` may give an argument in oneDNN's layout.
void run(const Key& key, const void* first, const void* second, const void* bias, void* out,
         std::array<const void*, 2> packed) {
  ConvOp& op = op_of(key);
  const void* ours[4] = {first, second, out, bias};
  const auto is_packed = [&](size_t i) { return i < 2 && packed[i] != nullptr; };
  ScratchFrame frame;  // for what takes oneDNN's layout
  const void* theirs[4] = {};
  for (size_t i = 0; i < op.ports.size(); ++i) {
    ConvOp::Port& p = op.ports[i];
    theirs[i] = is_packed(i) ? packed[i] : ours[i];
    if (!p.reordered || is_packed(i)) continue;
    theirs[i] = frame.take<char>(static_cast<int64_t>(p.bytes));
    if (!p.is_result) p.reorder.run({ours[i], theirs[i]});
  }
  if (op.ports.size() == 4) {
    op.main.run({theirs[0], theirs[1], theirs[2], theirs[3]});
  } else {
    op.main.run({theirs[0], theirs[1], theirs[2]});
  }
  if (op.ports[2].reordered) op.ports[2].reorder.run({theirs[2], ours[2]});
}

// Argument `port` of `copies` calls as `key`'s primitive wants it, `step` bytes of ours from one to the next, on all
// threads; nullptr where it takes ours. What they lie apart then is what `key`'s port says.
char* packed(const Key& key, size_t port, int64_t copies, const void* ours, int64_t step, ScratchFrame& frame) {
  const ConvOp::Port& p = op_of(key).ports[port];
  if (!p.reordered) return nullptr;
  constexpr size_t kSlice = 256 * 1024;
  const int64_t slices = op_of(key).slices(port, std::clamp<int64_t>(static_cast<int64_t>(p.bytes / kSlice), 1, 8));
  const size_t bytes = p.bytes;
  char* const space = frame.take<char>(static_cast<int64_t>(bytes) * copies);
  parallel_for(0, copies * slices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      op_of(key).pack(port, i % slices, slices, static_cast<const char*>(ours) + i / slices * step,
                      space + bytes * static_cast<size_t>(i / slices));
  });
  return space;
}

int64_t pieces(int64_t whole, int64_t step) {
  return (whole + step - 1) / step;
}

// Elements of which a copy in oneDNN's layout may be made for all parts.
constexpr int64_t kMostPacked = int64_t{1} << 23;

// How a convolution is cut into parts that threads compute side by side: `down` blocks of images, `across` blocks of
// the result's channels. It depends on the sizes alone, so that the number of threads changes no bit.
struct Parts {
  int64_t images, channels;  // of a part; the last ones may have fewer
  int64_t down, across;
};

// Winograd's F(4x4, 3x3): a fourth of the products for results of four rows and columns, with sums and differences
// before and after them, whose rounding shows (docs/design/cpu-convs.md). STRATA_CONV_WINOGRAD=0 turns it off.
constexpr int64_t kTile = 4;
int64_t tiles_of(const ConvSizes& s) {
  return s.n * pieces(s.oh, kTile) * pieces(s.ow, kTile);
}
bool winograd_fits(const ConvSizes& s, DType t, DType result) {
  static const bool allowed = [] {
    const char* choice = std::getenv("STRATA_CONV_WINOGRAD");
    return choice == nullptr || std::strcmp(choice, "0") != 0;
  }();
  if (!allowed || t != DType::f32 || result != DType::f32 || s.groups != 1) return false;
  if (s.kh != 3 || s.kw != 3 || s.sh != 1 || s.sw != 1 || s.dh != 1 || s.dw != 1) return false;
  // Vectors of channels; and enough tiles for what turning a weight costs.
  return s.ic % 16 == 0 && s.oc % 16 == 0 && s.ic >= 32 && s.oc >= 32 && s.oh >= kTile && s.ow >= kTile &&
         tiles_of(s) >= 32;
}

Parts parts_of(ConvKind kind, const ConvSizes& s, bool winograd) {
  const int64_t channels = kind == ConvKind::transpose ? s.ic : s.oc;
  const int64_t weights = s.oc * (s.ic / s.groups) * s.kh * s.kw;
  const int64_t read = s.n * (kind == ConvKind::transpose ? s.oc * s.oh * s.ow : s.ic * s.ih * s.iw);
  constexpr int64_t kParts = 16, kMostParts = 32, kManyWeights = int64_t{1} << 20;
  int64_t down, least;  // blocks of images; channels of a block, 0: all of them
  int64_t most_parts = kMostParts;
  if (winograd) {
    // Each part turns its weights.
    constexpr int64_t kTiles = 64, kEnough = 8;
    down = std::clamp<int64_t>(tiles_of(s) / kTiles, 1, std::min(s.n, kind == ConvKind::weight ? kParts : kMostParts));
    if (kind == ConvKind::weight)
      down = std::min(down, std::max<int64_t>(1, std::max(kManyWeights, read / 4) / weights));
    least = down < kEnough ? (s.n == 1 ? 32 : 64) : 0;
    most_parts = kEnough;
  } else if (kind == ConvKind::weight) {
    // The blocks' gradients are added up: where they are large beside x, few of them.
    down = std::clamp<int64_t>(std::max(kManyWeights, read / 4) / weights, 1, std::min(s.n, kParts));
    least = 32;
  } else if (s.n == 1) {
    down = 1;
    least = 32;
  } else if (weights >= kManyWeights && read <= kMostPacked) {
    // A large weight is read once, a block of it by each part, and not once an image.
    down = std::clamp<int64_t>(kParts * 64 / channels, 1, s.n);
    least = 64;
  } else {
    const int64_t work = s.n * s.oh * s.ow * weights;
    down = std::clamp<int64_t>(work >> 20, 1, kMostParts);
    least = 0;
  }
  Parts p;
  p.images = pieces(s.n, down);
  p.down = pieces(s.n, p.images);
  p.channels = channels;
  if (least > 0 && s.groups == 1)
    p.channels = std::clamp<int64_t>(pieces(channels * p.down, most_parts * least) * least, 1, channels);
  p.across = pieces(channels, p.channels);
  return p;
}

bool conv_in_parts(ConvKind kind, const ConvSizes& s, DType t, DType result, const void* first, const void* second,
                   const void* bias, void* out, bool winograd) {
  const bool transpose = kind == ConvKind::transpose, weight = kind == ConvKind::weight;
  const int64_t in_image = s.ic * s.ih * s.iw, out_image = s.oc * s.oh * s.ow;
  const int64_t outer = s.ic / s.groups * s.kh * s.kw, weights = s.oc * outer;
  const Parts p = parts_of(kind, s, winograd);
  const auto key = [&](int64_t b, int64_t c) {
    Key k{
        kind,    s, in_image, out_image, outer, static_cast<int32_t>(t), static_cast<int32_t>(result), bias != nullptr,
        winograd};
    k.s.n = std::min(p.images, s.n - b * p.images);
    int64_t& channels = transpose ? k.s.ic : k.s.oc;
    channels = std::min(p.channels, channels - c * p.channels);
    return k;
  };
  for (const int64_t b : {int64_t{0}, p.down - 1})
    for (const int64_t c : {int64_t{0}, p.across - 1})
      if (!op_of(key(b, c))) return false;

  // Elements from one part to the next in each direction.
  const int64_t x_plane = s.ih * s.iw, y_plane = s.oh * s.ow;
  const int64_t first_down = p.images * (transpose ? out_image : in_image);
  const int64_t second_across = p.channels * (weight ? y_plane : transpose ? s.kh * s.kw : outer);
  const int64_t second_down = weight ? p.images * out_image : 0;
  const int64_t out_across = p.channels * (weight ? outer : transpose ? x_plane : y_plane);
  const int64_t out_down = weight ? weights : p.images * (transpose ? in_image : out_image);
  const auto at = [&](const void* from, int64_t i) { return static_cast<const char*>(from) + i * size_of(t); };

  // What several parts read takes oneDNN's layout once, for the parts that are whole.
  const Key whole = key(0, 0);
  const int64_t whole_down = p.down == 1 ? 1 : s.n / p.images;
  const int64_t whole_across = p.across == 1 ? 1 : (transpose ? s.ic : s.oc) / p.channels;
  ScratchFrame frame;
  const char* packed_first = nullptr;
  const char* packed_second = nullptr;
  const std::array layouts{op_of(whole).ports[0].theirs, op_of(whole).ports[1].theirs};
  const std::array bytes{op_of(whole).ports[0].bytes, op_of(whole).ports[1].bytes};
  if (p.across > 1 && p.down * first_down <= kMostPacked)
    packed_first = packed(whole, 0, whole_down, first, first_down * size_of(t), frame);
  if (p.down > 1 && !weight) packed_second = packed(whole, 1, whole_across, second, second_across * size_of(t), frame);

  // The gradient of a weight is a sum over the batch: each block's own, then added up in order.
  const bool summed = weight && p.down > 1;
  const auto sums = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(summed ? p.down * weights : 0));
  char* const to = summed ? reinterpret_cast<char*>(sums.get()) : static_cast<char*>(out);
  parallel_for(0, p.down * p.across, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / p.across, c = i % p.across;
      const Key k = key(b, c);
      const auto given = [&](const char* all, size_t port, int64_t block, int64_t blocks) {
        const bool fits = all != nullptr && block < blocks && op_of(k).ports[port].theirs == layouts[port];
        return fits ? all + static_cast<size_t>(block) * bytes[port] : nullptr;
      };
      run(k, at(first, b * first_down), at(second, b * second_down + c * second_across),
          bias != nullptr ? at(bias, c * p.channels) : nullptr,
          to + (b * out_down + c * out_across) * static_cast<int64_t>(size_of(result)),
          {given(packed_first, 0, b, whole_down), given(packed_second, 1, c, whole_across)});
    }
  });
  if (summed) add_parts(static_cast<const float*>(sums.get()), p.down, weights, static_cast<float*>(out));
  return true;
}
}  // namespace

bool conv_onednn(ConvKind kind, const ConvSizes& s, DType t, DType result, const void* first, const void* second,
                 const void* bias, void* out) {
  if (dnnl_dtype(t) == memory::data_type::undef || t == DType::f16) return false;
  if (s.n == 0 || s.ic == 0 || s.oc == 0) return false;
  // oneDNN has Winograd's for some processors.
  if (winograd_fits(s, t, result) && conv_in_parts(kind, s, t, result, first, second, bias, out, true)) return true;
  return conv_in_parts(kind, s, t, result, first, second, bias, out, false);
}

}  // namespace strata::cpu::detail
