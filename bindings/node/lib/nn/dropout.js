'use strict';
// Dropout. Nothing happens in evaluation.

const functional = require('./functional/index.js');
const { wantShare } = require('./functional/norm.js');
const { Module, detailOf } = require('./module.js');

const dropout = (name, f) => ({ [name]: class extends Module {
  constructor(p = 0.5) {
    super();
    this.p = wantShare(p, name);
  }
  forward(x) {
    return f(x, { p: this.p, training: this.training });
  }
  detail() {
    return detailOf([], { p: this.p });
  }
} })[name];

module.exports = {
  /** Zeroes each element with probability p and divides the others by 1 - p. */
  Dropout: dropout('Dropout', functional.dropout),
  // Whole channels of [N, C, ...].
  Dropout1d: dropout('Dropout1d', functional.dropout1d),
  Dropout2d: dropout('Dropout2d', functional.dropout2d),
  Dropout3d: dropout('Dropout3d', functional.dropout3d),
  /** For SELU: mean and variance are kept. */
  AlphaDropout: dropout('AlphaDropout', functional.alphaDropout),
  FeatureAlphaDropout: dropout('FeatureAlphaDropout', functional.featureAlphaDropout),
};
