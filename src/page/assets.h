// SPDX-License-Identifier: Apache-2.0
// The style sheets and scripts of this directory, embedded by the build.
#pragma once

#include <span>
#include <string_view>

namespace qkv {

extern const std::string_view kTrainingStyle;
extern const std::string_view kTrainingScript;
extern const std::string_view kTrainingScriptHash;  // SHA-256 in base64, for the content security policy

extern const std::string_view kInspectStyle;
extern const std::string_view kInspectBody;                     // <body> up to the data, constant
extern const std::span<const std::string_view> kInspectScript;  // parts of one script
extern const std::string_view kInspectScriptHash;

}  // namespace qkv
