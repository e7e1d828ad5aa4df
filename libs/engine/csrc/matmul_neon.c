/* The NEON table; empty until its kernels are built in. */
#include "matmul_layout.h"

const mf_kernels mf_kernels_neon = {"neon", 0, 0, 0, 0};
