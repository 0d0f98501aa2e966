// SPDX-License-Identifier: Apache-2.0
// The attention options as lists, which the C API, Python, the command line and the KV cache iterate over. To add an
// option, change AttentionOptions, these lists, and the code that computes it (src/attention/problem.cc, mask.h).
#pragma once

#include "qkv/attention.h"

namespace qkv {

struct OptionText {
  const char* name;     // of the member
  const char* help;     // a noun phrase
  const char* keyword;  // on the command line and in Python; usually the name
};

// visit(text, members ...) is called with the members of that name, one from each structure given. The first list has
// the options about positions: where the queries are among the keys, and which keys are visible from there. first_key
// and path are in neither list: they do not change the result's meaning.
template <class Visit, class... Options>
void for_each_position_option(const Visit& visit, Options&... o) {
  visit(OptionText{"causal", "Mask keys after the query's position", "causal"}, o.causal...);
  visit(OptionText{"alignment", "Position of query 0 among the keys", "alignment"}, o.alignment...);
  visit(OptionText{"start", "Position of query 0 of each sequence", "start"}, o.start...);
  visit(OptionText{"window_left", "Keys visible before the query's position; -1 = all", "window_left"},
        o.window_left...);
  visit(OptionText{"window_right", "Keys visible after the query's position; -1 = all", "window_right"},
        o.window_right...);
}
template <class Visit, class... Options>
void for_each_other_option(const Visit& visit, Options&... o) {
  visit(OptionText{"mask", "Bool (true = visible) or floating (added); broadcasts", "mask"}, o.mask...);
  visit(OptionText{"q_lengths", "Queries per sequence, int64 [batch]", "q_lengths"}, o.q_lengths...);
  visit(OptionText{"kv_lengths", "Keys per sequence, int64 [batch]", "kv_lengths"}, o.kv_lengths...);
  visit(OptionText{"scale", "Scale of Q K^T [1 / sqrt(dim)]", "scale"}, o.scale...);
  visit(OptionText{"softcap", "Softcap of the scores; 0 = off", "softcap"}, o.softcap...);
  visit(OptionText{"alibi_slopes", "ALiBi slope per head", "alibi"}, o.alibi_slopes...);
  visit(OptionText{"sinks", "Sink logit per head, in the softmax denominator only", "sinks"}, o.sinks...);
  visit(OptionText{"require_readable_key", "Fail if a query has no visible key", "require_readable_key"},
        o.require_readable_key...);
  visit(OptionText{"dropout", "Dropout of attention weights, for training", "_dropout"}, o.dropout...);
}
template <class Visit, class... Options>
void for_each_option(const Visit& visit, Options&... o) {
  for_each_position_option(visit, o...);
  for_each_other_option(visit, o...);
}

}  // namespace qkv
