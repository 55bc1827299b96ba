// The same for `import`: the whole as default, and what programs name most.
import strata from './index.js';

export default strata;
export const {
  Tensor, Scalar, tensor, fromTypedArray, fromShared, zeros, ones, full, empty, rand, randn, arange, eye,
  noGrad, enableGrad, grad, gradAsync, autocast, checkpoint, checkpointSequential, graphed, detectAnomaly, savedTensorsHooks, gradcheck,
  gradgradcheck, nn, optim, data, distributions, ops, save, load, loadWithMetadata, saveObject, loadObject, Trainer, ModuleTrainer, readIdx, loadModel, train,
  LanguageModel, loadPlugin, manualSeed, numThreads, setNumThreads, memoryStats, memoryBudget, cuda, version, describeOps,
  StrataError, ShapeError, DTypeError, IndexError, ValueError, DeviceError, AutogradError, MemoryError, IoError,
  DivergedError, PluginError, AbortedError,
} = strata;
