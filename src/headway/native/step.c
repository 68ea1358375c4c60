/* A decoding step as a program: an array of operations on the rows of a batch, one new token each, run in one call.

   Plain C with GNU vectors; nothing of Python or torch.  `headway.generate.step_program` writes the same structures from
   Python, and is their documentation; what each operation computes is defined by the parts of headway.nn.  Memory
   belongs to the caller.  The instruction set is chosen at run time, `set` in the call. */

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef FINGERPRINT
#define FINGERPRINT "unknown"
#endif
#define EXPORT __attribute__((visibility("default")))
#define MAX_THREADS 64
#define AHEAD 1024 /* bytes of weights that are fetched before they are needed: 17 to 20 instead of 15 to 18 GB/s */

enum { EMBED, LAYER_NORM, RMS_NORM, LINEAR, LINEAR_INT8, ROTARY, APPEND, ATTEND, ACTIVATE, ADD, SCALE };
enum { RELU, GELU, GELU_TANH, QUICK_GELU, SILU, SIGMOID };
enum { HALVES, PAIRS };

typedef struct {
    int32_t kind;
    int32_t source, target, second; /* registers; second: a gate's other half, or values; -1: none */
    int32_t inputs, outputs; /* widths of rows */
    int32_t heads, kv_heads, head_dim;
    int32_t cache;  /* which keys and values */
    int32_t window; /* keys that a query sees; 0: all */
    int32_t style;  /* an activation, or a layout of rotary pairs */
    float number;   /* eps, factor or scale */
    int32_t turned; /* dims of a head that rotary turns */
    int64_t row, column; /* steps of the weights in numbers: to the next output or token, and to the next input */
    const void *weight;
    const float *bias, *scale; /* scale: of int8 outputs; sines of rotary; positions of an embedding */
} Op;

typedef struct {
    float *k, *v;
    int64_t k_row, k_head, k_key, v_row, v_head, v_key; /* steps in numbers */
    int32_t keys;           /* of a memory; 0: the cache of this call, which grows */
    int32_t beams;          /* rows that share a row of it */
    const uint8_t *keep;
    int64_t keep_row;
} Cache;

typedef struct {
    const Op *ops;
    const Cache *caches;
    float *const *registers; /* rows x width each */
    const int64_t *tokens, *positions;
    int64_t rows, slot; /* slot: where the new token stands in the caches */
    int32_t count, threads, set, unused;
    float *weights; /* attention weights: a row of `keys` for each thread */
    int64_t keys;
    int8_t *codes; /* int8 inputs, rows x widest */
    float *steps;  /* their scales, rows */
    int32_t *sums; /* rows x widest output of int8 */
} Call;

typedef struct {
    void (*activate)(float *, const float *, int64_t, int);
    void (*add)(float *, const float *, float, int64_t);
    void (*normalise)(const float *, float *, int64_t, int, float, const float *, const float *);
    void (*linear_by_output)(const float *, int64_t, int64_t, const float *, int64_t, const float *, float *, int64_t,
                             int64_t, int64_t);
    void (*linear_by_input)(const float *, int64_t, int64_t, const float *, int64_t, const float *, float *, int64_t,
                            int64_t, int64_t);
    float (*quantise)(const float *, int8_t *, int64_t);
    void (*linear_int8)(const int8_t *, int64_t, int64_t, const int8_t *, int32_t *, int64_t, int64_t, int64_t);
    void (*attend)(const float *, const float *, int64_t, const float *, int64_t, int64_t, int64_t, int64_t, float,
                   const uint8_t *, const float *, float *, float *);
} Kernels;

#define SET portable
#define TARGET
#define LANES 4
#if defined(__aarch64__)
typedef int8x16_t bytes8;
typedef int32x4_t sums8;
#define BYTES 16
#define LOAD8(p) vld1q_s8(p)
/* |w x| < 2^14, and two of them are added in 32 bits: nothing saturates */
#define DOT8(sums, w, x)                                                             \
    vpadalq_s16(vpadalq_s16(sums, vmull_s8(vget_low_s8(w), vget_low_s8(x))),         \
                vmull_high_s8(w, x))
#endif
#include "kernels.h"

#if defined(__x86_64__)
typedef __m256i bytes8;
typedef __m256i sums8;
#define BYTES 32

/* |w| <= 128 is unsigned and x with the sign of w is at most 127: a pair is at most 32512, which int16 holds */
#define SET avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define LOAD8(p) _mm256_loadu_si256((const __m256i *)(p))
#define DOT8(sums, w, x)                                                                                       \
    _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), \
                                             _mm256_set1_epi16(1)))
#include "kernels.h"

#define SET avx512
#define TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))
#define LANES 16
#define LOAD8(p) _mm256_loadu_si256((const __m256i *)(p))
#define DOT8(sums, w, x) _mm256_dpbusd_epi32(sums, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
#include "kernels.h"
#endif

typedef struct {
    const char *name;
    const Kernels *kernels;
} InstructionSet;

/* The sets that this library was built with, the best last. */
static const InstructionSet SETS[] = {
#if defined(__aarch64__)
    {"neon", &kernels_portable},
#else
    {"portable", &kernels_portable},
#endif
#if defined(__x86_64__)
    {"avx2", &kernels_avx2},
    {"avx512", &kernels_avx512},
#endif
};

EXPORT const char *headway_fingerprint(void) { return FINGERPRINT; }

EXPORT int headway_sets(void) { return (int)(sizeof SETS / sizeof SETS[0]); }

EXPORT const char *headway_set_name(int set) { return SETS[set].name; }

/* Whether this processor has the instructions of a set. */
EXPORT int headway_runs(int set) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (set == 1) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (set == 2)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && headway_runs(1);
#endif
    return set == 0;
}

/* Threads: the caller is one of them.  Those that wait look for work a few microseconds long and then sleep, so that a
   busy machine is not kept busier.  One call at a time has them; another runs alone meanwhile. */

typedef void (*Work)(void *given, int part, int parts);

static struct {
    pthread_mutex_t owner, lock;
    pthread_cond_t begin, end;
    Work work;
    void *given;
    int parts, workers, running;
    unsigned round;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER,
          NULL, NULL, 0, 0, 0, 0};

#define LOOKS 2000

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void *wait_for_work(void *given) {
    int part = (int)(intptr_t)given;
    unsigned seen = 0;
    for (;;) {
        for (int i = 0; i < LOOKS && __atomic_load_n(&pool.round, __ATOMIC_ACQUIRE) == seen; i++) pause_briefly();
        pthread_mutex_lock(&pool.lock);
        while (pool.round == seen) pthread_cond_wait(&pool.begin, &pool.lock);
        seen = pool.round;
        int parts = pool.parts;
        Work work = pool.work;
        void *what = pool.given;
        pthread_mutex_unlock(&pool.lock);
        if (part < parts) {
            work(what, part, parts);
            pthread_mutex_lock(&pool.lock);
            if (__atomic_sub_fetch(&pool.running, 1, __ATOMIC_RELEASE) == 0) pthread_cond_signal(&pool.end);
            pthread_mutex_unlock(&pool.lock);
        }
    }
    return NULL;
}

/* A forked process has none of the threads. */
static void forget_threads(void) {
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.begin, NULL);
    pthread_cond_init(&pool.end, NULL);
    pool.workers = pool.running = pool.parts = 0;
    pool.round = 0;
}

/* As many threads as there are, up to `wanted`, with the caller. */
static int take_threads(int wanted) {
    static int prepared = 0;
    if (wanted < 2 || pthread_mutex_trylock(&pool.owner)) return 1;
    if (!prepared) pthread_atfork(NULL, NULL, forget_threads);
    prepared = 1;
    if (wanted > MAX_THREADS) wanted = MAX_THREADS;
    while (pool.workers < wanted - 1) {
        pthread_t thread;
        if (pool.round) { /* a new thread must not take the last round for its own */
            pthread_mutex_lock(&pool.lock);
            pool.parts = 0;
            pthread_mutex_unlock(&pool.lock);
        }
        if (pthread_create(&thread, NULL, wait_for_work, (void *)(intptr_t)(pool.workers + 1))) break;
        pthread_detach(thread);
        pool.workers++;
    }
    if (pool.workers == 0) pthread_mutex_unlock(&pool.owner);
    return pool.workers + 1 < wanted ? pool.workers + 1 : wanted;
}

static void spread(Work work, void *given, int parts) {
    if (parts < 2) {
        work(given, 0, 1);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    pool.work = work, pool.given = given, pool.parts = parts, pool.running = parts - 1;
    __atomic_add_fetch(&pool.round, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&pool.begin);
    pthread_mutex_unlock(&pool.lock);
    work(given, 0, parts);
    for (int i = 0; i < LOOKS && __atomic_load_n(&pool.running, __ATOMIC_ACQUIRE); i++) pause_briefly();
    pthread_mutex_lock(&pool.lock);
    while (pool.running) pthread_cond_wait(&pool.end, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* The operations.  Each is given its part of the work, where it can be divided. */

typedef struct {
    const Op *op;
    const Call *call;
    const Kernels *kernels;
} Job;

#define SMALL 32768 /* weights or keys that one thread is faster with than two */

static int parts_for(int64_t work, int threads) { return work < SMALL ? 1 : threads; }

/* Part `part` of `count` things, in multiples of 16. */
static void share(int64_t count, int part, int parts, int64_t *first, int64_t *last) {
    int64_t each = ((count + parts - 1) / parts + 15) / 16 * 16;
    *first = each * part < count ? each * part : count;
    *last = *first + each < count ? *first + each : count;
}

static void linear(void *given, int part, int parts) {
    const Job *job = given;
    const Op *op = job->op;
    int64_t first, last;
    share(op->outputs, part, parts, &first, &last);
    (op->column == 1 ? job->kernels->linear_by_output : job->kernels->linear_by_input)(
        job->call->registers[op->source], job->call->rows, op->inputs, op->weight, op->column == 1 ? op->row : op->column,
        op->bias, job->call->registers[op->target], op->outputs, first, last);
}

typedef struct {
    const Kernels *kernels;
    const int8_t *codes, *weight;
    const float *steps, *scale, *bias;
    int64_t rows, inputs, outputs;
    int32_t *sums;
    float *out;
} Product;

/* Scaled here and not in the kernels, so that all instruction sets round alike. */
static void multiply_int8(void *given, int part, int parts) {
    const Product *one = given;
    int64_t first, last;
    share(one->outputs, part, parts, &first, &last);
    one->kernels->linear_int8(one->codes, one->rows, one->inputs, one->weight, one->sums, one->outputs, first, last);
    for (int64_t b = 0; b < one->rows; b++)
        for (int64_t n = first; n < last; n++) {
            float y = (float)one->sums[b * one->outputs + n] * one->scale[n] * one->steps[b];
            one->out[b * one->outputs + n] = one->bias ? y + one->bias[n] : y;
        }
}

static void run_product(Product *one, const float *x, int8_t *codes, float *steps, int threads) {
    for (int64_t b = 0; b < one->rows; b++)
        steps[b] = one->kernels->quantise(x + b * one->inputs, codes + b * one->inputs, one->inputs);
    one->codes = codes, one->steps = steps;
    spread(multiply_int8, one, parts_for(one->inputs * one->outputs, threads));
}

static void rotate(const Op *op, const Call *call) {
    int half = op->turned / 2;
    int apart = op->style == HALVES ? half : 1, next = op->style == HALVES ? 1 : 2;
    for (int64_t b = 0; b < call->rows; b++) {
        const float *cosines = (const float *)op->weight + call->positions[b] * half;
        const float *sines = op->scale + call->positions[b] * half;
        for (int h = 0; h < op->heads; h++) {
            float *x = call->registers[op->source] + (b * op->heads + h) * op->head_dim;
            for (int i = 0; i < half; i++) {
                float p = x[i * next], q = x[i * next + apart];
                x[i * next] = p * cosines[i] - q * sines[i];
                x[i * next + apart] = q * cosines[i] + p * sines[i];
            }
        }
    }
}

static void append(const Op *op, const Call *call) {
    const Cache *cache = call->caches + op->cache;
    const float *k = call->registers[op->source], *v = call->registers[op->second];
    for (int64_t b = 0; b < call->rows; b++)
        for (int h = 0; h < op->kv_heads; h++) {
            int64_t from = (b * op->kv_heads + h) * op->head_dim;
            memcpy(cache->k + b * cache->k_row + h * cache->k_head + call->slot * cache->k_key, k + from,
                   (size_t)op->head_dim * sizeof(float));
            memcpy(cache->v + b * cache->v_row + h * cache->v_head + call->slot * cache->v_key, v + from,
                   (size_t)op->head_dim * sizeof(float));
        }
}

static void attend(void *given, int part, int parts) {
    const Job *job = given;
    const Op *op = job->op;
    const Call *call = job->call;
    const Cache *cache = call->caches + op->cache;
    int64_t last = cache->keys ? cache->keys : call->slot + 1;
    int64_t first = op->window && op->window < last ? last - op->window : 0;
    for (int64_t one = part; one < call->rows * op->heads; one += parts) {
        int64_t b = one / op->heads, h = one % op->heads;
        int64_t memory = b / cache->beams, group = h / (op->heads / op->kv_heads);
        job->kernels->attend(call->registers[op->source] + one * op->head_dim,
                             cache->k + memory * cache->k_row + group * cache->k_head, cache->k_key,
                             cache->v + memory * cache->v_row + group * cache->v_head, cache->v_key, op->head_dim,
                             first, last, op->number,
                             cache->keep ? cache->keep + memory * cache->keep_row : NULL,
                             op->bias ? op->bias + h * op->row : NULL, call->weights + part * call->keys,
                             call->registers[op->target] + one * op->head_dim);
    }
}

static void embed(const Op *op, const Call *call) {
    for (int64_t b = 0; b < call->rows; b++) {
        const float *token = (const float *)op->weight + call->tokens[b] * op->row;
        const float *position = op->scale ? op->scale + call->positions[b] * op->outputs : NULL;
        float *x = call->registers[op->target] + b * op->outputs;
        for (int i = 0; i < op->outputs; i++) {
            float scaled = token[i * op->column] * op->number;
            x[i] = position ? scaled + position[i] : scaled;
        }
    }
}

static void run(const Op *op, const Call *call, const Kernels *kernels, int threads) {
    Job job = {op, call, kernels};
    int64_t rows = call->rows, width = op->outputs;
    float *in = op->source < 0 ? NULL : call->registers[op->source], *out = op->target < 0 ? NULL : call->registers[op->target];
    switch (op->kind) {
    case EMBED: embed(op, call); break;
    case LAYER_NORM:
    case RMS_NORM:
        for (int64_t b = 0; b < rows * op->heads; b++)
            kernels->normalise(in + b * width, out + b * width, width, op->kind == LAYER_NORM, op->number, op->weight,
                               op->bias);
        break;
    case LINEAR: spread(linear, &job, parts_for((int64_t)op->inputs * width, threads)); break;
    case LINEAR_INT8: {
        Product one = {kernels, NULL, op->weight, NULL, op->scale, op->bias, rows, op->inputs, width, call->sums, out};
        run_product(&one, in, call->codes, call->steps, threads);
        break;
    }
    case ROTARY: rotate(op, call); break;
    case APPEND: append(op, call); break;
    case ATTEND: {
        const Cache *cache = call->caches + op->cache;
        int64_t keys = cache->keys ? cache->keys : call->slot + 1;
        spread(attend, &job, parts_for(rows * op->heads * keys * op->head_dim, threads));
        break;
    }
    case ACTIVATE: kernels->activate(in, op->second < 0 ? NULL : call->registers[op->second], rows * width, op->style); break;
    case ADD: kernels->add(out, in, op->number, rows * width); break;
    case SCALE:
        for (int64_t b = 0; b < rows; b++) /* some columns of the source, from `column` on */
            for (int64_t i = 0; i < width; i++) out[b * width + i] = in[b * op->inputs + op->column + i] * op->number;
        break;
    }
}

/* Runs a program; nonzero: a token or a position lies outside its table, and nothing was done. */
EXPORT int headway_step(const Call *call, int64_t vocab, int64_t positions) {
    for (int64_t b = 0; b < call->rows; b++)
        if (call->tokens[b] < 0 || call->tokens[b] >= vocab || call->positions[b] < 0 || call->positions[b] >= positions)
            return 1;
    int threads = take_threads(call->threads);
    for (int32_t i = 0; i < call->count; i++) run(call->ops + i, call, SETS[call->set].kernels, threads);
    if (threads > 1) pthread_mutex_unlock(&pool.owner);
    return 0;
}

/* The product of a layer of int8 by itself: x (rows x inputs) to out (rows x outputs); see LINEAR_INT8. */
EXPORT void headway_linear_int8(const float *x, int64_t rows, int64_t inputs, int64_t outputs, const int8_t *weight,
                                const float *scale, const float *bias, float *out, int8_t *codes, float *steps,
                                int32_t *sums, int threads, int set) {
    Product one = {SETS[set].kernels, NULL, weight, NULL, scale, bias, rows, inputs, outputs, sums, out};
    threads = take_threads(threads);
    run_product(&one, x, codes, steps, threads);
    if (threads > 1) pthread_mutex_unlock(&pool.owner);
}
