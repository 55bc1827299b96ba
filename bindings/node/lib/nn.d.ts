// st.nn

import type { HookHandle, Tensor, DType, Device } from './types';
import type * as F from './nn_functional';

export type StateDict = { [name: string]: Tensor };
export interface Walk {
  /** With false, what the module itself has only. */
  recurse?: boolean;
  /** With false, what has several names stands under each. */
  removeDuplicate?: boolean;
}
export type ModuleHookHandle = HookHandle & { [Symbol.dispose](): void };
export interface Module {
  training: boolean;
  forward(...args: any[]): any;
  namedChildren(): [string, Module][];
  children(): Module[];
  /** [name, parameter] pairs, a module's own before those of its children, each parameter once. */
  namedParameters(prefix?: string, options?: Walk): [string, Tensor][];
  parameters(options?: Walk): Tensor[];
  namedBuffers(prefix?: string, options?: Walk): [string, Tensor][];
  buffers(options?: Walk): Tensor[];
  /** This one and all below it, each once. */
  modules(): Module[];
  /** With the path to each; '' is the module itself. */
  namedModules(prefix?: string): [string, Module][];
  /** By a path of names with dots. */
  getSubmodule(path: string): Module;
  getParameter(path: string): Tensor;
  getBuffer(path: string): Tensor;
  /** The same as setting the property; null holds the place of one that there is not. */
  registerParameter(name: string, value: Tensor | null): this;
  registerBuffer(name: string, value: Tensor | null, options?: { persistent?: boolean }): this;
  registerModule(name: string, module: Module | null): this;
  addModule(name: string, module: Module | null): this;
  /** Before each forward(); what it returns, unless undefined or null, takes the arguments' place. */
  registerForwardPreHook(hook: (module: this, args: any[]) => unknown, options?: { prepend?: boolean }): ModuleHookHandle;
  /** After each forward(); what it returns, unless undefined or null, takes the result's place. */
  registerForwardHook(hook: (module: this, args: any[], result: any) => unknown, options?: { prepend?: boolean }): ModuleHookHandle;
  /** When the gradients of the result are known; it may return others. */
  registerFullBackwardPreHook(hook: (module: this, gradOutput: (Tensor | null)[]) => Gradients, options?: { prepend?: boolean }): ModuleHookHandle;
  /** When the gradients of the arguments are known; it may return others. */
  registerFullBackwardHook(hook: (module: this, gradInput: (Tensor | null)[], gradOutput: (Tensor | null)[]) => Gradients,
    options?: { prepend?: boolean }): ModuleHookHandle;
  /** Calls fn with every module, the innermost first. */
  apply(fn: (module: Module) => void): this;
  train(on?: boolean): this;
  eval(): this;
  zeroGrad(options?: { setToNone?: boolean }): void;
  requiresGrad(on?: boolean): this;
  numParameters(): number;
  /** A dtype converts floating tensors only. Make optimizers afterwards. */
  to(...where: (DType | Device | Tensor | { dtype?: DType; device?: Device })[]): this;
  cpu(): this;
  cuda(index?: number): this;
  float(): this;
  double(): this;
  half(): this;
  bfloat16(): this;
  /** Lets go of the memory of parameters, buffers and gradients now. */
  dispose(): void;
  [Symbol.dispose](): void;
  stateDict(): StateDict;
  loadStateDict(state: StateDict, options?: { strict?: boolean }): { missing: string[]; unexpected: string[] };
  toString(): string;
}
type Gradients = Tensor | readonly (Tensor | null)[] | null | undefined | void;
/** A module of one tensor. */
export interface Layer extends Module {
  forward(x: Tensor): Tensor;
}
export interface WithWeight extends Layer {
  weight: Tensor;
  bias: Tensor | null;
}
export interface Made {
  dtype?: DType;
  device?: Device;
}
type Part = Module | ((x: Tensor) => Tensor);
/** For each of the last dimensions (before, after). */
type Around = number | readonly number[];
interface ConvClass {
  new (inChannels: number, outChannels: number, kernelSize: F.Sizes,
    options?: F.ConvOptions & { bias?: boolean; paddingMode?: 'zeros' | 'reflect' | 'replicate' | 'circular' } & Made): WithWeight & Resets;
}
interface ConvTransposeClass {
  new (inChannels: number, outChannels: number, kernelSize: F.Sizes, options?: F.ConvTransposeOptions & { bias?: boolean } & Made): WithWeight & Resets & {
    /** outputSize chooses among the sizes that the stride leaves open. */
    forward(x: Tensor, outputSize?: F.Sizes | null): Tensor;
  };
}
interface MaxPoolClass {
  new (kernelSize: F.Sizes, options: F.MaxPoolOptions & { returnIndices: true }): Module & { forward(x: Tensor): [values: Tensor, indices: Tensor] };
  new (kernelSize: F.Sizes, options?: F.MaxPoolOptions & { returnIndices?: false; ceil_mode?: boolean }): Layer;
}
interface AvgPoolClass<O = F.AvgPoolOverOptions> {
  new (kernelSize: F.Sizes, options?: O & { ceil_mode?: boolean; count_include_pad?: boolean }): Layer;
}
interface LpPoolClass {
  new (normType: number, kernelSize: F.Sizes, options?: F.LpPoolOptions): Layer;
}
interface MaxUnpoolClass {
  new (kernelSize: F.Sizes, options?: F.UnpoolOptions): Module & { forward(x: Tensor, indices: Tensor, outputSize?: readonly number[] | null): Tensor };
}
interface AdaptiveMaxPoolClass {
  new (size: F.OutputSize, options: { returnIndices: true }): Module & { forward(x: Tensor): [values: Tensor, indices: Tensor] };
  new (size: F.OutputSize, options?: { returnIndices?: false }): Layer;
}
interface FractionalMaxPoolClass {
  new (kernelSize: F.Sizes, options: F.FractionalMaxPoolSize & { returnIndices: true }): Module & { forward(x: Tensor): [values: Tensor, indices: Tensor] };
  new (kernelSize: F.Sizes, options: F.FractionalMaxPoolSize & { returnIndices?: false }): Layer;
}
interface Resets {
  /** Draws the parameters again. */
  resetParameters(): void;
}
export interface RunningNorm extends Layer, Resets {
  weight: Tensor | null;
  bias: Tensor | null;
  running_mean: Tensor | null;
  running_var: Tensor | null;
  num_batches_tracked: Tensor | null;
  momentum: number | null;
  resetRunningStats(): void;
}
interface RunningOptions extends Made {
  eps?: number;
  /** null: the plain mean over all batches. */
  momentum?: number | null;
  affine?: boolean;
  trackRunningStats?: boolean;
}
interface RunningNormClass {
  new (features: number, options?: RunningOptions): RunningNorm;
}
interface PlainClass<A extends unknown[] = []> {
  new (...args: A): Layer;
}
export type Reduction = F.Reduction;
interface LossClass<O, A extends unknown[] = [x: Tensor, target: Tensor]> {
  new (options?: O): Module & { forward(...inputs: A): Tensor };
}
/** The arguments are those of the plain layer without the number of inputs, which the first forward() tells. */
interface LazyConvClass {
  new (outChannels: number, kernelSize: F.Sizes,
    options?: F.ConvOptions & { bias?: boolean; paddingMode?: 'zeros' | 'reflect' | 'replicate' | 'circular' } & Made): Layer;
}
interface LazyConvTransposeClass {
  new (outChannels: number, kernelSize: F.Sizes, options?: F.ConvTransposeOptions & { bias?: boolean } & Made): Layer;
}
interface TableClass<T, O> {
  new (count: number, dim: number, options?: O & { paddingIdx?: number | null; weight?: Tensor | null } & Made): T;
  /** Over a given table, which is not trained unless {freeze: false}. */
  fromPretrained(weight: Tensor, options?: O & { paddingIdx?: number | null; freeze?: boolean }): T;
}
interface ListOf<T> extends Module, Iterable<T> {
  readonly length: number;
  /** Negative places count from the end. */
  at(i: number): T;
  push(...items: T[]): this;
  append(item: T): this;
  extend(items: Iterable<T>): this;
  insert(i: number, item: T): this;
  set(i: number, item: T): this;
  pop(i?: number): T;
}
interface DictOf<T> extends Module, Iterable<[string, T]> {
  readonly size: number;
  get(name: string): T | undefined;
  set(name: string, value: T): this;
  has(name: string): boolean;
  delete(name: string): boolean;
  pop(name: string): T;
  clear(): void;
  update(values: { [name: string]: T } | Iterable<[string, T]>): this;
  keys(): string[];
  values(): T[];
  entries(): [string, T][];
}

interface RecurrentOptions extends Made {
  layers?: number;
  bias?: boolean;
  /** [B, T, in] in place of [T, B, in]. */
  batchFirst?: boolean;
  dropout?: number;
  bidirectional?: boolean;
}
/** forward(x, h): the output, and the last states of all layers [layers * directions, B, hidden]. */
export interface Recurrent extends Module {
  forward(x: Tensor, h?: Tensor | null): [output: Tensor, h: Tensor];
}
export interface LSTM extends Module {
  forward(x: Tensor, states?: readonly [h: Tensor, c: Tensor]): [output: Tensor, states: [h: Tensor, c: Tensor]];
}
export interface SLSTM extends Module {
  /** c over the normaliser n, and log n. */
  forward(x: Tensor, states?: readonly [h: Tensor, c: Tensor, logN: Tensor]): [output: Tensor, states: [h: Tensor, c: Tensor, logN: Tensor]];
}
interface RecurrentClass<M, O = {}> {
  new (inputSize: number, hiddenSize: number, options?: RecurrentOptions & O): M;
}
interface CellClass<M, O = {}> {
  new (inputSize: number, hiddenSize: number, options?: { bias?: boolean } & O & Made): M;
}
export interface Cell extends Module {
  forward(x: Tensor, h?: Tensor | null): Tensor;
}
export interface LSTMCell extends Module {
  forward(x: Tensor, states?: readonly [h: Tensor, c: Tensor]): [h: Tensor, c: Tensor];
}

export interface AttentionOptions {
  /** [Tq, Tk] or [B * heads, Tq, Tk]: added to the scores, or boolean, true hiding. */
  attnMask?: Tensor | null;
  /** [B, Tk]: the same for keys. */
  keyPaddingMask?: Tensor | null;
  causal?: boolean;
}
export interface MultiheadAttention extends Module {
  /** And the weights: the mean over the heads [B, Tq, Tk], or with {averageWeights: false} of each [B, heads, Tq, Tk]. */
  forward(query: Tensor, key: Tensor | undefined, value: Tensor | undefined,
    options: AttentionOptions & { needWeights: true; averageWeights?: boolean }): [result: Tensor, weights: Tensor];
  forward(query: Tensor, key?: Tensor, value?: Tensor, options?: AttentionOptions & { needWeights?: false }): Tensor;
}
export interface LayerOptions {
  mask?: Tensor | null;
  keyPaddingMask?: Tensor | null;
  causal?: boolean;
}
export interface EncoderLayer extends Module {
  forward(x: Tensor, options?: LayerOptions): Tensor;
}
export interface DecoderLayer extends Module {
  forward(x: Tensor, memory: Tensor, options?: LayerOptions & { memoryMask?: Tensor; memoryKeyPaddingMask?: Tensor }): Tensor;
}
export interface TransformerOptions extends Made {
  feedForward?: number;
  dropout?: number;
  activation?: 'relu' | 'gelu' | ((x: Tensor) => Tensor);
  eps?: number;
  normFirst?: boolean;
  bias?: boolean;
}
export interface Transformer extends Module {
  encoder: EncoderLayer;
  decoder: DecoderLayer;
  forward(src: Tensor, tgt: Tensor, options?: {
    srcMask?: Tensor; srcKeyPaddingMask?: Tensor; tgtMask?: Tensor; tgtKeyPaddingMask?: Tensor; tgtCausal?: boolean; memoryMask?: Tensor;
    memoryKeyPaddingMask?: Tensor;
  }): Tensor;
}

/** Each writes over its tensor, unrecorded, and returns it. */
export interface Init {
  constant_(t: Tensor, value: number): Tensor;
  zeros_(t: Tensor): Tensor;
  ones_(t: Tensor): Tensor;
  uniform_(t: Tensor, a?: number, b?: number): Tensor;
  normal_(t: Tensor, mean?: number, std?: number): Tensor;
  truncNormal_(t: Tensor, mean?: number, std?: number, a?: number, b?: number): Tensor;
  eye_(t: Tensor): Tensor;
  calculateGain(nonlinearity: string, param?: number): number;
  xavierUniform_(t: Tensor, gain?: number): Tensor;
  xavierNormal_(t: Tensor, gain?: number): Tensor;
  kaimingUniform_(t: Tensor, options?: KaimingOptions): Tensor;
  kaimingNormal_(t: Tensor, options?: KaimingOptions): Tensor;
  orthogonal_(t: Tensor, gain?: number): Tensor;
  /** A convolution's weight that keeps its input. */
  dirac_(t: Tensor, groups?: number): Tensor;
  /** N(0, std^2), a share `sparsity` of each column 0. */
  sparse_(t: Tensor, sparsity: number, std?: number): Tensor;
}
export interface KaimingOptions {
  a?: number;
  mode?: 'fan_in' | 'fan_out';
  nonlinearity?: string;
}
export interface Utils {
  /** The norm of all tensors together. */
  getTotalNorm(tensors: Module | Tensor | Iterable<Tensor>, normType?: number): number;
  /** Scales the gradients so that their joint norm is at most maxNorm; the norm before. */
  clipGradNorm_(params: Module | Tensor | Iterable<Tensor>, maxNorm: number, options?: { normType?: number; errorIfNonfinite?: boolean }): number;
  /** Scales the gradients as clipGradNorm_() does, by a norm that is known. */
  clipGradsWithNorm_(params: Module | Tensor | Iterable<Tensor>, maxNorm: number, totalNorm: number): void;
  /** Clamps every element of the gradients to [-clipValue, clipValue]. */
  clipGradValue_(params: Module | Tensor | Iterable<Tensor>, clipValue: number): void;
  parametersToVector(params: Module | Tensor | Iterable<Tensor>): Tensor;
  vectorToParameters(vector: Tensor, params: Module | Tensor | Iterable<Tensor>): void;
  /** Sequences [T_i, ..] as one tensor [T, B, ..]. */
  padSequence(sequences: Iterable<Tensor>, options?: { batchFirst?: boolean; paddingValue?: number; paddingSide?: 'left' | 'right' }): Tensor;
  unpadSequence(padded: Tensor, lengths: F.Lengths, options?: { batchFirst?: boolean }): Tensor[];
  /** The weight as a length, <name>_g, times a direction, <name>_v. */
  weightNorm<M extends Module>(module: M, options?: { name?: string; dim?: number | null }): M;
  removeWeightNorm<M extends Module>(module: M, name?: string): M;
  /** The weight, <name>_orig, over its largest singular value. */
  spectralNorm<M extends Module>(module: M, options?: { name?: string; nPowerIterations?: number; eps?: number; dim?: number | null }): M;
  removeSpectralNorm<M extends Module>(module: M, name?: string): M;
}

export interface Nn {
  Module: { new (): Module };
  parameter(t: Tensor, requiresGrad?: boolean): Tensor;
  buffer(t: Tensor, options?: { persistent?: boolean }): Tensor;

  Identity: PlainClass;
  Linear: { new (inFeatures: number, outFeatures: number, options?: { bias?: boolean } & Made): WithWeight & Resets };
  Bilinear: {
    new (in1: number, in2: number, outFeatures: number, options?: { bias?: boolean } & Made): Module & Resets & {
      weight: Tensor; bias: Tensor | null; forward(a: Tensor, b: Tensor): Tensor;
    };
  };
  /** A softmax for very many classes, sorted from frequent to rare: a score each before the first cutoff, then clusters. */
  AdaptiveLogSoftmaxWithLoss: {
    new (inFeatures: number, nClasses: number, cutoffs: readonly number[], options?: { divValue?: number; headBias?: boolean } & Made): Module & Resets & {
      readonly cutoffs: readonly number[];
      head: Layer & { weight: Tensor; bias: Tensor | null };
      forward(x: Tensor, target: Tensor): { output: Tensor; loss: Tensor };
      /** The log-probabilities of all classes. */
      logProb(x: Tensor): Tensor;
      /** The most probable class of each row. */
      predict(x: Tensor): Tensor;
    };
  };
  Conv1d: ConvClass;
  Conv2d: ConvClass;
  Conv3d: ConvClass;
  ConvTranspose1d: ConvTransposeClass;
  ConvTranspose2d: ConvTransposeClass;
  ConvTranspose3d: ConvTransposeClass;
  Unfold: PlainClass<[kernelSize: F.Sizes, options?: F.WindowOptions]>;
  Fold: PlainClass<[outputSize: F.Sizes, kernelSize: F.Sizes, options?: F.WindowOptions]>;
  Embedding: TableClass<Layer & Resets & { weight: Tensor }, {}>;
  EmbeddingBag: TableClass<Module & Resets & {
    weight: Tensor; forward(indices: Tensor, offsets?: Tensor | null, perSampleWeights?: Tensor | null): Tensor;
  }, { mode?: 'sum' | 'mean' | 'max'; includeLastOffset?: boolean }>;
  Flatten: PlainClass<[start?: number, end?: number]>;
  Unflatten: PlainClass<[dim: number, sizes: readonly number[]]>;
  MaxPool1d: MaxPoolClass;
  MaxPool2d: MaxPoolClass;
  MaxPool3d: MaxPoolClass;
  AvgPool1d: AvgPoolClass<F.AvgPoolOptions>;
  AvgPool2d: AvgPoolClass;
  AvgPool3d: AvgPoolClass;
  LPPool1d: LpPoolClass;
  LPPool2d: LpPoolClass;
  LPPool3d: LpPoolClass;
  MaxUnpool1d: MaxUnpoolClass;
  MaxUnpool2d: MaxUnpoolClass;
  MaxUnpool3d: MaxUnpoolClass;
  AdaptiveAvgPool1d: PlainClass<[size: F.OutputSize]>;
  AdaptiveAvgPool2d: PlainClass<[size: F.OutputSize]>;
  AdaptiveAvgPool3d: PlainClass<[size: F.OutputSize]>;
  AdaptiveMaxPool1d: AdaptiveMaxPoolClass;
  AdaptiveMaxPool2d: AdaptiveMaxPoolClass;
  AdaptiveMaxPool3d: AdaptiveMaxPoolClass;
  FractionalMaxPool2d: FractionalMaxPoolClass;
  FractionalMaxPool3d: FractionalMaxPoolClass;
  Upsample: PlainClass<[options: F.ResizeOptions]>;
  UpsamplingNearest2d: PlainClass<[options: { size?: F.Sizes | null; scaleFactor?: number | readonly number[] | null }]>;
  UpsamplingBilinear2d: PlainClass<[options: { size?: F.Sizes | null; scaleFactor?: number | readonly number[] | null }]>;
  PixelShuffle: PlainClass<[upscaleFactor: number]>;
  PixelUnshuffle: PlainClass<[downscaleFactor: number]>;
  ChannelShuffle: PlainClass<[groups: number]>;
  ZeroPad1d: PlainClass<[padding: Around]>;
  ZeroPad2d: PlainClass<[padding: Around]>;
  ZeroPad3d: PlainClass<[padding: Around]>;
  ConstantPad1d: PlainClass<[padding: Around, value?: number]>;
  ConstantPad2d: PlainClass<[padding: Around, value?: number]>;
  ConstantPad3d: PlainClass<[padding: Around, value?: number]>;
  ReflectionPad1d: PlainClass<[padding: Around]>;
  ReflectionPad2d: PlainClass<[padding: Around]>;
  ReflectionPad3d: PlainClass<[padding: Around]>;
  ReplicationPad1d: PlainClass<[padding: Around]>;
  ReplicationPad2d: PlainClass<[padding: Around]>;
  ReplicationPad3d: PlainClass<[padding: Around]>;
  CircularPad1d: PlainClass<[padding: Around]>;
  CircularPad2d: PlainClass<[padding: Around]>;
  CircularPad3d: PlainClass<[padding: Around]>;
  Dropout: PlainClass<[p?: number]>;
  Dropout1d: PlainClass<[p?: number]>;
  Dropout2d: PlainClass<[p?: number]>;
  Dropout3d: PlainClass<[p?: number]>;
  AlphaDropout: PlainClass<[p?: number]>;
  FeatureAlphaDropout: PlainClass<[p?: number]>;
  CosineSimilarity: { new (options?: { dim?: number; eps?: number }): Module & { forward(a: Tensor, b: Tensor): Tensor } };
  PairwiseDistance: { new (options?: { p?: number; eps?: number; keepdim?: boolean }): Module & { forward(a: Tensor, b: Tensor): Tensor } };

  LayerNorm: {
    new (shape: number | readonly number[], options?: { eps?: number; elementwiseAffine?: boolean; bias?: boolean } & Made): WithWeight & Resets;
  };
  RMSNorm: { new (shape: number | readonly number[], options?: { eps?: number; elementwiseAffine?: boolean } & Made): Layer & Resets & { weight: Tensor } };
  GroupNorm: {
    new (groups: number, channels: number, options?: { eps?: number; affine?: boolean } & Made): Layer & Resets & { weight: Tensor | null; bias: Tensor | null };
  };
  BatchNorm1d: RunningNormClass;
  BatchNorm2d: RunningNormClass;
  BatchNorm3d: RunningNormClass;
  InstanceNorm1d: RunningNormClass;
  InstanceNorm2d: RunningNormClass;
  InstanceNorm3d: RunningNormClass;
  LocalResponseNorm: PlainClass<[size: number, options?: { alpha?: number; beta?: number; k?: number }]>;

  LazyLinear: { new (outFeatures: number, options?: { bias?: boolean } & Made): Layer };
  LazyConv1d: LazyConvClass;
  LazyConv2d: LazyConvClass;
  LazyConv3d: LazyConvClass;
  LazyConvTranspose1d: LazyConvTransposeClass;
  LazyConvTranspose2d: LazyConvTransposeClass;
  LazyConvTranspose3d: LazyConvTransposeClass;
  LazyBatchNorm1d: PlainClass<[options?: RunningOptions]>;
  LazyBatchNorm2d: PlainClass<[options?: RunningOptions]>;
  LazyBatchNorm3d: PlainClass<[options?: RunningOptions]>;
  LazyInstanceNorm1d: PlainClass<[options?: RunningOptions]>;
  LazyInstanceNorm2d: PlainClass<[options?: RunningOptions]>;
  LazyInstanceNorm3d: PlainClass<[options?: RunningOptions]>;

  ReLU: PlainClass;
  ReLU6: PlainClass;
  GELU: PlainClass<[approximate?: 'none' | 'tanh' | { approximate?: 'none' | 'tanh' }]>;
  SiLU: PlainClass;
  Tanh: PlainClass;
  Sigmoid: PlainClass;
  LeakyReLU: PlainClass<[negativeSlope?: number | { negativeSlope?: number }]>;
  ELU: PlainClass<[alpha?: number | { alpha?: number }]>;
  CELU: PlainClass<[alpha?: number | { alpha?: number }]>;
  SELU: PlainClass;
  Mish: PlainClass;
  Hardsigmoid: PlainClass;
  Hardswish: PlainClass;
  Hardtanh: PlainClass<[min?: number, max?: number] | [options: { min?: number; max?: number }]>;
  Hardshrink: PlainClass<[lambd?: number | { lambd?: number }]>;
  Softplus: PlainClass<[beta?: number, threshold?: number] | [options: { beta?: number; threshold?: number }]>;
  Softshrink: PlainClass<[lambd?: number | { lambd?: number }]>;
  Softsign: PlainClass;
  Tanhshrink: PlainClass;
  Threshold: PlainClass<[threshold: number, value: number]>;
  LogSigmoid: PlainClass;
  Softmax: PlainClass<[dim?: number | { dim?: number }]>;
  Softmax2d: PlainClass;
  Softmin: PlainClass<[dim?: number | { dim?: number }]>;
  LogSoftmax: PlainClass<[dim?: number | { dim?: number }]>;
  GLU: PlainClass<[dim?: number | { dim?: number }]>;
  PReLU: { new (count?: number, options?: { init?: number } & Made): Layer & { weight: Tensor } };
  RReLU: PlainClass<[lower?: number, upper?: number] | [options: { lower?: number; upper?: number }]>;

  CrossEntropyLoss: LossClass<F.CrossEntropyOptions>;
  NLLLoss: LossClass<F.NllOptions>;
  /** The same as NLLLoss. */
  NLLLoss2d: LossClass<F.NllOptions>;
  BCELoss: LossClass<F.BceOptions>;
  BCEWithLogitsLoss: LossClass<F.BceOptions & { posWeight?: Tensor | null }>;
  KLDivLoss: LossClass<F.KlDivOptions>;
  MSELoss: LossClass<{ reduction?: Reduction }>;
  L1Loss: LossClass<{ reduction?: Reduction }>;
  SmoothL1Loss: LossClass<{ reduction?: Reduction; beta?: number }>;
  HuberLoss: LossClass<{ reduction?: Reduction; delta?: number }>;
  PoissonNLLLoss: LossClass<F.PoissonOptions>;
  GaussianNLLLoss: LossClass<F.GaussianOptions, [x: Tensor, target: Tensor, variance: Tensor]>;
  SoftMarginLoss: LossClass<{ reduction?: Reduction }>;
  HingeEmbeddingLoss: LossClass<F.MarginOptions>;
  MarginRankingLoss: LossClass<F.MarginOptions, [x1: Tensor, x2: Tensor, target: Tensor]>;
  CosineEmbeddingLoss: LossClass<F.MarginOptions, [x1: Tensor, x2: Tensor, target: Tensor]>;
  TripletMarginLoss: LossClass<F.TripletOptions, [anchor: Tensor, positive: Tensor, negative: Tensor]>;
  TripletMarginWithDistanceLoss: LossClass<F.TripletDistanceOptions, [anchor: Tensor, positive: Tensor, negative: Tensor]>;
  MultiMarginLoss: LossClass<F.MultiMarginOptions>;
  MultiLabelMarginLoss: LossClass<{ reduction?: Reduction }>;
  MultiLabelSoftMarginLoss: LossClass<F.BceOptions>;
  CTCLoss: LossClass<F.CtcOptions, [logProbs: Tensor, targets: Tensor, inputLengths: F.Lengths, targetLengths: F.Lengths]>;

  RNN: RecurrentClass<Recurrent, { nonlinearity?: 'tanh' | 'relu' }>;
  LSTM: RecurrentClass<LSTM>;
  GRU: RecurrentClass<Recurrent>;
  SLSTM: { new (inputSize: number, hiddenSize: number, options?: { layers?: number; bias?: boolean; batchFirst?: boolean } & Made): SLSTM };
  RNNCell: CellClass<Cell, { nonlinearity?: 'tanh' | 'relu' }>;
  LSTMCell: CellClass<LSTMCell>;
  GRUCell: CellClass<Cell>;

  /** Of [B, T, dim]. */
  MultiheadAttention: {
    new (dim: number, heads: number, options?: { dropout?: number; bias?: boolean; causal?: boolean; kdim?: number; vdim?: number } & Made): MultiheadAttention;
  };
  TransformerEncoderLayer: { new (dim: number, heads: number, options?: TransformerOptions): EncoderLayer };
  TransformerDecoderLayer: { new (dim: number, heads: number, options?: TransformerOptions): DecoderLayer };
  TransformerEncoder: { new (makeLayer: (index: number) => EncoderLayer, count: number, options?: { norm?: Layer | null }): EncoderLayer };
  TransformerDecoder: { new (makeLayer: (index: number) => DecoderLayer, count: number, options?: { norm?: Layer | null }): DecoderLayer };
  Transformer: { new (options?: { dim?: number; heads?: number; encoderLayers?: number; decoderLayers?: number } & TransformerOptions): Transformer };
  /** [t, t]: -inf above the diagonal, 0 elsewhere. */
  causalMask(t: number, options?: Made): Tensor;

  Sequential: { new (...parts: Part[]): ListOf<Part> & { readonly parts: Part[]; forward(x: Tensor): Tensor; [i: number]: Module } };
  ModuleList: { new <M extends Module>(modules?: Iterable<M>): ListOf<M> & { [i: number]: M } };
  ModuleDict: { new <M extends Module>(modules?: { [name: string]: M } | Iterable<[string, M]>): DictOf<M> };
  ParameterList: { new (values?: Iterable<Tensor>): ListOf<Tensor> & { [i: number]: Tensor } };
  ParameterDict: { new (values?: { [name: string]: Tensor } | Iterable<[string, Tensor]>): DictOf<Tensor> };
  init: Init;
  functional: F.Functional;
  utils: Utils;
}
