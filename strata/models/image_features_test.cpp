// Pictures prepared as transformers' processors prepare them (scripts/make-models).

#include "strata/models/image_features.h"

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/models/pretrained_test_util.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

constexpr const char* kFile = "preprocessor_config.json";

class ImageFeatures_ : public PretrainedSample {};

TEST_P(ImageFeatures_, PixelsAreThoseOfTransformers) {
  if (!has("picture0")) GTEST_SKIP() << "no pictures of three channels";
  const std::string path = cat(loaded.folder, '/', kFile);
  const ImageFeatures features = parse_image_features(io::read_file(path), path);
  int compared = 0;
  for (int i = 0; has(cat("picture", i).c_str()); ++i) {
    const Tensor pixels = image_pixels(of(cat("picture", i).c_str()), features);
    const Tensor want = of(cat("picture", i, "_pixels").c_str());
    ASSERT_EQ(pixels.shape(), want.shape()) << i;
    EXPECT_LE(largest(pixels - want), 1e-5) << i;  // a byte more or less would be 0.01
    ++compared;
  }
  EXPECT_EQ(compared, 4);
  const NoGrad guard;
  const Tensor batch = image_pixels(of("picture0"), features).unsqueeze(0);
  if (loaded.image_encoder) EXPECT_EQ(loaded.image_encoder->hidden(batch).size(0), 1);
}

INSTANTIATE_TEST_SUITE_P(Families, ImageFeatures_,
                         testing::ValuesIn(samples_of({ModelKind::image_encoder, ModelKind::pair})), sample_test_name);

TEST(ImageFeatures, Settings) {
  const ImageFeatures vit = parse_image_features(R"({"image_processor_type": "ViTImageProcessorFast"})", kFile);
  EXPECT_EQ(vit.shortest, 0);
  EXPECT_EQ(vit.height, 224);
  EXPECT_EQ(vit.filter, ImageFeatures::Filter::bilinear);
  EXPECT_EQ(vit.mean[0], 0.5);
  EXPECT_FALSE(vit.crops);
  // As files of the library's first versions say it.
  const ImageFeatures clip =
      parse_image_features(R"({"feature_extractor_type": "CLIPFeatureExtractor", "size": 336, "crop_size": 300,
                               "do_normalize": false, "do_rescale": false})",
                           kFile);
  EXPECT_EQ(clip.shortest, 336);
  EXPECT_EQ(clip.crop_width, 300);
  EXPECT_EQ(clip.factor, 1);
  EXPECT_EQ(clip.deviation[2], 1);
  EXPECT_EQ(clip.filter, ImageFeatures::Filter::bicubic);
  const ImageFeatures old =
      parse_image_features(R"({"feature_extractor_type": "ViTFeatureExtractor", "size": 30})", kFile);
  EXPECT_EQ(old.height, 30);
  EXPECT_EQ(old.width, 30);
}

TEST(ImageFeatures, RefusalsNameTheKey) {
  for (const auto& [text, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("x": 1)", "'x' = 1"},
           {R"("resample": 1)", "'resample' is taken as 2"},
           {R"("image_mean": [1, 2])", "'image_mean' is to have 3"},
           {R"("image_std": [1, 0, 2])", "'image_std' is to be above 0"},
           {R"("size": {"height": 3})", "'width' is missing"},
           {R"("size": {"shortest_edge": 70000})", "above 65535"},
           {R"("size": {"shortest_edge": 7, "longest_edge": 9})", "'longest_edge'"},
           {R"("size": 0)", "'size'"},
           {R"("crop_size": "all")", "'crop_size'"},
           {R"("do_pad": true)", "'do_pad'"}}) {
    const std::string whole = cat(R"({"image_processor_type": "BitImageProcessor", )", text, "}");
    const std::string said = message<ValueError>([&] { parse_image_features(whole, kFile); });
    EXPECT_NE(said.find(part), std::string::npos) << text << ": " << said;
    EXPECT_NE(said.find(kFile), std::string::npos) << said;
  }
  EXPECT_NE(message<ValueError>([] {
              parse_image_features(R"({"image_processor_type": "SamImageProcessor"})", kFile);
            }).find("BitImageProcessor"),
            std::string::npos);
  EXPECT_THROW(parse_image_features("{}", kFile), ValueError);
  const ImageFeatures f;
  EXPECT_THROW(image_pixels(zeros({3, 4, 4}, DType::u8), f), ShapeError);
  EXPECT_THROW(image_pixels(zeros({4, 4, 3}), f), DTypeError);
  EXPECT_THROW(image_pixels(zeros({0, 4, 3}, DType::u8), f), ShapeError);
  EXPECT_THROW(resized_picture(zeros({1, 65535, 3}, DType::u8), 65535, 65535, f.filter), ValueError);
}

TEST(ImageFeatures, CropsAndFills) {
  ImageFeatures f{.resizes = false, .crops = true, .crop_height = 2, .crop_width = 5, .factor = 1};
  const Tensor picture = from_span<uint8_t>(std::vector<uint8_t>(4 * 2 * 3, 7), {4, 2, 3});
  const Tensor pixels = image_pixels(picture, f);
  EXPECT_EQ(pixels.shape(), Shape({3, 2, 5}));
  // Two places wider on the left, one on the right, as PIL's form of the library has it.
  EXPECT_EQ(pixels.select(0, 0).select(0, 0).to_vector<float>(), (std::vector<float>{0, 0, 7, 7, 0}));
  // One colour stays it in any size.
  for (const auto filter : {ImageFeatures::Filter::bilinear, ImageFeatures::Filter::bicubic})
    EXPECT_EQ(largest(resized_picture(picture, 7, 5, filter).to(DType::f32) - 7.0), 0);
}

}  // namespace
}  // namespace strata
