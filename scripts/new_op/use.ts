// The op from Node: a function, a promise and a method, with types.
import st from 'strata';

function expect(held: boolean, what: string): void {
  if (!held) throw new Error(what);
}
async function main(): Promise<void> {
  const x: st.Tensor = st.tensor([0, 0.5], { dtype: 'f64' });
  const y: st.Tensor = st.snake(x, { a: 2 });
  const difference: st.Tensor = y.sub(st.tensor([0, 0.5 + Math.sin(1) ** 2 / 2], { dtype: 'f64' }));
  expect(Number(st.abs(difference).max().item()) < 1e-12, `snake: ${y}`);
  const promised: st.Tensor = await st.async.snake(x);
  expect(promised.shape[0] === 2 && x.snake().shape[0] === 2, 'promise and method');
  // @ts-expect-error: a is a number
  const wrong: () => st.Tensor = () => st.snake(x, { a: 'two' });
  let refused = false;
  try {
    wrong();
  } catch {
    refused = true;
  }
  expect(refused, 'a text for a number');
}
main();
