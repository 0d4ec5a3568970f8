# ruff: noqa: E402
"""Store and decode on a GPU, against the fp32 reference over the same cache: the shape grid.

Runs where torch sees an accelerator (``pytest -n 8 tests/kernels/test_kernels_device.py``), is
skipped elsewhere. Cannot prove: speed, and behaviour under a captured graph inside vLLM.
"""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no accelerator", allow_module_level=True)

from adrbench.kernels.decode import check, launch, reference
from adrbench.kernels.decode.check import Shape
from adrbench.kernels.formats import scheme
from adrbench.kernels.store import check as store_check
from adrbench.kernels.store import launch as store_launch

SHAPES = [
    Shape(32, 8, 128, 16, (1, 4096, 0, 333, 16, 17)),
    Shape(24, 4, 256, 784, (784, 785, 5000, 1, 12345)),
    Shape(24, 4, 256, 1568, (1568, 3000, 31)),
    Shape(32, 8, 128, 64, tuple(range(0, 512, 2))),
    Shape(8, 8, 64, 32, (100, 2049)),
    Shape(16, 1, 128, 48, (1000, 64, 63, 65)),
    Shape(12, 2, 64, 128, (127, 128, 129, 8191)),
    Shape(28, 4, 128, 272, (40000, 271, 272, 273)),
]


SCHEMES = [name for name in check.SCHEMES if "fnuz" not in name or torch.version.hip]
INTEGERS = [name for name in SCHEMES if not scheme(name).key.values.is_float]
WINDOWED = (*store_check.WINDOWED_SHAPES, ((8, 128, 64), ((5000, 127), (1, 1), (700, 0))))
TOLERANCE = {"int8": 3e-3, "int4": 3e-3, "bf16": 6e-3, "fp8_e4m3fn": 8e-3, "fp8_e4m3fnuz": 8e-3, "fp8_e5m2": 3e-2}


@pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda shape: f"h{shape.heads}k{shape.kv_heads}d{shape.dim}p{shape.page_size}"
)
@pytest.mark.parametrize("name", SCHEMES)
def test_decode_matches_fp32(name, shape, record_property):
    worst = 0.0
    for seed in range(3):
        torch.manual_seed(seed)
        problem = check.build(name, shape, torch.bfloat16, "cuda")
        arguments = (problem.q, problem.cache, problem.table, problem.lengths, shape.dim**-0.5)
        expected = reference.decode(*arguments, **problem.scales)
        out = torch.full_like(problem.q, float("nan"))
        launch.decode(*arguments, **problem.scales, out=out)
        again = launch.decode(*arguments, **problem.scales)
        assert torch.equal(out, again), "two runs differ: a race"
        worst = max(worst, check.relative_error(out, expected))
    record_property("relative_error", worst)
    assert worst <= check.ONE_CODE.get(name, TOLERANCE[scheme(name).key.values.name])


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if shape.page_size % 32 == 0], ids=lambda s: f"d{s.dim}p{s.page_size}"
)
def test_kivi_matches_fp32_across_its_window(shape, record_property):
    worst = 0.0
    for seed in range(3):
        torch.manual_seed(seed)
        problem = check.build("kivi4", shape, torch.bfloat16, "cuda")
        out = problem.attend(None)
        assert torch.equal(out, problem.attend(None)), "two runs differ: a race"
        worst = max(worst, check.relative_error(out, problem.expected()))
    record_property("relative_error", worst)
    assert worst <= 1e-2  # keys of codes and P are bf16 in the window


@pytest.mark.parametrize(("shape", "calls"), WINDOWED)
def test_kivi_store_is_byte_exact(shape, calls):
    torch.manual_seed(1)
    assert store_check._windowed("kivi4", shape, calls, torch.bfloat16)("cuda") == 0


@pytest.mark.parametrize(("shape", "calls"), [w for w in WINDOWED if w[0][2] % 64 == 0 or w[0][0] > 1])
def test_kivi_keeps_and_reads_its_newest_tokens_in_pages(shape, calls):
    torch.manual_seed(1)
    assert store_check._in_pages("kivi4", shape, calls, torch.bfloat16)("cuda") == 0


@pytest.mark.parametrize(("name", "shape", "config"), check.FORM_CASES)
def test_forms_that_no_table_has_match_fp32(name, shape, config):
    torch.manual_seed(2)
    problem = check.build(name, shape, torch.bfloat16, "cuda")
    out = problem.attend(config)
    assert torch.equal(out, problem.attend(config)), "two runs differ: a race"
    assert check.relative_error(out, problem.expected()) <= 1e-2


@pytest.mark.parametrize("name", INTEGERS)
def test_a_nan_scale_of_an_unwritten_slot_does_not_reach_the_output(name):
    shape, outs = Shape(8, 2, 128, 64, (70, 129)), []
    for fill in (0xA5, 0xFF):  # 0xFFFFFFFF is NaN
        torch.manual_seed(0)
        problem = check.build(name, shape, torch.bfloat16, "cuda", fill)
        arguments = (problem.q, problem.cache, problem.table, problem.lengths, shape.dim**-0.5)
        outs.append(launch.decode(*arguments, **problem.scales))
    assert torch.equal(*outs)


@pytest.mark.parametrize(("name", "shape", "config"), check.UNPACKED_CASES)
def test_codes_unpacked_in_registers_match_fp32(name, shape, config):
    torch.manual_seed(2)
    problem = check.build(name, shape, torch.bfloat16, "cuda")
    assert check.relative_error(problem.attend(config), problem.expected()) <= 1e-2


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("shape", [store_check.RUNS, (1000, 8, 128, 64, 17)])
def test_store_of_two_heads_a_program_is_byte_exact(name, shape, heads, monkeypatch):
    monkeypatch.setattr(store_launch, "BLOCK_HEADS", heads)
    torch.manual_seed(1)
    assert store_check._store(name, shape)("cuda") == 0


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("shape", [*store_check.SHAPES, (1000, 8, 128, 64, 17), (777, 4, 256, 784, 2)])
def test_store_is_byte_exact(name, shape, early, monkeypatch):
    monkeypatch.setattr(store_launch, "BLOCK_EARLY", early)
    torch.manual_seed(1)
    assert store_check._store(name, shape)("cuda") == 0
    assert store_check._load(name, shape)("cuda") == 0
