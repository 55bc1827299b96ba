'use strict';
// Modules, losses and schedulers give what PyTorch 2's give for the same parameters (torch_values.json: a module's
// state_dict, inputs and outputs).

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');
const values = require('./torch_values.json');

const tensorOf = ({ data, shape, dtype }) => st.tensor(dtype === 'i64' ? data.map(BigInt) : data, { shape, dtype: dtype ?? 'f32' });
const optionsOf = (args) => args.map((a) => (a !== null && typeof a === 'object'
  ? Object.fromEntries(Object.entries(a).map(([k, v]) => [k, v?.data ? tensorOf(v) : v])) : a));
function close(got, want, where) {
  assert.deepEqual(got.shape, want.shape, where);
  got.toTypedArray().forEach((v, i) => assert.ok(Math.abs(v - want.data[i]) < 3e-5, `${where}[${i}]: ${v}, not ${want.data[i]}`));
}

for (const { name, args, state, inputs, outputs } of values.modules) {
  test(`nn.${name}(${JSON.stringify(args).slice(1, -1)})`, () => {
    const module = new st.nn[name](...args).eval();
    const own = Object.keys(module.stateDict());
    assert.deepEqual(own.sort(), Object.keys(state).sort(), 'the parameters have the same names');
    module.loadStateDict(Object.fromEntries(Object.entries(state).map(([key, v]) => [key, tensorOf(v)])));
    const result = module.forward(...inputs.map(tensorOf));
    const all = [result].flat(Infinity);
    assert.equal(all.length, outputs.length);
    all.forEach((t, i) => close(t, outputs[i], `${name} result ${i}`));
    for (const t of all) assert.equal(t.requiresGrad, own.length > 0);
  });
}

for (const { name, args, inputs, value } of values.losses) {
  test(`nn.${name}(${JSON.stringify(args).slice(1, -1)})`, () => {
    const got = new st.nn[name](...optionsOf(args)).forward(...inputs.map(tensorOf));
    Array.from(got.toTypedArray()).forEach((v, i) => assert.ok(Math.abs(v - value[i]) < 3e-5, `${v}, not ${value[i]}`));
    assert.equal(got.numel, value.length);
  });
}

for (const { name, options, rates } of values.schedulers) {
  test(`optim.${name}(${JSON.stringify(options)})`, () => {
    const w = st.zeros([1], { requiresGrad: true });
    const optimizer = new st.optim.SGD([w], { lr: 0.1 });
    const scheduler = new st.optim[name](optimizer, options);
    const got = rates.map(() => {
      const { lr } = optimizer;
      scheduler.step();
      return lr;
    });
    got.forEach((lr, i) => assert.ok(Math.abs(lr - rates[i]) < 1e-8, `step ${i}: ${lr}, not ${rates[i]}`));
    // Goes on from its state.
    const second = new st.optim.SGD([w], { lr: 0.1 });
    const again = new st.optim[name](second, options);
    again.loadStateDict(JSON.parse(JSON.stringify(scheduler.stateDict())));
    assert.equal(second.lr, optimizer.lr);
  });
}
