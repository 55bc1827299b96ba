#pragma once
// Evaluations of language models over local data. The measures are those of lm-evaluation-harness
// (https://github.com/EleutherAI/lm-evaluation-harness), under its names.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/eval/likelihood.h"
#include "strata/eval/subject.h"

namespace strata::eval {

/// One number that an evaluation gives.
struct Measure {
  std::string name;  ///< "acc_norm"
  double value = 0;
  std::optional<double> error{};  ///< standard error of a mean over documents; none where the number is no mean
};

/// What was found of one document.
struct Sample {
  std::vector<double> values{};             ///< of each measure that is a mean over documents (has an error), in order
  std::vector<double> log_probabilities{};  ///< of the text, or of each choice: natural logarithms
  std::string written{};                    ///< by exact_match
};

/// A result: measures over `documents` documents.
struct Evaluation {
  int64_t documents = 0;
  int64_t tokens = 0;  ///< whose probability was asked for, or that were written
  std::vector<Measure> measures{};
  std::vector<Sample> samples{};  ///< of each document, in order; of divergence none

  /// Throws ValueError where there is none of that name.
  double value(std::string_view name) const;
};

/// How texts are cut and how many rows the model sees at once.
struct EvaluationOptions {
  int64_t batch = 8;    ///< rows of a forward pass
  int64_t overlap = 1;  ///< rolling_windows()
  Watch watch{};        ///< told how far it is
};

/// Perplexities of whole texts: word_perplexity, byte_perplexity (per word between white space and per UTF-8 byte of
/// the text, whatever the tokenizer), bits_per_byte, token_perplexity, and loss (nats a token). Throws ValueError for
/// texts without tokens.
Evaluation perplexity(const Subject& subject, const std::vector<std::string>& texts,
                      const EvaluationOptions& options = {});

/// How far a model is from a reference over texts, where both have the same tokens: kl (mean over positions of the sum
/// of p_reference log(p_reference / p), nats), kl_max, same_top (share of positions at which the likeliest token is the
/// same), token_perplexity and reference_perplexity. Throws ValueError where logits or contexts differ in size.
Evaluation divergence(const Subject& subject, const Subject& reference, const std::vector<std::string>& texts,
                      const EvaluationOptions& options = {});

/// A question with answers to choose among.
struct Choice {
  std::string context;               ///< what stands before the answers, with the blank that separates them
  std::vector<std::string> answers;  ///< not empty
  int64_t right = 0;                 ///< place of the right one
  std::string place{};               ///< what errors call it ("'a.jsonl': line 3"); empty: its number
};
/// Each answer's probability after its context decides: acc takes the likeliest, acc_norm the likeliest by character
/// (code points of the answer without `delimiter`), acc_bytes by byte. `delimiter` goes between context and answer.
/// Equal ones: the first. Throws ValueError for a question without answers, an empty answer, one without a token of its
/// own or with more than the context holds, or a right one that is none.
Evaluation multiple_choice(const Subject& subject, const std::vector<Choice>& questions,
                           const std::string& delimiter = " ", const EvaluationOptions& options = {});

/// A prompt with the text that should follow.
struct Question {
  std::string prompt;
  std::vector<std::string> answers;  ///< any of them is right
  std::string place{};               ///< what errors call it; empty: its number
};
/// How a continuation is compared.
struct MatchOptions {
  int64_t tokens = 256;                    ///< written at most
  std::vector<std::string> stops{"\n\n"};  ///< what ends a continuation, and is no part of it
  bool ignore_case = false;                ///< of ASCII letters
  bool ignore_punctuation = false;         ///< of ASCII
  bool ignore_digits = false;              ///< of ASCII
  bool trim = false;                       ///< white space at both ends
};
/// exact_match: the share of prompts whose likeliest continuation is an answer. The end of a prompt is read where it
/// does not fit. Throws ValueError where the subject does not generate, nothing of a prompt would fit, or `watch` stops
/// it.
Evaluation exact_match(const Subject& subject, const std::vector<Question>& questions, const MatchOptions& options = {},
                       const Watch& watch = {});

}  // namespace strata::eval
