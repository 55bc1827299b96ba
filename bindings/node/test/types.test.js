'use strict';
// The declarations: generated from the records that the addon has now, and accepted by the TypeScript compiler.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { run } = require('./child.js');
const { generate } = require('../scripts/generate-types.js');
const st = require('../lib/index.js');

test('lib/ops.d.ts is what the records say', () => {
  const file = path.join(__dirname, '../lib/ops.d.ts');
  assert.ok(fs.existsSync(file), 'make it with scripts/build-node or node scripts/generate-types.js');
  assert.equal(fs.readFileSync(file, 'utf8'), generate(), 'it is not current: node bindings/node/scripts/generate-types.js');
});

test('the declarations name what is there, and all of it', () => {
  const lib = path.join(__dirname, '../lib');
  const written = fs.readdirSync(lib).filter((n) => n.endsWith('.d.ts') && n !== 'ops.d.ts');
  const text = written.map((n) => fs.readFileSync(path.join(lib, n), 'utf8')).join('\n') + generate();
  for (const name of Object.keys(st)) assert.match(text, new RegExp(`\\b${name}[(:?<]|\\b${name}: `), `${name} is not declared`);
  for (const name of [...Object.keys(st.nn), ...[st.nn.functional, st.nn.init, st.nn.utils].flatMap(Object.keys), ...Object.keys(st.optim), ...Object.keys(st.data), ...Object.keys(st.cuda)].filter((n) => n !== 'Optimizer')) {
    assert.match(text, new RegExp(`\\b${name}[(:<]`), `${name} is not declared`);
  }
  for (const name of Object.getOwnPropertyNames(st.Tensor.prototype).filter((n) => n !== 'constructor')) {
    assert.match(text, new RegExp(`\\b${name}[(:?]`), `Tensor.${name} is not declared`);
  }
});

const found = run('tsc', ['--version']);
test('a strict program compiles, and the wrong lines in it do not', { skip: found.status === 0 ? false : 'tsc was not found' }, () => {
  const { status, stdout, stderr } = run('tsc', ['-p', path.join(__dirname, 'types')]);
  assert.equal(status, 0, stdout + stderr);
});
