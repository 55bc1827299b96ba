// The fuzz target of a folder's settings over every family's samples.

#include "strata/core/fuzz_test_util.h"

#include "strata/models/family_fuzz.cpp"

namespace strata {
namespace {

TEST(FamilyFuzz, Configs) {
  std::vector<std::string> corpus;
  for (const Family* family : families())
    for (const FamilySample& sample : family->samples) corpus.emplace_back(sample.config);
  fuzz::run(&LLVMFuzzerTestOneInput, corpus, 3000);
}

TEST(FamilyFuzz, OtherSettings) {
  fuzz::run(&LLVMFuzzerTestOneInput,
            {R"({"do_sample": true, "temperature": 0.5, "top_k": 40, "top_p": 0.9, "eos_token_id": [1, 2],
                 "stop_strings": ["a", "b"], "bad_words_ids": [[3]], "sequence_bias": [[[4], -1.5]], "max_length": 20})",
             R"({"decoder_start_token_id": 7, "forced_decoder_ids": [[1, null], [2, 5]],
                 "lang_to_id": {"<|de|>": 20, "<|en|>": 21}, "task_to_id": {"transcribe": 5, "translate": 6},
                 "no_timestamps_token_id": 9, "suppress_tokens": [1, 2], "begin_suppress_tokens": [3]})",
             R"({"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 30, "feature_size": 80,
                 "hop_length": 160, "n_fft": 400, "sampling_rate": 16000, "dither": 0.0})",
             R"({"image_processor_type": "CLIPImageProcessor", "do_resize": true, "size": {"shortest_edge": 224},
                 "resample": 3, "do_center_crop": true, "crop_size": {"height": 224, "width": 224},
                 "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
                 "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "do_convert_rgb": true})"},
            3000);
}

}  // namespace
}  // namespace strata
