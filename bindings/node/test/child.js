'use strict';
// Programs that tests start: each ends by itself, is killed when its time is over, or, where this process is killed before, when it
// has used as much processor time. And folders that go with the process that made them.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawn, spawnSync } = require('node:child_process');

/** `program` under a limit of processor time; exec keeps its process id, so that signals reach it. */
const limited = (seconds, program, args) => ['sh', ['-c', `ulimit -t ${2 * seconds}; exec "$0" "$@"`, program, ...args]];

/** Starts node. After `seconds` it is killed: it then ends by SIGKILL. */
function startNode(args, { seconds = 240, ...options } = {}) {
  return spawn(...limited(seconds, process.execPath, args), { ...options, timeout: 1000 * seconds, killSignal: 'SIGKILL' });
}
/** Runs a program to its end: {status, signal, stdout, stderr, error}. */
function run(program, args, { seconds = 240, ...options } = {}) {
  return spawnSync(...limited(seconds, program, args), { encoding: 'utf8', ...options, timeout: 1000 * seconds, killSignal: 'SIGKILL' });
}
const runNode = (args, options) => run(process.execPath, args, options);

const folders = [];
function removeFolders() {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (const folder of folders.splice(0)) {
    // Again where a program that was just killed has still written to it.
    for (let left = 20; left > 0 && fs.existsSync(folder); --left) {
      try {
        fs.rmSync(folder, { recursive: true, force: true });
      } catch {
        Atomics.wait(pause, 0, 0, 100);
      }
    }
  }
}
/** A new folder, which is removed when this process ends, however its tests went. */
function temporary() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'strata-node-'));
  if (folders.push(folder) === 1) {
    process.once('exit', removeFolders);
    // A test runner whose time is over.
    process.once('SIGTERM', () => process.exit(143));
  }
  return folder;
}

/** What a call's promise gives, of work that goes on beside the event loop: else it would be done within this turn of the loop. */
async function offTheLoop(promise) {
  let done = false;
  const settled = () => { done = true; };
  promise.then(settled, settled);
  for (let i = 0; i < 100; ++i) await null;  // what is made already is given within these
  assert.ok(!done, 'the call held up the event loop');
  return promise;
}

module.exports = { startNode, run, runNode, offTheLoop, temporary };
