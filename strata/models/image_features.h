#pragma once
// What encoders of images read: a picture's bytes as transformers' processors of ViT, CLIP and DINOv2 prepare them.

#include <cstdint>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

/// How a picture is prepared: preprocessor_config.json of a folder.
struct ImageFeatures {
  /// How it gets another size: PIL's filters, which are as wide as what a place of the result covers.
  enum class Filter : uint8_t { bilinear, bicubic };
  bool resizes = true;
  int64_t shortest = 0;  ///< the shorter side gets so many places; 0: height and width are what is said
  int64_t height = 224, width = 224;
  Filter filter = Filter::bilinear;
  bool crops = false;  ///< then the middle is taken, and what lies outside of the picture is black
  int64_t crop_height = 224, crop_width = 224;
  double factor = 1.0 / 255;                  ///< of the bytes; 1 where they are not rescaled
  std::vector<double> mean = {0, 0, 0};       ///< taken off
  std::vector<double> deviation = {1, 1, 1};  ///< and divided by
};

/// From the text of a preprocessor_config.json; absent keys mean what the library's class means by them; `source` names
/// it in errors. Throws ValueError naming the key for a value out of range, a key that is not known, and what is not
/// had (other filters, padding, another class).
ImageFeatures parse_image_features(std::string_view text, std::string_view source);

/// A picture u8 [H, W, 3] as f32 [3, height, width]: resized, cropped, rescaled and normalised. The numbers are those of
/// the library's processors that use PIL (ViTImageProcessorPil and so on); those that use torchvision resize otherwise,
/// which is 1 of 255 at most for bilinear and some for bicubic. Throws ShapeError, DTypeError, ValueError.
///
///     const Tensor pixels = image_pixels(data::read_picture("cat.jpg"), features);       // [3, 224, 224]
Tensor image_pixels(const Tensor& picture, const ImageFeatures& features);

/// A picture u8 [H, W, C] in another size, as PIL's resize() (Pillow 13) gives it to the byte: along rows and along
/// columns, with weights of 22 bits. Throws ShapeError, DTypeError, ValueError for sizes outside 1 to 65535.
Tensor resized_picture(const Tensor& picture, int64_t height, int64_t width, ImageFeatures::Filter filter);

}  // namespace strata
