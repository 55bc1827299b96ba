// Texts and pictures to vectors.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/language.h"
#include "strata/core/json_text.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/data/picture.h"
#include "strata/generate/text_model.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/models/image_features.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/join/join.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::string path, input = "-", out, pooling, device;
  int64_t batch = 16, threads = 0;
  bool normalize = false, images = false;
};

// The ways of pooling as options spell them.
std::string dashed(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

// The folder's way of making vectors, with what was asked for.
SentenceOptions options_of(const Arguments& a) {
  SentenceOptions options = read_sentence_options(a.path);
  for (const std::string& name : pooling_names())
    if (a.pooling == dashed(name)) options.embedding.pooling = parse_pooling(name);
  options.embedding.normalize = options.embedding.normalize || a.normalize;
  return options;
}

// Of pictures, by the names of their files.
class PictureEmbedder {
 public:
  explicit PictureEmbedder(const Arguments& a)
      : pretrained_(load_pretrained(a.path, {.device = device_or_usual(a.device)})), normalize_(a.normalize) {
    if (!pretrained_.image_encoder && !pretrained_.pair)
      throw UsageError(fmt::format("'{}' is no model of images", a.path));
    if (!a.pooling.empty()) throw UsageError("--pooling is of texts");
    const std::string settings = a.path + "/preprocessor_config.json";
    features_ = parse_image_features(io::read_file(settings, uint64_t{16} << 20), settings);
  }

  // [pictures, dim], f32 on the host.
  Tensor operator()(const std::vector<std::string>& files) const {
    const NoGrad guard;
    TensorList pixels;
    for (const std::string& file : files) pixels.push_back(image_pixels(data::read_picture(file), features_));
    const Tensor like = pretrained_.module().parameters().front();
    const Tensor x = stack(pixels, 0).to(like.device()).to(like.dtype());
    const ImageEncoder* encoder = pretrained_.image_encoder.get();
    Tensor y = encoder ? encoder->pooled(encoder->hidden(x)) : pretrained_.pair->image_vectors(x, !normalize_);
    y = y.to(DType::f32);
    if (encoder && normalize_) y = y / sqrt(sum(square(y), {1}, true));
    return y.to(Device::cpu());
  }

 private:
  Pretrained pretrained_;
  ImageFeatures features_;
  bool normalize_;
};

int run(const Arguments& a) {
  if (a.threads > 0) set_num_threads(static_cast<int>(a.threads));
  std::ifstream opened;
  if (a.input != "-") {
    opened.open(a.input);
    if (!opened) throw IoError("embed", fmt::format("cannot read '{}'", a.input));
  }
  std::istream& in = a.input == "-" ? std::cin : opened;
  std::shared_ptr<TextModel> model;
  std::optional<PictureEmbedder> of_pictures;
  if (a.images)
    of_pictures.emplace(a);
  else
    model = TextModel::load(a.path, {.device = device_or_usual(a.device)});
  const SentenceOptions options = options_of(a);
  const auto embed = [&](const std::vector<std::string>& lines) {
    return a.images ? (*of_pictures)(lines) : model->embed(lines, options).to(DType::f32).to(Device::cpu());
  };
  TensorList parts;
  std::vector<std::string> texts;
  const auto flush = [&] {
    if (texts.empty()) return;
    const Tensor vectors = embed(texts);
    if (!a.out.empty()) {
      parts.push_back(vectors);
    } else {
      const std::vector<float> v = vectors.to_vector<float>();
      const size_t dim = v.size() / texts.size();
      for (size_t b = 0; b < texts.size(); ++b) {
        const std::vector<float> own(v.begin() + static_cast<int64_t>(b * dim),
                                     v.begin() + static_cast<int64_t>((b + 1) * dim));
        const std::string line = fmt::format("{{\"embedding\": {}}}\n",
                                             detail::json_list(own, [](float x) { return fmt::format("{:.9g}", x); }));
        std::fwrite(line.data(), 1, line.size(), stdout);
      }
    }
    texts.clear();
  };
  for (std::string line; std::getline(in, line);) {
    texts.push_back(line);
    if (static_cast<int64_t>(texts.size()) == a.batch) flush();
  }
  flush();
  if (!a.out.empty()) {
    if (parts.empty()) throw UsageError("there are no texts");
    io::save_safetensors(a.out, io::TensorMap{{"embeddings", cat(parts, 0)}});
  }
  return kOk;
}

}  // namespace

void add_embed(CLI::App& app, Body& body) {
  CLI::App* embed = app.add_subcommand("embed", "Vectors of texts, or of pictures");
  auto a = std::make_shared<Arguments>();
  std::vector<std::string> poolings;
  for (const std::string& name : pooling_names()) poolings.push_back(dashed(name));
  embed->add_option("--model", a->path, "Folder of a model as Hugging Face writes it")->required()->type_name("DIR");
  embed->add_option("--input", a->input, "A file with a text a line ('-': standard input)")->type_name("FILE");
  embed->add_flag("--images", a->images,
                  "Each line names a picture (PNG, JPEG, PPM), which preprocessor_config.json says how to prepare");
  embed
      ->add_option("--out", a->out,
                   "Write a safetensors file with 'embeddings' [texts, numbers] in place of JSON lines")
      ->type_name("FILE")
      ->check(writable_file());
  embed->add_option("--pooling", a->pooling, "How places become one vector; as the folder says (else the mean)")
      ->type_name("WAY")
      ->check(CLI::IsMember(poolings));
  embed->add_flag("--normalize", a->normalize, "Vectors of length 1");
  embed->add_option("--batch", a->batch, "Texts at a time")
      ->type_name("N")
      ->capture_default_str()
      ->check(between<int64_t>(1, 65535));
  embed->add_option("--threads", a->threads, "Threads; 0 takes every core")
      ->type_name("N")
      ->check(between<int64_t>(0, 4096));
  embed->add_option("--device", a->device, "cpu or cuda")->type_name("DEVICE")->check(device_name());
  embed->footer("  strata embed --model all-MiniLM-L6-v2 --input texts.txt --out vectors.safetensors");
  embed->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
