// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "c_api/model_handle.h"
#include "train/training_step.h"

struct qkv_trainer {
  qkv_trainer(qkv_model& model, const qkv::TrainConfig& run) : config(run), training(model.loaded.model, config) {}

  qkv::TrainConfig config;
  qkv::TrainingStep training;
  qkv::StepNumbers next;
};

namespace {

using qkv::c_api::guarded;
using qkv::c_api::require_given;

qkv::TrainConfig config_of(const qkv_train_config* given) {
  qkv_train_config defaults;
  qkv_train_config_init(&defaults);
  const qkv_train_config& from = given == nullptr ? defaults : *given;
  qkv::TrainConfig config;
  config.steps = from.steps;
  config.learning_rate = from.learning_rate;
  config.warmup_steps = from.warmup_steps;
  if (from.optimizer != nullptr) config.optimizer = from.optimizer;
  config.weight_decay = from.weight_decay;
  config.beta1 = from.beta1;
  config.beta2 = from.beta2;
  config.eps = from.eps;
  config.muon_momentum = from.muon_momentum;
  config.grad_clip = from.grad_clip;
  qkv::validate(config);
  return config;
}

qkv_step_report step(qkv_trainer& trainer, const qkv::Batch& batch) {
  const auto targets = std::count_if(batch.targets.begin(), batch.targets.end(), [](auto t) { return t >= 0; });
  if (targets == 0) throw std::invalid_argument("[qkv_trainer_step] expected a target other than -1; found none");
  const qkv::StepReport done = trainer.training.run({&batch, 1}, trainer.config, trainer.next);
  ++trainer.next.step;
  if (!done.skipped) ++trainer.next.update;
  return {done.step, done.loss, done.grad_norm, done.learning_rate, done.skipped ? 1 : 0};
}

}  // namespace

extern "C" {

void qkv_train_config_init(qkv_train_config* config) {
  if (config == nullptr) return;
  const qkv::TrainConfig defaults;
  *config = {defaults.steps,         defaults.learning_rate, defaults.warmup_steps, nullptr,
             defaults.weight_decay,  defaults.beta1,         defaults.beta2,        defaults.eps,
             defaults.muon_momentum, defaults.grad_clip};
}

qkv_status qkv_trainer_create(qkv_model* model, const qkv_train_config* config, qkv_trainer** trainer) {
  return guarded([&] {
    require_given(trainer, "qkv_trainer_create", "trainer");
    *trainer = nullptr;
    require_given(model, "qkv_trainer_create", "model");
    *trainer = std::make_unique<qkv_trainer>(*model, config_of(config)).release();
  });
}

qkv_status qkv_trainer_step(qkv_trainer* trainer, const qkv_batch* batch, qkv_step_report* report) {
  return guarded([&] {
    require_given(trainer, "qkv_trainer_step", "trainer");
    const qkv_step_report done = step(*trainer, qkv::c_api::batch_of(batch, true, "qkv_trainer_step"));
    if (report != nullptr) *report = done;
  });
}

void qkv_trainer_free(qkv_trainer* trainer) { delete trainer; }

}  // extern "C"
