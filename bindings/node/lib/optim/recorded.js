'use strict';
// The schedules' records, and what they are called here.

const native = require('../native.js');

/** T_max is tMax, step_size stepSize. */
const camel = (name) => name.toLowerCase().replace(/_([a-z0-9])/g, (all, c) => c.toUpperCase());
const records = new Map(JSON.parse(native.scheduleRecords()).map((r) => [r.name, r]));
// Of the others the record says all; these have options for each group, momentum or functions besides. Those that are no
// class in PyTorch have small names: schedule() and ScheduleLR take them.
const WRITTEN = ['OneCycleLR', 'CyclicLR', 'SWALR'];
const recorded = [...records.keys()].filter((name) => !WRITTEN.includes(name) && name !== name.toLowerCase());

module.exports = { camel, records, recorded };
