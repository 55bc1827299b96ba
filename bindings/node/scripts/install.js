'use strict';
// What `npm install` runs: in a checkout it builds the addon; a package made by `npm pack` brings its own, which is tried.

const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const build = path.join(__dirname, '../../../scripts/build-node');
if (fs.existsSync(build)) {
  process.exitCode = spawnSync(build, { stdio: 'inherit' }).status ?? 1;
} else {
  try {
    require('../lib/native.js');
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
