// SPDX-License-Identifier: Apache-2.0
#include "qkv/text_file.h"

#include "os/atomic_file.h"

namespace qkv {

void save_text(const std::string& path, std::string_view text) { replace_file(path, text); }

}  // namespace qkv
