// SPDX-License-Identifier: Apache-2.0
// The members of TrainConfig by name: the one list that checkpoints and Python go by, in their order.
#pragma once

#include <type_traits>

#include "qkv/train.h"

namespace qkv {

// Calls visit(name, member) for each member.
template <class Config, class Visit>
void for_each_member(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, TrainConfig> {
  visit("steps", c.steps);
  visit("batch_size", c.batch_size);
  visit("grad_accum", c.grad_accum);
  visit("learning_rate", c.learning_rate);
  visit("min_lr", c.min_lr);
  visit("warmup_steps", c.warmup_steps);
  visit("decay_steps", c.decay_steps);
  visit("schedule", c.schedule);
  visit("weight_decay", c.weight_decay);
  visit("beta1", c.beta1);
  visit("beta2", c.beta2);
  visit("eps", c.eps);
  visit("grad_clip", c.grad_clip);
  visit("eval_interval", c.eval_interval);
  visit("eval_iters", c.eval_iters);
  visit("sample_interval", c.sample_interval);
  visit("log_interval", c.log_interval);
  visit("checkpoint_interval", c.checkpoint_interval);
  visit("keep_checkpoints", c.keep_checkpoints);
  visit("max_bad_steps", c.max_bad_steps);
  visit("seed", c.seed);
  visit("operands", c.operands);
  visit("recompute", c.recompute);
  visit("dropout", c.dropout);
  visit("window", c.window);
}

}  // namespace qkv
