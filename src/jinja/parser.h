// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "jinja/node.h"

namespace qkv::jinja {

NodePtr parse(std::string_view text);  // throws TemplateError

}  // namespace qkv::jinja
