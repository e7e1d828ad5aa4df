/* Tiles of the types that are multiplied wider than 8 bits: Q8_0 in 16-bit integers, the float types in float. */
#include "matmul_avx2.h"

#if MF_HAVE_AVX2

enum { PASS_Q8 = 16, PASS_FLOAT = 256 };

/* vpmaddubsw wants one unsigned side and Q8_0 has none within its 16 bits, so both sides are widened: weights once per
 * pass, activations once per chunk of columns. Of each group of four, bytes 0 and 2 make one operand, 1 and 3 the next. */
typedef struct scratch_q8 {
    __m256i v[PASS_Q8][16][MF_PANELS];
    __m256 d[PASS_Q8][MF_PANELS];
} scratch_q8;

_Static_assert(sizeof(scratch_q8) <= MF_PASS_BYTES, "the driver's scratch is too small");

MF_AVX2 void mf_avx2_widen(const int8_t *q, int64_t k, int32_t *wide) {
    for (int64_t i = 0; i < k; i += MF_BLOCK) {
        const __m256i x = mf_load(q + i);
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), odd = _mm256_srai_epi16(x, 8);
        const __m256i low = _mm256_unpacklo_epi32(even, odd), high = _mm256_unpackhi_epi32(even, odd);
        _mm256_storeu_si256((__m256i *)(void *)(wide + i / 2), _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(wide + i / 2 + 8), _mm256_permute2x128_si256(low, high, 0x31));
    }
}

static MF_AVX2 void q8_0_unpack(const uint8_t *quants, const uint8_t *scales, int blocks, int slot, void *to) {
    scratch_q8 *scratch = (scratch_q8 *)to;
    for (int b = 0; b < blocks; b++) {
        MF_UNROLL for (int g = 0; g < 8; g++) {
            const __m256i x = mf_load(quants + 256 * b + 32 * g);
            scratch->v[b][2 * g][slot] = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
            scratch->v[b][2 * g + 1][slot] = _mm256_srai_epi16(x, 8);
        }
        scratch->d[b][slot] = mf_halves(scales + 16 * b);
    }
}

MF_AVX2_INLINE const float *at(const float *p, int64_t stride, int c) {
    return (const float *)(const void *)((const uint8_t *)p + c * stride);
}

MF_AVX2_INLINE void tile_q8(int n, const scratch_q8 *from, int blocks, const mf_tile_input *in, mf_tile_sums *sums) {
    mf_tile_acc acc;
    mf_resume(n, in->is_first, sums->acc, acc);
    for (int b = 0; b < blocks; b++) {
        __m256i sum[MF_TILE][MF_PANELS];
        mf_ask_for_next_pass(in, b);
        MF_UNROLL for (int g = 0; g < 16; g++) {
            const __m256i v0 = from->v[b][g][0], v1 = from->v[b][g][1];
            MF_UNROLL for (int c = 0; c < n; c++) {
                const __m256i y = _mm256_set1_epi32(in->wide[c * in->wide_stride + 16 * b + g]);
                sum[c][0] = g ? _mm256_add_epi32(sum[c][0], _mm256_madd_epi16(v0, y)) : _mm256_madd_epi16(v0, y);
                MF_KEEP(sum[c][0]);
                sum[c][1] = g ? _mm256_add_epi32(sum[c][1], _mm256_madd_epi16(v1, y)) : _mm256_madd_epi16(v1, y);
                MF_KEEP(sum[c][1]);
            }
        }
        MF_UNROLL for (int c = 0; c < n; c++) {
            const __m256 d = _mm256_broadcast_ss(at(in->d, in->stride, c) + b);
            MF_UNROLL for (int p = 0; p < 2; p++)
                acc[c][p] =
                    _mm256_fmadd_ps(_mm256_mul_ps(from->d[b][p], d), _mm256_cvtepi32_ps(sum[c][p]), acc[c][p]);
        }
    }
    MF_UNROLL for (int c = 0; c < n; c++) MF_UNROLL for (int p = 0; p < 2; p++) sums->acc[c][p] = acc[c][p];
}

typedef __m256 scratch_float[PASS_FLOAT][MF_PANELS];

_Static_assert(sizeof(scratch_float) <= MF_PASS_BYTES, "the driver's scratch is too small");

MF_AVX2_INLINE __m256 floats(int type, const uint8_t *p) {
    if (type == MF_F32) return _mm256_loadu_ps((const float *)(const void *)p);
    if (type == MF_F16) return mf_halves(p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

MF_AVX2_INLINE void tile_float(int n, const scratch_float from, int blocks, const mf_tile_input *in, mf_tile_sums *sums) {
    const float *x = (const float *)(const void *)in->q;
    mf_tile_acc acc;
    mf_resume(n, in->is_first, sums->acc, acc);
    for (int k = 0; k < blocks; k++)
        MF_UNROLL for (int c = 0; c < n; c++) {
            const __m256 value = _mm256_broadcast_ss(at(x, in->stride, c) + k);
            MF_UNROLL for (int p = 0; p < 2; p++) acc[c][p] = _mm256_fmadd_ps(from[k][p], value, acc[c][p]);
        }
    MF_UNROLL for (int c = 0; c < n; c++) MF_UNROLL for (int p = 0; p < 2; p++) sums->acc[c][p] = acc[c][p];
}

#define TILE(name, n) \
    static MF_AVX2 void name##_tile##n(const void *from, int blocks, const mf_tile_input *in, mf_tile_sums *sums)
TILE(q8_0, 1) { tile_q8(1, (const scratch_q8 *)from, blocks, in, sums); }
TILE(q8_0, 2) { tile_q8(2, (const scratch_q8 *)from, blocks, in, sums); }
TILE(q8_0, 3) { tile_q8(3, (const scratch_q8 *)from, blocks, in, sums); }
TILE(q8_0, 4) { tile_q8(4, (const scratch_q8 *)from, blocks, in, sums); }
TILE(float, 1) { tile_float(1, (const __m256(*)[MF_PANELS])from, blocks, in, sums); }
TILE(float, 2) { tile_float(2, (const __m256(*)[MF_PANELS])from, blocks, in, sums); }
TILE(float, 3) { tile_float(3, (const __m256(*)[MF_PANELS])from, blocks, in, sums); }
TILE(float, 4) { tile_float(4, (const __m256(*)[MF_PANELS])from, blocks, in, sums); }

const mf_tile_kernels mf_tiles_q8_0 = {PASS_Q8, q8_0_unpack, {q8_0_tile1, q8_0_tile2, q8_0_tile3, q8_0_tile4}};

#define FLOAT_TYPE(name, type, bytes) \
    static MF_AVX2 void name##_unpack(const uint8_t *quants, const uint8_t *scales, int blocks, int slot, void *to) { \
        (void)scales; \
        for (int k = 0; k < blocks; k++) (*(scratch_float *)to)[k][slot] = floats(type, quants + bytes * k); \
    } \
    const mf_tile_kernels mf_tiles_##name = { \
        PASS_FLOAT, name##_unpack, {float_tile1, float_tile2, float_tile3, float_tile4}};

FLOAT_TYPE(f32, MF_F32, 32)
FLOAT_TYPE(f16, MF_F16, 16)
FLOAT_TYPE(bf16, MF_BF16, 16)

/* One column: chains of fused multiply-adds are bound by latency, so four panels run abreast. The lines of the four after
 * them are asked for at the same place, and within panels too long for that MF_AHEAD before: F16 is read at 44 GB/s by a
 * core of Zen 5, and at 23 without. */
enum { ABREAST = 4, ABREAST_BYTES = 128 << 10 };

MF_AVX2_INLINE void gemv_float(int type, int bytes, const mf_span *span, const float *x, int64_t column) {
    const mf_weight *w = span->weight;
    const int per_line = 64 / bytes;
    const int64_t next = ABREAST * w->panel_bytes, ahead = next <= ABREAST_BYTES ? next : MF_AHEAD;
    for (int64_t i = span->first; i < span->last; i += ABREAST) {
        const uint8_t *panel[ABREAST];
        __m256 acc[ABREAST];
        MF_UNROLL for (int a = 0; a < ABREAST; a++) {
            panel[a] = mf_panel(w, i + a < span->last ? i + a : i);
            acc[a] = _mm256_setzero_ps();
        }
        for (int64_t k = 0, n; k < w->k; k += n) {
            n = w->k - k < per_line ? w->k - k : per_line;
            MF_UNROLL for (int a = 0; a < ABREAST; a++)
                _mm_prefetch((const char *)((uintptr_t)panel[a] + (uintptr_t)(bytes * k + ahead)), _MM_HINT_T0);
            for (int64_t j = k; j < k + n; j++) {
                const __m256 value = _mm256_broadcast_ss(x + j);
                MF_UNROLL for (int a = 0; a < ABREAST; a++)
                    acc[a] = _mm256_fmadd_ps(floats(type, panel[a] + bytes * j), value, acc[a]);
            }
        }
        for (int a = 0; a < ABREAST && i + a < span->last; a++) mf_emit(span, column, i + a, acc[a]);
    }
}

MF_AVX2 void mf_avx2_gemv_float(const mf_span *span, const uint8_t *activation, int64_t column) {
    const float *x = (const float *)(const void *)activation;
    switch (span->weight->type) {
    case MF_F16: gemv_float(MF_F16, 16, span, x, column); break;
    case MF_BF16: gemv_float(MF_BF16, 16, span, x, column); break;
    default: gemv_float(MF_F32, 32, span, x, column); break;
    }
}

#endif
