'use strict';
// Batches of tensors.

const { functions: F } = require('./ops.js');
const { ValueError } = require('./errors.js');

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

module.exports = { batches };
