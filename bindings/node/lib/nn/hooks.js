'use strict';
// Hooks of modules. A module with hooks has a forward() of its own over that of its class, which calls them.

const native = require('../native.js');
const autograd = require('../autograd.js');
const { ValueError } = require('../errors.js');

const { Tensor } = native;
// Of each module that has had any: lists of hooks.
const all = new WeakMap();
const KINDS = ['pre', 'forward', 'backwardPre', 'backward'];

/** The identity, which shows the gradients that pass it to `see` and lets it replace them. */
class GradTap extends autograd.Function {
  static forward(ctx, see, ...tensors) {
    ctx.see = see;
    ctx.setMaterializeGrads(false);
    return tensors.map((t) => t.view_as?.(t) ?? t.reshape(t.shape));
  }
  static backward(ctx, ...grads) {
    return ctx.see(grads) ?? grads;
  }
}
/** A value, or an array of them, whose tensors with a gradient go through GradTap; whether there are any. */
function tap(values, see) {
  const items = Array.isArray(values) ? [...values] : [values];
  const places = items.flatMap((v, i) => (v instanceof Tensor && v.requiresGrad ? [i] : []));
  if (places.length === 0) return [values, false];
  const spread = (grads) => {
    const full = new Array(items.length).fill(null);
    places.forEach((place, i) => { full[place] = grads[i] ?? null; });
    const replaced = see(full);
    return replaced ? places.map((place) => replaced[place]) : null;
  };
  GradTap.apply(spread, ...places.map((place) => items[place])).forEach((t, i) => { items[places[i]] = t; });
  return [Array.isArray(values) ? items : items[0], true];
}
/** What a chain of hooks makes of gradients: the last replacement, or null. */
function replacing(hooks, grads, call) {
  let now = grads;
  let replaced = null;
  for (const hook of hooks) {
    const made = call(hook, now);
    if (made !== undefined && made !== null) now = replaced = Array.isArray(made) ? made : [made];
  }
  return replaced;
}

function run(module, own, forward, given) {
  let args = given;
  for (const hook of [...own.pre]) {
    const made = hook(module, args);
    if (made !== undefined && made !== null) args = Array.isArray(made) ? made : [made];
  }
  const pre = [...own.backwardPre];
  const after = [...own.backward];
  let gradOutput = null;
  let fromInput = false;
  if (after.length > 0) [args, fromInput] = tap(args, (grads) => replacing(after, grads, (hook, now) => hook(module, now, gradOutput)));
  let result = forward.apply(module, args);
  for (const hook of [...own.forward]) {
    const made = hook(module, args, result);
    if (made !== undefined && made !== null) result = made;
  }
  if (pre.length + after.length > 0) {
    [result] = tap(result, (grads) => {
      const replaced = replacing(pre, grads, (hook, now) => hook(module, now));
      gradOutput = replaced ?? grads;
      // No input has a gradient: nobody else would call them.
      if (!fromInput) replacing(after, args.map(() => null), (hook, now) => hook(module, now, gradOutput));
      return replaced;
    });
  }
  return result;
}

/** Adds a hook of a kind ('pre', 'forward', 'backwardPre', 'backward'); {remove()} ends it. */
function addHook(module, kind, hook, { prepend = false } = {}) {
  const name = module.constructor.name;
  if (typeof hook !== 'function') throw new ValueError(`${name}: a hook must be a function`, name);
  let own = all.get(module);
  if (!own) {
    own = Object.fromEntries(KINDS.map((k) => [k, []]));
    all.set(module, own);
    // A forward() that is set on the module itself is what the hooks are around, too.
    const before = Object.getOwnPropertyDescriptor(module, 'forward');
    own.restore = () => (before ? Object.defineProperty(module, 'forward', before) : delete module.forward);
    Object.defineProperty(module, 'forward', { configurable: true, writable: true, enumerable: false, value(...args) {
      return run(module, own, before ? before.value : Object.getPrototypeOf(module).forward, args);
    } });
  }
  // Each registration is one of its own, also of the same function.
  const entry = (...args) => hook(...args);
  if (prepend) own[kind].unshift(entry);
  else own[kind].push(entry);
  const remove = () => {
    const at = own[kind].indexOf(entry);
    if (at < 0) return;
    own[kind].splice(at, 1);
    if (KINDS.some((k) => own[k].length > 0)) return;
    all.delete(module);
    own.restore();
  };
  return { remove, [Symbol.dispose]: remove };
}

module.exports = { addHook };
