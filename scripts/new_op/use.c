/* The op from C: found by its name, called with its default. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <strata/c/strata.h>

int main(void) {
  const double x[2] = {0.0, 0.5};
  const int64_t shape[1] = {2};
  const strata_device cpu = {STRATA_CPU, 0};
  double y[2];
  strata_value arg = {0}, result = {0};
  size_t results = 1;
  const strata_op* op = strata_op_find("snake");
  if (!op || strcmp(strata_op_schema(op), "snake(Tensor x, float a=1.0) -> Tensor") != 0) return 1;
  arg.kind = STRATA_TENSOR;
  if (strata_tensor_from_data(x, sizeof x, shape, 1, STRATA_F64, cpu, &arg.as.tensor) != STRATA_OK) return 2;
  if (strata_op_call(op, &arg, 1, &result, &results) != STRATA_OK) return 3;
  if (strata_tensor_copy_to_host(result.as.tensor, y, sizeof y) != STRATA_OK) return 4;
  strata_tensor_release(arg.as.tensor);
  strata_tensor_release(result.as.tensor);
  printf("C: %g %g\n", y[0], y[1]);
  return fabs(y[0]) < 1e-12 && fabs(y[1] - (0.5 + pow(sin(0.5), 2))) < 1e-12 ? 0 : 5;
}
