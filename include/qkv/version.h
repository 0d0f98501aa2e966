// SPDX-License-Identifier: Apache-2.0
// The version of qkv, defined only here. C and C++.
#pragma once

#define QKV_VERSION_MAJOR 0
#define QKV_VERSION_MINOR 2
#define QKV_VERSION_PATCH 0

#define QKV_VERSION_JOIN_(major, minor, patch) #major "." #minor "." #patch
#define QKV_VERSION_TEXT_(major, minor, patch) QKV_VERSION_JOIN_(major, minor, patch)
// "0.2.0"
#define QKV_VERSION QKV_VERSION_TEXT_(QKV_VERSION_MAJOR, QKV_VERSION_MINOR, QKV_VERSION_PATCH)
