'use strict';
// Around `npm pack`: before it, `pack.js` builds and puts the addon beside the JavaScript; after it, `pack.js --clean` takes it
// away, so that the checkout loads what it builds.

const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const root = path.join(__dirname, '../../..');
const addon = path.join(__dirname, '../lib/strata.node');
if (process.argv[2] === '--clean') {
  fs.rmSync(addon, { force: true });
} else {
  // npm prints the package's name on standard output, for scripts to read.
  process.exitCode = spawnSync(path.join(root, 'scripts/build-node'), { stdio: ['ignore', 2, 2] }).status ?? 1;
  if (!process.exitCode) fs.copyFileSync(path.join(root, 'build/release/bindings/node/strata.node'), addon);
}
