'use strict';
// st.nn.functional: PyTorch's functions in camelCase. Arguments go by position, and an object at the end holds others by name.

const { functions: F } = require('../../ops.js');
const { shell: _, ...losses } = require('./loss.js');
const { wantShare: __, ...norms } = require('./norm.js');

const camel = (name) => name.replace(/_([a-z0-9])/g, (all, c) => c.toUpperCase());
// Records that are these functions already.
const RECORDS = ['relu', 'gelu', 'silu', 'mish', 'elu', 'hardtanh', 'hardsigmoid', 'hardswish', 'softplus', 'logsigmoid', 'sigmoid', 'tanh', 'swiglu',
  'softmax', 'log_softmax', 'linear', 'embedding', 'layer_norm', 'rms_norm', 'group_norm', 'linear_cross_entropy'];

module.exports = {
  ...Object.fromEntries(RECORDS.map((name) => [camel(name), F[name]])),
  ...require('./activation.js'),
  ...require('./linear.js'),
  ...require('./conv.js'),
  ...require('./pooling.js'),
  ...require('./resize.js'),
  ...norms,
  ...losses,
};
