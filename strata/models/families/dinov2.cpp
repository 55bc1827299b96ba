// DINOv2 (Oquab et al., arXiv:2304.07193).

#include "strata/models/image_parts_inl.h"

namespace strata::records {

const Family& dinov2();

const Family& dinov2() {
  static const Family family{
      .name = "dinov2",
      .title = "DINOv2",
      .kind = ModelKind::image_encoder,
      .model_types = {"dinov2"},
      .architectures = {"Dinov2Model", "Dinov2ForImageClassification"},
      .spec = parts::read_dinov2,
      .config = parts::write_dinov2,
      .weights = parts::dinov2_weights,
      .base_prefix = "dinov2.",
      .samples = {
          {"plain", R"({"model_type": "dinov2", "architectures": ["Dinov2Model"], "hidden_size": 64,
                  "num_hidden_layers": 3, "num_attention_heads": 4, "mlp_ratio": 2, "image_size": 24,
                  "patch_size": 4})"},
          {"gated", R"({"model_type": "dinov2", "architectures": ["Dinov2Model"], "hidden_size": 48,
                  "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16, "patch_size": 4,
                  "use_swiglu_ffn": true, "use_mask_token": false})"},
          {"labels", R"({"model_type": "dinov2", "architectures": ["Dinov2ForImageClassification"], "hidden_size": 48,
                  "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 3, "image_size": 16, "patch_size": 8,
                  "id2label": {"0": "a", "1": "b", "2": "c"}})"},
      }};
  return family;
}

}  // namespace strata::records
