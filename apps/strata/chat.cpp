// A conversation in the terminal.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "apps/strata/command.h"
#include "apps/strata/language.h"
#include "apps/strata/line_reader.h"
#include "apps/strata/signals.h"
#include "strata/core/json_text.h"
#include "strata/generate/chat_prompt.h"
#include "strata/generate/text_generator.h"
#include "strata/io/files.h"
#include "strata/text/utf8.h"

namespace strata::cli {
namespace {

struct Arguments {
  ModelArguments model;
  WritingOptions writing;
  std::string system, template_file;
  int64_t context = 0;
  bool statistics = false;
};

struct Message {
  std::string role, content;
};

std::string json_of(const std::vector<Message>& messages) {
  return detail::json_list(messages, [](const Message& m) {
    return fmt::format("{{\"role\": {}, \"content\": {}}}", detail::json_string(m.role),
                       detail::json_string(text::valid_utf8(m.content)));
  });
}

class Chat {
 public:
  Chat(const Arguments& a, Language language)
      : language_(std::move(language)), options_(a.writing.over(language_.options)), statistics_(a.statistics) {
    TextGeneratorOptions room;
    room.batch = 1;
    room.capacity = a.context;
    room.reuse = true;
    writer_.emplace(language_.model, language_.tokenizer, room);
    set_system(a.system);
  }

  // Answers a line; false where the conversation is over.
  bool take(const std::string& line) {
    if (line.starts_with("/")) return command(line);
    if (line.empty()) return true;
    messages_.push_back({"user", line});
    try {
      messages_.push_back({"assistant", answer()});
    } catch (...) {
      messages_.pop_back();  // the conversation is as it was
      throw;
    }
    return true;
  }

 private:
  std::string answer() {
    const StopOnSignal stop("this answer");
    const std::vector<int64_t> prompt = chat_prompt(*language_.folder, json_of(messages_));
    std::string text;
    writer_->generate({{prompt, options_}}, [&](const GenerationPiece& piece) {
      text += piece.text;
      std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
      return std::fflush(stdout) == 0 && !StopOnSignal::stop_requested();
    });
    std::fputs("\n", stdout);
    std::fflush(stdout);
    if (statistics_) {
      const GenerationStatistics& s = writer_->statistics();
      std::fputs(fmt::format("[{} tokens at {:.1f} a second, the first after {:.2f} s; {} read, {} of {} in use]\n",
                             s.output_tokens, s.output_rate(), s.first_token_seconds, s.prompt_tokens,
                             prompt.size() + static_cast<size_t>(s.output_tokens), language_.model->context())
                     .c_str(),
                 stderr);
    }
    return text;
  }

  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/reset") {
      set_system(system_);
    } else if (name == "/system") {
      set_system(rest);
    } else if (name == "/save" && !rest.empty()) {
      io::write_file(rest, json_of(messages_) + "\n");
      std::fputs(fmt::format("saved {} messages to '{}'\n", messages_.size(), rest).c_str(), stderr);
    } else {
      std::fputs(
          "/reset        begin anew, with the same system prompt\n"
          "/system TEXT  begin anew with another one (none: without)\n"
          "/save FILE    write the conversation as JSON\n"
          "/exit         end it, as Ctrl-D does; Ctrl-C stops an answer\n",
          stderr);
      if (name != "/help") throw UsageError(fmt::format("there is no command '{}' of this form", line));
    }
    return true;
  }

  void set_system(const std::string& text) {
    system_ = text;
    messages_.clear();
    if (!text.empty()) messages_.push_back({"system", text});
  }

  Language language_;
  GenerationOptions options_;
  bool statistics_;
  std::optional<TextGenerator> writer_;
  std::string system_;
  std::vector<Message> messages_;
};

int run(const Arguments& a) {
  Language language = a.model.load();
  if (language.reader != nullptr)
    throw UsageError(fmt::format("'{}' answers single texts: strata generate", a.model.path));
  if (language.folder == nullptr)
    throw UsageError(fmt::format("'{}' is a run of ours, which has no chat template: strata generate continues texts",
                                 a.model.path));
  if (!a.template_file.empty()) language.folder->chat_template = io::read_file(a.template_file, uint64_t{1} << 20);
  if (language.folder->chat_template.empty())
    throw UsageError(fmt::format("'{}' has no chat template: give one as --template", a.model.path));
  LineReader reader(::isatty(STDIN_FILENO) != 0 ? history_file("chat") : std::string());
  const bool person = reader.interactive();
  Arguments with = a;
  with.statistics = a.statistics || person;
  Chat chat(with, std::move(language));
  if (person) std::fputs("/help tells the commands\n", stderr);
  while (const std::optional<std::string> line = reader.next("> ")) try {
      if (!chat.take(*line)) break;
    } catch (const Error& e) {
      if (!person) throw;
      std::fputs(fmt::format("error: {}\n", plain_text(e)).c_str(), stderr);
    } catch (const UsageError& e) {
      if (!person) throw;
      std::fputs(fmt::format("error: {}\n", e.what()).c_str(), stderr);
    }
  return kOk;
}

}  // namespace

void add_chat(CLI::App& app, Body& body) {
  CLI::App* chat = app.add_subcommand("chat", "Talk to a model in the terminal");
  auto a = std::make_shared<Arguments>();
  a->model.add(*chat, false);
  chat->add_option("--system", a->system, "What the model is told before the conversation")->type_name("TEXT");
  chat->add_option("--template", a->template_file, "A chat template in place of the model's own")->type_name("FILE");
  chat->add_option("--context", a->context, "Tokens of a conversation at most; 0: as many as the model takes")
      ->type_name("N");
  a->writing.add(*chat, false);
  chat->add_flag("--statistics", a->statistics, "Tell how fast answers are, on the standard error (so at a terminal)");
  chat->footer(
      "A line is a message, /help tells commands, Ctrl-C stops an answer. Lines of a pipe are answered one by one.\n"
      "  strata chat --model Qwen2.5-0.5B-Instruct --system 'You answer in one sentence.'");
  chat->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
