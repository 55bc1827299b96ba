#pragma once
// Which of the compiled instruction-set levels this processor runs.

namespace strata {

/// 0: baseline x86-64 (or any other processor), 1: AVX2 + FMA + F16C, 2: AVX-512 (F, BW, DQ, VL), 3: also AVX512-BF16.
/// set_vec_level lowers it.
int vec_level();
/// Uses at most this level from now on, for tests and measurements; -1 restores the processor's own.
void set_vec_level(int level);
/// Throws DeviceError on a processor below this level: where kernels were built for another one alone.
void need_vec_level(int level);
/// True where the processor has AMX tiles with bf16 products and the operating system lets this process use them.
/// False below level 3.
bool has_amx_bf16();

}  // namespace strata
