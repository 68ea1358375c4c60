/* The kernels of a decoding step, written once in GNU C vectors and included once for each instruction set:

     SET      suffix of all names below
     TARGET   attribute that lets the compiler use the set
     LANES    float32 numbers in a vector; EVENS, ODDS: every other one of two vectors
     LARGER(a, b), SMALLER(a, b)  of the numbers of two vectors; b where one of them is NaN
     DOT8(sums, w, x)  adds to LANES int32 sums the products of four weights of each at w and four codes: x, made of
                       their address by SPREAD8, of type bytes8
     PANELS8           panels of int8 weights that are read together
     UNSIGNED8         whether codes are to be 128 more than they stand for
     ROWS8, ROWS32     rows whose sums fit the registers, of int8 and of float32
     ROUNDED(v)        keeps the compiler from fusing the product v with a sum

   Products of int8 are exact integers, so that every set gives the same bits; float32 sums differ by their order.

   Letters:  B rows   C inputs   N outputs   H heads   D head width   S keys */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(x) JOIN(x, SET)
#define vec NAME(vec_type)
#define ivec NAME(ivec_type)
#define cvec NAME(cvec_type)

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint8_t cvec __attribute__((vector_size(LANES), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline)) TARGET
#define LOAD(p) (*(const vec *)(p))
#define STORE(p, v) (*(vec *)(p) = (v))
#define SHIFT 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer, ties to even, which the last bits then hold */

INLINE vec NAME(all)(float x) { return (vec){0} + x; }

INLINE float NAME(sum)(vec v) {
    float part[LANES];
    STORE(part, v);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

/* The sum of each of LANES vectors; they are overwritten. */
INLINE vec NAME(sum_each)(vec *v) {
    for (int many = LANES; many > 1; many /= 2)
        for (int i = 0; i < many / 2; i++) {
            vec a = v[2 * i], b = v[2 * i + 1];
            v[i] = SHUFFLE(a, b, EVENS) + SHUFFLE(a, b, ODDS);
        }
    return v[0];
}

INLINE vec NAME(pick)(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }

/* e^x to about 2 ulp; 0 below -87, where float32 has no full precision left; NaN stays. */
INLINE vec NAME(exponential)(vec x) {
    vec top = NAME(all)(88.0f), bottom = NAME(all)(-87.0f), t, n, r, p;
    ivec low = x < bottom, power;
    x = SMALLER(top, x);
    x = LARGER(bottom, x);
    t = x * 1.44269504f + SHIFT;
    n = t - SHIFT;
    r = x - n * 0.693359375f + n * 2.12194440e-4f; /* ln 2 in two parts, the first of few bits */
    p = NAME(all)(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    power = ((ivec)t - (ivec)NAME(all)(SHIFT) + 127) << 23;
    return (vec)((ivec)(p * (vec)power) & ~low);
}

INLINE vec NAME(sigmoid)(vec x) { return 1.0f / (1.0f + NAME(exponential)(-x)); }

/* erf as x P(x^2) / Q(x^2), the quotient of Eigen and XLA, to about 4 ulp. */
INLINE vec NAME(error_function)(vec x) {
    vec four = NAME(all)(4.0f), less = -four, s, p, q;
    x = SMALLER(four, x);
    x = LARGER(less, x);
    s = x * x;
    p = NAME(all)(-2.72614225801306e-10f);
    p = p * s + 2.77068142495902e-08f;
    p = p * s + -2.10102402082508e-06f;
    p = p * s + -5.69250639462346e-05f;
    p = p * s + -7.34990630326855e-04f;
    p = p * s + -2.95459980854025e-03f;
    p = p * s + -1.60960333262415e-02f;
    q = NAME(all)(-1.45660718464996e-05f);
    q = q * s + -2.13374055278905e-04f;
    q = q * s + -1.68282697438203e-03f;
    q = q * s + -7.37332916720468e-03f;
    q = q * s + -1.42647390514189e-02f;
    return x * p / q;
}

INLINE vec NAME(activated)(vec x, int style) {
    const vec zero = {0};
    switch (style) {
    case GELU: return 0.5f * x * (1.0f + NAME(error_function)(x * 0.70710678f));
    /* (1 + tanh(u)) / 2 = sigmoid(2 u) */
    case GELU_TANH: return x * NAME(sigmoid)(1.59576912f * (x + 0.044715f * x * x * x));
    case QUICK_GELU: return x * NAME(sigmoid)(1.702f * x);
    case SILU: return x * NAME(sigmoid)(x);
    case SIGMOID: return NAME(sigmoid)(x);
    default: return LARGER(zero, x); /* RELU */
    }
}

/* x = act(x), or act(x) * up where `up` is given. */
TARGET static void NAME(activate)(float *x, const float *up, int64_t count, int style) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec y = NAME(activated)(LOAD(x + i), style);
        if (up) y = y * LOAD(up + i);
        STORE(x + i, y);
    }
    for (; i < count; i++) {
        float y = NAME(activated)(NAME(all)(x[i]), style)[0];
        x[i] = up ? y * up[i] : y;
    }
}

/* a b; `ahead` of b those numbers are fetched that come next. */
INLINE float NAME(dot)(const float *a, const float *b, int64_t count, int64_t ahead) {
    vec first = {0}, second = {0};
    int64_t i = 0;
    float rest = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        __builtin_prefetch(b + ahead + i);
        first += LOAD(a + i) * LOAD(b + i);
        second += LOAD(a + i + LANES) * LOAD(b + i + LANES);
    }
    for (; i + LANES <= count; i += LANES) first += LOAD(a + i) * LOAD(b + i);
    for (; i < count; i++) rest += a[i] * b[i];
    return NAME(sum)(first + second) + rest;
}

/* y += factor * x */
INLINE void NAME(add)(float *y, const float *x, float factor, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) STORE(y + i, LOAD(y + i) + factor * LOAD(x + i));
    for (; i < count; i++) y[i] += factor * x[i];
}

TARGET static void NAME(add_rows)(float *y, const float *x, float factor, int64_t count) {
    NAME(add)(y, x, factor, count);
}

/* Layer norm, or RMS norm where not `centred`; weight and bias may be absent. */
TARGET static void NAME(normalise)(const float *x, float *y, int64_t width, int centred, float eps,
                                   const float *weight, const float *bias) {
    vec part = {0};
    float mean = 0, square = 0;
    int64_t i = 0;
    if (centred) {
        for (; i + LANES <= width; i += LANES) part += LOAD(x + i);
        for (; i < width; i++) mean += x[i];
        mean = (mean + NAME(sum)(part)) / (float)width;
    }
    part = NAME(all)(0.0f);
    for (i = 0; i + LANES <= width; i += LANES) {
        vec away = LOAD(x + i) - mean;
        part += away * away;
    }
    for (; i < width; i++) square += (x[i] - mean) * (x[i] - mean);
    square = (square + NAME(sum)(part)) / (float)width;
    float factor = 1.0f / sqrtf(square + eps);
    for (i = 0; i + LANES <= width; i += LANES) {
        vec v = (LOAD(x + i) - mean) * factor;
        if (weight) v = v * LOAD(weight + i);
        if (bias) v = v + LOAD(bias + i);
        STORE(y + i, v);
    }
    for (; i < width; i++) {
        float v = (x[i] - mean) * factor;
        if (weight) v *= weight[i];
        y[i] = bias ? v + bias[i] : v;
    }
}

/* Four outputs of R rows, R a constant, where the inputs of an output lie side by side; meanwhile the weights of the
   four outputs at `next` are fetched in their order, as memory is fastest. */
INLINE void NAME(four_outputs)(const int R, const float *x, int64_t inputs, const float *w, int64_t step,
                               const float *next, const float *bias, float *y, int64_t outputs) {
    vec sums[ROWS32 / 2][4] = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= inputs; i += LANES) {
        vec from[ROWS32 / 2];
        for (int at = 0; at < 4 * LANES && next; at += 16) __builtin_prefetch(next + 4 * i + at);
        for (int r = 0; r < R; r++) from[r] = LOAD(x + r * inputs + i);
        for (int k = 0; k < 4; k++) {
            vec m = LOAD(w + k * step + i);
            for (int r = 0; r < R; r++) sums[r][k] += from[r] * m;
        }
    }
    for (int r = 0; r < R; r++)
        for (int k = 0; k < 4; k++) {
            float found = NAME(sum)(sums[r][k]);
            for (int64_t j = i; j < inputs; j++) found += x[r * inputs + j] * w[k * step + j];
            y[r * outputs + k] = found + (bias ? bias[k] : 0.0f);
        }
}

/* Outputs first ... last - 1 of x W^T + b where the inputs of an output lie side by side.  A single row reads one output
   after the other; several read four at a time, some rows together, and the others find them in the cache. */
TARGET static void NAME(linear_by_output)(const float *x, int64_t rows, int64_t inputs, const float *w, int64_t step,
                                          const float *bias, float *y, int64_t outputs, int64_t first, int64_t last) {
    int64_t n = first, ahead = step * 4 > AHEAD ? AHEAD / 4 : 0, blocks = (rows + ROWS32 / 2 - 1) / (ROWS32 / 2);
    for (; rows > 1 && n + 4 <= last; n += 4)
        for (int64_t block = 0; block < blocks; block++) {
            int64_t b = rows * block / blocks, many = rows * (block + 1) / blocks - b;
            const float *from = x + b * inputs, *four = w + n * step, *next = b ? NULL : four + 4 * step;
            const float *shift = bias ? bias + n : NULL;
            float *to = y + b * outputs + n;
            switch (many) {
#define ROWS_(R) case R: NAME(four_outputs)(R, from, inputs, four, step, next, shift, to, outputs); break;
            ROWS_(1) ROWS_(2) ROWS_(3)
#if ROWS32 > 6
            ROWS_(4) ROWS_(5) ROWS_(6)
#endif
#undef ROWS_
            }
        }
    for (; n < last; n++)
        for (int64_t b = 0; b < rows; b++)
            y[b * outputs + n] = NAME(dot)(x + b * inputs, w + n * step, inputs, ahead) + (bias ? bias[n] : 0.0f);
}

#define TILE 64   /* inputs of a tile of weights, which is copied for many rows */
#define WIDTH 512 /* outputs that are added to at a time */
#define RUN 8     /* inputs that few rows read at a time, each in a long run of memory */

/* y += x W for two vectors of outputs of R rows and `count` inputs, R a constant; the weights of an input lie side by
   side, `step` from those of the one before.  Those at `next` are fetched; those that are read are written to `copy`. */
INLINE void NAME(two_vectors)(const int R, const float *x, int64_t inputs, int64_t count, const float *w, int64_t step,
                              const float *next, float *copy, float *y, int64_t outputs) {
    vec sums[ROWS32][2];
    for (int r = 0; r < R; r++) sums[r][0] = LOAD(y + r * outputs), sums[r][1] = LOAD(y + r * outputs + LANES);
    for (int64_t k = 0; k < count; k++) {
        vec a = LOAD(w + k * step), b = LOAD(w + k * step + LANES);
        for (int at = 0; at < 2 * LANES && next; at += 16)
            if (R < 4) __builtin_prefetch(next + k * step + at);
            else __builtin_prefetch(next + k * step + at, 0, 2); /* the first cache has no room for them */
        if (copy) STORE(copy + k * 2 * LANES, a), STORE(copy + k * 2 * LANES + LANES, b);
        for (int r = 0; r < R; r++) {
            float one = x[r * inputs + k];
            sums[r][0] += one * a, sums[r][1] += one * b;
        }
    }
    for (int r = 0; r < R; r++) STORE(y + r * outputs, sums[r][0]), STORE(y + r * outputs + LANES, sums[r][1]);
}

/* The same for any number of rows.  The first of them copy the weights for the others: lines of a cache whose addresses
   are a power of two apart displace each other. */
TARGET static void NAME(add_vectors)(const float *x, int64_t rows, int64_t inputs, int64_t count, const float *w,
                                     int64_t step, const float *next, float *y, int64_t outputs) {
    float copied[TILE * 2 * LANES];
    int64_t blocks = (rows + ROWS32 - 1) / ROWS32;
    for (int64_t block = 0; block < blocks; block++) {
        int64_t b = rows * block / blocks, many = rows * (block + 1) / blocks - b;
        const float *from = block ? copied : w;
        float *copy = block || blocks == 1 ? NULL : copied;
        switch (many) {
#define ROWS_(R) case R: NAME(two_vectors)(R, x + b * inputs, inputs, count, from, block ? 2 * LANES : step, block ? NULL : next, copy, y + b * outputs, outputs); break;
        ROWS_(1) ROWS_(2) ROWS_(3) ROWS_(4) ROWS_(5) ROWS_(6)
#if ROWS32 > 6
        ROWS_(7) ROWS_(8) ROWS_(9) ROWS_(10) ROWS_(11) ROWS_(12)
#endif
#undef ROWS_
        }
    }
}

/* x W^T + b where the outputs of an input lie side by side.  Each weight is read once, in long runs: eight inputs at a
   time, or a tile for many rows, are added to a block of outputs. */
TARGET static void NAME(linear_by_input)(const float *x, int64_t rows, int64_t inputs, const float *w, int64_t step,
                                         const float *bias, float *y, int64_t outputs, int64_t first, int64_t last) {
    const int64_t block = rows == 1 ? 16384 : WIDTH, run = rows > ROWS32 ? TILE : RUN;
    for (int64_t start = first; start < last; start += block) {
        int64_t width = last - start < block ? last - start : block, i = 0;
        for (int64_t b = 0; b < rows; b++)
            for (int64_t n = 0; n < width; n++) y[b * outputs + start + n] = bias ? bias[start + n] : 0.0f;
        for (; rows > 1 && i < inputs; i += run) {
            int64_t count = inputs - i < run ? inputs - i : run, n = 0;
            const float *m = w + i * step + start, *next = i + 2 * run <= inputs ? m + run * step : NULL;
            for (; n + 2 * LANES <= width; n += 2 * LANES)
                NAME(add_vectors)(x + i, rows, inputs, count, m + n, step, next ? next + n : NULL, y + start + n, outputs);
            for (int64_t k = 0; k < count && n < width; k++)
                for (int64_t b = 0; b < rows; b++)
                    NAME(add)(y + b * outputs + start + n, m + k * step + n, x[b * inputs + i + k], width - n);
        }
        for (; i + 8 <= inputs; i += 8) {
            const float *p = x + i, *m = w + i * step + start;
            float *to = y + start;
            int64_t n = 0;
            for (; n + LANES <= width; n += LANES) {
                vec v = LOAD(to + n);
                v += p[0] * LOAD(m + n);
                v += p[1] * LOAD(m + step + n);
                v += p[2] * LOAD(m + 2 * step + n);
                v += p[3] * LOAD(m + 3 * step + n);
                v += p[4] * LOAD(m + 4 * step + n);
                v += p[5] * LOAD(m + 5 * step + n);
                v += p[6] * LOAD(m + 6 * step + n);
                v += p[7] * LOAD(m + 7 * step + n);
                STORE(to + n, v);
            }
            for (; n < width; n++)
                for (int k = 0; k < 8; k++) to[n] += p[k] * m[k * step + n];
        }
        for (; i < inputs; i++) NAME(add)(y + start, w + i * step + start, x[i], width);
    }
}

INLINE ivec NAME(larger)(ivec a, ivec b) {
    ivec above = a > b;
    return (a & above) | (b & ~above);
}

/* Codes of a row: x / scale to the nearest integer, ties to even, where the largest |x| has the code 127, and 128 more
   where products want them unsigned.  Returns the scale: 0 for a row of zeros, NaN where a number is not finite. */
TARGET static float NAME(quantise)(const float *x, uint8_t *codes, int64_t width) {
    const int32_t zero = UNSIGNED8 ? 128 : 0;
    ivec most[4] = {{0}}; /* the bits of |x| grow with it; those of infinity and NaN are above all others */
    int32_t top = 0;
    int64_t i = 0;
    for (; i + 4 * LANES <= width; i += 4 * LANES) /* four, so that none waits for the one before */
        for (int k = 0; k < 4; k++) most[k] = NAME(larger)(*(const ivec *)(x + i + k * LANES) & 0x7fffffff, most[k]);
    for (; i + LANES <= width; i += LANES) most[0] = NAME(larger)(*(const ivec *)(x + i) & 0x7fffffff, most[0]);
    most[0] = NAME(larger)(NAME(larger)(most[0], most[1]), NAME(larger)(most[2], most[3]));
    for (int k = 0; k < LANES; k++) top = most[0][k] > top ? most[0][k] : top;
    for (; i < width; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        top = (bits & 0x7fffffff) > top ? bits & 0x7fffffff : top;
    }
    float scale;
    memcpy(&scale, &top, sizeof scale);
    scale = scale / 127.0f;
    if (top >= 0x7f800000 || scale == 0.0f) {
        memset(codes, zero, (size_t)width);
        return top >= 0x7f800000 ? NAN : 0.0f;
    }
    for (i = 0; i + LANES <= width; i += LANES) {
        vec t = LOAD(x + i) / scale + SHIFT;
        *(cvec *)(codes + i) = __builtin_convertvector((ivec)t - (ivec)NAME(all)(SHIFT) + zero, cvec);
    }
    for (; i < width; i++) codes[i] = (uint8_t)((int32_t)(x[i] / scale + SHIFT - SHIFT) + zero);
    return scale;
}

/* Outputs of P panels for R rows, P and R constants: y = sums * scale * step + bias.  The sums stay in registers. */
INLINE void NAME(panels_int8)(const int P, const int R, const uint8_t *x, int64_t depth, const int8_t *w, const Panel *to) {
    const int V = P * PANEL / LANES, EACH = PANEL / LANES;
    ivec sums[ROWS8][PANELS8 * PANEL / LANES];
    for (int v = 0; v < V; v++) {
        ivec first = UNSIGNED8 ? *(const ivec *)(to->offsets + v * LANES) : (ivec){0};
        for (int r = 0; r < R; r++) sums[r][v] = first;
    }
    const int8_t *next = to->next;
    for (int64_t k = 0; k < depth; k += 4, w += 4 * PANEL, next += to->pace) {
        __builtin_prefetch(P > 1 ? next : w + to->ahead);
        for (int r = 0; r < R; r++) {
            bytes8 four = SPREAD8(x + r * depth + k);
            for (int v = 0; v < V; v++)
                sums[r][v] = DOT8(sums[r][v], w + v / EACH * PANEL * depth + v % EACH * 4 * LANES, four);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) {
            vec y = __builtin_convertvector(sums[r][v], vec) * LOAD(to->scale + v * LANES) * to->steps[r];
            if (to->bias) {
                ROUNDED(y); /* not fused with the sum, so that all instruction sets round alike */
                y += LOAD(to->bias + v * LANES);
            }
            STORE(to->y + r * to->step + v * LANES, y);
        }
}

/* The same for up to ROWS8 rows. */
INLINE void NAME(rows_int8)(const int P, int64_t rows, const uint8_t *x, int64_t depth, const int8_t *w, const Panel *to) {
    switch (rows) {
#define ROWS_(R) case R: NAME(panels_int8)(P, R, x, depth, w, to); break;
    ROWS_(1) ROWS_(2) ROWS_(3) ROWS_(4) ROWS_(5) ROWS_(6)
#if ROWS8 > 6
    ROWS_(7) ROWS_(8) ROWS_(9) ROWS_(10) ROWS_(11) ROWS_(12)
#endif
#undef ROWS_
    }
}

/* y = added + act(y) for some rows and outputs of a product, from row b and output n on. */
TARGET static __attribute__((noinline)) void NAME(finish)(const Product *all, float *y, int64_t step, int64_t b,
                                                          int64_t rows, int64_t n, int64_t outputs) {
    for (int64_t r = 0; r < rows; r++, y += step) {
        if (all->style != PLAIN) NAME(activate)(y, NULL, outputs, (int)all->style);
        if (all->added) NAME(add)(y, all->added + (b + r) * all->outputs + n, 1.0f, outputs);
    }
}

/* The product of int8 codes and panels first ... last - 1 of weights.  The rows of a block are multiplied together, so
   that each weight is read once for them; the next block finds the panels in the cache.  Where there is no next one, panels
   are read one after the other, as memory is fastest. */
TARGET static void NAME(linear_int8)(const Product *all, int64_t first, int64_t last) {
    int64_t blocks = (all->rows + ROWS8 - 1) / ROWS8, depth = all->depth, together = 1;
    for (int64_t p = first; p < last; p += together) {
        int64_t n = p * PANEL, left = all->outputs - n;
        float scale[PANEL] = {0}, bias[PANEL] = {0}, y[ROWS8 * PANEL];
        if (left < PANEL) { /* the last outputs, by way of whole vectors */
            memcpy(scale, all->scale + n, (size_t)left * sizeof *scale);
            if (all->bias) memcpy(bias, all->bias + n, (size_t)left * sizeof *bias);
        }
        together = blocks > 1 && p + PANELS8 <= last && left >= PANELS8 * PANEL ? PANELS8 : 1;
        Panel to = {all->offsets + n, NULL, left < PANEL ? scale : all->scale + n,
                    !all->bias ? NULL : left < PANEL ? bias : all->bias + n, NULL, 0, 0, NULL, 0};
        const int8_t *w = all->panels + n * depth;
        const int64_t size = together * PANEL * depth;
        if (together > 1) to.pace = (4 * together * PANEL + blocks - 1) / blocks;
        for (int64_t block = 0; block < blocks; block++) {
            int64_t b = all->rows * block / blocks, count = all->rows * (block + 1) / blocks - b;
            const uint8_t *x = all->codes + b * depth;
            to.steps = all->steps + b;
            to.y = left < PANEL ? y : all->out + b * all->outputs + n;
            to.step = left < PANEL ? PANEL : all->outputs;
            to.ahead = block ? 0 : AHEAD;
            if (together > 1) to.next = w + size + size * block / blocks;
            if (together == PANELS8) NAME(rows_int8)(PANELS8, count, x, depth, w, &to);
            else NAME(rows_int8)(1, count, x, depth, w, &to);
            if (all->style != PLAIN || all->added)
                NAME(finish)(all, to.y, to.step, b, count, n, left < together * PANEL ? left : together * PANEL);
            if (left < PANEL)
                for (int64_t r = 0; r < count; r++)
                    memcpy(all->out + (b + r) * all->outputs + n, y + r * PANEL, (size_t)left * sizeof *y);
        }
    }
}

/* y = the sum of weights[s] v[s] over the keys, for V vectors of the width from d on, V a constant. */
INLINE void NAME(weigh)(const int V, const Seen *of, const float *weights, int64_t d, float *y) {
    vec even[4] = {{0}}, odd[4] = {{0}};
    int64_t s = of->first;
#define VALUES(s) (of->v + d + (s) * of->v_key + (of->origins ? of->origins[s] * of->v_row : 0))
    for (; s + 2 <= of->last; s += 2) {
        const float *a = VALUES(s), *b = VALUES(s + 1);
        for (int i = 0; i < V; i++) even[i] += weights[s - of->first] * LOAD(a + i * LANES);
        for (int i = 0; i < V; i++) odd[i] += weights[s - of->first + 1] * LOAD(b + i * LANES);
    }
    if (s < of->last)
        for (int i = 0; i < V; i++) even[i] += weights[s - of->first] * LOAD(VALUES(s) + i * LANES);
    for (int i = 0; i < V; i++) STORE(y + d + i * LANES, even[i] + odd[i]);
}

/* One query of one head: softmax(scale * q k + bias) v.  A query that may see no key gives zeros. */
TARGET static void NAME(attend)(const float *q, const Seen *of, int64_t width, float *weights, float *y) {
    int64_t first = of->first, count = of->last - first, wide = (count + LANES - 1) / LANES * LANES, d = 0;
    vec tops = NAME(all)(-INFINITY), sums = {0};
    for (int64_t s = 0; s < wide; s += LANES) {
        vec each[LANES], scores;
        float rest[LANES] = {0};
        for (int i = 0; i < LANES; i++) {
            int64_t at = first + (s + i < count ? s + i : count - 1);
            const float *k = of->k + at * of->k_key + (of->origins ? of->origins[at] * of->k_row : 0);
            vec dot = {0};
            for (d = 0; d + LANES <= width; d += LANES) dot += LOAD(q + d) * LOAD(k + d);
            for (; d < width; d++) rest[i] += q[d] * k[d];
            each[i] = dot;
        }
        scores = (NAME(sum_each)(each) + LOAD(rest)) * of->scale;
        STORE(weights + s, scores);
        for (int64_t i = s; of->bias && i < s + LANES && i < count; i++) weights[i] += of->bias[count - 1 - i];
        for (int64_t i = s; of->keep && i < s + LANES && i < count; i++)
            if (!of->keep[first + i]) weights[i] = -INFINITY;
        for (int64_t i = count; i < s + LANES; i++) weights[i] = -INFINITY;
        scores = LOAD(weights + s);
        tops = LARGER(scores, tops);
    }
    float top = -INFINITY, total;
    for (int i = 0; i < LANES; i++) top = tops[i] > top ? tops[i] : top;
    if (top == -INFINITY) top = 0.0f; /* of NaN and of nothing */
    for (int64_t s = 0; s < wide; s += LANES) {
        vec e = NAME(exponential)(LOAD(weights + s) - top);
        STORE(weights + s, e);
        sums += e;
    }
    total = NAME(sum)(sums);
    for (d = 0; d + 4 * LANES <= width; d += 4 * LANES) NAME(weigh)(4, of, weights, d, y);
    for (; d + LANES <= width; d += LANES) NAME(weigh)(1, of, weights, d, y);
    for (; d < width; d++) {
        y[d] = 0.0f;
        for (int64_t s = first; s < of->last; s++) y[d] += weights[s - first] * *VALUES(s);
    }
#undef VALUES
    for (d = 0; d < width; d++) y[d] = total == 0.0f ? 0.0f : y[d] / total;
}

#define PAIR (2 * LANES)

/* logits = e^(scale * logit - the largest) for the first `last` that `keep` lets be seen, 0 for the others up to `wide`, a
   whole number of vectors.  Returns their sum, or 1 where none is seen. */
INLINE float NAME(soften)(float *logits, int64_t last, int64_t wide, float scale, const uint8_t *keep) {
    vec tops = NAME(all)(-INFINITY), sums = {0};
    for (int64_t s = 0; keep && s < last; s++)
        if (!keep[s]) logits[s] = -INFINITY;
    for (int64_t s = last; s < wide; s++) logits[s] = -INFINITY;
    for (int64_t s = 0; s < wide; s += LANES) {
        vec scaled = LOAD(logits + s) * scale;
        tops = LARGER(scaled, tops);
        STORE(logits + s, scaled);
    }
    for (int many = LANES; many > 1; many /= 2) {
        vec even = SHUFFLE(tops, tops, EVENS), odd = SHUFFLE(tops, tops, ODDS);
        tops = LARGER(even, odd);
    }
    float top = tops[0] == -INFINITY ? 0.0f : tops[0]; /* of NaN and of nothing: 0 */
    for (int64_t s = 0; s < wide; s += LANES) {
        vec e = NAME(exponential)(LOAD(logits + s) - top);
        STORE(logits + s, e);
        sums += e;
    }
    float total = NAME(sum)(sums);
    return total == 0.0f ? 1.0f : total;
}

/* Every query of one head of a sequence: softmax(scale * q k) v over the keys that are seen.  Keys and values are laid
   out in `room` as the weights of products: two vectors of keys, or of values, lie side by side. */
TARGET static void NAME(attend_sequence)(const Attention *all, const Sequence *of, int64_t head, float *room) {
    const int64_t depth = all->head_dim, group = head / (all->heads / all->kv_heads), count = of->keys;
    const int64_t keys = (count + PAIR - 1) / PAIR * PAIR, width = (depth + PAIR - 1) / PAIR * PAIR;
    const float *q = all->q + of->q + head * all->q_head;
    const float *k = all->k + of->k + group * all->k_head, *v = all->v + of->v + group * all->v_head;
    float *k_panels = room, *v_panels = k_panels + keys * depth, *weights = v_panels + count * width;
    float *y = weights + ROWS32 * keys, *out = all->out + (of->out * all->heads + head) * depth;
    memset(k_panels + (keys - PAIR) * depth, 0, (size_t)(PAIR * depth) * sizeof *k_panels);
    for (int64_t s = 0; s < count; s++) {
        float *to = k_panels + s / PAIR * PAIR * depth + s % PAIR;
        for (int64_t d = 0; d < depth; d++) to[d * PAIR] = k[s * all->k_token + d];
    }
    for (int64_t d = 0; d < width; d += PAIR)
        for (int64_t s = 0, real = depth - d < PAIR ? depth - d : PAIR; s < count; s++) {
            float *to = v_panels + d * count + s * PAIR;
            const float *from = v + s * all->v_token + d;
            for (int64_t i = 0; i < real; i++) to[i] = from[i];
            for (int64_t i = real; i < PAIR; i++) to[i] = 0.0f;
        }
    int64_t blocks = (of->queries + ROWS32 - 1) / ROWS32;
    for (int64_t block = 0; block < blocks; block++) {
        int64_t b = of->queries * block / blocks, rows = of->queries * (block + 1) / blocks - b;
        int64_t seen = all->causal && b + rows < count ? b + rows : count, wide = (seen + LANES - 1) / LANES * LANES;
        float totals[ROWS32];
        memset(weights, 0, (size_t)(rows * keys) * sizeof *weights);
        memset(y, 0, (size_t)(rows * width) * sizeof *y);
        for (int64_t s = 0; s < seen; s += PAIR)
            NAME(add_vectors)(q + b * all->q_token, rows, all->q_token, depth, k_panels + s * depth, PAIR, NULL, weights + s, keys);
        for (int64_t r = 0; r < rows; r++) {
            int64_t last = all->causal && b + r + 1 < count ? b + r + 1 : count;
            totals[r] = NAME(soften)(weights + r * keys, last, wide, all->scale, of->keep < 0 ? NULL : all->keep + of->keep);
        }
        for (int64_t d = 0; d < width; d += PAIR)
            NAME(add_vectors)(weights, rows, keys, seen, v_panels + d * count, PAIR, NULL, y + d, width);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < depth; d++) out[(b + r) * all->heads * depth + d] = y[r * width + d] / totals[r];
    }
}

static const Kernels NAME(kernels) = {
    NAME(activate), NAME(add_rows), NAME(normalise), NAME(linear_by_output), NAME(linear_by_input), NAME(quantise),
    NAME(linear_int8), NAME(attend), NAME(attend_sequence),
};

#undef vec
#undef ivec
#undef cvec
#undef INLINE
#undef LOAD
#undef STORE
#undef SHIFT
#undef TILE
#undef WIDTH
#undef RUN
#undef PAIR
#undef NAME
#undef JOIN
#undef JOIN_
#undef SET
#undef TARGET
#undef LANES
#undef EVENS
#undef ODDS
#undef LARGER
#undef SMALLER
#undef bytes8
#undef SPREAD8
#undef DOT8
#undef UNSIGNED8
#undef ROWS8
#undef PANELS8
#undef ROWS32
#undef ROUNDED
