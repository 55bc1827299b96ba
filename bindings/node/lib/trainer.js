'use strict';
// Training runs with the command line's log, report and progress line.

const fs = require('node:fs');
const path = require('node:path');
const native = require('./native.js');
const { noGrad } = require('./autograd.js');
const { train, loadModel } = require('./models.js');
const { saveObject, loadObject } = require('./objects.js');
const { gradNorm } = require('./optim/index.js');
const { DivergedError, ValueError } = require('./errors.js');

const { Tensor } = native;

/** The steps in a run's metrics.jsonl. */
const readMetrics = (file) => native.readMetrics(file);

/** A run of a language model on text: what `strata train` runs, to the same weights and the same files. */
class Trainer {
  constructor(settings, { out } = {}) {
    if (typeof out !== 'string') throw new ValueError('Trainer: needs {out}, the folder of the run', 'Trainer');
    this.settings = settings;
    this.out = out;
  }
  /** Runs; {resume: true} goes on with what is in the folder. */
  train({ resume = false, onLog, signal } = {}) {
    return train(this.settings, { out: this.out, resume, onLog, signal });
  }
  /** The model of the run's newest checkpoint. */
  model(options) {
    return loadModel(this.out, options);
  }
  metrics() {
    return readMetrics(path.join(this.out, 'metrics.jsonl'));
  }
}

/** How many samples a batch has. */
function sizeOf(value) {
  if (value instanceof Tensor) return value.ndim ? value.shape[0] : 1;
  const [first] = value !== null && typeof value === 'object' ? Object.values(value) : [];
  return first === undefined ? 1 : sizeOf(first);
}
/** A batch's tensors on a device. */
function onDevice(value, device) {
  if (!device) return value;
  if (value instanceof Tensor) return value.to(device);
  if (Array.isArray(value)) return value.map((v) => onDevice(v, device));
  if (value !== null && typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype) {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, onDevice(v, device)]));
  }
  return value;
}

/**
 * A run of any Module: loss(module.forward(...inputs), target) for batches [...inputs, target], or, with
 * computeLoss(module, batch), whatever that returns. Gradients and updates are off the event loop. Writes metrics.jsonl,
 * report.html and checkpoints into `out`. With {resume} a run that was stopped goes on at the exact batch.
 *
 * maxNorm clips gradients; scheduler is stepped after every step; every evalEvery steps (0: after each epoch) the validation
 * loss is measured, and every saveEvery steps (0: after each epoch, -1: never) a checkpoint is written, of which keepLast stay.
 */
class ModuleTrainer {
  #validLoss = NaN;
  #checkpoint = '';
  #log;
  #mark;  // of metrics.jsonl, from the checkpoint
  #samples = 0;
  #elapsed = 0;
  constructor({ module, loss, computeLoss, optimizer, loader, out, epochs = 1, steps, validLoader, scheduler, maxNorm, evalEvery = 0, saveEvery = 0,
    keepLast = 2, device } = {}) {
    if ((loss === undefined) === (computeLoss === undefined)) throw new ValueError('ModuleTrainer: needs either loss or computeLoss', 'ModuleTrainer');
    if (typeof out !== 'string') throw new ValueError('ModuleTrainer: needs out, the folder of the run', 'ModuleTrainer');
    Object.assign(this, { module, optimizer, loader, out, validLoader, scheduler, maxNorm, evalEvery, saveEvery, keepLast, device });
    const lossOf = typeof loss === 'function' ? loss : (...args) => loss.forward(...args);
    this.computeLoss = computeLoss ?? ((m, batch) => lossOf(m.forward(...batch.slice(0, -1)), batch[batch.length - 1]));
    this.stepsPerEpoch = loader.length;
    this.totalSteps = steps ?? epochs * this.stepsPerEpoch;
    if (!(this.totalSteps >= 1)) throw new ValueError('ModuleTrainer: there is no step to make', 'ModuleTrainer');
    /** Steps made so far. */
    this.step = 0;
  }
  #lossOf(batch) {
    return this.computeLoss(this.module, onDevice(batch, this.device));
  }
  /** The mean loss over the validation data. */
  async validate() {
    const { training } = this.module;
    this.module.eval();
    let total = 0;
    let count = 0;
    try {
      for await (const batch of this.validLoader) {
        const size = sizeOf(batch);
        total += noGrad(() => this.#lossOf(batch).item()) * size;
        count += size;
      }
    } finally {
      this.module.train(training);
    }
    return total / Math.max(1, count);
  }
  async* #batches() {
    let skip = this.step % this.stepsPerEpoch;
    for (let epoch = Math.floor(this.step / this.stepsPerEpoch); ; ++epoch) {
      this.loader.epoch = epoch;
      for await (const batch of this.loader) {
        if (skip-- <= 0) yield batch;
      }
      skip = 0;
    }
  }
  #due(every) {
    return every >= 0 && (this.step === this.totalSteps || this.step % (every || this.stepsPerEpoch) === 0);
  }
  async #one(batch, begun) {
    const start = performance.now();
    this.optimizer.zeroGrad();
    const loss = this.#lossOf(batch);
    await loss.backwardAsync();
    const { lr } = this.optimizer;
    let norm;
    if (this.maxNorm !== undefined) {
      norm = await this.optimizer.stepAsync({ maxNorm: this.maxNorm });
    } else {
      norm = gradNorm(this.optimizer.parameters.filter((p) => p.grad));
      if (Number.isFinite(norm)) await this.optimizer.stepAsync();
    }
    const value = Number(loss.item());
    if (!Number.isFinite(value) || !Number.isFinite(norm)) {
      throw new DivergedError(`ModuleTrainer: step ${this.step + 1}: the loss is ${value}, the gradient's norm ${norm}`, 'ModuleTrainer');
    }
    this.scheduler?.step();
    const size = sizeOf(batch);
    ++this.step;
    this.#samples += size;
    const now = performance.now();
    return { step: this.step, loss: value, lr, grad_norm: norm, tokens: this.#samples, tokens_per_s: size / Math.max(1e-9, (now - start) / 1000),
      elapsed_s: (now - begun) / 1000 };
  }
  /**
   * Runs to the last step: {step, status, last, validLoss, checkpoint}. An aborted signal saves, writes the report and rejects
   * with its reason; DivergedError where the loss or the gradient is not finite. onStep(metrics) is called after each step.
   */
  async train({ resume = false, progress = true, onStep, signal } = {}) {
    fs.mkdirSync(this.out, { recursive: true });
    const found = this.#checkpoints();
    if (found.length && !resume) throw new ValueError(`ModuleTrainer: '${this.out}' holds a run already: {resume: true} goes on with it`, 'ModuleTrainer');
    if (found.length) await this.#load(found[found.length - 1]);
    const log = this.#log = native.newMetrics(path.join(this.out, 'metrics.jsonl'), this.step, this.#mark);
    const bar = progress ? native.newProgress(this.totalSteps, this.step, this.#elapsed) : null;
    const begun = performance.now() - 1000 * this.#elapsed;
    this.module.train();
    let last = { step: this.step };
    let status = 'finished';
    const batches = this.#batches();
    try {
      while (this.step < this.totalSteps) {
        signal?.throwIfAborted();
        const { value: batch, done } = await batches.next();
        if (done) break;
        last = await this.#one(batch, begun);
        if (this.validLoader && this.#due(this.evalEvery)) {
          last.valid_loss = this.#validLoss = await this.validate();
          last.elapsed_s = (performance.now() - begun) / 1000;
        }
        this.#elapsed = last.elapsed_s;
        native.writeMetrics(log, last);
        if (bar) native.progressUpdate(bar, last);
        if (bar && 'valid_loss' in last) native.progressNote(bar, `step ${this.step}: validation loss ${last.valid_loss.toFixed(4)}`);
        onStep?.(last);
        if (this.#due(this.saveEvery)) await this.#save();
      }
    } catch (error) {
      status = error instanceof DivergedError ? `stopped: ${error.message}` : `stopped at step ${this.step}`;
      if (signal?.aborted) await this.#save();
      throw error;
    } finally {
      await batches.return();
      if (bar) native.progressFinish(bar);
      this.#report(status);
    }
    return { step: this.step, status, last, validLoss: this.#validLoss, checkpoint: this.#checkpoint };
  }
  metrics() {
    return readMetrics(path.join(this.out, 'metrics.jsonl'));
  }
  #report(status) {
    const [group] = this.optimizer.paramGroups;
    const settings = [['optimizer', this.optimizer.constructor.name], ...Object.entries(group.options), ['steps', this.totalSteps], ['maxNorm', this.maxNorm]];
    if (this.scheduler) settings.push(['scheduler', this.scheduler.constructor.name]);
    native.writeReport(path.join(this.out, 'report.html'), {
      title: path.basename(path.resolve(this.out)),
      status,
      metrics: path.join(this.out, 'metrics.jsonl'),
      steps: this.totalSteps,
      parameters: this.module.numParameters(),
      network: String(this.module),
      settings: settings.map(([key, value]) => [key, String(value)]),
      notes: [['Checkpoint', path.basename(this.#checkpoint) || 'none yet']],
    });
  }
  #checkpoints() {
    return fs.readdirSync(this.out).filter((n) => /^step-\d+\.safetensors$/.test(n)).sort().map((n) => path.join(this.out, n));
  }
  async #save() {
    if (this.saveEvery < 0 || this.step === 0) return;
    const file = path.join(this.out, `step-${String(this.step).padStart(8, '0')}.safetensors`);
    if (file === this.#checkpoint) return;
    const { seed, offset } = native.randomState();
    await saveObject(file, {
      model: this.module.stateDict(), optimizer: this.optimizer.stateDict(), step: this.step, samples: this.#samples, elapsed: this.#elapsed,
      rng: [String(seed), String(offset)], log: native.metricsMark(this.#log), scheduler: this.scheduler?.stateDict() ?? null, lrs: this.optimizer.paramGroups.map((g) => g.lr),
    });
    this.#checkpoint = file;
    for (const old of this.#checkpoints().slice(0, -Math.max(1, this.keepLast))) fs.rmSync(old);
  }
  async #load(file) {
    const state = await loadObject(file);
    this.module.loadStateDict(state.model);
    this.optimizer.loadStateDict(state.optimizer);
    this.optimizer.paramGroups.forEach((g, i) => { g.lr = state.lrs[i]; });
    if (this.scheduler && state.scheduler) this.scheduler.loadStateDict(state.scheduler);
    this.step = state.step;
    this.#samples = state.samples;
    this.#elapsed = state.elapsed;
    native.setRandomState({ seed: BigInt(state.rng[0]), offset: BigInt(state.rng[1]) });
    this.#checkpoint = file;
    this.#mark = state.log;
  }
}

module.exports = { Trainer, ModuleTrainer, readMetrics };
