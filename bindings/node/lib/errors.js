'use strict';
// One class for each error class of the engine; the text is the engine's.

class StrataError extends Error {
  constructor(message, op = '') {
    super(message);
    this.op = op;
  }
}
const classes = { StrataError };
for (const name of ['ShapeError', 'DTypeError', 'IndexError', 'ValueError', 'DeviceError', 'AutogradError', 'MemoryError',
  'IoError', 'LinAlgError', 'DivergedError', 'PluginError', 'AbortedError']) {
  classes[name] = { [name]: class extends StrataError {} }[name];
}
for (const cls of Object.values(classes)) {
  Object.defineProperty(cls.prototype, 'name', { value: cls.name, configurable: true, writable: true });
}

module.exports = classes;
