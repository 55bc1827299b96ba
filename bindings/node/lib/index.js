'use strict';
// Strata for Node. Ops keep the names of their records (st.max_pool2d); what the bindings add is in camelCase.

const native = require('./native.js');
const errors = require('./errors.js');
native.setErrors(errors);

const { ops, functions, asyncFunctions, describe, refresh } = require('./ops.js');
const { views, functions: _, ...tensors } = require('./tensor.js');
const autograd = require('./autograd.js');

/** Restarts the random numbers of every op that draws some. */
const manualSeed = (seed) => native.seed(seed);

/**
 * Loads a plugin; its ops then are functions and methods like all others. {name, version, path, ops}, ops being their
 * names. In each worker that is to have them: again (the file itself is loaded once).
 */
function loadPlugin(path) {
  const plugin = native.loadPlugin(path);
  for (const name of refresh()) {
    if (!(name in strata)) strata[name] = functions[name];
  }
  return plugin;
}

/** Where the random numbers of every op stand: {seed, offset}, BigInts. */
const randomState = () => native.randomState();
const setRandomState = (state) => native.setRandomState(state);

const strata = {
  ...functions,
  ...views,
  ...tensors,
  ...autograd,
  ...errors,
  ...require('./graphed.js'),
  ...require('./models.js'),
  ...require('./pretrained.js'),
  ...require('./objects.js'),
  ...require('./trainer.js'),
  ...require('./recording.js'),
  ...require('./budget.js'),
  ops,
  async: asyncFunctions,
  describeOps: describe,
  /** st.linalg.svd is st.linalg_svd, and so on: the records of that family under torch.linalg's names. */
  linalg: Object.fromEntries(Object.entries(functions).filter(([name]) => name.startsWith('linalg_')).map(([name, f]) => [name.slice(7), f])),
  nn: require('./nn/index.js'),
  optim: require('./optim/index.js'),
  data: require('./data.js'),
  distributions: require('./distributions.js'),
  manualSeed,
  randomState,
  setRandomState,
  loadPlugin,
  numThreads: () => native.numThreads(),
  setNumThreads: (count) => native.setNumThreads(count),
  memoryStats: (device) => native.memoryStats(device),
  resetPeakMemoryStats: (device) => native.memoryResetPeak(device),
  memorySnapshot: (device) => JSON.parse(native.memorySnapshot(device)).blocks,
  emptyCache: () => native.memoryReleaseCached(),
  setMemoryLimit: (bytes) => native.memorySetLimit(bytes),
  cuda: require('./cuda.js'),
  version: native.version,
};

module.exports = strata;
