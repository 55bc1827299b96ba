'use strict';
// st.record: the calls of a step.

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');

function step() {
  const net = new st.nn.Sequential(new st.nn.Linear(4, 8), new st.nn.ReLU(), new st.nn.Linear(8, 2));
  const optimizer = new st.optim.AdamW(net.parameters(), { lr: 0.1 });
  const x = st.ones([3, 4]);
  return () => {
    optimizer.zeroGrad();
    net.forward(x).sum().backward();
    optimizer.step();
  };
}

test('record() lists forward, backward and update', () => {
  const r = st.record(step());
  const calls = [...r];
  assert.equal(calls.length, r.length);
  assert.deepEqual([...new Set(calls.map((c) => c.phase))], ['forward', 'backward', 'update']);
  const last = calls.at(-1);
  assert.equal(last.op, 'optimizer_update');
  assert.equal(last.form, 'inplace');
  assert.deepEqual(last.args.params.map((p) => p.shape), [[8, 4], [8], [2, 8], [2]]);
  const first = calls.find((c) => c.work);
  const [given] = Object.values(first.args);
  assert.deepEqual(given.shape, [3, 4]);
  assert.equal(given.dtype, 'f32');
  const storage = r.storages()[given.storage];
  assert.deepEqual({ ...storage, freed: 0 }, { nbytes: 48, device: 'cpu', tag: storage.tag, born: -1, freed: 0, kept: true });
  assert.ok(calls.filter((c) => c.work).every((c) => c.seconds >= 0 && c.bytes >= 0));
  assert.ok(r.peakBytes() > 48);
  assert.match(r.toString(), /optimizer_update_/);
  assert.match(r.table('phase'), /^phase .*\n(.*\n)*update /);
  assert.match(r.table('op', { gb_s: 10, gflops: 10, matmul_f32: 10 }), /least ms/);
  assert.equal(r.table('op', { rows: 1 }).split('\n').length, 5);  // head, a row, the others, the sum
});

test('a recording is the same from its text', () => {
  const r = st.record(step(), { values: true });
  const again = st.Recording.fromText(r.toText());
  assert.equal(again.toText(), r.toText());
  assert.deepEqual([...again], [...r]);
  assert.throws(() => st.Recording.fromText(r.toText().slice(0, -5)), { name: 'IoError' });
});

test('what record() is given wrongly, and what its function throws', () => {
  assert.throws(() => st.record(3), { name: 'ValueError' });
  assert.throws(() => st.record(async () => {}), { name: 'ValueError' });
  assert.throws(() => new st.Recording(), { name: 'ValueError' });
  assert.throws(() => st.record(() => { throw new RangeError('mine'); }), /mine/);
  const r = st.record(() => { assert.throws(() => st.ones([2, 3]).matmul(st.ones([2, 3])), { name: 'ShapeError' }); });
  assert.throws(() => r.call(r.length), { name: 'IndexError' });
  assert.throws(() => r.table('layer'), { name: 'ValueError' });
  const after = st.record(() => st.ones([2]).exp());
  assert.ok([...after].some((c) => c.op === 'exp'));
});
