'use strict';
// Gradients: modes, grad(), recomputation, and functions with a gradient of their own.

const native = require('./native.js');
const { Tensor } = native;
const { withSignal } = require('./signal.js');
const { settled } = require('./ops.js');
const { AutogradError, ValueError } = require('./errors.js');
const { under, wantFunction } = require('./modes.js');

/** fn() with nothing recorded; what it starts with st.async neither. Without fn: an object for `using`. */
const noGrad = (fn) => under('noGrad', () => native.enterGradMode(false), fn);
/** fn() with recording on, within noGrad. */
const enableGrad = (fn) => under('enableGrad', () => native.enterGradMode(true), fn);
/** Inside, the first NaN in a result or gradient is an AutogradError that names the op behind it. */
const detectAnomaly = (fn) => under('detectAnomaly', () => native.enterAnomaly(), fn);
/** Inside, what ops save for backward goes through pack(tensor), and comes back through unpack(what pack returned). */
const savedTensorsHooks = (pack, unpack, fn) => {
  wantFunction(pack, 'savedTensorsHooks');
  wantFunction(unpack, 'savedTensorsHooks');
  return under('savedTensorsHooks', () => native.enterSavedHooks(pack, unpack), fn);
};
/**
 * Products in low precision and what needs precision in f32, by each record's policy; parameters stay f32. With
 * {lowGradients} the gradients of parameters stay in the low dtype, which only the optimizers read. With {fp8: 'tensor'} or
 * {fp8: 'row'} products of linear layers whose sizes are multiples of 16 run in eight bits (linear_fp8 with that scaling), but
 * for the modules and weights in {fp8Exclude}: best the first and last layers.
 */
function autocast(options, fn) {
  if (typeof options === 'function') [options, fn] = [{}, options];
  const { dtype = 'bf16', enabled = true, lowGradients = false, fp8 = null, fp8Exclude = [], ...rest } = options ?? {};
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw new ValueError(`autocast: there is no option '${unknown}'`, 'autocast');
  const weights = fp8Exclude.flatMap((layer) => (layer instanceof Tensor ? [layer] : layer.parameters()));
  return under('autocast', () => native.enterAutocast(dtype, enabled, lowGradients, fp8, weights), fn);
}

/**
 * fn(...inputs) of which only the inputs are kept: what backward needs of it is computed again there, with the same random
 * numbers. What fn returns is returned; it must do the same ops each time, at once (not an async function).
 */
function checkpoint(fn, ...inputs) {
  wantFunction(fn, 'checkpoint');
  const tensors = inputs.filter((v) => v instanceof Tensor);
  const places = inputs.flatMap((v, i) => (v instanceof Tensor ? [i] : []));
  // The engine keeps the tensors, and for the second run the function must not hold what the first one made.
  const others = inputs.map((v) => (v instanceof Tensor ? null : v));
  const results = [];
  let first = true;
  native.checkpoint((given) => {
    const args = [...others];
    places.forEach((place, i) => { args[place] = given[i]; });
    const made = fn(...args);
    if (typeof made?.then === 'function') {
      throw new ValueError('checkpoint: the function must not be async: its ops have to be done when it returns', 'checkpoint');
    }
    if (first) results.push(made);
    first = false;
  }, tensors);
  return results.pop();
}
/** The parts of a Sequential (or functions) one after the other, in `segments` of which all but the last are checkpointed. */
function checkpointSequential(parts, segments, x) {
  const list = [...parts].map((part) => (typeof part === 'function' ? part : (y) => part.forward(y)));
  const size = Math.floor(list.length / segments);
  if (!(size >= 1)) {
    throw new ValueError(`checkpointSequential: ${segments} segments of ${list.length} parts`, 'checkpointSequential');
  }
  let y = x;
  for (let s = 0; s < segments; ++s) {
    const some = list.slice(s * size, s + 1 < segments ? (s + 1) * size : undefined);
    const run = (v) => some.reduce((u, part) => part(u), v);
    y = s + 1 < segments ? checkpoint(run, y) : run(y);
  }
  return y;
}

function differences(fn, inputs, second, { eps = 1e-6, atol = 1e-5, rtol = 1e-3, throws = true } = {}) {
  const name = second ? 'gradgradcheck' : 'gradcheck';
  wantFunction(fn, name);
  const report = native.gradcheck((given) => list(fn(...given)), list(inputs), second, eps, atol, rtol);
  if (report && throws) throw new AutogradError(`${name}: ${report}`, name);
  return report === '';
}
/** Compares the gradients of fn(...inputs), in f64, with central differences. */
const gradcheck = (fn, inputs, options) => differences(fn, inputs, false, options);
/** The same for the gradients of the gradients. */
const gradgradcheck = (fn, inputs, options) => differences(fn, inputs, true, options);

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
  noGrad, enableGrad, grad, gradAsync, Function: StrataFunction, detectAnomaly, savedTensorsHooks, autocast, checkpoint,
  checkpointSequential, gradcheck, gradgradcheck,
  isAutocastEnabled: () => native.isAutocastEnabled(),
  autocastDtype: () => native.autocastDtype(),
  isGradEnabled: () => native.isGradEnabled(),
  setGradEnabled: (on) => native.setGradEnabled(on),
};
