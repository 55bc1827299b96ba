'use strict';
// The records' samples, as strata_sample_table wrote them: the same results, bit for bit, as in C++.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const st = require('../lib/index.js');

const ARRAYS = { u8: Uint8Array, bool: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
  f16: Uint16Array, bf16: Uint16Array, f32: Float32Array, f64: Float64Array };

function tensorOf(t, device = 'cpu') {
  if (t === null) return null;
  const bytes = Uint8Array.from(Buffer.from(t.data, 'base64'));
  return st.tensor(new ARRAYS[t.dtype](bytes.buffer), { dtype: t.dtype, shape: t.shape }).to(device);
}
const NUMBERS = { inf: Infinity, '-inf': -Infinity, nan: NaN };
function argument(v, type, device = 'cpu') {
  const kind = Object.keys(v)[0];
  const value = v[kind];
  switch (kind) {
    case 'none': return null;
    case 'tensor': return tensorOf(value, device);
    case 'tensors': return value.map((t) => tensorOf(t, device));
    case 'device': return device;
    case 'int': return BigInt(value);
    case 'float': {
      const number = typeof value === 'string' ? NUMBERS[value] : value;
      return type.startsWith('Scalar') ? new st.Scalar(number, 'f64') : number;
    }
    case 'key': return { seed: BigInt(value[0]), offset: BigInt(value[1]) };
    default: return value;
  }
}

function checkTensor(got, want, where) {
  if (want === null) {
    assert.equal(got, null, where);
    return;
  }
  assert.ok(got instanceof st.Tensor, `${where}: not a tensor`);
  assert.equal(got.dtype, want.dtype, where);
  assert.deepEqual(got.shape, want.shape, where);
  const array = got.toTypedArray();
  const bytes = Buffer.from(array.buffer, array.byteOffset, array.byteLength);
  assert.ok(bytes.equals(Buffer.from(want.data, 'base64')), `${where}: the elements differ: ${got}`);
}
function checkValue(got, want, where) {
  const kind = Object.keys(want)[0];
  if (kind === 'tensor') return checkTensor(got, want.tensor, where);
  assert.equal(kind, 'tensors', `${where}: a ${kind} among the results`);
  assert.equal(got.length, want.tensors.length, where);
  return got.forEach((t, i) => checkTensor(t, want.tensors[i], `${where}[${i}]`));
}

const file = process.env.STRATA_SAMPLE_TABLE;
const skip = file && fs.existsSync(file) ? false : 'STRATA_SAMPLE_TABLE does not name a table (strata_sample_table FILE)';

test('the table of samples', { skip }, async (t) => {
  const table = JSON.parse(fs.readFileSync(file, 'utf8'));
  assert.equal(table.version, 1);
  const records = new Map(st.describeOps().map((r) => [r.name, r]));
  let valid = 0;
  let refused = 0;
  for (const { op, cases } of table.ops) {
    const record = records.get(op);
    assert.ok(record, `there is no op ${op}`);
    const call = record.internal ? st.ops.internal[op] : st.ops[op];
    for (const [number, c] of cases.entries()) {
      const where = `${op}, case ${number} (${c.dtype}, ${c.label})`;
      const args = c.args.map((v, i) => argument(v, record.args[i]?.type ?? ''));
      if (c.error) {
        ++refused;
        assert.throws(() => st.noGrad(() => call(...args)), (e) => {
          assert.ok(e instanceof st.StrataError, `${where}: ${e.stack}`);
          // What JavaScript itself refuses (a missing argument) is a ValueError.
          assert.equal(e.name, c.error.type, `${where}: ${e}`);
          assert.ok(e.message.includes(c.error.message), `${where}: '${e.message}' lacks '${c.error.message}'`);
          return true;
        }, where);
        continue;
      }
      ++valid;
      // In turn: by position, by name, and on a pool thread.
      let result;
      if (valid % 3 === 0 && !record.internal && record.shown === record.results.length) {
        result = await st.async[op](...args);
      } else if (valid % 3 === 1 && args.length > 0) {
        result = call(args[0], Object.fromEntries(args.slice(1).map((a, i) => [record.args[i + 1].name, a])));
      } else {
        result = call(...args);
      }
      const list = record.results.length === 1 ? [result] : record.results.map((r) => result[r.name]);
      assert.equal(list.length, c.results.length, where);
      list.forEach((r, i) => checkValue(r, c.results[i], `${where}, result ${i}`));
    }
  }
  t.diagnostic(`${table.ops.length} ops, ${valid} cases with results, ${refused} refused`);
  assert.ok(table.ops.length > 200 && valid > 1000 && refused > 200, 'the table is smaller than it was');
});

// Sums in another order: so far from the CPU's, in units of the result's largest element (of 0.1 where that is less).
const TOLERANCE = { f64: 1e-10, f32: 5e-5, bf16: 5e-2, f16: 1e-2 };
const COARSE = { scaled_matmul: 5e-4 }; // 8-bit products are added up with fewer bits in the tensor cores
function farApart(got, wanted, op) {
  if (wanted === null || got === null) return wanted === got ? '' : 'one of them is null';
  if (!got.device.startsWith('cuda') || got.dtype !== wanted.dtype) return `${got.dtype} on ${got.device}`;
  assert.deepEqual(got.shape, wanted.shape);
  const values = (t) => t.cpu().to('f64').toTypedArray();
  const a = values(got), b = values(tensorOf(wanted));
  let most = 0, largest = 0.1;
  for (let i = 0; i < b.length; ++i) {
    if (!Number.isFinite(b[i])) {
      if (!Object.is(a[i], b[i])) return `${a[i]} for ${b[i]}`;
      continue;
    }
    largest = Math.max(largest, Math.abs(b[i]));
    most = Math.max(most, Number.isNaN(a[i]) ? Infinity : Math.abs(a[i] - b[i]));
  }
  return most <= Math.max(COARSE[op] ?? 0, TOLERANCE[wanted.dtype] ?? 0) * largest ? '' : `${most} from ${largest}`;
}

test('the table of samples on a card', { skip: skip || (st.cuda.isAvailable() ? false : st.cuda.unavailableReason()) }, () => {
  const table = JSON.parse(fs.readFileSync(file, 'utf8'));
  const records = new Map(st.describeOps().map((r) => [r.name, r]));
  const differ = [];
  let valid = 0;
  for (const { op, cases } of table.ops) {
    const record = records.get(op);
    for (const c of cases.filter((each) => !each.error)) {
      const call = record.internal ? st.ops.internal[op] : st.ops[op];
      const result = call(...c.args.map((v, i) => argument(v, record.args[i]?.type ?? '', 'cuda')));
      const list = record.results.length === 1 ? [result] : record.results.map((r) => result[r.name]);
      c.results.forEach((want, i) => {
        const pairs = want.tensors ? want.tensors.map((t, j) => [list[i][j], t]) : [[list[i], want.tensor]];
        for (const [got, t] of pairs) {
          const far = farApart(got, t, op);
          if (far) differ.push(`${op} ${c.label} ${c.dtype}: ${far}`);
        }
      });
      ++valid;
    }
  }
  assert.deepEqual(differ, []);
  assert.ok(valid > 1000);
});
