'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { execFile, spawnSync } = require('node:child_process');
const { promisify } = require('node:util');

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

test('the digits are fetched once', { skip: absent, timeout: 60000 }, async (t) => {
  const asked = [];
  const server = http.createServer((request, response) => {
    asked.push(request.url);
    fs.createReadStream(path.join(data, `mnist-${request.url.slice(1)}`)).pipe(response);
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  t.after(() => server.close());
  // In a copy, so that runs/mnist is not the repository's.
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'strata-node-'));
  t.after(() => fs.rmSync(root, { recursive: true, force: true }));
  const copy = path.join(root, 'examples/node/mnist/main.js');
  fs.mkdirSync(path.dirname(copy), { recursive: true });
  fs.copyFileSync(main, copy);
  fs.symlinkSync(path.join(__dirname, '../../../bindings'), path.join(root, 'bindings'));
  const env = { ...process.env };
  delete env.STRATA_DATA_DIR;
  const args = [copy, '--epochs', '0', '--url', `http://127.0.0.1:${server.address().port}/`];
  for (let i = 0; i < 2; ++i) {
    const { stdout } = await promisify(execFile)(process.execPath, args, { env });
    assert.match(stdout, /105866 parameters/);
  }
  assert.deepEqual(asked, ['/t10k-images-idx3-ubyte.gz', '/t10k-labels-idx1-ubyte.gz']);
  fs.rmSync(path.join(root, 'runs'), { recursive: true });
  args.splice(-1, 1, 'http://127.0.0.1:9/');
  const { stdout } = await promisify(execFile)(process.execPath, args, { env });
  assert.match(stdout, /skipped: no digits in .*runs\/mnist \(.+\); wanted/);
});

test('without data it says so', () => {
  const run = spawnSync(process.execPath, [main, '--data', '/nowhere'], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stderr);
  assert.match(run.stdout, /skipped: no digits in \/nowhere/);
});
