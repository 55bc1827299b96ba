#include "strata/generate/text_generator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <optional>

#include "strata/core/node.h"
#include "strata/generate/beam_search.h"
#include "strata/generate/sequences.h"
#include "strata/generate/text_stream.h"
#include "strata/models/encoder_decoder.h"
#include "strata/models/language_model.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "generate";

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Streams of numbers of a request's texts: the first has the request's own seed.
uint64_t seed_of(uint64_t seed, int64_t completion) {
  if (completion == 0) return seed;
  const auto words = philox({seed, uint64_t{1} << 63}, static_cast<uint64_t>(completion));
  return static_cast<uint64_t>(words[0]) << 32 | words[1];
}

// For each row of logits the likeliest n ids.
std::vector<std::vector<TokenLogprob>> likeliest(const Tensor& logits, int64_t n) {
  const auto [values, places] = topk(log_softmax(logits.to(DType::f32), -1), n);
  const std::vector<float> value = values.to_vector<float>();
  const std::vector<int64_t> place = places.to_vector<int64_t>();
  std::vector<std::vector<TokenLogprob>> rows(static_cast<size_t>(logits.size(0)));
  for (size_t i = 0; i < place.size(); ++i)
    rows[i / static_cast<size_t>(n)].push_back({place[i], static_cast<double>(value[i])});
  return rows;
}

// Of the prompt's tokens but the first, from what the output layer reads at those before them. A part at a time: the
// logits of a long prompt are large.
void prompt_logprobs(const TokenDecoder& model, const Tensor& hidden, const GenerationRequest& request,
                     Generated& result) {
  constexpr int64_t kPart = 256;
  const NoGrad guard;
  for (int64_t at = 0, n = hidden.defined() ? hidden.size(0) : 0; at < n; at += kPart) {
    const int64_t count = std::min(kPart, n - at);
    const Tensor logits = model.logits(narrow(hidden, 0, at, count)).to(DType::f32);
    // Of a prompt that is longer than the context the end was read.
    const auto first = request.prompt.end() - n + at;
    const Tensor next = from_span<int64_t>(std::vector<int64_t>(first, first + count), {count}).to(logits.device());
    for (const float v : cross_entropy(logits, next, {.reduction = "none"}).to_vector<float>())
      result.prompt_logprobs.push_back(-static_cast<double>(v));
    if (request.options.top_logprobs > 0)
      std::ranges::move(likeliest(logits, request.options.top_logprobs),
                        std::back_inserter(result.top_prompt_logprobs));
  }
}

}  // namespace

const char* to_string(Finish finish) {
  switch (finish) {
    case Finish::stop_id:
      return "stop_id";
    case Finish::stop_string:
      return "stop_string";
    case Finish::cancelled:
      return "cancelled";
    case Finish::length:
      break;
  }
  return "length";
}

TextGenerator::TextGenerator(std::shared_ptr<LanguageModel> model, std::shared_ptr<const text::Tokenizer> tokenizer,
                             const TextGeneratorOptions& options)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)), options_(options) {
  check(options_.batch >= 1, kOp, "batch is at least 1, got ", options_.batch);
  check(options_.capacity >= 0, kOp, "capacity is at least 0, got ", options_.capacity);
  check(options_.prefill_chunk >= 1, kOp, "prefill_chunk is at least 1, got ", options_.prefill_chunk);
}
TextGenerator::TextGenerator(std::shared_ptr<EncoderDecoder> model, std::shared_ptr<const text::Tokenizer> tokenizer,
                             const TextGeneratorOptions& options)
    : TextGenerator(std::shared_ptr<LanguageModel>(), std::move(tokenizer), options) {
  model_ = reader_ = std::move(model);
}
TextGenerator::~TextGenerator() = default;

// One call of generate().
struct TextGenerator::Run {
  // A text that is being written, or waits to be.
  struct Text {
    int64_t request = 0, completion = 0, most = 0;
    std::optional<TextStream> stream = {};
    std::optional<StopStrings> stops = {};
  };

  TextGenerator& generator;
  const std::vector<GenerationRequest>& requests;
  const Callback& callback;
  std::vector<Generated> results;
  std::deque<Text> waiting;
  std::vector<std::optional<Text>> running = {};  // by row
  double begun = seconds();

  Run(TextGenerator& g, const std::vector<GenerationRequest>& r, const Callback& c)
      : generator(g), requests(r), callback(c), results(r.size()) {
    check_requests();
    for (size_t i = 0; i < r.size(); ++i) {
      results[i].completions.resize(static_cast<size_t>(r[i].options.n));
      if (r[i].options.beams == 1)
        for (int64_t n = 0; n < r[i].options.n; ++n) waiting.push_back({static_cast<int64_t>(i), n, most(r[i])});
    }
  }

  const GenerationRequest& of(const Text& t) const { return requests[static_cast<size_t>(t.request)]; }
  Completion& completion(const Text& t) {
    return results[static_cast<size_t>(t.request)].completions[static_cast<size_t>(t.completion)];
  }
  GenerationStatistics& statistics() { return generator.statistics_; }

  int64_t capacity() const {
    return generator.options_.capacity > 0 ? generator.options_.capacity : generator.model_->context();
  }
  // The last token that is written has no place of its own.
  int64_t most(const GenerationRequest& r) const {
    const auto n = static_cast<int64_t>(r.prompt.size());
    const bool rolls = generator.options_.roll && r.options.beams == 1;
    int64_t most = rolls ? std::numeric_limits<int64_t>::max() : capacity() - n + 1;
    if (r.options.max_tokens > 0) most = std::min(most, r.options.max_tokens);
    if (r.options.max_length > 0) most = std::min(most, r.options.max_length - n);
    return most;
  }

  static bool has_source(const GenerationRequest& r) { return r.source.defined() || r.encoded.defined(); }

  SequencesOptions sequences() const {
    const auto& o = generator.options_;
    return {o.capacity, o.prefill_chunk, generator.tokenizer_ ? generator.tokenizer_->vocab_size() : 0, o.graph,
            longest_source()};
  }

  // Places of what the encoder gives for the longest source.
  int64_t longest_source() const {
    int64_t most = 0;
    for (const GenerationRequest& r : requests) {
      if (r.encoded.defined()) most = std::max(most, r.encoded.size(0));
      if (r.source.defined()) most = std::max(most, generator.reader_->source_places(r.source.unsqueeze(0)));
    }
    return most;
  }

  // What the encoder gives for a request's source, [S, dim]; undefined where there is no encoder.
  Tensor encoded(const GenerationRequest& r) const {
    if (!r.source.defined()) return r.encoded;
    const NoGrad guard;
    const EncoderDecoder& model = *generator.reader_;
    const Tensor source = r.source.to(model.device()).unsqueeze(0);
    return model.encode(model.reads_sound() ? source.to(model.token_embedding.weight.dtype()) : source).select(0, 0);
  }

  void check_requests() const {
    for (size_t i = 0; i < requests.size(); ++i) try {
        const GenerationRequest& r = requests[i];
        check(!r.prompt.empty(), kOp, "the prompt is empty");
        check(has_source(r) == (generator.reader_ != nullptr), kOp,
              has_source(r) ? "this model has no encoder, and reads no source"
                            : "this model writes for a source, and there is none");
        check(!r.source.defined() || !r.encoded.defined(), kOp, "a source stands beside what the encoder gave for one");
        if (r.source.defined()) generator.reader_->source_places(r.source.unsqueeze(0));
        check<ShapeError>(!r.encoded.defined() || (r.encoded.dim() == 2 && r.encoded.size(0) > 0), kOp,
                          "what the encoder gave is [S, dim], got ", r.encoded);
        for (const int64_t t : r.prompt)
          check<IndexError>(t >= 0 && t < generator.model_->vocab(), kOp, "token ", t,
                            " of the prompt is not in the vocabulary of ", generator.model_->vocab());
        check_options(r.options, generator.model_->vocab());
        check(!generator.options_.roll || r.options.max_tokens > 0 || r.options.max_length > 0, kOp,
              "a text that goes on at a full context wants a max_tokens");
        check(r.options.stop_strings.empty() || generator.tokenizer_ != nullptr, kOp, "stop strings want a tokenizer");
        check(most(r) >= 1, kOp, "a prompt of ", r.prompt.size(),
              " tokens leaves no room for another: the text may have ", capacity(),
              r.options.max_length > 0 ? cat(", max_length is ", r.options.max_length) : std::string());
      } catch (const Error& e) {
        if (requests.size() == 1) throw;
        const std::string text = cat("request ", i, ": ", e.what());
        if (dynamic_cast<const IndexError*>(&e) != nullptr) throw IndexError(kOp, text);
        if (dynamic_cast<const ShapeError*>(&e) != nullptr) throw ShapeError(kOp, text);
        throw ValueError(kOp, text);
      }
  }

  // ---- texts that draw

  void begin(Text text, int64_t row) {
    const GenerationRequest& r = of(text);
    GenerationOptions options = r.options;
    options.seed = seed_of(r.options.seed, text.completion);
    if (generator.tokenizer_) {
      text.stream.emplace(generator.tokenizer_, generator.options_.skip_special_tokens);
      text.stops.emplace(r.options.stop_strings);
    }
    Sequences& rows = *generator.rows_;
    const double from = seconds();
    // Its sibling, where that has just been read too.
    for (int64_t other = 0; other < row; ++other)
      if (const auto& t = running[static_cast<size_t>(other)];
          t && t->request == text.request && completion(*t).tokens.empty()) {
        rows.copy(other, row, options.seed);
        generator.texts_[static_cast<size_t>(row)] = r.prompt;
        running[static_cast<size_t>(row)].emplace(std::move(text));
        return;
      }
    const bool wanted = r.options.prompt_logprobs && text.completion == 0;
    std::vector<int64_t>& last = generator.texts_[static_cast<size_t>(row)];
    int64_t kept = 0;
    // Not of a text that went on behind a full context: its beginning is gone.
    const bool whole =
        static_cast<int64_t>(last.size()) == rows.length(row) && r.prompt.size() <= static_cast<size_t>(capacity());
    if (generator.options_.reuse && !wanted && whole && !has_source(r)) {
      // The last token of either was not read, or is to be.
      const auto most = static_cast<int64_t>(std::min(last.size(), r.prompt.size())) - 1;
      while (kept < most && last[static_cast<size_t>(kept)] == r.prompt[static_cast<size_t>(kept)]) ++kept;
      kept = rows.keepable(row, kept);
    }
    last.clear();  // nothing is known of a row whose start throws
    Tensor hidden;
    const auto all = std::span<const int64_t>(r.prompt);
    rows.start(row, all.last(std::min(all.size(), static_cast<size_t>(capacity()))), options, 0, kept,
               wanted ? &hidden : nullptr, encoded(r));
    last = r.prompt;
    if (wanted) prompt_logprobs(*generator.model_, hidden, r, results[static_cast<size_t>(text.request)]);
    statistics().prompt_tokens += static_cast<int64_t>(r.prompt.size()) - kept;
    statistics().prompt_seconds += seconds() - from;
    running[static_cast<size_t>(row)].emplace(std::move(text));
  }

  // The second half of a text whose context is full, as the start of a new one.
  void roll(const Text& text, int64_t row) {
    GenerationOptions options = of(text).options;
    options.seed = seed_of(options.seed, text.completion);
    const auto all = std::span<const int64_t>(generator.texts_[static_cast<size_t>(row)]);
    const int64_t half = std::max<int64_t>(1, capacity() / 2);
    generator.rows_->start(row, all.last(std::min(all.size(), static_cast<size_t>(half))), options,
                           static_cast<int64_t>(completion(text).tokens.size()));
  }

  // A token more of a text; false where that was its last.
  bool take(Text& text, int64_t id) {
    Completion& c = completion(text);
    const GenerationOptions& o = of(text).options;
    c.tokens.push_back(id);
    ++statistics().output_tokens;
    if (statistics().output_tokens == 1) statistics().first_token_seconds = seconds() - begun;
    bool ends = false;
    std::string piece;
    if (const auto at = std::ranges::find(o.stop_ids, id); at != o.stop_ids.end()) {
      c.finish = Finish::stop_id;
      c.stop = at - o.stop_ids.begin();
      ends = true;
    } else if (text.stream) {
      piece = text.stops->add(text.stream->add(id));
      if (text.stops->found() >= 0) {
        c.finish = Finish::stop_string;
        c.stop = text.stops->found();
        ends = true;
      }
    }
    if (!ends && static_cast<int64_t>(c.tokens.size()) >= text.most) {
      c.finish = Finish::length;
      ends = true;
    }
    if (ends && text.stream && text.stops->found() < 0) {
      piece += text.stops->add(text.stream->finish());
      piece += text.stops->finish();
    }
    c.text += piece;
    if (callback && !callback({text.request, text.completion, id, piece, ends}) && !ends) {
      c.finish = Finish::cancelled;
      ends = true;
    }
    return !ends;
  }

  void write() {
    if (waiting.empty()) return;
    const int64_t most_rows = std::min<int64_t>(generator.options_.batch, static_cast<int64_t>(waiting.size()));
    // Rows at rest are computed too: no more of them than there are texts.
    if (generator.rows_ == nullptr || generator.rows_->rows() != most_rows ||
        generator.rows_->source_capacity() < longest_source()) {
      generator.rows_.reset();
      generator.rows_ = std::make_unique<Sequences>(generator.model_, most_rows, sequences());
      generator.texts_.assign(static_cast<size_t>(most_rows), {});
    }
    Sequences& rows = *generator.rows_;
    running.resize(static_cast<size_t>(rows.rows()));
    const auto any = [&] { return std::ranges::any_of(running, [](const auto& t) { return t.has_value(); }); };
    while (any() || !waiting.empty()) {
      for (int64_t row = 0; row < rows.rows() && !waiting.empty(); ++row)
        if (!running[static_cast<size_t>(row)]) {
          Text next = std::move(waiting.front());
          waiting.pop_front();
          begin(std::move(next), row);
        }
      const double from = seconds();
      for (int64_t row = 0; row < rows.rows(); ++row)
        if (const auto& t = running[static_cast<size_t>(row)]; t && rows.length(row) > rows.capacity()) roll(*t, row);
      rows.step();
      const std::vector<int64_t> ids = rows.ids().to_vector<int64_t>();
      note_logprobs();
      ++statistics().steps;
      for (size_t row = 0; row < running.size(); ++row) {
        if (!running[row]) continue;
        generator.texts_[row].push_back(ids[row]);
        if (take(*running[row], ids[row])) continue;
        running[row].reset();
        rows.stop(static_cast<int64_t>(row));
      }
      statistics().output_seconds += seconds() - from;
    }
  }

  // Of the step's tokens, where somebody asks.
  void note_logprobs() {
    Sequences& rows = *generator.rows_;
    int64_t most = 0;
    bool any = false, any_adjusted = false;
    for (const auto& t : running)
      if (t) {
        any = any || of(*t).options.logprobs;
        any_adjusted = any_adjusted || of(*t).options.adjusted_logprobs;
        most = std::max(most, of(*t).options.top_logprobs);
      }
    const std::vector<float> own = any ? rows.logprobs().to_vector<float>() : std::vector<float>();
    const std::vector<float> adjusted =
        any_adjusted ? rows.adjusted_logprobs().to_vector<float>() : std::vector<float>();
    const auto top = most > 0 ? likeliest(rows.logits(), most) : std::vector<std::vector<TokenLogprob>>();
    for (size_t row = 0; row < running.size(); ++row) {
      if (!running[row]) continue;
      const GenerationOptions& o = of(*running[row]).options;
      Completion& c = completion(*running[row]);
      if (o.logprobs) c.logprobs.push_back(static_cast<double>(own[row]));
      if (o.adjusted_logprobs) c.adjusted_logprobs.push_back(static_cast<double>(adjusted[row]));
      if (o.top_logprobs > 0) c.top_logprobs.emplace_back(top[row].begin(), top[row].begin() + o.top_logprobs);
    }
  }

  // ---- beams

  void search(int64_t request) {
    const GenerationRequest& r = requests[static_cast<size_t>(request)];
    Generated& result = results[static_cast<size_t>(request)];
    const double from = seconds();
    Sequences rows(generator.model_, r.options.beams, sequences());
    Tensor hidden;
    const std::vector<Beam> beams =
        beam_search(rows, r.prompt, r.options, most(r), r.options.prompt_logprobs ? &hidden : nullptr, encoded(r));
    prompt_logprobs(*generator.model_, hidden, r, result);
    result.completions.resize(std::min(beams.size(), static_cast<size_t>(r.options.n)));
    statistics().prompt_tokens += static_cast<int64_t>(r.prompt.size());
    for (size_t i = 0; i < result.completions.size(); ++i) {
      Completion& c = result.completions[i];
      c.tokens = beams[i].tokens;
      c.score = beams[i].score;
      if (r.options.adjusted_logprobs) c.adjusted_logprobs = beams[i].logprobs;
      c.finish = beams[i].stopped ? Finish::stop_id : Finish::length;
      if (beams[i].stopped)
        c.stop = std::ranges::find(r.options.stop_ids, c.tokens.back()) - r.options.stop_ids.begin();
      if (generator.tokenizer_) {
        TextStream stream(generator.tokenizer_, generator.options_.skip_special_tokens);
        for (auto id = c.tokens.begin(); id != c.tokens.end() - (beams[i].stopped ? 1 : 0); ++id)
          c.text += stream.add(*id);
        c.text += stream.finish();
      }
      statistics().output_tokens += static_cast<int64_t>(c.tokens.size());
      // Which text it will be is known at the end alone.
      if (callback) callback({request, static_cast<int64_t>(i), c.tokens.back(), c.text, true});
    }
    statistics().output_seconds += seconds() - from;
  }
};

std::vector<Generated> TextGenerator::generate(const std::vector<GenerationRequest>& requests,
                                               const Callback& callback) {
  statistics_ = {};
  Run run(*this, requests, callback);
  try {
    run.write();
  } catch (...) {
    rows_.reset();  // rows that ran
    throw;
  }
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].options.beams > 1) run.search(static_cast<int64_t>(i));
  return std::move(run.results);
}

}  // namespace strata
