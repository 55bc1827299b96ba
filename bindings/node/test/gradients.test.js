'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');

const leaf = (data, dtype = 'f32') => st.tensor(data, { requiresGrad: true, dtype });

test('backward fills grad, and adds to it', () => {
  const x = leaf([1, 2, 3]);
  x.mul(x).sum().backward();
  assert.deepEqual(x.grad.toArray(), [2, 4, 6]);
  x.sum().backward();
  assert.deepEqual(x.grad.toArray(), [3, 5, 7]);
  x.grad = null;
  assert.equal(x.grad, null);
  x.grad = st.ones([3]);
  assert.deepEqual(x.grad.toArray(), [1, 1, 1]);
  assert.throws(() => { x.grad = st.ones([2]); }, st.ShapeError);
});

test('a gradient from outside, retained graphs, second derivatives', () => {
  const x = leaf([2], 'f64');
  const y = x.mul(x).mul(x);
  y.backward(st.tensor([10], { dtype: 'f64' }), { retainGraph: true });
  assert.deepEqual(x.grad.toArray(), [120]);
  y.backward(st.tensor([1], { dtype: 'f64' }));
  assert.throws(() => y.backward(st.tensor([1], { dtype: 'f64' })), st.AutogradError);
  const [first] = st.grad(x.mul(x).mul(x).sum(), x, { createGraph: true });
  const [second] = st.grad(first.sum(), [x]);
  assert.deepEqual(second.toArray(), [12]);
  const z = leaf([1]);
  assert.deepEqual(st.grad(x.sum(), [x, z], { allowUnused: true })[1], null);
  assert.throws(() => st.grad(x.sum(), [z]), st.AutogradError);
});

test('noGrad and enableGrad', () => {
  const x = leaf([1]);
  const y = st.noGrad(() => {
    assert.equal(st.isGradEnabled(), false);
    assert.equal(st.enableGrad(() => x.mul(2)).requiresGrad, true);
    return x.mul(2);
  });
  assert.equal(y.requiresGrad, false);
  assert.equal(st.isGradEnabled(), true);
  assert.throws(() => st.noGrad(() => { throw new Error('out'); }), /out/);
  assert.equal(st.isGradEnabled(), true);
  assert.throws(() => st.noGrad(async () => x.mul(2)), /async function/);
  assert.equal(st.isGradEnabled(), true);
});

test('leaves and what they are', () => {
  const x = leaf([1, 2]);
  const y = x.exp();
  assert.equal(x.isLeaf, true);
  assert.equal(y.isLeaf, false);
  assert.equal(y.gradFn, 'exp');
  assert.equal(x.gradFn, null);
  assert.equal(y.detach().requiresGrad, false);
  assert.throws(() => { y.requiresGrad = false; }, st.AutogradError);
  assert.throws(() => { st.tensor([1n]).requiresGrad = true; }, st.DTypeError);
  y.retainGrad();
  y.sum().backward();
  assert.deepEqual(y.grad.toArray(), [1, 1]);
});

test('hooks see, replace and end', () => {
  const x = leaf([1, 2]);
  const seen = [];
  const looking = x.registerHook((g) => { seen.push(g.toArray()); });
  const doubling = x.registerHook((g) => g.mul(2));
  x.mul(3).sum().backward();
  assert.deepEqual(seen, [[3, 3]]);
  assert.deepEqual(x.grad.toArray(), [6, 6]);
  looking.remove();
  doubling.remove();
  x.grad = null;
  x.mul(3).sum().backward();
  assert.equal(seen.length, 1);
  assert.deepEqual(x.grad.toArray(), [3, 3]);
  let updated = 0;
  x.registerPostAccumulateGradHook((p) => { assert.ok(p.grad); ++updated; });
  x.sum().backward();
  assert.equal(updated, 1);
  assert.throws(() => st.ones([1]).registerHook(() => {}), st.AutogradError);
  assert.throws(() => x.registerHook(3), st.ValueError);
});

test('what a hook throws comes out as it was thrown, and the engine works on', async () => {
  const x = leaf([1]);
  const thrown = new TypeError('from the hook');
  const hook = x.registerHook(() => { throw thrown; });
  assert.throws(() => x.mul(2).sum().backward(), (e) => e === thrown);
  await assert.rejects(x.mul(2).sum().backwardAsync(), (e) => e === thrown);
  hook.remove();
  // Not only errors can be thrown.
  const odd = x.registerHook(() => { throw 'a text'; });
  assert.throws(() => x.mul(2).sum().backward(), (e) => e === 'a text');
  odd.remove();
  const wrong = x.registerHook(() => st.ones([5]));
  assert.throws(() => x.mul(2).sum().backward(), st.ShapeError);
  wrong.remove();
  const promise = x.registerHook(async () => {});
  assert.throws(() => x.mul(2).sum().backward(), /promise/);
  promise.remove();
  x.grad = null;
  x.mul(2).sum().backward();
  assert.deepEqual(x.grad.toArray(), [2]);
});

test('hooks run on the JavaScript thread while backward runs on another', async () => {
  const x = leaf([1, 2]);
  let calls = 0;
  x.registerHook((g) => {
    ++calls;
    // Work with the tape within the hook, while the pool thread holds it.
    const y = st.enableGrad(() => g.detach().mul(leaf([1, 1])).sum());
    y.backward();
    return g.mul(10);
  });
  const going = x.mul(x).sum().backwardAsync();
  // The event loop is free, and this thread may use the tape meanwhile.
  const other = leaf([3]);
  other.mul(2).sum().backward();
  await going;
  assert.equal(calls, 1);
  assert.deepEqual(x.grad.toArray(), [20, 40]);
});

class Square extends st.Function {
  static forward(ctx, x) {
    ctx.saveForBackward(x);
    ctx.note = 'kept';
    return x.mul(x);
  }
  static backward(ctx, g) {
    assert.equal(ctx.note, 'kept');
    const [x] = ctx.savedTensors;
    return g.mul(x).mul(2);
  }
}

test('functions with a gradient of their own', () => {
  const x = leaf([1, 2, 3]);
  const y = Square.apply(x);
  assert.deepEqual(y.toArray(), [1, 4, 9]);
  assert.equal(y.gradFn, 'Square');
  y.sum().backward();
  assert.deepEqual(x.grad.toArray(), [2, 4, 6]);
  const [g] = st.grad(Square.apply(x).sum(), x, { createGraph: true });
  assert.deepEqual(st.grad(g.sum(), x)[0].toArray(), [2, 2, 2]);

  class Two extends st.Function {
    static forward(ctx, a, k, b) {
      return [a.add(b), a.mul(k)];
    }
    static backward(ctx, ga, gb) {
      return [ga.add(gb), null];
    }
  }
  const [s, p] = Two.apply(x, 4, leaf([1, 1, 1]));
  x.grad = null;
  s.sum().add(p.sum()).backward();
  assert.deepEqual(x.grad.toArray(), [2, 2, 2]);
});

test('what goes wrong in a function is said', () => {
  class Throws extends st.Function {
    static forward(ctx, x) { return x.mul(1); }
    static backward() { throw new RangeError('no gradient today'); }
  }
  class TooMany extends st.Function {
    static forward(ctx, x) { return x.mul(1); }
    static backward(ctx, g) { return [g, g, g]; }
  }
  class Misshapen extends st.Function {
    static forward(ctx, x) { return x.mul(1); }
    static backward() { return st.ones([7]); }
  }
  const x = leaf([1, 2]);
  assert.throws(() => Throws.apply(x).sum().backward(), /no gradient today/);
  assert.throws(() => TooMany.apply(x).sum().backward(), st.AutogradError);
  assert.throws(() => Misshapen.apply(x).sum().backward(), st.ShapeError);
  assert.throws(() => st.Function.apply(x), st.ValueError);
});

test('a network learns, on this thread and on the pool alike', async () => {
  const run = async (inPool) => {
    st.manualSeed(5);
    const net = new st.nn.Sequential(new st.nn.Linear(2, 16), st.tanh, new st.nn.Linear(16, 1));
    const optimizer = new st.optim.AdamW(net, { lr: 0.05, weightDecay: 0 });
    const x = st.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]);
    const y = st.tensor([[0], [1], [1], [0]]);
    let loss;
    for (let i = 0; i < 150; ++i) {
      optimizer.zeroGrad();
      loss = st.mse_loss(net.forward(x), y);
      if (inPool) {
        await loss.backwardAsync();
        await optimizer.stepAsync();
      } else {
        loss.backward();
        optimizer.step();
      }
    }
    return loss.item();
  };
  const here = await run(false);
  assert.ok(here < 1e-3, `the loss is ${here}`);
  assert.equal(await run(true), here);
});
