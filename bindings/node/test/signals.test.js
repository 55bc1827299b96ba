'use strict';
// Ctrl-C: what a SIGINT does to synchronous calls and to promises.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { spawn } = require('node:child_process');

const entry = JSON.stringify(path.join(__dirname, '../lib/index.js'));
/** Runs a program, sends SIGINT when it says 'go', and returns how it ended. */
function interrupted(source) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['-e', `const st = require(${entry}); const go = () => require('node:fs').writeSync(1, 'go\\n');
      const busy = st.randn([1500, 1500]); ${source}`], { stdio: ['ignore', 'pipe', 'pipe'] });
    const out = { text: '', errors: '' };
    let sent = 0;
    child.stdout.setEncoding('utf8').on('data', (text) => {
      out.text += text;
      if (sent || !out.text.includes('go\n')) return;
      sent = performance.now();
      // In the middle of what follows.
      setTimeout(() => child.kill('SIGINT'), 50);
    });
    child.stderr.setEncoding('utf8').on('data', (text) => { out.errors += text; });
    child.once('error', reject);
    // A child that hangs fails its test; it does not outlive it.
    const watch = setTimeout(() => { out.errors += 'killed: it did not end'; child.kill('SIGKILL'); }, 120000);
    child.once('close', () => clearTimeout(watch));
    child.once('close', (code, signal) => resolve({ ...out, code, signal, ms: performance.now() - sent }));
  });
}
const slow = process.env.STRATA_SANITIZED ? 'timing' : false;

test('without a handler it ends the process at once, in the middle of a synchronous call', { skip: slow, timeout: 300000 }, async () => {
  // One call of minutes.
  const { signal, ms, text } = await interrupted('go(); for (;;) st.matmul(busy, busy); console.log("never");');
  assert.equal(signal, 'SIGINT');
  assert.ok(ms < 30000, `${ms} ms`);
  assert.doesNotMatch(text, /never/);
  const single = await interrupted('const big = st.randn([6000, 6000]); go(); st.matmul(big, big); st.matmul(big, big); st.matmul(big, big);');
  assert.equal(single.signal, 'SIGINT');
});

test('a handler runs while a promise is under way, and may abort it', { timeout: 300000 }, async () => {
  const { code, signal, text, errors } = await interrupted(`
    const stop = new AbortController();
    process.once('SIGINT', () => { console.log('handler'); stop.abort(new Error('stopped by hand')); });
    (async () => {
      go();
      try {
        for (;;) await st.async.matmul(busy, busy, { signal: stop.signal });
      } catch (error) { console.log(error.message); }
      console.log(st.ones([2]).sum().item());
    })();`);
  assert.equal(code, 0, `${signal} ${text} ${errors}`);
  assert.match(text, /handler\nstopped by hand\n2\n/);
});

test('a handler waits for synchronous calls to end', { timeout: 300000 }, async () => {
  const { code, signal, text, errors } = await interrupted(`
    process.once('SIGINT', () => console.log('handler'));
    go();
    const end = Date.now() + 300;
    while (Date.now() < end) st.matmul(busy, busy);
    console.log('calls ended');
    setTimeout(() => console.log('done'), 20);`);
  assert.equal(code, 0, `${signal} ${text} ${errors}`);
  assert.match(text, /calls ended\nhandler\ndone\n/);
});

test('vm breakOnSigint ends synchronous code between calls, and what follows is as before', { timeout: 300000 }, async () => {
  for (const loop of [
    'for (;;) st.matmul(busy, busy)',
    // Whatever a catch around it does: most of these loops are inside a call when the signal comes.
    ...['st.matmul(busy, st.ones([2]))', 'st.ops.nothing()', 'busy.item()', 'new st.Tensor()', 'st.tensor([1, 2]).at(7)',
      'st.matmul(st.randn([4, 4], { requiresGrad: true }), w).sum().backward()',
      'st.checkpoint((x) => { st.matmul(x, x); throw null; }, w)',
      'st.checkpoint((x) => st.matmul(x, st.ones([7])), w)',
      'st.checkpoint((x) => st.matmul(x, x), w).sum().backward()',
    ].map((call) => `const w = st.randn([4, 4], { requiresGrad: true }); w.registerHook((g) => { if (g.numel === 0) throw 1; return g.mul(1); });
      for (;;) { try { ${call}; } catch {} }`),
    'const w = st.ones([400, 400], { requiresGrad: true }); w.registerHook((g) => g.mul(1)); for (;;) st.matmul(w, w).sum().backward()',
    'for (;;) st.checkpoint((x) => st.matmul(x, x), st.ones([300, 300], { requiresGrad: true })).sum().backward()',
  ]) {
    const { code, signal, text, errors } = await interrupted(`
      const vm = require('node:vm');
      try {
        vm.runInNewContext('go(); ' + ${JSON.stringify(loop)}, { st, busy, go }, { breakOnSigint: true });
      } catch (error) { console.log(error.code); }
      const w = st.ones([2], { requiresGrad: true });
      st.square(w).sum().backward();
      console.log(w.grad.sum().item());
      try { st.matmul(w, st.ones([3])); } catch (error) { console.log(error.name); }
      console.log(st.square(w).sum().item());`);
    assert.equal(code, 0, `${signal} ${text} ${errors}`);
    assert.match(text, /ERR_SCRIPT_EXECUTION_INTERRUPTED\n4\nShapeError\n2\n/, loop);
  }
});

test('training stops where it is, saves, and rejects with the signal\'s reason', { timeout: 300000 }, async () => {
  const folder = require('node:fs').mkdtempSync(path.join(require('node:os').tmpdir(), 'strata-node-'));
  const { code, signal, text, errors } = await interrupted(`
    const fs = require('node:fs');
    fs.writeFileSync('${folder}/text.txt', 'to be or not to be '.repeat(100));
    const stop = new AbortController();
    process.once('SIGINT', () => stop.abort(new Error('stopped by hand')));
    let told = false;
    st.train({ model: { layers: 1, dim: 16, heads: 2, context: 16 }, data: { path: '${folder}/text.txt' }, train: { steps: 1000000, batch: 4, sample_tokens: 0 } },
      { out: '${folder}/run', signal: stop.signal, onLog: () => { if (!told) { told = true; go(); } } })
      .catch((error) => console.log(error.message, fs.readdirSync('${folder}/run').some((n) => n.startsWith('step-'))));`);
  require('node:fs').rmSync(folder, { recursive: true });
  assert.equal(code, 0, `${signal} ${text} ${errors}`);
  assert.match(text, /stopped by hand true/);
});
