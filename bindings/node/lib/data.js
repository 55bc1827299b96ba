'use strict';
// Data sets and batches.

const native = require('./native.js');
const { functions: F } = require('./ops.js');
const T = require('./tensor.js');
const { readIdx } = require('./models.js');
const { IndexError, ValueError } = require('./errors.js');

const { Tensor } = native;

/** The rows of the tensors in batches, once: arrays of one tensor for each. */
function* batches(tensors, { batchSize = 32, shuffle = false, dropLast = false } = {}) {
  const n = tensors[0]?.shape[0] ?? 0;
  if (tensors.some((t) => t.shape[0] !== n)) throw new ValueError('batches: the tensors have different numbers of rows', 'batches');
  const order = shuffle ? F.randperm(n) : null;
  for (let i = 0; i < n; i += batchSize) {
    const length = Math.min(batchSize, n - i);
    if (length < batchSize && dropLast) return;
    yield tensors.map((t) => (order ? F.index_select(t, 0, order.narrow(0, i, length).to(t.device)) : t.narrow(0, i, length)));
  }
}

/** Samples by number: derive, and write length and get(index), which may return a promise. */
class Dataset {
  get length() {
    throw new ValueError(`${this.constructor.name}: length is not written`, this.constructor.name);
  }
  get() {
    throw new ValueError(`${this.constructor.name}: get() is not written`, this.constructor.name);
  }
}
/** An index within a data set; negative ones count from the end. */
function within(index, length, name) {
  const i = index < 0 ? index + length : index;
  if (!Number.isInteger(i) || i < 0 || i >= length) throw new IndexError(`${name}: there is no sample ${index} of ${length}`, name);
  return i;
}
/** Rows of tensors: sample i is [t.at(i), ...]. */
class TensorDataset extends Dataset {
  constructor(...tensors) {
    super();
    if (tensors.length === 0 || tensors.some((t) => t.shape[0] !== tensors[0].shape[0])) {
      throw new ValueError('TensorDataset: needs tensors with the same number of rows', 'TensorDataset');
    }
    this.tensors = tensors;
  }
  get length() {
    return this.tensors[0].shape[0];
  }
  get(index) {
    const i = within(index, this.length, 'TensorDataset');
    return this.tensors.map((t) => t.select(0, i));
  }
  /** The samples as one tensor each, without going through them one by one. */
  getBatch(indices) {
    const rows = T.tensor(Array.from(indices), { dtype: 'i64' });
    return this.tensors.map((t) => F.index_select(t, 0, rows.to(t.device)));
  }
}
/** Images and labels of two IDX files (MNIST's): f32 [1, H, W] within [0, 1], and i64. */
async function loadIdxDataset(images, labels, options) {
  const [x, y] = await Promise.all([readIdx(images, options), readIdx(labels, options)]);
  return new TensorDataset(x.to('f32').unsqueeze(1).div(255), y.to('i64'));
}
/** The samples of the given numbers. */
class Subset extends Dataset {
  constructor(dataset, indices) {
    super();
    this.dataset = dataset;
    this.indices = Array.from(indices, (i) => within(Number(i), dataset.length, 'Subset'));
    if (dataset.getBatch) this.getBatch = (some) => dataset.getBatch(Array.from(some, (i) => this.indices[i]));
  }
  get length() {
    return this.indices.length;
  }
  get(index) {
    return this.dataset.get(this.indices[within(index, this.length, 'Subset')]);
  }
}
/** Data sets one after the other. */
class ConcatDataset extends Dataset {
  constructor(datasets) {
    super();
    this.datasets = [...datasets];
    let end = 0;
    this.ends = this.datasets.map((d) => (end += d.length));
  }
  get length() {
    return this.ends[this.ends.length - 1] ?? 0;
  }
  get(index) {
    const i = within(index, this.length, 'ConcatDataset');
    const which = this.ends.findIndex((end) => i < end);
    return this.datasets[which].get(i - (which ? this.ends[which - 1] : 0));
  }
}
const orderOf = (size, seed, epoch) => (size > 0 ? Array.from(native.sampleOrder(size, seed, epoch).data(), Number) : []);
/** Subsets of the given sizes, or of fractions that sum to 1, of samples in an order that the seed decides. */
function randomSplit(dataset, lengths, { seed = 0 } = {}) {
  const size = dataset.length;
  let counts = [...lengths];
  if (!counts.every(Number.isInteger)) {
    if (Math.abs(counts.reduce((a, b) => a + b, 0) - 1) > 1e-9) throw new ValueError('randomSplit: the fractions do not sum to 1', 'randomSplit');
    counts = counts.map((part) => Math.floor(part * size));
    for (let i = 0, left = size - counts.reduce((a, b) => a + b, 0); i < left; ++i) ++counts[i % counts.length];
  }
  if (counts.reduce((a, b) => a + b, 0) !== size) {
    throw new ValueError(`randomSplit: the lengths do not sum to the ${size} samples`, 'randomSplit');
  }
  const order = orderOf(size, seed, 0);
  return counts.map((count) => new Subset(dataset, order.splice(0, count)));
}

/** Samples as one: tensors stacked, numbers, BigInts and booleans as tensors, arrays and objects part by part, others listed. */
function defaultCollate(samples) {
  const [first] = samples;
  if (first instanceof Tensor) return F.stack(samples, 0);
  if (['number', 'bigint', 'boolean'].includes(typeof first)) return T.tensor(samples);
  if (Array.isArray(first)) return first.map((_, i) => defaultCollate(samples.map((s) => s[i])));
  if (first !== null && typeof first === 'object' && Object.getPrototypeOf(first) === Object.prototype) {
    return Object.fromEntries(Object.keys(first).map((key) => [key, defaultCollate(samples.map((s) => s[key]))]));
  }
  return samples;
}

/**
 * Batches of a data set, or of anything that can be iterated. `for (const batch of loader)` where samples are there at once;
 * `for await (...)` also where get() returns promises: then `prefetch` batches are on their way at once. Every pass has an
 * order of its own, which seed and pass decide ({shuffle}); `epoch` is the number of the next pass.
 */
class DataLoader {
  constructor(dataset, { batchSize = 1, shuffle = false, seed = 0, dropLast = false, collate, sampler, prefetch = 2 } = {}) {
    if (!Number.isInteger(batchSize) || batchSize < 1) throw new ValueError(`DataLoader: batchSize must be at least 1, got ${batchSize}`, 'DataLoader');
    if (!Number.isInteger(prefetch) || prefetch < 1) throw new ValueError(`DataLoader: prefetch must be at least 1, got ${prefetch}`, 'DataLoader');
    if (shuffle && sampler) throw new ValueError('DataLoader: a sampler has an order of its own, without shuffle', 'DataLoader');
    const byNumber = typeof dataset?.get === 'function';
    if (!byNumber && (shuffle || sampler || !(dataset?.[Symbol.iterator] || dataset?.[Symbol.asyncIterator]))) {
      throw new ValueError(`DataLoader: needs a data set with length and get()${shuffle || sampler ? '' : ', or something to iterate'}`, 'DataLoader');
    }
    Object.assign(this, { dataset, batchSize, shuffle, seed, dropLast, sampler, prefetch, epoch: 0, byNumber });
    this.collate = collate ?? defaultCollate;
    this.ownCollate = collate !== undefined;
  }
  /** Batches of a pass. */
  get length() {
    if (!this.byNumber) throw new ValueError('DataLoader: what is only iterated has no length', 'DataLoader');
    const n = this.sampler?.length ?? this.dataset.length;
    return this.dropLast ? Math.floor(n / this.batchSize) : Math.ceil(n / this.batchSize);
  }
  * #indices() {
    const epoch = this.epoch++;
    let order = this.sampler;
    if (!order) order = this.shuffle ? orderOf(this.dataset.length, this.seed, epoch) : Array.from({ length: this.dataset.length }, (_, i) => i);
    let batch = [];
    for (const i of order) {
      batch.push(i);
      if (batch.length < this.batchSize) continue;
      yield batch;
      batch = [];
    }
    if (batch.length && !this.dropLast) yield batch;
  }
  #batch(indices) {
    const { dataset } = this;
    if (dataset.getBatch && !this.ownCollate) return dataset.getBatch(indices);
    const samples = indices.map((i) => dataset.get(i));
    return samples.some((s) => typeof s?.then === 'function') ? Promise.all(samples).then((all) => this.collate(all)) : this.collate(samples);
  }
  * [Symbol.iterator]() {
    const now = (batch) => {
      if (typeof batch?.then !== 'function') return batch;
      batch.catch(() => {});
      throw new ValueError('DataLoader: the data set gives promises: use for await', 'DataLoader');
    };
    if (this.byNumber) {
      for (const indices of this.#indices()) yield now(this.#batch(indices));
      return;
    }
    if (!this.dataset[Symbol.iterator]) throw new ValueError('DataLoader: the data set gives promises: use for await', 'DataLoader');
    let samples = [];
    for (const sample of this.dataset) {
      samples.push(sample);
      if (samples.length < this.batchSize) continue;
      yield this.collate(samples);
      samples = [];
    }
    if (samples.length && !this.dropLast) yield this.collate(samples);
  }
  async* [Symbol.asyncIterator]() {
    if (this.byNumber) {
      const waiting = [];
      const start = (indices) => {
        const batch = new Promise((resolve) => { resolve(this.#batch(indices)); });
        batch.catch(() => {});  // thrown when its turn comes
        waiting.push(batch);
      };
      for (const indices of this.#indices()) {
        start(indices);
        if (waiting.length >= this.prefetch) yield await waiting.shift();
      }
      while (waiting.length) yield await waiting.shift();
      return;
    }
    let samples = [];
    for await (const sample of this.dataset) {
      samples.push(sample);
      if (samples.length < this.batchSize) continue;
      yield this.collate(samples);
      samples = [];
    }
    if (samples.length && !this.dropLast) yield this.collate(samples);
  }
}

module.exports = { batches, Dataset, TensorDataset, loadIdxDataset, Subset, ConcatDataset, randomSplit, defaultCollate, DataLoader };
