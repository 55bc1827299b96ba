'use strict';
// What st.memoryBudget and the optimizers know of each other: an optimizer's rule, and the budget that its steps end within.

module.exports = { rules: new WeakMap(), budgets: new WeakMap() };
