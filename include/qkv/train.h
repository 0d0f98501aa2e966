// SPDX-License-Identifier: Apache-2.0
// Includes all training headers.
#pragma once

#include "qkv/optimizer.h"
#include "qkv/train_config.h"
#include "qkv/train_run.h"
#include "qkv/trainer.h"
