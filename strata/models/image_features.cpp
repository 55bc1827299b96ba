#include "strata/models/image_features.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/json.h"
#include "strata/models/config_reader.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

using Filter = ImageFeatures::Filter;

constexpr const char* kOp = "image_features";
constexpr int64_t kMostSide = 65535, kMostPixels = int64_t{1} << 28;

// What absent keys mean, by the class that a file names.
struct Class {
  std::string_view name;
  ImageFeatures usual;
};
const std::vector<Class>& classes() {
  static const ImageFeatures square{.mean = {0.5, 0.5, 0.5}, .deviation = {0.5, 0.5, 0.5}};
  static const ImageFeatures cropped{.shortest = 224,
                                     .filter = Filter::bicubic,
                                     .crops = true,
                                     .mean = {0.48145466, 0.4578275, 0.40821073},
                                     .deviation = {0.26862954, 0.26130258, 0.27577711}};
  static const std::vector<Class> all{{"ViTImageProcessor", square},
                                      {"ViTFeatureExtractor", square},
                                      {"CLIPImageProcessor", cropped},
                                      {"CLIPFeatureExtractor", cropped},
                                      {"BitImageProcessor", cropped}};
  return all;
}

const ImageFeatures& usual_of(const ConfigReader& c) {
  const JsonKey key{"image_processor_type", "feature_extractor_type"};
  std::string name = c.text(key);
  for (const std::string_view end : {"Fast", "Pil"})
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  std::string names;
  for (const Class& k : classes()) {
    if (k.name == name) return k.usual;
    names += cat(names.empty() ? "" : ", ", k.name);
  }
  c.refuse(key, cat("is taken as one of ", names));
}

int64_t side(const ConfigReader& c, const char* key) {
  const int64_t n = c.size(key);
  if (n > kMostSide) c.refuse(key, cat("is above ", kMostSide));
  return n;
}

// A picture's rows of one direction: which of them a place of the result is made of, and by what weights.
struct Weights {
  std::vector<int64_t> first;             // of each place
  std::vector<std::vector<int64_t>> own;  // of 22 bits
};
constexpr int kBits = 22;

double filter_at(double x, Filter filter) {
  x = std::abs(x);
  if (filter == Filter::bilinear) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

Weights weights_of(int64_t from, int64_t to, Filter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), wide = std::max(scale, 1.0);
  const double reach = (filter == Filter::bilinear ? 1 : 2) * wide;
  Weights w;
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(center - reach + 0.5));
    const int64_t end = std::min(from, static_cast<int64_t>(center + reach + 0.5));
    std::vector<double> of;
    double total = 0;
    for (int64_t j = begin; j < end; ++j) {
      of.push_back(filter_at((static_cast<double>(j) - center + 0.5) * (1 / wide), filter));
      total += of.back();
    }
    std::vector<int64_t>& whole = w.own.emplace_back();
    for (const double x : of) {
      const double bits = (total != 0 ? x / total : x) * (1 << kBits);
      whole.push_back(static_cast<int64_t>(bits < 0 ? bits - 0.5 : bits + 0.5));
    }
    w.first.push_back(begin);
  }
  return w;
}

// [outer, from, inner] to [outer, to, inner].
std::vector<uint8_t> resized(const std::vector<uint8_t>& x, int64_t outer, int64_t from, int64_t inner, int64_t to,
                             Filter filter) {
  const Weights w = weights_of(from, to, filter);
  std::vector<uint8_t> y(static_cast<size_t>(outer * to * inner));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < to; ++i) {
      const std::vector<int64_t>& own = w.own[static_cast<size_t>(i)];
      const uint8_t* in = x.data() + (o * from + w.first[static_cast<size_t>(i)]) * inner;
      uint8_t* out = y.data() + (o * to + i) * inner;
      for (int64_t k = 0; k < inner; ++k) {
        int64_t sum = int64_t{1} << (kBits - 1);
        for (size_t j = 0; j < own.size(); ++j) sum += own[j] * in[static_cast<int64_t>(j) * inner + k];
        out[k] = static_cast<uint8_t>(std::clamp<int64_t>(sum >> kBits, 0, 255));
      }
    }
  return y;
}

// The middle `size` of `from` places: where it begins there, and where in the result.
std::pair<int64_t, int64_t> middle(int64_t from, int64_t size) {
  if (from >= size) return {(from - size) / 2, 0};
  return {0, (size - from + 1) / 2};
}

}  // namespace

ImageFeatures parse_image_features(std::string_view text, std::string_view source) {
  const ConfigReader c(text, source);
  const nlohmann::json all = io::parse_json(text, source);
  ImageFeatures f = usual_of(c);
  f.resizes = c.flag("do_resize", f.resizes);
  // Older files say one number: the shorter side where the class takes the middle, else both.
  if (const auto size = all.find("size"); size != all.end() && size->is_number()) {
    const int64_t n = side(c, "size");
    (f.shortest > 0 ? f.shortest : f.height) = n;
    f.width = f.height;
  } else if (const auto sizes = c.object("size")) {
    f.shortest = 0;
    if (sizes->has("shortest_edge")) {
      f.shortest = side(*sizes, "shortest_edge");
      sizes->expect_none("longest_edge");
    } else {
      f.height = side(*sizes, "height");
      f.width = side(*sizes, "width");
    }
  }
  const int64_t resample = c.integer("resample", f.filter == Filter::bilinear ? 2 : 3);
  if (resample != 2 && resample != 3) c.refuse("resample", "is taken as 2 (bilinear) or 3 (bicubic)");
  f.filter = resample == 2 ? Filter::bilinear : Filter::bicubic;
  f.crops = c.flag("do_center_crop", f.crops);
  if (const auto size = all.find("crop_size"); size != all.end() && size->is_number()) {
    f.crop_height = f.crop_width = side(c, "crop_size");
  } else if (const auto sizes = c.object("crop_size")) {
    f.crop_height = side(*sizes, "height");
    f.crop_width = side(*sizes, "width");
  }
  f.factor = c.number("rescale_factor", f.factor);
  if (!c.flag("do_rescale", true)) f.factor = 1;
  f.mean = c.numbers("image_mean").value_or(f.mean);
  f.deviation = c.numbers("image_std").value_or(f.deviation);
  if (f.mean.size() != 3) c.refuse("image_mean", "is to have 3 numbers");
  if (f.deviation.size() != 3) c.refuse("image_std", "is to have 3 numbers");
  for (const double d : f.deviation)
    if (!(d > 0)) c.refuse("image_std", "is to be above 0");
  if (!c.flag("do_normalize", true)) f.mean = {0, 0, 0}, f.deviation = {1, 1, 1};
  c.expect("do_pad", false);
  c.expect_none("pad_size");
  for (const char* key : {"do_convert_rgb", "processor_class", "data_format", "input_data_format", "default_to_square",
                          "return_tensors", "device", "disable_grouping", "image_seq_length"})
    c.ignore(key);
  c.finish();
  return f;
}

Tensor resized_picture(const Tensor& picture, int64_t height, int64_t width, Filter filter) {
  check<ShapeError>(picture.dim() == 3 && picture.numel() > 0, kOp, "a picture is [H, W, C], got ", picture);
  check<DTypeError>(picture.dtype() == DType::u8, kOp, "a picture is u8, got ", picture);
  const int64_t h = picture.size(0), w = picture.size(1), c = picture.size(2);
  check(height >= 1 && width >= 1 && height <= kMostSide && width <= kMostSide && height * width <= kMostPixels &&
            h * width <= kMostPixels && w * height <= kMostPixels && c <= 4,
        kOp, "a picture of ", h, " x ", w, " x ", c, " cannot become ", height, " x ", width);
  std::vector<uint8_t> x = picture.to(Device::cpu()).contiguous().to_vector<uint8_t>();
  // Bytes between the two passes are rounded, so their order counts. Pillow 13's was found by trying: columns come
  // first where they lose more than twice as many places as rows do.
  const bool columns_first = h > height && h - height > 2 * (w - width);
  if (columns_first) x = resized(x, 1, h, w * c, height, filter);
  if (width != w) x = resized(x, columns_first ? height : h, w, c, width, filter);
  if (!columns_first && height != h) x = resized(x, 1, h, width * c, height, filter);
  return from_span<uint8_t>(x, {height, width, c});
}

Tensor image_pixels(const Tensor& picture, const ImageFeatures& f) {
  check<ShapeError>(picture.dim() == 3 && picture.size(2) == 3 && picture.numel() > 0, kOp,
                    "a picture is [H, W, 3], got ", picture);
  const NoGrad guard;
  const DeviceScope host(Device::cpu());
  Tensor x = picture;
  if (f.resizes) {
    int64_t height = f.height, width = f.width;
    if (f.shortest > 0) {
      const int64_t h = picture.size(0), w = picture.size(1);
      height = w <= h ? f.shortest * h / w : f.shortest;
      width = w <= h ? f.shortest : f.shortest * w / h;
    }
    x = resized_picture(picture, height, width, f.filter);
  }
  check<DTypeError>(x.dtype() == DType::u8, kOp, "a picture is u8, got ", x);
  if (f.crops) {
    const auto [top, down] = middle(x.size(0), f.crop_height);
    const auto [left, right] = middle(x.size(1), f.crop_width);
    const int64_t rows = std::min(x.size(0), f.crop_height), columns = std::min(x.size(1), f.crop_width);
    Tensor part = zeros({f.crop_height, f.crop_width, 3}, DType::u8);
    part.narrow(0, down, rows).narrow(1, right, columns).copy_(x.narrow(0, top, rows).narrow(1, left, columns));
    x = part;
  }
  const Tensor less = from_span<double>(f.mean, {3}).to(DType::f32);
  const Tensor deviation = from_span<double>(f.deviation, {3}).to(DType::f32);
  return (((x.to(DType::f32) * f.factor) - less) / deviation).permute({2, 0, 1}).contiguous();
}

}  // namespace strata
