'use strict';
// The declarations: generated from the records that the addon has now, and accepted by the TypeScript compiler.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { run } = require('./child.js');
const { files } = require('../scripts/generate-types.js');
const st = require('../lib/index.js');

test('lib/ops.d.ts and lib/optimizers.d.ts are what the records say', () => {
  for (const [name, text] of Object.entries(files())) {
    const file = path.join(__dirname, '../lib', name);
    assert.ok(fs.existsSync(file), `${name}: make it with scripts/build-node or node scripts/generate-types.js`);
    assert.equal(fs.readFileSync(file, 'utf8'), text, `${name} is not current: node bindings/node/scripts/generate-types.js`);
  }
});

test('every option of an optimizer is declared, and no other', () => {
  const text = files()['optimizers.d.ts'];
  const members = (name) => {
    const [, base, body] = text.match(new RegExp(`export interface ${name}( extends \\w+)? {\\n([^}]*)}`));
    return [...(base ? members(base.slice(' extends '.length)) : []), ...[...body.matchAll(/^  (\w+)\??: /gm)].map((m) => m[1])];
  };
  const p = st.zeros([2, 2], { requiresGrad: true });
  const kinds = [...text.matchAll(/(\w+): OptimizerClass<(\w+)>/g)];
  assert.ok(kinds.length >= 15 && kinds.some(([, kind]) => kind === 'Muon'));
  for (const [, kind, options] of kinds) {
    const has = new st.optim[kind]([p]).paramGroups[0].options;
    assert.deepEqual(members(options).sort(), [...Object.keys(has), 'maximize'].sort(), kind);
  }
  const wanted = { milestones: [1, 2] };
  for (const [, kind, options] of text.matchAll(/(\w+): SchedulerClass<(\w+)/g)) {
    const names = members(options);
    const made = new st.optim[kind](new st.optim.SGD([p]), Object.fromEntries(names.map((n) => [n, wanted[n] ?? 1])));
    for (const name of names) assert.deepEqual(made[name], wanted[name] ?? 1, `${kind}.${name}`);
  }
});

test('the declarations name what is there, and all of it', () => {
  const lib = path.join(__dirname, '../lib');
  const written = fs.readdirSync(lib).filter((n) => n.endsWith('.d.ts') && !(n in files()));
  const text = written.map((n) => fs.readFileSync(path.join(lib, n), 'utf8')).join('\n') + Object.values(files()).join('\n');
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
