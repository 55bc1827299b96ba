// DINOv2 with register tokens (Darcet et al., arXiv:2309.16588).

#include "strata/models/image_parts_inl.h"

namespace strata::records {

const Family& dinov2_with_registers();

const Family& dinov2_with_registers() {
  static const Family family{
      .name = "dinov2_with_registers",
      .title = "DINOv2 with register tokens",
      .kind = ModelKind::image_encoder,
      .model_types = {"dinov2_with_registers"},
      .architectures = {"Dinov2WithRegistersModel", "Dinov2WithRegistersForImageClassification"},
      .spec = parts::read_dinov2,
      .config = parts::write_dinov2,
      .weights = parts::dinov2_weights,
      .base_prefix = "dinov2_with_registers.",
      .samples = {
          {"plain", R"({"model_type": "dinov2_with_registers", "architectures": ["Dinov2WithRegistersModel"],
                  "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
                  "patch_size": 4, "num_register_tokens": 3})"},
          {"labels", R"({"model_type": "dinov2_with_registers",
                  "architectures": ["Dinov2WithRegistersForImageClassification"], "hidden_size": 48,
                  "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_ratio": 2, "image_size": 16, "patch_size": 8,
                  "num_register_tokens": 2, "id2label": {"0": "a", "1": "b"}})"},
      }};
  return family;
}

}  // namespace strata::records
