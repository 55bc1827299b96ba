#include "strata/generate/options.h"

#include <cmath>
#include <limits>

#include "strata/core/error.h"

namespace strata {

void check_options(const GenerationOptions& o, int64_t vocab) {
  constexpr std::string_view kOp = "generate";
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"max_tokens", o.max_tokens},
                                                              {"max_length", o.max_length},
                                                              {"min_tokens", o.min_tokens},
                                                              {"min_length", o.min_length},
                                                              {"top_k", o.top_k},
                                                              {"top_logprobs", o.top_logprobs}})
    check(value >= 0, kOp, name, " is at least 0, got ", value);
  check(o.n >= 1, kOp, "n is at least 1, got ", o.n);
  check(o.beams >= 1, kOp, "beams are at least 1, got ", o.beams);
  check(o.top_logprobs <= vocab, kOp, "top_logprobs is at most the vocabulary of ", vocab, ", got ", o.top_logprobs);
  check(o.temperature >= 0 && std::isfinite(o.temperature), kOp, "temperature is at least 0, got ", o.temperature);
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, double>>{{"top_p", o.top_p}, {"typical_p", o.typical_p}})
    check(static_cast<float>(value) > 0 && value <= 1, kOp, name, " is above 0 and at most 1, got ", value);
  check(o.min_p >= 0 && o.min_p <= 1, kOp, "min_p is from 0 to 1, got ", o.min_p);
  check(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), kOp, "repetition_penalty is above 0, got ",
        o.repetition_penalty);
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, double>>{{"frequency_penalty", o.frequency_penalty},
                                                             {"presence_penalty", o.presence_penalty},
                                                             {"length_penalty", o.length_penalty}})
    check(std::isfinite(value), kOp, name, " is finite, got ", value);
  for (const auto& [id, value] : o.logit_bias) {
    check<IndexError>(id >= 0 && id < vocab, kOp, "logit_bias has id ", id, ", the vocabulary is ", vocab);
    check(value < std::numeric_limits<double>::infinity(), kOp, "logit_bias of id ", id, " is ", value);
  }
  for (const int64_t id : o.not_first)
    check<IndexError>(id >= 0 && id < vocab, kOp, "not_first has ", id, ", the vocabulary is ", vocab);
  for (const int64_t id : o.stop_ids)
    check<IndexError>(id >= 0 && id < vocab, kOp, "stop_ids has ", id, ", the vocabulary is ", vocab);
  if (o.timestamps) {
    const TimestampRules& t = *o.timestamps;
    check<IndexError>(t.begin > 0 && t.begin < vocab && t.end >= 0 && t.end < t.begin, kOp, "times begin with id ",
                      t.begin, ", and the end is ", t.end,
                      ": wanted an end before them, and both in the vocabulary of ", vocab);
    check(t.most_initial >= -1, kOp, "the first time is at most ", t.most_initial);
  }
  for (const std::string& s : o.stop_strings) check(!s.empty(), kOp, "a stop string is empty");
  if (o.beams == 1) return;
  check(o.n <= o.beams, kOp, "of ", o.beams, " beams there are no ", o.n, " texts");
  const bool off = o.temperature == 1 && o.top_k == 0 && o.top_p == 1 && o.min_p == 0 && o.typical_p == 1;
  check(o.draw_beams || off, kOp,
        "beams that are not drawn (draw_beams) want temperature, top_k, top_p, min_p and typical_p off");
  check(!o.draw_beams || o.temperature > 0, kOp, "beams that are drawn want a temperature above 0");
  check(o.stop_strings.empty(), kOp, "beam search takes no stop strings");
  check(!o.logprobs && o.top_logprobs == 0, kOp, "beam search gives scores of texts, no logprobs of tokens");
}

}  // namespace strata
