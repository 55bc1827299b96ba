"""bench/why_slow.py without a card: what it reads of ncu's output and makes of it."""

import pathlib
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))
import why_slow  # noqa: E402

COLUMNS = ["ID", "Process Name", "Kernel Name", "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum",
           "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
           "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
           "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"]
BACKWARD = ("void strata::attention_cuda::hopper::<unnamed>::backward_hopper_kernel<strata::BFloat16, (int)128>(strata::Call, float *)")
SEPARATOR = ("void at::native::vectorized_elementwise_kernel<(int)4, at::native::nextafter_kernel_cuda(at::TensorIteratorBase &)::"
             "[lambda() (instance 1)], std::array<char *, (unsigned long)3>>(int, T2, T3)")
PRODUCT = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT"


def _output(*kernels):
    rows = [["", "", "", "byte", "byte", "ns", "%", "inst", "inst"], *([str(i), "python", *row] for i, row in enumerate(kernels))]
    lines = ["==PROF== Connected to process 7", *(",".join(f'"{cell}"' for cell in row) for row in [COLUMNS, *rows])]
    return "\n".join([*lines, "==PROF== Disconnected", ""])


@pytest.fixture
def kernels():
    between = [SEPARATOR, "8", "4", "1,000", "n/a", "0", "0"]
    return why_slow.read_kernels(_output([BACKWARD, "12,000,000", "4,000,000", "2,000,000", "61.5", "0.25", "3.5"], between,
                                         [PRODUCT, "1,000", "1,000", "4,000", "90", "0", "1"], between))


def test_counters_are_numbers_and_units_are_no_kernel(kernels):
    assert len(kernels) == 4
    assert kernels[0]["dram__bytes_read.sum"] == 12e6 and kernels[0]["gpu__time_duration.sum"] == 2e6
    assert kernels[1][why_slow.SHARES["tensor"]] is None
    assert why_slow.read_kernels("==ERROR== no kernels were profiled\n") == []


def test_separating_kernels_end_parts(kernels):
    parts = why_slow.divided(kernels, 2)
    assert [[why_slow.short(k["Kernel Name"]) for k in part] for part in parts] == [["hopper::backward_hopper_kernel"], [PRODUCT]]
    assert why_slow.divided(kernels[:1], 1) == [kernels[:1]]
    with pytest.raises(ValueError, match="2 parts were recorded, 3 were expected"):
        why_slow.divided(kernels, 3)


@pytest.mark.parametrize("kernel, kind", [
    (BACKWARD, "attention"), (PRODUCT, "products"), (SEPARATOR, "elementwise"), ("triton_poi_fused_add_gelu_7", "elementwise"),
    ("triton_red_fused_native_layer_norm_3", "norms, sums, softmax"), ("strata::conv_cuda::boxes_kernel<1>(int)", "convolutions"),
    ("sm90_xmma_wgrad_implicit_gemm_bf16", "convolutions"), ("strata::optim::update_kernel<4>(float)", "optimizer"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop", "attention"), ("some_kernel", "rest")])
def test_kinds_of_kernels(kernel, kind):
    assert why_slow.kind_of(kernel) == kind


def test_tables_say_time_bytes_and_what_warps_wait_for(kernels):
    first, second = why_slow.divided(kernels, 2)
    table = why_slow.table_of_calls("case", {"Strata": {"backward": first, "product": second}})
    assert "| backward | Strata | 1 | 2000.0 | 16.0 |" in table
    row = next(line for line in table.splitlines() if "backward_hopper_kernel" in line)
    assert "| 2000.0 | 100% | 16.0 | 8 |" in row and "62%" in row and "gmma 3.5, barrier 0.2 |" in row
    step = why_slow.table_of_step("program", {"Strata": (2.5, kernels)})
    assert "| Strata | 2.50 | 2.01 | 4 | 0.02 | 2.00 (0.02) |" in step
