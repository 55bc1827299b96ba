import * as types from './types';
import * as cudaTypes from './cuda';

declare const strata: types.Strata;
declare namespace strata {
  export type DType = types.DType;
  export type Device = types.Device;
  export type Tensor = types.Tensor;
  export type TypedArray = types.TypedArray;
  export type TensorOptions = types.TensorOptions;
  export type RngKey = types.RngKey;
  export type Module = types.Module;
  export type Layer = types.Layer;
  export type Optimizer = types.Optimizer;
  export type StateDict = types.StateDict;
  export type FunctionContext = types.FunctionContext;
  export type LanguageModel = types.LanguageModel;
  export type GeneratedToken = types.GeneratedToken;
  export type GenerateOptions = types.GenerateOptions;
  export type TrainSettings = types.TrainSettings;
  export type TrainResult = types.TrainResult;
  export type StrataError = types.StrataError;
  export type MemoryStats = cudaTypes.MemoryStats;
  export type ModeScope = cudaTypes.ModeScope;
  export type CudaStream = cudaTypes.Stream;
  export type CudaEvent = cudaTypes.Event;
  export type CUDAGraph = cudaTypes.CUDAGraph;
}
export = strata;
