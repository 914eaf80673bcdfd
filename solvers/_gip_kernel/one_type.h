/* The steps for one number type and one instruction set. */

#include "algebra.h"
#include "equations.h"
#include "steps.h"

#undef TYPE
#undef REAL
#undef INTEGER
#undef SQRT
#undef TINY
#undef EPSILON
#undef MANTISSA_BITS
#undef EXPONENT_BIAS
#undef Vector
#undef Integers
#undef LANES
#undef INLINE
#undef UNROLL
#undef BLOCK
#undef Group
#undef all
#undef larger
#undef smaller
#undef magnitude
#undef square_root
#undef dot
#undef TILE
#undef TILES
