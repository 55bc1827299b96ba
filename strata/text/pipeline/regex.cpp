#include "strata/text/pipeline/regex_inl.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <ctime>

#include <algorithm>
#include <cstring>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {
namespace {

constexpr std::string_view kOp = "tokenizer";
constexpr double kSeconds = 2, kSecondsPerByte = 4e-6;
constexpr uint32_t kMatchLimit = 5'000'000, kDepthLimit = 100'000, kHeapKiB = 64 << 10;
constexpr size_t kJitStack = 1 << 20;

/// What PCRE2 works in; each thread has one.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStack, nullptr);
  double seconds_left = kSeconds;
  uint32_t calls = 0;

  Workspace() {
    check<MemoryError>(data != nullptr && context != nullptr, kOp, "no memory for matching expressions");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_depth_limit(context, kDepthLimit);
    pcre2_set_heap_limit(context, kHeapKiB);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

Workspace& workspace() {
  thread_local Workspace w;
  return w;
}

/// Of this thread: what others on the machine do is not counted.
double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string error_text(int code) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(code, text, sizeof text) < 0 ? cat("PCRE2's error ", code)
                                                              : std::string(reinterpret_cast<const char*>(text));
}

}  // namespace

RegexBudget::RegexBudget(size_t text_bytes) : outer_left_(workspace().seconds_left) {
  workspace().seconds_left = kSeconds + kSecondsPerByte * static_cast<double>(text_bytes);
}
RegexBudget::~RegexBudget() {
  workspace().seconds_left = outer_left_;
}

struct Regex::Code {
  std::string source;
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view oniguruma) {
  auto code = std::make_unique<Code>();
  code->source = std::string(oniguruma);
  const std::string pattern = pcre2_of_oniguruma(oniguruma);
  struct Free {
    void operator()(pcre2_compile_context* c) const { pcre2_compile_context_free(c); }
  };
  const std::unique_ptr<pcre2_compile_context, Free> context(pcre2_compile_context_create(nullptr));
  check<MemoryError>(context != nullptr, kOp, "no memory for an expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  pcre2_set_max_pattern_length(context.get(), 1 << 20);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE at = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                             &error, &at, context.get());
  check(code->code != nullptr, kOp, "the expression ", io::quote(oniguruma), " cannot be used: ", error_text(error));
  // Without a just-in-time compiler PCRE2 interprets.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, size_t from, Match& match) const {
  Workspace& w = workspace();
  // The limit of steps is one for each place where a match may begin, so few such places are asked at a time and the
  // time is looked at in between; of calls that find something at once, a sample.
  constexpr uint32_t kSample = 64;
  for (size_t window = 64;; window = std::min<size_t>(2 * window, 1 << 16)) {
    const bool last = text.size() - from <= window;
    const bool timed = window > 64 || ++w.calls % kSample == 0;
    const double start = timed ? processor_seconds() : 0;
    pcre2_set_offset_limit(w.context, last ? PCRE2_UNSET : from + window);
    const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                   PCRE2_NO_UTF_CHECK, w.data, w.context);
    if (timed) {
      const double took = processor_seconds() - start;
      w.seconds_left -= window > 64 ? took : took * kSample;
      check(w.seconds_left > 0, kOp, "the expression ", io::quote(code_->source), " takes too long for this text");
      if (took > 1e-3) window = 32;
    }
    if (result >= 0) {
      const PCRE2_SIZE* at = pcre2_get_ovector_pointer(w.data);
      // \K may put the begin behind the end.
      match = {at[0], std::max(at[0], at[1])};
      return true;
    }
    check(result == PCRE2_ERROR_NOMATCH, kOp, "the expression ", io::quote(code_->source),
          " cannot be matched at byte ", from, " or behind: ", error_text(result));
    if (last) return false;
    from += window + 1;
    if (from > text.size()) return false;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) ++from;
  }
}

Pattern Pattern::of_string(std::string text) {
  Pattern p;
  if (text.empty()) return of_regex("");
  p.string_ = std::move(text);
  return p;
}

Pattern Pattern::of_regex(std::string_view oniguruma) {
  Pattern p;
  p.regex_ = std::make_unique<const Regex>(oniguruma);
  return p;
}

bool Pattern::Matches::next(Match& match) {
  if (pattern_.regex_ == nullptr) {
    const std::string& wanted = pattern_.string_;
    const void* found = at_ >= text_.size() ? nullptr
                        : wanted.size() == 1
                            ? std::memchr(text_.data() + at_, wanted[0], text_.size() - at_)
                            : memmem(text_.data() + at_, text_.size() - at_, wanted.data(), wanted.size());
    if (found == nullptr) return false;
    match.begin = static_cast<size_t>(static_cast<const char*>(found) - text_.data());
    match.end = at_ = match.begin + wanted.size();
    return true;
  }
  while (at_ <= text_.size() && !text_.empty()) {
    if (!pattern_.regex_->find(text_, at_, match)) return false;
    if (match.begin == match.end && match.end == last_end_) {
      at_ += at_ < text_.size() ? char_at(text_, at_).bytes : 1;
      continue;
    }
    at_ = last_end_ = match.end;
    return true;
  }
  return false;
}

}  // namespace strata::text::pipeline
