// SPDX-License-Identifier: Apache-2.0
// The style sheets and scripts beside this file, as the build put them into the program.
#pragma once

#include <string_view>

namespace qkv {

extern const std::string_view kTrainingStyle;
extern const std::string_view kTrainingScript;
extern const std::string_view kTrainingScriptHash;  // SHA-256 in base64, as a content security policy names a script

}  // namespace qkv
