// SPDX-License-Identifier: Apache-2.0
// All of qkv.
#pragma once

#include "qkv/array_file.h"
#include "qkv/attention.h"
#include "qkv/dataset.h"
#include "qkv/error.h"
#include "qkv/explain.h"
#include "qkv/generate.h"
#include "qkv/gradient_sum.h"
#include "qkv/interrupt.h"
#include "qkv/kernels.h"
#include "qkv/kv_cache.h"
#include "qkv/measure.h"
#include "qkv/model.h"
#include "qkv/model_file.h"
#include "qkv/multi_head.h"
#include "qkv/report.h"
#include "qkv/tensor.h"
#include "qkv/threads.h"
#include "qkv/tokenizer.h"
#include "qkv/train.h"
