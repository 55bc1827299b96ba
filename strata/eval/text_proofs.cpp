#include "strata/eval/text_proofs.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "strata/core/base64_inl.h"
#include "strata/core/error.h"
#include "strata/core/json_text.h"
#include "strata/core/node.h"
#include "strata/eval/proof.h"
#include "strata/io/files.h"
#include "strata/io/json.h"
#include "strata/ops/factory/factory.h"

namespace strata::eval {
namespace {

constexpr std::string_view kFormat = "strata text proofs 1";
constexpr int64_t kTop = 128;

// Calls f with the activations [N, dim] that each proof is of, in order; returns the texts' tokens.
int64_t for_each_part(const Subject& subject, const std::vector<std::string>& texts, int64_t every,
                      const EvaluationOptions& options, const std::function<void(const Tensor&)>& f) {
  std::vector<LikelihoodRequest> windows;
  int64_t tokens = 0, done = 0;
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = subject.encode(text);
    tokens += static_cast<int64_t>(ids.size());
    for (LikelihoodRequest& w : rolling_windows(ids, subject, options.overlap)) windows.push_back(std::move(w));
  }
  check(tokens > 0, "", "the texts have no tokens");
  const NoGrad guard;
  for (const LikelihoodRequest& w : windows) {
    check(!options.watch || options.watch(done, tokens), "", "stopped after ", done, " of ", tokens, " tokens");
    std::vector<int64_t> ids(w.context.begin(), w.context.end());
    ids.insert(ids.end(), w.continuation.begin(), w.continuation.end() - 1);
    const auto size = static_cast<int64_t>(ids.size()), own = static_cast<int64_t>(w.continuation.size());
    const Tensor hidden = subject.hidden(from_span<int64_t>(ids, {1, size}).to(subject.device)).select(0, 0);
    for (int64_t row = size - own; row < size; row += every)
      f(hidden.narrow(0, row, std::min(every, size - row)).to(Device::cpu()));
    done += own;
  }
  return tokens;
}

}  // namespace

TextProofs prove_texts(const Subject& subject, const std::vector<std::string>& texts,
                       const EvaluationOptions& options) {
  TextProofs made{.context = subject.context, .overlap = options.overlap, .prefix = subject.prefix};
  made.tokens = for_each_part(subject, texts, made.every, options, [&](const Tensor& part) {
    made.proofs.push_back(activation_proof(part, std::min(kTop, part.numel())));
  });
  return made;
}

Evaluation check_texts(const Subject& subject, const std::vector<std::string>& texts, const TextProofs& proofs,
                       const EvaluationOptions& options) {
  check(proofs.every > 0, "", "a proof is of at least one token");
  check(proofs.context == subject.context && proofs.overlap == options.overlap, "", "the proofs are of windows of ",
        proofs.context, " tokens that share ", proofs.overlap, ", here windows have ", subject.context, " and share ",
        options.overlap);
  check(proofs.prefix == subject.prefix, "", "the proofs are of texts after token ", proofs.prefix,
        ", here they begin after ", subject.prefix);
  Evaluation result{.documents = static_cast<int64_t>(texts.size())};
  double accepted = 0, exponents = 0, mantissa = 0;
  size_t at = 0;
  result.tokens = for_each_part(subject, texts, proofs.every, options, [&](const Tensor& part) {
    check(at < proofs.proofs.size(), "", "there are ", static_cast<int64_t>(proofs.proofs.size()),
          " proofs, and the texts have more tokens than those are of");
    const ProofCheck found = check_proof(proofs.proofs[at++], part);
    accepted += found.accepted();
    exponents = std::max(exponents, static_cast<double>(found.other_exponents) / static_cast<double>(found.top));
    mantissa = std::max(mantissa, found.mean_mantissa);
  });
  check(at == proofs.proofs.size() && result.tokens == proofs.tokens, "", "the proofs are of ", proofs.tokens,
        " tokens, the texts have ", result.tokens);
  result.measures = {
      {"accepted", accepted / static_cast<double>(at)}, {"other_exponents", exponents}, {"mean_mantissa", mantissa}};
  return result;
}

std::string to_json(const TextProofs& p) {
  return fmt::format(
      "{{\"format\": {}, \"every\": {}, \"context\": {}, \"overlap\": {}, \"prefix\": {}, \"tokens\": {},\n"
      "\"proofs\": {}}}\n",
      detail::json_string(kFormat), p.every, p.context, p.overlap, p.prefix, p.tokens,
      detail::json_list(p.proofs, [](const std::vector<uint8_t>& bytes) {
        return '"' + detail::base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) + '"';
      }));
}

TextProofs parse_text_proofs(std::string_view json, std::string_view source) {
  const nlohmann::json file = io::parse_json(json, source);
  const std::string name = io::quote(std::string(source));
  const auto format = file.is_object() ? file.find("format") : file.end();
  check<IoError>(file.is_object() && format != file.end() && *format == kFormat, "", name, " has no proofs of texts");
  const auto number = [&](const char* key, int64_t least, int64_t most) {
    const auto found = file.find(key);
    check<IoError>(found != file.end() && found->is_number_integer(), "", name, ": ", key, " is no integer");
    // An unsigned number that no int64 holds is not seen as a negative one.
    check<IoError>(!found->is_number_unsigned() || found->get<uint64_t>() <= static_cast<uint64_t>(most), "", name,
                   ": ", key, " is more than ", most);
    const auto value = found->get<int64_t>();
    check<IoError>(value >= least && value <= most, "", name, ": ", key, " is ", value, ", wanted from ", least, " to ",
                   most);
    return value;
  };
  constexpr int64_t kMost = int64_t{1} << 40, kMostIds = INT32_MAX;
  TextProofs made{.every = number("every", 1, kMost),
                  .context = number("context", 1, kMost),
                  .overlap = number("overlap", 1, kMost),
                  .prefix = static_cast<int32_t>(number("prefix", 0, kMostIds)),
                  .tokens = number("tokens", 1, kMost)};
  const auto list = file.find("proofs");
  check<IoError>(list != file.end() && list->is_array() && !list->empty(), "", name, ": proofs is no list of texts");
  for (const nlohmann::json& text : *list) {
    const auto bytes = text.is_string() ? detail::from_base64(text.get_ref<const std::string&>()) : std::nullopt;
    check<IoError>(bytes.has_value(), "", name, ": proof ", static_cast<int64_t>(made.proofs.size()), " is no base64");
    made.proofs.emplace_back(bytes->begin(), bytes->end());
  }
  return made;
}

}  // namespace strata::eval
