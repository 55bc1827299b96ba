// st.nn.functional. Arguments go by position, and an object at the end holds others by name.

import type { Tensor } from './types';
import type { Functions } from './ops';

export type Reduction = 'mean' | 'sum' | 'none';
/** One number for all dimensions, or one for each. */
export type Sizes = number | readonly number[];
/** null keeps the input's size. */
export type OutputSize = number | readonly (number | null)[];
export type PaddingMode = 'constant' | 'reflect' | 'replicate' | 'circular';
export type ResizeMode = 'nearest' | 'nearest-exact' | 'linear' | 'bilinear' | 'trilinear' | 'bicubic' | 'area';
type Maybe<T> = T | null | undefined;
type Reduced = { reduction?: Reduction };

export interface CrossEntropyOptions extends Reduced {
  weight?: Tensor | null;
  ignoreIndex?: number;
  labelSmoothing?: number;
}
export interface NllOptions extends Reduced {
  weight?: Tensor | null;
  ignoreIndex?: number;
}
export interface BceOptions extends Reduced {
  weight?: Tensor | null;
}
export interface KlDivOptions {
  reduction?: Reduction | 'batchmean';
  logTarget?: boolean;
}
export interface MarginOptions extends Reduced {
  margin?: number;
}
export interface TripletOptions extends MarginOptions {
  p?: number;
  eps?: number;
  swap?: boolean;
}
export interface TripletDistanceOptions extends MarginOptions {
  distanceFunction?: ((a: Tensor, b: Tensor) => Tensor) | null;
  swap?: boolean;
}
export interface MultiMarginOptions extends MarginOptions {
  p?: 1 | 2;
  weight?: Tensor | null;
}
export interface PoissonOptions extends Reduced {
  logInput?: boolean;
  full?: boolean;
  eps?: number;
}
export interface GaussianOptions extends Reduced {
  full?: boolean;
  eps?: number;
}
export interface CtcOptions extends Reduced {
  blank?: number;
  zeroInfinity?: boolean;
}
export type Lengths = Tensor | readonly number[];
export interface ConvOptions {
  stride?: Sizes;
  padding?: Sizes | 'same' | 'valid';
  dilation?: Sizes;
  groups?: number;
}
export interface ConvTransposeOptions {
  stride?: Sizes;
  padding?: Sizes;
  outputPadding?: Sizes;
  dilation?: Sizes;
  groups?: number;
}
export interface WindowOptions {
  dilation?: Sizes;
  padding?: Sizes;
  stride?: Sizes;
}
export interface MaxPoolOptions {
  stride?: Sizes | null;
  padding?: Sizes;
  dilation?: Sizes;
  ceilMode?: boolean;
}
export interface AvgPoolOptions {
  stride?: Sizes | null;
  padding?: Sizes;
  ceilMode?: boolean;
  countIncludePad?: boolean;
}
export interface AvgPoolOverOptions extends AvgPoolOptions {
  /** What the sum of a window is divided by, in place of its size. */
  divisorOverride?: number | null;
}
export interface FractionalMaxPoolSize {
  outputSize?: Sizes | null;
  outputRatio?: number | readonly number[] | null;
}
export interface FractionalMaxPoolOptions extends FractionalMaxPoolSize {
  /** From [0, 1): [N, C, 2] (width and height) or [N, C, 3] (depth, height, width) say where windows begin; drawn without them. */
  samples?: Tensor | null;
}
export interface LpPoolOptions {
  stride?: Sizes | null;
  ceilMode?: boolean;
}
export interface UnpoolOptions {
  stride?: Sizes | null;
  padding?: Sizes;
}
export interface ResizeOptions {
  size?: Sizes | null;
  scaleFactor?: number | readonly number[] | null;
  mode?: ResizeMode;
  alignCorners?: boolean | null;
  recomputeScaleFactor?: boolean;
}
type Convolution = (x: Tensor, weight: Tensor, bias?: Tensor | null, options?: ConvOptions) => Tensor;
type TransposedConvolution = (x: Tensor, weight: Tensor, bias?: Tensor | null, options?: ConvTransposeOptions) => Tensor;
interface MaxPool {
  (x: Tensor, kernelSize: Sizes, options: MaxPoolOptions & { returnIndices: true }): [values: Tensor, indices: Tensor];
  (x: Tensor, kernelSize: Sizes, options?: MaxPoolOptions & { returnIndices?: false }): Tensor;
}
interface AdaptiveMaxPool {
  (x: Tensor, outputSize: OutputSize, options: { returnIndices: true }): [values: Tensor, indices: Tensor];
  (x: Tensor, outputSize: OutputSize, options?: { returnIndices?: false }): Tensor;
}
interface FractionalMaxPool {
  (x: Tensor, kernelSize: Sizes, options: FractionalMaxPoolOptions & { returnIndices: true }): [values: Tensor, indices: Tensor];
  (x: Tensor, kernelSize: Sizes, options: FractionalMaxPoolOptions & { returnIndices?: false }): Tensor;
}
type LpPool = (x: Tensor, normType: number, kernelSize: Sizes, options?: LpPoolOptions) => Tensor;
type MaxUnpool = (x: Tensor, indices: Tensor, kernelSize: Sizes, options?: UnpoolOptions & { outputSize?: readonly number[] | null }) => Tensor;
type DropoutFunction = (x: Tensor, options?: { p?: number; training?: boolean }) => Tensor;
type Loss<O = Reduced> = (x: Tensor, target: Tensor, options?: O) => Tensor;

export interface Functional {
  relu: Functions['relu'];
  relu6(x: Tensor): Tensor;
  // With _: written over x, which is returned.
  relu_(x: Tensor): Tensor;
  elu_: Functions['elu'];
  celu_(x: Tensor, alpha?: number | { alpha?: number }): Tensor;
  selu_(x: Tensor): Tensor;
  leakyRelu_(x: Tensor, negativeSlope?: number | { negativeSlope?: number }): Tensor;
  hardtanh_: Functions['hardtanh'];
  threshold_(x: Tensor, threshold: number, value: number): Tensor;
  rrelu_(x: Tensor, options?: { lower?: number; upper?: number; training?: boolean }): Tensor;
  gelu: Functions['gelu'];
  silu: Functions['silu'];
  mish: Functions['mish'];
  elu: Functions['elu'];
  /** x where positive, else alpha (exp(x / alpha) - 1). */
  celu(x: Tensor, alpha?: number | { alpha?: number }): Tensor;
  selu(x: Tensor): Tensor;
  leakyRelu(x: Tensor, negativeSlope?: number | { negativeSlope?: number }): Tensor;
  /** leakyRelu with a learned slope, one for all or one for each channel. */
  prelu(x: Tensor, weight: Tensor): Tensor;
  /** A slope drawn for each element in training, else the mean of lower and upper. */
  rrelu(x: Tensor, options?: { lower?: number; upper?: number; training?: boolean }): Tensor;
  hardtanh: Functions['hardtanh'];
  hardsigmoid: Functions['hardsigmoid'];
  hardswish: Functions['hardswish'];
  hardshrink(x: Tensor, lambd?: number | { lambd?: number }): Tensor;
  softplus: Functions['softplus'];
  softshrink(x: Tensor, lambd?: number | { lambd?: number }): Tensor;
  softsign(x: Tensor): Tensor;
  tanhshrink(x: Tensor): Tensor;
  /** x where it is above `threshold`, else `value`. */
  threshold(x: Tensor, threshold: number, value: number): Tensor;
  logsigmoid: Functions['logsigmoid'];
  sigmoid: Functions['sigmoid'];
  tanh: Functions['tanh'];
  swiglu: Functions['swiglu'];
  /** a sigmoid(b) of the two halves along dim. */
  glu(x: Tensor, dim?: number | { dim?: number }): Tensor;
  softmax: Functions['softmax'];
  softmin(x: Tensor, dim: number): Tensor;
  logSoftmax: Functions['log_softmax'];
  /** A sample of softmax((x + Gumbel noise) / tau); with {hard} one-hot, with the gradient of the soft one. */
  gumbelSoftmax(x: Tensor, options?: { tau?: number; hard?: boolean; dim?: number }): Tensor;

  linear: Functions['linear'];
  /** x1^T weight[o] x2 + bias[o]. */
  bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias?: Tensor | null): Tensor;
  linearCrossEntropy: Functions['linear_cross_entropy'];
  embedding: Functions['embedding'];
  /** Sums, means or maxima of the rows that each bag names: indices [bags, n], or [n] with offsets. */
  embeddingBag(indices: Tensor, weight: Tensor, offsets?: Tensor | null, options?: {
    mode?: 'sum' | 'mean' | 'max'; perSampleWeights?: Tensor | null; includeLastOffset?: boolean; paddingIdx?: number | null;
  }): Tensor;
  oneHot(x: Tensor, numClasses?: number | { numClasses?: number }): Tensor;
  scaledDotProductAttention(query: Tensor, key: Tensor, value: Tensor, attnMask?: Tensor | null, options?: {
    dropoutP?: number; isCausal?: boolean; scale?: number | null; enableGqa?: boolean; window?: number; queryOffset?: number;
    alibiSlopes?: Tensor | null; logitSoftCap?: number; sinks?: Tensor | null; keyLengths?: Tensor | null;
  }): Tensor;

  conv1d: Convolution;
  conv2d: Convolution;
  conv3d: Convolution;
  convTranspose1d: TransposedConvolution;
  convTranspose2d: TransposedConvolution;
  convTranspose3d: TransposedConvolution;
  /** Windows of [N, C, H, W] as columns: [N, C kh kw, windows]. */
  unfold(x: Tensor, kernelSize: Sizes, options?: WindowOptions): Tensor;
  /** Adds up the columns of unfold() where they came from. */
  fold(x: Tensor, outputSize: Sizes, kernelSize: Sizes, options?: WindowOptions): Tensor;

  maxPool1d: MaxPool;
  maxPool2d: MaxPool;
  maxPool3d: MaxPool;
  maxPool1dWithIndices(x: Tensor, kernelSize: Sizes, options?: MaxPoolOptions): [values: Tensor, indices: Tensor];
  maxPool2dWithIndices(x: Tensor, kernelSize: Sizes, options?: MaxPoolOptions): [values: Tensor, indices: Tensor];
  maxPool3dWithIndices(x: Tensor, kernelSize: Sizes, options?: MaxPoolOptions): [values: Tensor, indices: Tensor];
  avgPool1d(x: Tensor, kernelSize: Sizes, options?: AvgPoolOptions): Tensor;
  avgPool2d(x: Tensor, kernelSize: Sizes, options?: AvgPoolOverOptions): Tensor;
  avgPool3d(x: Tensor, kernelSize: Sizes, options?: AvgPoolOverOptions): Tensor;
  lpPool1d: LpPool;
  lpPool2d: LpPool;
  lpPool3d: LpPool;
  maxUnpool1d: MaxUnpool;
  maxUnpool2d: MaxUnpool;
  maxUnpool3d: MaxUnpool;
  adaptiveAvgPool1d(x: Tensor, outputSize: OutputSize): Tensor;
  adaptiveAvgPool2d(x: Tensor, outputSize: OutputSize): Tensor;
  adaptiveAvgPool3d(x: Tensor, outputSize: OutputSize): Tensor;
  adaptiveMaxPool1d: AdaptiveMaxPool;
  adaptiveMaxPool2d: AdaptiveMaxPool;
  adaptiveMaxPool3d: AdaptiveMaxPool;

  adaptiveMaxPool1dWithIndices(x: Tensor, outputSize: OutputSize): [values: Tensor, indices: Tensor];
  adaptiveMaxPool2dWithIndices(x: Tensor, outputSize: OutputSize): [values: Tensor, indices: Tensor];
  adaptiveMaxPool3dWithIndices(x: Tensor, outputSize: OutputSize): [values: Tensor, indices: Tensor];

  /** Maxima of windows that begin at random steps, so that the result has outputSize, or outputRatio of the input's size. */
  fractionalMaxPool2d: FractionalMaxPool;
  fractionalMaxPool3d: FractionalMaxPool;
  fractionalMaxPool2dWithIndices(x: Tensor, kernelSize: Sizes, options: FractionalMaxPoolOptions): [values: Tensor, indices: Tensor];
  fractionalMaxPool3dWithIndices(x: Tensor, kernelSize: Sizes, options: FractionalMaxPoolOptions): [values: Tensor, indices: Tensor];

  /** (before, after) for the last dimension, then the one before it. */
  pad(x: Tensor, padding: readonly number[], options?: { mode?: PaddingMode; value?: number }): Tensor;
  interpolate(x: Tensor, options: ResizeOptions & { antialias?: boolean }): Tensor;
  upsample(x: Tensor, options: ResizeOptions & { antialias?: boolean }): Tensor;
  upsampleNearest(x: Tensor, options: { size?: Sizes | null; scaleFactor?: number | readonly number[] | null }): Tensor;
  upsampleBilinear(x: Tensor, options: { size?: Sizes | null; scaleFactor?: number | readonly number[] | null }): Tensor;
  /** [.., C r^2, H, W] -> [.., C, H r, W r]. */
  pixelShuffle(x: Tensor, upscaleFactor: number): Tensor;
  pixelUnshuffle(x: Tensor, downscaleFactor: number): Tensor;
  channelShuffle(x: Tensor, groups: number): Tensor;
  /** Positions for gridSample(): theta [N, 2, 3] (or [N, 3, 4]) maps a result of `size` into the input. */
  affineGrid(theta: Tensor, size: readonly number[], options?: { alignCorners?: boolean }): Tensor;
  /** x at positions (x, y[, z]) from -1 to 1. */
  gridSample(x: Tensor, grid: Tensor, options?: {
    mode?: 'bilinear' | 'nearest' | 'bicubic'; paddingMode?: 'zeros' | 'border' | 'reflection'; alignCorners?: boolean;
  }): Tensor;

  layerNorm: Functions['layer_norm'];
  rmsNorm: Functions['rms_norm'];
  groupNorm: Functions['group_norm'];
  batchNorm(x: Tensor, runningMean: Maybe<Tensor>, runningVar: Maybe<Tensor>, weight?: Tensor | null, bias?: Tensor | null,
    options?: { training?: boolean; momentum?: number; eps?: number }): Tensor;
  instanceNorm(x: Tensor, runningMean?: Tensor | null, runningVar?: Tensor | null, weight?: Tensor | null, bias?: Tensor | null,
    options?: { useInputStats?: boolean; momentum?: number; eps?: number }): Tensor;
  localResponseNorm(x: Tensor, size: number, options?: { alpha?: number; beta?: number; k?: number }): Tensor;
  normalize(x: Tensor, options?: { p?: number; dim?: number; eps?: number }): Tensor;
  dropout: DropoutFunction;
  dropout1d: DropoutFunction;
  dropout2d: DropoutFunction;
  dropout3d: DropoutFunction;
  /** Dropout for SELU; not `training` unless said. */
  alphaDropout: DropoutFunction;
  featureAlphaDropout: DropoutFunction;

  crossEntropy: Loss<CrossEntropyOptions>;
  nllLoss: Loss<NllOptions>;
  binaryCrossEntropy(p: Tensor, target: Tensor, options?: BceOptions): Tensor;
  binaryCrossEntropyWithLogits: Loss<BceOptions & { posWeight?: Tensor | null }>;
  klDiv: Loss<KlDivOptions>;
  mseLoss: Loss;
  l1Loss: Loss;
  smoothL1Loss: Loss<Reduced & { beta?: number }>;
  huberLoss: Loss<Reduced & { delta?: number }>;
  poissonNllLoss: Loss<PoissonOptions>;
  gaussianNllLoss(x: Tensor, target: Tensor, variance: Tensor, options?: GaussianOptions): Tensor;
  softMarginLoss: Loss;
  hingeEmbeddingLoss: Loss<MarginOptions>;
  marginRankingLoss(x1: Tensor, x2: Tensor, target: Tensor, options?: MarginOptions): Tensor;
  cosineEmbeddingLoss(x1: Tensor, x2: Tensor, target: Tensor, options?: MarginOptions): Tensor;
  tripletMarginLoss(anchor: Tensor, positive: Tensor, negative: Tensor, options?: TripletOptions): Tensor;
  tripletMarginWithDistanceLoss(anchor: Tensor, positive: Tensor, negative: Tensor, options?: TripletDistanceOptions): Tensor;
  multiMarginLoss: Loss<MultiMarginOptions>;
  multilabelMarginLoss: Loss;
  multilabelSoftMarginLoss: Loss<BceOptions>;
  /** Of log-probabilities [T, N, C]; targets [N, S] or one after the other. */
  ctcLoss(logProbs: Tensor, targets: Tensor, inputLengths: Lengths, targetLengths: Lengths, options?: CtcOptions): Tensor;
  cosineSimilarity(x1: Tensor, x2: Tensor, options?: { dim?: number; eps?: number }): Tensor;
  pairwiseDistance(x1: Tensor, x2: Tensor, options?: { p?: number; eps?: number; keepdim?: boolean }): Tensor;
  /** The p-norms of the differences of all pairs of rows. */
  pdist(x: Tensor, p?: number | { p?: number }): Tensor;
}
