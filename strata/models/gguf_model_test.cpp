// Models written as GGUF files and read again.

#include "strata/models/gguf_model.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_files.h"
#include "strata/models/encoder_decoder.h"
#include "strata/models/export.h"
#include "strata/models/model_test_util.h"
#include "strata/nn/lora.h"
#include "strata/nn/packed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/text/pipeline/gguf_vocabulary.h"
#include "strata/text/pipeline_tokenizer.h"
#include "strata/text/tokenizer_folder.h"

namespace strata {
namespace {

struct Sample {
  const Family* family;
  ModelSpec spec;
  std::string name;
};

// Of the families that GGUF has a name for: its first sample, which the metadata can say.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const Family* family : families()) {
    if (family->kind != ModelKind::decoder || family->gguf.architectures.empty()) continue;
    for (const FamilySample& s : family->samples)
      all.push_back(
          {family, read_spec(*family, ConfigReader(s.config, "config.json")), cat(family->name, '-', s.name)});
  }
  return all;
}

// Why a file cannot say what a sample is; of all others it can.
const std::map<std::string, std::string_view> kRefused = {
    {"deepseek_v3-halves", "turn neighbours"},
    {"gpt2-scaled", "it would be read as"},
    {"gpt_neox-sequential", "it would be read as"},
    {"llama-dynamic", "follows the length"},
};

TEST(GgufModel, RoundTripsGiveTheSameModelOrAreRefused) {
  size_t refused = 0;
  for (const Sample& s : samples()) {
    SCOPED_TRACE(s.name);
    const io::TempDir dir;
    LanguageModel model(s.spec);
    model.eval();
    const std::string why =
        message<ValueError>([&] { save_gguf(model, *s.family, s.spec, dir / "x.gguf", {.type = "F32"}); });
    if (why != "no error") {
      ++refused;
      const auto known = kRefused.find(s.name);
      EXPECT_TRUE(known != kRefused.end() && why.find(known->second) != std::string::npos) << why;
      EXPECT_FALSE(io::find_gguf(dir / "x.gguf") != "");
      continue;
    }
    const Pretrained again = load_pretrained(dir / "x.gguf");
    // One architecture of GGUF is several families here, and a scaling may be said as another that is the same.
    EXPECT_EQ(again.spec.layers.size(), s.spec.layers.size());
    if (again.family == s.family && s.spec.rotary == again.spec.rotary) {
      EXPECT_EQ(to_string(again.spec), to_string(s.spec));
    }
    std::map<std::string, Tensor> want;
    for (const auto& [name, p] : model.named_parameters()) want.emplace(name, p);
    for (const auto& [name, p] : again.model->named_parameters()) {
      const Tensor difference = (p - want.at(name)).detach().abs().max();
      EXPECT_LE(difference.item(), s.family->name.starts_with("gemma") ? 1e-7 : 0) << name;  // 1 is added and taken off
    }
    const NoGrad guard;
    const Tensor tokens = stepping_tokens(2, 40, 5, s.spec.vocab);
    const Tensor got = again.model->forward(tokens), logits = model.forward(tokens);
    EXPECT_LE((got - logits).abs().max().item(), 1e-5 * logits.abs().max().item());
  }
  EXPECT_EQ(refused, kRefused.size());
}

// 0 for "none" is read, and not written: others divide by it.
TEST(GgufModel, NoCapIsALargeOne) {
  for (const Sample& s : samples()) {
    if (s.family->name != "gemma2" || s.spec.logit_soft_cap != 0) continue;
    const io::TempDir dir;
    const LanguageModel model(s.spec);
    save_gguf(model, *s.family, s.spec, dir / "x.gguf", {.type = "F32"});
    const io::WeightFiles files(dir / "x.gguf");
    const std::string key = "gemma2.final_logit_softcapping";
    EXPECT_GT(files.gguf()->number(key), 9e29);
    io::GgufMetadata m = *files.gguf();
    m.set(key, io::GgufValue::of(0.0f));
    std::vector<io::StoredItem> items;
    for (const io::WeightEntry& e : files.entries()) items.push_back({e.name, e.type, e.shape});
    io::GgufWriter out(dir / "zero.gguf", m, items);
    for (const io::StoredItem& item : items) out.write(files.tensor(item.name));
    out.commit();
    for (const char* name : {"x.gguf", "zero.gguf"})
      EXPECT_EQ(to_string(load_pretrained(dir / name).spec), to_string(s.spec)) << name;
    return;
  }
  FAIL() << "no sample of Gemma 2 without caps";
}

// The same model in three parts, with its vocabulary in the first: whichever is named.
TEST(GgufModel, InPartsIsTheSameModel) {
  const Sample s = samples().front();
  const io::TempDir dir, whole;
  LanguageModel model(s.spec);
  save_gguf(model, *s.family, s.spec, whole / "x.gguf", {.type = "F32"});
  const io::WeightFiles files(whole / "x.gguf");
  const size_t n = files.entries().size();
  const auto part = [&](size_t i) { return dir / cat("x-0000", i + 1, "-of-00003.gguf"); };
  for (size_t i = 0; i < 3; ++i) {
    io::GgufMetadata m;
    if (i == 0) m = *files.gguf();
    m.set("split.no", io::GgufValue::of(static_cast<uint16_t>(i)));
    m.set("split.count", io::GgufValue::of(uint16_t{3}));
    m.set("split.tensors.count", io::GgufValue::of(static_cast<int32_t>(n)));
    std::vector<io::StoredItem> items;
    for (size_t e = n * i / 3; e < n * (i + 1) / 3; ++e)
      items.push_back({files.entries()[e].name, files.entries()[e].type, files.entries()[e].shape});
    io::GgufWriter out(part(i), m, items);
    for (const io::StoredItem& item : items) out.write(files.tensor(item.name));
    out.commit();
  }
  for (const std::string& named : {part(0), part(2), dir.path()}) {
    const Pretrained again = load_pretrained(named);
    EXPECT_EQ(to_string(again.spec), to_string(load_pretrained(whole / "x.gguf").spec));
    const auto got = again.model->named_parameters();
    const auto want = model.named_parameters();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(equal(got[i].second, want[i].second)) << want[i].first;
  }
}

// T5 as llama.cpp names it; its distance of relative positions is 128 there.
TEST(GgufModel, EncoderDecoders) {
  const Family& family = family_named("t5");
  nlohmann::json gated = nlohmann::json::parse(family.samples[1].config);
  const auto spec_of = [&](const std::string& config) {
    return read_spec(family, ConfigReader(config, "config.json"));
  };
  const ModelSpec far = spec_of(gated.dump());
  gated["relative_attention_max_distance"] = 128;
  for (const ModelSpec& spec : {spec_of(std::string(family.samples[0].config)), spec_of(gated.dump())}) {
    const io::TempDir dir;
    EncoderDecoder model(spec);
    model.eval();
    save_gguf(model, family, spec, dir / "x.gguf");
    const Pretrained again = load_pretrained(dir / "x.gguf");
    EXPECT_EQ(again.family, &family);
    EXPECT_EQ(to_string(again.spec), to_string(spec));
    const NoGrad guard;
    const Tensor source = stepping_tokens(2, 40, 5, spec.parts[0].vocab),
                 tokens = stepping_tokens(2, 9, 3, spec.parts[1].vocab);
    EXPECT_EQ((again.encoder_decoder->forward(source, tokens) - model.forward(source, tokens)).abs().max().item(), 0);
    save_gguf(again, dir / "y.gguf");
    EXPECT_EQ(io::read_file(dir / "y.gguf"), io::read_file(dir / "x.gguf"));
    const io::WeightFiles files(dir / "x.gguf");
    const bool gates = spec.parts[0].layers[0].feed_forward.gated;
    EXPECT_EQ(files.find("enc.blk.0.ffn_gate.weight") != nullptr, gates);
    EXPECT_EQ(files.find("output.weight") != nullptr, !spec.parts[1].tied);
    EXPECT_EQ(files.entry("dec.blk.0.attn_rel_b.weight").shape,
              Shape({spec.parts[1].relative->buckets, spec.parts[1].layers[0].attention.heads}));
    EXPECT_EQ(files.gguf()->integer("t5.decoder_start_token_id"), 0);
    EXPECT_EQ(files.gguf()->number("t5.attention.layer_norm_rms_epsilon"),
              files.gguf()->number("t5.attention.layer_norm_epsilon"));
    save_gguf(model, family, spec, dir / "z.gguf", {.type = "Q8_0"});
    EXPECT_EQ(io::WeightFiles(dir / "z.gguf").entry("enc.blk.0.attn_rel_b.weight").type->name, "F32");
    const Tensor low = load_pretrained(dir / "z.gguf", {.dtype = DType::f32}).encoder_decoder->forward(source, tokens);
    const Tensor want = model.forward(source, tokens);
    EXPECT_LE((low - want).abs().max().item(), 0.05 * want.abs().max().item());
  }
  const io::TempDir dir;
  const std::string why = message<ValueError>([&] { save_gguf(EncoderDecoder(far), family, far, dir / "x.gguf"); });
  EXPECT_NE(why.find("16 buckets to 128"), std::string::npos) << why;
  const Family& whisper = family_named("whisper");
  const ModelSpec hears = read_spec(whisper, ConfigReader(whisper.samples[0].config, "config.json"));
  const std::string no = message<ValueError>([&] { save_gguf(EncoderDecoder(hears), whisper, hears, dir / "x.gguf"); });
  EXPECT_NE(no.find("no name for models of Whisper"), std::string::npos) << no;
  // Texts that begin otherwise than a file says.
  const ModelSpec spec = spec_of(std::string(family.samples[0].config));
  Pretrained other = make_module(spec);
  other.family = &family, other.spec = spec, other.config = R"({"decoder_start_token_id": 2})";
  EXPECT_NE(message<ValueError>([&] { save_gguf(other, dir / "x.gguf"); }).find("decoder_start_token_id"),
            std::string::npos);
}

TEST(GgufModel, MatricesAreOfTheTypeThatIsAskedFor) {
  const io::TempDir dir;
  const Family& family = family_named("llama");
  const ModelSpec spec = read_spec(family, ConfigReader(family.samples.front().config, "config.json"));
  const LanguageModel model(spec);
  for (const char* type : {"F16", "BF16", "Q8_0", "Q4_0"}) {
    const std::string path = dir / type;
    save_gguf(model, family, spec, path, {.type = type});
    const io::WeightFiles files(path);
    EXPECT_EQ(files.entry("blk.0.attn_q.weight").type->name, type);
    EXPECT_EQ(files.entry("blk.0.attn_norm.weight").type->name, "F32");
    const NoGrad guard;
    const Tensor tokens = stepping_tokens(1, 9, 5, spec.vocab);
    const Tensor got = load_pretrained(path, {.dtype = DType::f32}).model->forward(tokens),
                 want = model.forward(tokens);
    const double share = std::string_view(type) == "Q4_0" ? 0.3 : 0.05;
    EXPECT_LE((got - want).abs().max().item(), share * want.abs().max().item()) << type;
  }
  EXPECT_THROW(save_gguf(model, family, spec, dir / "x", {.type = "Q2_K"}), ValueError);
}

TEST(GgufModel, KeysThatAreNotKnownAreRefused) {
  const io::TempDir dir;
  const Family& family = family_named("llama");
  const ModelSpec spec = read_spec(family, ConfigReader(family.samples.front().config, "config.json"));
  save_gguf(LanguageModel(spec), family, spec, dir / "x", {.type = "F32"});
  const io::WeightFiles files(dir / "x");
  const auto with = [&](const std::string& key, const io::GgufValue& value) {
    io::GgufMetadata m = *files.gguf();
    m.set(key, value);
    std::vector<io::StoredItem> items;
    for (const io::WeightEntry& e : files.entries()) items.push_back({e.name, e.type, e.shape});
    io::GgufWriter out(dir / "y", m, items);
    for (const io::StoredItem& item : items) out.write(files.tensor(item.name));
    out.commit();
    return message<Error>([&] { load_pretrained(dir / "y"); });
  };
  EXPECT_EQ(with("general.name", io::GgufValue::of("gpt2")), "no error");
  EXPECT_NE(with("tokenizer.ggml.model", io::GgufValue::of("gpt2")).find("tokenizer.ggml.tokens"), std::string::npos);
  EXPECT_NE(with("llama.logit_scale", io::GgufValue::of(2.0F)).find("key llama.logit_scale of the metadata is not"),
            std::string::npos);
  EXPECT_NE(with("llama.expert_count", io::GgufValue::of(uint32_t{8})).find("llama.expert_used_count is missing"),
            std::string::npos);
  EXPECT_NE(with("llama.attention.sliding_window_pattern", io::GgufValue::of(std::vector<bool>{true}))
                .find("sliding_window_pattern"),
            std::string::npos);
  EXPECT_NE(with("llama.rope.dimension_count", io::GgufValue::of(uint32_t{7})).find("partial_rotary_factor"),
            std::string::npos);
  EXPECT_NE(with("general.architecture", io::GgufValue::of("mamba")).find("'mamba' names no family"),
            std::string::npos);
  EXPECT_NE(with("llama.rope.scaling.type", io::GgufValue::of("dynamic")).find("linear and yarn"), std::string::npos);
  EXPECT_NE(with("llama.block_count", io::GgufValue::of("two")).find("an integer is wanted"), std::string::npos);
  EXPECT_NE(with("llama.attention.value_length", io::GgufValue::of(uint32_t{3})).find("value_length"),
            std::string::npos);
  io::save_safetensors(dir / "z", io::TensorMap{});
  EXPECT_THROW(load_pretrained(dir / "z"), IoError);
}

// The 256 bytes as byte-level BPE spells them: printable ones as they are, the others from U+0100 on.
std::vector<std::string> byte_letters() {
  std::vector<std::string> all;
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    const int point = printable ? b : next++;
    std::string letter(1, static_cast<char>(point));
    if (point >= 128) letter = {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
    all.push_back(letter);
  }
  return all;
}

// A model of 256 columns, so that every type's blocks divide its rows, with a tokenizer in its folder.
class GgufFiles : public testing::Test {
 protected:
  GgufFiles() : family(family_named("llama")), spec(read_spec(family, ConfigReader(kConfig, "config.json"))) {
    manual_seed(3);
    model = std::make_shared<LanguageModel>(spec);
    save_pretrained(*model, family, spec, folder());
    const nlohmann::json tokenizer = text::tokenizer_json({.model = "gpt2",
                                                           .pre = "qwen2",
                                                           .tokens = tokens(),
                                                           .token_types = types(),
                                                           .merges = {"t h", "th e"},
                                                           .bos = 256,
                                                           .eos = 257,
                                                           .add_bos = true});
    io::write_file(folder() + "/tokenizer.json", tokenizer.dump());
    io::write_file(folder() + "/tokenizer_config.json",
                   R"({"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<s>"})");
    io::write_file(folder() + "/chat_template.jinja", "{{ messages[0].content }}");
    io::write_file(folder() + "/generation_config.json",
                   R"({"eos_token_id": [257, 258], "do_sample": true, "temperature": 0.5, "top_k": 7})");
  }
  static std::vector<std::string> tokens() {
    std::vector<std::string> all = byte_letters();
    for (const char* more : {"<s>", "<|im_end|>", "<|end|>", "th", "the"}) all.emplace_back(more);
    return all;
  }
  static std::vector<int32_t> types() {
    std::vector<int32_t> all(256, 1);
    for (const int32_t type : {3, 3, 3, 1, 1}) all.push_back(type);
    return all;
  }
  std::string folder() const { return dir / "folder"; }
  Tensor logits(const LanguageModel& m) const {
    const NoGrad guard;
    return m.forward(stepping_tokens(1, 30, 7, spec.vocab));
  }

  static constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 256,
      "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "max_position_embeddings": 128, "bos_token_id": 256})";
  static constexpr const char* kText = "The others bathe there; it's 12345 o'clock<|im_end|> \xc3\xa4 \n\n x";
  io::TempDir dir;
  const Family& family;
  ModelSpec spec;
  std::shared_ptr<LanguageModel> model;
};

TEST_F(GgufFiles, HoldTheTokenizerAndAllThatStandsBesideIt) {
  const Pretrained loaded = load_pretrained(folder());
  save_gguf(loaded, dir / "x.gguf");
  const auto check = [&](const std::string& path) {
    SCOPED_TRACE(path);
    const text::TokenizerFolder want = text::load_tokenizer_folder(folder()), got = text::load_tokenizer_folder(path);
    const auto& a = dynamic_cast<const text::PipelineTokenizer&>(*want.tokenizer);
    const auto& b = dynamic_cast<const text::PipelineTokenizer&>(*got.tokenizer);
    EXPECT_EQ(b.encode(kText, text::EncodeOptions{}), a.encode(kText, text::EncodeOptions{}));
    EXPECT_EQ(b.encode(kText), a.encode(kText));
    EXPECT_EQ(b.decode(a.encode(kText)), kText);
    EXPECT_EQ(got.named, want.named);
    EXPECT_EQ(got.chat_template, want.chat_template);
    const Pretrained p = load_pretrained(path);
    const auto generation = nlohmann::json::parse(p.generation_config);
    EXPECT_EQ(generation.at("eos_token_id"), nlohmann::json::parse("[257, 258]"));
    EXPECT_EQ(generation.at("temperature"), 0.5);
    EXPECT_EQ(generation.at("top_k"), 7);
    EXPECT_TRUE(equal(logits(*p.model), logits(*loaded.model)));
  };
  check(dir / "x.gguf");
  const io::WeightFiles files(dir / "x.gguf");
  EXPECT_EQ(files.gguf()->texts("tokenizer.ggml.tokens").size(), 300u);  // a token for each row
  EXPECT_EQ(files.gguf()->integer("tokenizer.ggml.eot_token_id"), 258);
  // And back to a folder, and of a folder that holds the file alone.
  save_pretrained(load_pretrained(dir / "x.gguf"), dir / "back");
  check(dir / "back");
  const io::WeightFiles first(folder()), back(dir / "back");
  for (const io::WeightEntry& e : first.entries()) EXPECT_EQ(bits(back.tensor(e.name)), bits(first.tensor(e.name)));
  io::make_directories(dir / "alone");
  std::filesystem::copy(dir / "x.gguf", dir / "alone/y.gguf");
  check(dir / "alone");
  // Alone without a tokenizer.
  save_gguf(*model, family, spec, dir / "bare.gguf");
  EXPECT_FALSE(text::has_tokenizer(dir / "bare.gguf"));
  // llama.cpp wants the key.
  EXPECT_EQ(io::WeightFiles(dir / "bare.gguf").gguf()->text("tokenizer.ggml.model"), "none");
  EXPECT_TRUE(load_pretrained(dir / "bare.gguf").generation_config.empty());
  EXPECT_NE(message<IoError>([&] { text::load_tokenizer_folder(dir / "bare.gguf"); }).find("tokenizer.ggml.model"),
            std::string::npos);
}

TEST_F(GgufFiles, AreOfEachTypeAndKeepTheirBytes) {
  const Tensor want = logits(*model);
  const std::map<std::string_view, std::pair<const char*, double>> types = {
      {"F32", {"F32", 1e-5}},   {"F16", {"F16", 0.005}},  {"BF16", {"BF16", 0.03}}, {"Q8_0", {"Q8_0", 0.03}},
      {"Q6_K", {"Q6_K", 0.08}}, {"Q5_K", {"Q6_K", 0.15}}, {"Q4_K", {"Q6_K", 0.25}}, {"Q4_0", {"Q6_K", 0.35}}};
  ASSERT_EQ(types.size(), gguf_types().size());
  for (const std::string_view type : gguf_types()) {
    SCOPED_TRACE(type);
    const auto& [head, share] = types.at(type);
    const std::string path = dir / cat(type, ".gguf"), again = dir / cat(type, "-again.gguf");
    save_gguf(*model, family, spec, path, {.type = std::string(type), .companions = folder(), .name = "Mine"});
    const io::WeightFiles files(path);
    EXPECT_EQ(files.entry("blk.1.ffn_down.weight").type->name, type);
    EXPECT_EQ(files.entry("token_embd.weight").type->name, type);
    EXPECT_EQ(files.entry("output.weight").type->name, head);
    EXPECT_EQ(files.entry("output_norm.weight").type->name, "F32");
    EXPECT_EQ(files.gguf()->text("general.name"), "Mine");
    const Pretrained packed = load_pretrained(path, {.dtype = DType::f32});
    const Pretrained plain = load_pretrained(path, {.dtype = DType::f32, .keep_packed = false});
    size_t kept = 0;
    for (const auto& [name, part] : packed.model->named_modules()) kept += nn::is_packed(part) ? 1 : 0;
    EXPECT_EQ(kept > 0, type.starts_with('Q'));
    for (const auto& [name, part] : plain.model->named_modules()) EXPECT_FALSE(nn::is_packed(part)) << name;
    const double most = want.abs().max().item();
    EXPECT_LE((logits(*plain.model) - want).abs().max().item(), share * most);
    EXPECT_LE((logits(*packed.model) - logits(*plain.model)).abs().max().item(), 0.02 * most);
    for (const Pretrained* loaded : {&packed, &plain}) {
      save_gguf(*loaded, again);
      EXPECT_EQ(io::read_file(again), io::read_file(path));
    }
    // A tensor that was changed is written as what it is now.
    const NoGrad guard;
    Tensor row = plain.model->token_embedding.weight.narrow(0, 5, 1);
    row.fill_(0.25);
    save_gguf(plain, again);
    const io::WeightFiles changed(again);
    EXPECT_LE((changed.rows("token_embd.weight", 5, 1).to(DType::f32) - 0.25).abs().max().item(), 0.02);
    EXPECT_EQ(bits(changed.bytes("blk.0.attn_q.weight")), bits(files.bytes("blk.0.attn_q.weight")));
  }
}

// Types that are read, not made: matrices with a format stay packed, in those or in other codes, the others become
// numbers; and they are written again byte for byte.
TEST_F(GgufFiles, OfTypesThatOthersMakeAreRead) {
  save_gguf(*model, family, spec, dir / "plain.gguf", {.type = "F32", .companions = folder()});
  const io::WeightFiles plain(dir / "plain.gguf");
  constexpr std::string_view kTypes[] = {"Q5_0", "IQ4_NL", "MXFP4", "Q4_1", "Q5_1", "Q3_K", "IQ4_XS", "Q2_K"};
  std::map<std::string, std::string_view> type_of;
  std::vector<io::StoredItem> items;
  for (const io::WeightEntry& e : plain.entries()) {
    items.push_back({e.name, e.type, e.shape});
    if (e.shape.size() != 2 || e.name.find("blk.") != 0) continue;
    // Those of q, k and v that are one matrix here get types of one format.
    const io::StoredType* type = io::find_stored_type(kTypes[type_of.size() % std::size(kTypes)]);
    if (e.name.find("attn_") != std::string::npos) type = io::find_stored_type(e.name.find("_q.") == std::string::npos ? "IQ4_NL" : "Q5_0");
    if (e.shape[1] % type->block != 0) type = io::find_stored_type("MXFP4");
    items.back().type = type;
    type_of[e.name] = type->name;
  }
  io::GgufWriter out(dir / "x.gguf", *plain.gguf(), items);
  std::mt19937 draw(5);
  for (const io::StoredItem& item : items) {
    if (!type_of.contains(item.name)) {
      out.write(plain.tensor(item.name));
      continue;
    }
    const auto block = static_cast<size_t>(item.type->block_bytes);
    std::string bytes(static_cast<size_t>(*io::stored_bytes(*item.type, item.shape)), '\0');
    for (char& c : bytes) c = static_cast<char>(draw());
    for (size_t at = 0; at < bytes.size(); at += block) {  // small scales, wherever they are
      const auto scale = [&](size_t place) { bytes[at + place] = '\x10'; };
      if (item.type->name == "MXFP4") bytes[at] = 118;
      else if (item.type->name == "Q3_K") scale(109);
      else if (item.type->name == "Q2_K") scale(81), scale(83);
      else scale(1), scale(item.type->name.ends_with("_1") ? 3 : 1);
    }
    out.write_bytes(std::as_bytes(std::span(bytes)));
  }
  out.commit();
  const Pretrained packed = load_pretrained(dir / "x.gguf", {.dtype = DType::f32});
  const Pretrained numbers = load_pretrained(dir / "x.gguf", {.dtype = DType::f32, .keep_packed = false});
  size_t kept = 0;
  for (const auto& [name, part] : packed.model->named_modules()) {
    kept += nn::is_packed(part) ? 1 : 0;
    EXPECT_TRUE(nn::is_packed(part) || !name.ends_with("attn.qkv")) << name;
  }
  EXPECT_GE(kept, 4U);
  const Tensor want = logits(*numbers.model);
  EXPECT_TRUE(std::isfinite(want.abs().max().item()));
  EXPECT_LE((logits(*packed.model) - want).abs().max().item(), 1e-4 * want.abs().max().item());
  for (const Pretrained* loaded : {&packed, &numbers}) {
    save_gguf(*loaded, dir / "again.gguf");
    const io::WeightFiles files(dir / "x.gguf"), again(dir / "again.gguf");
    for (const io::WeightEntry& e : files.entries()) {
      EXPECT_EQ(again.entry(e.name).type, e.type) << e.name;
      EXPECT_TRUE(bits(again.bytes(e.name)) == bits(files.bytes(e.name))) << e.name;
    }
  }
}

// As llama.cpp's Q4_K_M has it: v of more bits than q and k, with which it is one matrix here. They stay packed, each in
// its format, also through a state; adapters and what is written see the same numbers.
TEST_F(GgufFiles, MatricesOfSeveralFormatsAreOneLayer) {
  save_gguf(*model, family, spec, dir / "four.gguf", {.type = "Q4_K", .companions = folder()});
  save_gguf(*model, family, spec, dir / "six.gguf", {.type = "Q6_K", .companions = folder()});
  const io::WeightFiles four(dir / "four.gguf"), six(dir / "six.gguf");
  const auto source = [&](const std::string& name) -> const io::WeightFiles& {
    return name == "blk.0.attn_v.weight" || name == "blk.1.attn_q.weight" ? six : four;
  };
  std::vector<io::StoredItem> items;
  for (const io::WeightEntry& e : four.entries()) items.push_back({e.name, source(e.name).entry(e.name).type, e.shape});
  io::GgufWriter out(dir / "x.gguf", *four.gguf(), items);
  for (const io::StoredItem& item : items) {
    const Tensor bytes = source(item.name).bytes(item.name);
    out.write_bytes({static_cast<const std::byte*>(bytes.raw_data()), static_cast<size_t>(bytes.numel())});
  }
  out.commit();

  const Pretrained packed = load_pretrained(dir / "x.gguf", {.dtype = DType::f32});
  const Pretrained numbers = load_pretrained(dir / "x.gguf", {.dtype = DType::f32, .keep_packed = false});
  const auto layer = [](const Pretrained& p, const std::string& name) {
    for (const auto& [n, part] : p.model->named_modules())
      if (n == name) return part;
    throw ValueError("test", name);
  };
  const auto formats = [&](const std::string& name) {
    std::string all;
    for (const PackedWeight& w : nn::packed_weights(layer(packed, name))) all += cat(w.format->name, ' ', w.rows, ' ');
    return all;
  };
  EXPECT_EQ(formats("blocks.0.attn.qkv"), "q4_k 256 q4_k 128 q6_k 128 ");
  EXPECT_EQ(formats("blocks.1.attn.qkv"), "q6_k 256 q4_k 128 q4_k 128 ");
  const nn::Module qkv = layer(packed, "blocks.0.attn.qkv");
  EXPECT_TRUE(equal(nn::dense_weight(nn::packed_weights(qkv)), layer(numbers, "blocks.0.attn.qkv").parameter("weight")));
  EXPECT_THROW(nn::packed_weight(qkv), ValueError);
  const Tensor want = logits(*numbers.model);
  EXPECT_LE((logits(*packed.model) - want).abs().max().item(), 1e-4 * want.abs().max().item());

  // Written again, and through a state.
  save_gguf(packed, dir / "again.gguf");
  const io::WeightFiles files(dir / "x.gguf"), again(dir / "again.gguf");
  for (const io::WeightEntry& e : files.entries())
    EXPECT_TRUE(bits(again.bytes(e.name)) == bits(files.bytes(e.name))) << e.name;
  LanguageModel other(spec);
  const nn::StateDict state = packed.model->state_dict();
  EXPECT_TRUE(state.contains("blocks.0.attn.qkv.weight.2.q6_k.codes"));
  nn::pack_from_state(other, state);
  other.load_state_dict(state);
  other.eval();
  EXPECT_TRUE(equal(logits(other), logits(*packed.model)));
  nn::StateDict lacks = state;
  std::erase_if(lacks, [](const auto& item) { return item.first.find("qkv.weight.1.") != std::string::npos; });
  EXPECT_THROW(nn::pack_from_state(LanguageModel(spec), lacks), ValueError);

  // Adapters on it, and numbers again.
  const nn::Lora lora(qkv, {{.of = {"v_proj", 384, 128}, .rank = 2, .alpha = 4}}, {.dora = true});
  EXPECT_EQ(lora.parts()[0].magnitude.shape(), Shape{128});
  nn::unpack_linear(layer(packed, "blocks.1.attn.qkv"));
  EXPECT_TRUE(equal(layer(packed, "blocks.1.attn.qkv").parameter("weight"),
                    layer(numbers, "blocks.1.attn.qkv").parameter("weight")));
}

// Rows that blocks do not divide, and what stays exact.
TEST(GgufModel, TypesFitTheRows) {
  const io::TempDir dir;
  const Family& family = family_named("qwen3_moe");
  const ModelSpec spec = read_spec(family, ConfigReader(family.samples.front().config, "config.json"));
  save_gguf(LanguageModel(spec), family, spec, dir / "x.gguf", {.type = "Q4_K"});
  const io::WeightFiles files(dir / "x.gguf");
  const auto type = [&](const char* name) { return files.entry(name).type->name; };
  EXPECT_EQ(type("blk.0.attn_q.weight"), "Q8_0");        // rows of 64
  EXPECT_EQ(type("blk.0.ffn_down_exps.weight"), "F16");  // of 24
  EXPECT_EQ(type("blk.0.ffn_gate_inp.weight"), "F32");   // routers
  EXPECT_EQ(type("blk.0.attn_q_norm.weight"), "F32");
}

}  // namespace
}  // namespace strata
