'use strict';
// The package as other projects get it: a folder that is linked, and a file that `npm pack` made.
const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const child = require('./child.js');

const home = path.join(__dirname, '..');
const built = path.join(home, '../../build/release/bindings/node/strata.node');
let skip = false;
if (process.env.STRATA_SANITIZED) skip = 'looks at the release build';
else if (!fs.existsSync(built)) skip = `no ${built}`;
else if (child.run('npm', ['--version']).status !== 0) skip = 'npm is not installed';

function run(cwd, command, ...args) {
  const env = { ...process.env };
  delete env.STRATA_NODE_ADDON;
  const { status, stdout, stderr } = child.run(command, args, { cwd, env });
  assert.equal(status, 0, `${command} ${args.join(' ')}\n${stdout}\n${stderr}`);
  return stdout.trim();
}
const program = "const st = require('strata'); console.log(st.ones([2]).sum().item(), require.resolve('strata'))";

test('npm install FOLDER links the checkout', { skip, timeout: 600000 }, () => {
  const project = child.temporary();
  fs.writeFileSync(path.join(project, 'package.json'), '{"name": "project", "version": "1.0.0"}');
  run(project, 'npm', 'install', '--offline', '--no-audit', '--no-fund', home);
  assert.equal(run(project, 'node', '-e', program), `2 ${path.join(fs.realpathSync(home), 'lib/index.js')}`);
  assert.equal(run(project, 'node', '--input-type=module', '-e', "import st from 'strata'; console.log(st.zeros([3]).numel)"), '3');
});

test('npm pack makes a file that installs without the checkout', { skip, timeout: 600000 }, () => {
  const project = child.temporary();
  fs.writeFileSync(path.join(project, 'package.json'), '{"name": "project", "version": "1.0.0"}');
  const file = run(home, 'npm', 'pack', '--silent', '--pack-destination', project).split('\n').pop();
  assert.ok(!fs.existsSync(path.join(home, 'lib/strata.node')), 'the addon was left beside the JavaScript');
  run(project, 'npm', 'install', '--offline', '--no-audit', '--no-fund', `./${file}`);
  const inside = path.join(fs.realpathSync(project), 'node_modules/strata');
  assert.equal(run(project, 'node', '-e', program), `2 ${path.join(inside, 'lib/index.js')}`);
  for (const name of ['lib/strata.node', 'lib/ops.d.ts', 'lib/optimizers.d.ts', 'lib/families.d.ts', 'lib/generation.d.ts', 'lib/evaluation.d.ts', 'lib/index.d.ts', 'package.json'])
    assert.ok(fs.existsSync(path.join(inside, name)), name);
});
