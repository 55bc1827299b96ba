'use strict';
// A plugin's ops are functions, promises and methods like all others; what is none is refused.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const st = require('../lib/index.js');
const { run, temporary } = require('./child.js');

const root = path.join(__dirname, '../../..');
const folder = temporary();
const file = path.join(folder, 'squared_relu.so');
// The README's command. The sanitizers are not for the compiler.
const made = run('gcc', ['-std=c99', '-O2', '-shared', '-fPIC', `-I${root}`,
  path.join(root, 'examples/plugin/squared_relu/squared_relu.c'), '-o', file], { env: { ...process.env, LD_PRELOAD: '' } });

test('a plugin\'s op', { skip: made.status === 127 ? 'gcc was not found' : false }, async () => {
  assert.equal(made.status, 0, made.stderr);
  assert.equal(st.squared_relu, undefined);
  const plugin = st.loadPlugin(file);
  assert.deepEqual(plugin.ops, ['squared_relu']);
  assert.equal(typeof plugin.version, 'string');
  const x = st.tensor([[-1, 2], [3, -4]], { requiresGrad: true });
  const bias = st.tensor([0.5, 1], { requiresGrad: true });
  const record = st.describeOps().find((r) => r.name === 'squared_relu');
  assert.match(record.schema, /^squared_relu\(Tensor x/);
  const want = st.square(st.relu(x.add(bias)));
  assert.deepEqual(st.squared_relu(x, bias).toArray(), want.toArray());
  assert.deepEqual(x.squared_relu(bias).toArray(), want.toArray());
  assert.deepEqual((await st.async.squared_relu(x, bias)).toArray(), want.toArray());
  const [gx, gb] = st.grad(st.squared_relu(x, bias).sum(), [x, bias]);
  const [wx, wb] = st.grad(want.sum(), [x, bias]);
  assert.deepEqual(gx.toArray(), wx.toArray());
  assert.deepEqual(gb.toArray(), wb.toArray());
  assert.throws(() => st.squared_relu(x, st.ones([5])), st.StrataError);
  assert.deepEqual(st.loadPlugin(file).ops, ['squared_relu'], 'twice is once');
  // Another thread has it too, once it asks for it.
  const answer = await new Promise((resolve, reject) => {
    const worker = new Worker(`const st = require(${JSON.stringify(path.join(__dirname, '../lib/index.js'))});
      st.loadPlugin(${JSON.stringify(file)});
      require('node:worker_threads').parentPort.postMessage(st.squared_relu(st.ones([1]), st.ones([1])).item());`, { eval: true });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
  assert.equal(answer, 4);
});

test('what is no plugin is refused with the reason', () => {
  assert.throws(() => st.loadPlugin('/nowhere/x.so'), (e) => e instanceof st.PluginError && e.message.includes('/nowhere/x.so'));
  const text = path.join(folder, 'text.so');
  fs.writeFileSync(text, 'this is no library');
  assert.throws(() => st.loadPlugin(text), st.PluginError);
  assert.throws(() => st.loadPlugin(3), st.ValueError);
  const source = path.join(folder, 'empty.c');
  fs.writeFileSync(source, 'int nothing;\n');
  const empty = path.join(folder, 'empty.so');
  if (run('gcc', ['-shared', '-fPIC', source, '-o', empty], { env: { ...process.env, LD_PRELOAD: '' } }).status === 0) {
    assert.throws(() => st.loadPlugin(empty), st.PluginError);
  }
});
