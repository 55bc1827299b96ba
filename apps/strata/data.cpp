#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/signals.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/data/text_reader.h"
#include "strata/data/token_file.h"
#include "strata/io/files.h"
#include "strata/memory/budget.h"
#include "strata/text/bpe.h"
#include "strata/text/tokenizer_folder.h"
#include "strata/train/progress.h"

namespace strata::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Learning byte pairs wants a sample of the text, not all of it.
constexpr uint64_t kSample = uint64_t{64} << 20;

struct Arguments {
  std::vector<std::string> sources;
  std::string out, tokenizer = "bpe", separator, field = "text", show;
  std::string format{to_string(data::TextFormat::automatic)}, utf8{to_string(data::Utf8Policy::refuse)};
  long long vocab = 8192, threads = 0;
  bool overwrite = false, quiet = false;
};

// The line of a build: files, bytes, tokens, speed, time left.
class BuildLine final : public data::BuildWatch {
 public:
  explicit BuildLine(bool quiet)
      : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) != 0), start_(Clock::now()), drawn_(start_) {}
  ~BuildLine() override {
    if (open_) std::fputc('\n', stderr);
  }

  void progress(const data::BuildProgress& p) override {
    const Clock::time_point now = Clock::now();
    // What an earlier build encoded is only read: the speed is counted from there on.
    if (p.text_bytes > p.reused_bytes && !first_) {
      first_ = p;
      since_ = now;
    }
    const bool last = p.finished;
    if (quiet_ || (now - drawn_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10)) && !last))
      return;
    drawn_ = now;
    const std::string line = text(p, now);
    if (terminal_) {
      std::fputs(fmt::format("\r\x1b[K{}", line).c_str(), stderr);
    } else {
      std::fputs((line + '\n').c_str(), stderr);
    }
    std::fflush(stderr);
    open_ = terminal_;
  }
  bool stop_requested() override { return StopOnSignal::stop_requested(); }
  void note(const std::string& text) override {
    std::fputs(fmt::format("{}note: {}\n", open_ ? "\r\x1b[K" : "", text).c_str(), stderr);
    open_ = false;
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  std::string text(const data::BuildProgress& p, Clock::time_point now) const {
    const double part = p.bytes > 0 ? static_cast<double>(p.bytes_read) / static_cast<double>(p.bytes) : 0;
    std::string line =
        fmt::format("{:3.0f}%  file {}/{}  {} of {}  {} tok", 100 * part, std::min(p.files_read + 1, p.files), p.files,
                    memory::bytes_text(static_cast<int64_t>(p.bytes_read)),
                    memory::bytes_text(static_cast<int64_t>(p.bytes)), format_count(static_cast<double>(p.tokens)));
    if (!first_) return line;
    const double s = std::chrono::duration<double>(now - since_).count();
    const double tokens = static_cast<double>(p.tokens - first_->tokens),
                 read = static_cast<double>(p.bytes_read - first_->bytes_read);
    if (s <= 0 || read <= 0) return line;
    line += fmt::format("  {} tok/s", format_count(tokens / s));
    line += p.files_read == p.files
                ? fmt::format("  in {}", format_duration(seconds()))
                : fmt::format("  {} left", format_duration(static_cast<double>(p.bytes - p.bytes_read) / read * s));
    winsize size{};
    if (terminal_ && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
      line.resize(std::min<size_t>(line.size(), size.ws_col - 1u));
    return line;
  }

  bool quiet_, terminal_, open_ = false;  // open: the terminal's line has no end yet
  Clock::time_point start_, drawn_, since_;
  std::optional<data::BuildProgress> first_;
};

std::unique_ptr<text::Tokenizer> make_tokenizer(const Arguments& a, const data::TextOptions& text) {
  if (a.tokenizer == "byte") return std::make_unique<text::ByteTokenizer>();
  if (a.tokenizer == "ids") return std::make_unique<text::IdTokenizer>(a.vocab);
  if (a.tokenizer != "bpe") return std::move(text::load_tokenizer_at(a.tokenizer).tokenizer);
  const std::vector<std::string> sample = data::read_documents(a.sources, text, kSample);
  const std::vector<std::string_view> texts(sample.begin(), sample.end());
  std::vector<std::string> special;
  if (!a.separator.empty()) special.push_back(a.separator);
  return std::unique_ptr<text::Tokenizer>(
      new text::BpeTokenizer(text::train_bpe(std::span(texts), {.vocab_size = a.vocab, .special_tokens = special})));
}

int show(const std::string& path) {
  const data::TokenFile file(path);
  file.verify();
  std::string text = fmt::format("{}: {} tokens of {} bytes, a vocabulary of {}\n", path, file.size(),
                                 file.token_bytes(), file.vocab_size());
  text += file.documents() > 0 ? fmt::format("documents  {}\n", file.documents())
                               : std::string("documents  not known: the file is of an earlier version\n");
  if (file.separator()) text += fmt::format("separator  {}\n", *file.separator());
  text += fmt::format("tokenizer  {}\n", file.tokenizer().empty() ? "not known" : file.tokenizer());
  text += file.has_checksums() ? "every checksum is right\n" : "without checksums: the file is of an earlier version\n";
  std::fputs(text.c_str(), stdout);
  return kOk;
}

int run(const Arguments& a) {
  if (!a.show.empty()) return show(a.show);
  if (a.sources.empty()) throw UsageError("no text to tokenise: name files, folders or patterns");
  if (a.out.empty()) throw UsageError("--out names the file of tokens to write");
  std::error_code error;
  if (!a.overwrite && std::filesystem::exists(a.out, error))
    throw UsageError(fmt::format("'{}' is there already; --overwrite builds it anew", a.out));
  if (a.threads > 0) set_num_threads(static_cast<int>(a.threads));
  data::TokenFileOptions options{
      .separator = a.separator,
      .text = {.format = data::parse_text_format(a.format), .field = a.field, .utf8 = data::parse_utf8_policy(a.utf8)}};
  const std::unique_ptr<text::Tokenizer> tokenizer = make_tokenizer(a, options.text);
  const StopOnSignal signals("the text that is being encoded", /*or_pipe=*/true);
  data::BuildProgress done;
  double seconds = 0;
  {
    BuildLine line(a.quiet);
    done = data::build_token_file(a.sources, *tokenizer, a.out, options, &line);
    seconds = line.seconds();
  }
  tokenizer->save(a.out + ".tokenizer.json");
  std::fputs(
      fmt::format("{}: {} tokens, {} document{}, {} of text in {}\ntokenizer {}\n", a.out, done.tokens, done.documents,
                  done.documents == 1 ? "" : "s", memory::bytes_text(static_cast<int64_t>(done.text_bytes)),
                  format_duration(seconds), a.out + ".tokenizer.json")
          .c_str(),
      stdout);
  return kOk;
}

CLI::Validator one_of(std::span<const std::string_view> names) {
  return CLI::IsMember(std::vector<std::string>(names.begin(), names.end()));
}

}  // namespace

void add_data(CLI::App& app, Body& body) {
  CLI::App* command = app.add_subcommand("data", "Make a file of tokens from texts, for training");
  auto a = std::make_shared<Arguments>();
  command->add_option("sources", a->sources, "Text files, folders of them, or patterns; plain, gzip, zlib or zstd")
      ->type_name("TEXT...");
  command->add_option("--out", a->out, "The file to write")->type_name("FILE");
  command
      ->add_option("--tokenizer", a->tokenizer,
                   "byte; bpe, learned from the texts; ids, for numbers; or a tokenizer's file, or a folder with one")
      ->type_name("NAME|FILE")
      ->capture_default_str();
  command->add_option("--vocab", a->vocab, "Size of the vocabulary, of bpe and ids")
      ->type_name("N")
      ->capture_default_str()
      ->check(between(1, 1 << 24));
  command->add_option("--format", a->format, "What a document is; auto: JSONL by its name, else a whole file")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check(one_of(data::text_formats()));
  command->add_option("--field", a->field, "Of JSONL, the member that is the text; within others: meta.body")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--separator", a->separator, "The special token to put behind each document")->type_name("TOKEN");
  command->add_option("--utf8", a->utf8, "Bytes that are not UTF-8: refuse them, replace them by U+FFFD, or keep them")
      ->type_name("WAY")
      ->capture_default_str()
      ->check(one_of(data::utf8_policies()));
  command->add_option("--threads", a->threads, "Threads; 0 takes every core")->type_name("N")->check(between(0, 1024));
  command->add_flag("--overwrite", a->overwrite, "Build a file that is there already");
  command->add_flag("--quiet", a->quiet, "No progress line");
  command->add_option("--show", a->show, "Check a file of tokens, and say what is in it")->type_name("FILE");
  command->footer(
      "What is finished is kept in FILE.parts until the file is there: after Ctrl-C, a kill or a power cut the same\n"
      "command goes on. The file does not depend on the number of threads.\n\n"
      "  strata data 'corpus/*.jsonl.zst' --field text --out corpus.tokens --separator '<|endoftext|>'\n"
      "  strata train --data corpus.tokens --out runs/a");
  command->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
