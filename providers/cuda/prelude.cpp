// The text that every kernel's text begins with. `ORT_HOST` is defined where a test compiles one
// for the host: loads and stores are looked up and threads meet there by functions of its own.
#include "providers/cuda/code.h"

namespace ort::cuda {
namespace {

const char* const kTypes = R"(
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32;
typedef unsigned long long u64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct b128 { u64 parts[2]; };
#ifdef ORT_HOST
#define ORT_MATH(NAME) inline float f_##NAME(float x) { return __builtin_##NAME##f(x); } \
                       inline double f_##NAME(double x) { return __builtin_##NAME(x); }
#define ORT_MATH2(NAME) \
  inline float f_##NAME(float x, float y) { return __builtin_##NAME##f(x, y); } \
  inline double f_##NAME(double x, double y) { return __builtin_##NAME(x, y); }
inline float f_fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double f_fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float bits_to_float(u32 x) { float y; __builtin_memcpy(&y, &x, 4); return y; }
inline u32 float_to_bits(float x) { u32 y; __builtin_memcpy(&y, &x, 4); return y; }
#else
#define ORT_MATH(NAME) inline float f_##NAME(float x) { return NAME##f(x); } \
                       inline double f_##NAME(double x) { return NAME(x); }
#define ORT_MATH2(NAME) \
  inline float f_##NAME(float x, float y) { return NAME##f(x, y); } \
  inline double f_##NAME(double x, double y) { return NAME(x, y); }
inline float f_fma(float x, float y, float z) { return fmaf(x, y, z); }
inline double f_fma(double x, double y, double z) { return fma(x, y, z); }
inline float bits_to_float(u32 x) { return __uint_as_float(x); }
inline u32 float_to_bits(float x) { return __float_as_uint(x); }
#endif
ORT_MATH(exp) ORT_MATH(log) ORT_MATH(log1p) ORT_MATH(expm1) ORT_MATH(log2) ORT_MATH(sqrt)
ORT_MATH(erf) ORT_MATH(erfc) ORT_MATH(tanh) ORT_MATH(sin) ORT_MATH(cos) ORT_MATH(floor)
ORT_MATH(ceil) ORT_MATH(rint) ORT_MATH(tan) ORT_MATH(asin) ORT_MATH(acos) ORT_MATH(atan)
ORT_MATH(sinh) ORT_MATH(cosh) ORT_MATH(asinh) ORT_MATH(acosh) ORT_MATH(atanh) ORT_MATH(fabs)
ORT_MATH2(pow) ORT_MATH2(fmod)
template <class T> struct is_float { static constexpr bool value = false; };
template <> struct is_float<float> { static constexpr bool value = true; };
template <> struct is_float<double> { static constexpr bool value = true; };
template <class T> struct as_unsigned { typedef u32 type; };
template <> struct as_unsigned<i64> { typedef u64 type; };
template <> struct as_unsigned<u64> { typedef u64 type; };
template <class T> struct as_signed { typedef T type; };
template <> struct as_signed<u32> { typedef i32 type; };
template <> struct as_signed<u64> { typedef i64 type; };
template <class T> inline T lowest() {
  if constexpr (is_float<T>::value) return (T)-bits_to_float(0x7f800000u);
  else if constexpr (sizeof(T) == 1 && T(-1) > T(0)) return T(0);
  else if constexpr (T(-1) > T(0)) return T(0);
  else return (T)((u64)1 << (8 * sizeof(T) - 1));
}
template <class T> inline T highest() {
  if constexpr (is_float<T>::value) return -lowest<T>();
  else return (T)~lowest<T>();
}
)";

const char* const kConversions = R"(
#ifdef ORT_HOST
inline float wide(f16 x) {
  const u32 sign = (u32)(x.bits >> 15) << 31, exponent = x.bits >> 10 & 31, mantissa = x.bits & 1023;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = (float)mantissa * 0x1p-24f;
  return sign ? -small : small;
}
inline f16 to_half(float x) {
  const u32 bits = float_to_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return f16{(u16)(sign | 0x7fffu)};
  if (rest >= 0x477ff000u) return f16{(u16)(sign | 0x7c00u)};
  if (rest < 0x38800000u) {
    const float small = f_rint(bits_to_float(rest) * 0x1p24f);
    return f16{(u16)(sign | (u32)small)};
  }
  return f16{(u16)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13)};
}
#else
inline float wide(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
inline f16 to_half(float x) { f16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y; }
#endif
inline float wide(bf16 x) { return bits_to_float((u32)x.bits << 16); }
inline bf16 to_bfloat(float x) {
#ifdef ORT_HOST
  const u32 bits = float_to_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{(u16)(bits >> 16 | 0x40u)};
  return bf16{(u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
#else
  bf16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y;
#endif
}
template <class T> inline T wide(T x) { return x; }
template <class Int, class Float> inline Int truncated(Float x) {
  const Float end = (Float)((u64)1 << (8 * sizeof(Int) - 1));
  return x >= -end && x < end ? (Int)x : (Int)((u64)1 << (8 * sizeof(Int) - 1));
}
template <class To> struct Narrow {
  template <class From> static inline To of(From x) {
    if constexpr (!is_float<From>::value || is_float<To>::value) return (To)x;
    else if constexpr (To(-1) > To(0) && sizeof(To) >= 4) {
      typedef typename as_signed<To>::type Signed;
      const To top = (To)1 << (8 * sizeof(To) - 1);
      const From middle = (From)top;
      return x >= middle ? (To)truncated<Signed>(x - middle) ^ top : (To)truncated<Signed>(x);
    } else if constexpr (sizeof(To) == 8) return (To)truncated<i64>(x);
    else if constexpr (To(-1) > To(0) && sizeof(To) == 1) return (To)truncated<i64>(x);
    else return (To)truncated<i32>(x);
  }
};
template <> struct Narrow<bool> { template <class F> static inline bool of(F x) { return x != F(0); } };
template <> struct Narrow<f16> { template <class F> static inline f16 of(F x) { return to_half((float)x); } };
template <> struct Narrow<bf16> { template <class F> static inline bf16 of(F x) { return to_bfloat((float)x); } };
template <class To, class From> inline To as(From x) { return Narrow<To>::of(wide(x)); }
)";

// Threads, memory, and what the threads of a row have together.
const char* const kThreadFolds = R"(
#ifdef ORT_HOST
struct OrtHost {
  u32 block, blocks, thread, threads;
  void* (*seen)(const void* at, u64 bytes, bool writes);
  void (*barrier)();
};
extern "C" { OrtHost ort_host; }
#define ORT_KERNEL(NAME, ARGS, THREADS) \
  static void NAME(const ARGS& a); \
  extern "C" { u64 NAME##_bytes = sizeof(ARGS); u32 NAME##_threads = THREADS; void NAME##_host(const void* p) { NAME(*(const ARGS*)p); } } \
  static void NAME(const ARGS& a)
#define ORT_SHARED static
inline u32 block() { return ort_host.block; }
inline u32 blocks() { return ort_host.blocks; }
inline u32 thread() { return ort_host.thread; }
inline u32 threads() { return ort_host.threads; }
inline void barrier() { ort_host.barrier(); }
template <class T> inline T load_at(const T* at) { return *(const T*)ort_host.seen(at, sizeof(T), false); }
template <class T> inline void store_at(T* at, T x) { *(T*)ort_host.seen(at, sizeof(T), true) = x; }
template <int kThreads, class T, class F> inline T row_fold(T x, F f) {
  static T given[1024], made[1024];
  const u32 own = thread(), first = own / kThreads * kThreads;
  given[own] = x;
  barrier();
  if (own == first) {
    for (u32 step = 1; step < kThreads; step *= 2)
      for (u32 k = 0; k < kThreads; k += 2 * step) given[first + k] = f(given[first + k], given[first + k + step]);
    made[first] = given[first];
  }
  barrier();
  return made[first];
}
#else
#define ORT_KERNEL(NAME, ARGS, THREADS) extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(const ARGS a)
#define ORT_SHARED __shared__
inline u32 block() { return blockIdx.x; }
inline u32 blocks() { return gridDim.x; }
inline u32 thread() { return threadIdx.x; }
inline u32 threads() { return blockDim.x; }
inline void barrier() { __syncthreads(); }
template <class T> inline T load_at(const T* at) { return *at; }
template <class T> inline void store_at(T* at, T x) { *at = x; }
template <int kLanes, class T, class F> inline T warp_fold(T x, F f) {
  for (int step = 1; step < kLanes; step *= 2) x = f(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
template <int kThreads, class T, class F> inline T row_fold(T x, F f) {
  x = warp_fold<32>(x, f);
  if constexpr (kThreads > 32) {
    __shared__ T parts[32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
    if (lane == 0) parts[warp] = x;
    __syncthreads();
    x = warp_fold<kThreads / 32>(parts[lane % (kThreads / 32)], f);
  }
  return x;
}
#endif
template <class T, class I> inline T load(const T* from, I i) { return load_at(from + i); }
template <class T, class I> inline void store(T* to, I i, T x) { store_at(to + i, x); }
template <class T, int kLanes> struct alignas(sizeof(T) * kLanes) Pack { T x[kLanes]; };
template <int kLanes, class T, class I> inline Pack<T, kLanes> load_pack(const T* from, I i) {
  return load_at((const Pack<T, kLanes>*)(from + i));
}
template <int kLanes, class T, class I> inline void store_pack(T* to, I i, const Pack<T, kLanes>& x) {
  store_at((Pack<T, kLanes>*)(to + i), x);
}
inline void fail_with(i32* failure, i64 mark) { if (load_at(failure) == 0) store_at(failure, (i32)mark); }
)";

const char* const kMeanings = R"(
namespace op {
template <class T> inline T add(T a, T b) { typedef typename as_unsigned<T>::type U; if constexpr (is_float<T>::value) return a + b; else return (T)((U)a + (U)b); }
template <class T> inline T sub(T a, T b) { typedef typename as_unsigned<T>::type U; if constexpr (is_float<T>::value) return a - b; else return (T)((U)a - (U)b); }
template <class T> inline T mul(T a, T b) { typedef typename as_unsigned<T>::type U; if constexpr (is_float<T>::value) return a * b; else return (T)((U)a * (U)b); }
template <class T> inline T div(T a, T b) {
  if constexpr (!is_float<T>::value) { if (b == 0) return T(0); if (T(-1) < T(0) && b == T(-1)) return sub(T(0), a); }
  return (T)(a / b);
}
template <class T> inline T remainder(T a, T b, bool truncated) {
  T m;
  if constexpr (is_float<T>::value) m = f_fmod(a, b);
  else { if (b == 0 || (T(-1) < T(0) && b == T(-1))) return T(0); m = (T)(a % b); }
  return truncated || m == 0 || (m < 0) == (b < 0) ? m : (T)(m + b);
}
template <class T> inline T mod(T a, T b) { return remainder(a, b, false); }
template <class T> inline T fmod(T a, T b) { return remainder(a, b, true); }
template <class T> inline T pow(T x, T y) {
  if constexpr (is_float<T>::value) return f_pow(x, y);
  else {
    if (y < T(0)) return x == T(1) || x == T(-1) ? (y % 2 ? x : T(1)) : T(0);
    T result = T(1);
    for (u64 rest = (u64)y; rest > 0; rest >>= 1, x = mul(x, x)) if (rest & 1) result = mul(result, x);
    return result;
  }
}
template <class T> inline T max(T a, T b) { return (a != a) | (a > b) ? a : b; }
template <class T> inline T min(T a, T b) { return (a != a) | (a < b) ? a : b; }
template <class T> inline T shift_left(T a, T b) {
  typedef typename as_unsigned<T>::type U;
  const bool inside = b >= T(0) && b < T(8 * sizeof(T));
  return inside ? (T)((U)a << b) : T(0);
}
template <class T> inline T shift_right(T a, T b) {
  const bool inside = b >= T(0) && b < T(8 * sizeof(T));
  return inside ? (T)(a >> b) : a < T(0) ? (T)-1 : T(0);
}
#define ORT_ONE(NAME, EXPRESSION) template <class T> inline T NAME(T x) { return (T)(EXPRESSION); }
#define ORT_TWO(NAME, EXPRESSION) template <class T> inline T NAME(T a, T b) { return (T)(EXPRESSION); }
ORT_ONE(copy, x) ORT_ONE(relu, x < T(0) ? T(0) : x) ORT_ONE(sign, x == x ? T((x > T(0)) - (x < T(0))) : x)
ORT_ONE(logical_not, x == T(0)) ORT_ONE(square, mul(x, x)) ORT_ONE(bit_not, ~x)
ORT_TWO(equal, a == b) ORT_TWO(less, a < b) ORT_TWO(less_equal, a <= b)
ORT_TWO(logical_and, (a != T(0)) & (b != T(0))) ORT_TWO(logical_or, (a != T(0)) | (b != T(0)))
ORT_TWO(logical_xor, (a != T(0)) != (b != T(0))) ORT_TWO(bit_and, a & b) ORT_TWO(bit_or, a | b) ORT_TWO(bit_xor, a ^ b)
template <class T> inline T neg(T x) { if constexpr (is_float<T>::value) return -x; else return sub(T(0), x); }
template <class T> inline T abs(T x) { if constexpr (is_float<T>::value) return f_fabs(x); else return x < T(0) ? sub(T(0), x) : x; }
template <class T> inline T where(T c, T a, T b) { return c != T(0) ? a : b; }
template <class T> inline T mul_add(T a, T b, T c) { if constexpr (is_float<T>::value) return f_fma(a, b, c); else return add(mul(a, b), c); }
ORT_ONE(exp, f_exp(x)) ORT_ONE(log, f_log(x)) ORT_ONE(log1p, f_log1p(x)) ORT_ONE(expm1, f_expm1(x))
ORT_ONE(log2, f_log2(x)) ORT_ONE(sqrt, f_sqrt(x)) ORT_ONE(reciprocal, T(1) / x) ORT_ONE(erf, f_erf(x))
ORT_ONE(tanh, f_tanh(x)) ORT_ONE(sigmoid, T(1) / (T(1) + f_exp(-x)))
ORT_ONE(gelu, T(0.5) * x * f_erfc(x * T(-0.70710678118654752440)))
ORT_ONE(gelu_tanh, x * sigmoid(T(1.5957691216057307117) * (x * (x * x * T(0.044715) + T(1)))))
ORT_ONE(gelu_derivative, T(0.5) * f_erfc(x * T(-0.70710678118654752440)) + x * (T(0.39894228040143267794) * f_exp(T(-0.5) * (x * x))))
template <class T> inline T gelu_tanh_derivative(T x) {
  const T t = f_tanh(T(0.79788456080286535588) * (x + T(0.044715) * (x * x * x)));
  return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * (T(0.79788456080286535588) * (T(1) + T(0.134145) * (x * x)));
}
ORT_ONE(silu_derivative, sigmoid(x) * (T(1) + x * (T(1) - sigmoid(x))))
ORT_ONE(silu, x * sigmoid(x)) ORT_ONE(sin, f_sin(x)) ORT_ONE(cos, f_cos(x)) ORT_ONE(tan, f_tan(x))
ORT_ONE(asin, f_asin(x)) ORT_ONE(acos, f_acos(x)) ORT_ONE(atan, f_atan(x)) ORT_ONE(sinh, f_sinh(x))
ORT_ONE(cosh, f_cosh(x)) ORT_ONE(asinh, f_asinh(x)) ORT_ONE(acosh, f_acosh(x)) ORT_ONE(atanh, f_atanh(x))
ORT_ONE(floor, f_floor(x)) ORT_ONE(ceil, f_ceil(x)) ORT_ONE(round, f_rint(x))
ORT_ONE(is_nan, x != x) ORT_ONE(is_inf, x == x && x - x != T(0)) ORT_ONE(to_bf16, wide(to_bfloat((float)x))) ORT_ONE(to_f16, wide(to_half((float)x)))
inline u32 philox_word(u64 key, u32 node, u64 element) {
  const u64 part = element / 4;
  u32 c0 = (u32)part, c1 = (u32)(part >> 32), c2 = node, c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0; c1 = (u32)p1;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1; c3 = (u32)p0;
  }
  const u32 which = (u32)(element % 4);
  return which == 0 ? c0 : which == 1 ? c1 : which == 2 ? c2 : c3;
}
template <class T> inline T dropout(T x, T ratio, u64 key, u32 node, u64 element) {
  const T u = (T)(philox_word(key, node, element) >> 8) * (T)0x1p-24;
  return u >= ratio && ratio < T(1) ? x * (T(1) / (T(1) - ratio)) : T(0);
}
}
template <int kThreads, class T> inline T row_sum(T x) { return row_fold<kThreads>(x, [](T a, T b) { return a + b; }); }
template <int kThreads, class T> inline T row_max(T x) { return row_fold<kThreads>(x, [](T a, T b) { return op::max(a, b); }); }
template <int kThreads, class T> inline T row_min(T x) { return row_fold<kThreads>(x, [](T a, T b) { return op::min(a, b); }); }
)";

}  // namespace

const std::string& prelude() {
  static const std::string text = kTypes + std::string(kConversions) + kThreadFolds + kMeanings;
  return text;
}

}  // namespace ort::cuda
