'use strict';
// Nearly all that Python's st.nn and st.optim have is here, under the same name or in camelCase, or in a list of what is left out.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const native = require('../lib/native.js');
const st = require('../lib/index.js');

const python = path.join(__dirname, '../../python/strata');
/** The names in the __all__ of a file, or of the files of a folder. */
function namesOf(where) {
  const at = path.join(python, where);
  if (fs.statSync(at).isDirectory()) {
    return fs.readdirSync(at).filter((n) => n.endsWith('.py') && n !== '__init__.py').flatMap((n) => namesOf(path.join(where, n)));
  }
  const [, list] = /__all__ = \[([\s\S]*?)\]/.exec(fs.readFileSync(at, 'utf8')) ?? [];
  return [...(list ?? '').matchAll(/"(\w+)"/g)].map(([, name]) => name);
}
const camel = (name) => name.replace(/(?<=[a-z0-9])_([a-z0-9])/g, (all, c) => c.toUpperCase());

// The classes that Python makes of the optimizers' records.
const rules = JSON.parse(native.optimizerRecords()).filter((r) => r.python).map((r) => r.title);

const LEFT_OUT = {
  // Parameters and buffers are tensors that are marked: nn.parameter(t), nn.buffer(t).
  nn: ['Buffer', 'Parameter', 'RemovableHandle', 'RNNBase', 'RNNCellBase'],
  // It is MultiheadAttention's.
  functional: ['multi_head_attention', 'multi_head_attention_forward'],
  init: [],
  // The older name of clip_grad_norm_.
  utils: ['clip_grad_norm'],
  // Gradients are dense.
  optim: [],
  // st.optim has them, too: emaAverage(), swaAverage(), updateBn().
  swa: ['get_ema_avg_fn', 'get_ema_multi_avg_fn', 'get_swa_avg_fn', 'get_swa_multi_avg_fn'],
};
const modules = fs.readdirSync(path.join(python, 'nn')).filter((n) => n.endsWith('.py') && !['__init__.py', 'init.py'].includes(n));
for (const [part, names, here] of [
  ['nn', modules.flatMap((n) => namesOf(`nn/${n}`)), st.nn],
  ['functional', namesOf('nn/functional'), st.nn.functional],
  ['init', namesOf('nn/init.py'), st.nn.init],
  ['utils', namesOf('nn/utils/clip.py'), st.nn.utils],
  ['optim', [...namesOf('optim/optimizer.py'), ...rules, ...namesOf('optim/muon.py'), ...namesOf('optim/lbfgs.py'), ...namesOf('optim/lr_scheduler.py')], st.optim],
  ['swa', namesOf('optim/swa_utils.py'), st.optim],
]) {
  test(`Python's ${part}`, (t) => {
    assert.ok(names.length >= 4, `${names.length} names were found`);
    const lacking = names.filter((name) => !(name in here) && !(camel(name) in here));
    const surprising = lacking.filter((name) => !LEFT_OUT[part].includes(name));
    // What is new in Python may come here a little later.
    if (surprising.length > 0) t.diagnostic(`not here yet: ${surprising.join(', ')}`);
    assert.ok(surprising.length <= Math.max(3, names.length / 20), `neither here nor left out: ${surprising.join(', ')}`);
    assert.deepEqual(LEFT_OUT[part].filter((name) => name in here || camel(name) in here), [], 'left out, and here all the same');
  });
}
