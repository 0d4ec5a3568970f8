"""The tools' texts, as published, to facts."""

import pytest
from adrbench.device import listings, processor, smi

MIB = 1 << 20


def test_lspci_by_class_and_id() -> None:
    text = (
        "07:00.0 Co-processor [0b40]: Chengdu Haiguang IC Design Co., Ltd. KONGMING [1d94:6210] (rev 01)\n"
        "09:00.0 Co-processor [0b40]: Chengdu C-3000 IC Design Co., Ltd. BW [1d94:6370] (rev 01)\n"
        "0a:00.0 Display controller [0380]: Chengdu Haiguang IC Design Co., Ltd. ZIFANG [1d94:55b7]\n"
        "05:00.0 Processing accelerators [1200]: Advanced Micro Devices, Inc. [AMD/ATI] MI300X [1002:74a1]\n"
        "19:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)\n"
    )
    assert [(d["vendor"], d["id"], d.get("arch")) for d in listings.lspci(text)] == [
        ("hygon", "1d94:6210", "gfx928"),
        ("hygon", "1d94:6370", "gfx936"),
        ("hygon", "1d94:55b7", "gfx906"),
        ("amd", "1002:74a1", None),
        ("nvidia", "10de:2335", None),
    ]


def test_a_hygon_or_amd_processor_is_no_accelerator() -> None:
    text = "00:00.0 Host bridge [0600]: Chengdu Haiguang IC Design Co., Ltd. Root Complex [1d94:1450]\n"
    text += "00:01.0 PCI bridge [0604]: Advanced Micro Devices, Inc. [AMD] Bridge [1002:1483]\n"
    text += "00:02.0 VGA compatible controller [0300]: ASPEED Technology, Inc. ASPEED [1a03:2000] (rev 52)\n"
    assert listings.lspci(text) == []


def test_rocminfo_of_a_cut_log_still_gives_the_architecture() -> None:
    text = (
        "  Name:                    amdgcn-amd-amdhsa--gfx928:sramecc+:xnack-\n  Vendor Name:             C-3000 IC\n"
    )
    assert [agent["arch"] for agent in listings.rocminfo(text)] == ["gfx928"]
    assert listings.rocminfo("ROCk module is NOT loaded, possibly no GPU devices\n") == []


@pytest.mark.parametrize("text", ["gfx942:sramecc+:xnack-", "gfx942"])
def test_features_are_not_architecture(text: str) -> None:
    assert listings.plain_arch(text) == "gfx942"


TABLE_A = "DCU  Temp   AvgPwr  Fan   Perf  PwrCap  VRAM%  DCU%\n0    50.0c  55.0W   0.0%  auto  450.0W  0%     0%\n"
TABLE_B = """DCU     Temp     AvgPwr     Perf     PwrCap     VRAM%      DCU%      Mode
0       33.0C    132.0W     auto     450.0W     30%        0.0%      Normal
"""
TABLE_C = """HCU     Temp     AvgPwr     Perf     PwrCap     VRAM%      HCU%      Dec%      Enc%      Mode
0       40.0C    157.0W     high     800.0W     0%         0.0%      0.0%      0.0%      Normal
1       41.0C    158.0W     high     800.0W     5%         7.0%      0.0%      0.0%      Normal
"""


@pytest.mark.parametrize(("text", "power"), [(TABLE_A, [55]), (TABLE_B, [132]), (TABLE_C, [157, 158])], ids="abc")
def test_three_generations_of_the_hy_smi_table(text: str, power: list[float]) -> None:
    cards = smi.from_table(text)
    assert [card["power_w"] for card in cards] == power
    assert [card["index"] for card in cards] == list(range(len(power)))
    assert cards[-1]["utilisation_percent"] == (7 if len(power) == 2 else 0)
    assert smi.names_hygon(text)


def test_line_form_with_a_driver_and_a_clock_behind_its_level() -> None:
    text = """HCU[0]          : HCU use (%): 0.0
HCU[0]          : vram Total Memory (MiB): 65520
HCU[0]          : vram Total Used Memory (MiB): 3
HCU[0]          : Card Series: BW200, UBB BW1000
HCU[0]          : Card Vendor: C-3000 IC Design Co., Ltd.
HCU[0]          : sclk clock level: 1 (600Mhz)
Driver Version: 6.3.31-V1.5.0a
"""
    assert smi.from_lines(text) == [
        {
            "index": 0, "name": "BW200, UBB BW1000", "vendor_name": "C-3000 IC Design Co., Ltd.",
            "driver": "6.3.31-V1.5.0a", "memory_bytes": 65520 * MIB, "memory_used_bytes": 3 * MIB,
            "clock_core_mhz": 600.0, "utilisation_percent": 0.0,
        }
    ]  # fmt: skip


def test_a_clock_level_is_not_a_clock_and_na_is_not_a_number() -> None:
    said = smi.card(0, {"sclk clock level": "7", "Average Graphics Package Power (W)": "N/A (Secondary die)"})
    assert said == {"index": 0}


def test_nvidia_query() -> None:
    cards = listings.nvidia_smi("0, NVIDIA H200, GPU-0, 580.173.02, 143771, 1, 9.0, 700.00, Disabled\n")
    assert cards[0] == {
        "index": 0, "name": "NVIDIA H200", "uuid": "GPU-0", "driver": "580.173.02", "memory_bytes": 143771 * MIB,
        "memory_used_bytes": MIB, "arch": "sm_90", "power_limit_w": 700.0, "mig": False,
    }  # fmt: skip
    with pytest.raises(ValueError, match="argument"):
        listings.nvidia_smi("No devices were found\n")


def test_cpuinfo_flags_of_x86_and_arm() -> None:
    x86 = processor.cpuinfo(
        "model name\t: X\nflags\t\t: fpu avx2 avx512_bf16 amx_tile hypervisor\ncpu MHz\t\t: 2600.0\n"
    )
    assert (x86["model"], x86["flags"], x86["hypervisor"]) == ("X", ["avx2", "avx512_bf16", "amx_tile"], True)
    assert x86["clocks_mhz"] == [2600.0]
    arm = processor.cpuinfo("CPU implementer\t: 0x41\nFeatures\t: fp asimd bf16 sve\nCPU part\t: 0xd40\n")
    assert (arm["model"], arm["flags"]) == ("CPU implementer 0x41 CPU part 0xd40", ["asimd", "bf16", "sve"])
