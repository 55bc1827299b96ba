#pragma once
// All of nn.

#include "strata/nn/attention.h"
#include "strata/nn/averaging.h"
#include "strata/nn/container.h"
#include "strata/nn/conv.h"
#include "strata/nn/convert.h"
#include "strata/nn/encoder_decoder.h"
#include "strata/nn/hooks.h"
#include "strata/nn/init.h"
#include "strata/nn/layers.h"
#include "strata/nn/lazy.h"
#include "strata/nn/module.h"
#include "strata/nn/norm.h"
#include "strata/nn/parametrize.h"
#include "strata/nn/rnn.h"
#include "strata/nn/slstm.h"
#include "strata/nn/transformer.h"
