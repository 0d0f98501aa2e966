/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qkv from C: attention forward and backward, models of any format, generation, training steps.
 *
 * Every function that can fail returns a status. QKV_OK is 0; of any other the message is qkv_last_error(), one line
 * such as "[attention] expected n_head to be a multiple of n_kv_head; found 6 and 4". No C++ exception comes out.
 * Structures of options have a function that fills in the defaults: call it first, then change what you want.
 * Arrays are described, never copied: a pointer, a type, a shape and strides. NULL, or an array whose data is NULL, is
 * "not given" or "not wanted" where that is allowed. Outputs must not overlap inputs.
 * Functions of attention may be called from several threads at once; a model or trainer is used by one at a time, is
 * freed once, and is not used after that. A trainer is freed before its model. After fork(): qkv_set_num_threads.
 * The full contract stands beside the C++ functions of the same name: qkv/attention.h, qkv/model.h, qkv/generate.h,
 * qkv/train.h. Structures may grow with the library's minor version: SOVERSION changes then.
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
  QKV_INVALID_ARGUMENT = 1, /* a shape, an option or a pointer that makes no sense */
  QKV_FILE_ERROR = 2,       /* a file that is missing, unreadable, unwritable or not what it claims to be */
  QKV_OUT_OF_MEMORY = 3,
  QKV_NOT_FINITE = 4, /* logits from which nothing can be drawn */
  QKV_TOO_SMALL = 5,  /* a buffer of the caller's; the size that it needs is told */
  QKV_FAILED = 6      /* anything else */
};

/* What went wrong in this thread's latest call that failed; "" if none has. Valid until the thread's next failure. */
const char* qkv_last_error(void);
const char* qkv_status_name(qkv_status status); /* "invalid argument", ... */
const char* qkv_version(void);                  /* the library's, "0.2.0"; QKV_VERSION is that of this header */

/* Threads to compute with; 0 is one a core. Results never depend on it. Not while another thread computes. A process
 * forked from one that computed with several has one; more are QKV_INVALID_ARGUMENT there. */
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

/* Row-major elements. A rank outside 0 ... QKV_MAX_RANK gives an array that every function refuses. */
qkv_array qkv_contiguous(void* data, qkv_dtype dtype, int rank, const int64_t* shape);

/* ---- attention: softmax(mask(q k^T * scale)) v ---- */

typedef int32_t qkv_alignment;
enum {
  QKV_ALIGN_NONE = 0,         /* not said: causal, windows and ALiBi are refused */
  QKV_ALIGN_TOP_LEFT = 1,     /* query 0 stands at key 0 */
  QKV_ALIGN_BOTTOM_RIGHT = 2, /* the last query stands at the last key, of each sequence */
  QKV_ALIGN_START = 3         /* query 0 stands at start[b] */
};

typedef struct qkv_attention_options {
  int causal;
  qkv_alignment alignment;
  const int64_t* start; /* [n_start], with QKV_ALIGN_START only; n_start is batch, or 1 for all */
  size_t n_start;
  int64_t window_left;           /* keys before the position that may be read; -1: all */
  int64_t window_right;          /* keys after it */
  const qkv_array* mask;         /* bool (true: may read) or floating (added); broadcasts to */
                                 /* [batch, n_head, q_len, kv_len] */
  const int64_t* q_lengths;      /* [batch] or NULL */
  const int64_t* kv_lengths;     /* [batch] or NULL */
  const double* scale;           /* NULL: 1 / sqrt(d_k) */
  double softcap;                /* 0: off */
  const qkv_array* alibi_slopes; /* [n_head], floating, or NULL */
  const qkv_array* sinks;        /* [n_head], floating, or NULL */
  int require_readable_key;      /* a row with nothing to read is an error, and not zeros */
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

/* Gradients of the loss, overwritten; each may be NULL. */
typedef struct qkv_attention_gradients {
  const qkv_array* dq;     /* as q */
  const qkv_array* dk;     /* as k, summed over the query heads that share it */
  const qkv_array* dv;     /* as v */
  const qkv_array* dmask;  /* as the floating mask */
  const qkv_array* dsinks; /* [n_head] */
} qkv_attention_gradients;

/* out and lse are what qkv_attention gave for the same inputs and options; dout, as out, is the loss's gradient. */
qkv_status qkv_attention_backward(const qkv_array* q, const qkv_array* k, const qkv_array* v, const qkv_array* out,
                                  const qkv_array* lse, const qkv_array* dout, const qkv_attention_options* options,
                                  const qkv_attention_gradients* gradients);

/* ---- models ---- */

typedef struct qkv_model qkv_model; /* a model and its tokenizer */

typedef struct qkv_model_config {
  const char* preset; /* whose norms, activation and positions a new model gets; NULL: qkv's defaults */
  int64_t n_layer, n_head;
  int64_t n_kv_head; /* 0: n_head */
  int64_t head_dim;  /* 0: d_model / n_head */
  int64_t d_model;
  int64_t d_ff;       /* 0: 4 * d_model */
  int64_t vocab_size; /* at least 257 for a model that is made here: bytes and the end token */
  int64_t ctx_len;    /* tokens that it can see at once */
} qkv_model_config;

/* The sizes of a preset ("andrea-12m", "gpt2", "llama-135m", ...), or with NULL the defaults: 6 layers of 6 heads,
 * d_model 192, context 256, vocabulary 257. The string must stay until the model is made. */
qkv_status qkv_model_config_init(qkv_model_config* config, const char* preset);

/* Devices by name: "cpu", and "reference" (every operation in f64, slow). NULL from qkv_device_count() on. */
size_t qkv_device_count(void);
const char* qkv_device_name(size_t index);

/* A qkv or Hugging Face directory, a GGUF file or a checkpoint of ANDREA. device is the name of one; NULL: the
 * processor, but "reference" for parameters stored in f64. */
qkv_status qkv_model_load(const char* path, const char* device, qkv_model** model);
/* A new model of these sizes with random parameters from the seed; its tokens are bytes, and id 256 ends a text. A NULL
 * device is "cpu". */
qkv_status qkv_model_create(const qkv_model_config* config, uint64_t seed, const char* device, qkv_model** model);
/* The name of the model's device; NULL for NULL. */
const char* qkv_model_device(const qkv_model* model);
qkv_status qkv_model_save(const qkv_model* model, const char* directory);
void qkv_model_free(qkv_model* model); /* NULL is fine */

qkv_status qkv_model_get_config(const qkv_model* model, qkv_model_config* config);
int64_t qkv_model_parameter_count(const qkv_model* model); /* 0 for NULL */
int32_t qkv_model_end_token(const qkv_model* model);       /* -1: none */

/* Text to token ids and back. count is the number there is, also where it is more than the capacity (QKV_TOO_SMALL,
 * nothing written): ask with capacity 0 first, or give room enough. Text is bytes; no NUL is added. */
qkv_status qkv_encode(const qkv_model* model, const char* text, size_t bytes, int32_t* ids, size_t capacity,
                      size_t* count);
qkv_status qkv_decode(const qkv_model* model, const int32_t* ids, size_t n, char* text, size_t capacity, size_t* count);

/* Token sequences, all of ctx tokens; target t should follow tokens 0 ... t; -1 is ignored. */
typedef struct qkv_batch {
  int64_t batch, ctx;
  const int32_t* tokens;  /* [batch, ctx] */
  const int32_t* targets; /* [batch, ctx]; not read by qkv_model_logits */
} qkv_batch;

/* logits: a contiguous f32 array [batch, ctx, vocab_size]. */
qkv_status qkv_model_logits(qkv_model* model, const qkv_batch* batch, float* logits, size_t capacity);
/* The mean of -ln p(target), in nats, over the `count` real targets. count may be NULL. */
qkv_status qkv_model_loss(qkv_model* model, const qkv_batch* batch, double* mean, int64_t* count);

/* ---- generation ---- */

typedef struct qkv_generate_options {
  int64_t max_tokens;
  double temperature; /* 0: always the most probable token */
  int64_t top_k;      /* 0: all */
  double top_p, min_p, repeat_penalty;
  uint64_t seed;
  int shift; /* past the context's end the oldest tokens are let go, and the text goes on */
} qkv_generate_options;

void qkv_generate_options_init(qkv_generate_options* options);

typedef int32_t qkv_stop_reason;
enum { QKV_STOP_MAX_TOKENS = 0, QKV_STOP_END_TOKEN = 1, QKV_STOP_CONTEXT_FULL = 2, QKV_STOP_CALLBACK = 3 };

/* Sees each token as it comes; 0 ends the text. */
typedef int (*qkv_on_token)(void* user, int32_t token);

/* Goes on from a prompt. Either of on_token and tokens may be NULL, options too. The first `capacity` new tokens are
 * written to tokens; count, which may be NULL, is how many there were (QKV_TOO_SMALL if that is more than the capacity
 * of tokens that are wanted). reason may be NULL. */
qkv_status qkv_generate(qkv_model* model, const int32_t* prompt, size_t prompt_len, const qkv_generate_options* options,
                        qkv_on_token on_token, void* user, int32_t* tokens, size_t capacity, size_t* count,
                        qkv_stop_reason* reason);

/* ---- training ---- */

typedef struct qkv_trainer qkv_trainer; /* an optimizer and the number of steps done */

typedef struct qkv_train_config {
  int64_t steps; /* of the whole run, which the schedule is made for (a cosine to a tenth of learning_rate) */
  double learning_rate;
  int64_t warmup_steps; /* -1: a twentieth of the steps, at most 500 */
  const char* optimizer; /* "adamw" (also NULL) or "muon"; qkv/optimizer.h has their formulas */
  double weight_decay, beta1, beta2, eps;
  double muon_momentum; /* only for muon */
  double grad_clip; /* the largest norm of all gradients together; 0: no limit */
} qkv_train_config;

void qkv_train_config_init(qkv_train_config* config);

typedef struct qkv_step_report {
  int64_t step; /* from 1 */
  double loss;  /* nats a token, before the update */
  double grad_norm;
  double learning_rate;
  int skipped; /* loss or gradients are not finite: nothing was changed */
} qkv_step_report;

/* The model must stay until the trainer is freed. */
qkv_status qkv_trainer_create(qkv_model* model, const qkv_train_config* config, qkv_trainer** trainer);
/* One step on one batch; all its real targets weigh alike. report may be NULL. */
qkv_status qkv_trainer_step(qkv_trainer* trainer, const qkv_batch* batch, qkv_step_report* report);
void qkv_trainer_free(qkv_trainer* trainer); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif /* QKV_C_H */
