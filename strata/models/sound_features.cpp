#include "strata/models/sound_features.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/models/config_reader.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

constexpr const char* kOp = "sound_features";
constexpr double kHighest = 8000;  // Hz, of the filters
constexpr int64_t kMostSamples = int64_t{1} << 26;

// Slaney's scale: linear below 1 kHz, logarithmic above.
constexpr double kStep = 200.0 / 3, kBreak = 1000, kBreakMel = kBreak / kStep;
const double kLog = std::log(6.4) / 27;
double mel_of(double hertz) {
  return hertz < kBreak ? hertz / kStep : kBreakMel + std::log(hertz / kBreak) / kLog;
}
double hertz_of(double mel) {
  return mel < kBreakMel ? mel * kStep : kBreak * std::exp((mel - kBreakMel) * kLog);
}

void check_features(const SoundFeatures& f) {
  check(f.bins >= 1 && f.bins <= 4096, kOp, "feature_size is ", f.bins, ", wanted 1 to 4096");
  check(f.fft >= 2 && f.fft <= 4096, kOp, "n_fft is ", f.fft, ", wanted 2 to 4096");
  check(f.hop >= 1 && f.hop <= f.fft, kOp, "hop_length is ", f.hop, ", wanted 1 to n_fft ", f.fft);
  check(f.rate >= 1 && f.seconds >= 1 && f.rate <= kMostSamples && f.seconds <= kMostSamples / f.rate, kOp, f.seconds,
        " seconds of ", f.rate, " samples are not 1 to ", kMostSamples, " samples");
  check(f.frames() <= kMostSamples / f.fft, kOp, f.frames(), " frames of ", f.fft, " samples are more than ",
        kMostSamples, " numbers");
  check(f.samples() > f.fft && f.frames() >= 1, kOp, "a piece of ", f.samples(), " samples has no frames of ", f.fft);
}

}  // namespace

SoundFeatures parse_sound_features(std::string_view text, std::string_view source) {
  const ConfigReader c(text, source);
  SoundFeatures f;
  f.bins = c.size("feature_size", f.bins);
  f.fft = c.size("n_fft", f.fft);
  f.hop = c.size("hop_length", f.hop);
  f.seconds = c.size("chunk_length", f.seconds);
  f.rate = c.size("sampling_rate", f.rate);
  c.expect({"feature_extractor_type"}, "WhisperFeatureExtractor");
  c.expect("padding_value", 0.0);
  c.expect("padding_side", "right");
  c.expect("dither", 0.0);
  c.expect("do_normalize", false);
  // What the library makes of the rest anew, and whether it says where the silence begins.
  for (const char* key : {"mel_filters", "n_samples", "nb_max_frames", "return_attention_mask", "processor_class"})
    c.ignore(key);
  c.finish();
  check_features(f);
  return f;
}

std::vector<std::vector<double>> mel_filters(int64_t bins, int64_t fft, int64_t rate) {
  const int64_t frequencies = fft / 2 + 1;
  std::vector<double> corners;
  for (int64_t i = 0; i < bins + 2; ++i)
    corners.push_back(hertz_of(mel_of(kHighest) * static_cast<double>(i) / static_cast<double>(bins + 1)));
  std::vector<std::vector<double>> filters;
  for (size_t b = 0; b < static_cast<size_t>(bins); ++b) {
    const double low = corners[b], peak = corners[b + 1], high = corners[b + 2];
    std::vector<double>& filter = filters.emplace_back();
    for (int64_t i = 0; i < frequencies; ++i) {
      // The last frequency is the half of a whole rate, as the library counts it.
      const double at = static_cast<double>(rate / 2) * static_cast<double>(i) / static_cast<double>(frequencies - 1);
      const double height = std::min((at - low) / (peak - low), (high - at) / (high - peak));
      filter.push_back(std::max(0.0, height) * 2 / (high - low));
    }
  }
  return filters;
}

namespace {

std::vector<float> samples_of(const Tensor& sound) {
  check<DTypeError>(sound.dtype() == DType::f32, kOp, "sound is f32, got ", sound);
  return sound.to(Device::cpu()).contiguous().to_vector<float>();
}

// The spectrum as a product with cosines and sines, [fft, 2 frequencies], and the filters [bins, frequencies].
struct Tables {
  Tensor waves, filters;
  std::vector<double> hann;

  explicit Tables(const SoundFeatures& f) {
    const int64_t frequencies = f.fft / 2 + 1;
    std::vector<double> w(static_cast<size_t>(2 * f.fft * frequencies)), all;
    for (int64_t i = 0; i < f.fft; ++i) {
      hann.push_back(0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(f.fft)));
      for (int64_t k = 0; k < frequencies; ++k) {
        const double angle = 2 * std::numbers::pi * static_cast<double>(i * k % f.fft) / static_cast<double>(f.fft);
        w[static_cast<size_t>(i * 2 * frequencies + k)] = std::cos(angle);
        w[static_cast<size_t>(i * 2 * frequencies + frequencies + k)] = std::sin(angle);
      }
    }
    for (const std::vector<double>& filter : mel_filters(f.bins, f.fft, f.rate))
      all.insert(all.end(), filter.begin(), filter.end());
    waves = from_span<double>(w, {f.fft, 2 * frequencies});
    filters = from_span<double>(all, {f.bins, frequencies});
  }
};

// The logarithms of frames from `first` on, f64 [bins, frames]. Frame t is around sample t * hop, and both ends of the
// samples are mirrored.
Tensor log_mel(const std::vector<float>& samples, const SoundFeatures& f, const Tables& tables, int64_t first,
               int64_t frames) {
  const int64_t n = static_cast<int64_t>(samples.size()), frequencies = f.fft / 2 + 1;
  std::vector<double> windowed(static_cast<size_t>(frames * f.fft));
  for (int64_t t = 0; t < frames; ++t)
    for (int64_t i = 0; i < f.fft; ++i) {
      int64_t at = std::abs((first + t) * f.hop + i - f.fft / 2);
      if (at >= n) at = 2 * (n - 1) - at;
      windowed[static_cast<size_t>(t * f.fft + i)] =
          static_cast<double>(samples[static_cast<size_t>(at)]) * tables.hann[static_cast<size_t>(i)];
    }
  const Tensor spectrum = matmul(from_span<double>(windowed, {frames, f.fft}), tables.waves);
  const Tensor power =
      square(spectrum.narrow(1, 0, frequencies)) + square(spectrum.narrow(1, frequencies, frequencies));
  return log10(clamp(matmul(tables.filters, power.t()), 1e-10, std::nullopt));
}

// No more than 8 below the largest.
Tensor scaled(const Tensor& log, double largest) {
  return ((clamp(log, largest - 8.0, std::nullopt) + 4.0) * 0.25).to(DType::f32);
}

}  // namespace

Tensor sound_features(const Tensor& sound, const SoundFeatures& f) {
  check_features(f);
  check<ShapeError>(sound.dim() == 1 && sound.numel() <= f.samples(), kOp, "sound is [n] of up to ", f.samples(),
                    " samples, got ", sound);
  const NoGrad guard;
  const DeviceScope host(Device::cpu());
  std::vector<float> samples = samples_of(sound);
  samples.resize(static_cast<size_t>(f.samples()));
  const Tensor log = log_mel(samples, f, Tables(f), 0, f.frames());
  return scaled(log, log.max().item());
}

Tensor long_sound_features(const Tensor& sound, const SoundFeatures& f) {
  check_features(f);
  check<ShapeError>(sound.dim() == 1, kOp, "sound is [n], got ", sound);
  const NoGrad guard;
  const DeviceScope host(Device::cpu());
  std::vector<float> samples = samples_of(sound);
  samples.resize(std::max(samples.size(), static_cast<size_t>(f.fft)));
  const Tables tables(f);
  const int64_t frames = static_cast<int64_t>(samples.size()) / f.hop;
  constexpr int64_t kPart = 1024;  // frames at a time: their windows are larger than the sound
  std::vector<Tensor> parts;
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t at = 0; at < frames; at += kPart) {
    parts.push_back(log_mel(samples, f, tables, at, std::min(kPart, frames - at)));
    largest = std::max(largest, parts.back().max().item());
  }
  for (Tensor& part : parts) part = scaled(part, largest);
  return cat(parts, 1);
}

}  // namespace strata
