// Encoders of every family, made and computed with by transformers (scripts/make-models), against what is loaded here.

#include <filesystem>

#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/weight_files.h"
#include "strata/models/pretrained_test_util.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class PretrainedEncoder : public PretrainedSample {
 protected:
  void expect(const Tensor& got, const char* name) const { expect_near(got, of(name), 1e-4, name); }
  // Results of the model, all that the reference has; the last is the one whose gradients it has.
  std::vector<std::pair<const char*, Tensor>> results() const {
    std::vector<std::pair<const char*, Tensor>> all;
    if (loaded.text_encoder) {
      const TextEncoder& m = *loaded.text_encoder;
      const Tensor padding = logical_not(of("mask").to(DType::boolean)), real = of("mask").to(DType::f32).unsqueeze(2);
      const Tensor h = m.hidden(of("tokens"), padding, m.spec().token_types > 0 ? of("types") : Tensor());
      all.emplace_back("hidden", h * real);
      if (has("pooled")) all.emplace_back("pooled", m.pooled(h));
      if (has("logits")) {
        const Tensor logits = m.logits(h);
        all.emplace_back("logits", logits.dim() == 3 ? logits * real : logits);
      }
    } else if (loaded.image_encoder) {
      const ImageEncoder& m = *loaded.image_encoder;
      if (has("wide_hidden")) all.emplace_back("wide_hidden", m.hidden(of("wide")));
      if (has("masked")) all.emplace_back("masked_hidden", m.hidden(of("pixels"), of("masked").to(DType::boolean)));
      const Tensor h = m.hidden(of("pixels"));
      if (has("pooled")) all.emplace_back("pooled", m.pooled(h));
      all.emplace_back("hidden", h);
      if (has("logits")) all.emplace_back("logits", m.logits(h));
    } else {
      const ContrastivePair& m = *loaded.pair;
      const Tensor text = m.text_vectors(of("tokens"), logical_not(of("mask").to(DType::boolean)));
      const Tensor image = m.image_vectors(of("pixels"));
      all = {{"text", text}, {"image", image}, {"scores", m.scores(text, image)}};
    }
    return all;
  }
};

TEST_P(PretrainedEncoder, GivesWhatTransformersGives) {
  const NoGrad guard;
  for (const auto& [name, tensor] : results()) expect(tensor, name);
}

TEST_P(PretrainedEncoder, Gradients) {
  const Tensor loss = (results().back().second * of("weights")).sum();
  EXPECT_NEAR(loss.item(), of("loss").item(), 1e-3 * std::abs(of("loss").item()) + 1e-3);
  loss.backward();
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, p] : loaded.module().named_parameters()) parameters.emplace(name, p);
  const io::WeightFiles files(loaded.folder);
  double scale = 0;
  for (const auto& [name, t] : reference)
    if (name.starts_with("grad.")) scale = std::max(scale, largest(t));
  size_t compared = 0;
  for (const WeightRow& row : loaded.family->weights(loaded.spec)) {
    if (row.repeats) continue;
    std::string name = row.name;
    if (!files.contains(name) && name.starts_with(loaded.family->base_prefix))
      name.erase(0, loaded.family->base_prefix.size());
    const auto want = reference.find("grad." + name);
    ASSERT_TRUE(want != reference.end()) << name;
    Tensor own = parameters.at(row.parameter).grad();
    if (!own.defined()) own = zeros_like(parameters.at(row.parameter).detach());
    own = row.view.of(own).contiguous().view(row.shape);
    // Sums that cancel (of keys' biases) are as exact as what they are of.
    EXPECT_LE(largest(own - want->second), 1e-3 * largest(want->second) + 1e-6 * scale) << name;
    ++compared;
  }
  EXPECT_GT(compared, 10u);
}

TEST_P(PretrainedEncoder, ConfigurationAsTheLibraryWritesIt) {
  const std::string path = (fs::path(loaded.folder) / "config.saved.json").string();
  const ConfigReader config(io::read_file(path), path);
  EXPECT_EQ(&family_of(config), loaded.family);
  const ModelSpec spec = read_spec(*loaded.family, config);
  EXPECT_TRUE(spec == loaded.spec) << to_string(spec) << "differs from\n" << to_string(loaded.spec);
}

TEST_P(PretrainedEncoder, TensorsAreGivenBack) {
  const io::WeightFiles files(loaded.folder);
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, p] : loaded.module().named_parameters()) parameters.emplace(name, p.detach());
  for (const WeightRow& row : loaded.family->weights(loaded.spec)) {
    if (row.repeats) continue;
    std::string name = row.name;
    if (!files.contains(name)) name.erase(0, loaded.family->base_prefix.size());
    EXPECT_TRUE(equal(row.view.of(parameters.at(row.parameter)).contiguous().view(row.shape), files.tensor(name)))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PretrainedEncoder,
                         testing::ValuesIn(samples_of({ModelKind::encoder, ModelKind::image_encoder, ModelKind::pair})),
                         sample_test_name);

}  // namespace
}  // namespace strata
