"""Greedy continuation of one prompt by transformers, run in the serving interpreter.

    python -m adrbench.model.answer FOLDER PROMPT NEW_TOKENS

prints the continuation as JSON. It is the model's answer without vLLM: what a served arm is held against.
"""

import json
import sys


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, prompt, new_tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False)
    print("ANSWER " + json.dumps(tokenizer.decode(out[0, ids.shape[1] :])))


if __name__ == "__main__":
    main()
