// SPDX-License-Identifier: Apache-2.0
// The options of attention as lists: the C API, Python, the command line and the KV cache walk them, so that an option
// is added to AttentionOptions, here, and where it is computed (src/attention/problem.cc, mask.h).
#pragma once

#include "qkv/attention.h"

namespace qkv {

struct OptionText {
  const char* name;     // of the member
  const char* help;     // a noun phrase
  const char* keyword;  // of the command line and Python: usually the name
};

// visit(text, members ...) gets the members of that name, one of each structure given. The first list says where
// queries are among the keys and which keys the position allows, which people give together. first_key and path are in
// none: they change no meaning.
template <class Visit, class... Options>
void for_each_position_option(const Visit& visit, Options&... o) {
  visit(OptionText{"causal", "No key past the query's position", "causal"}, o.causal...);
  visit(OptionText{"alignment", "Where query 0 stands", "alignment"}, o.alignment...);
  visit(OptionText{"start", "Position of query 0 of each sequence", "start"}, o.start...);
  visit(OptionText{"window_left", "Keys before the position that may be read", "window_left"}, o.window_left...);
  visit(OptionText{"window_right", "Keys after it", "window_right"}, o.window_right...);
}
template <class Visit, class... Options>
void for_each_other_option(const Visit& visit, Options&... o) {
  visit(OptionText{"mask", "Bool (true: may read) or floating (added); broadcasts", "mask"}, o.mask...);
  visit(OptionText{"q_lengths", "Queries that count, int64 [batch]", "q_lengths"}, o.q_lengths...);
  visit(OptionText{"kv_lengths", "Keys that exist, int64 [batch]", "kv_lengths"}, o.kv_lengths...);
  visit(OptionText{"scale", "Factor of Q K^T [1 / sqrt(dim)]", "scale"}, o.scale...);
  visit(OptionText{"softcap", "Softcap of the scores; 0 = off", "softcap"}, o.softcap...);
  visit(OptionText{"alibi_slopes", "ALiBi slope per head", "alibi"}, o.alibi_slopes...);
  visit(OptionText{"sinks", "Logit per head in the denominator that reads no value", "sinks"}, o.sinks...);
  visit(OptionText{"require_readable_key", "A query that may read nothing is an error", "require_readable_key"},
        o.require_readable_key...);
  visit(OptionText{"dropout", "Dropout of probabilities, for training", "_dropout"}, o.dropout...);
}
template <class Visit, class... Options>
void for_each_option(const Visit& visit, Options&... o) {
  for_each_position_option(visit, o...);
  for_each_other_option(visit, o...);
}

}  // namespace qkv
