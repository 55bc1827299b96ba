// Low-bit weights as other programs store them: packed_files.json (make_packed_files.py) has what those wrote and
// decode.
#include "strata/models/packed_files.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/io/stored_type.h"
#include "strata/nn/layers.h"
#include "strata/nn/packed.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/lowbit/lowbit_samples_inl.h"
#include "strata/ops/random/random.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using nlohmann::json;

std::string from_base64(const std::string& text) {
  const std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    if ((have += 6) >= 8) out.push_back(static_cast<char>(bits >> (have -= 8) & 255));
  }
  return out;
}
Tensor tensor_of(const json& piece) {
  Shape shape;
  for (const int64_t n : piece.at("shape")) shape.push_back(n);
  const Tensor t = empty({shape, parse_dtype(piece.at("dtype").get<std::string>()), Device::cpu(), std::nullopt});
  const std::string bytes = from_base64(piece.at("base64").get<std::string>());
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), t.nbytes());
  std::memcpy(t.raw_data(), bytes.data(), std::min(bytes.size(), static_cast<size_t>(t.nbytes())));
  return t;
}
std::string bytes_of(const Tensor& t) {
  const Tensor dense = t.contiguous();
  return {static_cast<const char*>(dense.raw_data()), static_cast<size_t>(dense.nbytes())};
}
// FNV-1a over the numbers' bits, -0 as 0.
std::string hash_of(const std::vector<float>& numbers) {
  uint64_t h = 0xcbf29ce484222325;
  for (float v : numbers) {
    v += 0.0f;
    uint8_t bytes[4];
    std::memcpy(bytes, &v, 4);
    for (const uint8_t b : bytes) h = (h ^ b) * 0x100000001b3;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}
const json& cases() {
  static const json all = [] {
    const char* root = std::getenv("STRATA_SOURCE_DIR");
    return json::parse(io::read_file(std::string(root ? root : ".") + "/strata/models/packed_files.json"));
  }();
  return all;
}
PackedScheme scheme_of(const json& c) {
  return *packed_scheme(json{{"quantization_config", c.at("config")}}.dump(), "config.json");
}
PackedPieces pieces_of(const json& c) {
  PackedPieces pieces;
  for (const auto& [name, piece] : c.at("pieces").items()) pieces.emplace(name, tensor_of(piece));
  return pieces;
}

TEST(PackedFiles, DecodeToTheNumbersOfTheProgramsThatWroteThemAndAreGivenBackByteForByte) {
  ASSERT_GT(cases().size(), 14U);
  for (const json& c : cases()) {
    const std::string name = c.at("name").get<std::string>();
    PackedScheme scheme = scheme_of(c);
    const PackedPieces pieces = pieces_of(c);
    EXPECT_TRUE(is_packed_layer(scheme, pieces)) << name;
    const PackedWeight w = read_packed(scheme, pieces, name);
    const std::vector<float> numbers = dequantize_weight(w).to_vector<float>();
    for (size_t i = 0; i < c.at("first").size(); ++i) EXPECT_EQ(numbers[i], c.at("first")[i].get<float>()) << name;
    EXPECT_EQ(Shape({w.rows, w.columns}).product(), static_cast<int64_t>(numbers.size()));
    EXPECT_EQ(hash_of(numbers), c.at("fnv1a").get<std::string>()) << name;
    if (scheme.file->quant_method == "bitsandbytes") scheme.storage_dtype = "float32";  // of the matrix that was packed
    const PackedPieces back = write_packed(scheme, w, name);
    EXPECT_EQ(back.size(), pieces.size()) << name;
    for (const auto& [piece, t] : pieces) {
      const auto found = back.find(piece);
      ASSERT_TRUE(found != back.end()) << name << " " << piece;
      EXPECT_EQ(found->second.dtype(), t.dtype()) << name << " " << piece;
      EXPECT_EQ(found->second.shape(), t.shape()) << name << " " << piece;
      EXPECT_EQ(bytes_of(found->second), bytes_of(t)) << name << " " << piece;
    }
  }
}

TEST(PackedFiles, ConfigsAreReadBackAsTheSameScheme) {
  for (const json& c : cases()) {
    const PackedScheme a = scheme_of(c);
    const PackedScheme b =
        *packed_scheme(json{{"quantization_config", json::parse(packed_config(a))}}.dump(), "config.json");
    EXPECT_EQ(a.file, b.file);
    EXPECT_EQ(std::tie(a.bits, a.group_size, a.block_rows, a.zero_offset, a.act_order, a.storage_dtype),
              std::tie(b.bits, b.group_size, b.block_rows, b.zero_offset, b.act_order, b.storage_dtype))
        << c.at("name");
    EXPECT_EQ(a.symmetric, b.symmetric) << c.at("name");
  }
  EXPECT_FALSE(packed_scheme("{}", "config.json").has_value());
  EXPECT_FALSE(packed_scheme(R"({"quantization_config": null})", "config.json").has_value());
}

TEST(PackedFiles, SettingsThatAreNotKnownAreRefusedByName) {
  const auto refused = [](const char* config, std::string_view text) {
    const std::string got =
        message([&] { packed_scheme(cat(R"({"quantization_config": )", config, "}"), "dir/config.json"); });
    EXPECT_NE(got.find(text), std::string::npos) << got;
    EXPECT_NE(got.find("dir/config.json"), std::string::npos) << got;
  };
  refused(R"({"quant_method": "hqq"})", "gptq, awq, compressed-tensors, fp8, bitsandbytes");
  refused(R"({})", "quant_method is absent");
  refused(R"([])", "is no object");
  refused(R"({"quant_method": "gptq", "bits": 3})", "bits is 3, wants 4 or 8");
  refused(R"({"quant_method": "gptq", "bits": 4, "group_size": 48})", "group_size is 48");
  refused(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})", "checkpoint_format is \"marlin\"");
  refused(R"({"quant_method": "gptq", "bits": 4, "surprise": 1})", "surprise (1) is not known");
  refused(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"a": 1}})", "dynamic is {\"a\":1}, wants nothing");
  refused(R"({"quant_method": "awq", "bits": 4, "version": "gemv"})", "version is \"gemv\"");
  refused(R"({"quant_method": "fp8"})", "weight_block_size is absent");
  refused(R"({"quant_method": "bitsandbytes", "load_in_8bit": true})", "load_in_8bit is true");
  refused(R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "fp4"})",
          "quant_type is \"fp4\"");
  refused(R"({"quant_method": "compressed-tensors", "format": "marlin-24"})",
          "wants pack-quantized, int-quantized, float-quantized");
  refused(R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": {}, "b": {}}})",
          "one group");
  refused(R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": {"weights": )"
          R"({"num_bits": 2}}}})",
          "config_groups.a.weights.num_bits is 2");
  EXPECT_NE(message([] { packed_scheme("{", "x/config.json"); }).find("x/config.json"), std::string::npos);
}

TEST(PackedFiles, PiecesThatDoNotFitAreRefusedWithTheLayersName) {
  for (const json& c : cases()) {
    const PackedScheme scheme = scheme_of(c);
    const PackedPieces pieces = pieces_of(c);
    const auto refused = [&](const PackedPieces& given, std::string_view what) {
      const std::string got = message([&] { read_packed(scheme, given, "layers.3.q"); });
      EXPECT_NE(got.find("layers.3.q"), std::string::npos) << c.at("name") << what << got;
    };
    for (const PackedPiece& p : scheme.file->pieces) {
      if (!pieces.contains(p.suffix)) continue;
      PackedPieces given = pieces;
      Tensor& t = given.find(p.suffix)->second;
      const Tensor whole = t;
      if (p.required) {
        given.erase(given.find(p.suffix));
        EXPECT_FALSE(is_packed_layer(scheme, given));
        refused(given, " missing ");
        given.emplace(p.suffix, whole);
      }
      given.find(p.suffix)->second = whole.to(DType::f64);
      if (p.suffix.find("scale") == std::string_view::npos || scheme.file->pieces.size() != 3) refused(given, " f64 ");
      if (whole.dim() == 0) continue;
      Shape longer = whole.shape();
      longer[0] += 1;
      given.find(p.suffix)->second = zeros(longer, whole.dtype());
      // One more row of codes is none too many where a block has it, or one scale is for all.
      if (p.suffix != "weight" || scheme.block_rows == 1) refused(given, " longer ");
      given.find(p.suffix)->second = whole.narrow(0, 0, 0);
      refused(given, " empty ");
    }
    PackedPieces more = pieces;
    more.emplace("surprise", zeros({1}));
    refused(more, " unknown ");
  }
  // Columns that are not in groups of one size.
  PackedPieces pieces = pieces_of(cases()[1]);
  pieces.find("g_idx")->second = zeros({64}, DType::i32);
  EXPECT_NE(message([&] { read_packed(scheme_of(cases()[1]), pieces, "q"); }).find("into group 0"), std::string::npos);
}

TEST(PackedFiles, MutatedPiecesAreReadOrRefused) {
  // Bytes of every piece, and its sizes, changed at random: an error or a weight, nothing else.
  fuzz::Rounds round(3000);
  const auto next = [&](uint64_t below) { return round.random() % below; };
  int read = 0, refused = 0;
  while (round.next()) {
    const json& c = cases()[next(cases().size())];
    PackedPieces pieces = pieces_of(c);
    auto at = pieces.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(next(pieces.size())));
    Tensor& t = at->second;
    for (uint64_t i = 0; i <= next(4) && t.numel() > 0; ++i)
      static_cast<uint8_t*>(t.raw_data())[next(static_cast<uint64_t>(t.nbytes()))] = static_cast<uint8_t>(next(256));
    if (next(8) == 0 && t.dim() > 0 && t.size(0) > 1) t = t.narrow(0, 0, t.size(0) - 1);
    try {
      const PackedWeight w = read_packed(scheme_of(c), pieces, "layer");
      dequantize_weight(w);
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

TEST(PackedFiles, MutatedConfigsAreReadOrRefused) {
  fuzz::Rounds round(20000);
  const auto next = [&](uint64_t below) { return round.random() % below; };
  while (round.next()) {
    std::string text = json{{"quantization_config", cases()[next(cases().size())].at("config")}}.dump();
    for (uint64_t i = 0; i <= next(3); ++i) text[next(text.size())] = static_cast<char>(' ' + next(95));
    try {
      packed_scheme(text, "config.json");
    } catch (const Error&) {
      continue;
    }
  }
}

TEST(PackedFiles, ANetworkSavedAndLoadedHasEqualLogits) {
  manual_seed(9);
  struct Net : nn::Module {
    nn::Linear first = register_module("first", nn::Linear(64, 64));
    nn::Linear second = register_module("second", nn::Linear(64, 32, false));
    Tensor forward(const Tensor& x) const { return second(first(x).tanh()); }
  };
  Net net;
  nn::quantize(net, "int4", {.rounding = {.block_columns = 32, .scale_dtype = DType::f16}});
  const Tensor x = randn({3, 64}), want = net.forward(x).detach();
  // As our own files.
  const std::string file = io::encode_safetensors(net.state_dict());
  const std::span<const std::byte> bytes = std::as_bytes(std::span(file));
  const nn::StateDict state = io::read_safetensors(bytes, io::parse_safetensors(bytes, "state"), "state");
  Net again;
  nn::pack_from_state(again, state);
  again.load_state_dict(state);
  EXPECT_EQ(again.forward(x).to_vector<float>(), want.to_vector<float>());
  // As GPTQ's, AWQ's and compressed-tensors' files.
  for (const char* config :
       {R"({"quant_method": "gptq", "bits": 4, "group_size": 32})",
        R"({"quant_method": "awq", "bits": 4, "group_size": 32})",
        R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g":)"
        R"( {"weights": {"num_bits": 4, "strategy": "group", "group_size": 32}}}})"}) {
    const PackedScheme scheme = *packed_scheme(cat(R"({"quantization_config": )", config, "}"), "config.json");
    Net other;
    other.load_state_dict({{"first.bias", net.first.bias}}, false);
    nn::pack_linear(other.first,
                    read_packed(scheme, write_packed(scheme, nn::packed_weight(net.first), "first"), "first"));
    nn::pack_linear(other.second,
                    read_packed(scheme, write_packed(scheme, nn::packed_weight(net.second), "second"), "second"));
    EXPECT_EQ(other.forward(x).to_vector<float>(), want.to_vector<float>()) << config;
  }
}

// TorchAO's promise: one tensor type for all low-bit weights, saved and loaded to equal logits.
TEST(PackedFiles, EveryFormatIsSavedAndLoadedToTheSameBits) {
  struct Net : nn::Module {
    nn::Linear first = register_module("first", nn::Linear(256, 64));
    nn::Linear second = register_module("second", nn::Linear(64, 9));
    Tensor forward(const Tensor& x) const { return second(first(x).tanh()); }
  };
  Samples s(DType::f32);
  for (const WeightFormat& format : weight_formats())
    for (const bool all : {false, true}) {
      if (all && !format.zeros && !format.order && !format.nested) continue;
      lowbit::RandomParts parts{.zeros = all && format.zeros,
                                .order = all && format.order,
                                .nested = all && format.nested,
                                .scale_dtype = all ? DType::f16 : DType::f32};
      if (format.scaled) parts.block_columns = 64;
      Net net, again;
      const PackedWeight w = lowbit::random_packed(s, format.name, 64, 256, parts);
      nn::pack_linear(net.first, w);
      const Tensor x = s.tensor({3, 256}), want = net.forward(x).detach();
      const std::string file = io::encode_safetensors(net.state_dict());
      const std::span<const std::byte> bytes = std::as_bytes(std::span(file));
      const nn::StateDict state = io::read_safetensors(bytes, io::parse_safetensors(bytes, "state"), "state");
      nn::pack_from_state(again, state);
      again.load_state_dict(state);
      EXPECT_EQ(again.forward(x).to_vector<float>(), want.to_vector<float>()) << format.name << " " << all;
      EXPECT_EQ(nn::packed_weight(again.first).nbytes(), w.nbytes()) << format.name;
    }
}

TEST(PackedFiles, BlocksOfGgufAreTakenAsTheyAre) {
  const PackedWeight w = quantize_weight(randn({3, 64}), "q4_0");
  const PackedWeight g = packed_gguf("Q4_0", w.codes.view({w.codes.numel()}), 3, 64);
  EXPECT_EQ(dequantize_weight(g).to_vector<float>(), dequantize_weight(w).to_vector<float>());
  EXPECT_EQ(g.codes.raw_data(), w.codes.raw_data());
  EXPECT_NE(message([&] { packed_gguf("Q2_K", w.codes, 3, 64); }).find("Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, Q5_0"),
            std::string::npos);
  EXPECT_NE(message([&] { packed_gguf("Q4_0", w.codes, 3, 96); }).find("54 bytes a row"), std::string::npos);
  EXPECT_NE(message([&] { packed_gguf("Q4_K", w.codes, 3, 64); }).find("multiples of 256"), std::string::npos);
}

TEST(PackedFiles, BlocksOfGgufDecodeAsTheReaderOfFilesDoes) {
  Samples s(DType::f32);
  for (const char* type : {"Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"}) {
    std::string name = type;
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const PackedWeight w = lowbit::random_packed(s, name, 7, 512);
    const io::StoredType* stored = io::find_stored_type(type);
    ASSERT_TRUE(stored != nullptr && stored->decode != nullptr) << type;
    std::vector<float> want(7 * 512);
    stored->decode(static_cast<const std::byte*>(w.codes.raw_data()), w.codes.nbytes() / stored->block_bytes,
                   want.data());
    EXPECT_EQ(dequantize_weight(w).to_vector<float>(), want) << type;
  }
}

// Types without a format of their own: other codes, the same numbers to the bit.
TEST(PackedFiles, BlocksOfGgufInOtherCodesAreTheSameNumbers) {
  for (const auto& [type, format] : {std::pair("Q5_0", "q8_0"), {"IQ4_NL", "q8_0"}, {"Q3_K", "q6_k"}, {"IQ4_XS", "int8"},
                                     {"MXFP4", "int8"}}) {
    SCOPED_TRACE(type);
    EXPECT_EQ(packed_gguf_format(type), &weight_format(format));
    const io::StoredType& stored = *io::find_stored_type(type);
    constexpr int64_t kRows = 5, kColumns = 768, kNumbers = kRows * kColumns;
    Generator g(3);
    Tensor bytes = randint(0, 256, {kNumbers / stored.block * stored.block_bytes}, DType::u8, g);
    for (int64_t b = 0; b < kNumbers / stored.block; ++b) {  // scales that are numbers
      uint8_t* const at = bytes.data<uint8_t>() + b * stored.block_bytes;
      if (type == std::string("MXFP4")) at[0] = static_cast<uint8_t>(120 + at[0] % 8);
      else at[type == std::string("Q3_K") ? 109 : 1] = static_cast<uint8_t>(0x2c + at[1] % 8);
    }
    const PackedWeight w = packed_gguf(type, bytes, kRows, kColumns);
    w.check("test");
    std::vector<float> want(kNumbers);
    stored.decode(static_cast<const std::byte*>(bytes.raw_data()), kNumbers / stored.block, want.data());
    EXPECT_EQ(dequantize_weight(w).to_vector<float>(), want);
    const std::vector<double> exact = w.decode().to_vector<double>();
    EXPECT_TRUE(std::ranges::equal(exact, want, [](double a, float b) { return static_cast<float>(a) == b; }));
    EXPECT_NE(message([&] { packed_gguf(type, bytes, kRows, kColumns + 256); }).find("bytes a row"), std::string::npos);
    EXPECT_EQ(packed_gguf(type, bytes.narrow(0, 0, 0), 0, kColumns).codes.numel(), 0);
  }
  EXPECT_EQ(packed_gguf_format("Q4_1"), nullptr);
}

}  // namespace
}  // namespace strata
