'use strict';
// Layers and functions give what PyTorch's give for the same parameters, and the same gradients for inputs and parameters
// (torch_layers.json, torch_functions.json: written by torch_values.py).

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');
const layers = require('./torch_layers.json');
const functions = require('./torch_functions.json');

const tensorOf = ({ data, shape, dtype }) => st.tensor(dtype === 'i64' ? data.map(BigInt) : data, { shape, dtype: dtype ?? 'f32' });
const isTensor = (v) => v !== null && typeof v === 'object' && Array.isArray(v.data);
const withTensors = (v) => (isTensor(v) ? tensorOf(v) : v !== null && typeof v === 'object' && !Array.isArray(v)
  ? Object.fromEntries(Object.entries(v).map(([key, x]) => [key, withTensors(x)])) : v);
function close(got, want, where) {
  assert.deepEqual(got.shape, want.shape, `${where}: shape`);
  got.toTypedArray().forEach((v, i) => {
    const wanted = want.data[i];
    assert.ok(Math.abs(Number(v) - wanted) <= 5e-5 * (1 + Math.abs(wanted)), `${where}[${i}]: ${v}, not ${wanted}`);
  });
}
/** The gradient that reaches a result, as torch_values.py makes it. */
const coefficients = (t) => st.tensor(Float32Array.from({ length: t.numel }, (_, i) => (((i * 37) % 11) - 5) / 5), { shape: t.shape });
/** The gradients of all results together for the leaves, compared. */
function compareGradients(outputs, leaves, wanted) {
  if (wanted.length === 0) return;
  assert.equal(leaves.length, wanted.length);
  const made = outputs.filter((t) => t.requiresGrad);
  const gradients = st.grad(made, leaves, { gradOutputs: made.map(coefficients), allowUnused: true });
  gradients.forEach((g, i) => {
    if (wanted[i] === null) assert.ok(g === null || g.toArray().flat(Infinity).every((v) => v === 0));
    else close(g ?? st.zerosLike(leaves[i]), wanted[i], `gradient ${i}`);
  });
}

layers.forEach(({ name, args, train, state, inputs, plain, fixed, outputs, gradients, after }, number) => {
  test(`nn.${name}(${JSON.stringify(args).slice(1, -1)})${train ? ' in training' : ''}, case ${number}`, () => {
    const module = new st.nn[name](...args.map(withTensors)).train(train);
    assert.deepEqual(Object.keys(module.stateDict()).sort(), Object.keys(state).sort());
    assert.deepEqual(module.loadStateDict(Object.fromEntries(Object.entries(state).map(([key, v]) => [key, tensorOf(v)]))), { missing: [], unexpected: [] });
    const given = inputs.map((v, i) => {
      const t = tensorOf(v);
      if (t.dtype === 'f32' && !fixed.includes(i)) t.requiresGrad = true;
      return t;
    });
    const results = [module.forward(...given, ...plain)].flat(Infinity);
    assert.equal(results.length, outputs.length);
    results.forEach((t, i) => close(t, outputs[i], `result ${i}`));
    compareGradients(results, [...given.filter((t) => t.requiresGrad), ...module.parameters()], gradients);
    for (const [key, v] of Object.entries(after ?? {})) close(module.stateDict()[key], v, key);
    assert.match(String(module), new RegExp(`^${name}\\(`));
  });
});

functions.forEach(({ name, args, fixed, outputs, gradients }, number) => {
  test(`nn.functional.${name}, case ${number}`, () => {
    const given = args.map(({ tensor, value }, i) => {
      if (!tensor) return value;
      const t = tensorOf(tensor);
      if (t.dtype === 'f32' && !fixed.includes(i)) t.requiresGrad = true;
      return t;
    });
    const results = [st.nn.functional[name](...given)].flat(Infinity);
    assert.equal(results.length, outputs.length);
    results.forEach((t, i) => close(t, outputs[i], `result ${i}`));
    compareGradients(results, given.filter((t) => t?.requiresGrad), gradients);
  });
});
