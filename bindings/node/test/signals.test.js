'use strict';
// Ctrl-C: what a SIGINT does to synchronous calls and to promises.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { startNode, temporary } = require('./child.js');

const entry = JSON.stringify(path.join(__dirname, '../lib/index.js'));
/** Runs a program, sends SIGINT in the middle of what follows when it says 'go', then a line, and returns how it ended. */
function interrupted(source) {
  return new Promise((resolve, reject) => {
    const child = startNode(['-e', `const st = require(${entry}); const go = () => require('node:fs').writeSync(1, 'go\\n');
      const busy = st.randn([1500, 1500]); ${source}`], { stdio: ['pipe', 'pipe', 'pipe'] });
    const out = { text: '', errors: '' };
    let sent = false;
    child.stdin.on('error', () => {});
    child.stdout.setEncoding('utf8').on('data', (text) => {
      out.text += text;
      if (sent || !out.text.includes('go\n')) return;
      sent = true;
      setTimeout(() => {
        child.kill('SIGINT');
        child.stdin.end('sent\n');
      }, 50);
    });
    child.stderr.setEncoding('utf8').on('data', (text) => { out.errors += text; });
    child.once('error', reject);
    // A child that hangs is killed, which fails its test.
    child.once('close', (code, signal) => resolve({ ...out, code, signal }));
  });
}
const slow = process.env.STRATA_SANITIZED ? 'Node ends as the sanitizer has it' : false;

test('without a handler it ends the process at once, in the middle of a synchronous call', { skip: slow, timeout: 900000 }, async () => {
  const { signal, text } = await interrupted('go(); for (;;) st.matmul(busy, busy); console.log("never");');
  assert.equal(signal, 'SIGINT');
  assert.doesNotMatch(text, /never/);
  const single = await interrupted('const big = st.randn([6000, 6000]); go(); st.matmul(big, big); st.matmul(big, big); st.matmul(big, big);');
  assert.equal(single.signal, 'SIGINT');
});

test('a handler runs while a promise is under way, and may abort it', { timeout: 900000 }, async () => {
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

test('a handler waits for synchronous calls to end', { timeout: 900000 }, async () => {
  const { code, signal, text, errors } = await interrupted(`
    // What the handler waits for is a program that would not end without it.
    const alive = setInterval(() => {}, 1000);
    process.once('SIGINT', () => { console.log('handler'); clearInterval(alive); });
    go();
    // Until the signal was sent.
    st.matmul(busy, busy);
    require('node:fs').readSync(0, Buffer.alloc(10));
    for (let i = 0; i < 3; ++i) st.matmul(busy, busy);
    console.log('calls ended');`);
  assert.equal(code, 0, `${signal} ${text} ${errors}`);
  assert.match(text, /calls ended\nhandler\n/);
});

test('vm breakOnSigint ends synchronous code between calls, and what follows is as before', { timeout: 900000 }, async () => {
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

test('training stops where it is, saves, and rejects with the signal\'s reason', { timeout: 900000 }, async () => {
  const folder = temporary();
  const { code, signal, text, errors } = await interrupted(`
    const fs = require('node:fs');
    fs.writeFileSync('${folder}/text.txt', 'to be or not to be '.repeat(100));
    const stop = new AbortController();
    process.once('SIGINT', () => stop.abort(new Error('stopped by hand')));
    let told = false;
    st.train({ model: { layers: 1, dim: 16, heads: 2, context: 16 }, data: { path: '${folder}/text.txt' }, train: { steps: 1000000, batch: 4, sample_tokens: 0 } },
      { out: '${folder}/run', signal: stop.signal, onLog: () => { if (!told) { told = true; go(); } } })
      .catch((error) => console.log(error.message, fs.readdirSync('${folder}/run').some((n) => n.startsWith('step-'))));`);
  assert.equal(code, 0, `${signal} ${text} ${errors}`);
  assert.match(text, /stopped by hand true/);
});
