// st.distributions: probability distributions. The families' classes are generated from their records.

import type { Tensor } from './types';
import type { Categorical } from './families';

export * from './families';

/** The values that may be drawn. */
export interface Support {
  /** 'real', 'greater_than', 'simplex' ... */
  kind: string;
  lower: number | Tensor | null;
  upper: number | Tensor | null;
  /** How many of a value's last dimensions are one event. */
  eventDim: number;
  text: string;
}

/** A batch of distributions: batchShape of them, each over values of eventShape. */
export abstract class Distribution {
  protected constructor(...args: never[]);
  readonly batchShape: number[];
  readonly eventShape: number[];
  readonly support: Support;
  /** Values of shape [...sampleShape, ...batchShape, ...eventShape], without a gradient. */
  sample(sampleShape?: number | readonly number[]): Tensor;
  /** The same, through which gradients reach the parameters. */
  rsample(sampleShape?: number | readonly number[]): Tensor;
  /** The logarithm of the density, or probability, of each value. */
  logProb(value: Tensor | number): Tensor;
  /** The probability of at most the value. */
  cdf(value: Tensor | number): Tensor;
  /** The value below which a share lies. */
  icdf(share: Tensor | number): Tensor;
  entropy(): Tensor;
  /** exp(entropy()). */
  perplexity(): Tensor;
  readonly mean: Tensor;
  /** The likeliest value. */
  readonly mode: Tensor;
  readonly variance: Tensor;
  readonly stddev: Tensor;
  /** All values, along a first dimension; the batch's dimensions are 1 unless expand. */
  enumerateSupport(expand?: boolean): Tensor;
  /** The same over a larger batch. */
  expand(batchShape: number | readonly number[]): this;
  toString(): string;
}

/** The last dimensions of a distribution's batch as dimensions of one event: logProb() sums over them. */
export class Independent extends Distribution {
  constructor(base: Distribution, reinterpretedBatchNdims: number);
}
/** One of several distributions of a family, chosen by a Categorical: the last dimension of the components' batch. */
export class MixtureSameFamily extends Distribution {
  constructor(mixture: Categorical, components: Distribution);
}

/** Values of a distribution that went through transforms, one after the other. */
export class TransformedDistribution extends Distribution {
  constructor(base: Distribution, transforms: Transform | readonly Transform[]);
}

/** y = f(x) and x = f.inverse(y). */
export class Transform {
  protected constructor(...args: never[]);
  forward(x: Tensor): Tensor;
  inverse(y: Tensor): Tensor;
  /** x as a function of y. */
  readonly inv: Transform;
  /** log |dy / dx|, of each event. */
  logAbsDetJacobian(x: Tensor, y: Tensor): Tensor;
  forwardShape(shape: readonly number[]): number[];
  inverseShape(shape: readonly number[]): number[];
  readonly domain: Support;
  readonly codomain: Support;
  /** Whether each y is that of one x. */
  readonly bijective: boolean;
  /** 1 where it rises, -1 where it falls. */
  readonly sign: number | Tensor;
}
/** One after the other. */
export class ComposeTransform extends Transform {
  constructor(parts: readonly Transform[]);
}
/** A transform whose last dimensions make one event. */
export class IndependentTransform extends Transform {
  constructor(base: Transform, reinterpretedBatchNdims: number);
}
/** A transform for each piece of `lengths` along `dim`. */
export class CatTransform extends Transform {
  constructor(parts: readonly Transform[], dim?: number, lengths?: readonly number[]);
}
/** A transform for each slice along `dim`. */
export class StackTransform extends Transform {
  constructor(parts: readonly Transform[], dim?: number);
}
/** y = distribution.cdf(x): uniform where x is of the distribution. */
export class CumulativeDistributionTransform extends Transform {
  constructor(distribution: Distribution);
}

/** Kullback and Leibler's divergence: the mean over p of log p - log q. */
export function klDivergence(p: Distribution, q: Distribution): Tensor;
