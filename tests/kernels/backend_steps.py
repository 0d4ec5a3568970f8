"""What the checks of vLLM's backend share: causal attention of prompts, and vLLM's metadata of one step."""

import dataclasses

import torch
from adrbench.kernels.decode.reference import attend


def attend_rows(q, key, value, out, q_starts, k_starts, longest_q, longest_k, scale):
    """Causal attention of ragged sequences in fp32, the last query seeing every key."""
    for i in range(len(q_starts) - 1):
        q_rows = range(int(q_starts[i]), int(q_starts[i + 1]))
        k_first, k_end = int(k_starts[i]), int(k_starts[i + 1])
        assert len(q_rows) <= longest_q
        assert k_end - k_first <= longest_k
        for j, row in enumerate(q_rows):
            end = k_end - len(q_rows) + j + 1
            out[row] = attend(q[row], key[k_first:end], value[k_first:end], scale).to(out.dtype)


def metadata(builder, steps, table, slots, device="cpu"):
    """vLLM's common metadata of one step; ``steps``: (tokens before, tokens now) of each request."""
    from vllm.v1.attention.backend import CommonAttentionMetadata

    queries = torch.tensor([now for _, now in steps], dtype=torch.int32)
    lengths = torch.tensor([before + now for before, now in steps], dtype=torch.int32)
    starts = torch.zeros(len(steps) + 1, dtype=torch.int32)
    starts[1:] = queries.cumsum(0)
    fields = {
        "query_start_loc": starts.to(device), "query_start_loc_cpu": starts, "seq_lens": lengths.to(device),
        "num_reqs": len(steps),
        "num_actual_tokens": int(starts[-1]), "max_query_len": int(queries.max()), "max_seq_len": int(lengths.max()),
        "block_table_tensor": table, "slot_mapping": slots, "seq_lens_cpu_upper_bound": lengths,
        "_seq_lens_cpu": lengths,
    }  # fmt: skip
    known = {field.name for field in dataclasses.fields(CommonAttentionMetadata)}
    common = CommonAttentionMetadata(**{name: value for name, value in fields.items() if name in known})
    return builder.build(0, common)
