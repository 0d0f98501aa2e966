// SPDX-License-Identifier: Apache-2.0
// The interrupt latch, also used by the command line; documented in the public header.
#pragma once

#include "qkv/interrupt.h"
