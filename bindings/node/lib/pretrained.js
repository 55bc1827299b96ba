'use strict';
// Models that exist: folders as Hugging Face writes them. What takes long runs on a pool thread.

const native = require('./native.js');
const { withSignal } = require('./signal.js');
const { settled } = require('./ops.js');
const { isOptions, kindOf, optionsOf, wantTensor } = require('./arguments.js');
const { camel } = require('./optim/recorded.js');
const { ValueError } = require('./errors.js');

// maxNewTokens: max_new_tokens
const spellings = (described) => new Map(JSON.parse(described).map(({ name }) => [camel(name), name]));
const ofGeneration = spellings(native.generationOptions());
const ofEvaluation = spellings(native.evaluationOptions());

/** Options as the engine's JSON; BigInts, which JSON.stringify refuses, are numbers there. */
function toJson(op, options, spelled = ofGeneration) {
  const members = [];
  for (const [key, value] of Object.entries(options)) {
    if (!spelled.has(key)) throw new ValueError(`${op}: there is no option '${key}'; there are ${[...spelled.keys()].join(', ')}`, op);
    if (value === undefined) continue;
    members.push(`${JSON.stringify(spelled.get(key))}:${typeof value === 'bigint' ? value : JSON.stringify(value)}`);
  }
  return `{${members.join()}}`;
}

const isId = (v) => typeof v === 'number' || typeof v === 'bigint';
const isPrompt = (v) => typeof v === 'string' || (Array.isArray(v) && v.length > 0 && v.every(isId));

class PretrainedModel {
  #handle;
  #turn = Promise.resolve();  // of generate(): one at a time, the others hold no thread
  constructor({ handle, description }) {
    this.#handle = handle;
    const { family, title, kind, context, vocab_size: vocabSize, special_ids: specialIds, config, generation_config: generationConfig,
      tokenizer, chat_template: chatTemplate } = JSON.parse(description);
    Object.assign(this, { family, title, kind, context, vocabSize, specialIds, config, generationConfig, hasTokenizer: tokenizer, hasChatTemplate: chatTemplate });
  }
  #tensor(call, x, { padding = null, types = null, signal } = {}) {
    wantTensor(x, 'forward');
    return withSignal(signal, (flag) => settled(() => call(flag, this.#handle, x, padding, types)));
  }
  /** Logits of i64 tokens [B, T], or of pixels; of an encoder without a head hidden states; of an encoder-decoder, with `tokens`, of what it writes for x. */
  async forward(x, { tokens = null, ...options } = {}) {
    if (tokens === null) return this.#tensor(native.pretrainedForward, x, options);
    wantTensor(x, 'forward');
    wantTensor(tokens, 'forward');
    const { padding = null, signal } = options;
    return withSignal(signal, (flag) => settled(() => native.pretrainedForwardSource(flag, this.#handle, x, tokens, padding)));
  }
  /** What the last block gives, [B, T, dim]. */
  async hidden(x, options) {
    return this.#tensor(native.pretrainedHidden, x, options);
  }
  namedParameters() {
    return native.pretrainedParameters(this.#handle);
  }
  /** Ids of a text, with the special tokens that the model's makers put around one. */
  encode(text) {
    return native.pretrainedEncode(this.#handle, text);
  }
  decode(ids, { skipSpecialTokens = true } = {}) {
    return native.pretrainedDecode(this.#handle, Array.from(ids), skipSpecialTokens);
  }
  /** The ids of a conversation as the folder's chat template writes it, ending where the assistant is to write. */
  chatPrompt(messages, variables = {}) {
    return native.pretrainedChat(this.#handle, JSON.stringify(messages), JSON.stringify(variables));
  }
  /**
   * Continues a prompt (a text or ids): a list of completions; of several prompts a list of such lists. onPiece sees each token
   * as it is drawn and ends its text with false.
   */
  async generate(prompts, { onPiece, signal, ...options } = {}) {
    const single = isPrompt(prompts);
    const many = single ? [prompts] : prompts;
    if (!Array.isArray(many) || !many.every(isPrompt)) {
      throw new ValueError(`generate: a prompt is a text or an array of ids, got ${kindOf(Array.isArray(many) ? many.find((p) => !isPrompt(p)) : many)}`, 'generate');
    }
    const ids = many.map((p) => (typeof p === 'string' ? this.encode(p) : p));
    const call = toJson('generate', options);
    const tell = onPiece && ((request, completion, token, text, last) => onPiece({ request, completion, token, text, last }));
    const made = this.#turn.then(() => withSignal(signal, (flag) => settled(() => native.pretrainedGenerate(flag, this.#handle, ids, call, tell)), true));
    this.#turn = made.then(() => {}, () => {});
    const results = JSON.parse(await made).map((one) => one.completions.map(({ top_logprobs: topLogprobs, ...rest }) => ({
      ...rest, topLogprobs, promptLogprobs: one.prompt_logprobs, topPromptLogprobs: one.top_prompt_logprobs,
    })));
    return single ? results[0] : results;
  }
  /**
   * What is said in a WAV file (its path), or in samples [n] or [channels, n] of `rate` a second: {language, text, segments: [{start, end,
   * text, tokens}, ..]}. What is longer than a window of the model is written with times, as `timestamps: true` asks for. With
   * `wordTimestamps` segments have `words`: [{start, end, text}, ..]; with a threshold they say how likely they are.
   */
  async transcribe(sound, {
    rate = null, language, task, timestamps, wordTimestamps, prompt, promptConditionType, conditionOnPrevTokens, compressionRatioThreshold,
    logprobThreshold, noSpeechThreshold, signal, ...options
  } = {}) {
    if (typeof sound !== 'string') {
      wantTensor(sound, 'transcribe');
      if (rate === null) throw new ValueError('transcribe: samples want a rate', 'transcribe');
    }
    const own = JSON.stringify({
      language, task, timestamps, word_timestamps: wordTimestamps, prompt, prompt_condition_type: promptConditionType,
      condition_on_prev_tokens: conditionOnPrevTokens, compression_ratio_threshold: compressionRatioThreshold,
      logprob_threshold: logprobThreshold, no_speech_threshold: noSpeechThreshold,
    }).slice(1, -1);
    const rest = toJson('transcribe', options).slice(1, -1);
    const call = `{${[own, rest].filter((part) => part !== '').join()}}`;
    const made = this.#turn.then(() => withSignal(signal, (flag) => settled(() => native.pretrainedTranscribe(flag, this.#handle, sound, rate, call)), true));
    this.#turn = made.then(() => {}, () => {});
    const { segments, ...all } = JSON.parse(await made);
    return {
      ...all,
      segments: segments.map(({
        token_ends: tokenEnds, avg_logprob: avgLogprob, compression_ratio: compressionRatio, no_speech_prob: noSpeechProb, ...part
      }) => ({
        ...part, ...(tokenEnds && { tokenEnds }), ...(avgLogprob !== undefined && { avgLogprob, compressionRatio, noSpeechProb }),
      })),
    };
  }
  /** The text that continues a prompt. */
  async generateText(prompt, options) {
    const [{ text }] = await this.generate(isPrompt(prompt) ? prompt : [prompt], options);
    return text;
  }
  /**
   * for await (const {token, text} of model.stream('Once', {maxNewTokens: 100})) ...: tokens as they are drawn, `text` in whole
   * characters. Leaving the loop ends the writing.
   */
  async* stream(prompt, options = {}) {
    const pieces = [];
    let left = false;
    let ended = false;
    let wake = () => {};
    const onPiece = (piece) => {
      pieces.push(piece);
      wake();
      return !left;
    };
    const done = this.generate(prompt, { ...options, onPiece }).finally(() => {
      ended = true;
      wake();
    });
    done.catch(() => {});  // told below
    try {
      while (pieces.length > 0 || !ended) {
        if (pieces.length > 0) yield pieces.shift();
        else await new Promise((resolve) => { wake = resolve; });
      }
      await done;
    } finally {
      left = true;
      await done.catch(() => {});
    }
  }
  /** The assistant's answer to a conversation; `variables` are the template's. */
  async chat(messages, { variables, ...options } = {}) {
    const [{ text }] = await this.generate(this.chatPrompt(messages, variables), options);
    return text;
  }
  /**
   * Measures a decoder on local files, as `strata eval` does and to its numbers, which are lm-evaluation-harness's: {results: {text:
   * {measures: {loss: {value, error}, ..}}, ..}}, what the command writes by --json. `reference` is a model that texts are compared with.
   * onProgress hears {name, unit, done, all} and ends it with false, which is a ValueError.
   */
  async evaluate(given = {}) {
    if (!isOptions(given)) throw new ValueError(`evaluate: the options must be an object, got ${kindOf(given)}`, 'evaluate');
    const { reference = null, onProgress, signal, ...options } = given;
    if (reference !== null && !(reference instanceof PretrainedModel)) {
      throw new ValueError(`evaluate: the reference is a model of loadPretrained(), got ${kindOf(reference)}`, 'evaluate');
    }
    const call = toJson('evaluate', options, ofEvaluation);
    const tell = onProgress && ((name, unit, done, all) => onProgress({ name, unit, done, all }));
    const other = reference && reference.#handle;
    const made = this.#turn.then(() => withSignal(signal, (flag) => settled(() => native.pretrainedEvaluate(flag, this.#handle, call, other, tell)), true));
    this.#turn = made.then(() => {}, () => {});
    const report = JSON.parse(await made);
    for (const result of Object.values(report.results)) {
      if (result.samples) result.samples = result.samples.map(({ log_probabilities: logProbabilities, ...rest }) => ({ ...rest, logProbabilities }));
    }
    return report;
  }
  /** One vector of each text, [texts, dim]: hidden states pooled as the folder says, or as `pooling` and `normalize` do. */
  async embed(texts, given = {}) {
    if (!isOptions(given)) throw new ValueError(`embed: the options must be an object, got ${kindOf(given)}`, 'embed');
    const { signal, ...options } = given;
    const call = JSON.stringify(optionsOf('embed', options, { pooling: undefined, normalize: undefined }));
    return withSignal(signal, (flag) => settled(() => native.pretrainedEmbed(flag, this.#handle, Array.from(texts), call)));
  }
}

/** The model of a folder as Hugging Face writes it: weights as stored or in `dtype`, on `device`. */
async function loadPretrained(folder, { dtype = null, device = null, signal } = {}) {
  return new PretrainedModel(await withSignal(signal, (flag) => settled(() => native.loadPretrained(flag, folder, dtype, device))));
}

module.exports = { PretrainedModel, loadPretrained };
