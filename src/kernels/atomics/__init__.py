"""Atomics combined with scales: a scaled sum by atomic_add, a shared scale by atomic_max."""
