#pragma once
// Every optimizer and the schedules.
#include "strata/optim/adafactor.h"
#include "strata/optim/adam.h"
#include "strata/optim/adaptive.h"
#include "strata/optim/composed.h"
#include "strata/optim/lion.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/muon.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/schedule.h"
#include "strata/optim/sgd.h"
