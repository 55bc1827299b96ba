'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const main = path.join(__dirname, 'main.js');
const data = process.env.STRATA_DATA_DIR ?? path.join(__dirname, '../../../../shared/data');
const absent = fs.existsSync(path.join(data, 'mnist-t10k-images-idx3-ubyte.gz')) ? false : `no digits in ${data}`;
const slow = process.env.STRATA_SANITIZED ? 'takes minutes under the sanitizer' : false;

test('the network learns and is saved', { skip: absent || slow, timeout: 300000 }, () => {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'strata-node-')), 'net.safetensors');
  const run = spawnSync(process.execPath, [main, '--data', data, '--save', file], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stdout + run.stderr);
  assert.match(run.stdout, /epoch 4 {2}loss 0\.\d+ {2}held-out accuracy 9[6-9]\.\d+ %/);
  assert.ok(fs.statSync(file).size > 400000);
});

test('without data it says so', () => {
  const run = spawnSync(process.execPath, [main, '--data', '/nowhere'], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stderr);
  assert.match(run.stdout, /skipped: no digits in \/nowhere/);
});
