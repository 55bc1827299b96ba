'use strict';
// What several layers need.

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const { wantCount } = require('../arguments.js');
const { parameter } = require('./module.js');
const { init } = require('./init.js');

/** Options of every layer that makes tensors, as optionsOf() takes them. */
const MADE = { dtype: undefined, device: undefined };
const madeOf = ({ dtype, device }) => ({ dtype, device });
/** A parameter drawn uniformly within `bound`. */
const uniform = (shape, bound, { dtype = 'f32', device } = {}) => parameter(F.uniform(shape, -bound, bound, { dtype, device }));
/** New values for parameters, null being one that there is not. */
function redraw(bound, ...list) {
  for (const p of list) if (p) init.uniform_(p, -bound, bound);
}
/** A parameter of ones or zeros, or null. */
const filled = (wanted, shape, value, options) => (wanted ? parameter(T.full(shape, value, options)) : null);
const wantCounts = (op, counts) => Object.entries(counts).forEach(([name, v]) => wantCount(v, op, name));

module.exports = { MADE, madeOf, uniform, redraw, filled, wantCounts };
