'use strict';
// Gradients: modes, grad(), and functions with a gradient of their own.

const native = require('./native.js');
const { Tensor } = native;
const { withSignal } = require('./signal.js');
const { settled } = require('./ops.js');
const { ValueError } = require('./errors.js');

const AsyncFunction = (async () => {}).constructor;

function underMode(enabled, fn, name) {
  if (fn instanceof AsyncFunction) {
    throw new ValueError(`${name}: the parts of an async function after its first await would not be covered; call ${name} ` +
      'around each synchronous part (st.async functions keep the mode of their call)', name);
  }
  const before = native.setGradEnabled(enabled);
  try {
    return fn();
  } finally {
    native.setGradEnabled(before);
  }
}
/** fn() with nothing recorded; what it starts with st.async neither. fn must not be an async function. */
const noGrad = (fn) => underMode(false, fn, 'noGrad');
/** fn() with recording on, within noGrad. */
const enableGrad = (fn) => underMode(true, fn, 'enableGrad');

const list = (v) => (Array.isArray(v) ? v : [v]);
function walkArguments(outputs, inputs, { gradOutputs, retainGraph = false, createGraph = false, allowUnused = false } = {}) {
  return [list(outputs), list(inputs), gradOutputs === undefined || gradOutputs === null ? null : list(gradOutputs),
    retainGraph, createGraph, allowUnused];
}
/** The gradients of outputs for inputs: an array as long as inputs. */
function grad(outputs, inputs, options) {
  return native.walk(...walkArguments(outputs, inputs, options));
}
function gradAsync(outputs, inputs, options = {}) {
  return withSignal(options.signal,
    (flag) => settled(() => native.walkAsync(flag, ...walkArguments(outputs, inputs, options))));
}

/** What forward() leaves for backward(). */
class Context {
  #saved = [];
  #materialize = true;
  savedTensors = [];
  needsInputGrad = [];
  saveForBackward(...tensors) {
    this.#saved = tensors;
  }
  setMaterializeGrads(value) {
    this.#materialize = value;
  }
  static of(ctx, results) {
    return [results, ctx.#saved, ctx.#materialize];
  }
}

/**
 * Derive from it to give code a gradient of its own:
 *   class Square extends st.Function {
 *     static forward(ctx, x) { ctx.saveForBackward(x); return x.mul(x); }
 *     static backward(ctx, g) { return g.mul(ctx.savedTensors[0]).mul(2); }
 *   }
 *   const y = Square.apply(x);
 */
class StrataFunction {
  static apply(...args) {
    const inputs = args.flat().filter((a) => a instanceof Tensor);
    const ctx = new Context();
    ctx.needsInputGrad = inputs.map((t) => t.requiresGrad);
    let single = false;
    const results = native.applyFunction(this.name || 'Function', inputs, () => {
      const made = this.forward(ctx, ...args);
      single = !Array.isArray(made);
      return Context.of(ctx, single ? [made] : made);
    }, (grads, saved) => {
      ctx.savedTensors = saved;
      try {
        return this.backward(ctx, ...grads);
      } finally {
        ctx.savedTensors = [];
      }
    });
    return single ? results[0] : results;
  }
  static forward() {
    throw new ValueError(`${this.name}: forward() is not written`, this.name);
  }
  static backward() {
    throw new ValueError(`${this.name}: backward() is not written`, this.name);
  }
}
Object.defineProperty(StrataFunction, 'name', { value: 'Function' });

module.exports = {
  noGrad, enableGrad, grad, gradAsync, Function: StrataFunction,
  isGradEnabled: () => native.isGradEnabled(),
  setGradEnabled: (on) => native.setGradEnabled(on),
};
