'use strict';
// Training a small language model, loading its checkpoint, generating text: in promises, with signals.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const st = require('../lib/index.js');
const { offTheLoop, temporary } = require('./child.js');

const folder = temporary();
const text = path.join(folder, 'text.txt');
fs.writeFileSync(text, 'To be, or not to be, that is the question. Grüße! '.repeat(200));
const settings = {
  model: { layers: 1, dim: 32, heads: 2, context: 32 },
  data: { path: text },
  train: { steps: 40, batch: 8, lr: 0.01, warmup: 5, eval_every: 20, save_every: 20, sample_tokens: 0 },
};
const out = path.join(folder, 'run');

test('train runs the engine\'s loop off the event loop', async () => {
  let log = '';
  const result = await offTheLoop(st.train(settings, { out, onLog: (t) => { log += t; } }));
  assert.equal(result.step, 40);
  assert.equal(result.status, 'finished');
  assert.ok(result.loss < 4, `the loss is ${result.loss}`);
  assert.ok(log.length > 0);
  assert.ok(fs.existsSync(path.join(out, 'metrics.jsonl')));
  assert.ok(fs.existsSync(result.checkpoint));
});

test('train stops at a signal, saved, and goes on', async () => {
  const there = path.join(folder, 'stopped');
  const controller = new AbortController();
  const long = { ...settings, train: { ...settings.train, steps: 100000 } };
  // Once it is under way.
  const onLog = (line) => { if (/step +\d/.test(line)) controller.abort(); };
  const going = st.train(long, { out: there, signal: controller.signal, onLog });
  await assert.rejects(going, { name: 'AbortError' });
  const checkpoint = fs.readdirSync(there).filter((n) => n.startsWith('step-')).sort().pop();
  assert.ok(checkpoint);
  const step = Number(checkpoint.slice(5));
  const more = { ...settings, train: { ...settings.train, steps: step + 3 } };
  assert.equal((await st.train(more, { out: there, resume: true })).step, step + 3);
});

test('settings that are wrong are named', async () => {
  await assert.rejects(st.train({ model: { layerz: 1 } }, { out }), /model\.layerz.*model\.layers/s);
  await assert.rejects(st.train('[model]\nlayers = "x"', { out }), st.ValueError);
  await assert.rejects(st.train({ model: { layers: undefined } }, { out }), /model\.layers must be/);
});

test('a checkpoint generates text token by token', async () => {
  const model = await st.loadModel(out);
  assert.equal(model.vocab, 256);
  assert.equal(model.context, 32);
  assert.equal(model.step, 40);
  assert.match(model.config, /dim = 32/);
  const pieces = [];
  for await (const { token, text: piece } of model.generate('To be', { tokens: 50, seed: 1 })) {
    assert.ok(token >= 0 && token < 256);
    pieces.push(piece);
  }
  assert.equal(pieces.length, 50);
  const again = [];
  const whole = await model.complete('To be', { tokens: 50, seed: 1, onToken: ({ text: piece }) => again.push(piece) });
  assert.deepEqual(again, pieces);
  assert.equal(whole, pieces.join(''));
  assert.notEqual(await model.complete('To be', { tokens: 50, seed: 2 }), whole);
  // A character of several tokens comes whole: the likeliest text repeats 'Grüße' of the training text or has no ü at all.
  const greedy = await model.complete('Gr', { tokens: 60, temperature: 0 });
  assert.ok(!greedy.slice(0, -1).includes('\ufffd'), greedy);
});

test('generation stops at a signal and when nobody reads on', async () => {
  const model = await st.loadModel(out);
  const controller = new AbortController();
  let count = 0;
  await assert.rejects(async () => {
    for await (const made of model.generate('To', { tokens: 10000, signal: controller.signal })) {
      assert.ok(made);
      if (++count === 5) controller.abort();
    }
  }, { name: 'AbortError' });
  assert.equal(count, 5);
  for await (const made of model.generate('To', { tokens: 10000 })) {
    assert.ok(made);
    break;
  }
  const several = await Promise.all([1, 2, 3].map((seed) => model.complete('To be', { tokens: 20, seed })));
  assert.equal(await model.complete('To be', { tokens: 20, seed: 2 }), several[1], 'texts do not disturb each other');
});

test('the model\'s parts', async () => {
  const model = await st.loadModel(out);
  assert.deepEqual(model.encode('ab'), [97, 98]);
  assert.equal(model.decode([72, 105]), 'Hi');
  assert.throws(() => model.decode([256]), st.IndexError);
  const tokens = st.tensor([model.encode('To be').map(BigInt)]);
  const logits = await model.forward(tokens);
  assert.deepEqual(logits.shape, [1, 5, 256]);
  assert.equal(logits.requiresGrad, true);
  const parameters = model.namedParameters();
  assert.ok(parameters.some(([name]) => name === 'token_embedding.weight'));
  logits.sum().backward();
  assert.ok(parameters[0][1].grad);
  await assert.rejects(model.forward(st.tensor([[300n]])), st.IndexError);
  await assert.rejects(async () => { for await (const m of model.generate('', { tokens: 1 })) assert.ok(m); }, st.ValueError);
  await assert.rejects(model.complete('a', { temperature: -1 }), st.ValueError);
  const stopped = new AbortController();
  stopped.abort();
  await assert.rejects(st.loadModel(out, { signal: stopped.signal }), { name: 'AbortError' });
});
