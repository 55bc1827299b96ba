'use strict';
// Files, checkpoints, text from language models, and training them: all off the event loop.

const native = require('./native.js');
const { withSignal } = require('./signal.js');
const { settled } = require('./ops.js');
const { ValueError } = require('./errors.js');

// Without a path: the file's bytes.
function write(path, tensors, { metadata = {}, signal } = {}) {
  return withSignal(signal, (flag) => settled(() => native.save(flag, path, Object.keys(tensors), Object.values(tensors),
    Object.keys(metadata), Object.values(metadata))), true);
}
/** Writes tensors by name to a safetensors file. */
function save(path, tensors, options) {
  return write(path ?? '', tensors, options);
}
/** The bytes of the file that save() writes, as a Buffer. */
function saveToBuffer(tensors, options) {
  return write(undefined, tensors, options);
}
/** The tensors of a safetensors file by name: of a path, or of a Buffer or Uint8Array that holds the file. */
async function load(path, { signal } = {}) {
  return (await withSignal(signal, (flag) => settled(() => native.load(flag, path)))).tensors;
}
/** {tensors, metadata} of a safetensors file. */
function loadWithMetadata(path, { signal } = {}) {
  return withSignal(signal, (flag) => settled(() => native.load(flag, path)));
}
/** The tensor of an IDX file (MNIST's), plain or gzip-compressed. */
function readIdx(path, { signal } = {}) {
  return withSignal(signal, (flag) => settled(() => native.readIdx(flag, path)));
}

class LanguageModel {
  #handle;
  constructor(loaded) {
    this.#handle = loaded.handle;
    this.config = loaded.config;
    this.step = loaded.step;
    this.context = loaded.context;
    this.vocab = loaded.vocab;
    this.warnings = loaded.warnings;
  }
  /** Logits [B, T, vocab] of i64 tokens [B, T]; a promise. */
  forward(tokens, { signal } = {}) {
    return withSignal(signal, (flag) => settled(() => native.forwardModel(flag, this.#handle, tokens)));
  }
  namedParameters() {
    return native.modelParameters(this.#handle);
  }
  encode(text) {
    return native.encode(this.#handle, text);
  }
  decode(ids) {
    return native.decode(this.#handle, Array.from(ids));
  }
  /**
   * Continues a prompt: for await (const {token, text} of model.generate('Once', {tokens: 100})) ...
   * `text` holds whole characters only. Each token is computed on a pool thread when it is asked for.
   */
  async* generate(prompt, { tokens = 100, temperature = 0.8, topK = 0, topP = 1, seed = 0, signal } = {}) {
    signal?.throwIfAborted();
    const writer = native.newWriter(this.#handle, prompt, temperature, topK, topP, seed);
    for (let i = 0; i < tokens; ++i) {
      yield await withSignal(signal, (flag) => settled(() => native.writerNext(flag, writer, i + 1 === tokens)));
    }
  }
  /** The whole continuation as one text; onToken is called with each {token, text}. */
  async complete(prompt, { onToken, ...options } = {}) {
    let text = '';
    for await (const made of this.generate(prompt, options)) {
      text += made.text;
      onToken?.(made);
    }
    return text;
  }
}
/** The model of a checkpoint: a run's folder (its newest) or a checkpoint's. */
async function loadModel(path, { device, signal } = {}) {
  return new LanguageModel(await withSignal(signal, (flag) => settled(() => native.loadModel(flag, path, device))));
}

/** {model: {layers: 2}} as ['model.layers=2']. */
function flatten(settings, prefix = '') {
  return Object.entries(settings).flatMap(([key, value]) => {
    if (value !== null && typeof value === 'object') return flatten(value, `${prefix}${key}.`);
    if (!['string', 'number', 'boolean', 'bigint'].includes(typeof value)) {
      throw new ValueError(`train: ${prefix}${key} must be a text, a number or a boolean, got ${String(value)}`, 'train');
    }
    return [`${prefix}${key}=${value}`];
  });
}
/**
 * Trains a language model as `strata train` does, on a pool thread. `settings` is TOML or nested objects. The signal
 * stops after the step under way, saves, and rejects with its reason; {resume: true} goes on from there.
 */
async function train(settings, { out, resume = false, onLog, signal } = {}) {
  const toml = typeof settings === 'string' ? settings : '';
  const overrides = typeof settings === 'string' ? [] : flatten(settings);
  return withSignal(signal ?? new AbortController().signal,
    (flag) => settled(() => native.train(flag, toml, overrides, out, resume, onLog)), true);
}

module.exports = { save, saveToBuffer, load, loadWithMetadata, readIdx, LanguageModel, loadModel, train };
