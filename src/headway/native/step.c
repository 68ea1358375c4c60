/* A decoding step as a program: an array of operations on the rows of a batch, one new token each, run in one call.
   Several tokens may follow one another in one row of the KV cache (`owners`): so prompts are read.

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
#define CHUNK 96 /* rows of int8 codes that are multiplied at a time, at most: they stay in the second cache */
#define AHEAD 1024 /* bytes of weights that are fetched before they are needed: 17 to 20 instead of 15 to 18 GB/s */

enum { EMBED, LAYER_NORM, RMS_NORM, LINEAR, LINEAR_INT8, ROTARY, APPEND, ATTEND, ACTIVATE, ADD, SCALE, SELECT };
enum { PLAIN = -1, RELU, GELU, GELU_TANH, QUICK_GELU, SILU, SIGMOID };
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
    const int32_t *offsets;    /* of int8 outputs */
} Op;

typedef struct {
    float *k, *v;
    int64_t k_row, k_head, k_key, v_row, v_head, v_key; /* steps in numbers */
    int32_t keys;           /* of a memory; 0: the cache of this call, which grows */
    int32_t beams;          /* rows that share a row of it */
    const uint8_t *keep;
    int64_t keep_row;
    const int32_t *origins; /* rows x keys: the row in which each earlier token of a row stands; NULL: its own */
    int64_t origin_row;
} Cache;

typedef struct {
    const Op *ops;
    const Cache *caches;
    float *const *registers; /* rows x width each */
    const int64_t *tokens, *positions;
    int64_t rows, slot; /* slot: where the new token stands in the caches; -1: where its position says, row by row */
    int32_t count, threads, set, unused;
    float *weights; /* attention weights: a row of `keys`, a multiple of 16, for each thread */
    int64_t keys;
    uint8_t *codes; /* int8 inputs, rows x widest, up to CHUNK rows */
    float *steps;   /* their scales */
    const int64_t *owners;   /* rows of the caches that the tokens stand in; NULL: each in its own */
    const int64_t *selected; /* rows that SELECT leaves, rising; NULL: all */
    int64_t selections;
} Call;

/* A product of int8: codes of rows, and weights in panels of PANEL outputs, of which four inputs at a time lie side by
   side: panels x depth / 4 x PANEL x 4, padded by zeros. */
#define PANEL 16
typedef struct {
    uint8_t *codes;         /* rows x depth, and their scales */
    float *steps;
    const int8_t *panels;
    const int32_t *offsets; /* -128 times the sum of an output's weights */
    const float *scale, *bias;
    const float *added;     /* rows x outputs that the outputs are added to; NULL: none */
    float *out;
    int64_t rows, inputs, depth, outputs;
    int64_t style; /* an activation of the outputs; PLAIN: none */
} Product;

typedef struct { /* a layer norm, or an RMS norm where not `centred`; weight and bias may be absent */
    const float *weight, *bias;
    float eps;
    int32_t centred;
} Norm;

typedef struct { /* the keys and values that one query of one head sees: first ... last - 1 */
    const float *k, *v; /* of the head, in the query's row; with origins: in row 0 */
    int64_t k_key, v_key, k_row, v_row, first, last;
    const uint8_t *keep;    /* by key; NULL: all are seen */
    const int32_t *origins; /* the row of each key */
    const float *bias;      /* by distance: the key at s has bias[last - 1 - s] */
    float scale;
} Seen;

typedef struct { /* what a panel writes to, and by what its sums are multiplied */
    const int32_t *offsets;
    const float *steps, *scale, *bias;
    float *y;
    int64_t step, ahead;
    const int8_t *next; /* of several panels together: those that follow, fetched in parts, `pace` bytes at a time */
    int64_t pace;
} Panel;

/* Attention of many queries, as those of whole sequences; `headway.native.sequence_attention` writes the same structures. */
typedef struct {
    int64_t q, k, v;  /* where its first tokens are, in numbers */
    int64_t out;      /* its first row of `out` */
    int64_t keep;     /* its first byte of `keep`; -1: all keys are seen */
    int64_t queries, keys;
} Sequence;

typedef struct {
    const float *q, *k, *v;
    float *out; /* tokens x heads x head_dim, dense */
    const uint8_t *keep;
    const Sequence *sequences;
    int64_t count, heads, kv_heads, head_dim;
    int64_t q_token, k_token, v_token, q_head, k_head, v_head; /* steps in numbers */
    float *room;       /* `room_each` numbers for each thread */
    int64_t room_each;
    float scale;       /* above 0 */
    int32_t causal;    /* the query at i sees the keys up to that at i */
} Attention;

/* after(x + last(between(first(before(x))))): a residual sublayer with layers of int8; `headway.native.encoder` writes the
   same structures.  `first` is one layer, with its activation, or queries, keys and values, between which there is
   attention. */
typedef struct {
    const Norm *before, *after; /* NULL: none */
    Product first[3], last;     /* without codes, steps and outputs */
    int64_t count;              /* of `first`; 3: attention */
    float scale;                /* of attention */
    int32_t causal;
} Sublayer;

typedef struct {
    const Sublayer *sublayers;
    int64_t count, rows, width;
    const float *x;     /* rows x width */
    float *out, *other; /* rows x width: the sublayers write to them in turn, the last to `out` */
    float *between;     /* rows x what first layers give, and what attention gives */
    float *row;         /* room for a row that is normed */
    uint8_t *codes;     /* int8 inputs, rows x widest, up to CHUNK rows */
    float *steps;
    const Attention *attention; /* all but q, k, v, out, scale and causal; NULL: no sublayer has any */
} Encoder;

#if defined(__x86_64__)
static inline int32_t four_bytes(const uint8_t *p) {
    int32_t found;
    memcpy(&found, p, sizeof found);
    return found;
}
#endif

typedef struct {
    void (*activate)(float *, const float *, int64_t, int);
    void (*add)(float *, const float *, float, int64_t);
    void (*normalise)(const float *, float *, int64_t, int, float, const float *, const float *);
    void (*linear_by_output)(const float *, int64_t, int64_t, const float *, int64_t, const float *, float *, int64_t,
                             int64_t, int64_t);
    void (*linear_by_input)(const float *, int64_t, int64_t, const float *, int64_t, const float *, float *, int64_t,
                            int64_t, int64_t);
    float (*quantise)(const float *, uint8_t *, int64_t);
    void (*linear_int8)(const Product *, int64_t, int64_t);
    void (*attend)(const float *, const Seen *, int64_t, float *, float *);
    void (*attend_sequence)(const Attention *, const Sequence *, int64_t, float *);
} Kernels;

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif

#define SET portable
#define TARGET
#define LANES 4
#define EVENS 0, 2, 4, 6
#define ODDS 1, 3, 5, 7
#define LARGER(a, b) (NAME(pick)((a) > (b), a, b))
#define SMALLER(a, b) (NAME(pick)((a) < (b), a, b))
#define UNSIGNED8 0
#define ROWS8 6
#define PANELS8 1
#define ROWS32 6
#if defined(__aarch64__)
#define bytes8 int8x16_t
#define SPREAD8(p) vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(p)))
#define DOT8(sums, w, x) dot8_neon(sums, vld1q_s8(w), x)
#define ROUNDED(v) __asm__("" : "+w"(v))
/* |w x| < 2^14, and two of them are added in 32 bits: nothing saturates */
static inline int32x4_t dot8_neon(int32x4_t sums, int8x16_t w, int8x16_t x) {
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
    return vaddq_s32(sums, vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(w, x))));
}
#else
#define bytes8 const uint8_t *
#define SPREAD8(p) (p)
#define DOT8(sums, w, x) dot8_plain(sums, w, (const int8_t *)(x))
#define ROUNDED(v) (void)0
typedef int32_t plain8 __attribute__((vector_size(16), aligned(4), may_alias));
static inline plain8 dot8_plain(plain8 sums, const int8_t *w, const int8_t *x) {
    for (int i = 0; i < 4; i++) sums[i] += w[4 * i] * x[0] + w[4 * i + 1] * x[1] + w[4 * i + 2] * x[2] + w[4 * i + 3] * x[3];
    return sums;
}
#endif
#include "kernels.h"

#if defined(__x86_64__)
/* two neighbouring weights of like sign are at most 128 together (ops/int8.py), so that a pair of products is at most
   255 * 128 = 32640, which int16 holds */
#define SET avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15
#define LARGER(a, b) ((vec)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define SMALLER(a, b) ((vec)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define UNSIGNED8 1
#define ROWS8 6
#define PANELS8 1
#define ROWS32 6
#define bytes8 __m256i
#define SPREAD8(p) _mm256_set1_epi32(four_bytes(p))
#define DOT8(sums, w, x)                                                                                   \
    ((sums) + (ivec)_mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_loadu_si256((const __m256i *)(w))),   \
                                      _mm256_set1_epi16(1)))
#define ROUNDED(v) __asm__("" : "+x"(v))
#include "kernels.h"

#define SET avx512
#define TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))
#define LANES 16
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LARGER(a, b) ((vec)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define SMALLER(a, b) ((vec)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define UNSIGNED8 1
#define ROWS8 12
#define PANELS8 2
#define ROWS32 12
#define bytes8 __m512i
#define SPREAD8(p) _mm512_set1_epi32(four_bytes(p))
#define DOT8(sums, w, x) ((ivec)_mm512_dpbusd_epi32((__m512i)(sums), x, _mm512_loadu_si512(w)))
#define ROUNDED(v) __asm__("" : "+v"(v))
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
    const Product *product;
} Int8Job;

static void multiply_int8(void *given, int part, int parts) {
    const Int8Job *job = given;
    int64_t first, last;
    share(job->product->outputs, part, parts, &first, &last);
    job->kernels->linear_int8(job->product, first / PANEL, (last + PANEL - 1) / PANEL);
}

/* x (rows x inputs), or its norm, to the outputs of `count` products of the same codes, some rows at a time, whose codes
   stay in the cache: even parts, since few rows take as long to read the weights for as many. */
static void run_products(const Product *products, int64_t count, const Kernels *kernels, const float *x, int64_t rows,
                         const Norm *norm, float *normed, int threads) {
    const int64_t inputs = products->inputs, depth = (inputs + 3) / 4 * 4, chunks = (rows + CHUNK - 1) / CHUNK;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t first = rows * chunk / chunks, many = rows * (chunk + 1) / chunks - first;
        for (int64_t b = 0; b < many; b++) {
            const float *row = x + (first + b) * inputs;
            uint8_t *codes = products->codes + b * depth;
            if (norm) kernels->normalise(row, normed, inputs, norm->centred, norm->eps, norm->weight, norm->bias);
            products->steps[b] = kernels->quantise(norm ? normed : row, codes, inputs);
            memset(codes + inputs, 0, (size_t)(depth - inputs));
        }
        for (int64_t i = 0; i < count; i++) {
            Product one = products[i];
            one.rows = many, one.depth = depth, one.out += first * one.outputs;
            if (one.added) one.added += first * one.outputs;
            Int8Job job = {kernels, &one};
            spread(multiply_int8, &job, parts_for(many * inputs * one.outputs, threads));
        }
    }
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

/* The row of a cache that a token stands in. */
static int64_t owner_of(const Call *call, const Cache *cache, int64_t row) {
    return call->owners ? call->owners[row] : row / cache->beams;
}

static int64_t slot_of(const Call *call, int64_t row) { return call->slot < 0 ? call->positions[row] : call->slot; }

static void append(const Op *op, const Call *call) {
    const Cache *cache = call->caches + op->cache;
    const float *k = call->registers[op->source], *v = call->registers[op->second];
    for (int64_t b = 0; b < call->rows; b++)
        for (int h = 0; h < op->kv_heads; h++) {
            int64_t from = (b * op->kv_heads + h) * op->head_dim;
            int64_t slot = slot_of(call, b), owner = owner_of(call, cache, b);
            memcpy(cache->k + owner * cache->k_row + h * cache->k_head + slot * cache->k_key, k + from,
                   (size_t)op->head_dim * sizeof(float));
            memcpy(cache->v + owner * cache->v_row + h * cache->v_head + slot * cache->v_key, v + from,
                   (size_t)op->head_dim * sizeof(float));
        }
}

/* What the query of a token sees by a head. */
static Seen seen_by(const Op *op, const Call *call, const Cache *cache, int64_t b, int64_t h) {
    int64_t last = cache->keys ? cache->keys : slot_of(call, b) + 1, group = h / (op->heads / op->kv_heads);
    int64_t first = op->window && op->window < last ? last - op->window : 0;
    int64_t owner = owner_of(call, cache, b), row = cache->origins ? 0 : owner;
    const uint8_t *keep = cache->keep ? cache->keep + owner * cache->keep_row : NULL;
    while (keep && first < last && !keep[first]) first++; /* padding is not read */
    while (keep && first < last && !keep[last - 1] && !op->bias) last--;
    return (Seen){cache->k + row * cache->k_row + group * cache->k_head, cache->v + row * cache->v_row + group * cache->v_head,
                  cache->k_key, cache->v_key, cache->k_row, cache->v_row, first, last, keep,
                  cache->origins ? cache->origins + owner * cache->origin_row : NULL,
                  op->bias ? op->bias + h * op->row : NULL, op->number};
}

/* Tokens of one row read the same keys: head by head they are in the first cache.  Rows are read one after the other. */
static void attend(void *given, int part, int parts) {
    const Job *job = given;
    const Op *op = job->op;
    const Call *call = job->call;
    const Cache *cache = call->caches + op->cache;
    int64_t one = 0;
    for (int64_t start = 0, end = 0; start < call->rows; start = end) {
        for (end = start + 1; end < call->rows && owner_of(call, cache, end) == owner_of(call, cache, start);) end++;
        for (int64_t h = 0; h < op->heads; h++)
            for (int64_t b = start; b < end; b++) {
                if (one++ % parts != part) continue;
                Seen seen = seen_by(op, call, cache, b, h);
                int64_t at = (b * op->heads + h) * op->head_dim;
                job->kernels->attend(call->registers[op->source] + at, &seen, op->head_dim, call->weights + part * call->keys,
                                     call->registers[op->target] + at);
            }
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
        Product one = {call->codes, call->steps, op->weight, op->offsets, op->scale, op->bias, NULL, out, 0, op->inputs, 0, width, PLAIN};
        run_products(&one, 1, kernels, in, rows, NULL, NULL, threads);
        break;
    }
    case ROTARY: rotate(op, call); break;
    case APPEND: append(op, call); break;
    case ATTEND: {
        const Cache *cache = call->caches + op->cache;
        int64_t keys = 0;
        for (int64_t b = 0; b < rows; b++) keys += cache->keys ? cache->keys : slot_of(call, b) + 1;
        spread(attend, &job, parts_for(keys * op->heads * op->head_dim, threads));
        break;
    }
    case ACTIVATE: kernels->activate(in, op->second < 0 ? NULL : call->registers[op->second], rows * width, op->style); break;
    case ADD: kernels->add(out, in, op->number, rows * width); break;
    case SCALE:
        for (int64_t b = 0; b < rows; b++) /* some columns of the source, from `column` on */
            for (int64_t i = 0; i < width; i++) out[b * width + i] = in[b * op->inputs + op->column + i] * op->number;
        break;
    case SELECT:
        for (int64_t b = 0; b < call->selections; b++)
            memmove(out + b * width, in + call->selected[b] * width, (size_t)width * sizeof(float));
        break;
    }
}

/* Runs a program; nonzero: a token or a position lies outside its table, and nothing was done. */
EXPORT int headway_step(const Call *call, int64_t vocab, int64_t positions) {
    for (int64_t b = 0; b < call->rows; b++)
        if (call->tokens[b] < 0 || call->tokens[b] >= vocab || call->positions[b] < 0 || call->positions[b] >= positions)
            return 1;
    int threads = take_threads(call->threads);
    Call now = *call;
    for (int32_t i = 0; i < call->count; i++) {
        if (call->ops[i].kind == SELECT && !call->selected) continue;
        run(call->ops + i, &now, SETS[call->set].kernels, threads);
        if (call->ops[i].kind == SELECT) now.rows = call->selections;
    }
    if (threads > 1) pthread_mutex_unlock(&pool.owner);
    return 0;
}

/* Arranges weights (outputs x inputs) in panels; see Product.  Nonzero: two neighbours of like sign are more than 128
   together, and the panels must not be used. */
EXPORT int headway_pack_int8(int64_t outputs, int64_t inputs, const int8_t *weight, int8_t *panels, int32_t *offsets) {
    int64_t depth = (inputs + 3) / 4 * 4;
    int beyond = 0;
    for (int64_t n = 0; n < (outputs + PANEL - 1) / PANEL * PANEL; n++) {
        const int8_t *w = weight + n * inputs;
        int8_t *to = panels + n / PANEL * PANEL * depth + n % PANEL * 4;
        int32_t total = 0;
        for (int64_t k = 0; k < depth; k += 4, to += 4 * PANEL) {
            int8_t four[4] = {0};
            if (n < outputs) memcpy(four, w + k, (size_t)(inputs - k < 4 ? inputs - k : 4));
            int low = four[0] + four[1], high = four[2] + four[3];
            beyond |= low > 128 || low < -128 || high > 128 || high < -128;
            total += low + high;
            memcpy(to, four, 4);
        }
        offsets[n] = -128 * total;
    }
    return beyond;
}

/* The product of a layer of int8 by itself: x (rows x inputs) to out (rows x outputs); see LINEAR_INT8. */
EXPORT void headway_linear_int8(const float *x, int64_t rows, int64_t inputs, int64_t outputs, const int8_t *panels,
                                const int32_t *offsets, const float *scale, const float *bias, float *out,
                                uint8_t *codes, float *steps, int style, int threads, int set) {
    Product one = {codes, steps, panels, offsets, scale, bias, NULL, out, 0, inputs, 0, outputs, style};
    threads = take_threads(threads);
    run_products(&one, 1, SETS[set].kernels, x, rows, NULL, NULL, threads);
    if (threads > 1) pthread_mutex_unlock(&pool.owner);
}

typedef struct {
    const Kernels *kernels;
    const Attention *attention;
} AttentionJob;

static void attend_sequences(void *given, int part, int parts) {
    const AttentionJob *job = given;
    const Attention *all = job->attention;
    for (int64_t one = part; one < all->count * all->heads; one += parts)
        job->kernels->attend_sequence(all, all->sequences + one / all->heads, one % all->heads, all->room + part * all->room_each);
}

static void attend_all(const Attention *all, const Kernels *kernels, int threads) {
    AttentionJob job = {kernels, all};
    int64_t work = 0;
    for (int64_t i = 0; i < all->count; i++) work += all->sequences[i].queries * all->sequences[i].keys;
    spread(attend_sequences, &job, parts_for(work * all->heads * all->head_dim, threads));
}

/* Attention of whole sequences; each has a query and a key. */
EXPORT void headway_attend(const Attention *all, int threads, int set) {
    threads = take_threads(threads);
    attend_all(all, SETS[set].kernels, threads);
    if (threads > 1) pthread_mutex_unlock(&pool.owner);
}

/* One sublayer: x to out. */
static void run_sublayer(const Sublayer *of, const Encoder *all, const float *x, float *out, const Kernels *kernels, int threads) {
    Product first[3], last = of->last;
    float *to = all->between;
    const float *seen = to;
    for (int64_t i = 0; i < of->count; to += all->rows * first[i].outputs, i++) {
        first[i] = of->first[i];
        first[i].codes = all->codes, first[i].steps = all->steps, first[i].out = to;
    }
    run_products(first, of->count, kernels, x, all->rows, of->before, all->row, threads);
    if (of->count == 3) {
        Attention attention = *all->attention;
        attention.q = first[0].out, attention.k = first[1].out, attention.v = first[2].out, attention.out = to;
        attention.scale = of->scale, attention.causal = of->causal;
        attend_all(&attention, kernels, threads);
        seen = to;
    }
    last.codes = all->codes, last.steps = all->steps, last.out = out, last.added = x;
    run_products(&last, 1, kernels, seen, all->rows, NULL, NULL, threads);
    for (int64_t b = 0; b < all->rows && of->after; b++)
        kernels->normalise(out + b * all->width, out + b * all->width, all->width, of->after->centred, of->after->eps,
                           of->after->weight, of->after->bias);
}

/* Residual sublayers in turn. */
EXPORT void headway_encode(const Encoder *all, int threads, int set) {
    const float *x = all->x;
    threads = take_threads(threads);
    for (int64_t i = 0; i < all->count; i++) {
        float *out = (all->count - i) % 2 ? all->out : all->other;
        run_sublayer(all->sublayers + i, all, x, out, SETS[set].kernels, threads);
        x = out;
    }
    if (threads > 1) pthread_mutex_unlock(&pool.owner);
}
