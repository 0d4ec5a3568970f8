"""The executable rules F9.1-3. They state expectations of upstream vLLM; no card was asked."""

import pytest
from adrbench.device import rules

DCU = ("gfx926", "gfx928", "gfx936", "gfx938")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_all_four_backends_on_mi300(arch: str) -> None:
    assert set(rules.candidates(arch)) == {"TRITON_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "ROCM_ATTN"}
    assert rules.backend(arch, "ROCM_AITER_FA", aiter=True).outcome == "valid"
    assert rules.backend(arch, "ROCM_AITER_FA", aiter=False).outcome == "refused"


@pytest.mark.parametrize("arch", ["gfx90a", *DCU])
def test_aiter_fa_is_refused_with_vllms_own_words_elsewhere(arch: str) -> None:
    assert "ROCM_AITER_FA" not in rules.candidates(arch, aiter=True)
    for aiter in (True, False):
        expected = rules.backend(arch, "ROCM_AITER_FA", aiter=aiter)
        assert expected.outcome == "refused"
        assert expected.reason.endswith("Reason: ['compute capability not supported']")


def test_unified_needs_aiter_and_on_a_dcu_a_proof() -> None:
    name = "ROCM_AITER_UNIFIED_ATTN"
    assert rules.backend("gfx90a", name, aiter=True).outcome == "valid"
    assert {rules.backend(arch, name, aiter=True).outcome for arch in DCU} == {"unproven"}
    assert {rules.backend(arch, name, aiter=False).outcome for arch in ("gfx90a", *DCU)} == {"refused"}
    assert name not in rules.candidates("gfx936")
    assert name in rules.candidates("gfx936", aiter=True)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", *DCU])
def test_triton_is_the_default_and_rocm_attn_a_candidate_everywhere(arch: str) -> None:
    assert rules.candidates(arch)[0] == "TRITON_ATTN"
    assert "ROCM_ATTN" in rules.candidates(arch)
    assert rules.backend(arch, "TRITON_ATTN").outcome == "valid"


def test_cpu_ignores_and_nvidia_refuses() -> None:
    assert rules.candidates("x86_64") == ("CPU_ATTN",)
    assert rules.backend("x86_64", "TRITON_ATTN").outcome == "ignored"
    assert rules.backend("sm_90", "ROCM_ATTN").outcome == "refused"
    assert rules.candidates("sm_90")[0] == "FLASH_ATTN"
    assert rules.candidates("sm_100")[0] == "FLASHINFER"
    assert "FLASH_ATTN" not in rules.candidates("sm_75")


@pytest.mark.parametrize(
    ("arch", "format_"),
    [("gfx940", rules.E4M3FNUZ), ("gfx942", rules.E4M3FNUZ)]
    + [(arch, rules.E4M3FN) for arch in ("gfx90a", "gfx950", "sm_90", "x86_64", *DCU)],
)
def test_fnuz_on_gfx94_only(arch: str, format_: rules.Fp8) -> None:
    assert rules.fp8(arch) == format_


def test_maxima() -> None:
    assert (rules.E4M3FNUZ.maximum, rules.E4M3FNUZ.scale_maximum) == (240, 224)
    assert (rules.E4M3FN.maximum, rules.E4M3FN.scale_maximum) == (448, 448)


def test_kv_dtypes() -> None:
    assert rules.kv_dtype("gfx936", "auto").outcome == "valid"
    assert rules.kv_dtype("gfx936", "fp8").outcome == "valid"
    assert "float8_e4m3fnuz" in rules.kv_dtype("gfx942", "fp8_e4m3").reason
    assert rules.kv_dtype("gfx936", "int8").outcome == "refused"
    assert rules.kv_dtype("gfx936", "bfloat16").outcome == "refused"
    assert rules.kv_dtype("gfx936", "bfloat16", backend_name="ROCM_ATTN").outcome == "unproven"
    assert "stored as float8_e4m3fn" in rules.kv_dtype("gfx936", "fp8_e5m2").reason
    offered = ("auto", "fp8", "int8_per_token_head")
    assert rules.kv_dtype("x86_64", "fp8_e5m2", offered=offered).outcome == "refused"
    assert rules.kv_dtype("x86_64", "int8_per_token_head", offered=offered).outcome == "unproven"


@pytest.mark.parametrize("word", ["MI300X", "BW", "K100_AI", "gfx942:sramecc+", "", "sm90"])
def test_a_marketing_name_is_no_architecture(word: str) -> None:
    for rule in (rules.fp8, rules.candidates, rules.granularity):
        with pytest.raises(ValueError, match="is no architecture"):
            rule(word)
