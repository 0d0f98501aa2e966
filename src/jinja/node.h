// SPDX-License-Identifier: Apache-2.0
// The tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace qkv::jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;

struct Node {
  // Expressions: constant, name, list, tuple, dict (keys and values in turn), attribute, item, slice (three children,
  // some null), call, filter, test, unary, binary, comparison (operators in `names`), concat, conditional (then, if,
  // else). Statements: the rest. call_block's and filter_block's first child is the call or the filter.
  enum Kind {
    constant,
    name,
    list,
    tuple,
    dict,
    attribute,
    item,
    slice,
    call,
    filter,
    test,
    unary,
    binary,
    comparison,
    concat,
    conditional,
    block,
    data,
    output,
    for_loop,
    if_chain,
    set,
    set_block,
    with,
    macro,
    call_block,
    filter_block,
    break_loop,
    continue_loop
  } kind;
  int line = 0, column = 0, depth = 1;
  std::string text;                                    // a name, an operator
  Value value;                                         // constant, data
  std::vector<NodePtr> children;                       // some may be null
  std::vector<std::string> names;                      // targets, parameters, operators
  std::vector<std::pair<std::string, NodePtr>> named;  // keyword arguments, defaults of parameters
};

}  // namespace qkv::jinja
