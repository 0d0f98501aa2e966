// SPDX-License-Identifier: Apache-2.0
// The interrupt latch, which the command line uses too: its contract stands in the public header.
#pragma once

#include "qkv/interrupt.h"
