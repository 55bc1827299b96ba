'use strict';
// AbortSignals for calls that run on pool threads.

const native = require('./native.js');
const { AbortedError } = require('./errors.js');

/**
 * start(flag) under a signal: rejects with the signal's reason once it aborts. Where `wait` is set, only after the work
 * has stopped; else at once, and what the work still gives is let go.
 */
function withSignal(signal, start, wait = false) {
  if (signal === undefined || signal === null) return start(null);
  if (signal.aborted) return Promise.reject(signal.reason);
  const flag = native.newCancelFlag();
  return new Promise((resolve, reject) => {
    let ended = false;
    const onAbort = () => {
      native.cancel(flag);
      if (!wait) {
        ended = true;
        reject(signal.reason);
      }
    };
    signal.addEventListener('abort', onAbort, { once: true });
    start(flag).then(
      (value) => {
        signal.removeEventListener('abort', onAbort);
        if (ended) {
          if (value instanceof native.Tensor) value.dispose();
        } else if (signal.aborted) {
          reject(signal.reason);
        } else {
          resolve(value);
        }
      },
      (error) => {
        signal.removeEventListener('abort', onAbort);
        reject(error instanceof AbortedError && signal.aborted ? signal.reason : error);
      });
  });
}

/** Takes `signal` out of the options that may end `args`. */
function takeSignal(args) {
  const last = args[args.length - 1];
  if (last === null || typeof last !== 'object' || Object.getPrototypeOf(last) !== Object.prototype || !('signal' in last)) {
    return [undefined, args];
  }
  const { signal, ...rest } = last;
  return [signal, [...args.slice(0, -1), rest]];
}

module.exports = { withSignal, takeSignal };
