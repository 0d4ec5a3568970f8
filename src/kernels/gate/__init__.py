"""The compile gate: every kernel variant compiled for AMD and NVIDIA targets on a machine without a GPU.

Triton carries LLVM's AMDGPU backend with LLD, and ptxas with NVIDIA's disassemblers, so the binary
that a device would run can be made and read anywhere. Hygon's targets are rejected by upstream
Triton; ``python -m adrbench.kernels.gate`` runs the same on a DCU host with the vendor's Triton.
"""
