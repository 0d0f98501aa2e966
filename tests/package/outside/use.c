/* SPDX-License-Identifier: Apache-2.0 */
#include <qkv_c.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  qkv_model_config config;
  qkv_model* model = NULL;
  if (qkv_model_config_init(&config, "gpt2") != QKV_OK || config.d_model != 768) return 1;
  if (strcmp(qkv_version(), QKV_VERSION) != 0) return 1;
  const qkv_status status = qkv_model_load("/no/such/model", NULL, &model);
  printf("%s, %s: %s\n", qkv_version(), qkv_status_name(status), qkv_last_error());
  return status == QKV_FILE_ERROR && strstr(qkv_last_error(), "/no/such/model") != NULL ? 0 : 1;
}
