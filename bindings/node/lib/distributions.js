'use strict';
// Probability distributions: a class for each of the engine's records, with its parameters by position or by name.

const native = require('./native.js');
const { isOptions, kindOf } = require('./arguments.js');
const { ValueError } = require('./errors.js');

/** total_count is totalCount. */
const camel = (name) => name.replace(/(?<=.)_([a-z0-9])/g, (all, c) => c.toUpperCase());
const shapeOf = (shape) => (typeof shape === 'number' ? [shape] : shape);

// What constructors are given before a handle that there is already.
const HANDLE = Symbol('handle');

/** A batch of distributions: batchShape of them, each over values of eventShape. */
class Distribution {
  /** The engine's handle. */
  #handle;
  constructor(token, handle) {
    if (token !== HANDLE) throw new ValueError(`${new.target.name}: make one of a family`, new.target.name);
    this.#handle = handle;
  }
  static handleOf(d, op) {
    if (!(d instanceof Distribution)) throw new ValueError(`${op}: needs a distribution, got ${kindOf(d)}`, op);
    return d.#handle;
  }
  get batchShape() {
    return native.distributionShapes(this.#handle).batchShape;
  }
  get eventShape() {
    return native.distributionShapes(this.#handle).eventShape;
  }
  /** The values that may be drawn: { kind, lower, upper, eventDim, text }. */
  get support() {
    return native.distributionSupport(this.#handle);
  }
  /** Values of shape [...sampleShape, ...batchShape, ...eventShape], without a gradient. */
  sample(sampleShape = []) {
    return native.distributionSample(this.#handle, shapeOf(sampleShape), false);
  }
  /** The same, through which gradients reach the parameters. */
  rsample(sampleShape = []) {
    return native.distributionSample(this.#handle, shapeOf(sampleShape), true);
  }
  logProb(value) {
    return native.distributionOf(this.#handle, 'logProb', value);
  }
  cdf(value) {
    return native.distributionOf(this.#handle, 'cdf', value);
  }
  icdf(share) {
    return native.distributionOf(this.#handle, 'icdf', share);
  }
  entropy() {
    return native.distributionMoment(this.#handle, 'entropy');
  }
  perplexity() {
    return native.distributionMoment(this.#handle, 'perplexity');
  }
  get mean() {
    return native.distributionMoment(this.#handle, 'mean');
  }
  get mode() {
    return native.distributionMoment(this.#handle, 'mode');
  }
  get variance() {
    return native.distributionMoment(this.#handle, 'variance');
  }
  get stddev() {
    return native.distributionMoment(this.#handle, 'stddev');
  }
  /** All values, along a first dimension; the batch's dimensions are 1 unless expand. */
  enumerateSupport(expand = true) {
    return native.distributionValues(this.#handle, expand);
  }
  /** The same over a larger batch. */
  expand(batchShape) {
    return new this.constructor(HANDLE, native.distributionExpand(this.#handle, shapeOf(batchShape)));
  }
  toString() {
    return `${this.constructor.name}(batchShape=[${this.batchShape}], eventShape=[${this.eventShape}])`;
  }
}

const { distributions: records, transforms } = JSON.parse(native.distributionRecords());

/** The parameters that a constructor was given: by position, then by name in an object at the end, with validateArgs. */
function handleFor(record, args) {
  const parameters = record.parameters.filter((p) => p.role !== 'derived');
  const named = isOptions(args[args.length - 1]) ? args[args.length - 1] : {};
  const positional = named === args[args.length - 1] ? args.slice(0, -1) : args;
  if (positional.length > parameters.length) {
    throw new ValueError(`${record.name}: at most ${parameters.length} parameters, got ${positional.length}`, record.name);
  }
  const values = parameters.map((p, i) => (i < positional.length ? positional[i] : undefined));
  for (const [key, value] of Object.entries(named)) {
    if (key === 'validateArgs') continue;
    const i = parameters.findIndex((p) => camel(p.name) === key);
    if (i < 0) throw new ValueError(`${record.name}: there is no parameter '${key}'; there are ${parameters.map((p) => camel(p.name)).join(', ')}`, record.name);
    if (values[i] !== undefined && value !== undefined) throw new ValueError(`${record.name}: ${key} is given twice`, record.name);
    values[i] = value;
  }
  return native.newDistribution(record.name, parameters.map((p) => p.name), values.map((v) => v ?? null), named.validateArgs ?? true);
}

function classOf(record, Parent) {
  const made = { [record.name]: class extends Parent {
    constructor(...args) {
      super(HANDLE, args[0] === HANDLE ? args[1] : handleFor(record, args));
    }
  } }[record.name];
  for (const p of record.parameters) {
    Object.defineProperty(made.prototype, camel(p.name), {
      configurable: true,
      get() {
        const value = native.distributionParameter(Distribution.handleOf(this, record.name), p.name);
        return p.role === 'count' ? Number(value.item()) : value;
      },
    });
  }
  return made;
}

/** The last dimensions of a distribution's batch as dimensions of one event: logProb() sums over them. */
class Independent extends Distribution {
  constructor(base, reinterpretedBatchNdims) {
    super(HANDLE, base === HANDLE ? reinterpretedBatchNdims : native.newIndependent(Distribution.handleOf(base, 'Independent'), reinterpretedBatchNdims));
  }
}
/** One of several distributions of a family, chosen by a Categorical: the last dimension of the components' batch. */
class MixtureSameFamily extends Distribution {
  constructor(mixture, components) {
    super(HANDLE, mixture === HANDLE ? components
      : native.newMixture(Distribution.handleOf(mixture, 'MixtureSameFamily'), Distribution.handleOf(components, 'MixtureSameFamily')));
  }
}

/** Kullback and Leibler's divergence: the mean over p of log p - log q. */
const klDivergence = (p, q) => native.klDivergence(Distribution.handleOf(p, 'klDivergence'), Distribution.handleOf(q, 'klDivergence'));

const families = {};
for (const record of [...records].sort((a, b) => Boolean(a.parent) - Boolean(b.parent))) {
  families[record.name] = classOf(record, families[record.parent] ?? Distribution);
}

/** y = f(x) and x = f.inverse(y). */
class Transform {
  #handle;
  constructor(token, handle) {
    if (token !== HANDLE) throw new ValueError(`${new.target.name}: make one of the others`, new.target.name);
    this.#handle = handle;
  }
  static handleOf(t, op) {
    if (!(t instanceof Transform)) throw new ValueError(`${op}: needs a transform, got ${kindOf(t)}`, op);
    return t.#handle;
  }
  forward(x) {
    return native.transformValue(this.#handle, 'forward', x);
  }
  inverse(y) {
    return native.transformValue(this.#handle, 'inverse', y);
  }
  /** x as a function of y. */
  get inv() {
    return new Transform(HANDLE, native.newInverse(this.#handle));
  }
  /** log |dy / dx|, of each event. */
  logAbsDetJacobian(x, y) {
    return native.transformLogDet(this.#handle, x, y);
  }
  forwardShape(shape) {
    return native.transformShape(this.#handle, true, shape);
  }
  inverseShape(shape) {
    return native.transformShape(this.#handle, false, shape);
  }
  get domain() {
    return native.transformAbout(this.#handle).domain;
  }
  get codomain() {
    return native.transformAbout(this.#handle).codomain;
  }
  get bijective() {
    return native.transformAbout(this.#handle).bijective;
  }
  /** 1 where it rises, -1 where it falls. */
  get sign() {
    return native.transformSign(this.#handle);
  }
}

const handlesOf = (parts, op) => {
  if (!Array.isArray(parts)) throw new ValueError(`${op}: needs an array of transforms, got ${kindOf(parts)}`, op);
  return parts.map((t) => Transform.handleOf(t, op));
};
const maps = {};
for (const record of transforms) {
  const shapes = record.name === 'ReshapeTransform';
  maps[record.name] = { [record.name]: class extends Transform {
    constructor(...args) {
      const event = record.name === 'AffineTransform' ? args[2] ?? 0 : 0;
      const given = record.parameters.map((_, i) => args[i] ?? null);
      super(HANDLE, shapes ? native.newTransform(record.name, [], given, 0) : native.newTransform(record.name, given, [], event));
    }
  } }[record.name];
}
/** One after the other. */
class ComposeTransform extends Transform {
  constructor(parts) {
    super(HANDLE, native.newCompose(handlesOf(parts, 'ComposeTransform')));
  }
}
/** A transform whose last dimensions make one event. */
class IndependentTransform extends Transform {
  constructor(base, reinterpretedBatchNdims) {
    super(HANDLE, native.newIndependentTransform(Transform.handleOf(base, 'IndependentTransform'), reinterpretedBatchNdims));
  }
}
/** A transform for each piece of `lengths` along `dim`. */
class CatTransform extends Transform {
  constructor(parts, dim = 0, lengths = parts.map(() => 1)) {
    super(HANDLE, native.newPieces(handlesOf(parts, 'CatTransform'), dim, lengths));
  }
}
/** A transform for each slice along `dim`. */
class StackTransform extends Transform {
  constructor(parts, dim = 0) {
    super(HANDLE, native.newPieces(handlesOf(parts, 'StackTransform'), dim));
  }
}
/** y = distribution.cdf(x): uniform where x is of the distribution. */
class CumulativeDistributionTransform extends Transform {
  constructor(distribution) {
    super(HANDLE, native.newCumulative(Distribution.handleOf(distribution, 'CumulativeDistributionTransform')));
  }
}
/** Values of a distribution that went through transforms, one after the other. */
class TransformedDistribution extends Distribution {
  constructor(base, parts) {
    const op = 'TransformedDistribution';
    super(HANDLE, base === HANDLE ? parts : native.newTransformed(Distribution.handleOf(base, op), handlesOf(Array.isArray(parts) ? parts : [parts], op)));
  }
}

module.exports = {
  Distribution, ...families, Independent, MixtureSameFamily, TransformedDistribution, klDivergence,
  Transform, ...maps, ComposeTransform, IndependentTransform, CatTransform, StackTransform, CumulativeDistributionTransform,
};
