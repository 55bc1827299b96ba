'use strict';
// Modes: on while a function runs, or while an object lives that `using` or dispose() ends.

const native = require('./native.js');
const { ValueError } = require('./errors.js');

const AsyncFunction = (async () => {}).constructor;

function wantFunction(fn, name) {
  if (typeof fn !== 'function') throw new ValueError(`${name}: needs a function, got ${fn === null ? 'null' : typeof fn}`, name);
  if (fn instanceof AsyncFunction) {
    throw new ValueError(`${name}: the parts of an async function after its first await would not be covered; call ${name} ` +
      'around each synchronous part (st.async functions keep the modes of their call)', name);
  }
}

class ModeScope {
  #handle;
  #name;
  constructor(name, handle) {
    this.#name = name;
    this.#handle = handle;
  }
  /** Ends the mode; a second time does nothing. */
  dispose() {
    const handle = this.#handle;
    this.#handle = null;
    if (handle !== null && !native.exitMode(handle)) {
      throw new ValueError(`${this.#name}: modes that began later were still on, and have ended with it; an await between ` +
        'beginning and end mixes them up', this.#name);
    }
  }
  [Symbol.dispose]() {
    this.dispose();
  }
}

/** fn() under the mode that enter() turns on; without fn an object that ends it: using m = st.autocast(). */
function under(name, enter, fn) {
  if (fn === undefined) return new ModeScope(name, enter());
  wantFunction(fn, name);
  const handle = enter();
  try {
    return fn();
  } finally {
    native.exitMode(handle);
  }
}

module.exports = { under, wantFunction, ModeScope };
