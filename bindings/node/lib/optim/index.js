'use strict';
// st.optim

module.exports = {
  ...require('./optimizer.js'),
  ...require('./rule.js'),
  ...require('./lbfgs.js'),
  ...require('./schedule.js'),
  ...require('./averaging.js'),
};
