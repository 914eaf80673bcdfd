/* The steps for both number types and one instruction set. */

#define TYPE float
#define REAL float
#define INTEGER int32_t
#define SQRT sqrtf
#define TINY 1.17549435e-38f
#define EPSILON 1.1920929e-07
#define MANTISSA_BITS 23
#define EXPONENT_BIAS 127
#include "one_type.h"

#define TYPE double
#define REAL double
#define INTEGER int64_t
#define SQRT sqrt
#define TINY 2.2250738585072014e-308
#define EPSILON 2.220446049250313e-16
#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1023
#include "one_type.h"
