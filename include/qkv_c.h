/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C API of qkv: attention forward and backward, models in any supported format, generation, training steps.
 *
 * Every function that can fail returns a status. QKV_OK is 0; for any other value, qkv_last_error() is a one-line
 * message such as "[attention] expected n_head to be a multiple of n_kv_head; found 6 and 4". No C++ exception crosses
 * this API.
 * Each options structure has a function that fills in the defaults: call it first, then change what you need.
 * Arrays are described, never copied: a pointer, a type, a shape and strides. Where an array is optional, NULL or an
 * array whose data is NULL means "not given" or "not wanted". Outputs must not overlap inputs.
 * Attention functions are thread-safe. A model or trainer must be used by one thread at a time, freed once, and not
 * used after that. Free a trainer before its model. After fork(): see qkv_set_num_threads.
 * The full contract is in the headers of the C++ functions of the same name: qkv/attention.h, qkv/model.h,
 * qkv/generate.h, qkv/train.h. Structures may grow in a minor version of the library; SOVERSION changes with it.
 */
#ifndef QKV_C_H
#define QKV_C_H

#include <stddef.h>
#include <stdint.h>

#include "qkv/version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t qkv_status;
enum {
  QKV_OK = 0,
  QKV_INVALID_ARGUMENT = 1, /* an invalid shape, option or pointer */
  QKV_FILE_ERROR = 2,       /* a missing, unreadable, unwritable or malformed file */
  QKV_OUT_OF_MEMORY = 3,
  QKV_NOT_FINITE = 4, /* logits that cannot be sampled from */
  QKV_TOO_SMALL = 5,  /* the caller's buffer is too small; the required size is returned */
  QKV_FAILED = 6      /* anything else */
};

/* Message of this thread's last failed call; "" if none has failed. Valid until the thread's next failure. */
const char* qkv_last_error(void);
const char* qkv_status_name(qkv_status status); /* "invalid argument", ... */
const char* qkv_version(void);                  /* of the library, "0.2.0"; QKV_VERSION is this header's */

/* Number of threads; 0 = one per core. Results do not depend on it. Do not call while another thread computes. A
 * process forked from one that computed with several threads has one; asking for more there is QKV_INVALID_ARGUMENT. */
qkv_status qkv_set_num_threads(int threads);

/* ---- arrays ---- */

typedef int32_t qkv_dtype;
enum {
  QKV_F32 = 0,
  QKV_F64 = 1,
  QKV_BF16 = 2,
  QKV_F16 = 3,
  QKV_I64 = 4,
  QKV_I32 = 5,
  QKV_BOOL = 6 /* one byte, 0 or 1 */
};

#define QKV_MAX_RANK 8

typedef struct qkv_array {
  void* data;
  qkv_dtype dtype;
  int rank;
  int64_t shape[QKV_MAX_RANK];   /* outermost first */
  int64_t strides[QKV_MAX_RANK]; /* in elements; any sign, 0 to broadcast */
} qkv_array;

/* Row-major elements. A rank outside 0 ... QKV_MAX_RANK gives an array that every function rejects. */
qkv_array qkv_contiguous(void* data, qkv_dtype dtype, int rank, const int64_t* shape);

/* ---- attention: softmax(mask(q k^T * scale)) v ---- */

typedef int32_t qkv_alignment;
enum {
  QKV_ALIGN_NONE = 0,         /* unspecified: causal, windows and ALiBi are rejected */
  QKV_ALIGN_TOP_LEFT = 1,     /* query 0 is at key 0 */
  QKV_ALIGN_BOTTOM_RIGHT = 2, /* the last query is at the last key of each sequence */
  QKV_ALIGN_START = 3         /* query 0 is at start[b] */
};

typedef struct qkv_attention_options {
  int causal;
  qkv_alignment alignment;
  const int64_t* start; /* [n_start], only with QKV_ALIGN_START; n_start is batch, or 1 for all */
  size_t n_start;
  int64_t window_left;           /* keys visible before the query's position; -1: all */
  int64_t window_right;          /* keys visible after it; -1: all */
  const qkv_array* mask;         /* bool (true: visible) or floating (added); broadcasts to */
                                 /* [batch, n_head, q_len, kv_len] */
  const int64_t* q_lengths;      /* [batch] or NULL */
  const int64_t* kv_lengths;     /* [batch] or NULL */
  const double* scale;           /* NULL: 1 / sqrt(d_k) */
  double softcap;                /* 0: off */
  const qkv_array* alibi_slopes; /* [n_head], floating, or NULL */
  const qkv_array* sinks;        /* [n_head], floating, or NULL */
  int require_readable_key;      /* a query without a visible key is an error; otherwise its output is 0 */
  double dropout;                /* 0 (off) ... below 1; for training */
  uint64_t dropout_seed;
} qkv_attention_options;

void qkv_attention_options_init(qkv_attention_options* options);

/* q [batch, n_head, q_len, d_k], k [batch, n_kv_head, kv_len, d_k], v [batch, n_kv_head, kv_len, d_v], all f32, bf16,
 * f16 or f64; n_head is a multiple of n_kv_head. options may be NULL. out [batch, n_head, q_len, d_v];
 * lse [batch, n_head, q_len] and probs [batch, n_head, q_len, kv_len] (f32, f64 for f64) may be NULL. */
qkv_status qkv_attention(const qkv_array* q, const qkv_array* k, const qkv_array* v,
                         const qkv_attention_options* options, const qkv_array* out, const qkv_array* lse,
                         const qkv_array* probs);

/* Gradients of the loss. Overwritten, not accumulated; each may be NULL. */
typedef struct qkv_attention_gradients {
  const qkv_array* dq;     /* shaped like q */
  const qkv_array* dk;     /* like k, summed over the query heads that share it */
  const qkv_array* dv;     /* like v */
  const qkv_array* dmask;  /* like the floating mask */
  const qkv_array* dsinks; /* [n_head] */
} qkv_attention_gradients;

/* out and lse: the results of qkv_attention for the same inputs and options. dout: the gradient of the loss with
 * respect to out. */
qkv_status qkv_attention_backward(const qkv_array* q, const qkv_array* k, const qkv_array* v, const qkv_array* out,
                                  const qkv_array* lse, const qkv_array* dout, const qkv_attention_options* options,
                                  const qkv_attention_gradients* gradients);

/* ---- models ---- */

typedef struct qkv_model qkv_model; /* a model and its tokenizer */

typedef struct qkv_model_config {
  const char* preset; /* sets a new model's norms, activation and position encoding; NULL: qkv's defaults */
  int64_t n_layer, n_head;
  int64_t n_kv_head; /* 0: n_head */
  int64_t head_dim;  /* 0: d_model / n_head */
  int64_t d_model;
  int64_t d_ff;       /* 0: 4 * d_model */
  int64_t vocab_size; /* at least 257 for qkv_model_create: bytes and the end token */
  int64_t ctx_len;    /* context length in tokens */
} qkv_model_config;

/* The sizes of a preset ("andrea-12m", "gpt2", "llama-135m", ...); with NULL the defaults: 6 layers of 6 heads, d_model
 * 192, context 256, vocabulary 257. The string must outlive the call that creates the model. */
qkv_status qkv_model_config_init(qkv_model_config* config, const char* preset);

/* Device names: "cpu" and "reference" (every operation in f64, slow). NULL for index >= qkv_device_count(). */
size_t qkv_device_count(void);
const char* qkv_device_name(size_t index);

/* Loads a qkv or Hugging Face directory, a GGUF file or an ANDREA checkpoint. device: a device name; NULL: "reference"
 * for parameters stored in f64, else "cpu". */
qkv_status qkv_model_load(const char* path, const char* device, qkv_model** model);
/* Creates a model of these sizes with random parameters from the seed. Its tokens are bytes; id 256 is the end token.
 * device NULL: "cpu". */
qkv_status qkv_model_create(const qkv_model_config* config, uint64_t seed, const char* device, qkv_model** model);
/* Name of the model's device; NULL for NULL. */
const char* qkv_model_device(const qkv_model* model);
qkv_status qkv_model_save(const qkv_model* model, const char* directory);
void qkv_model_free(qkv_model* model); /* NULL is fine */

qkv_status qkv_model_get_config(const qkv_model* model, qkv_model_config* config);
int64_t qkv_model_parameter_count(const qkv_model* model); /* 0 for NULL */
int32_t qkv_model_end_token(const qkv_model* model);       /* -1: none */

/* Text to token ids and back. count is the full number of ids or bytes, even if it exceeds the capacity (QKV_TOO_SMALL,
 * nothing written): call with capacity 0 to get it, or pass a large enough buffer. Text is bytes; no NUL is added. */
qkv_status qkv_encode(const qkv_model* model, const char* text, size_t bytes, int32_t* ids, size_t capacity,
                      size_t* count);
qkv_status qkv_decode(const qkv_model* model, const int32_t* ids, size_t n, char* text, size_t capacity, size_t* count);

/* Token sequences, each of ctx tokens; target t is the token after tokens 0 ... t; -1 is ignored. */
typedef struct qkv_batch {
  int64_t batch, ctx;
  const int32_t* tokens;  /* [batch, ctx] */
  const int32_t* targets; /* [batch, ctx]; unused by qkv_model_logits */
} qkv_batch;

/* logits: a contiguous f32 array [batch, ctx, vocab_size]. */
qkv_status qkv_model_logits(qkv_model* model, const qkv_batch* batch, float* logits, size_t capacity);
/* Mean of -ln p(target), in nats, over the `count` targets that are not -1. count may be NULL. */
qkv_status qkv_model_loss(qkv_model* model, const qkv_batch* batch, double* mean, int64_t* count);

/* ---- generation ---- */

typedef struct qkv_generate_options {
  int64_t max_tokens;
  double temperature; /* 0: always the most probable token */
  int64_t top_k;      /* 0: all */
  double top_p, min_p, repeat_penalty;
  uint64_t seed;
  int shift; /* context shift: when the context is full, drop the oldest tokens and continue */
} qkv_generate_options;

void qkv_generate_options_init(qkv_generate_options* options);

typedef int32_t qkv_stop_reason;
enum { QKV_STOP_MAX_TOKENS = 0, QKV_STOP_END_TOKEN = 1, QKV_STOP_CONTEXT_FULL = 2, QKV_STOP_CALLBACK = 3 };

/* Called for each token as it is generated; returning 0 stops generation. */
typedef int (*qkv_on_token)(void* user, int32_t token);

/* Generates from a prompt. on_token, tokens and options may be NULL. The first `capacity` new tokens are written to
 * tokens. count, which may be NULL, is the number of new tokens (QKV_TOO_SMALL if tokens is not NULL and count exceeds
 * the capacity). reason may be NULL. */
qkv_status qkv_generate(qkv_model* model, const int32_t* prompt, size_t prompt_len, const qkv_generate_options* options,
                        qkv_on_token on_token, void* user, int32_t* tokens, size_t capacity, size_t* count,
                        qkv_stop_reason* reason);

/* ---- training ---- */

typedef struct qkv_trainer qkv_trainer; /* optimizer state and the number of steps done */

typedef struct qkv_train_config {
  int64_t steps; /* of the whole run; the schedule is a cosine down to a tenth of learning_rate */
  double learning_rate;
  int64_t warmup_steps;  /* -1: a twentieth of the steps, at most 500 */
  const char* optimizer; /* "adamw" (also NULL) or "muon"; qkv/optimizer.h has their formulas */
  double weight_decay, beta1, beta2, eps;
  double muon_momentum; /* muon only */
  double grad_clip;     /* clip the global gradient norm to this; 0: off */
} qkv_train_config;

void qkv_train_config_init(qkv_train_config* config);

typedef struct qkv_step_report {
  int64_t step; /* from 1 */
  double loss;  /* nats per token, before the update */
  double grad_norm;
  double learning_rate;
  int skipped; /* loss or gradients are not finite: nothing was updated */
} qkv_step_report;

/* The model must outlive the trainer. */
qkv_status qkv_trainer_create(qkv_model* model, const qkv_train_config* config, qkv_trainer** trainer);
/* One step on one batch; all targets but -1 have equal weight. report may be NULL. */
qkv_status qkv_trainer_step(qkv_trainer* trainer, const qkv_batch* batch, qkv_step_report* report);
void qkv_trainer_free(qkv_trainer* trainer); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif /* QKV_C_H */
