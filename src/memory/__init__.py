"""Memory of KV-cache schemes: bytes by layout, vLLM's pool, requests of 32k tokens that fit at once."""
