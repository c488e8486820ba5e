// libquadmath for AArch64, whose long double is the same binary128.

#pragma once

#include <math.h>

#define __float128 long double
#define M_PIq 3.141592653589793238462643383279502884L

inline __float128 asinq(__float128 x) { return asinl(x); }
inline __float128 ceilq(__float128 x) { return ceill(x); }
inline __float128 cosq(__float128 x) { return cosl(x); }
inline __float128 exp2q(__float128 x) { return exp2l(x); }
inline __float128 expq(__float128 x) { return expl(x); }
inline __float128 fabsq(__float128 x) { return fabsl(x); }
inline __float128 floorq(__float128 x) { return floorl(x); }
inline __float128 fmaxq(__float128 x, __float128 y) { return fmaxl(x, y); }
inline __float128 fminq(__float128 x, __float128 y) { return fminl(x, y); }
inline __float128 frexpq(__float128 x, int* e) { return frexpl(x, e); }
inline __float128 hypotq(__float128 x, __float128 y) { return hypotl(x, y); }
inline int ilogbq(__float128 x) { return ilogbl(x); }
inline int isinfq(__float128 x) { return __builtin_isinf(x); }
inline __float128 ldexpq(__float128 x, int e) { return ldexpl(x, e); }
inline __float128 logq(__float128 x) { return logl(x); }
inline __float128 powq(__float128 x, __float128 y) { return powl(x, y); }
inline __float128 rintq(__float128 x) { return rintl(x); }
inline __float128 roundq(__float128 x) { return roundl(x); }
inline __float128 sinq(__float128 x) { return sinl(x); }
inline __float128 sqrtq(__float128 x) { return sqrtl(x); }
inline void sincosq(__float128 x, __float128* s, __float128* c) {
  *s = sinl(x);
  *c = cosl(x);
}
