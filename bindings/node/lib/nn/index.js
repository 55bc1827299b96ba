'use strict';
// st.nn

const { Module, parameter, buffer } = require('./module.js');
const { init } = require('./init.js');

module.exports = {
  Module, parameter, buffer,
  ...require('./layers.js'),
  ...require('./conv.js'),
  ...require('./pooling.js'),
  ...require('./dropout.js'),
  ...require('./norm.js'),
  ...require('./activation.js'),
  ...require('./loss.js'),
  ...require('./rnn.js'),
  ...require('./attention.js'),
  ...require('./container.js'),
  ...require('./adaptive.js'),
  ...require('./lazy.js'),
  init,
  functional: require('./functional/index.js'),
  utils: require('./utils.js'),
};
