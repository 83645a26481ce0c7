/* The inner loops of core/posterior.py, core/sharpening.py, core/langevin.py, core/noise.py and of
 * uncertainty/average.py, for float32 on the CPU.
 *
 * The formulas are those of the Python code, which stays the reference and does the work where there
 * is no compiled library. Here each array is read once and each result written once: at millions of
 * weights, memory is the only thing that takes time. Written for a compiler that vectorises:
 * no branches in the loops, no calls to libm. Threads are those of torch's own OpenMP library.
 *
 * So that one table in compiled.py can describe every function to ctypes and to torch, the first
 * argument is the number of threads, and every number is an int64_t or a double.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline float bits_to_float(int32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline int32_t float_to_bits(float x) { int32_t bits; memcpy(&bits, &x, 4); return bits; }

/* floor(x) for |x| < 2^31. Before SSE4.1 a processor has no instruction for it, and a call of libm
 * would keep the loop around it from being vectorised. */
static inline float floor_(float x) {
#if defined(__SSE2__) && !defined(__SSE4_1__)
    float k = (float)(int32_t)x;
    return k - (k > x ? 1.0f : 0.0f);
#else
    return floorf(x);
#endif
}

/* a * b + c. With FMA rounded once; without, the product is exact in double and the sum is rounded to
 * double and then to float. For every input of box_muller both give the same float (checked
 * exhaustively), so that the noise has the bits of any other build, and of core/kernel/philox.py;
 * not so for any a, b, c. */
static inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return (float)((double)a * b + c);
#endif
}

/* exp(x) = 2^k exp(r), |r| <= log(2) / 2; relative error below 2e-7. */
static inline float exp_(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float k = floor_(x * 1.44269504f + 0.5f);
    float r = x - k * 0.693359375f + k * 2.12194440e-4f;
    float p = 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * bits_to_float(((int32_t)k + 127) << 23);
}

/* log(x) for normal x > 0: x = 2^k m with m in [sqrt(1/2), sqrt(2)), log(m) = 2 artanh(t). */
static inline float log_(float x) {
    int32_t bits = float_to_bits(x);
    int32_t k = (bits - 0x3f3504f3) >> 23;
    float t = bits_to_float(bits - (k << 23));
    t = (t - 1.0f) / (t + 1.0f);
    float s = t * t;
    float p = 0.2222222f;
    p = fused(p, s, 0.2857143f);
    p = fused(p, s, 0.4f);
    p = fused(p, s, 0.6666667f);
    return fused((float)k, 0.69314718f, fused(2.0f, t, t * s * p));
}

/* log(1 + a) for a in [0, 1]: a polynomial through Chebyshev points, relative error below 2e-7. */
static inline float log1p_(float a) {
    float p = 5.126102144e-3f;
    p = p * a - 2.907406469e-2f;
    p = p * a + 7.751608676e-2f;
    p = p * a - 1.360224762e-1f;
    p = p * a + 1.907688074e-1f;
    p = p * a - 2.483539899e-1f;
    p = p * a + 3.331812171e-1f;
    p = p * a - 4.999944498e-1f;
    p = p * a + 9.999999659e-1f;
    return p * a;
}

/* softplus(x) = log(1 + exp(x)) = max(x, 0) + log(1 + a) with a = exp(-|x|), given a. */
static inline float softplus_(float x, float a) { return (x > 0.0f ? x : 0.0f) + log1p_(a); }

enum { TILE = 512, FACTORS = 4, CHUNK = 1 << 16 };

/* Threads take chunks of rows as they come. What is summed is kept by chunk and added up in order,
 * so that the result does not depend on the threads. */
static inline int64_t rows_in_chunk(int64_t columns) {
    return columns < CHUNK ? CHUNK / columns : 1;
}

/* log(sigma) for any rho: softplus(x) is exp(x) far below zero, where exp itself would underflow. */
static double exact_log_sigma(double x, double floor_) {
    if (x < -40.0 && floor_ == 0.0) return x;
    return log((x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))) + floor_);
}

/* The sum of log(sigma) over a tile of `count` numbers, filled up with ones: one logarithm for a
 * product of FACTORS. The product of numbers below 1e-9 would underflow, so those take their time. */
static inline double sum_of_logs(const float *sigma, const float *rho, int count, float floor_) {
    float sum = 0.0f, smallest = 1.0f;
    #pragma omp simd reduction(+ : sum) reduction(min : smallest)
    for (int j = 0; j < TILE / FACTORS; j++) {
        float product = 1.0f;
        for (int k = 0; k < FACTORS; k++) {
            float s = sigma[j + k * (TILE / FACTORS)];
            smallest = s < smallest ? s : smallest;
            product *= s;
        }
        sum += log_(product);
    }
    if (smallest > 1e-9f) return sum;
    double exact = 0.0;
    for (int j = 0; j < count; j++) exact += exact_log_sigma(rho[j], floor_);
    return exact;
}

/* The sum of the squares of `size` numbers. */
double sum_of_squares(int64_t threads, int64_t size, const float *restrict x) {
    int64_t chunks = (size + CHUNK - 1) / CHUNK;
    double sum = 0.0, *parts = calloc(chunks, sizeof(double));
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t stop = (chunk + 1) * CHUNK < size ? (chunk + 1) * CHUNK : size;
        for (int64_t start = chunk * CHUNK; start < stop; start += TILE) {
            int count = stop - start < TILE ? (int)(stop - start) : TILE;
            float part = 0.0f;
            #pragma omp simd reduction(+ : part)
            for (int j = 0; j < count; j++) part += x[start + j] * x[start + j];
            parts[chunk] += part;
        }
    }
    for (int64_t chunk = 0; chunk < chunks; chunk++) sum += parts[chunk];
    free(parts);
    return sum;
}

/* weight = loc + sign * sigma * eps for `rows` rows of `columns`.
 *
 * sums gathers log(sigma), sigma^2 and loc^2, and squares, by row (row_stride 1), by column
 * (column_stride 1) or all together (both 0), the squares of the weights, or if `expected` their
 * expectation loc^2 + sigma^2; NULL for none.
 */
void draw(int64_t threads, int64_t rows, int64_t columns, const float *restrict loc,
          const float *restrict rho, const float *restrict eps, double sign_, double floor_given,
          int64_t expected, float *restrict weight, double sums[3], float *restrict squares,
          int64_t row_stride, int64_t column_stride) {
    float sign = (float)sign_, floor_ = (float)floor_given;
    int64_t step = rows_in_chunk(columns), chunks = (rows + step - 1) / step;
    double(*chunk_sums)[4] = calloc(chunks, sizeof *chunk_sums);
    float *chunk_squares = column_stride ? calloc(chunks * columns, sizeof(float)) : NULL;
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t last = (chunk + 1) * step < rows ? (chunk + 1) * step : rows;
        float *own = chunk_squares ? chunk_squares + chunk * columns : NULL;
        double *total = chunk_sums[chunk];
        float sigma[TILE];
        int filled = 0;
        for (int64_t row = chunk * step; row < last; row++) {
            double row_squares = 0.0;
            for (int64_t column = 0; column < columns;) {
                int64_t at = row * columns + column, left = columns - column;
                int count = left < TILE - filled ? (int)left : TILE - filled;
                float sigma2 = 0.0f, loc2 = 0.0f, weight2 = 0.0f;
                #pragma omp simd reduction(+ : sigma2, loc2, weight2)
                for (int j = 0; j < count; j++) {
                    float x = rho[at + j], m = loc[at + j];
                    float s = softplus_(x, exp_(-fabsf(x))) + floor_;
                    float w = m + sign * s * eps[at + j];
                    sigma2 += s * s;
                    loc2 += m * m;
                    weight2 += w * w;
                    sigma[filled + j] = s;
                    weight[at + j] = w;
                }
                if (own && expected) {
                    #pragma omp simd
                    for (int j = 0; j < count; j++)
                        own[column + j] += loc[at + j] * loc[at + j]
                                           + sigma[filled + j] * sigma[filled + j];
                } else if (own) {
                    #pragma omp simd
                    for (int j = 0; j < count; j++)
                        own[column + j] += weight[at + j] * weight[at + j];
                }
                total[1] += sigma2;
                total[2] += loc2;
                row_squares += expected ? (double)loc2 + sigma2 : weight2;
                column += count;
                filled += count;
                if (filled == TILE) {
                    total[0] += sum_of_logs(sigma, rho + row * columns + column - TILE, TILE, floor_);
                    filled = 0;
                }
            }
            total[3] += row_squares;
            if (row_stride) squares[row] = (float)row_squares;
        }
        for (int j = filled; j < TILE; j++) sigma[j] = 1.0f;
        total[0] += sum_of_logs(sigma, rho + last * columns - filled, filled, floor_);
    }
    double all_squares = 0.0;
    sums[0] = sums[1] = sums[2] = 0.0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        for (int k = 0; k < 3; k++) sums[k] += chunk_sums[chunk][k];
        all_squares += chunk_sums[chunk][3];
        for (int64_t j = 0; chunk_squares && j < columns; j++)
            squares[j] += chunk_squares[chunk * columns + j];
    }
    if (squares && !row_stride && !column_stride) squares[0] = (float)all_squares;
    free(chunk_sums);
    free(chunk_squares);
}

/* One row of `gradient`; the flags are constants where it is called, so each case is its own loop. */
static inline __attribute__((always_inline)) void gradient_row(
    int64_t columns, const float *restrict g, const float *restrict rho, const float *restrict eps,
    float sign, float floor_, float kl_weight, const float *restrict factor, const int per_column,
    const float *restrict base, const int has_base, const int exact, float *restrict by_loc,
    float *restrict by_rho, double squares[2]) {
    float constant = per_column ? 0.0f : factor[0], of_loc = 0.0f, of_rho = 0.0f;
    #pragma omp simd reduction(+ : of_loc, of_rho)
    for (int64_t j = 0; j < columns; j++) {
        float x = rho[j], a = exp_(-fabsf(x));
        float sigma = softplus_(x, a) + floor_;
        float slope = (x > 0.0f ? 1.0f : a) / (1.0f + a); /* softplus'(x) */
        float f = per_column ? factor[j] : constant;
        float by = g[j] - kl_weight * (has_base ? f * base[j] : f);
        float by_sigma = sign * eps[j] * (exact ? g[j] : by) - kl_weight / sigma;
        float by_x = (exact ? by_sigma - kl_weight * f * sigma : by_sigma) * slope;
        of_loc += by * by;
        of_rho += by_x * by_x;
        by_loc[j] = by;
        by_rho[j] = by_x;
    }
    squares[0] = of_loc;
    squares[1] = of_rho;
}

/* The gradients by loc and rho from the gradient g by the weights, and the sums of their squares.
 *
 * score = factor * base, where factor lies at [row * row_stride + column * column_stride] and base
 * is the weight, or the loc if the expectation is exact; score = factor where base is NULL.
 */
void gradient(int64_t threads, int64_t rows, int64_t columns, const float *g, const float *rho,
              const float *eps, double sign_, double floor_given, const float *by_kl,
              const float *factor, int64_t row_stride, int64_t column_stride, const float *base,
              int64_t exact, float *by_loc, float *by_rho, double squares[2]) {
    float sign = (float)sign_, floor_ = (float)floor_given, kl_weight = *by_kl;
    int64_t step = rows_in_chunk(columns);
    double(*row_squares)[2] = calloc(rows, sizeof *row_squares);
    #pragma omp parallel for schedule(dynamic, step) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t i = row * columns;
        const float *f = factor + row * row_stride;
#define ROW(per_column, has_base, exact)                                                       \
    gradient_row(columns, g + i, rho + i, eps + i, sign, floor_, kl_weight, f, per_column,      \
                 has_base ? base + i : g, has_base, exact, by_loc + i, by_rho + i,             \
                 row_squares[row])
        if (!base) column_stride ? ROW(1, 0, 0) : ROW(0, 0, 0);
        else if (exact) column_stride ? ROW(1, 1, 1) : ROW(0, 1, 1);
        else column_stride ? ROW(1, 1, 0) : ROW(0, 1, 0);
#undef ROW
    }
    squares[0] = squares[1] = 0.0;
    for (int64_t row = 0; row < rows; row++)
        for (int k = 0; k < 2; k++) squares[k] += row_squares[row][k];
    free(row_squares);
}

/* One round of Philox4x32-10 (Salmon et al. 2011) on the counter words a, b, c, d. */
#define PHILOX_ROUND(a, b, c, d, k0, k1)                                  \
    do {                                                                  \
        uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c; \
        a = (uint32_t)(q >> 32) ^ b ^ (k0);                               \
        c = (uint32_t)(p >> 32) ^ d ^ (k1);                               \
        b = (uint32_t)q;                                                  \
        d = (uint32_t)p;                                                  \
    } while (0)

enum { LANES = 64, ROUNDS = 10 };

/* Random words for the counters (n, stream), ..., (n + LANES - 1, stream) under a key. */
void philox(uint64_t n, uint64_t stream, uint64_t key, uint32_t words[4][LANES]) {
    for (int lane = 0; lane < LANES; lane++) {
        words[0][lane] = (uint32_t)(n + lane);
        words[1][lane] = (uint32_t)((n + lane) >> 32);
        words[2][lane] = (uint32_t)stream;
        words[3][lane] = (uint32_t)(stream >> 32);
    }
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        #pragma omp simd
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t a = words[0][lane], b = words[1][lane], c = words[2][lane], d = words[3][lane];
            PHILOX_ROUND(a, b, c, d, k0, k1);
            words[0][lane] = a; words[1][lane] = b; words[2][lane] = c; words[3][lane] = d;
        }
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
}

/* sin and cos of 2 pi u for u in [-1/2, 1/2): one quarter wave by Taylor, the rest by symmetry. */
static inline void sincos_turn(float u, float *sine, float *cosine) {
    float quarter = floor_(u * 4.0f + 0.5f);
    float x = (u - quarter * 0.25f) * 6.28318531f, s = x * x;
    float si = fused(2.7557319e-6f, s, -1.9841270e-4f), co = fused(2.4801587e-5f, s, -1.3888889e-3f);
    si = fused(si, s, 8.3333333e-3f);
    co = fused(co, s, 4.1666667e-2f);
    si = fused(si, s, -1.6666667e-1f);
    co = fused(co, s, -0.5f);
    si = x * fused(si, s, 1.0f);
    co = fused(co, s, 1.0f);
    int32_t q = (int32_t)quarter & 3;
    float a = q & 1 ? co : si, b = q & 1 ? si : co;
    *sine = q & 2 ? -a : a;
    *cosine = (q + 1) & 2 ? -b : b;
}

/* Two independent standard normal numbers from two random words (Box and Muller). */
static inline void box_muller(uint32_t length_word, uint32_t angle_word, float *x, float *y) {
    /* 31 bits for the length, so that small u keep their digits: |x| reaches 6.6. */
    float u = ((float)(int32_t)(length_word >> 1) + 0.5f) * 4.65661287e-10f;
    float length = sqrtf(-2.0f * log_(u)), sine, cosine;
    sincos_turn((float)(int32_t)angle_word * 2.32830644e-10f, &sine, &cosine);
    *x = length * cosine;
    *y = length * sine;
}

enum { BLOCK = 4 * LANES };

/* The standard normal numbers at [block * BLOCK, ...) of a seed and stream. Each block has counters
 * of its own, so that its numbers do not depend on the threads; and it is never inlined, so that
 * they are the same to the last bit for whoever asks. */
static __attribute__((noinline)) void normal_block(int64_t block, uint64_t seed, uint64_t stream,
                                                   float *restrict numbers) {
    uint32_t words[4][LANES];
    philox((uint64_t)block * LANES, stream, seed, words);
    for (int pair = 0; pair < 4; pair += 2) {
        #pragma omp simd
        for (int lane = 0; lane < LANES; lane++)
            box_muller(words[pair][lane], words[pair + 1][lane], &numbers[pair * LANES + lane],
                       &numbers[(pair + 1) * LANES + lane]);
    }
}

/* `size` standard normal numbers; gives the sum of their squares. */
double normal(int64_t threads, int64_t size, int64_t seed, int64_t stream, float *restrict out) {
    int64_t blocks = (size + BLOCK - 1) / BLOCK;
    double sum = 0.0;
    float *block_squares = calloc(blocks, sizeof(float));
    #pragma omp parallel for schedule(dynamic, CHUNK / BLOCK) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t start = block * BLOCK;
        int count = size - start < BLOCK ? (int)(size - start) : BLOCK;
        float numbers[BLOCK], squares = 0.0f;
        normal_block(block, seed, stream, numbers);
        #pragma omp simd reduction(+ : squares)
        for (int j = 0; j < count; j++) squares += numbers[j] * numbers[j];
        memcpy(out + start, numbers, count * sizeof(float));
        block_squares[block] = squares;
    }
    for (int64_t block = 0; block < blocks; block++) sum += block_squares[block];
    free(block_squares);
    return sum;
}

/* `count` numbers of `sample`, whose noise has its place at [at, ...). The expressions are those of
 * `draw`, so that the numbers are the same to the last bit. */
static void sample_run(int64_t count, const float *restrict loc, const float *restrict rho,
                       float floor_, float scale, float sign, uint64_t seed, uint64_t stream,
                       int64_t at, float *restrict out, float *restrict mirrored) {
    float eps[BLOCK], sigma[BLOCK];
    for (int64_t i = 0; i < count;) {
        int64_t block = (at + i) / BLOCK, skipped = at + i - block * BLOCK;
        int here = count - i < BLOCK - skipped ? (int)(count - i) : (int)(BLOCK - skipped);
        normal_block(block, seed, stream, eps);
        for (int j = 0; j < BLOCK; j++) eps[j] *= scale;
        #pragma omp simd
        for (int j = 0; j < here; j++) {
            float x = rho[i + j], m = loc[i + j];
            float s = softplus_(x, exp_(-fabsf(x))) + floor_;
            sigma[j] = s;
            out[i + j] = m + sign * s * eps[skipped + j];
        }
        for (int j = 0; mirrored && j < here; j++)
            mirrored[i + j] = loc[i + j] + -sign * sigma[j] * eps[skipped + j];
        i += here;
    }
}

/* A draw for prediction, without sums: loc + sign * sigma * (scale * eps) for the `rows` rows at
 * `places` of a tensor, or, where that is NULL, for its first rows; in `mirrored`, unless it is NULL,
 * the draw of the opposite sign. eps are the numbers that `normal` gives for this seed and stream to
 * the tensor without the row `fixed`, which is never drawn (-1: all are); they are never stored. */
void sample(int64_t threads, int64_t rows, int64_t columns, const int64_t *places, int64_t fixed,
            const float *loc, const float *rho, double floor_given, double scale_, double sign_,
            int64_t seed, int64_t stream, float *out, float *mirrored) {
    float floor_ = (float)floor_given, scale = (float)scale_, sign = (float)sign_;
    int64_t step = rows_in_chunk(columns), chunks = (rows + step - 1) / step;
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t last = (chunk + 1) * step < rows ? (chunk + 1) * step : rows;
        for (int64_t row = chunk * step, next; row < last; row = next) {
            int64_t place = places ? places[row] : row, from = place * columns, to = row * columns;
            next = places || place == fixed ? row + 1 : row < fixed && fixed < last ? fixed : last;
            int64_t count = (next - row) * columns;
            float *other = mirrored ? mirrored + to : NULL;
            if (place == fixed) {
                memcpy(out + to, loc + from, count * sizeof(float));
                if (other) memcpy(other, loc + from, count * sizeof(float));
            } else {
                int64_t at = fixed >= 0 && place > fixed ? from - columns : from;
                sample_run(count, loc + from, rho + from, floor_, scale, sign, seed, stream, at,
                           out + to, other);
            }
        }
    }
}

/* theta = phi - shift + sigma0 * eps with shift = scale * eta * g; gives the sum of shift^2.
 *
 * eps are the numbers that `normal` gives for this seed and stream; they are never stored. */
double sharpen(int64_t threads, int64_t size, const float *restrict phi, const float *restrict g,
               const float *restrict eta, double scale_, double sigma0_, int64_t seed,
               int64_t stream, float *restrict theta) {
    float scale = (float)scale_, sigma0 = (float)sigma0_;
    int64_t blocks = (size + BLOCK - 1) / BLOCK;
    double sum = 0.0;
    float *block_squares = calloc(blocks, sizeof(float));
    #pragma omp parallel for schedule(dynamic, CHUNK / BLOCK) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t start = block * BLOCK;
        int count = size - start < BLOCK ? (int)(size - start) : BLOCK;
        float eps[BLOCK], squares = 0.0f;
        normal_block(block, seed, stream, eps);
        #pragma omp simd reduction(+ : squares)
        for (int j = 0; j < count; j++) {
            float shift = scale * eta[start + j] * g[start + j];
            squares += shift * shift;
            theta[start + j] = phi[start + j] - shift + sigma0 * eps[j];
        }
        block_squares[block] = squares;
    }
    for (int64_t block = 0; block < blocks; block++) sum += block_squares[block];
    free(block_squares);
    return sum;
}

/* The gradient by eta: scale * g * (by_kl / variance * shift - by_theta). */
void sharpen_gradient(int64_t threads, int64_t size, const float *restrict by_theta,
                      const float *restrict g, const float *restrict eta, double scale_,
                      const float *by_kl, double variance, float *restrict by_eta) {
    float scale = (float)scale_, kl_scale = (float)(*by_kl / variance);
    int64_t chunks = (size + CHUNK - 1) / CHUNK;
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t stop = (chunk + 1) * CHUNK < size ? (chunk + 1) * CHUNK : size;
        #pragma omp simd
        for (int64_t j = chunk * CHUNK; j < stop; j++) {
            float slope = scale * g[j];
            by_eta[j] = slope * (kl_scale * slope * eta[j] - by_theta[j]);
        }
    }
}

/* One block of `langevin`; `scaled` is a constant where it is called, so each case is its own loop. */
static inline __attribute__((always_inline)) void langevin_block(
    int count, float *restrict theta, const float *restrict g, float *restrict squares,
    const int scaled, float rate, float pull, float noise, float alpha, float damping,
    const float *restrict eps) {
    #pragma omp simd
    for (int j = 0; j < count; j++) {
        float scale = 1.0f;
        if (scaled) {
            float square = alpha * squares[j] + (1.0f - alpha) * g[j] * g[j];
            squares[j] = square;
            scale = 1.0f / (damping + sqrtf(square));
        }
        float drift = rate * scale * (g[j] + pull * theta[j]);
        theta[j] += noise * sqrtf(scale) * eps[j] - drift;
    }
}

/* A step of Langevin dynamics in place: theta -= rate G (g + pull theta) - noise sqrt(G) eps.
 *
 * G is 1, or where `squares` is not NULL 1 / (damping + sqrt(squares)), after squares, the running
 * mean of g^2, has moved by 1 - alpha towards g^2. eps are the numbers that `normal` gives for this
 * seed and stream; they are never stored. */
void langevin(int64_t threads, int64_t size, float *restrict theta, const float *restrict g,
              float *restrict squares, double rate, double pull, double noise, double alpha,
              double damping, int64_t seed, int64_t stream) {
    int64_t blocks = (size + BLOCK - 1) / BLOCK;
    #pragma omp parallel for schedule(dynamic, CHUNK / BLOCK) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t i = block * BLOCK;
        int count = size - i < BLOCK ? (int)(size - i) : BLOCK;
        float eps[BLOCK] = {0.0f};
        if (noise > 0.0f) normal_block(block, seed, stream, eps);
        if (squares)
            langevin_block(count, theta + i, g + i, squares + i, 1, rate, pull, noise, alpha,
                           damping, eps);
        else
            langevin_block(count, theta + i, g + i, NULL, 0, rate, pull, noise, alpha, damping,
                           eps);
    }
}

static inline void pull_row(int64_t columns, float *restrict loc, const float *restrict rho,
                            float floor_, float rate, const float *restrict factor, int per_column) {
    #pragma omp simd
    for (int64_t j = 0; j < columns; j++) {
        float x = rho[j], sigma = softplus_(x, exp_(-fabsf(x))) + floor_;
        loc[j] /= 1.0f - rate * factor[per_column ? j : 0] * (sigma * sigma);
    }
}

/* A natural step of means in place: loc /= 1 - rate * factor * sigma^2, factor as in `gradient`. */
void pull(int64_t threads, int64_t rows, int64_t columns, float *loc, const float *rho,
          double floor_given, double rate_, const float *factor, int64_t row_stride,
          int64_t column_stride) {
    float floor_ = (float)floor_given, rate = (float)rate_;
    int64_t step = rows_in_chunk(columns);
    #pragma omp parallel for schedule(dynamic, step) num_threads(threads)
    for (int64_t row = 0; row < rows; row++) {
        int64_t i = row * columns;
        const float *f = factor + row * row_stride;
        if (column_stride) pull_row(columns, loc + i, rho + i, floor_, rate, f, 1);
        else pull_row(columns, loc + i, rho + i, floor_, rate, f, 0);
    }
}

/* A step of widths in place: rho -= rate * g, each number by `most` at most. */
void width_step(int64_t threads, int64_t size, float *restrict rho, const float *restrict g,
                double rate_, double most_) {
    float rate = (float)rate_, most = (float)most_;
    #pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t j = 0; j < size; j++) {
        float step = rate * g[j];
        step = step > most ? most : step;
        rho[j] -= step < -most ? -most : step;
    }
}

/* The softmax of each row of logits joins a running mean of probabilities, and its entropy a running
 * mean of entropies: each moves by `share` of its distance to the new value.
 *
 * With d = x - max(x): p = exp(d) / sum(exp(d)), and the entropy is log(sum) - sum(p d). A class
 * whose exp(d) is no longer a normal number counts as impossible.
 */
void average(int64_t threads, int64_t rows, int64_t columns, const float *restrict logits,
             double share_, float *restrict mean, float *restrict entropy) {
    float share = (float)share_;
    #pragma omp parallel num_threads(threads)
    {
        float *exps = malloc(columns * sizeof(float));
        #pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            const float *x = logits + row * columns;
            float *m = mean + row * columns, top = x[0];
            double sum = 0.0, dot = 0.0;
            #pragma omp simd reduction(max : top)
            for (int64_t j = 0; j < columns; j++) top = x[j] > top ? x[j] : top;
            for (int64_t start = 0; start < columns; start += TILE) {
                int count = columns - start < TILE ? (int)(columns - start) : TILE;
                float part = 0.0f, weighted = 0.0f;
                #pragma omp simd reduction(+ : part, weighted)
                for (int j = 0; j < count; j++) {
                    float d = x[start + j] - top;
                    float e = d < -87.0f ? 0.0f : exp_(d);
                    d = d < -87.0f ? 0.0f : d;
                    exps[start + j] = e;
                    part += e;
                    weighted += e * d;
                }
                sum += part;
                dot += weighted;
            }
            float scale = (float)(share / sum);
            #pragma omp simd
            for (int64_t j = 0; j < columns; j++) m[j] += exps[j] * scale - share * m[j];
            entropy[row] += share * ((float)(log(sum) - dot / sum) - entropy[row]);
        }
        free(exps);
    }
}

/* ---- Sparse matrices: compression/sparse.py ----
 *
 * A matrix is kept by rows: the entries of row r are values[starts[r]] to values[starts[r + 1] - 1],
 * in the columns columns[...], which are 16 bits wide (`wide` = 0) or 32 (`wide` = 1).
 */

enum { LANE = 16, MOST_LANES = 4, GROUP = 16 };
typedef float lane_t __attribute__((vector_size(LANE * sizeof(float)), aligned(64)));

#define SPARSE_DOT(name, column_t)                                                             \
    static inline float name(int64_t count, const column_t *restrict columns,                  \
                             const float *restrict values, const float *restrict x) {          \
        float sum = 0.0f;                                                                      \
        _Pragma("omp simd reduction(+ : sum)")                                                 \
        for (int64_t k = 0; k < count; k++) sum += values[k] * x[columns[k]];                  \
        return sum;                                                                            \
    }
SPARSE_DOT(sparse_dot_16, uint16_t)
SPARSE_DOT(sparse_dot_32, int32_t)

/* One row times `lanes` lanes of the batch; x is [columns, lanes]. Two sums, so that one need not
 * wait for the other. `lanes` is a constant where it is called, so the sums stay in registers. */
#define SPARSE_ROW(name, column_t)                                                             \
    static inline __attribute__((always_inline)) void name(                                    \
        int64_t count, const column_t *restrict columns, const float *restrict values,         \
        const lane_t *restrict x, const int lanes, lane_t *restrict out) {                     \
        lane_t even[MOST_LANES] = {{0}}, odd[MOST_LANES] = {{0}};                              \
        int64_t k = 0;                                                                         \
        for (; k + 1 < count; k += 2) {                                                        \
            const lane_t *a = x + (int64_t)columns[k] * lanes;                                 \
            const lane_t *b = x + (int64_t)columns[k + 1] * lanes;                             \
            for (int j = 0; j < lanes; j++) even[j] += a[j] * values[k];                       \
            for (int j = 0; j < lanes; j++) odd[j] += b[j] * values[k + 1];                    \
        }                                                                                      \
        if (k < count) {                                                                       \
            const lane_t *a = x + (int64_t)columns[k] * lanes;                                 \
            for (int j = 0; j < lanes; j++) even[j] += a[j] * values[k];                       \
        }                                                                                      \
        for (int j = 0; j < lanes; j++) out[j] = even[j] + odd[j];                             \
    }
SPARSE_ROW(sparse_row_16, uint16_t)
SPARSE_ROW(sparse_row_32, int32_t)

/* A group of rows times `count` streams of the batch, turned into out[stream, row]. */
static inline __attribute__((always_inline)) void sparse_group(
    int64_t first, int64_t last, int64_t rows, const int64_t *restrict starts, const void *columns,
    const int wide, const float *restrict values, const lane_t *restrict x, const int lanes,
    int count, const float *restrict bias, int64_t add, float *restrict out) {
    lane_t sums[GROUP * MOST_LANES];
    const float *flat = (const float *)sums;
    for (int64_t row = first; row < last; row++) {
        int64_t at = starts[row], size = starts[row + 1] - at;
        lane_t *sum = sums + (row - first) * lanes;
        if (wide)
            sparse_row_32(size, (const int32_t *)columns + at, values + at, x, lanes, sum);
        else
            sparse_row_16(size, (const uint16_t *)columns + at, values + at, x, lanes, sum);
    }
    int width = (int)(last - first);
    for (int b = 0; b < count; b++) {
        float *o = out + b * rows + first;
        for (int r = 0; r < width; r++) {
            float start = (add ? o[r] : 0.0f) + (bias ? bias[first + r] : 0.0f);
            o[r] = start + flat[r * lanes * LANE + b];
        }
    }
}

/* out[b, row] = bias[row] + sum_k values[k] * x[b, columns[k]], or += where `add` is set. The bias
 * may be NULL.
 *
 * One stream: gather from x. More: x is turned to [columns, batch] and padded to whole lanes,
 * so that each weight is one multiply-add per lane. Gives 0, or 1 where there is no memory left. */
int64_t sparse_product(int64_t threads, int64_t rows, int64_t width, int64_t batch,
                       const int64_t *restrict starts, const void *restrict columns, int64_t wide,
                       const float *restrict values, const float *restrict x,
                       const float *restrict bias, int64_t add, float *restrict out) {
    int64_t groups = (rows + GROUP - 1) / GROUP;
    if (batch == 1) {
        #pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = starts[row], size = starts[row + 1] - at;
            float sum = wide ? sparse_dot_32(size, (const int32_t *)columns + at, values + at, x)
                             : sparse_dot_16(size, (const uint16_t *)columns + at, values + at, x);
            out[row] = (add ? out[row] : 0.0f) + (bias ? bias[row] : 0.0f) + sum;
        }
        return 0;
    }
    lane_t *turned = NULL;
    int64_t most = (batch + LANE - 1) / LANE;
    most = most < MOST_LANES ? most : MOST_LANES;
    if (posix_memalign((void **)&turned, 64, (width ? width : 1) * most * sizeof(lane_t))) return 1;
    #pragma omp parallel num_threads(threads)
    for (int64_t begin = 0; begin < batch; begin += MOST_LANES * LANE) {
        int count = batch - begin < MOST_LANES * LANE ? (int)(batch - begin) : MOST_LANES * LANE;
        int lanes = (count + LANE - 1) / LANE;
        const float *own = x + begin * width;
        #pragma omp for schedule(static)
        for (int64_t block = 0; block < (width + LANE - 1) / LANE; block++) {
            int64_t stop = (block + 1) * LANE < width ? (block + 1) * LANE : width;
            for (int64_t c = block * LANE; c < stop; c++) {
                float *t = (float *)(turned + c * lanes);
                for (int b = 0; b < count; b++) t[b] = own[b * width + c];
                for (int b = count; b < lanes * LANE; b++) t[b] = 0.0f;
            }
        }
        #pragma omp for schedule(static)
        for (int64_t group = 0; group < groups; group++) {
            int64_t first = group * GROUP, last = first + GROUP < rows ? first + GROUP : rows;
#define CASE(lanes)                                                                             \
    if (wide) sparse_group(first, last, rows, starts, columns, 1, values, turned, lanes, count, \
                           bias, add, out + begin * rows);                                      \
    else sparse_group(first, last, rows, starts, columns, 0, values, turned, lanes, count,      \
                      bias, add, out + begin * rows);                                           \
    break;
            switch (lanes) {
            case 1: CASE(1)
            case 2: CASE(2)
            case 3: CASE(3)
            case 4: CASE(4)
            }
#undef CASE
        }
    }
    free(turned);
    return 0;
}
