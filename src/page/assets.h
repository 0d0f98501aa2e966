// SPDX-License-Identifier: Apache-2.0
// The style sheets and scripts beside this file, as the build put them into the program.
#pragma once

#include <span>
#include <string_view>

namespace qkv {

extern const std::string_view kTrainingStyle;
extern const std::string_view kTrainingScript;
extern const std::string_view kTrainingScriptHash;  // SHA-256 in base64, as a content security policy names a script

extern const std::string_view kInspectStyle;
extern const std::string_view kInspectBody;                     // <body> up to the data; nothing is filled in
extern const std::span<const std::string_view> kInspectScript;  // one script, to be joined
extern const std::string_view kInspectScriptHash;

}  // namespace qkv
