"""vLLM's attention backend CUSTOM on these kernels: ``vllm serve --attention-backend CUSTOM``.

Installed by ``adrbench.serve.plugin`` when ADRBENCH_PLUGIN names a scheme; no file of vLLM is edited.
Written against vLLM 0.20.2 and 0.18.1; ``tests/kernels/test_kernels_backend_api.py`` compares every
name and signature used here with the source of those wheels.
"""
