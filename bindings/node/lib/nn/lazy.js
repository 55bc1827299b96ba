'use strict';
// Layers whose number of inputs is known only when they are first called; they then become the plain layer.

const { Module, waiting, detailOf } = require('./module.js');
const { wantTensor } = require('../arguments.js');
const { ShapeError } = require('../errors.js');
const conv = require('./conv.js');
const norm = require('./norm.js');
const { Linear } = require('./layers.js');

const lazy = (Plain, dim) => ({ [`Lazy${Plain.name}`]: class extends Module {
  #arguments;
  constructor(...args) {
    super();
    this.#arguments = args;
    waiting.add(this);
  }
  forward(x, ...rest) {
    const name = `Lazy${Plain.name}`;
    const { shape } = wantTensor(x, name);
    const inputs = shape.at(dim);
    if (inputs === undefined) throw new ShapeError(`${name}: an input of [${shape.join(', ')}] has no dimension ${dim}`, name);
    const plain = new Plain(inputs, ...this.#arguments).to(x.device);
    const { training } = this;
    for (const [key, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(plain))) Object.defineProperty(this, key, descriptor);
    this.training = training;
    Object.setPrototypeOf(this, Plain.prototype);
    waiting.delete(this);
    return Plain.prototype.forward.call(this, x, ...rest);
  }
  detail() {
    return detailOf(this.#arguments.filter((v) => typeof v !== 'object'));
  }
} })[`Lazy${Plain.name}`];

module.exports = Object.fromEntries([
  [Linear, -1],
  ...[1, 2, 3].flatMap((n) => [[conv[`Conv${n}d`], 1], [conv[`ConvTranspose${n}d`], 1], [norm[`BatchNorm${n}d`], 1], [norm[`InstanceNorm${n}d`], 1]]),
].map(([Plain, dim]) => [`Lazy${Plain.name}`, lazy(Plain, dim)]));
