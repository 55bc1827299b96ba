// A small GPT learns a text by heart, character by character, and writes it down.  Usage: char_gpt [TEXTFILE]
// `strata train` does the same with checkpoints, schedules and a report; this is what the library itself looks like.

#include <cstdio>
#include <string>

#include <strata/io/files.h>
#include <strata/generate/sampling.h>
#include <strata/strata.h>

using namespace strata;

int main(int argc, char** argv) {
  const std::string text =
      argc > 1 ? io::read_file(argv[1])
               : "The sea is calm tonight. The tide is full, the moon lies fair upon the straits; on the "
                 "coast the light gleams and is gone.\n";
  const text::ByteTokenizer tokenizer;
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const Tensor tokens = from_span<int32_t>(ids, {static_cast<int64_t>(ids.size())}).to(DType::i64);

  manual_seed(1);
  ModelConfig config;
  config.layers = 2;
  config.dim = 64;
  config.heads = 4;
  config.context = 32;
  config.vocab = tokenizer.vocab_size();
  const auto model = make_model(config);
  std::printf("%lld parameters\n", static_cast<long long>(model->num_parameters()));

  // Every window of the text, and the same moved on by one.
  const Tensor windows = tokens.unfold(0, config.context + 1, 1);
  const auto dataset = std::make_shared<data::TensorDataset>(TensorList{windows.contiguous()});
  data::DataLoader loader(dataset, {.batch_size = 16, .shuffle = true, .repeat = true});
  optim::AdamW optimizer(model->named_parameters(), {3e-3});

  double loss_now = 0;
  for (int step = 0; step < 150; ++step) {
    const Tensor batch = (*loader.next())[0];
    optimizer.zero_grad();
    const Tensor loss = model->loss(batch.narrow(1, 0, config.context), batch.narrow(1, 1, config.context));
    loss.backward();
    optimizer.step_clipped(1.0);
    loss_now = loss.item();
    if (step % 25 == 0) std::printf("step %3d  loss %.4f\n", step, loss_now);
  }

  TokenSampler sampler(model, tokenizer.encode(text.substr(0, 8)), {.temperature = 0.5});
  std::string written = text.substr(0, 8);
  for (int i = 0; i < 100; ++i) {
    const int32_t token = sampler.next();
    written += tokenizer.decode({&token, 1});
  }
  std::printf("%s\n", written.c_str());
  return argc > 1 || loss_now < 0.5 ? 0 : 1;
}
