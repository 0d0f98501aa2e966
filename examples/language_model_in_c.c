/* SPDX-License-Identifier: Apache-2.0 */
/* A language model from C: create one (or load the one at the given path), train it on a sentence, and generate. */
#include <stdio.h>
#include <string.h>

#include "qkv_c.h"

static const char kText[] = "In the beginning God created the heaven and the earth. ";

enum { kLength = 48, kSteps = 60 };

static int fail(void) {
  fprintf(stderr, "%s\n", qkv_last_error());
  return 1;
}

static int print_token(void* model, int32_t token) {
  char text[64];
  size_t bytes = 0;
  if (qkv_decode(model, &token, 1, text, sizeof(text), &bytes) != QKV_OK) return 0;
  fwrite(text, 1, bytes, stdout);
  return 1; /* continue */
}

int main(int argc, char** argv) {
  qkv_model* model = NULL;
  if (argc > 1) {
    if (qkv_model_load(argv[1], NULL, &model) != QKV_OK) return fail();
  } else {
    qkv_model_config config;
    if (qkv_model_config_init(&config, NULL) != QKV_OK) return fail();
    config.n_layer = 2;
    config.n_head = 2;
    config.d_model = 32;
    config.ctx_len = 64;
    if (qkv_model_create(&config, 1, NULL, &model) != QKV_OK) return fail();
  }

  int32_t ids[256];
  size_t count = 0;
  if (qkv_encode(model, kText, strlen(kText), ids, 256, &count) != QKV_OK) return fail();
  const int64_t length = count > kLength ? kLength : (int64_t)count - 1;

  qkv_train_config train;
  qkv_train_config_init(&train);
  train.steps = kSteps;
  train.learning_rate = 1e-2;
  qkv_trainer* trainer = NULL;
  if (qkv_trainer_create(model, &train, &trainer) != QKV_OK) return fail();
  const qkv_batch batch = {1, length, ids, ids + 1}; /* each token's target is the next token */
  qkv_step_report first = {0}, last = {0};
  for (int step = 0; step < kSteps; ++step)
    if (qkv_trainer_step(trainer, &batch, step == 0 ? &first : &last) != QKV_OK) return fail();
  printf("loss %.2f after step 1, %.2f after step %d\n", first.loss, last.loss, kSteps);
  qkv_trainer_free(trainer);

  qkv_generate_options options;
  qkv_generate_options_init(&options);
  options.temperature = 0;
  options.max_tokens = 20;
  printf("In the beginning|");
  if (qkv_generate(model, ids, 16, &options, print_token, model, NULL, 0, NULL, NULL) != QKV_OK) return fail();
  printf("|\n");
  qkv_model_free(model);
  return last.loss < 0.5 * first.loss ? 0 : 1;
}
