// st.nn

import type { Tensor, DType, Device } from './types';

export type StateDict = { [name: string]: Tensor };
export interface Module {
  training: boolean;
  forward(...args: any[]): any;
  namedChildren(): [string, Module][];
  children(): Module[];
  namedParameters(prefix?: string): [string, Tensor][];
  parameters(): Tensor[];
  namedBuffers(prefix?: string): [string, Tensor][];
  buffers(): Tensor[];
  modules(): Module[];
  /** With the path to each; '' is the module itself. */
  namedModules(prefix?: string): [string, Module][];
  /** Calls fn with every module, the innermost first. */
  apply(fn: (module: Module) => void): this;
  train(on?: boolean): this;
  eval(): this;
  zeroGrad(): void;
  requiresGrad(on: boolean): this;
  numParameters(): number;
  to(...where: (DType | Device | { dtype?: DType; device?: Device })[]): this;
  stateDict(): StateDict;
  loadStateDict(state: StateDict, options?: { strict?: boolean }): { missing: string[]; unexpected: string[] };
  toString(): string;
}
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
type Pair = number | readonly [number, number];
type Part = Module | ((x: Tensor) => Tensor);
interface ConvClass<K> {
  new (inChannels: number, outChannels: number, kernel: K,
    options?: { stride?: K; padding?: K; dilation?: K; groups?: number; bias?: boolean } & Made): WithWeight;
}
interface ConvTransposeClass<K> {
  new (inChannels: number, outChannels: number, kernel: K,
    options?: { stride?: K; padding?: K; outputPadding?: K; dilation?: K; groups?: number; bias?: boolean } & Made): WithWeight;
}
interface PoolClass<K, O = {}> {
  new (kernel: K, options?: { stride?: K; padding?: K; ceil_mode?: boolean } & O): Layer;
}
interface FeatureNormClass<O> {
  new (features: number, options?: { eps?: number } & O & Made): WithWeight;
}
interface PlainClass<A extends unknown[] = []> {
  new (...args: A): Layer;
}
export type Reduction = 'mean' | 'sum' | 'none';
interface LossClass<O, A extends Tensor[] = [x: Tensor, target: Tensor]> {
  new (options?: O): Module & { forward(...inputs: A): Tensor };
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
  attnMask?: Tensor;
  /** [B, Tk]: the same for keys. */
  keyPaddingMask?: Tensor;
  causal?: boolean;
}
export interface MultiheadAttention extends Module {
  forward(query: Tensor, key?: Tensor, value?: Tensor, options?: AttentionOptions): Tensor;
}
export interface LayerOptions {
  mask?: Tensor;
  keyPaddingMask?: Tensor;
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
}
export interface KaimingOptions {
  a?: number;
  mode?: 'fan_in' | 'fan_out';
  nonlinearity?: string;
}
export interface CrossEntropyOptions {
  weight?: Tensor;
  ignoreIndex?: number;
  reduction?: Reduction;
  labelSmoothing?: number;
}
interface NllOptions {
  weight?: Tensor;
  ignoreIndex?: number;
  reduction?: Reduction;
}
interface BceOptions {
  weight?: Tensor;
  reduction?: Reduction;
}
interface KlDivOptions {
  reduction?: Reduction | 'batchmean';
  logTarget?: boolean;
}
interface TripletOptions {
  margin?: number;
  p?: number;
  eps?: number;
  reduction?: Reduction;
}
interface MarginOptions {
  margin?: number;
  reduction?: Reduction;
}
/** Functions of several records. */
export interface Functional {
  crossEntropy(x: Tensor, target: Tensor, options?: CrossEntropyOptions): Tensor;
  nllLoss(x: Tensor, target: Tensor, options?: NllOptions): Tensor;
  binaryCrossEntropy(p: Tensor, target: Tensor, options?: BceOptions): Tensor;
  binaryCrossEntropyWithLogits(x: Tensor, target: Tensor, options?: BceOptions & { posWeight?: Tensor }): Tensor;
  klDiv(x: Tensor, target: Tensor, options?: KlDivOptions): Tensor;
  cosineSimilarity(x: Tensor, y: Tensor, options?: { dim?: number; eps?: number }): Tensor;
  normalize(x: Tensor, options?: { p?: number; dim?: number; eps?: number }): Tensor;
  pairwiseDistance(x: Tensor, y: Tensor, options?: { p?: number; eps?: number; keepdim?: boolean }): Tensor;
  tripletMarginLoss(anchor: Tensor, positive: Tensor, negative: Tensor, options?: TripletOptions): Tensor;
  cosineEmbeddingLoss(x: Tensor, y: Tensor, target: Tensor, options?: MarginOptions): Tensor;
  marginRankingLoss(x: Tensor, y: Tensor, target: Tensor, options?: MarginOptions): Tensor;
}

export interface Nn {
  Module: { new (): Module };
  parameter(t: Tensor): Tensor;
  buffer(t: Tensor): Tensor;

  Identity: PlainClass;
  Linear: { new (inFeatures: number, outFeatures: number, options?: { bias?: boolean } & Made): WithWeight };
  Bilinear: {
    new (in1: number, in2: number, outFeatures: number, options?: { bias?: boolean } & Made): Module & {
      weight: Tensor; bias: Tensor | null; forward(a: Tensor, b: Tensor): Tensor;
    };
  };
  Conv1d: ConvClass<number>;
  Conv2d: ConvClass<Pair>;
  ConvTranspose1d: ConvTransposeClass<number>;
  ConvTranspose2d: ConvTransposeClass<Pair>;
  Embedding: { new (count: number, dim: number, options?: { paddingIdx?: number } & Made): Layer & { weight: Tensor } };
  Flatten: PlainClass<[start?: number, end?: number]>;
  Unflatten: PlainClass<[dim: number, sizes: readonly number[]]>;
  MaxPool1d: PoolClass<number, { dilation?: number }>;
  MaxPool2d: PoolClass<Pair, { dilation?: Pair }>;
  AvgPool1d: PoolClass<number, { count_include_pad?: boolean }>;
  AvgPool2d: PoolClass<Pair, { count_include_pad?: boolean }>;
  AdaptiveAvgPool1d: PlainClass<[size: number]>;
  AdaptiveAvgPool2d: PlainClass<[size: Pair]>;
  Upsample: PlainClass<[options: { size?: number | readonly number[]; scaleFactor?: number; mode?: 'nearest' | 'linear' | 'bilinear'; alignCorners?: boolean }]>;
  PixelShuffle: PlainClass<[factor: number]>;
  ZeroPad2d: PlainClass<[padding: number | readonly [number, number, number, number]]>;
  Dropout: PlainClass<[p?: number]>;
  Dropout2d: PlainClass<[p?: number]>;
  CosineSimilarity: { new (options?: { dim?: number; eps?: number }): Module & { forward(a: Tensor, b: Tensor): Tensor } };

  LayerNorm: { new (shape: number | readonly number[], options?: { eps?: number; bias?: boolean } & Made): WithWeight };
  RMSNorm: { new (shape: number | readonly number[], options?: { eps?: number } & Made): Layer & { weight: Tensor } };
  GroupNorm: { new (groups: number, channels: number, options?: { eps?: number; affine?: boolean } & Made): Layer & { weight: Tensor | null; bias: Tensor | null } };
  BatchNorm1d: FeatureNormClass<{ momentum?: number }>;
  BatchNorm2d: FeatureNormClass<{ momentum?: number }>;
  BatchNorm3d: FeatureNormClass<{ momentum?: number }>;
  InstanceNorm1d: PlainClass<[features: number, options?: { eps?: number; affine?: boolean } & Made]>;
  InstanceNorm2d: PlainClass<[features: number, options?: { eps?: number; affine?: boolean } & Made]>;

  ReLU: PlainClass;
  ReLU6: PlainClass;
  GELU: PlainClass<[approximate?: 'none' | 'tanh']>;
  SiLU: PlainClass;
  Tanh: PlainClass;
  Sigmoid: PlainClass;
  LeakyReLU: PlainClass<[negativeSlope?: number]>;
  ELU: PlainClass<[alpha?: number]>;
  SELU: PlainClass;
  Mish: PlainClass;
  Hardsigmoid: PlainClass;
  Hardswish: PlainClass;
  Hardtanh: PlainClass<[min?: number, max?: number]>;
  Softplus: PlainClass<[beta?: number, threshold?: number]>;
  Softsign: PlainClass;
  LogSigmoid: PlainClass;
  Softmax: PlainClass<[dim?: number]>;
  LogSoftmax: PlainClass<[dim?: number]>;
  GLU: PlainClass<[dim?: number]>;
  PReLU: { new (count?: number, options?: { init?: number } & Made): Layer & { weight: Tensor } };

  CrossEntropyLoss: LossClass<CrossEntropyOptions>;
  NLLLoss: LossClass<NllOptions>;
  BCELoss: LossClass<BceOptions>;
  BCEWithLogitsLoss: LossClass<BceOptions & { posWeight?: Tensor }>;
  KLDivLoss: LossClass<KlDivOptions>;
  MSELoss: LossClass<{ reduction?: Reduction }>;
  L1Loss: LossClass<{ reduction?: Reduction }>;
  SmoothL1Loss: LossClass<{ reduction?: Reduction; beta?: number }>;
  HuberLoss: LossClass<{ reduction?: Reduction; delta?: number }>;
  TripletMarginLoss: LossClass<TripletOptions, [anchor: Tensor, positive: Tensor, negative: Tensor]>;
  CosineEmbeddingLoss: LossClass<MarginOptions, [x: Tensor, y: Tensor, target: Tensor]>;
  MarginRankingLoss: LossClass<MarginOptions, [x: Tensor, y: Tensor, target: Tensor]>;

  RNN: RecurrentClass<Recurrent, { nonlinearity?: 'tanh' | 'relu' }>;
  LSTM: RecurrentClass<LSTM>;
  GRU: RecurrentClass<Recurrent>;
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

  Sequential: { new (...parts: Part[]): Layer & Iterable<Part> & { readonly length: number; push(...parts: Part[]): Layer } };
  ModuleList: {
    new <M extends Module>(modules?: Iterable<M>): Module & Iterable<M> & { readonly length: number; [i: number]: M; push(...modules: M[]): Module };
  };
  ModuleDict: {
    new <M extends Module>(modules?: { [name: string]: M }): Module & Iterable<[string, M]> & {
      get(name: string): M | undefined; set(name: string, module: M): Module; has(name: string): boolean; delete(name: string): boolean;
    };
  };
  init: Init;
  functional: Functional;
}
